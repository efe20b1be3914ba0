"""Function classes: numbers that the code of Garg et al. gives on its own draws, sizes, and trees by hand."""

import warnings
from functools import partial

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.rng import stream
from icl_lab.tasks import estimators, functions
from tests.cases import few
from tests.tasks import draws

draw = partial(draws.draw, at="functions")

# github.com/dtsip/in-context-learning at 3383371: src/tasks.py and src/models.py, 2 prompts of 5 inputs, 3 dimensions.
SEED = 7
LINEAR = [[-0.4999, -1.5045, -1.0648, -1.7444, 0.4407], [3.2881, -2.5517, 2.1822, -0.0531, 2.8471]]
QUADRATIC = [[0.1231, 1.1858, -0.0985, 0.9535, 0.222], [3.1, 0.6628, -0.8569, -0.1585, 2.5701]]
RELU = [[-0.9299, -0.5695, -0.8036, -0.4576, -2.4559], [-1.0799, 0.8727, -1.3697, 0.3643, 0.0]]  # 4 hidden units
TREE = [[0.4963, 0.5662, -0.3602, -0.3602, 0.2142], [0.4589, -0.0911, -0.0911, -0.0911, 0.4589]]  # 2 questions
LEAST_SQUARES = [[0.0, -0.4977, -0.3142, -1.7444, 0.4407], [0.0, -0.2681, 0.9141, -0.0531, 2.8471]]
AVERAGING = [[0.0, -0.3542, -0.3979, -1.6239, 0.2633], [0.0, -3.049, 4.156, -0.5854, 4.7203]]
NEIGHBOURS = [[0.0, -0.4999, -1.0022, -1.0231, -1.2496], [0.0, 3.2881, 0.3682, 0.9728, 1.8057]]
LASSO = [[0.0, 0.2542, -0.2463, -1.619, 0.4099], [0.0, -1.3931, 0.9089, -0.0487, 2.8255]]
GREEDY = [[0.0, 0.4963, 0.5662, -0.3602, -0.3602], [0.0, 0.4589, 0.4589, 0.4589, 0.4589]]


def drawn(*shapes):
    """Normal draws as the published code makes them, and inputs after them."""
    rng = torch.Generator().manual_seed(SEED)
    return *(torch.randn(shape, generator=rng) for shape in shapes), torch.randn(2, 5, 3, generator=rng)


def close(found, expected, atol=1e-4):
    return torch.allclose(found, torch.tensor(expected, dtype=found.dtype), atol=atol)


def test_functions_as_published():
    w, x = drawn((2, 3))
    assert close(functions.linear(x, w), LINEAR)
    assert close(functions.quadratic(x, w), QUADRATIC)
    assert torch.equal(functions.classes(x, w), torch.tensor(LINEAR).sign())
    inner, outer, x = drawn((2, 3, 4), (2, 4))
    assert close(functions.network(x, inner, outer), RELU)
    assert close(published_tree()[1], TREE)


def published_tree():
    rng = torch.Generator().manual_seed(SEED)
    numbers, leaves = torch.randint(3, (2, 7), generator=rng), torch.randn(2, 7, generator=rng)
    x = torch.randn(2, 5, 3, generator=rng)
    return x, functions.tree(x, numbers, leaves)


def test_a_tree_by_hand():
    """Root asks x_1; if not positive x_2, else x_3: leaves 3 to 6 from the left."""
    numbers, leaves = torch.tensor([[0, 1, 2, 0, 0, 0, 0]]), torch.tensor([[9.0, 9, 9, 3, 4, 5, 6]])
    x = torch.tensor([[[-1.0, -1, 1], [-1, 1, -1], [1, 1, -1], [1, -1, 1]]])
    assert functions.tree(x, numbers, leaves).tolist() == [[3, 4, 5, 6]]


def test_references_as_published():
    w, x = (part.double() for part in drawn((2, 3)))
    y = functions.linear(x, w)
    assert close(estimators.ridge(x, y, 0.0), LEAST_SQUARES)
    assert close(estimators.averaging(x, y), AVERAGING)
    assert close(estimators.nearest(torch.cdist(x, x), y, 3), NEIGHBOURS)
    assert close(estimators.lasso(x, y, 0.01), LASSO, atol=2e-4)  # theirs stops earlier
    x, y = published_tree()
    assert close(estimators.trees(x.double(), y.double(), boosted=False), GREEDY)


@pytest.mark.parametrize("name", ["quadratic", "relu", "tree,dim=20", "classification"])
def test_answering_0_scores_1_at_every_sigma(name):
    """Of classes it errs in half."""
    task, prompt = draw(f"regression:dim=5,function={name}" if "dim" not in name else f"regression:function={name}")
    for shift in ({}, {"sigma_x": 2.0, "sigma_f": 3.0}):
        prompt = task.sample(stream(0, "functions"), 4000, 12, **shift)
        views = task.views(task.errors(task.references()["zero"](prompt), prompt), prompt, **shift)
        scored = views["error-late"] if task.rates else views["nmse-late"]
        assert scored.mean().item() == pytest.approx(0.5 if task.rates else 1, rel=0.1)


def test_ridge_on_squares_is_exact_where_functions_are_quadratic():
    task, prompt = draw("regression:dim=4,function=quadratic", 50, 12)
    late = {name: task.errors(each(prompt), prompt)[:, 5:].mean() for name, each in task.references().items()}
    assert late["ridge-squares"] < 1e-6 < 0.1 < late["ridge"]
    noisy, prompt = draw("regression:dim=4,function=quadratic,noise=0.5", 5, 8)
    x, y = prompt.tokens[:, ::2].double(), prompt.tokens[:, 1::2, 0].double()
    bayes = estimators.ridge(x.square() / 3**0.5, y, 0.25)
    assert torch.allclose(noisy.references()["ridge-squares"](prompt)[:, ::2, 0].double(), bayes, atol=1e-5)


@pytest.mark.exhaustive
def test_boosted_trees_know_more_of_a_tree_than_least_squares():
    task, prompt = draw("regression:function=tree,depth=1,trees=boosted", 3, 25)
    late = {name: task.errors(each(prompt), prompt)[:, 15:].mean() for name, each in task.references().items()}
    assert late["boosted-trees"] < 0.7 * late["ridge"]
    assert late["greedy-tree"] < 0.7 * late["ridge"]


def test_classes_are_trained_by_their_cross_entropy():
    task, prompt = draw("regression:function=classification", 3, 4)
    wide = task.sample(stream(0, "functions"), 3, 4, sigma_x=2.0, sigma_f=3.0)
    assert set(wide.tokens[:, 1::2, 0].unique().tolist()) == {-1.0, 1.0}
    outputs = prompt.targets.unsqueeze(2)  # logits of 1 in favour of each class
    assert task.loss(outputs, prompt).item() == pytest.approx(0.3133, abs=1e-4)  # log(1 + 1 / e)
    assert task.errors(outputs, prompt).max() == 0
    assert task.errors(-outputs, prompt).min() == 1
    assert (task.worst, task.headline, task.log_scale) == (1, "error-late", False)


@pytest.mark.parametrize(("law", "share"), [("normal", 0.0455), ("student", 0.0405), ("laplace", 0.0591)])
def test_laws_of_noise_have_one_variance_and_their_own_tails(law, share):
    """Shares beyond two standard deviations, from tables of the laws."""
    noise = tasks.regression._noise(stream(0, "noise"), (1000, 400), law)
    assert (noise.abs() > 2).double().mean().item() == pytest.approx(share, rel=0.03)
    assert noise.square().mean().item() == pytest.approx(1, rel=0.1)


def test_likeliest_weights_by_hand():
    """Both residuals are below 0, so w = sqrt(2) / 0.5 (1.4 - 0.8) has slope 0, and the last input is 1."""
    x, y = torch.tensor([[[0.8], [-1.4], [1.0]]]).double(), torch.tensor([[-1.4, -2.4, 0.0]]).double()
    assert estimators.heavy_tailed(x, y, "laplace", 0.5)[0, 2].item() == pytest.approx(2**0.5 * 1.2, abs=1e-6)


@pytest.mark.parametrize("sigma", [0.05, 0.5, 2.0])
@pytest.mark.parametrize(("dim", "length"), few(1, [(6, 12), (1, 8), (20, 24)]))
@pytest.mark.parametrize("law", ["student", "laplace"])
def test_no_step_from_the_likeliest_weights_is_likelier(law, dim, length, sigma):
    """A maximum, by torch's own density: all directions, large and small steps, for as few examples as there are."""
    task, prompt = draw(f"regression:dim={dim},noise={sigma},law={law}", 20, length)
    x, y = prompt.tokens[:, ::2].double(), prompt.tokens[:, 1::2, 0].double()
    scale = sigma / (3**0.5 if law == "student" else 2**0.5)
    made = {"student": torch.distributions.StudentT(3, 0, scale), "laplace": torch.distributions.Laplace(0, scale)}[law]
    for n in (1, length // 2, length - 1):
        # The answers to unit vectors in the place of the next input are the weights.
        units = torch.eye(dim, dtype=torch.float64)
        asked = torch.cat((x[:, :n].repeat_interleave(dim, 0), units.repeat(20, 1).unsqueeze(1)), 1)
        told = torch.cat((y[:, :n].repeat_interleave(dim, 0), torch.zeros(20 * dim, 1)), 1)
        w = estimators.heavy_tailed(asked, told, law, sigma)[:, n].view(20, dim)

        def density(w, n=n):
            missed = y[:, :n] - (x[:, :n] @ w.unsqueeze(2)).squeeze(2)
            return made.log_prob(missed).sum(1) - w.square().sum(1) / 2

        for size in (1e-1, 1e-3, 1e-5):
            for seed in range(20):
                step = torch.randn(20, dim, generator=stream(seed, "step"), dtype=torch.float64)
                assert (density(w + size * step / step.norm(dim=1, keepdim=True)) < density(w) + 1e-9).all()


@pytest.mark.parametrize("law", ["student", "laplace"])
def test_likeliest_weights_that_are_short_of_their_end_say_so(law, monkeypatch):
    _, prompt = draw(f"regression:dim=3,noise=0.5,law={law}", 20, 12)
    x, y = prompt.tokens[:, ::2].double(), prompt.tokens[:, 1::2, 0].double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimators.heavy_tailed(x, y, law, 0.5)
    monkeypatch.setattr(estimators, "ROUNDS", 3)
    with pytest.warns(UserWarning, match=rf"heavy_tailed: \d+ of 240 {law} fits are left short of their maximum"):
        estimators.heavy_tailed(x, y, law, 0.5)


def test_separate_layout_keeps_x_and_y_in_numbers_of_their_own():
    shared, separate = (draw(f"regression:layout={name}", 5, 4) for name in ("shared", "separate"))
    tokens = separate[1].tokens
    assert tokens.shape == (5, 8, 4)
    assert torch.equal(tokens[:, ::2, 1:], shared[1].tokens[:, ::2])
    assert torch.equal(tokens[:, 1::2, 0], shared[1].tokens[:, 1::2, 0])
    assert tokens[:, ::2, 0].abs().max() == tokens[:, 1::2, 1:].abs().max() == 0
    for name, predict in separate[0].references().items():
        assert torch.equal(predict(separate[1]), shared[0].references()[name](shared[1]))


def test_growing_inputs_are_those_of_the_published_curriculum():
    """11 examples have 5 dimensions, 41 all 20; tests have all."""
    task = tasks.build("regression:dim=20,dims=growing")
    for length, dims in ((11, 5), (12, 5), (13, 6), (41, 20), (1, 1)):
        x = task.practice(stream(0, "x"), 2, length).tokens[:, ::2]
        assert (x != 0).any(0).any(0).sum() == dims
        assert torch.equal(x[..., :dims], task.sample(stream(0, "x"), 2, length).tokens[:, ::2, :dims])
    assert (task.sample(stream(0, "x"), 2, 11).tokens[:, ::2] != 0).all()


def test_sparse_functions_of_growing_inputs_use_those_in_use():
    """github.com/dtsip/in-context-learning, src/train.py: valid_coords are the dimensions of the curriculum."""
    task = tasks.build("regression:dim=20,sparse=3,dims=growing")
    for length, dims in ((11, 5), (41, 20), (5, 2)):
        y = task.practice(stream(0, "y"), 400, length).targets[:, ::2]
        assert (y != 0).all()
        w = tasks.regression._weights(stream(0, "w"), 400, 20, 3, dims)
        assert ((w[:, :dims] != 0).sum(1) == min(3, dims)).all()
        assert (w[:, dims:] == 0).all()
        assert (w[:, :dims] != 0).any(0).all()
    plain = tasks.build("regression:dim=20,sparse=3").sample(stream(0, "y"), 4, 11).tokens
    assert torch.equal(task.sample(stream(0, "y"), 4, 11).tokens, plain)

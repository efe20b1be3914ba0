"""Shifts of test prompts: the published numbers of Garg et al. on their own draws, and the property of each."""

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.rng import stream
from icl_lab.tasks import shifts

# github.com/dtsip/in-context-learning at 3383371, src/eval.py and src/samplers.py.
OPPOSITE = [[-1.0391, 0.7245, -0.8489], [1.3598, -0.8667, 0.564]]
QUADRANTS = [[1.0391, -0.7245, -0.8489], [-1.3598, -0.8667, -0.564]]
EXAMPLES = [[0.8201, -0.3956, 1.9264, 0.33, -0.1984, 0.7821], [-1.2169, 1.8157, -0.3452, -2.0615, 0.6741, -1.3233]]
ORTHOGONAL = [[1.3913, -0.1085, 0.6146], [-0.8422, 0.2872, 1.4582]]
SKEWED = [12.53004, 3.13251, 1.39223, 0.78313, 0.5012]  # first of 20 eigenvalues


def made(shift, prompts=2, length=3, dim=3, seed=7):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(prompts, length, dim, generator=rng)
    return x, shifts.inputs(rng, x, shift)


LAST = {"opposite": OPPOSITE, "quadrants": QUADRANTS, "orthogonal": ORTHOGONAL}


@pytest.mark.parametrize("shift", LAST)
def test_questions_as_published(shift):
    plain, x = made(shift)
    torch.testing.assert_close(x[:, 2], torch.tensor(LAST[shift]), atol=1e-4, rtol=0)
    if shift == "orthogonal":
        assert torch.equal(x[:, :2], plain[:, :2])
    else:
        torch.testing.assert_close(x[:, :2].flatten(1), torch.tensor(EXAMPLES), atol=1e-4, rtol=0)


def test_orthogonal_questions_are_orthogonal_to_all_examples():
    task = tasks.build("regression:dim=6,shift=orthogonal,shifted=always")
    prompt = task.sample(stream(0, "x"), 50, 40)
    x = prompt.tokens[:, ::2]
    assert x.shape == (50, 6, 6)  # no more than dim - 1 examples leave a direction
    assert (x[:, :-1] @ x[:, -1:].transpose(1, 2)).abs().max() < 1e-4
    errors = {name: task.errors(each(prompt), prompt).mean() for name, each in task.references().items()}
    assert errors["ridge"].item() == pytest.approx(errors["zero"].item(), rel=1e-4)  # no example tells anything


def test_overlapping_questions_are_any_of_the_examples():
    _, x = made("overlap", prompts=3000, length=4)
    same = (x[:, :-1] == x[:, -1:]).all(2)
    assert (same.sum(1) == 1).all()
    assert (same.double().mean(0) - 1 / 3).abs().max() < 0.03
    task = tasks.build("regression:shift=overlap,shifted=always")
    prompt = task.sample(stream(0, "x"), 50, 8)
    assert task.errors(task.references()["ridge"](prompt), prompt).max() < 1e-5


@pytest.mark.parametrize("shift", ["skewed", "subspace"])
def test_spectrum_of_shifted_inputs(shift):
    """Covariance of the inputs of one prompt, against the published spectrum: 20 numbers of trace 20."""
    _, x = made(shift, prompts=2, length=40_000, dim=20)
    values = torch.linalg.eigvalsh(x[0].T @ x[0] / len(x[0])).flip(0)
    assert values.sum().item() == pytest.approx(20, rel=0.03)
    expected = torch.tensor(SKEWED) if shift == "skewed" else torch.full((5,), 2.0)
    assert (values[:5] / expected - 1).abs().max() < 0.05
    assert (values[10:].max() < 1e-5) == (shift == "subspace")
    other = torch.linalg.eigh(x[1].T @ x[1]).eigenvectors[:, -1]
    assert (torch.linalg.eigh(x[0].T @ x[0]).eigenvectors[:, -1] @ other).abs() < 0.9  # a basis of its own


@pytest.mark.parametrize("noise", [0, 0.5, 2.0])
def test_noisy_labels_keep_their_size(noise):
    """Variance 3 + noise^2; the published code on 4,000 prompts of 3 dimensions: a slope on w.x of 0.862."""
    shifted = tasks.build(f"regression:noise={noise},shift=noise,shifted=always")
    both = (task.sample(stream(0, "x"), 20_000, 5) for task in (tasks.build("regression"), shifted))
    clean, y = (prompt.tokens[:, 1::2, 0] for prompt in both)
    assert y.square().mean().item() == pytest.approx(3 + noise**2, rel=0.02)
    if not noise:
        assert ((clean * y).sum() / clean.square().sum()).item() == pytest.approx(0.862, abs=0.015)


def test_a_shift_is_a_test_set_beside_that_of_training():
    plain, task = tasks.build("regression"), tasks.build("regression:shift=skewed")
    assert torch.equal(plain.sample(stream(0, "x"), 4, 6).tokens, task.sample(stream(0, "x"), 4, 6).tokens)
    assert list(task.suites()) == ["", "skewed-"]
    assert task.headline == "skewed-mse-late"
    assert task.beside == ("mse-late", "skewed-mse-late")
    assert task.balanced == task  # analyses look at prompts as in training
    assert tasks.build("regression:tasks=4,shift=skewed").balanced.functions == "new"
    assert tasks.build("regression:shift=opposite").headline == "opposite-mse-last"
    assert tasks.build("regression:shift=opposite").trivial == ("zero",)
    assert tasks.build("regression:shift=orthogonal").trivial == ()  # no example tells more than 0 does
    every = tasks.build("regression:dim=8,tasks=4,shift=all")
    names = ("new", "skewed", "quadrants", "opposite", "orthogonal", "overlap", "subspace", "noise")
    assert list(every.suites()) == ["", *(f"{name}-" for name in names)]
    assert every.headline == "mse-late"
    assert "noise-" not in tasks.build("regression:function=classification,shift=all").suites()


def test_one_question_a_prompt_is_scored_of_another_last_input():
    task = tasks.build("regression:dim=4,shift=all").suites()["overlap-"]
    prompt = task.sample(stream(0, "x"), 3, 5)
    assert task.asked(5) == [8] == prompt.scored[0].nonzero().flatten().tolist()
    outputs = torch.zeros(3, 10, 1)
    outputs[:, 8, 0] = prompt.targets[:, 8] + 2
    views = task.views(task.errors(outputs, prompt), prompt)
    assert {name: values.tolist() for name, values in views.items()} == {"overlap-mse-last": pytest.approx([1, 1, 1])}


def test_a_model_of_plain_regression_is_taken_for_a_shift():
    """Not one trained under it."""
    alike = ("regression:dim=4", "regression:dim=4,shift=skewed,shifted=tests", "regression:dim=4,shift=all")
    assert {tasks.trained_as(choice) for choice in alike} == {"regression:dim=4"}
    always = "regression:dim=4,shift=skewed,shifted=always"
    assert tasks.trained_as(always) == always
    assert tasks.trained_as("elsewhere:a=1") == "elsewhere:a=1"

"""Tasks: what is drawn, what is right, and what the references score, against closed forms."""

import math
from itertools import pairwise

import pytest
import torch
from scipy.integrate import quad

from icl_lab import tasks
from icl_lab.base import published
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import HasLines, Retrieval, SingleNumbers, Stretchable
from icl_lab.tasks.linear import TRAINING_RANGE, UNIFORM_RANGE, bayes_uniform
from tests.tasks.draws import draw, score

VARIANTS = ["linear", *(f"{name}{options}" for name in ("every", "some") for options in
            ("", ":balance=half", ":labels=hidden", ":balance=half,labels=hidden"))]  # fmt: skip


def scored(choice, reference, prompts=20_000, length=12, **shift):
    """Errors of a reference, and the means of its views."""
    task, prompt = draw(choice, prompts, length, **shift)
    return task.errors(task.references()[reference](prompt), prompt), score(task, prompt, reference, **shift)


@pytest.mark.parametrize("choice", VARIANTS)
def test_references_do_not_see_the_answer(choice):
    """Changing the last label and everything after an example changes no answer up to it."""
    task, prompt = draw(choice)
    other = prompt.tokens.clone()
    other[:, 13:] += 1 + torch.rand_like(other[:, 13:])
    changed = type(prompt)(other, prompt.targets, prompt.scored)
    for name, reference in task.references().items():
        assert torch.allclose(reference(prompt)[:, 0:13:2], reference(changed)[:, 0:13:2]), name


@pytest.mark.parametrize("choice", ["linear", "every", "some", "every:balance=half"])
def test_a_perfect_answer_has_no_loss_and_sigma_x_stretches(choice):
    task, prompt = draw(choice)
    targets = prompt.targets if choice == "linear" else 40 * prompt.targets - 20
    assert task.loss(targets.unsqueeze(-1), prompt).item() < 1e-6
    axis = "sigma_x" if choice == "linear" else "sigma"
    wide = draw(choice, **{axis: 3.0})[1]
    torch.testing.assert_close(wide.tokens[:, ::2], 3 * prompt.tokens[:, ::2])
    assert choice == "linear" or torch.equal(wide.targets, prompt.targets)


def test_linear_follows_its_line():
    _, prompt = draw("linear", prompts=8, length=12)
    x, y = prompt.tokens[:, ::2, 0].double(), prompt.tokens[:, 1::2, 0].double()
    slope = (y[:, 1] - y[:, 0]) / (x[:, 1] - x[:, 0])
    assert torch.allclose(y, slope[:, None] * (x - x[:, :1]) + y[:, :1], atol=1e-4)
    assert torch.equal(prompt.targets[:, ::2], prompt.tokens[:, 1::2, 0])


def test_linear_references_against_their_closed_forms():
    """Noise-free Bayes risk is 2, 1, 0, 0, ...; least squares needs two points; the zero predictor scores E y^2 = 2."""
    bayes = scored("linear", "bayes")[0].mean(0)
    assert bayes[0].item() == pytest.approx(2, rel=0.06)
    assert bayes[1].item() == pytest.approx(1, rel=0.06)
    assert scored("linear", "zero")[0].mean().item() == pytest.approx(2, rel=0.06)
    for reference in ("bayes", "least-squares"):
        errors = scored("linear", reference)[0]
        # Two points may nearly coincide, which single-precision labels do not forgive: hence the quantile at index 2.
        assert errors[:, 2].quantile(0.99) < 1e-6
        assert errors[:, 4:].max() < 1e-4
    assert scored("linear", "least-squares")[0][:, 1].mean().item() == pytest.approx(2, rel=0.06)


def test_three_nearest_neighbours_by_hand():
    task = tasks.build("linear")
    x = torch.tensor([[0.0, 1.0, 2.0, 10.0, 1.4]])
    y = 2 * x + 1
    tokens = torch.stack((x, y), 2).flatten(1).unsqueeze(-1)
    prompt = tasks.base.Prompt(tokens, tokens[..., 0], torch.ones(1, 10, dtype=torch.bool))
    answers = task.references()["3-nn"](prompt)[0, ::2, 0]
    # nothing; y_1; mean of y_1, y_2; mean of the first three; nearest to 1.4 are 1, 2 and 0.
    assert answers.tolist() == pytest.approx([0, 1, 2, 3, 3])


def test_clip_bounds_least_squares_to_the_training_range():
    task, prompt = draw("linear", sigma_f=10.0)
    answers = task.references()["clip"](prompt)
    assert answers.abs().max().item() == pytest.approx(TRAINING_RANGE)


def test_linear_views_by_hand():
    task, prompt = draw("linear", prompts=1, length=5)
    errors = torch.tensor([[8.0, 4.0, 6.0, 1.0, 3.0]])
    views = task.views(errors, prompt, sigma_x=2.0, sigma_f=3.0)
    expected = {"mse-code": 2, "mse-eq2": 10 / 5, "mse-all": 22 / 5, "median-code": 2, "nmse-code": 2 / 45}
    assert {name: value.item() for name, value in views.items()} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("choice", "numbers", "truth"),
    [
        ("every", [1, -2, 3, 70], [1, 0, 0, 0]),
        ("every", [1, 2, 3, -0.1], [1, 1, 1, 0]),
        ("some", [-1, -2, 3, -70], [0, 0, 1, 1]),
        ("some", [-1, -2, -3, -4], [0, 0, 0, 0]),
    ],
)
def test_truth_tables(choice, numbers, truth):
    assert tasks.build(choice).truth(torch.tensor([numbers])).int().tolist() == [truth]
    _, shown = draw(choice)
    assert torch.equal(shown.tokens[:, 1::2, 0], 2 * shown.targets[:, ::2] - 1)
    _, hidden = draw(f"{choice}:labels=hidden")
    assert hidden.tokens[:, 1::2].abs().max() == 0
    assert torch.equal(hidden.targets, shown.targets)


@pytest.mark.parametrize("n", [4, 6, 8])
def test_constant_answers_score_the_closed_forms(n):
    """P(every number positive) = 2^-n; index >= 3 is free of true answers unless the first four are positive: 1/16."""
    prompts = 20_000
    tolerance = 4 * math.sqrt(0.06 / prompts)
    _, never = scored("every", "always-false", prompts, n)
    assert never["last"] == pytest.approx(2.0**-n, abs=tolerance)
    assert never["any"] == pytest.approx(1 / 16, abs=tolerance)
    _, always = scored("every", "always-true", prompts, n)
    assert always["last"] == pytest.approx(1 - 2.0**-n, abs=tolerance)
    # right only where every answer from index 3 on is true: 2^-n
    assert always["any"] == pytest.approx(1 - 2.0**-n, abs=tolerance)
    _, copy = scored("every", "copy-previous", prompts, n)
    # wrong where the prompt is true until index i - 1 and false at i, for some i >= 3: 1/8 less those never false.
    assert copy["any"] == pytest.approx(1 / 8 - 2.0**-n, abs=tolerance)
    _, mirrored = scored("some", "always-true", prompts, n)
    assert mirrored["last"] == pytest.approx(2.0**-n, abs=tolerance)


@pytest.mark.parametrize("choice", VARIANTS[1:])
def test_the_exact_rule_is_exact(choice):
    assert scored(choice, "exact-rule", prompts=2000)[0].max() == 0


@pytest.mark.parametrize("name", ["every", "some"])
@pytest.mark.parametrize("length", [5, 40])
def test_balanced_prompts_are_balanced_and_decided_anywhere(name, length):
    _, prompt = draw(f"{name}:balance=half", prompts=20_000, length=length)
    last = prompt.targets[:, -1]
    assert last.mean().item() == pytest.approx(0.5, abs=0.015)
    undecided = 1.0 if name == "every" else 0.0
    decided = last != undecided
    first = (prompt.targets[decided][:, ::2] != undecided).float().argmax(1)
    counts = torch.bincount(first, minlength=length) / decided.sum()
    assert counts.sub(1 / length).abs().max() < 0.02
    for constant in ("always-true", "always-false"):
        assert scored(f"{name}:balance=half", constant, length=length)[1]["balanced-last"] == 0.5


@pytest.mark.parametrize(("name", "sign"), [("every", -1), ("some", 1)])
def test_with_hidden_labels_just_one_number_decides(name, sign):
    _, prompt = draw(f"{name}:balance=half,labels=hidden", prompts=1000, length=20)
    decisive = (prompt.tokens[:, ::2, 0].sign() == sign).sum(1)
    assert set(decisive.tolist()) == {0, 1}


def test_natural_draws_get_a_balanced_suite():
    assert list(tasks.build("every").suites()) == ["", "balanced-"]
    assert list(tasks.build("every:balance=half").suites()) == [""]


def test_balanced_metrics_are_means_over_the_two_classes_by_hand():
    task = tasks.build("every:balance=half")
    truth = torch.tensor([[1.0, 1, 1, 1, 1], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
    prompt = Prompt(torch.zeros(3, 10, 1), truth.repeat_interleave(2, 1), torch.ones(3, 10, dtype=torch.bool))
    errors = torch.tensor([[0.0, 0, 0, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 0, 0]])
    means = {name: values.nanmean(0).mean().item() for name, values in task.views(errors, prompt).items()}
    assert means["last"] == pytest.approx(1 / 3)
    assert means["any"] == pytest.approx(2 / 3)
    assert means["balanced-last"] == pytest.approx((0 / 1 + 1 / 2) / 2)
    assert means["balanced-any"] == pytest.approx((1 / 1 + 1 / 2) / 2)
    # true answers at index >= 3: (1, 0) and (0); false ones: (1) and (0, 0); each prompt's share first.
    assert means["balanced-position"] == pytest.approx(((0.5 + 0) / 2 + (1 + 0) / 2) / 2)


def test_a_prompt_whose_parts_do_not_fit_is_refused():
    with pytest.raises(ValueError, match="do not fit"):
        tasks.base.Prompt(torch.zeros(2, 4, 1), torch.zeros(2, 3), torch.zeros(2, 4, dtype=torch.bool))


@pytest.mark.parametrize(("name", "first"), [("every", True), ("some", False)])
def test_the_copied_label_before_any_label(name, first):
    task, prompt = draw(name)
    answers = task.references()["copy-previous"](prompt)[:, ::2, 0] > 0
    assert (answers[:, 0] == first).all()
    assert torch.equal(answers[:, 1:], prompt.targets[:, :-2:2] > 0)


def test_the_published_functions_and_inputs_are_redrawn_exactly():
    """Against the values that were computed apart from this code (protocol: arXiv 2508.14685, code omyokun/SSA)."""
    task = tasks.build("linear")
    functions, inputs = published.load("ssa_eval_functions"), published.load("ssa_eval_x_stream")
    for sigma in (1, 2, 10):
        prompt = task.published(40, sigma_f=float(sigma))
        x, y = prompt.tokens[:, ::2, 0].view(100, 64, 40), prompt.tokens[:, 1::2, 0].view(100, 64, 40)
        for j in (0, 1, 57, 99):
            a, b = (functions.at(name, sigma=sigma, j=j).number for name in ("a", "b"))
            assert torch.allclose(y[j], a * x[j] + b, atol=1e-4 * sigma)
    for i, j in ((0, 0), (0, 39), (1, 0), (63, 39)):
        assert x[5, i, j].item() == pytest.approx(inputs.at("z", m=10 * i + j).number, abs=1e-6)


def test_the_published_quantifier_prompts_are_the_same_windows():
    prompt, doubled = (tasks.build("some").published(40, sigma=sigma) for sigma in (1.0, 2.0))
    assert prompt.tokens.shape == (64, 80, 1)
    assert torch.equal(doubled.tokens[:, ::2], 2 * prompt.tokens[:, ::2])
    assert torch.equal(prompt.tokens[0, 20::2], prompt.tokens[1, 0:60:2])


LAWS = ["linear", "linear:law=uniform", "linear:spread=10", "linear:law=uniform,spread=3"]


@pytest.mark.parametrize("choice", LAWS)
@pytest.mark.parametrize("shift", [{}, {"sigma_x": 2.0, "sigma_f": 0.5}])
def test_training_labels_follow_their_law(choice, shift):
    task = tasks.build(choice)
    y = task.practice(stream(7, "law"), 40_000, 5, **shift).targets[:, ::2].double()
    assert y.mean().item() == pytest.approx(0, abs=0.03 * task.label_rms(**shift))
    assert task.label_rms(**shift) == pytest.approx(y.square().mean().sqrt().item(), rel=0.03)
    for size in (0.5, 2.0, 4.5):
        seen = (y.abs() > size).double().mean().item()
        assert task.share_beyond(size, **shift) == pytest.approx(seen, rel=0.05, abs=1e-3)
    largest = task.largest_label(**shift)
    if "uniform" in choice:
        assert 0.9 * largest < y.abs().max().item() <= largest
        assert task.share_beyond(largest, **shift) == 0
    else:
        assert largest == math.inf


def test_shares_beyond_by_hand():
    # One in a hundred, as for the clip: |y| given x is normal with variance 1 + x^2, averaged over x.
    x = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    density = torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    beyond = torch.trapezoid(torch.erfc(TRAINING_RANGE / (2 * (1 + x * x)).sqrt()) * density, x).item()
    assert tasks.build("linear").share_beyond(TRAINING_RANGE) == pytest.approx(beyond, rel=1e-3)
    assert beyond == pytest.approx(0.01, rel=0.02)
    # With x uniform on [-sqrt 3, sqrt 3], b alone (sigma_x tiny) is uniform.
    assert tasks.build("linear:law=uniform").share_beyond(UNIFORM_RANGE) == pytest.approx(0.01, rel=0.02)
    uniform = tasks.build("linear:law=uniform").share_beyond(1.0, sigma_x=1e-6)
    assert uniform == pytest.approx(1 - 1 / math.sqrt(3), rel=1e-4)
    # P(|N(0, 1)| > 1) where inputs are tiny; log-uniform factors from 1 to e: the mean of P(|N| > e^-u) over u.
    assert tasks.build("linear").share_beyond(1.0, sigma_x=1e-6) == pytest.approx(0.317310508, rel=1e-6)
    wide = torch.erfc(torch.exp(-torch.linspace(0, 1, 100_001, dtype=torch.float64)) / math.sqrt(2)).mean().item()
    assert tasks.build(f"linear:spread={math.e!r}").share_beyond(1.0, sigma_x=1e-6) == pytest.approx(wide, rel=1e-4)


def test_spread_widens_training_prompts_alone():
    task, plain = tasks.build("linear:spread=10"), tasks.build("linear")
    wide, usual = (each.practice(stream(3, "train"), 2000, 6).targets for each in (task, plain))
    factors = (wide / usual)[:, 0]
    assert torch.allclose(wide, usual * factors.unsqueeze(1), rtol=1e-5)
    assert 1 <= factors.min() < 1.1
    assert 9 < factors.max() <= 10
    assert factors.log10().mean().item() == pytest.approx(0.5, abs=0.03)  # log-uniform
    drawn = [each.sample(stream(3, "test"), 5, 6).tokens for each in (task, plain)]
    assert torch.equal(*drawn)


def test_bayes_under_a_uniform_prior_is_the_middle_of_a_segment():
    x, y = (torch.tensor([numbers], dtype=torch.float64) for numbers in ([2.0, 3.0, 0.0], [1.0, 5.0, 0.0]))
    # After (2, 1): a from (1 - sqrt 3) / 2 to (1 + sqrt 3) / 2, both inside: a = 1/2, b = 0, the answer at 3 is 1.5.
    # After both: the line through them, 4 x - 7.
    assert bayes_uniform(x, y)[0].tolist() == pytest.approx([0, 1.5, -7])
    edge = math.sqrt(3)
    # (0.5, 2): a from (2 - sqrt 3) / 0.5 = 0.536 to sqrt 3 (7.46 is outside): the middle is 1.134.
    x, y = torch.tensor([[0.5, 1.5]], dtype=torch.float64), torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    slope = ((2 - edge) / 0.5 + edge) / 2
    assert bayes_uniform(x, y)[0, 1].item() == pytest.approx(2 + slope)
    assert bayes_uniform(-x, y)[0, 1].item() == pytest.approx(2 + slope)  # x and a change sign together
    assert bayes_uniform(torch.zeros(1, 2).double(), y)[0, 1].item() == pytest.approx(2.0)  # b is known, a is not


@pytest.mark.parametrize(("x_1", "y_1"), [(0.5, 2.0), (-1.2, 6.0), (1.7, -11.0), (-0.6, -0.2), (0.3, 17.0)])
def test_bayes_of_widened_uniform_functions_is_posterior_mean(x_1, y_1):
    """Integrals along y_1 = a x_1 + b over the density 1 / r0^2 - 1 / 64, r0 the least factor that reaches (a, b)."""
    edge, (b, c) = math.sqrt(3), (y_1, -x_1)

    def density(a):
        return max(0.0, max(1.0, abs(a) / edge, abs(b + c * a) / edge) ** -2 - 1 / 64)

    bends = [sign * edge for sign in (-8, -1, 1, 8)] + [(y_1 + sign * edge) / x_1 for sign in (-8, -1, 1, 8)]
    inside = sorted(a for a in [*bends, y_1 / (x_1 + 1), y_1 / (x_1 - 1)] if abs(a) <= 8 * edge)

    def moment(power):
        return sum(quad(lambda a: a**power * density(a), *ends)[0] for ends in pairwise(inside))

    prompt = Prompt(torch.tensor([[x_1, y_1, x_1 + 1, 0.0]]).unsqueeze(2), torch.zeros(1, 4), torch.ones(1, 4) > 0)
    answer = tasks.build("linear:law=uniform,spread=8").references()["bayes"](prompt)[0, 2, 0].item()
    assert answer == pytest.approx(y_1 + moment(1) / moment(0), rel=1e-5)


def test_prompts_on_a_line_follow_it_exactly():
    task = tasks.build("linear")
    x = torch.tensor([[0.0, 1.0, -2.0], [3.0, 0.5, 1.0]])
    for slope, intercept in ((2.0, -1.0), (torch.full((2, 1), 2.0), torch.full((2, 1), -1.0))):
        prompt = task.on_line(x, slope, intercept)
        assert prompt.tokens[:, ::2, 0].tolist() == x.tolist()
        assert prompt.tokens[:, 1::2, 0].tolist() == (2 * x - 1).tolist()
        assert prompt.targets[:, ::2].tolist() == (2 * x - 1).tolist()


@pytest.mark.parametrize(
    ("task", "capability", "words", "having"),
    [
        ("every", HasLines, "prompts of y = a x + b, on which boundary values are defined", "linear"),
        ("every", Retrieval, "answer that stands in its context, for needle scores", "needle"),
        ("needle", Stretchable, "number that can be stretched", "every, linear, some"),
        ("linear", SingleNumbers, "answer to a single number", "every, some"),
    ],
)
def test_a_missing_capability_is_refused_with_those_that_have_it(task, capability, words, having):
    with pytest.raises(BadValue) as refused:
        tasks.require(tasks.build(task), capability)
    assert str(refused.value) == f"{task} has no {words}; tasks that have: {having}."
    for built in map(tasks.build, having.split(", ")):
        assert tasks.require(built, capability) is built


def test_labels_fall_back_to_the_name():
    task = tasks.build("linear")
    assert task.axis_label("sigma_f").words == "σ of functions"
    assert task.axis_label("length").words == "length of the prompt"
    assert task.axis_label("other").words == task.metric_label("other") == "other"
    assert task.metric_label("mse-code") == "mean squared error after 3 examples or more"
    assert [tasks.build(name).name for name in tasks.names()] == tasks.names()


def test_training_range_follows_the_training_distribution():
    linear, every = tasks.build("linear"), tasks.build("every")
    x = torch.randn(100_000, generator=stream(0, "range"))
    assert (x.abs() < every.reach()["x"]).float().mean().item() == pytest.approx(0.99, abs=0.002)
    assert every.reach(sigma=10)["x"] == 10 * every.reach()["x"]
    prompt = linear.sample(stream(0, "range"), 100_000, 1)
    assert (prompt.tokens[:, 1].abs() < linear.reach()["y"]).float().mean().item() == pytest.approx(0.99, abs=0.002)
    assert set(linear.reach(sigma_x=3)) == {"x"}

"""Rescaling of prompts by their own first examples: scales by hand, causal, and only where the truth stays."""

import math

import pytest
import torch

from icl_lab import pipeline, tasks
from icl_lab.analyses.attention.live import NotExportable, export_model
from icl_lab.base.errors import BadValue
from icl_lab.base.rescale import PairRescaling, Rescaled, by_largest
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec
from icl_lab.runs.spec import resolve
from icl_lab.tasks.capabilities import Rescalable
from icl_lab.testing.tasks import a_rescaling_keeps_the_truth

pytestmark = pytest.mark.usefixtures("quick_pictures")


def line(*numbers):
    return torch.tensor([numbers], dtype=torch.float32).unsqueeze(2)


def test_labels_are_divided_by_the_size_of_the_first():
    """x = 1 .. 4, y = 3, 0, 4, 10: s = sqrt((9 + 0 + 16) / 3)."""
    scaled, factor, start = PairRescaling("labels")(line(1, 3, 2, 0, 3, 4, 4, 10))
    s = math.sqrt(25 / 3)
    assert scaled.flatten().tolist() == pytest.approx([1, 3 / s, 2, 0, 3, 4 / s, 4, 10 / s])
    assert factor.flatten().tolist() == pytest.approx([s] * 8)
    assert start == 6


def test_inputs_and_both():
    tokens = line(2, 3, 2, 3, 2, 3, 8, 6)
    scaled, factor, _ = PairRescaling("inputs")(tokens)
    assert scaled.flatten().tolist() == pytest.approx([1, 3, 1, 3, 1, 3, 4, 6])
    assert factor.flatten().tolist() == [1] * 8
    scaled, factor, _ = PairRescaling("both")(tokens)
    assert scaled.flatten().tolist() == pytest.approx([1, 1, 1, 1, 1, 1, 4, 2])
    assert factor.flatten().tolist() == pytest.approx([3] * 8)


def test_vectors_share_one_scale_of_the_first_label():
    tokens = torch.zeros(1, 4, 2)
    tokens[0, 0::2] = torch.tensor([[6.0, 8.0], [0.0, 0.0]])
    tokens[0, 1::2, 0] = torch.tensor([5.0, 5.0])
    scaled, factor, _ = PairRescaling("both", 2)(tokens)
    assert scaled[0, 0].tolist() == pytest.approx([6 / 5, 8 / 5])  # sqrt(100 / 4) = 5
    assert scaled[0, 1].tolist() == pytest.approx([1, 0])
    assert float(factor[0, 0]) == pytest.approx(5)


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [((0, 0, 0), 1), ((0.1, 0.2, 0.1), 1), ((math.inf, 1, 1), 1), ((math.nan, 1, 1), 1), ((1e30, 1e30, 1e30), 1e30)],
)
def test_scales_only_divide_and_are_finite(labels, wanted):
    tokens = line(1, labels[0], 1, labels[1], 1, labels[2], 1, 1)
    _, factor, _ = PairRescaling("labels")(tokens)
    assert float(factor[0, 0]) == pytest.approx(wanted)


@pytest.mark.parametrize("layout", ["shared", "separate"])
def test_the_size_of_inputs_is_of_their_numbers_alone(layout):
    task = tasks.build(f"regression:dim=1,layout={layout}")
    prompt = task.sample(stream(0, "x"), 8, 6, sigma_x=30.0)
    x = prompt.tokens[:, :6:2].square().sum((1, 2))
    scaled = task.rescaling("inputs")(prompt.tokens).tokens
    ratio = prompt.tokens[:, ::2].abs().amax((1, 2)) / scaled[:, ::2].abs().amax((1, 2))
    assert torch.allclose(ratio, (x / 3).sqrt().clamp_min(1))


def of_the_whole_prompt(tokens):
    size = tokens.abs().amax((1, 2), keepdim=True)
    return Rescaled(tokens / size, size.expand(-1, tokens.shape[1], 1), 6)


def faulty(change):
    """Labels rescaled, and of tokens and factors what ``change`` makes of them."""
    return lambda tokens: (made := PairRescaling("labels")(tokens))._replace(**change(made))


def doubled(wrong):
    """Factors are twice as large in prompts of some lengths."""
    return faulty(lambda made: {"factor": made.factor * (1 + wrong(made.factor.shape[1]))})


no_factor = faulty(lambda made: {"factor": torch.ones_like(made.factor)})
FAULTY = {
    "no factor": (no_factor, "otherwise than before"),
    "wrong at its start": (
        faulty(lambda made: {"factor": made.factor.index_fill(1, torch.tensor(6), 7.5)}),
        "otherwise than before",
    ),
    # No prompt of training has larger labels.
    "wrong far from training": (faulty(lambda made: {"factor": made.factor.clamp_max(5)}), "otherwise than before"),
    "partly infinite": (
        faulty(lambda made: {"tokens": made.tokens.index_fill(0, torch.tensor(0), math.inf)}),
        "are not finite",
    ),
    "of the whole prompt": (of_the_whole_prompt, "before token 7 hang on"),
    "of the length": (doubled(lambda length: length <= 7), "before token 7 hang on"),
    "of a later token": (doubled(lambda length: length == 12), "before token 12 hang on"),
}


@pytest.mark.parametrize(("rescaling", "fault"), FAULTY.values(), ids=FAULTY)
def test_the_contract_sees_a_wrong_rescaling(monkeypatch, rescaling, fault):
    monkeypatch.setattr(Rescalable, "rescaling", lambda task, part, first=3: rescaling)
    monkeypatch.setattr(tasks.registry.part("linear"), "rescales", ("labels",))
    with pytest.raises(AssertionError, match=fault):
        a_rescaling_keeps_the_truth("linear")


def test_the_contract_sees_each_part_that_is_rescaled(monkeypatch):
    made = {"inputs": PairRescaling("inputs"), "labels": no_factor}
    monkeypatch.setattr(Rescalable, "rescaling", lambda task, part, first=3: made[part])
    monkeypatch.setattr(tasks.registry.part("linear"), "rescales", ("inputs", "labels"))
    with pytest.raises(AssertionError, match="prompts with labels rescaled"):
        a_rescaling_keeps_the_truth("linear")


def test_numbers_are_divided_by_the_largest_so_far():
    scaled, factor, start = by_largest(line(0.5, 1, -4, -1, 2, -1, 8, -1))
    assert scaled.flatten().tolist() == pytest.approx([0.5, 1, -1, -1, 0.5, -1, 1, -1])
    assert factor.flatten().tolist() == [1] * 8
    assert start == 0


def test_an_infinite_number_sets_no_size():
    scaled = by_largest(line(2, 1, math.inf, -1, math.nan, 1, -4, -1, 1, -1)).tokens[0, ::2, 0]
    assert scaled[[0, 1, 3, 4]].tolist() == [1, math.inf, -1, 0.25]


@pytest.mark.parametrize("task", ["every", "some", "every:balance=half"])
def test_rescaled_inputs_keep_the_truth_of_a_quantifier(task):
    built = tasks.build(task)
    prompt = built.sample(stream(0, "x"), 64, 20, sigma=30.0)
    scaled = built.rescaling("inputs")(prompt.tokens).tokens
    assert torch.equal(scaled[:, ::2].sign(), prompt.tokens[:, ::2].sign())
    assert torch.equal(scaled[:, 1::2], prompt.tokens[:, 1::2])
    assert scaled[:, ::2].abs().max() <= 1


def model_of(settings=()):
    spec = resolve("linear", "softmax", "smoke", ["model.width=16", "model.heads=2", *settings])
    return spec.untrained(tasks.build("linear"), 0).eval()


def test_an_answer_depends_on_nothing_after_it():
    model = model_of()
    model.rescaling = tasks.build("linear").rescaling("both")
    tokens = (5 * torch.randn(2, 16, 1, generator=stream(0, "x"))).requires_grad_()
    for at in (0, 4, 6, 12):
        (gradient,) = torch.autograd.grad(model(tokens)[:, at].sum(), tokens)
        assert gradient[:, at + 1 :].abs().max() == 0
        assert gradient[:, at].abs().max() > 0


def test_answers_are_multiplied_back():
    model, plain = model_of(), model_of()
    task = tasks.build("linear")
    model.rescaling = task.rescaling("labels")
    prompt = task.sample(stream(0, "x"), 4, 10, sigma_f=10.0)
    scaled, factor, start = model.rescaling(prompt.tokens)
    assert torch.allclose(model(prompt.tokens)[:, start:], (plain(scaled) * factor)[:, start:])
    assert torch.allclose(model(prompt.tokens)[:, :start], plain(prompt.tokens)[:, :start], atol=1e-6)


@pytest.mark.slow
def test_a_rescaling_model_equals_the_rescaled_test(lab, tiny):
    trained = tiny("linear", "softmax", "model.read_in=scaled")
    pipeline.sweep(trained, 0, lab)
    run = lab.store.run(trained, 0)
    model = trained.untrained(tasks.build("linear"), 0)
    run.load_model(model)
    assert model.rescaling == PairRescaling("labels")
    plain = GPT2(ModelSpec(layers=1, heads=2, width=16), model.reading, "softmax", stream(0, "init"))
    plain.load_state_dict(model.state_dict())
    plain.rescaling = PairRescaling("labels")
    tokens = tasks.build("linear").sample(stream(0, "x"), 2, 8, sigma_f=5.0).tokens
    assert torch.equal(plain(tokens), model(tokens))


def test_without_rescaling_hashes_and_numbers_stay(tiny):
    assert tiny().hash == tiny("linear", "softmax", "test.rescale=none").hash
    assert tiny().hash == tiny("linear", "softmax", "model.read_in=linear").hash
    assert tiny().training == tiny("linear", "softmax", "test.rescale=labels").training
    assert tiny().hash != tiny("linear", "softmax", "test.rescale=labels").hash


@pytest.mark.exhaustive
def test_rescaled_labels_lower_the_error_far_from_training(lab):
    plain = ["train.steps=400", "test.prompts=64", "test.axes.sigma_x=1", "test.axes.sigma_f=1,30"]
    far = {"sigma_f": 30, "length": 40, "attn": "softmax"}
    errors, floors = [], []
    for settings in (plain, [*plain, "test.rescale=labels"]):
        grid = pipeline.sweep(resolve("linear", "softmax", "smoke", settings), 0, lab)
        errors.append(grid.at(metric="mse-code", **far))
        floors.append(grid.at(metric="floor", **far))
    assert errors[1] < 0.8 * errors[0]
    assert floors[1] < floors[0]
    assert floors[1] < errors[1]
    assert any("trained alike" in line for line in lab.said)


def test_the_live_attention_page_refuses_a_model_that_rescales():
    with pytest.raises(NotExportable, match="rescaled"):
        export_model(model_of(["model.read_in=scaled"]))


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        ("every", ["test.rescale=labels"], "every cannot rescale labels .*: it has inputs"),
        ("needle", ["test.rescale=labels"], "needle has no part that can be rescaled"),
        (
            "needle",
            ["model.read_in=scaled"],
            "needle has no part that can be rescaled .*tasks that have: every, linear, regression, some",
        ),
        ("linear", ["test.rescale=labels", "test.rescale_from=10"], "have no answer after the first 10"),
        ("linear", ["test.rescale_from=5"], "needs test.rescale"),
        ("linear", ["test.rescale=labels", "test.rescale_from=0"], "test.rescale_from"),
        ("linear", ["test.rescale=answers"], "test.rescale"),
        ("linear", ["test.rescale=labels", "model.read_in=scaled"], "rescales prompts in tests already"),
        ("linear", ["model.final_norm=batch"], "model.final_norm"),
    ],
)
def test_bad_input_is_said_in_one_line(task, settings, words):
    with pytest.raises(BadValue, match=words) as caught:
        resolve(task, "softmax", "smoke", settings)
    assert "\n" not in str(caught.value)

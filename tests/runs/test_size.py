"""The estimate of a run's memory and time: by arithmetic, near what is really taken, and never far below it."""

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses.profiles.costs import peak
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2
from icl_lab.pipeline import subject
from icl_lab.runs import estimate
from icl_lab.runs import measure as measuring
from icl_lab.runs.measure import Subject
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.spec import resolve

CPU = torch.device("cpu")


def model_of(spec):
    return GPT2(spec.model, spec.reading(tasks.build(spec.task)), spec.attn, stream(0, "init"))


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("linear", []),
        ("linear", ["model.mlp=no"]),
        ("linear", ["model.attention=no"]),
        ("linear", ["model.norm=no"]),
        ("linear", ["model.norm_in=yes"]),
        ("every", ["model.layers=3", "model.positions=learned:rows=100"]),
        ("needle", ["model.positions=rotary"]),
        ("needle-vectors:dim=5", ["model.positions=none"]),
    ],
)
def test_parameters_are_counted_without_a_model(task, settings):
    spec = resolve(task, "softmax", "smoke", settings)
    assert estimate.parameters(spec, tasks.build(task)) == model_of(spec).parameter_count()


@pytest.mark.parametrize("settings", [["model.block=llama"], ["model.qk_norm=yes"]])
def test_parameters_of_other_blocks_are_counted_about(settings):
    spec = resolve("linear", "softmax", "smoke", ["model.width=64", *settings])
    assert estimate.parameters(spec, tasks.build("linear")) == pytest.approx(model_of(spec).parameter_count(), rel=0.1)


def test_operations_of_a_training_are_those_of_its_steps():
    """One layer of width 4 for three steps: of 2 prompts of 1, 2 and 2 numbers, two tokens each."""
    small = ["model.layers=1", "model.width=4", "model.heads=1", "train.steps=3", "train.batch=2"]
    stairs = [f"train.curriculum.{each}" for each in ("start=1", "stop=2", "rise=1", "run=0.33")]
    spec = resolve("linear", "softmax", "smoke", [*small, *stairs])
    p = estimate.parameters(spec, tasks.build("linear"))
    passes = [2 * p * t + 4 * 4 * t * t for t in (2, 4, 4)]
    assert estimate.training_operations(spec) == pytest.approx(3 * 2 * sum(passes))
    first = [estimate.operations_by_step(spec)(steps) for steps in range(4)]
    assert first == pytest.approx([3 * 2 * sum(passes[:steps]) for steps in range(4)])


def test_operations_of_a_test_are_those_of_its_passes():
    linear = resolve("linear", "softmax", "smoke", ["test.prompts=10", "test.axes.length=5,12", "test.axes.sigma_x=1"])
    p, d = estimate.parameters(linear, tasks.build("linear")), linear.model.width * linear.model.layers
    assert estimate.test_operations(linear) == 3 * 10 * (2 * p * 24 + 4 * d * 24**2)  # three sigma_f; 5 is cut from 12
    needle = resolve("needle", "softmax", "smoke", ["test.prompts=10", "test.axes.length=64,128", "test.axes.depth=50"])
    p, d = estimate.parameters(needle, tasks.build("needle")), needle.model.width * needle.model.layers
    assert estimate.test_operations(needle) == 10 * sum(2 * p * t + 4 * d * t**2 for t in (64, 128))


def test_a_size_of_any_size_takes_no_memory():
    """A table of 2.6 TB, which could not be made."""
    spec = resolve("linear", "softmax", "smoke", ["model.positions=learned:rows=10000000", "model.width=65536"])
    assert estimate.size_of(spec).model > 1e13


@pytest.mark.parametrize("attn", ["softmax", "ssa", "entmax", "lssa", "stick-breaking"])
@pytest.mark.parametrize("settings", [["model.width=128"], ["model.heads=8", "train.curriculum.start=80"]])
@pytest.mark.slow
def test_the_estimate_of_a_step_is_near_and_not_below(attn, settings):
    """What the passes make at once is counted by their storages, so that it is the same in every run."""
    longest = "train.curriculum.stop=80" if len(settings) > 1 else "train.curriculum.stop=20"
    spec = resolve("linear", attn, "smoke", ["train.curriculum.start=20", "train.batch=64", *settings, longest])
    task, model = tasks.build(spec.task), model_of(spec)
    prompt = task.sample(stream(0, "x"), spec.train.batch, spec.train.longest)
    taken = peak(lambda: task.loss(model(prompt.tokens, answers=task.answers), prompt).backward())
    most = 25 if attn == "softmax" else 6  # it keeps no pairs of tokens
    assert 0.8 < estimate.size_of(spec).step / taken < most


CELL = {
    "linear": ["test.axes.sigma_x=1", "test.axes.sigma_f=1"],
    "every": ["test.axes.sigma=1"],
    "needle": ["test.axes.depth=50"],
    "needle-vectors:dim=64": ["test.axes.depth=50"],
}


LONG = [("recall", "ssa", 1024), ("needle", "ssa", 1024), ("needle", "sima", 1024)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("task", "attn", "length"), [*((task, "ssa", 100) for task in CELL), *LONG])
def test_the_estimate_of_a_test_is_near_and_not_below(task, attn, length, monkeypatch):
    monkeypatch.setattr(estimate, "MEMORY", 2**23)
    monkeypatch.setattr(measuring, "MEMORY", 2**23)
    axes = [f"test.axes.length={length}", *CELL.get(task, [])]
    spec = resolve(task, attn, "smoke", ["test.prompts=64", "model.positions=none", *axes])
    built, model = tasks.build(task), model_of(spec).eval()
    subjects = {attn: subject(model, built, CPU)}
    subjects |= {name: Subject(predict) for name, predict in built.references().items()}
    assert 0.8 < estimate.size_of(spec).test / peak(lambda: measuring.measure(subjects, built, spec.test)) < 8


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task", ["linear", "every", "needle"])
def test_every_preset_fits_a_usual_machine(preset, task, monkeypatch):
    monkeypatch.setattr(estimate, "room", lambda device: 16e9)
    spec = resolve(task, "softmax", preset)
    estimate.check_training(spec, CPU)
    estimate.check_test(spec, CPU)


def test_long_prompts_fit_where_there_are_blocks(monkeypatch):
    monkeypatch.setattr(estimate, "room", lambda device: 16e9)
    long = ["test.prompts=64", "test.axes.length=16384", "model.positions=none"]
    estimate.check_test(resolve("needle", "ssa", "nano", long), CPU)
    for attn, settings in (("sima", []), ("ssa", ["model.positions=alibi"]), ("selective", [])):
        with pytest.raises(BadValue, match="the test would need about"):
            estimate.check_test(resolve("needle", attn, "nano", [*long, *settings]), CPU)
    with pytest.raises(BadValue, match="the test would need about"):  # what is tested is what was swapped in
        estimate.check_test(resolve("needle", "ssa", "nano", long), CPU, swap="sima")


def test_the_line_holds_the_numbers_and_the_bound(monkeypatch):
    monkeypatch.setattr(estimate, "room", lambda device: 8e9)
    spec = resolve("linear", "softmax", "smoke", ["train.batch=100000"])
    words = r"about 86 GB of memory \(.* for 29,249 parameters.*more than the 8 GB .*allow-large"
    with pytest.raises(BadValue, match=words):
        estimate.check_training(spec, CPU)
    spec = resolve("linear", "softmax", "smoke", ["train.steps=1000000000", "train.batch=1000"])
    with pytest.raises(BadValue, match=r"about [\d,.]+ years \(1,000,000,000 steps\), more than the one"):
        estimate.check_training(spec, CPU)


def test_what_grows_together_adds_up(monkeypatch):
    monkeypatch.setattr(estimate, "room", lambda device: 8e9)
    spec = resolve("linear", "softmax", "smoke", ["train.batch=2000"])
    estimate.check_training(spec, CPU, together=4)
    with pytest.raises(BadValue, match="6 trainings at once would need about"):
        estimate.check_training(spec, CPU, together=6)


def test_the_last_and_largest_batch_counts():
    once = estimate.size_of(resolve("linear", "softmax", "smoke"))
    doubled = estimate.size_of(resolve("linear", "softmax", "smoke", ["train.doublings=3"]))
    assert doubled.step == pytest.approx(8 * once.step, rel=0.01)


def test_this_machine_has_memory():
    assert estimate.room(CPU) > 1e8

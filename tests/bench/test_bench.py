"""The bench: its arithmetic, its count of operations, and what it says; never a time."""

import csv
import importlib
import inspect
import io
import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from torch.utils.flop_counter import FlopCounterMode

import benchmarks as bench
from benchmarks import blocks, memory, quality, rows, runs, training
from benchmarks.__main__ import bench as command
from benchmarks.rows import Bench, Measurement
from icl_lab import tasks
from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.normalizers import base
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.spec import resolve
from icl_lab.training.loop import Progress, train

CPU = torch.device("cpu")
TINY = ModelSpec(layers=2, heads=2, width=8)


@pytest.fixture
def quick():
    """A bench that times one pair and tells what it says."""
    said = []
    return Bench(CPU, pairs=1, say=said.append), said


def test_a_quotient_is_the_median_of_neighbours_and_not_of_all():
    row = Bench(CPU).quotient("case", "other", "x as fast", over=[2.0, 30.0, 8.0], under=[1.0, 10.0, 2.0])
    assert (row.ratio, row.low, row.high) == (3, 2, 4)
    assert row.seconds == 2
    assert row.count == 3


def test_compared_runs_take_turns_after_a_warm_up():
    order = []
    jobs = [lambda: order.append("A"), lambda: order.append("B")]
    found = Bench(CPU, pairs=3).alternate(*jobs)
    assert "".join(order) == "AB" + "ABABAB"
    assert [len(times) for times in found] == [3, 3]
    order.clear()
    Bench(CPU, pairs=3).alternate(*jobs, most=1, warm=False)
    assert "".join(order) == "AB"


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("task", ["linear", "needle"])
def test_operations_are_those_that_torch_counts(layers, task):
    """By the matrix road, where every product is one that torch sees; the whole square of scores."""
    built, b = tasks.build(task), 3
    spec = ModelSpec(layers=layers, heads=2, width=8, positions="none")
    pairs = 6
    prompt = built.sample(stream(0, "flops"), b, pairs)
    t = prompt.tokens.shape[1]
    reading = TokenSpec(built.width, built.outputs, built.roles, t)
    model = GPT2(spec, reading, "ssa", stream(0, "init"))
    with FlopCounterMode(display=False) as counter:
        built.loss(model(prompt.tokens, answers=built.answers), prompt).backward()
    answers = len(range(t)[built.answers])
    assert training.operations(spec, reading, b, t, answers, keys=t) == counter.get_total_flops()
    assert training.operations(spec, reading, b, t, answers, keys=(t + 1) / 2) < counter.get_total_flops()


def test_a_step_of_the_bench_is_a_step_of_the_training():
    """Same prompts, same numbers as ``train``: the bench times nothing else."""
    timed = training.Steps(TINY, "ssa", 4, 5, CPU)
    again = training.Steps(TINY, "ssa", 4, 5, CPU)
    for _ in range(7):
        timed()
    spec = type(again.spec)(steps=7, batch=4, rate=1e-4, schedule="cosine", curriculum=again.spec.curriculum)
    timed_rates = [timed.spec.rate_at(k) for k in range(7)]
    assert timed_rates == [spec.rate_at(k) for k in range(7)]  # still warming up: the same in both
    train(again.model, again.task, spec, 0, Progress(), keep=lambda progress: None)
    for one, other in zip(timed.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_the_other_loop_learns_at_the_same_size():
    pytest.importorskip("transformers", reason="pip install 'icl_lab[hf]'")
    from benchmarks.hugging_face import Loop

    torch.manual_seed(0)
    loop = Loop(2, 2, 8, batch=16, pairs=5, device=CPU)
    for group in loop.adam.param_groups:
        group["lr"] = 1e-2
    losses = [loop() for _ in range(60)]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    task = tasks.build("linear")
    ours = GPT2(TINY, TokenSpec(task.width, task.outputs, task.roles, 10), "softmax", stream(0, "init"))
    theirs = sum(p.numel() for name, p in loop.model.named_parameters() if "wte" not in name)
    assert theirs == ours.parameter_count()


@pytest.mark.exhaustive
def test_without_transformers_that_part_is_left_out_and_said(monkeypatch, quick):
    told, said = quick
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(training, "SIZES", {"tiny": (TINY, 1)})
    monkeypatch.setattr(training, "BATCH", 2)
    monkeypatch.setattr(training, "SIDE", 8)
    monkeypatch.setattr(training.normalizers, "names", lambda: ["softmax", "ssa"])
    rows = list(training.step(told))
    assert said == ["step: transformers is not here, so nothing is held against it: pip install 'icl_lab[hf]'"]
    rules = ["softmax, lite", "ssa, lite", "lssa+reweight:p=3, lite"]
    codes = [f"positions={code}, lite" for code in ("alibi", "t5", "kerple", "fire")]
    assert [row.case for row in rows[2:]] == ["Muon, nano", "Muon, paper2", *rules, "mask=full, lite", *codes]
    others = ["a second", "float32 matrix product", *["torch.optim.Muon"] * 2]
    usual = ["mask=causal", *["positions=none"] * 4]
    assert [row.against for row in rows] == [*others, *["softmax"] * 3, *usual]
    assert all(row.ratio > 0 for row in rows)


def test_whose_time_is_divided_by_whose(monkeypatch, quick):
    """Times that are written down: two of our steps take 4 s, the product 0.5 s, two of their steps 8 s."""
    pytest.importorskip("transformers", reason="pip install 'icl_lab[hf]'")
    kinds = []

    def alternate(bench, *jobs):
        kinds.extend(type(job()) for job in jobs)
        kinds.append(type(jobs[2]()[0]))
        return [[4.0], [0.5], [8.0]]

    monkeypatch.setattr(training, "BATCH", 2)
    monkeypatch.setattr(training, "SIDE", 8)
    monkeypatch.setattr(Bench, "alternate", alternate)
    others, tokens, share = training.against_others("tiny", TINY, 2, quick[0])
    assert kinds == [list, list, list, float]
    named = [row.against for row in (others, tokens, share)]
    assert named == ["Hugging Face GPT-2", "a second", "float32 matrix product"]
    assert (others.ratio, others.seconds) == (2.0, 2.0)
    assert tokens.ratio == 2 * 80 / 2.0
    reading = TokenSpec(1, 1, 2, 80)
    work = training.operations(TINY, reading, 2, 80, 40, keys=40.5)
    assert share.ratio == pytest.approx(work * 0.5 / (training.PRODUCTS * 2 * 8**3) / 2.0)
    monkeypatch.setattr(Bench, "alternate", lambda bench, *jobs: [[2.0], [3.0]])
    (slower,) = training.against_usual("attn", "ssa", "softmax", quick[0], steps=1)
    assert (slower.ratio, slower.seconds) == (1.5, 3.0)


def test_models_that_differ_in_one_field_take_turns(monkeypatch, quick):
    """Two steps of the usual model take 2 s, of that with the field changed 3 s."""
    specs = []

    def alternate(bench, *jobs):
        specs.extend(job.__closure__[0].cell_contents.model.spec for job in jobs)
        return [[2.0], [3.0]]

    monkeypatch.setattr(Bench, "alternate", alternate)
    (row,) = training.against_usual("positions", "alibi", "none", quick[0])
    assert [spec.positions for spec in specs] == ["none", "alibi"]
    assert (row.ratio, row.seconds, row.case, row.against) == (1.5, 1.5, "positions=alibi, lite", "positions=none")


def test_how_much_faster_muon_is_than_torchs(monkeypatch, quick):
    """Ours takes 2 s, torch's 6 s; each moves every matrix of the model, and nothing else."""
    moved = []

    def alternate(bench, *jobs):
        for job in jobs:
            before = [p.detach().clone() for p in job.__self__.param_groups[0]["params"]]
            job()
            after = job.__self__.param_groups[0]["params"]
            moved.append([p.ndim for p, was in zip(after, before, strict=True) if not torch.equal(p, was)])
        return [[2.0], [6.0]]

    monkeypatch.setattr(Bench, "alternate", alternate)
    (row,) = training.against_torch("nano", quick[0])
    assert moved == [[2] * 8] * 2
    assert (row.case, row.ratio, row.seconds) == ("Muon, nano", 3.0, 2.0)


def tiny_steps(monkeypatch, *refused):
    """Steps of every engine are eager ones of a tiny size; these engines are not possible here."""

    def made(preset, device, attn="softmax", way=training.EAGER):
        if " ".join(way) in refused:
            raise BadValue("there is none.")
        return training.Steps(TINY, attn, 2, 3, device, ("eager", way[1]))

    monkeypatch.setattr(training, "steps_of", made)


@pytest.mark.exhaustive
def test_engines_are_compared_with_eager_steps_or_named(monkeypatch, quick):
    told, said = quick
    tiny_steps(monkeypatch, "graph bf16")
    monkeypatch.setattr(training, "ON_CPU", {"lite": training.ENGINES, "paper2": training.ENGINES[::2]})
    rows = list(training.engines(told))
    assert said == ["engines: graph bf16, lite: there is none."]
    assert [row.case for row in rows if row.unit.startswith("seconds")] == ["graph float32, lite"]
    speeds = [row.case for row in rows if row.against == "a second"]
    lite = ["eager float32, lite", "graph float32, lite", "eager bf16, lite"]
    assert speeds == [*lite, "eager float32, paper2", "eager bf16, paper2"]
    assert [row.case for row in rows if row.against == "eager float32"] == [*lite[1:], "eager bf16, paper2"]
    assert all(row.ratio > 0 for row in rows)


def test_steps_a_second_and_the_minutes_of_a_published_training(monkeypatch, quick):
    """Times that are written down: two steps of 0.2 s each a timing, and the recorded ones take half of it."""
    tiny_steps(monkeypatch)
    monkeypatch.setattr(training, "ON_CPU", {"lite": training.ENGINES[:2]})
    asked = iter([[[0.2]], [[0.4], [0.2]]])
    monkeypatch.setattr(Bench, "alternate", lambda bench, *jobs, most=0: next(asked))
    _, eager, graph, ratio = training.engines(quick[0])
    assert (eager.ratio, eager.seconds, graph.ratio) == pytest.approx((5, 0.2, 10))
    assert eager.note == "500,000 steps: 1,667 minutes"
    assert (ratio.case, ratio.ratio) == ("graph float32, lite", 2)


def test_the_engines_of_the_bench_are_those_of_training():
    half = training.steps_of("lite", CPU, way=("eager", "bf16")).spec
    lite = PRESETS["lite"].train
    assert (half.engine, half.precision, half.batch, half.longest) == ("eager", "bf16", lite.batch, lite.longest)
    with pytest.raises(BadValue, match="CUDA graphs"):
        training.steps_of("lite", CPU, way=("graph", "float32"))


@pytest.mark.slow
def test_all_three_ways_of_the_grid_give_the_same_cells(monkeypatch, quick):
    """Two shifts of three lengths: asked once a shift, length or cell, warm and timed, and once more to compare."""
    asked, seen = [], runs.GPT2.forward
    monkeypatch.setattr(runs.GPT2, "forward", lambda *told, **how: asked.append(1) or seen(*told, **how))
    monkeypatch.setattr(runs, "LENGTHS", (5.0, 9.0, 12.0))
    rows = list(runs.grid(quick[0]))
    assert len(asked) == 2 * (2 + 6 + 6) + 2 + 2 * 6 + 2 * 6
    assert [row.against for row in rows] == ["one pass a length"] * 2 + ["a loop over cells"] * 2
    assert all(row.ratio < 1e-5 for row in rows if "difference" in row.unit)
    other = runs.by_hand
    monkeypatch.setattr(runs, "by_hand", lambda *told: torch.where(torch.arange(6) == 4, 1.25, 1.0) * other(*told))
    *_, row = runs.grid(quick[0])
    assert row.ratio == pytest.approx(0.2, rel=1e-4)  # the largest, as a share of the larger value


class Learner:
    """As ``quality.Attempt``, but its errors are written down."""

    def __init__(self, looks, bout=10.0):
        self.goal, self.spec = quality.GOALS[0], resolve("linear", "softmax", "paper")
        self.looks, self.length = list(looks), bout
        self.progress, self.over = quality.Progress(step=3), False
        self.seconds = self.before = 0.0
        self.worst = math.inf

    good = quality.Attempt.good

    def bout(self, seconds):
        took = min(seconds, self.length)
        self.before, self.seconds = self.seconds, self.seconds + took
        self.worst = self.looks.pop(0)


@pytest.mark.parametrize(
    ("lite", "paper", "ratio", "bound"),
    [
        ([0.5, 0.005], [1.0] * 6 + [0.01], 3.5, ""),
        ([0.005], [1.0] * 3 + [0.01], 3.0, ">="),
        ([0.5, 0.005], [1.0] * 20, 6.0, ">="),
        ([1.0] * 20, [1.0] * 20, math.nan, ""),
    ],
)
def test_time_to_quality_is_a_ratio_or_a_bound_or_nothing(monkeypatch, lite, paper, ratio, bound):
    made = iter([Learner(lite, 5.0), Learner(paper, 5.0)])
    monkeypatch.setattr(quality, "Attempt", lambda goal, spec, device: next(made))
    monkeypatch.setattr(quality, "RECIPES", {"lite recipe": ("lite", []), "paper recipe": ("small", [])})
    monkeypatch.setattr(quality, "PAIRS", quality.PAIRS[-1:])
    monkeypatch.setattr(quality, "GOALS", quality.GOALS[:1])
    monkeypatch.setattr(quality, "FIRST", 5.0)
    rows = list(quality.quality(Bench(CPU, minutes=1.0)))
    assert rows[-1].ratio == pytest.approx(ratio, nan_ok=True)
    assert rows[-1].bound == bound
    assert [row.bound for row in rows[:2]] == ["" if 0.005 in lite else ">=", "" if 0.01 in paper else ">="]
    assert ("too little time" in rows[-1].note) == math.isnan(ratio)
    if 0.005 in lite:
        assert (rows[0].low, rows[0].ratio) == pytest.approx((5 * (len(lite) - 1) / 60, 5 * len(lite) / 60))


def test_steps_of_a_recipe_are_all_where_it_ended():
    learner = Learner([1.0])
    learner.bout(1.0)
    assert quality.minutes("lite recipe", learner, Bench(CPU)).note == "3 steps, at 1, not there"
    learner.over = True
    note = f"{learner.spec.train.steps} steps, at 1, not there when it ended"
    assert quality.minutes("lite recipe", learner, Bench(CPU)).note == note


def test_looks_are_apart_by_a_tenth_of_the_time_that_it_took(monkeypatch):
    learner = Learner([1.0] * 200, bout=math.inf)
    asked = []
    monkeypatch.setattr(learner, "bout", lambda seconds: asked.append(seconds) or Learner.bout(learner, seconds))
    monkeypatch.setattr(quality, "Attempt", lambda goal, spec, device: learner)
    monkeypatch.setattr(quality, "RECIPES", {"lite recipe": ("lite", [])})
    monkeypatch.setattr(quality, "PAIRS", ())
    monkeypatch.setattr(quality, "GOALS", quality.GOALS[:1])
    list(quality.quality(Bench(CPU, minutes=1.5)))
    assert asked[:12] == pytest.approx([0.5] * 11 + [0.55])  # from 5 seconds on a tenth
    assert max(asked) == 5.0
    assert sum(asked) == pytest.approx(90)


@pytest.mark.slow
def test_an_attempt_goes_on_where_it_stopped(monkeypatch):
    """Many bouts are one training: the numbers are those of a training that never stopped."""
    monkeypatch.setattr(quality, "PROMPTS", 64)
    spec = resolve("linear", "softmax", "small", ["train.steps=6", "train.batch=4", "model.layers=2"])
    recipe = spec.train
    broken, whole = (quality.Attempt(quality.GOALS[0], spec, CPU) for _ in range(2))
    steps = []
    while not broken.over:
        broken.bout(0.0)
        steps.append(broken.progress.step)
    assert steps[:5] == [1, 2, 3, 4, 5]
    assert math.isfinite(broken.worst)
    assert broken.seconds > broken.before > 0
    train(whole.model, whole.task, recipe, 0, Progress(), keep=lambda progress: None)
    for one, other in zip(broken.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_balanced_errors_are_all_looked_at(monkeypatch):
    monkeypatch.setattr(quality, "PROMPTS", 64)
    values = {"balanced-any": 0.3, "balanced-last": 0.0, "any": 1}
    found = SimpleNamespace(cells=[{"metric": name, "value": value} for name, value in values.items()])
    monkeypatch.setattr(quality, "cells", lambda *_: found)
    assert quality.Attempt(quality.GOALS[1], resolve("every:balance=half", "softmax", "lite"), CPU).look() == 0.3


@pytest.fixture
def children(monkeypatch):
    """The words of processes that are asked for; none is started."""
    asked = []
    monkeypatch.setattr(runs, "child", lambda *words: asked.append(words) or "")
    return asked


def test_jobs_are_the_same_command_but_for_their_number(children, quick):
    (row,) = (row for row in bench.measure("jobs", quick[0]) if row.case.startswith("4 seeds"))
    sweeps = [words for words in children if "sweep" in words]
    numbers = [words[words.index("--jobs") + 1] for words in sweeps]
    assert numbers == ["1", "2"]
    folders = {words[words.index("--results") + 1] for words in sweeps}
    assert len(folders) == 2, "a run that is there already costs nothing"
    assert (row.part, row.unit) == ("jobs", "x as fast")


def test_on_a_gpu_more_processes_are_tried(monkeypatch, children):
    timed = lambda bench, *ways, most, warm: [[way() or 8.0 / 2**k] for k, way in enumerate(ways)]  # noqa: E731
    monkeypatch.setattr(Bench, "alternate", timed)
    rows = list(runs.jobs(Bench(torch.device("cuda"), pairs=1)))
    assert [row.case for row in rows] == ["4 seeds, --jobs 2", "4 seeds, --jobs 4"]
    assert [(row.ratio, row.seconds) for row in rows] == [(2.0, 4.0), (4.0, 2.0)]
    assert len([words for words in children if "sweep" in words]) == 3


def test_a_child_that_fails_says_why():
    assert rows.child("-c", "print(7)") == "7\n"
    with pytest.raises(RunFailed, match=r"exit code 1: ValueError: no"):
        rows.child("-c", "raise ValueError('no')")


@pytest.mark.exhaustive
def test_the_peak_of_a_fresh_process_sees_what_is_given_back():
    """A hidden 64 MiB, made and dropped inside the work: a count of living tensors after it would miss it."""
    script = (
        "import torch; from benchmarks import memory\n"
        "memory.work = lambda *_: lambda: torch.ones(2**24).sum()\n"
        "print(memory.probe('ssa', 'attend', 8, 1))"
    )
    assert 60 * memory.MIB < float(rows.child("-c", script)) < 80 * memory.MIB


@pytest.mark.parametrize("rule", memory.FAMILIES)
def test_both_routes_of_a_rule_give_the_same_numbers(rule):
    one, other = (memory.work(rule, route, 12, CPU)() for route in memory.ROUTES)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)


def test_memory_is_a_ratio_and_a_power(monkeypatch, quick):
    asked = []

    def child(*words):
        asked.append(words[1])
        tokens, whole = next(t for t in memory.LENGTHS if f", {t}," in words[1]), "'weights'" in words[1]
        return str(tokens**2 if whole else 100.0 * tokens)

    monkeypatch.setattr(memory, "child", child)
    monkeypatch.setattr(memory, "LENGTHS", (128, 256, 512))
    monkeypatch.setattr(memory, "FAMILIES", {"ssmax": "scaled query"})
    rows = list(memory.memory(quick[0]))
    assert [row.ratio for row in rows if "memory" in row.unit] == pytest.approx([1.28, 2.56, 5.12, 1.0])
    assert len(asked) == 6


def test_blocks_are_measured_against_an_equal_output(monkeypatch, quick):
    for module, name, value in (
        *((base, "BLOCK", 8), (base, "LONG", 32)),
        *((blocks, "RULES", ("entmax",)), (blocks, "SHAPES", ((2, 36),)), (blocks, "LONGEST", 40)),
    ):
        monkeypatch.setattr(module, name, value)
    for backward in (False, True):
        job = blocks.work("entmax", 2, 36, CPU, backward=backward)
        torch.testing.assert_close(job(), blocks.whole_matrix(job)())
    found = list(blocks.blocks(quick[0]))
    assert [row.unit for row in found] == ["x as fast", "x less memory", "x as fast", "MiB"]
    assert found[1].ratio > 2  # of 36 rows 8 are held


def test_start_compares_processes_that_do_less(monkeypatch, children, quick):
    pairs = [("icl-lab --help", "python"), ("import icl_lab.pipeline", "import torch")]
    assert [(row.case, row.against) for row in runs.start(quick[0])] == pairs
    assert set(children) == set(runs.STARTS.values())
    monkeypatch.setattr(Bench, "alternate", lambda bench, *jobs: [[0.5], [2.0], [1.0], [8.0]])
    assert [(row.ratio, row.seconds) for row in runs.start(quick[0])] == [(0.5, 1.0), (0.25, 8.0)]


def made():
    return [
        Measurement("step", "2L", "Hugging Face", 1.6, "x as fast", low=1.5, high=1.7, seconds=0.05, count=5),
        Measurement("quality", "linear", "paper", 8.0, "x as soon", bound=">=", note='said "so", twice'),
    ]


def test_rows_survive_csv_and_json():
    again = rows.read(rows.as_csv(made()))
    assert rows.as_csv(again) == rows.as_csv(made())
    assert again[0] == made()[0]
    assert math.isnan(again[1].low)
    data = json.loads(rows.as_json(made()))
    assert data[0]["ratio"] == 1.6
    assert data[1]["low"] is None
    with pytest.raises(RunFailed, match="other columns"):
        rows.read("a,b\n1,2\n")


@pytest.mark.parametrize("folder", ["bench", "bench-recipes"])
def test_stored_rows_are_read_to_the_last_digit(folder):
    text = (rows.HOME / "results" / folder / "bench.csv").read_text()
    assert rows.as_csv(rows.read(text)) == text


def test_a_line_says_bounds_and_ranges():
    none = Measurement("quality", "every", "paper", math.nan, "x as soon", note="too early")
    lines = [*map(rows.line, [*made(), none])]
    said = ("2L / Hugging Face", "1.6 x as fast", "1.5 to 1.7"), (">= 8 x as soon",), ("every / paper", "too early")
    for line, words in zip(lines, said, strict=True):
        assert [each for each in words if each not in line] == []
    assert "nan" not in lines[2]


def test_a_part_measured_again_replaces_its_own_rows():
    on_gpu = Measurement("step", "2L", "", 3.0, "x", device="cuda")
    new = [Measurement("step", "2L", "Hugging Face", 2.0, "x as fast"), on_gpu]
    merged = rows.merge([*made(), Measurement("step", "gone", "", 1.0, "x")], new, "device", "part")
    assert [(row.part, row.ratio) for row in merged] == [("quality", 8.0), ("step", 2.0), ("step", 3.0)]
    again = rows.merge(merged, new[:1], "device", "part")
    assert [(row.device, row.ratio) for row in again] == [("cpu", 8.0), ("cuda", 3.0), ("cpu", 2.0)]


def test_every_part_is_a_function_of_its_name():
    for part, module in bench.PARTS.items():
        assert callable(getattr(importlib.import_module(f"benchmarks.{module}"), part))


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Runs the command with parts that yield one row each."""
    row = lambda part, told: Measurement(part, "case", "other", 2.0, "x", count=told.pairs)  # noqa: E731
    monkeypatch.setattr(bench, "measure", lambda *asked: iter([row(*asked)]))
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}  # click 8.1
    return lambda *words: CliRunner(**apart).invoke(command, [*words, "--results", str(tmp_path)])


def test_rows_before_a_stop_are_kept_beside_older_ones(ask, tmp_path, monkeypatch):
    def measure(part, told):
        yield Measurement(part, "new", "other", 3.0, "x")
        raise KeyboardInterrupt

    ask("--only", "grid", "--only", "jobs")
    monkeypatch.setattr(bench, "measure", measure)
    done = ask("--only", "grid")
    assert done.exit_code != 0
    assert "new / other" in done.stdout
    kept = rows.read((tmp_path / "bench" / "bench.csv").read_text())
    assert [(row.part, row.case) for row in kept] == [("grid", "case"), ("jobs", "case"), ("grid", "new")]
    ask("--only", "memory")
    env = json.loads((tmp_path / "bench" / "env.json").read_text())
    assert set(env) == {"grid on cpu", "jobs on cpu", "memory on cpu"}  # no row without where it was measured


def test_json_is_all_there_is_on_standard_output(ask, tmp_path):
    done = ask("--json", "--only", "grid", "--pairs", "3")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert (row["part"], row["ratio"], row["count"]) == ("grid", 2.0, 3)
    assert "wrote" in done.stderr
    (kept,) = csv.DictReader(io.StringIO((tmp_path / "bench" / "bench.csv").read_text()))
    assert (kept["part"], kept["case"], kept["ratio"], kept["unit"]) == ("grid", "case", "2.0", "x")


@pytest.mark.slow
def test_the_table_and_the_last_lines(ask, tmp_path):
    done = ask()
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in bench.PARTS] == list(bench.PARTS)
    assert lines[-1].startswith(f"wrote {tmp_path / 'bench'}: bench.csv")
    ask("--only", "jobs")
    assert len(rows.read((tmp_path / "bench" / "bench.csv").read_text())) == len(bench.PARTS)


def test_a_part_that_is_none_is_refused_with_those_there_are(ask, tmp_path):
    done = ask("--only", "speed")
    assert done.exit_code == 2
    assert all(part in done.stderr for part in bench.PARTS)
    assert not (tmp_path / "bench").exists()

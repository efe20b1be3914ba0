"""The bench: its arithmetic, its count of operations, and what it says; never a time."""

import csv
import io
import json
import math
import sys

import pytest
import torch
from click.testing import CliRunner
from torch.utils.flop_counter import FlopCounterMode

from icl_lab import bench, normalizers, tasks
from icl_lab.bench import base, engines, flex, grid, hugging_face, jobs, memory, quality, stack, start, step, table
from icl_lab.bench.base import Bench, Measurement
from icl_lab.cli.main import cli
from icl_lab.errors import BadValue, RunFailed
from icl_lab.model.gelu import PIECE, gelu_new
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.normalizers.base import causal, count
from icl_lab.normalizers.ssa import Power
from icl_lab.rng import stream
from icl_lab.runs.presets import PAPER
from icl_lab.runs.spec import resolve

CPU = torch.device("cpu")
TINY = ModelSpec(layers=2, heads=2, width=8)


@pytest.fixture
def quick():
    """A bench that times one pair and tells what it says."""
    said = []
    return Bench(CPU, pairs=1, say=said.append), said


def test_a_quotient_is_the_median_of_neighbours_and_not_of_all():
    row = Bench(CPU).quotient("part", "case", "other", "x as fast", over=[2.0, 30.0, 8.0], under=[1.0, 10.0, 2.0])
    assert (row.ratio, row.low, row.high) == (3, 2, 4)
    assert row.seconds == 2
    assert row.count == 3


def test_what_is_compared_runs_in_turns_after_one_of_each_that_does_not_count():
    order = []
    found = base.alternate([lambda: order.append("A"), lambda: order.append("B")], 3, CPU)
    assert "".join(order) == "AB" + "ABABAB"
    assert [len(times) for times in found] == [3, 3]
    order.clear()
    base.alternate([lambda: order.append("A"), lambda: order.append("B")], 1, CPU, warm=False)
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
    assert step.operations(spec, reading, b, t, answers, keys=t) == counter.get_total_flops()
    assert step.operations(spec, reading, b, t, answers, keys=(t + 1) / 2) < counter.get_total_flops()


def test_a_step_of_the_bench_is_a_step_of_the_training():
    """Same prompts, same numbers as ``train``: the bench times nothing else."""
    from icl_lab.training.loop import Progress, train

    timed = step.Steps(TINY, "ssa", 4, 5, CPU)
    again = step.Steps(TINY, "ssa", 4, 5, CPU)
    for _ in range(7):
        timed()
    spec = type(again.spec)(steps=7, batch=4, rate=1e-4, schedule="cosine", curriculum=again.spec.curriculum)
    timed_rates = [timed.spec.rate_at(k) for k in range(7)]
    assert timed_rates == [spec.rate_at(k) for k in range(7)]  # still warming up: the same in both
    train(again.model, again.task, spec, 0, Progress(), keep=lambda progress: None)
    for one, other in zip(timed.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_the_other_loop_learns_the_same_task_and_has_the_same_size():
    pytest.importorskip("transformers", reason="pip install 'icl_lab[hf]'")
    torch.manual_seed(0)
    loop = hugging_face.Loop(2, 2, 8, batch=16, pairs=5, device=CPU)
    for group in loop.adam.param_groups:
        group["lr"] = 1e-2
    losses = [loop() for _ in range(60)]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    task = tasks.build("linear")
    ours = GPT2(TINY, TokenSpec(task.width, task.outputs, task.roles, 10), "softmax", stream(0, "init"))
    theirs = sum(p.numel() for name, p in loop.model.named_parameters() if "wte" not in name)
    assert theirs == ours.parameter_count()


@pytest.mark.slow
def test_without_transformers_that_part_is_left_out_and_said(monkeypatch, quick):
    told, said = quick
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(step, "SIZES", (step.StepSize("tiny", TINY),))
    monkeypatch.setattr(step, "BATCH", 2)
    monkeypatch.setattr(step, "SIDE", 8)
    monkeypatch.setattr(step.normalizers, "names", lambda: ["softmax", "ssa"])
    rows = list(step.measure(told))
    assert said == ["step: transformers is not here, so nothing is held against it: pip install 'icl_lab[hf]'"]
    assert [row.against for row in rows] == ["a second", "float32 matrix product", "torch.optim.Muon", *["softmax"] * 3]
    assert [row.case for row in rows[2:]] == ["Muon, nano", "softmax, lite", "ssa, lite", "lssa+reweight:p=3, lite"]
    assert all(row.ratio > 0 for row in rows)


def test_with_transformers_it_stands_first(monkeypatch, quick):
    pytest.importorskip("transformers", reason="pip install 'icl_lab[hf]'")
    monkeypatch.setattr(step, "BATCH", 2)
    monkeypatch.setattr(step, "SIDE", 8)
    rows = list(step.against_others(step.StepSize("tiny", TINY, steps=2), quick[0]))
    assert [row.against for row in rows] == ["Hugging Face GPT-2", "a second", "float32 matrix product"]


def test_whose_time_is_divided_by_whose(monkeypatch, quick):
    """Times that are written down: two of our steps take 4 s, the product 0.5 s, two of their steps 8 s."""
    pytest.importorskip("transformers", reason="pip install 'icl_lab[hf]'")
    kinds = []

    def alternate(jobs, pairs, device):
        kinds.extend(type(job()) for job in jobs)
        kinds.append(type(jobs[2]()[0]))
        return [[4.0], [0.5], [8.0]]

    monkeypatch.setattr(step, "BATCH", 2)
    monkeypatch.setattr(step, "SIDE", 8)
    monkeypatch.setattr(step, "alternate", alternate)
    others, tokens, share = step.against_others(step.StepSize("tiny", TINY, steps=2), quick[0])
    assert kinds == [list, torch.Tensor, list, float]
    assert (others.ratio, others.seconds) == (2.0, 2.0)
    assert tokens.ratio == 2 * 80 / 2.0
    reading = TokenSpec(1, 1, 2, 80)
    work = step.operations(TINY, reading, 2, 80, 40, keys=40.5)
    assert share.ratio == pytest.approx(work * 0.5 / (step.PRODUCTS * 2 * 8**3) / 2.0)
    monkeypatch.setattr(step, "alternate", lambda jobs, pairs, device: [[2.0], [3.0]])
    slower = step.against_softmax("ssa", quick[0], steps=1)
    assert (slower.ratio, slower.seconds) == (1.5, 3.0)


def test_how_much_faster_muon_is_than_torchs(monkeypatch, quick):
    """Ours takes 2 s, torch's 6 s; each optim every matrix of the model, and nothing else."""
    moved = []

    def alternate(jobs, pairs, device):
        for job in jobs:
            before = [p.detach().clone() for p in job.__self__.param_groups[0]["params"]]
            job()
            after = job.__self__.param_groups[0]["params"]
            moved.append([p.ndim for p, was in zip(after, before, strict=True) if not torch.equal(p, was)])
        return [[2.0], [6.0]]

    monkeypatch.setattr(step, "alternate", alternate)
    row = step.against_torch(quick[0])
    assert moved == [[2] * 8] * 2
    assert (row.ratio, row.seconds) == (3.0, 2.0)


def refused(*ways):
    """As ``engines.made``, at a tiny size and without compiling; these ways are not possible here."""

    def made(way, size, told):
        if str(way) in ways:
            raise BadValue("there is none.")
        return base.Steps(TINY, "softmax", 2, 3, CPU, "eager", way.precision)

    return made


@pytest.mark.slow
def test_engines_are_told_against_eager_steps_and_those_that_are_none_are_said(monkeypatch, quick):
    told, said = quick
    monkeypatch.setattr(engines, "made", refused("graph float32", "graph bf16"))
    rows = list(engines.measure(told))
    assert said == [f"engines: graph {precision}, lite: there is none." for precision in ("float32", "bf16")]
    assert [row.case for row in rows if row.unit.startswith("seconds")] == ["compiled float32, lite"]
    speeds = [row.case for row in rows if row.against == "a second"]
    assert speeds == ["eager float32, lite", "compiled float32, lite", "eager bf16, lite"]
    assert [row.case for row in rows if row.against == "eager float32"] == speeds[1:]
    assert all(row.ratio > 0 for row in rows)
    assert engines.possible(torch.device("cuda")) == list(engines.OTHERS)


def test_steps_a_second_and_the_minutes_of_a_published_training(monkeypatch, quick):
    """Times that are written down: two steps of 0.2 s each a timing, and the compiled ones take half of it."""
    monkeypatch.setattr(engines, "made", refused("graph float32", "graph bf16", "eager bf16"))
    asked = iter([[[0.2]], [[0.4], [0.2]]])
    monkeypatch.setattr(engines, "alternate", lambda jobs, pairs, device: next(asked))
    _, eager, compiled, ratio = engines.measure(quick[0])
    assert (eager.ratio, eager.seconds, compiled.ratio) == pytest.approx((5, 0.2, 10))
    assert eager.note == "500,000 steps: 1,667 minutes"
    assert (ratio.case, ratio.ratio) == ("compiled float32, lite", 2)


def test_the_engines_of_the_bench_are_those_of_training(quick):
    lite = engines.EngineSize("tiny", TINY, 2, 3)
    half = engines.made(engines.Way("eager", "bf16"), lite, quick[0])
    assert (half.spec.engine, half.spec.precision, half.spec.batch, half.spec.longest) == ("eager", "bf16", 2, 3)
    with pytest.raises(BadValue, match="CUDA graphs"):
        engines.made(engines.Way("graph", "float32"), lite, quick[0])


def test_flex_attention_is_left_out_on_a_cpu_and_said(quick):
    told, said = quick
    assert list(flex.measure(told)) == []
    assert said == ["flex: flex_attention has no backward on the CPU; nothing is measured."]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch warns that this road, which computes every score, is for tests
@pytest.mark.parametrize("choice", ["ssmax", "ssmax:s=0.3", "ssa", "ssa:n=2,b=0.5"])
@pytest.mark.parametrize("tokens", [5, 130])
def test_flex_attention_with_the_warp_of_a_rule_gives_its_outputs(choice, tokens):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    rule = normalizers.build(choice, heads=2, head_dim=16, train_tokens=64).requires_grad_(False)
    rng = stream(0, "flex", tokens)
    for p in rule.parameters():
        p += torch.randn(p.shape, generator=rng) / 4  # heads that differ
    q, k, v = (2 * torch.randn(1, 2, tokens, 16, generator=rng) for _ in range(3))
    blocks = create_block_mask(flex.earlier, None, None, tokens, tokens, device="cpu")
    o = flex_attention(q, k, v, score_mod=flex.warp(rule, tokens), block_mask=blocks)
    torch.testing.assert_close(o, rule.weights(q, k, causal(tokens)) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("choice", flex.RULES)
def test_the_warps_of_flex_attention_have_the_slopes_of_the_rules(choice):
    """Of scores and of what is learned, at 0 too; there is no backward through flex_attention itself on a CPU."""
    rule = normalizers.build(choice, heads=2, head_dim=16, train_tokens=64)
    q, k = (torch.randn(1, 2, 6, 16, generator=stream(0, "slopes", name), dtype=torch.float32) for name in "qk")
    q[:, :, 3] = 0
    wanted = [q.requires_grad_(), k.requires_grad_(), *rule.parameters()]
    visible = causal(6)
    weights = rule.weights(q, k, visible)
    slope = torch.randn(weights.shape, generator=stream(0, "slopes"))
    ours = torch.autograd.grad(weights, wanted, slope)
    z, one = q @ k.mT / 4, flex.warp(rule, 6)
    none = torch.tensor(0)
    g = torch.stack(
        [
            torch.stack([torch.stack([one(z[0, h, i, j], none, h, i, j) for j in range(6)]) for i in range(6)])
            for h in range(2)
        ]
    )
    warped = torch.autograd.grad(g.masked_fill(~visible, -math.inf).softmax(-1).unsqueeze(0), wanted, slope)
    for a, b in zip(warped, ours, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert ours[0][:, :, 3].abs().sum() > 0, "the slope at 0 is part of what is compared"


def test_flex_rows_are_shares_ratios_and_differences(monkeypatch, quick):
    """Numbers that are written down: outputs 1 in 10 apart, the gradient of a parameter 1 in 4, memory 3 to 1."""
    whole = tuple(torch.tensor([10.0, -4.0]) for _ in range(5))
    off = (torch.tensor([9.0, -4.0]), *whole[1:4], torch.tensor([10.0, -1.5]))
    jobs = (lambda: off, lambda: whole)
    monkeypatch.setattr(flex, "work", lambda name, tokens, device: jobs)
    monkeypatch.setattr(flex, "allocated", lambda job, device: 100 if job is jobs[0] else 300)
    monkeypatch.setattr(flex, "alternate", lambda asked, pairs, device: [[1.0], [2.0]])
    rows = list(flex.compare("ssa", 512, quick[0]))
    assert [row.ratio for row in rows] == pytest.approx([0.1, 0.0, 0.25, 3.0, 2.0])
    assert [row.note for row in rows[:3]] == ["checked"] * 3


def test_all_three_roads_of_the_grid_give_the_same_cells(monkeypatch, quick):
    monkeypatch.setattr(grid, "LENGTHS", (5.0, 9.0, 12.0))
    rows = list(grid.measure(quick[0]))
    assert [row.against for row in rows] == ["one pass a length"] * 2 + ["a loop over cells"] * 2
    assert all(row.ratio < 1e-5 for row in rows if "difference" in row.unit)


def test_cells_that_differ_are_seen():
    assert grid.apart({(1.0, 5): 1.0}, {(1.0, 5): 1.1}) == pytest.approx(0.1 / 1.1)
    assert grid.apart({(1.0, 5): 1.0}, {(1.0, 6): 1.0}) == math.inf


class Learner:
    """As ``quality.Attempt``, but its errors are written down."""

    def __init__(self, looks, bout=10.0):
        self.goal, self.recipe = quality.GOALS[0], PAPER
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
    monkeypatch.setattr(quality, "PAIRS", quality.PAIRS[2:])
    monkeypatch.setattr(quality, "GOALS", quality.GOALS[:1])
    monkeypatch.setattr(quality, "FIRST", 5.0)
    rows = list(quality.measure(Bench(CPU, minutes=1.0)))
    assert rows[-1].ratio == pytest.approx(ratio, nan_ok=True)
    assert rows[-1].bound == bound
    assert [row.bound for row in rows[:2]] == ["" if 0.005 in lite else ">=", "" if 0.01 in paper else ">="]
    assert ("too little time" in rows[-1].note) == math.isnan(ratio)
    if 0.005 in lite:
        assert (rows[0].low, rows[0].ratio) == pytest.approx((5 * (len(lite) - 1) / 60, 5 * len(lite) / 60))


def test_looks_are_apart_by_a_tenth_of_the_time_that_it_took(monkeypatch):
    learner = Learner([1.0] * 200, bout=math.inf)
    asked = []
    monkeypatch.setattr(learner, "bout", lambda seconds: asked.append(seconds) or Learner.bout(learner, seconds))
    monkeypatch.setattr(quality, "Attempt", lambda goal, spec, device: learner)
    monkeypatch.setattr(quality, "RECIPES", {"lite recipe": ("lite", [])})
    monkeypatch.setattr(quality, "PAIRS", ())
    monkeypatch.setattr(quality, "GOALS", quality.GOALS[:1])
    list(quality.measure(Bench(CPU, minutes=1.5)))
    assert asked[:12] == pytest.approx([0.5] * 11 + [0.55])  # from 5 seconds on a tenth
    assert max(asked) == 5.0
    assert sum(asked) == pytest.approx(90)


def test_an_attempt_goes_on_where_it_stopped(monkeypatch):
    """Many bouts are one training: the numbers are those of a training that never stopped."""
    from icl_lab.training.loop import Progress, train

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
    rows = [{"metric": f"balanced-{name}", "value": value} for name, value in (("any", 0.3), ("last", 0.0))]
    monkeypatch.setattr(
        quality, "cells", lambda *_: type("Found", (), {"cells": [*rows, {"metric": "any", "value": 1}]})
    )
    assert quality.Attempt(quality.GOALS[1], resolve("every:balance=half", "softmax", "lite"), CPU).look() == 0.3


def test_jobs_are_the_same_command_but_for_their_number(monkeypatch, quick):
    asked = []
    monkeypatch.setattr(jobs, "child", lambda *words: asked.append(words) or "")
    (row,) = jobs.measure(quick[0])
    runs = [words for words in asked if "sweep" in words]
    numbers = [words[words.index("--jobs") + 1] for words in runs]
    assert numbers == ["1", "2"]
    folders = {words[words.index("--results") + 1] for words in runs}
    assert len(folders) == 2, "a run that is there already costs nothing"
    assert (row.part, row.unit) == ("jobs", "x as fast")


def test_on_a_gpu_the_stack_is_held_against_processes(monkeypatch):
    asked = []
    monkeypatch.setattr(jobs, "child", lambda *words: asked.append(words) or "")
    monkeypatch.setattr(
        jobs, "alternate", lambda ways, pairs, device, warm: [[way() or 8.0 / 2**k] for k, way in enumerate(ways)]
    )
    rows = list(jobs.measure(Bench(torch.device("cuda"), pairs=1)))
    assert [row.case for row in rows] == ["4 seeds, --jobs 2", "4 seeds, --jobs 4", "4 seeds, --stack"]
    assert [(row.ratio, row.seconds) for row in rows] == [(2.0, 4.0), (4.0, 2.0), (8.0, 1.0)]
    assert ["--stack" in words for words in asked if "sweep" in words] == [False, False, False, True]


def test_a_child_that_fails_says_why():
    assert base.child("-c", "print(7)") == "7\n"
    with pytest.raises(RunFailed, match=r"exit code 1: ValueError: no"):
        base.child("-c", "raise ValueError('no')")


@pytest.mark.slow
def test_the_peak_of_a_fresh_process_sees_what_is_given_back():
    """A hidden 64 MiB, made and dropped inside the work: a count of living tensors after it would miss it."""
    script = (
        "import torch; from icl_lab.bench import memory\n"
        "memory.work = lambda *_: lambda: torch.ones(2**24).sum()\n"
        "print(memory.probe('ssa', 'attend', 8, 'cpu', 1))"
    )
    assert 60 * memory.MIB < float(base.child("-c", script)) < 80 * memory.MIB


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
    rows = list(memory.measure(quick[0]))
    assert [row.ratio for row in rows if "memory" in row.unit] == pytest.approx([1.28, 2.56, 5.12, 1.0])
    assert len(asked) == 6


def test_a_gpu_is_measured_in_this_process(monkeypatch):
    monkeypatch.setattr(memory, "child", lambda *words: pytest.fail("another process"))
    monkeypatch.setattr(memory, "probe", lambda *asked: asked)
    cuda = torch.device("cuda")
    assert memory.peak("ssa", "attend", 8, cuda) == ("ssa", "attend", 8, "cuda", torch.get_num_threads())


def test_the_keys_of_a_causal_row_need_no_matrix():
    mask = causal(9)
    assert torch.equal(count(mask), count(mask.clone()))
    assert count(mask).dtype == count(mask.clone()).dtype


def test_start_compares_processes_that_do_less(monkeypatch, quick):
    asked = []
    monkeypatch.setattr(start, "child", lambda *words: asked.append(words) or "")
    rows = list(start.measure(quick[0]))
    assert {row.case: row.against for row in rows} == start.AGAINST
    assert set(asked) == set(start.STARTS.values())
    monkeypatch.setattr(start, "alternate", lambda jobs, pairs, device: [[0.5], [2.0], [1.0], [8.0]])
    assert [(row.ratio, row.seconds) for row in start.measure(quick[0])] == [(0.5, 1.0), (0.25, 8.0)]


def test_set_up_is_left_out_where_there_is_no_repository(monkeypatch, quick, tmp_path):
    told, said = quick
    monkeypatch.setattr(start, "HOME", tmp_path)
    assert list(start.set_up(told)) == []
    assert "in a checkout" in said[0]
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(start.shutil, "which", lambda tool: None)
    monkeypatch.setattr(start, "install", lambda tool, place: said.append(tool))
    assert [row.case for row in start.set_up(told)] == ["set-up with pip"]
    assert said[-1] == "pip"


def rows():
    return [
        Measurement("step", "2L", "Hugging Face", 1.6, "x as fast", low=1.5, high=1.7, seconds=0.05, count=5),
        Measurement("quality", "linear", "paper", 8.0, "x as soon", bound=">=", note='said "so", twice'),
    ]


def test_rows_survive_csv_and_json():
    again = table.read(table.as_csv(rows()))
    assert table.as_csv(again) == table.as_csv(rows())
    assert again[0] == rows()[0]
    assert math.isnan(again[1].low)
    data = json.loads(table.as_json(rows()))
    assert data[0]["ratio"] == 1.6
    assert data[1]["low"] is None
    with pytest.raises(RunFailed, match="other columns"):
        table.read("a,b\n1,2\n")


def test_the_table_says_bounds_and_ranges():
    text = "\n".join(
        table.table([*rows(), Measurement("quality", "every", "paper", math.nan, "x as soon", note="too early")])
    )
    assert "2L / Hugging Face" in text
    assert "1.6 x as fast" in text
    assert "1.5 to 1.7" in text
    assert ">= 8 x as soon" in text
    assert "every / paper" in text
    assert "too early" in text
    assert "nan" not in text


def test_a_part_measured_again_takes_the_place_of_its_own_rows_only():
    new = [
        Measurement("step", "2L", "Hugging Face", 2.0, "x as fast"),
        Measurement("step", "2L", "", 3.0, "x", device="cuda"),
    ]
    merged = table.merge([*rows(), Measurement("step", "gone", "", 1.0, "x")], new)
    assert [(row.part, row.ratio) for row in merged] == [("quality", 8.0), ("step", 2.0), ("step", 3.0)]
    again = table.merge(merged, new[:1])
    assert [(row.device, row.ratio) for row in again] == [("cpu", 8.0), ("cuda", 3.0), ("cpu", 2.0)]


def test_every_part_has_its_file():
    assert bench.PARTS == ("step", "engines", "grid", "quality", "jobs", "stack", "memory", "flex", "start")
    for part in (step, engines, grid, quality, jobs, stack, memory, flex, start):
        assert part.PART in bench.PARTS
        assert part.__name__ == f"icl_lab.bench.{part.PART}"


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Runs the command with parts that yield one row each."""

    def measure(parts, told):
        for part in parts:
            yield Measurement(part, "case", "other", 2.0, "x as fast", count=told.pairs)

    monkeypatch.setattr(bench, "measure", measure)
    return lambda *words: CliRunner().invoke(cli, ["bench", *words, "--results", str(tmp_path)])


def test_json_is_all_there_is_on_standard_output(ask, tmp_path):
    done = ask("--json", "--only", "grid", "--pairs", "3")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert (row["part"], row["ratio"], row["count"]) == ("grid", 2.0, 3)
    assert "wrote" in done.stderr
    (kept,) = csv.DictReader(io.StringIO((tmp_path / "bench" / "bench.csv").read_text()))
    assert (kept["part"], kept["case"], kept["ratio"], kept["unit"]) == ("grid", "case", "2.0", "x as fast")


def test_the_table_and_the_last_lines(ask, tmp_path):
    done = ask()
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in bench.PARTS] == list(bench.PARTS)
    assert lines[-2].startswith(f"wrote {tmp_path / 'bench'}: bench.csv")
    assert lines[-1].startswith("next: ")
    env = json.loads((tmp_path / "bench" / "env.json").read_text())
    assert set(env) == {f"{part} on cpu" for part in bench.PARTS}
    ask("--only", "jobs")
    assert len(table.read((tmp_path / "bench" / "bench.csv").read_text())) == len(bench.PARTS)


def test_a_part_that_is_none_is_refused_with_those_there_are(ask, tmp_path):
    done = ask("--only", "speed")
    assert done.exit_code == 2
    assert all(part in done.stderr for part in bench.PARTS)
    assert not (tmp_path / "bench").exists()


def test_the_activation_is_the_same_in_pieces(monkeypatch):
    """Of several pieces and one, with a gradient and without: to rounding, for a piece may end inside a vector."""
    x = torch.randn(3, 7, 5, generator=stream(0, "gelu"))
    assert x.numel() < PIECE
    whole = x.clone().requires_grad_()
    gelu_new(whole).sum().backward()
    monkeypatch.setattr("icl_lab.model.gelu.PIECE", 8)
    parts = x.clone().requires_grad_()
    y = gelu_new(parts)
    y.sum().backward()
    close = {"rtol": 0, "atol": 1e-6}
    torch.testing.assert_close(y.detach(), gelu_new(x), **close)
    torch.testing.assert_close(parts.grad, whole.grad, **close)
    turned = x.transpose(0, 2)
    torch.testing.assert_close(gelu_new(turned.clone().requires_grad_()).detach(), gelu_new(turned), **close)
    slopes = torch.func.vmap(torch.func.grad(lambda row: gelu_new(row).sum()))(x.flatten(1))
    torch.testing.assert_close(slopes, whole.grad.flatten(1), **close)


@pytest.mark.parametrize("heads", [2, 1])
def test_the_slopes_of_ssa_are_those_of_its_formula(heads):
    rng = stream(0, "power")
    z = torch.randn(3, 2, 4, 4, generator=rng, dtype=torch.float64)
    n, b = (1 + torch.rand(heads, 1, 1, generator=rng, dtype=torch.float64) for _ in range(2))
    inputs = [part.requires_grad_() for part in (z, n, b)]
    assert torch.autograd.gradcheck(Power.apply, inputs)
    plain = n * z.sign() * torch.log1p(b * z.abs())
    torch.testing.assert_close(Power.apply(*inputs)[0], plain, rtol=0, atol=1e-14)
    zero = torch.zeros(1, 2, 1, 1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(Power.apply(zero, n, b)[0].sum(), zero)
    assert torch.allclose(slope, (n * b).expand(2, 1, 1))

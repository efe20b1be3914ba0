"""Seeds trained as one stack are the seeds trained alone: in numbers, on disk, and when something goes wrong."""

import dataclasses
import json
import math
import signal
import threading
import time

import msgspec
import pytest
import torch

from icl_lab import normalizers, tasks
from icl_lab import pipeline as sweeping
from icl_lab.bench import training as bench_training
from icl_lab.bench.rows import Bench
from icl_lab.errors import BadValue, Stopped
from icl_lab.model.gpt2 import GPT2
from icl_lab.normalizers.sparse import Entmax, Projection
from icl_lab.normalizers.ssa import Power
from icl_lab.rng import stream
from icl_lab.runs import ensembles
from icl_lab.runs.store import Store
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.linear import Linear
from icl_lab.training import lockstep
from icl_lab.training.ensemble import Stack, advance, clip, optimizer
from icl_lab.training.lockstep import StackedSeed
from icl_lab.training.loop import Progress, train
from icl_lab.training.optimizers import together
from tests.cases import few

pytestmark = pytest.mark.usefixtures("quick_pictures")

SMALL = ["--set", "train.steps=60", "--set", "train.batch=8", "--set", "test.prompts=64"]
SEEDS = (0, 1, 2)


def wide(choice):
    """A task of double precision: rounding is then far below what Adam takes for a gradient."""
    task = tasks.build(choice)

    class Wide(type(task)):
        def practice(self, *address, **shift):
            prompt = super().practice(*address, **shift)
            # Whole numbers are read by an embedding.
            tokens = prompt.tokens if task.vocabulary else prompt.tokens.double()
            return Prompt(tokens, prompt.targets.double(), prompt.scored)

    return Wide(**dataclasses.asdict(task))


def model(spec, task, seed):
    return GPT2(spec.model, spec.reading(task), spec.attn, stream(seed, "init")).double()


def members(spec, task, seeds=SEEDS, keep=lambda progress: None):
    return [StackedSeed(seed, model(spec, task, seed), Progress(), keep) for seed in seeds]


def same(one, other, tolerance):
    """Whether each parameter differs by no more than a share of its size."""
    for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
        assert (p - q).norm() <= tolerance * p.norm().clamp(min=1e-3), name
    return True


def parity(task, attn, tiny, *settings):
    """Trains three seeds stacked and one of them alone, in double precision."""
    spec = tiny(task, attn, "train.steps=6", "train.warmup=0", "model.heads=4", *settings)
    built = wide(spec.task)
    stack, alone = members(spec, built), model(spec, built, 1)
    lockstep.train(stack, built, spec.train)
    history = train(alone, built, spec.train, 1, Progress(), keep=lambda progress: None)
    start = model(spec, built, 1)
    assert not torch.equal(alone.read_in.weight, start.read_in.weight)
    assert same(alone, stack[1].model, 1e-8)
    assert stack[1].progress.history[-1] == pytest.approx(history[-1], rel=1e-8)
    assert stack[0].progress.history[-1]["loss"] != history[-1]["loss"]


@pytest.mark.parametrize(
    "attn",
    [
        *normalizers.names(),
        "lssa+reweight:p=3",
        "ssa:per=layer",
        "ssa:learn=no",
        "ssa:learn=n",
        "forget+gated",
        "elastic:bias=3",
    ],
)
@pytest.mark.slow
def test_every_rule_is_stacked_as_it_is(tiny, attn):
    parity("linear", attn, tiny)


@pytest.mark.parametrize("task", [name for name in tasks.registry.names() if name != "linear"])
@pytest.mark.slow
def test_every_task_is_stacked_as_it_is(tiny, task):
    longest = max(tasks.build(task).axes["tiny"]["length"])  # some tasks have one length alone
    parity(task, "ssa", tiny, f"test.axes.length={longest}")


@pytest.mark.parametrize(
    "settings",
    [
        ["model.block=llama", "model.qk_norm=yes"],
        ["model.positions=rotary:random=200"],
        ["model.positions=learned:random=200"],
        ["model.positions=sinusoidal", "model.roles=tagged"],
        ["model.attention=no"],
        ["train.clip=0"],
        ["train.optimizer=muon", "train.decay=0.1", "train.ema=0.9"],
        ["train.optimizer=adamw", "train.decay=0.1", "train.doublings=2"],
        ["train.read_out_rate=3"],
        ["train.read_out_rate=0.5", "train.optimizer=muon"],
        ["train.shift.sigma_x=3"],
        ["train.switch_step=3", "train.switch_to=ssmax:s=swap"],
    ],
    ids=" ".join,
)
def test_every_kind_of_model_and_training_is_stacked_as_it_is(tiny, settings):
    parity("linear", "softmax", tiny, *settings)


def test_parameters_that_layers_share_are_stacked_once(tiny):
    parity("linear", "ssmax-free", tiny, "model.layers=2")


@pytest.mark.slow
def test_entmax_away_from_its_closed_forms_is_stacked(tiny):
    parity("linear", "entmax:alpha=3", tiny)


def test_a_normalizer_that_cannot_be_stacked_says_so(tiny, lab, monkeypatch):
    monkeypatch.setattr(Entmax, "stackable", False)
    spec = tiny("linear", "entmax:alpha=3")
    told = r"'entmax:alpha=3' cannot be stacked; train its seeds side by side: --jobs"
    late = tiny("linear", "softmax", "train.switch_step=3", "train.switch_to=entmax:alpha=3")
    for refused in (spec, late, tiny("linear", "entmax:alpha=3+reweight:p=3")):
        with pytest.raises(BadValue, match=told.replace("=3'", r"=3(\+reweight:p=3)?'")):
            ensembles.groups([lab.store.run(refused, seed) for seed in SEEDS])


@pytest.mark.parametrize("at", [0, 1, 3])
def test_written_slopes_map_over_any_axis(at):
    """Of SSA's power, its n and b stacked or common, and of entmax: as one after another."""
    rng = stream(0, "axis")
    z = torch.randn(2, 4, 5, 5, generator=rng, dtype=torch.float64)  # (b h t t)
    stack = torch.stack([z, 2 * z, -z], at).requires_grad_()
    n, b = (1 + torch.rand(4, 3, 1, 1, generator=rng, dtype=torch.float64) for _ in range(2))

    def power(z, n, b):
        return Power.apply(z, n, b)[0] * z

    for function, numbers, dims in (
        (power, (n, b), (1, 1)),
        (power, (n[:, 0], b), (None, 1)),
        (lambda z: Projection.apply(z, 1.5)[0] * z, (), ()),
    ):
        mapped = torch.func.vmap(function, in_dims=(at, *dims))(stack, *numbers)
        singles = [
            function(z, *(x if dim is None else x.select(dim, k) for x, dim in zip(numbers, dims, strict=True)))
            for k, z in enumerate(stack.unbind(at))
        ]
        torch.testing.assert_close(mapped, torch.stack(singles))
        slopes = [torch.autograd.grad(torch.stack(list(each)).square().sum(), stack)[0] for each in (mapped, singles)]
        torch.testing.assert_close(*slopes)


def test_each_seed_is_clipped_by_its_own_norm():
    rng = stream(0, "clip")
    gradients = [torch.randn(3, *shape, generator=rng) for shape in ((4, 2), (5,))]
    for gradient in gradients:
        gradient *= torch.tensor([100.0, 1.0, 0.01]).view(3, *[1] * (gradient.ndim - 1))
    alone = [[torch.nn.Parameter(torch.zeros_like(part[k])) for part in gradients] for k in range(3)]
    for k, parameters in enumerate(alone):
        for p, part in zip(parameters, gradients, strict=True):
            p.grad = part[k].clone()
        torch.nn.utils.clip_grad_norm_(parameters, 2.0)
    clip(gradients, 2.0)
    for k, parameters in enumerate(alone):
        for p, part in zip(parameters, gradients, strict=True):
            torch.testing.assert_close(part[k], p.grad)


def test_seeds_that_do_not_stand_together_are_no_stack(tiny):
    spec, task = tiny(), wide("linear")
    one, other = members(spec, task, (0, 1))
    lockstep.train([one], task, msgspec.structs.replace(spec.train, steps=1))
    stack = Stack([one.model, other.model], task)
    with pytest.raises(ValueError, match="1 of 2 seeds"):
        together(optimizer(stack, spec.train), [one.progress.optimizer, other.progress.optimizer])


def sizes(monkeypatch):
    """Notes how many seeds each stacked step is of, and which step it is."""
    seen = []

    def spy(stack, optim, spec, seeds, step):
        seen.append((len(seeds), step))
        return advance(stack, optim, spec, seeds, step)

    monkeypatch.setattr(lockstep, "advance", spy)
    return seen


@pytest.mark.slow
@pytest.mark.exhaustive
def test_who_is_behind_catches_up_and_goes_on_with_the_rest(tiny, monkeypatch):
    spec, task = tiny("linear", "ssa", "train.steps=60"), wide("linear")
    stack = members(spec, task)
    for member, stop in zip(stack, (0, 17, 40), strict=True):
        asked = []

        def keep(progress, member=member):
            member.progress = dataclasses.replace(progress)

        if stop:
            with pytest.raises(Stopped):
                train(
                    member.model,
                    task,
                    spec.train,
                    member.seed,
                    Progress(),
                    keep=keep,
                    stopping=lambda asked=asked, stop=stop: asked.append(0) or len(asked) >= stop,
                )
    assert [member.progress.step for member in stack] == [0, 17, 40]
    seen = sizes(monkeypatch)
    lockstep.train(stack, task, spec.train)
    assert [size for size, _ in seen] == [1] * 17 + [2] * 23 + [3] * 20
    assert [step for _, step in seen] == list(range(60))
    for member in stack:
        alone = model(spec, task, member.seed)
        history = train(alone, task, spec.train, member.seed, Progress(), keep=lambda progress: None)
        assert same(alone, member.model, 1e-8)
        for row, single in zip(member.progress.history, history, strict=True):
            assert row == pytest.approx(single, rel=1e-8)


def runs(lab, spec, seeds=SEEDS):
    return [lab.store.run(spec, seed) for seed in seeds]


def beside(lab, name):
    """Another laboratory, with a results folder of its own."""
    return type(lab)(Store(lab.store.root.parent / name), lab.device, lab.said.append)


def files(run):
    return {name: (run.folder / name).read_bytes() for name in ("model.safetensors", "history.csv")}


@pytest.mark.slow
@pytest.mark.parametrize("attn", few(1, ["ssa", "softmax", "ssmax"]))
def test_on_disk_a_stacked_seed_is_a_seed(tiny, lab, attn):
    """In single precision: weights to 1e-4 of their size, but for a bias of keys that rounding alone moves."""
    spec, single = tiny("linear", attn), beside(lab, "single")
    ensembles.train_together(runs(lab, spec), lab)
    for seed in SEEDS:
        grid, alone = sweeping.sweep(spec, seed, lab), sweeping.sweep(spec, seed, single)
        pair = runs(lab, spec)[seed], runs(single, spec)[seed]
        assert {path.name for path in pair[0].folder.iterdir()} == {path.name for path in pair[1].folder.iterdir()}
        one, other = (sweeping.trained(run, lab) for run in pair)
        for trained in (one, other):
            # The same number added to every score of a row changes no weight of softmax: its slope is rounding, and
            # Adam makes steps of it. Under SSA it is a number like others.
            if attn != "ssa":
                trained.blocks[0].attention.qkv.bias.data.view(3, -1)[1] = 0
        assert same(one, other, 1e-4)
        for ours, theirs in zip(*(run.history() for run in pair), strict=True):
            # Statistics of attention are rounded to 8 bits, and a score holds that bias of the keys.
            watched = {name for name in theirs if name.startswith(("score.", "entropy."))}
            assert watched == {"score.0", "entropy.0"}
            assert ours["entropy.0"] == pytest.approx(theirs["entropy.0"], rel=0.01)
            assert {name: value for name, value in ours.items() if name not in watched} == pytest.approx(
                {name: value for name, value in theirs.items() if name not in watched}, rel=1e-4
            )
            assert ("n 0.1" in ours) == (attn == "ssa")
        assert list(grid.frame.columns) == list(alone.frame.columns)
        assert grid.frame["value"].tolist() == pytest.approx(alone.frame["value"].tolist(), rel=1e-3, nan_ok=True)
        env = pair[0].env()
        assert (env["stacked"], env["steps_timed"]) == (3, 60)
        assert env["seconds"] > 0
        assert "stacked" not in pair[1].env()


def stopping_at(lab, step):
    """The same laboratory, asked to stop after ``step`` steps."""
    asked = []
    return dataclasses.replace(lab, stopping=lambda: asked.append(0) or len(asked) >= step)


@pytest.mark.slow
def test_a_stopped_stack_goes_on_stacked_with_the_same_bits(tiny, lab):
    spec, whole = tiny("linear", "ssa"), beside(lab, "whole")
    ensembles.train_together(runs(whole, spec), whole)
    for step in (7, 51):
        with pytest.raises(Stopped, match="the same command goes on"):
            ensembles.train_together(runs(lab, spec), stopping_at(lab, step))
    assert lab.said[-3:] == [f"seed {seed}: goes on from step 7 (checkpoint.pt)." for seed in SEEDS]
    ensembles.train_together(runs(lab, spec), lab)
    assert lab.said[-3:] == [f"seed {seed}: goes on from step 58 (checkpoint.pt)." for seed in SEEDS]
    for one, other in zip(runs(lab, spec), runs(whole, spec), strict=True):
        assert files(one) == files(other)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_stopped_stack_resumes_singly_and_back(tiny, lab):
    spec, single = tiny("linear", "ssa"), beside(lab, "single")
    with pytest.raises(Stopped):
        sweeping.load_or_train(lab.store.run(spec, 2), stopping_at(lab, 20))
    with pytest.raises(Stopped, match="step 30 of 60"):
        ensembles.train_together(runs(lab, spec), stopping_at(lab, 30))
    sweeping.load_or_train(lab.store.run(spec, 0), lab)
    assert lab.said[-1] == "goes on from step 30 (checkpoint.pt)."
    ensembles.train_together(runs(lab, spec), lab)
    assert [run.env().get("stacked") for run in runs(lab, spec)] == [None, 2, 2]
    assert [run.env()["steps_timed"] for run in runs(lab, spec)] == [30, 30, 30]  # all had met at 20
    for run, alone in zip(runs(lab, spec), runs(single, spec), strict=True):
        assert same(sweeping.trained(run, lab), sweeping.load_or_train(alone, single), 1e-4)


def poison(monkeypatch, seed, step):
    """Makes the prompts of one step of one seed such that its loss is not finite."""
    sample, address = Linear.sample, stream(seed, "train", step).initial_seed()

    def poisoned(self, rng, prompts, length, **shift):
        prompt = sample(self, rng, prompts, length, **shift)
        return (
            dataclasses.replace(prompt, targets=prompt.targets * math.nan) if rng.initial_seed() == address else prompt
        )

    monkeypatch.setattr(Linear, "sample", poisoned)


@pytest.mark.slow
def test_a_seed_that_fails_costs_the_others_nothing(tiny, lab, monkeypatch):
    spec, whole = tiny("linear", "ssa"), beside(lab, "whole")
    ensembles.train_together(runs(whole, spec), whole)
    with pytest.raises(Stopped):
        ensembles.train_together(runs(lab, spec), stopping_at(lab, 7))
    bad = lab.store.run(spec, 1)
    with monkeypatch.context() as patch:
        poison(patch, 1, 12)
        ensembles.train_together(runs(lab, spec), lab)
    assert bad.diverged == "the loss is nan at step 13; a lower train.rate, or train.clip=1, may help."
    assert [run.trained for run in runs(lab, spec)] == [True, False, True]
    bad.clear()
    sweeping.load_or_train(bad, lab)
    for one, other in zip(runs(lab, spec), runs(whole, spec), strict=True):
        assert same(sweeping.trained(one, lab), sweeping.trained(other, whole), 1e-4)


def test_nothing_is_kept_of_a_seed_after_its_bad_loss(tiny, monkeypatch):
    spec, task, kept = tiny("linear", "softmax", "train.steps=9"), wide("linear"), []
    monkeypatch.setattr("icl_lab.training.loop.CHECKPOINT_SECONDS", 0)
    poison(monkeypatch, 1, 5)
    stack = members(spec, task)
    for member in stack:
        member.keep = lambda progress, seed=member.seed: kept.append((seed, progress.step))
    lockstep.train(stack, task, spec.train)
    assert kept == [(seed, step) for step in range(1, 9) for seed in SEEDS if seed != 1 or step < 6]


@pytest.mark.slow
def test_if_all_fail_the_stack_ends(tiny, monkeypatch):
    spec, task = tiny(), wide("linear")
    monkeypatch.setattr(type(task), "loss", lambda self, outputs, prompt: outputs.mean() * math.inf)
    stack, ticks = members(spec, task), []
    lockstep.train(stack, task, spec.train, tick=lambda *told: ticks.append(told))
    assert ["at step 1, before any weight" in member.failed for member in stack] == [True] * 3
    assert ticks == []


@pytest.mark.slow
def test_stacks_take_the_missing_seeds_in_order(tiny, lab):
    spec, other, lone = tiny(), tiny("linear", "ssa"), tiny("linear", "ssmax")
    wanted = [lab.store.run(each, seed) for seed in (2, 1, 0) for each in (spec, other)] + [lab.store.run(lone, 0)]
    swapped = [run.swapped("log-n") for run in runs(lab, spec)]
    sweeping.sweep(spec, 1, lab)
    found = ensembles.groups([*wanted, *swapped])
    assert [[(run.spec.attn, run.seed) for run in group] for group in found] == [
        [("softmax", 0), ("softmax", 2)],
        [("ssa", 0), ("ssa", 1), ("ssa", 2)],
    ]


@pytest.mark.slow
def test_a_stack_waits_for_whoever_holds_one_of_its_runs(tiny, lab):
    spec, said = tiny(), []
    stack = dataclasses.replace(lab, say=said.append)
    held = runs(lab, spec)
    with held[1].locked(lab.said.append):
        thread = threading.Thread(target=ensembles.train_together, args=(held, stack))
        thread.start()
        deadline = time.monotonic() + 20
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        assert f"another process is working on {held[1].folder}" in said[0]
        with held[2].locked(said.append):  # taken in order: what comes after is still free
            assert len(said) == 1
        sweeping.trained(held[1], lab)
    thread.join(60)
    assert [run.trained for run in held] == [True] * 3
    assert [run.env().get("stacked") for run in held] == [2, None, 2]


@pytest.fixture
def sweep(run):
    """Runs a small ``sweep`` with more words."""
    return lambda *words: run("sweep", "--task", "linear", "--preset", "smoke", *SMALL, *words)


@pytest.mark.slow
def test_a_stacked_sweep_leaves_what_a_sweep_leaves(sweep, tmp_path, monkeypatch):
    words = ["--attn", "ssa", "--seeds", "2", "--stack"]
    code, out, err = sweep(*words, "--dry-run")
    assert code == 0
    assert "linear | ssa | smoke | seeds 0, 1 on cpu (1 threads): trained as one stack of 2 (dry run)" in err
    assert not (tmp_path / "results").exists()
    seen = sizes(monkeypatch)
    code, out, err = sweep(*words)
    assert code == 0, err
    assert seen == [(2, step) for step in range(60)]
    assert out.count("wrote: ") == 2
    assert err.count("trained already, to be tested") == 2
    there = [path.parent for path in (tmp_path / "results").rglob("grid.csv")]
    assert len(there) == 2
    for folder in there:
        assert (folder / "heat-map.png").exists()
        assert (folder / "learning-curve.png").exists()
        env = json.loads((folder / "env.json").read_text())
        assert env["stacked"] == 2
        assert " --attn ssa --seeds 2 --stack " in env["command"]
    code, out, err = sweep(*words)
    assert (code, len(seen)) == (0, 60)
    assert "nothing to stack" in err


@pytest.mark.slow
def test_a_seed_that_fails_is_told_at_the_end(sweep, monkeypatch):
    poison(monkeypatch, 0, 5)
    code, out, err = sweep("--attn", "softmax", "--seeds", "2", "--stack")
    assert code == 1
    assert out.count("wrote: ") == 2
    assert "diverged: linear | softmax | smoke | seed 0 (the loss is nan at step 6;" in err
    assert err.splitlines()[-1] == "icl-lab: 1 of 2 trainings diverged, see above; there is no model of them."


@pytest.mark.slow
def test_a_signal_stops_all_seeds_and_they_go_on(sweep, tmp_path, monkeypatch):
    numbers = {20: signal.SIGINT, 30: signal.SIGTERM}

    def interrupted(stack, optim, spec, seeds, step):
        if number := numbers.pop(step, None):
            signal.raise_signal(number)
        return advance(stack, optim, spec, seeds, step)

    monkeypatch.setattr(lockstep, "advance", interrupted)
    for expected, step in ((130, 21), (75, 31)):
        code, _, err = sweep("--attn", "softmax", "--seeds", "2", "--stack")
        assert code == expected
        assert f"stopped at step {step} of 60; the same command goes on from there." in err
        assert len(list((tmp_path / "results").rglob("checkpoint.pt"))) == 2
    code, _, err = sweep("--attn", "softmax", "--seeds", "2", "--stack")
    assert code == 0
    assert err.count("goes on from step 31") == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--attn", "softmax", "--jobs", "2"],
            "--stack trains seeds in one process; --jobs and --engine ray",
        ),
        (["--attn", "softmax", "--attn", "entmax:alpha=3"], "'entmax:alpha=3' cannot be stacked"),
        (["--attn", "entmax:alpha=3", "--dry-run"], "'entmax:alpha=3' cannot be stacked"),
        (["--attn", "softmax", "--set", "train.precision=bf16"], "a stack is trained eagerly in float32, got"),
        (["--attn", "softmax", "--set", "train.engine=compiled"], "train.engine=compiled, train.precision=float32"),
        (["--attn", "softmax", "--set", "train.scaling=mup"], "a stack has no rates for parts of a matrix"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_is_one_clear_line(sweep, tmp_path, monkeypatch, words, told):
    monkeypatch.setattr(Entmax, "stackable", False)
    code, out, err = sweep(*words, "--seeds", "2", "--stack")
    assert code == 2
    assert told in err.splitlines()[-1]
    assert not (tmp_path / "results").exists()


def test_the_bench_times_the_steps_of_the_same_seeds(monkeypatch):
    lite = bench_training.PRESETS["lite"]
    shape = msgspec.structs.replace(lite.model, layers=1, width=8, heads=2)
    short = msgspec.structs.replace(
        lite.train, batch=2, curriculum=msgspec.structs.replace(lite.train.curriculum, stop=11)
    )
    monkeypatch.setitem(bench_training.PRESETS, "lite", dataclasses.replace(lite, model=shape, train=short))
    monkeypatch.setattr(bench_training, "SEEDS", 2)
    seen, singles = sizes(monkeypatch), []
    monkeypatch.setattr(bench_training.ensemble, "advance", lockstep.advance)
    one = bench_training.advance
    monkeypatch.setattr(bench_training, "advance", lambda *told: singles.append(told[-2:]) or one(*told))
    rows = list(bench_training.stack(Bench(torch.device("cpu"), pairs=1)))
    assert [row.case for row in rows] == [f"2 seeds of {rule}, lite, stacked" for rule in bench_training.STACKED]
    assert seen == [(2, 0)] * 4  # once to warm up, once timed, for each normalizer
    assert singles == [(0, 0), (1, 0), (0, 1), (1, 1)] * 2
    monkeypatch.setattr(Bench, "alternate", lambda bench, *jobs: [[6.0, 8.0], [3.0, 2.0]])
    row = next(iter(bench_training.stack(Bench(torch.device("cpu"), pairs=2))))
    assert (row.ratio, row.seconds) == (3.0, 2.5)
    assert row.note == "1 steps a second over all seeds; 0.7 x the time of one seed"

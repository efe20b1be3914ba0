"""Engines: faster roads to the same training, held to the plain definition over a thousand steps."""

from statistics import fmean

import pytest
import torch

from icl_lab.base.errors import BadValue, LabError
from icl_lab.base.rng import stream
from icl_lab.normalizers.base import causal
from icl_lab.runs.estimate import training_seconds
from icl_lab.runs.spec import resolve
from icl_lab.training import engines
from icl_lab.training.curriculum import Staircase
from icl_lab.training.loop import Progress, advance, optimizer, prepare, train
from icl_lab.training.optimizers import Optimizer
from icl_lab.training.recipe import TrainSpec
from tests.cases import few
from tests.training.small import resumed, same, setup, trained

CPU = torch.device("cpu")
RULES = ["softmax", "ssa", "ssmax"]
# One length, so that one compilation will do; the same sizes everywhere, so that the next finds it done.
SMALL = "train.batch=8 train.rate=0.002 train.curriculum.start=6 train.curriculum.stop=6 model.width=16 model.heads=2"
# How far a curve of losses may be off, as a share. It is 3e-8 where all is well; a constant of an MLP that is 2 % off
# shows as 5e-6, because most of the loss is nobody's to learn.
DRIFT = 1e-6

# Inside torch's own compiler.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def recorder(monkeypatch):
    """Stands in for CUDA graphs: does the job as often as those do, and repeats it on the same memory."""

    def record(job):
        for _ in range(engines.WARM):
            job()
        result = torch.zeros(())
        return lambda: result.copy_(job()), result

    monkeypatch.setattr(engines, "cuda_recorder", lambda: record)
    monkeypatch.setattr(engines, "check", lambda name, device: None)


def small(attn="softmax", *settings):
    return resolve("linear", attn, "smoke", [*SMALL.split(), *settings])


def losses(rows):
    return [row["loss"] for row in rows]


def by_formula(z, n, b):
    return n * z.sign() * torch.log1p(b * z.abs())


def furthest(losses, others):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others, strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("attn", RULES)
def test_a_thousand_steps_follow_the_plain_definition(attn):
    """Weights times values, torch's own Adam, answers of all tokens, against all our shorter roads."""
    spec = small(attn, "train.steps=1000")
    fast = trained(spec)[1]
    model, task = setup(spec)
    for rule in model.rules:
        rule.attend = lambda q, k, v, visible, rule=rule: rule.weights(q, k, visible.clone()) @ v
        if attn == "ssa":  # by its formula, and with torch's own slopes
            rule.warp = lambda z, n, rule=rule: by_formula(z, *(x.view(-1, 1, 1) for x in (rule.n, rule.b)))
    adam = torch.optim.Adam(model.parameters(), foreach=True)
    plain = []
    for step in range(1000):
        prompt = task.sample(stream(0, "train", step), spec.train.batch, spec.train.length_at(step))
        adam.param_groups[0]["lr"] = spec.train.rate_at(step)
        adam.zero_grad()
        loss = task.loss(model(prompt.tokens), prompt)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), spec.train.clip)
        adam.step()
        plain.append(loss.item())
    rows = [fmean(plain[at : at + 50]) for at in range(0, 1000, 50)]
    assert rows[-1] < 0.7 * rows[0], "nothing was learned, so nothing could drift"
    assert furthest(losses(fast), rows) < DRIFT
    learned = model.learned()  # by the normalizer itself, on which little of the loss hangs
    assert {name: fast[-1][name] for name in learned} == pytest.approx(learned, rel=1e-3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA on this machine")
def test_graphs_are_refused_without_cuda():
    spec = small("softmax", "train.engine=graph")
    model, task = setup(spec)
    with pytest.raises(BadValue, match=r"train.engine=graph records CUDA graphs, and the device is cpu"):
        train(model, task, spec.train, 0, Progress(), keep=lambda progress: None)
    with pytest.raises(BadValue, match="CUDA graphs"):
        training_seconds(spec, CPU)
    with pytest.raises(BadValue, match=r"train\.engine=compiled is read in older runs and trains no more; take eager"):
        training_seconds(small("softmax", "train.engine=compiled"), CPU)
    with pytest.raises(LabError, match="engine"):
        small("softmax", "train.engine=fast")


# A rate that single precision holds exactly: where it is a tensor it is one of single precision.
EXACT = ["train.schedule=constant", "train.warmup=0", f"train.rate={2**-9}", "train.steps=24"]
GRAPHS = {
    "lengths": ["train.curriculum.start=4", "train.curriculum.stop=10", "train.curriculum.run=0.1"],
    "mixture": ["train.curriculum.start=4", "train.curriculum.mixed=yes", "train.curriculum.rise=2"],
    "places": ["model.positions=rotary:random=200"],
    "no bound": ["train.clip=0"],
    "growing batches": ["train.doublings=2", "train.ema=0.9"],
    "decay": ["train.optimizer=adamw", "train.decay=0.1"],
    "a switch": ["train.switch_step=8", "train.switch_to=ssmax:s=swap"],
    "rates of parts": ["train.scaling=mup", "train.read_out_rate=4", "model.width=16", "model.heads=4"],
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", GRAPHS.values(), ids=GRAPHS)
def test_recorded_steps_are_the_eager_ones_bit_for_bit(settings, recorder):
    """What is fixed in place: prompts and rate come in, parameters and moments stay, the loss is not overwritten."""
    spec, plain = (small("ssa", *EXACT, *settings, *more) for more in (["train.engine=graph"], []))
    (graph, history), (eager, wanted) = trained(spec), trained(plain)
    assert same(graph, eager)
    assert history == wanted
    broken, again = resumed(spec, 11)
    assert same(broken, graph)
    assert again == history


@pytest.mark.slow
def test_recorded_steps_of_muon_are_eager_ones_up_to_rounding(recorder):
    """A rate that changes at every step, and momentum that the steps before a recording must not leave behind."""
    settings = ["train.optimizer=muon", "train.muon_rate=0.01", "train.decay=0.1", "train.warmup=3", "train.steps=12"]
    spec, plain = (small("ssa", *settings, *GRAPHS["lengths"], *more) for more in (["train.engine=graph"], []))
    (graph, history), (eager, wanted) = trained(spec), trained(plain)
    assert history[-1]["loss"] == pytest.approx(wanted[-1]["loss"], rel=1e-4)
    for one, other in zip(graph.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
    broken, again = resumed(spec, 7)
    assert same(broken, graph)
    assert again == history


def test_a_length_is_recorded_once_and_what_it_reads_is_kept(recorder):
    spec = small("ssa", *EXACT, "train.engine=graph")
    model, task = setup(spec)
    engine = prepare(model, task, optimizer(model, spec.train), spec.train)
    for length in (4, 6, 4):
        prompt = task.sample(stream(0, "any", length), 8, length)
        engine.step(prompt, torch.arange(2 * length), 0.001)
    assert sorted(engine.recordings) == [(8, 8), (8, 12)]
    assert any(kept is causal(8) for kept in engine.recordings[8, 8].held)


def test_a_rule_that_cannot_be_recorded_is_named(recorder, monkeypatch):
    def record(job):
        raise RuntimeError("operation not permitted when stream is capturing\nand much more")

    monkeypatch.setattr(engines, "cuda_recorder", lambda: record)
    spec = small("entmax", "train.engine=graph")
    model, task = setup(spec)
    with pytest.raises(BadValue, match=r"entmax, positions learned: operation not permitted .* capturing\. train"):
        train(model, task, spec.train, 0, Progress(), keep=lambda progress: None)


@pytest.mark.slow
@pytest.mark.parametrize("attn", few(1, ["ssa", "softmax"]))
def test_half_precision_learns_the_same(attn):
    """Losses within 2 %: products have 8 bits, and errors of 1 in 256 average out over a batch, though not wholly."""
    specs = (small(attn, "train.steps=100", f"train.precision={kind}") for kind in ("bf16", "float32"))
    half, single = (trained(spec)[1] for spec in specs)
    assert 0 < furthest(losses(half), losses(single)) < 0.02


def test_half_precision_is_that_of_the_blocks_and_no_more():
    """Numbers are read in, weighed and summed by attention, and read out in single precision."""
    spec = small("ssa", "train.precision=bf16", "model.positions=none")
    model, task = setup(spec)
    seen = {}
    block = model.blocks[0]
    parts = {"in": model.read_in, "qkv": block.attention.qkv, "mlp": block.mlp, "out": model.read_out}
    for name, part in parts.items():
        part.register_forward_hook(lambda part, args, out, name=name: seen.update({name: out.dtype}))
    warp, attend = block.attention.rule.warp, block.attention.rule.attend
    block.attention.rule.warp = lambda z, n: seen.update({"scores": z.dtype}) or warp(z, n)
    block.attention.rule.attend = lambda q, *rest: seen.update({"queries": q.dtype}) or attend(q, *rest)
    engine = prepare(model, task, optimizer(model, spec.train), spec.train)
    loss = engine.step(task.sample(stream(0), 4, 5), torch.arange(10), 0.001)
    half, whole = torch.bfloat16, torch.float32
    assert seen == {"in": whole, "qkv": half, "queries": whole, "scores": whole, "mlp": half, "out": whole}
    assert loss.dtype == whole
    assert all(p.grad.dtype == whole for p in model.parameters() if p.grad is not None)


def test_engines_enter_the_hash_and_the_default_does_not():
    plain = small()
    assert (plain.train.engine, plain.train.precision) == ("eager", "float32")
    assert small("softmax", "train.engine=eager", "train.precision=float32").hash == plain.hash
    others = [["train.engine=graph"], ["train.precision=bf16"]]
    assert len({plain.hash, *(small("softmax", *other).hash for other in others)}) == 3
    assert TrainSpec(curriculum=Staircase()) == TrainSpec(engine="eager")


def kept(number):
    """True where a product keeps this number rather than taking it as 0."""
    return torch.tensor(number).mul(1).item() != 0


def test_steps_flush_subnormals_and_nothing_else_does(monkeypatch):
    """Forward, backward and in the optimizer; afterwards a user's own mode is back."""
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush them")
    seen = []
    monkeypatch.setattr(Optimizer, "step", lambda self: seen.append(kept(1e-40)))
    spec = small().train
    model, task = setup(small())
    model.norm.register_forward_hook(lambda *_: seen.append(kept(1e-40)))
    model.norm.register_full_backward_hook(lambda *_: seen.append(kept(1e-40)))
    advance(prepare(model, task, optimizer(model, spec), spec), spec, 0, 0)
    assert seen == [False] * 3
    assert kept(1e-40)
    with engines.subnormals_flushed():
        with engines.subnormals_flushed():
            pass
        assert not kept(1e-40)
        assert kept(1e-30)
    assert kept(1e-40)

"""Scaling with the width: factors by hand, steps as large as they say, activations that move alike at every width."""

import math
import runpy
from pathlib import Path

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.spec import resolve
from icl_lab.training import scaling
from icl_lab.training.loop import Progress, optimizer, train
from icl_lab.training.scaling import ScaledRows

ROOT = Path(__file__).parents[2]
STILL = ["train.warmup=0", "train.schedule=constant", "train.clip=0", "train.steps=1"]
WIDE = ["model.width=256", "model.heads=8", "model.layers=4", "train.scaling=mup"]  # heads of 32
D, Q = 256, math.sqrt(16 / 32)


def untrained(*settings, attn="softmax"):
    spec = resolve("linear", attn, "nano", settings)
    return spec, spec.untrained(tasks.build(spec.task), 0)


def test_defaults_change_nothing():
    spec, model = untrained()
    assert scaling.parts(model, spec.train) == {}
    drawn = GPT2(spec.model, spec.reading(tasks.build("linear")), "softmax", stream(0, "init"))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), drawn.parameters(), strict=True))
    named = resolve("linear", "softmax", "lite", ["train.scaling=fixed", "train.read_out_rate=1"])
    assert named.hash == resolve("linear", "softmax", "lite").hash == "aaa54924"
    assert resolve("linear", "softmax", "lite", ["train.scaling=mup"]).hash != "aaa54924"
    assert len(optimizer(model, spec.train).adam.param_groups) == 1
    assert optimizer(model, spec.train).views == []


def test_factors_of_muon_by_hand():
    """Steps of 0.2 sqrt(64) sqrt(out / in) rate: relative to 0.2 sqrt(max(out, in)) rate."""
    spec, model = untrained(*WIDE)
    found = scaling.parts(model, spec.train)
    start = 1 / math.sqrt(D) / 0.02
    third, step = [slice(k * D, (k + 1) * D) for k in range(3)], math.sqrt(64 / D)

    def whole(start, rate):
        return [ScaledRows(slice(None), pytest.approx(start), pytest.approx(rate))]

    assert found["blocks.1.attention.qkv.weight"] == [
        ScaledRows(third[0], pytest.approx(start * Q), pytest.approx(step * Q)),
        *(ScaledRows(rows, pytest.approx(start), pytest.approx(step)) for rows in third[1:]),
    ]
    assert found["blocks.1.attention.qkv.bias"][0] == ScaledRows(third[0], 1, pytest.approx(Q))
    assert found["blocks.1.attention.project.weight"] == whole(start, step)
    # 4 d outputs: the norm of the step is twice that of a square; d outputs of 4 d inputs: half of it.
    assert found["blocks.1.mlp.widen.weight"] == whole(start, math.sqrt(64 / (4 * D)) * 2)
    assert found["blocks.1.mlp.project.weight"] == whole(start / 2, math.sqrt(64 / (4 * D)) / 2)
    assert found["read_out.weight"] == [ScaledRows(slice(None), pytest.approx(math.sqrt(3 / D)), 64 / D)]
    assert "read_in.weight" not in found
    assert not any("positions" in name or "norm" in name for name in found)


def test_the_base_keeps_its_rates_but_for_the_last_of_the_mlp():
    spec, model = untrained("train.scaling=mup")
    rates = {name: {part.rate for part in of} for name, of in scaling.parts(model, spec.train).items()}
    others = {name.partition(".project")[0] for name, of in rates.items() if of != {1.0}}
    assert others == {"blocks.0.mlp", "blocks.1.mlp"}
    assert rates["blocks.0.mlp.project.weight"] == {0.25}
    assert rates["read_out.weight"] == rates["blocks.0.mlp.widen.weight"] == {1.0}


def test_depth_divides_what_blocks_add():
    def parts(kind, *settings):
        spec, model = untrained(*WIDE, *settings, f"train.scaling={kind}")
        return scaling.parts(model, spec.train)

    plain, divided = parts("mup"), parts("mup:depth=yes")
    for name, of in plain.items():
        is_branch = ".project." in name
        for part, own in zip(of, divided[name], strict=True):
            assert own.rate == pytest.approx(part.rate * (0.5 if is_branch else 1))  # 2 of 4 layers
            weight = is_branch and name.endswith("weight")
            assert own.start == pytest.approx(part.start * (math.sqrt(2) * 0.5 if weight else 1))
    assert parts("mup", "model.layers=2") == parts("mup:depth=yes", "model.layers=2")


def test_starts_are_those_of_the_width():
    spec, model = untrained(*WIDE)
    expected = {"widen.weight": 1 / 16, "mlp.project.weight": 1 / 32 / math.sqrt(8), "read_out.weight": 1 / D}
    for end, deviation in expected.items():
        named = [p for name, p in model.named_parameters() if name.endswith(end)]
        assert named
        assert all(p.std().item() == pytest.approx(deviation, rel=0.1) for p in named), end
    q, k, v = model.blocks[0].attention.qkv.weight.chunk(3)
    assert (q.std() / k.std()).item() == pytest.approx(Q, rel=0.05)
    assert v.std().item() == pytest.approx(1 / 16, rel=0.05)
    _, larger = untrained(*WIDE, "model.read_out_start=4")
    assert torch.equal(larger.read_out.weight, 4 * model.read_out.weight)


def moved(spec, model):
    """What one step changes, by name."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    train(model, tasks.build(spec.task), spec.train, 0, Progress(), keep=lambda progress: None)
    return {name: (p - before[name]).detach() for name, p in model.named_parameters()}


def test_a_step_of_muon_is_as_large_as_its_part_says():
    """Largest singular values are 0.7 to 1.2 times 1.6 rate sqrt(out / in), of q, k and v each."""
    spec, model = untrained("model.width=128", "model.heads=4", *STILL, "train.scaling=mup", "train.muon_rate=0.01")
    found = moved(spec, model)
    q, k, v = found["blocks.0.attention.qkv.weight"].chunk(3)
    steps = {"q": (q, 1 / math.sqrt(2)), "k": (k, 1), "v": (v, 1)}
    steps |= {"widen": (found["blocks.0.mlp.widen.weight"], 2), "project": (found["blocks.0.mlp.project.weight"], 0.5)}
    for name, (step, factor) in steps.items():
        assert 0.6 < torch.linalg.matrix_norm(step, 2).item() / (1.6 * 0.01 * factor) < 1.3, name


@pytest.mark.parametrize("recipe", ["adam", "adamw", "muon"])
def test_a_step_of_adam_is_the_rate_times_its_factor(recipe):
    settings = ["model.width=128", "model.heads=4", *STILL, f"train.optimizer={recipe}", "train.rate=0.001"]
    spec, model = untrained(*settings, "train.scaling=mup", "train.read_out_rate=3")
    found = moved(spec, model)
    expected = {"read_out.weight": 0.0015, "read_out.bias": 0.003, "read_in.weight": 0.001, "norm.weight": 0.001}
    if recipe != "muon":
        expected |= {"blocks.0.attention.project.weight": 0.0005, "blocks.0.mlp.project.weight": 0.0005}
        q = found["blocks.0.attention.qkv.weight"].chunk(3)[0]
        assert q.abs().max().item() == pytest.approx(0.0005 / math.sqrt(2), rel=0.02)
    for name, rate in expected.items():
        assert found[name].abs().max().item() == pytest.approx(rate, rel=0.02), name
    plain = moved(*untrained(*settings))
    assert plain["read_out.weight"].abs().max().item() == pytest.approx(0.001, rel=0.02)


def test_normed_queries_take_the_score_factor_in_their_gain():
    spec, model = untrained(*WIDE, "model.qk_norm=yes")
    found = scaling.parts(model, spec.train)
    assert found["blocks.0.attention.norm_q.weight"] == [ScaledRows(slice(None), pytest.approx(Q), pytest.approx(Q))]
    assert model.blocks[0].attention.norm_q.weight.tolist() == pytest.approx([Q] * 32)
    assert len({part.start for part in found["blocks.0.attention.qkv.weight"]}) == 1


@pytest.mark.parametrize("attn", ["forget+gated", "forget+gated:per=channel"])
def test_gates_of_the_stream_get_start_and_rate_of_the_width(attn):
    spec, model = untrained(*WIDE, attn=attn)
    rule = {name: of for name, of in scaling.parts(model, spec.train).items() if ".rule." in name}
    assert {name.rpartition(".")[2] for name in rule} == {"w"}
    assert len(rule) == 8  # two gates in each of four layers
    assert all(of == [ScaledRows(start=math.sqrt(64 / D), rate=64 / D)] for of in rule.values())
    # Logits of a gate, of inputs of variance 1: 0.02 sqrt(64) = 0.16, as at the base.
    starts = [p.std().item() * math.sqrt(D) for name, p in model.named_parameters() if name in rule]
    assert starts == pytest.approx([0.16] * 8, rel=0.1)


def test_normalizers_say_what_their_matrices_read():
    """Mixtures of 8 heads (4 at the base), gates that read queries of 32 channels (16), hidden layers as wide as d."""
    rules = {}
    for attn in ("softmax+talking-heads", "differential", f"qassmax:hidden={D}", "ssmax-free"):
        spec, model = untrained(*WIDE, attn=attn)
        found = scaling.parts(model, spec.train).items()
        rules[attn] = {name.rpartition(".")[2]: of for name, of in found if ".rule" in name}
    s = pytest.approx(Q)
    assert rules == {
        "softmax+talking-heads": {"m": [ScaledRows(rate=0.5)]},
        "differential": {name: [ScaledRows(start=s, rate=s)] for name in ("a1", "b1", "a2", "b2")},
        f"qassmax:hidden={D}": {"gate_in": [ScaledRows(start=pytest.approx(1 / Q), rate=s)]},
        "ssmax-free": {},
    }


def test_a_normalizer_that_does_not_say_what_it_reads_is_refused(monkeypatch):
    spec, model = untrained(*WIDE, attn="forget")
    monkeypatch.setattr(type(model.blocks[0].attention.rule), "maps", ("w",))
    with pytest.raises(BadValue, match="'forget' does not say what w read"):
        scaling.parts(model, spec.train)


def test_position_codes_keep_start_and_rate_of_a_hidden_layer():
    """Fire's has one input and 32 units at every width."""
    spec, model = untrained(*WIDE, "model.positions=fire")
    assert not [name for name in scaling.parts(model, spec.train) if name.startswith("positions")]


@pytest.mark.parametrize("kind", ["mup", "mup:depth=yes"])
def test_decay_takes_the_same_share_at_every_width(kind):
    """A step of AdamW with decay 0.5 ends 0.01 * 0.5 theta nearer to 0, queries and branches too (as in mup)."""
    settings = ["model.width=128", "model.heads=4", "model.layers=4", *STILL, "train.optimizer=adamw"]
    settings += ["train.rate=0.01", f"train.scaling={kind}"]
    plain, shrunk = (moved(*untrained(*settings, f"train.decay={decay}")) for decay in (0, 0.5))
    _, model = untrained(*settings)
    for name in model.matrices():
        start = model.get_parameter(name).detach()
        torch.testing.assert_close(shrunk[name] - plain[name], -0.005 * start, rtol=0, atol=2e-7)


@pytest.mark.exhaustive
def test_mixtures_of_heads_that_grow_in_number_move_alike():
    """The coordinate check with heads of 16 numbers: else a mixture of 16 moves 1.6 times as far as of 4."""
    changes = runpy.run_path(str(ROOT / "experiments" / "coordinate_check.py"))["changes"]
    found = changes("mup", widths=(64, 256), seeds=2, attn="softmax+talking-heads", head=16)
    means = found.groupby(["activation", "width"])["change"].mean().unstack()
    assert means.loc["layers.0.attention", 256] / means.loc["layers.0.attention", 64] == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["model.width=4", "model.heads=1"], "needs a model.width of at least 8, got 4"),
        (["model.width=96"], "takes heads whose size divides 16 or is a multiple of it, got 96 / 4 = 24"),
        (["train.scaling=wide"], r"train\.scaling"),
        *((["train.read_out_rate=" + rate], r"train\.read_out_rate") for rate in ("0", "inf", "1e9")),
    ],
)
def test_shapes_and_factors_that_do_not_fit_are_refused(settings, words):
    mine = ["train.scaling=mup"] if "model" in settings[0] else []
    resolve("linear", "softmax", "nano", settings if mine else [])
    with pytest.raises(BadValue, match=words):
        resolve("linear", "softmax", "nano", [*settings, *mine])


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_activations_move_alike_at_every_width_under_mup_alone():
    """The coordinate check of docs/presets.md: within 1.5 times over widths 32 to 512, growing under fixed."""
    changes = runpy.run_path(str(ROOT / "experiments" / "coordinate_check.py"))["changes"]
    for kind, seeds in (("mup", 3), ("fixed", 1)):
        found = changes(kind, widths=(32, 128, 512), seeds=seeds)
        means = found.groupby(["activation", "width"])["change"].mean().unstack()
        if kind == "mup":
            apart, scores = means.max(axis=1) / means.min(axis=1), means.index.str.endswith("scores")
            assert apart[~scores].max() < 1.5
            assert apart[scores].max() < 2  # at width 32 heads have 8 numbers, and few seeds do not average them
        else:
            assert (means[512] / means[128])[["layers.0.mlp", "layers.1.mlp", "layers.1.after"]].min() > 1.5
            assert (means[512] / means[32])[["layers.0.scores", "layers.1.scores"]].min() > 5

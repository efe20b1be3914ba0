"""Equivariance in the labels: models with one part that fails, patches against plain torch, claims and refusals."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.equivariance import PARTS, Equivariance, failures, multiplied, parts_of, ratio
from icl_lab.base.errors import Undefined
from icl_lab.base.grid import Grid
from icl_lab.base.rescale import PairRescaling
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.tasks.base import Prompt

READING = TokenSpec(width=1, outputs=1, roles=2, train_tokens=12)
AT = [6, 8, 10]  # inputs after three examples or more


def build(attn="softmax", reading=READING, **spec):
    model = GPT2(ModelSpec(**{"layers": 1, "heads": 1, "width": 4, **spec}), reading, attn, stream(0, "init"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and ".rule." not in name:
                p.mul_(20)  # far from linear
            elif name.endswith("bias"):
                p.normal_(0, 0.5, generator=stream(0, name))
    return model.eval()


def prompts(count=16, x=1.0):
    numbers = torch.randn(count, 12, 1, generator=stream(0, "numbers"))
    numbers[:, ::2] *= x
    return Prompt(numbers, numbers[..., 0], torch.arange(12).expand(count, -1) % 2 == 0)


@torch.no_grad()
def failure(model, prompt, scale):
    plain, moved = (model(each.tokens)[:, AT, 0] for each in (prompt, multiplied(prompt, scale)))
    return (moved - scale * plain).double().square().sum(1)


def shares(model, prompt, scale=3.0):
    whole = failure(model, prompt, scale).sum()
    return {metric: 1 - float(left.sum() / whole) for metric, left in failures(model, prompt, scale, AT).items()}


def by_hand(**spec):
    """Inputs are 0, numbers stand in channel 0, and heads write the mean of all numbers so far, the answer, into 2."""
    model = build(**{"norm": False, "mlp": False, "positions": "none", **spec})
    block, attention = model.blocks[0], model.blocks[0].attention
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.fill_(1.0 if "norm" in name.removeprefix("blocks.0.before_") and name.endswith("weight") else 0.0)
        for kept in (block.before_attention, block.before_mlp):
            if isinstance(kept, torch.nn.LayerNorm):
                kept.weight.fill_(1.0)
        model.read_in.weight[0] = model.read_out.weight[0, 2] = 1
        attention.qkv.weight[8 + 2, 0] = attention.project.weight[2, 2] = 1
    return model


FAILS = {  # a number beside the means, or another model, and the parts each of which, put right alone, mends it
    "a number that is read in": ({}, {"read_in.bias": [(3, 1)], "read_out.weight": [((0, 3), 1)]}, {"read-in"}),
    # Of a number nothing but its sign is left; values s times do what norms that keep the size do.
    "norms": ({"norm": True, "final_norm": "none"}, {}, {"norms", "values"}),
    "a key's score of y / 2": (
        {},
        {"blocks.0.attention.qkv.bias": [(0, 1)], "blocks.0.attention.qkv.weight": [((4, 0), 1)]},
        {"attention-weights"},
    ),
    "values": ({}, {"blocks.0.attention.qkv.bias": [(8 + 2, 0.5)]}, {"values"}),
    "a projection": ({}, {"blocks.0.attention.project.bias": [(2, 0.5)]}, {"values"}),
    "an MLP that adds gelu": (
        {"mlp": True},
        {"blocks.0.mlp.widen.weight": [((0, 2), 1)], "blocks.0.mlp.project.weight": [((2, 0), 1)]},
        {"mlp"},
    ),
    "a final norm": ({"final_norm": "layer"}, {}, {"read-out"}),
    "a read-out": ({}, {"read_out.bias": [(0, 0.5)]}, {"read-out"}),
}


@torch.no_grad()
def failing(name):
    spec, numbers, _ = FAILS[name]
    model = by_hand(**spec)
    for path, places in numbers.items():
        for place, value in places:
            model.get_parameter(path)[place] = value
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", FAILS)
def test_the_part_that_fails_has_the_whole_share(name):
    model, prompt, mends = failing(name), prompts(x=0.0), FAILS[name][2]
    found, parts = shares(model, prompt), parts_of(model)
    assert failure(model, prompt, 3.0).mean() > 0.01
    assert {part: found[part] for part in parts} == pytest.approx(
        {part: float(part in mends) for part in parts}, abs=1e-4
    )
    needed = mends if len(mends) == 1 else set()  # where either of two mends, neither is needed
    assert {part: found[f"all-but-{part}"] for part in parts} == pytest.approx(
        {part: float(part not in needed) for part in parts}, abs=1e-4
    )


@torch.no_grad()
def test_means_with_fixed_weights_are_equivariant():
    model, prompt = by_hand(), prompts(x=0.0)
    assert failure(model, prompt, 100.0).max() < 1e-6 * failure(failing("values"), prompt, 100.0).min()
    assert model(prompt.tokens)[0, 6, 0] == pytest.approx(prompt.tokens[0, :7, 0].mean().item(), rel=1e-6)


def plain(model, tokens, calm=None, s=1.0, right=()):
    """The pass of a model of one layer in plain torch; parts that are ``right`` take what they need from ``calm``."""
    block, attention, seen = model.blocks[0], model.blocks[0].attention, {}

    def see(part, name, x, times):
        seen[name] = x
        return times * calm[name] if part in right else x

    def norm(part, module, x, name):
        centred = x - x.mean(-1, keepdim=True)
        size = see(part, name, (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt(), 1)
        return centred / size * module.weight + (s if part in right else 1) * module.bias

    def bias(part, module):
        return (s if part in right else 1) * module.bias

    t = tokens.shape[1]
    x = see("read-in", "x", tokens @ model.read_in.weight.T + model.read_in.bias + model.positions.table[:t], s)
    q, k, v = (
        part.unflatten(2, (2, -1)).transpose(1, 2)
        for part in F.linear(norm("norms", block.before_attention, x, "1"), attention.qkv.weight, attention.qkv.bias)
        .chunk(3, 2)
    )  # fmt: skip
    hidden = torch.ones(t, t).triu(1).bool()
    scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(hidden, -math.inf)
    o = see("attention-weights", "w", scores.softmax(3), 1) @ see("values", "v", v, s)
    x = x + o.transpose(1, 2).flatten(2) @ attention.project.weight.T + bias("values", attention.project)
    wide = F.gelu(block.mlp.widen(norm("norms", block.before_mlp, x, "2")), approximate="tanh")
    x = x + see("mlp", "mlp", block.mlp.project(wide), s)
    read = norm("read-out", model.norm, x, "3") @ model.read_out.weight.T
    return read + bias("read-out", model.read_out), seen


@torch.no_grad()
def test_patches_are_those_of_plain_torch():
    model, prompt, scale = build(heads=2, width=8), prompts(), 3.0
    answers, calm = plain(model, prompt.tokens)
    torch.testing.assert_close(answers, model(prompt.tokens))
    found = failures(model, prompt, scale, AT)
    sets = {**{part: {part} for part in PARTS}, **{f"all-but-{part}": {*PARTS} - {part} for part in PARTS}}
    assert found.keys() == {*sets, "all"}
    for metric, right in sets.items():
        moved, _ = plain(model, multiplied(prompt, scale).tokens, calm, scale, right)
        wanted = (moved - scale * answers)[:, AT, 0].double().square().sum(1)
        torch.testing.assert_close(found[metric], wanted, rtol=1e-3, atol=1e-5)


SPECS = (
    {"layers": 2, "heads": 2, "width": 8},
    {"norm": False},
    {"final_norm": "none"},
    {"final_norm": "rms"},
    {"norm_in": True},
    {"block": "llama", "qk_norm": True, "positions": "rotary"},
    {"mlp": False},
    {"attention": False},
    {"attn": "ssa", "positions": "alibi"},
    {"read_in": "scaled", "reading": TokenSpec(1, 1, 2, 12, rescaling=PairRescaling("labels"))},
)


@torch.no_grad()
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_with_all_parts_right_answers_grow_with_the_labels(spec):
    model, prompt = build(**spec), prompts()
    left, whole = failures(model, prompt, 10.0, AT), failure(model, prompt, 10.0)
    assert whole.mean() > 1e-3
    assert left["all"].mean() < 1e-6 * whole.mean()
    assert all(each.mean() < 1e-6 for each in failures(model, prompt, 1.0, AT).values())
    assert torch.equal(model(prompt.tokens), build(**spec)(prompt.tokens))  # hooks and rescaling are as they were


@torch.no_grad()
@pytest.mark.parametrize("attn", ["differential", "softmax+gated"])
def test_norms_and_gates_within_the_attention_are_no_part(attn):
    model, prompt = build(attn, heads=2, width=8), prompts()
    left, whole = failures(model, prompt, 10.0, AT), failure(model, prompt, 10.0)
    assert 1e-4 * whole.mean() < left["all"].mean() < 0.5 * whole.mean()


@torch.no_grad()
def test_without_a_part_there_is_no_share_of_it():
    assert {*PARTS} - {*parts_of(build(mlp=False, norm=False, attention=False))} == {
        "norms", "attention-weights", "values", "mlp",
    }  # fmt: skip


@torch.no_grad()
def test_rescaled_prompts_fail_only_below_a_size_of_one():
    """Labels of root mean square 1 or more are divided by it: what is read, and the failure, is that of none."""
    scaled = build(read_in="scaled", reading=TokenSpec(1, 1, 2, 12, rescaling=PairRescaling("labels")))
    prompt = prompts()
    large = prompt.tokens[:, 1:6:2, 0].square().mean(1).sqrt() >= 1
    left = failure(scaled, prompt, 10.0)
    assert set(large.tolist()) == {True, False}
    assert left[large].max() < 1e-6 * left[~large].mean()
    for metric, each in failures(scaled, prompt, 10.0, AT).items():
        assert each[large].max() < 1e-6 * left[~large].mean(), metric  # nothing is left to be put right


def test_ratio_of_means_and_its_standard_error():
    top, bottom = torch.tensor([1.0, 2.0, 6.0]).double(), torch.tensor([1.0, 1.0, 4.0]).double()
    assert ratio(top, bottom).tolist() == pytest.approx([1.5 - 0.25, 1.5 + 0.25, 1.5])  # 3 / 2, (top - 1.5 bottom) / 2
    many = torch.randn(2, 4000, 256, generator=stream(0, "ratio")).double()
    top, bottom = 2 + 0.5 * many[0] + 0.3 * many[1], 3 + many[1]
    told = torch.stack([ratio(a, b).std() / 16 for a, b in zip(top[:50], bottom[:50], strict=True)]).mean()
    assert told == pytest.approx((top.mean(1) / bottom.mean(1)).std().item(), rel=0.05)


def test_references_are_equivariant_but_for_the_clip(tiny, untrained):
    trained = untrained(tiny("linear", "softmax"))
    rows = Equivariance(scales=(1.0, 10.0), prompts=64).measure(trained)["equivariance"]
    found = {(row["attn"], row["metric"], row["scale"]): row["value"] for row in rows}
    assert found["reference:zero", "failure", 10] == 0
    assert found["reference:zero", "error", 10] == found["reference:zero", "error", 1] == pytest.approx(1)
    assert max(found[f"reference:{name}", "failure", 10] for name in ("least-squares", "bayes", "3-nn")) < 1e-9
    assert found["reference:3-nn", "error", 10] == pytest.approx(found["reference:3-nn", "error", 1], rel=1e-5)
    assert found["reference:clip", "failure", 10] > 0.3
    assert ("softmax", "failure", 1) not in found
    far = multiplied(trained.prompts(64), 10.0)
    with torch.no_grad():
        answers = trained.model(far.tokens)
    errors = trained.task.errors(answers, far)[:, 3:].mean() / far.targets[:, ::2][:, 3:].square().mean()
    assert found["softmax", "error", 10] == pytest.approx(errors.item(), rel=1e-5)
    _, bound = trained.model.answer_bound()
    assert 0 < found["softmax", "floor", 10] < found["softmax", "error", 10]
    assert bound.isfinite().all()


def test_an_equivariant_model_has_no_shares(tiny, untrained):
    model = by_hand()
    torch.nn.init.zeros_(model.read_out.weight)  # it answers 0
    trained = replace(untrained(tiny("linear", "softmax")), load=lambda: model)
    analysis = Equivariance(scales=(10.0,), prompts=32)
    rows = analysis.measure(trained)
    found = {row["metric"]: row["value"] for row in rows["equivariance"] if row["attn"] == "softmax"}
    assert (found["failure"], found["error"]) == (0, pytest.approx(1))
    assert all(math.isnan(found[part]) for part in (*parts_of(model), "all"))
    whole = analysis.collect([(trained, rows)])
    assert "| `softmax` | values | — | — |" in analysis.table(whole)
    assert analysis.finding(whole).endswith("is 0 with softmax (no part alone removes any).")
    analysis.figures(whole, "a title")


@pytest.fixture
def kept(tmp_path):
    """A folder of numbers: shares of 0.2 and 0.4, failures of 2 and 8; the label calm has no failure to share out."""
    who = {"task": "linear", "preset": "nano", "spec": "0", "count": 9}
    rows = [
        {**who, "attn": "softmax", "seed": seed, "scale": scale, "metric": metric, "value": value, "stderr": 0.1}
        for seed in (0, 1)
        for metric, values in {"failure": (2.0, 8.0), "values": (0.2, 0.4)}.items()
        for scale, value in zip((10.0, 100.0), values, strict=True)
    ]
    rows += [
        {**who, "attn": attn, "seed": 0, "scale": 10.0, "metric": metric, "value": value, "stderr": 0.1}
        for attn, metric, value in (("calm", "values", math.nan), ("reference:zero", "failure", 0.0))
    ]
    (tmp_path / "equivariance.csv").write_text(Grid.of(rows, ["scale"]).csv())
    return tmp_path


def test_claims_are_shares_or_logarithms_of_errors(kept):
    analysis = Equivariance()
    found, both = analysis.read(kept), {"scale": [10.0, 100.0]}
    assert analysis.value(found, "softmax", both, "values", 1) == pytest.approx(0.3)
    assert analysis.value(found, "softmax", both, "", 1) == pytest.approx(math.log(4))
    assert analysis.value(found, "reference:0.25", both, "values", 1) == 0.25
    assert analysis.prompts_error(found, "softmax", both, "values", 1) == pytest.approx(0.1)
    assert [analysis.scale_of(tasks.build("linear"), metric) for metric in ("", "floor", "values")] == [
        "log-ratio", "log-ratio", "difference",
    ]  # fmt: skip
    with pytest.raises(KeyError, match="names its scale"):
        analysis.value(found, "softmax", {}, "values", 0)
    for of, metric in (("calm", "values"), ("reference:zero", "failure")):
        with pytest.raises(Undefined, match="no failure to compare"):
            analysis.value(found, of, {"scale": [10.0]}, metric, 0)


@pytest.mark.slow
def test_table_picture_and_finding_of_two_models(runs, lab):
    groups = runs("linear", "softmax", seeds=2) | {"none": runs("linear", "ssa", settings=["model.mlp=no"])["ssa"]}
    analysis = runner.checked(Equivariance(scales=(10.0, 30.0, 100.0, 1.0), prompts=32), groups)
    found = runner.ask(analysis, groups, lab)
    assert analysis.scales == (1.0, 10.0, 30.0, 100.0)
    text = "\n".join(analysis.table(found))
    assert "| `softmax` | all of these | 1.00 | 1.00 | 1.00 |  |" in text
    assert "| `none` | MLPs |" not in text
    assert "| `reference:zero` | error | 1.0 | 1.0 | 1.0 | 1.0 |" in text
    first, second = analysis.figures(found, "a title")["equivariance"].axes
    assert [label.get_text() for label in first.get_yticklabels()] == list(PARTS.values())
    shares = [found.mean("equivariance", attn="softmax", metric=part, scale=10.0) for part in PARTS]
    drawn = sorted(bar.get_width() for bar in first.containers[0])
    assert drawn == pytest.approx(sorted(max(share, -1.0) for share in shares), abs=1e-6)
    assert len(second.containers[1]) == len(PARTS) - 1  # no bar of a part that is not there
    sentence = analysis.finding(found)
    assert sentence.startswith("With labels times 10 the squared failure of equivariance is ")
    assert "with softmax (" in sentence

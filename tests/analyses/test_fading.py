"""How fast the largest weight of a head falls with the number of keys, and what its normalizer has learned."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.attention_rows import attention_rows
from icl_lab.analyses.heads import Fading, curves, slope, slopes, usual_lengths
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.spec import resolve

CPU = torch.device("cpu")
NEEDLE = ("needle:alphabet=4,keys=2",)
SETTINGS = ("test.axes.length=32,48", "test.axes.depth=50")


@pytest.mark.parametrize(("attn", "fades"), [("average", -1.0), ("ssmax", 0.0)])
@pytest.mark.slow
def test_slopes_of_a_rule_that_fades_and_of_one_that_keeps(attn, fades):
    """A mean fades as 1/n. With a gap above 1/s between the first token and the rest, SSMax does not fade."""
    task = tasks.build("needle:keys=1,alphabet=4")
    model = GPT2(
        ModelSpec(layers=1, heads=1, width=8, positions="none", mlp=False, norm=False),
        TokenSpec(6, 4, 1, 64),
        attn,
        stream(0, "init"),
    )
    with torch.no_grad():
        for p in (q for name, q in model.named_parameters() if ".rule." not in name):
            p.zero_()
        model.read_in.weight[:6] = torch.eye(8)[:6, :6]
        model.blocks[0].attention.qkv.weight[0, 5] = 3.0  # the question asks for the key
        model.blocks[0].attention.qkv.weight[8, 4] = 3.0
    largest, effective = [], []
    for length in (32, 128, 512):
        prompt = draw(task, length, TestSpec(prompts=64, axes={"length": [float(length)]}), {})
        rows = attention_rows(model.eval(), prompt, task.asking(length), CPU)
        pieces = [Fading().read_row(row) for row in rows]
        found = {metric: torch.cat([piece[metric] for piece in pieces]) for metric in Fading.words}
        assert found["largest"].shape == (64, 1, 1)
        largest.append(found["largest"].mean().item())
        effective.append(found["effective"].mean().item())
        if attn == "average":
            assert found["entropy"].mean().item() == pytest.approx(1, abs=1e-6)
    assert slope([32, 128, 512], largest) == pytest.approx(fades, abs=0.02)
    assert effective == pytest.approx([32, 128, 512] if attn == "average" else [1, 1, 1], rel=0.2)


def test_slope_of_power_laws():
    assert slope([10, 100, 1000], [0.1, 0.01, 0.001]) == pytest.approx(-1)
    assert slope([10, 100, 1000], [0.5, 0.5, 0.5]) == pytest.approx(0)
    assert math.isfinite(slope([10, 100], [0.5, 0.0]))


@pytest.mark.slow
def test_learned_numbers_are_named_as_in_the_formula(runs, lab):
    groups = runs(*NEEDLE, "ssmax:bias=yes", settings=SETTINGS)
    analysis = Fading(lengths=(32, 16), prompts=64)
    found = runner.ask(analysis, groups, lab)
    assert found["fading"].values("length") == [16, 32]
    assert set(found["learned"].values("metric")) == {"s", "b"}
    assert len(found["learned"].where(metric="s").frame) == 2
    assert len(curves(found["fading"].where(metric="largest"))) == 2
    assert "| `ssmax:bias=yes` s | 0 |" in "\n".join(analysis.table(found))
    figures = analysis.figures(found, "a title")
    assert list(figures) == ["fading"]
    longest = found.spec.train.longest
    (mark,) = (line for line in figures["fading"].axes[0].lines if line.get_linestyle() == ":")
    assert mark.get_xdata()[0] == tasks.build(found.spec.task).asking(longest) + 1
    assert set(analysis.files(found)) == {"fading.csv", "learned.csv"}


def test_a_rule_that_learns_nothing_has_no_file_of_it(runs, lab, tmp_path):
    analysis = Fading(lengths=(16, 32), prompts=64)
    found = runner.ask(analysis, runs(*NEEDLE, "softmax", settings=SETTINGS), lab)
    assert set(analysis.files(found)) == {"fading.csv"}
    assert not any("learned" in line for line in analysis.table(found))
    (tmp_path / "fading.csv").write_text(analysis.files(found)["fading.csv"])
    stored = analysis.read(tmp_path)
    assert list(stored.grids) == ["fading"]
    assert analysis.value(stored, "softmax", {}, "", 0) == pytest.approx(
        sum(slopes(stored["fading"])) / 2  # the median of two heads
    )
    fall = analysis.value(found, "softmax", {}, "slope", 0)
    sentence = f"The largest weight changes as n^{fall:.2f} with softmax (median slope over heads)."
    assert analysis.finding(found) == sentence


def test_usual_lengths_end_where_the_position_code_does(tiny, lab):
    short = tiny("linear", "softmax", "model.positions=learned:rows=100", "train.curriculum.stop=12")
    assert max(usual_lengths(short)) == 48  # 96 tokens of 100
    rotary = tiny("linear", "ssa", "model.positions=rotary", "train.curriculum.stop=12")
    assert max(usual_lengths(rotary)) == 16 * rotary.train.longest
    together = Fading().prepared([lab.store.run(spec, 0) for spec in (rotary, short)])
    assert together.lengths == tuple(usual_lengths(short))  # what every run can read
    assert Fading(lengths=(64, 16, 64)).prepared([lab.store.run(short, 0)]).lengths == (16, 64)


@pytest.mark.parametrize(
    ("choice", "settings", "lengths", "message"),
    [
        (
            "linear",
            ("model.positions=learned:rows=100", "train.curriculum.stop=12"),
            (20, 60),
            "more than the 100 places",
        ),
        ("linear", (), (20,), "at least two lengths, got 20"),
        ("linear", (), (20, 20), "at least two lengths"),
        ("linear", (), (2, 20), "length must be whole numbers >= 4"),
        ("needle", (), (5, 20), "prompts of 6 or more, got 5"),
        ("linear", ("model.attention=no",), (), "a model without attention has no heads to follow"),
    ],
)
def test_senseless_questions_are_refused(choice, settings, lengths, message):
    with pytest.raises(BadValue, match=message):
        Fading(lengths=lengths).check(resolve(choice, "softmax", "smoke", settings))


def test_claims_are_read_from_the_stored_file(tmp_path):
    rows = [
        {"layer": 0, "head": head, "length": keys, "keys": keys, "metric": metric, "value": value}
        | {"stderr": 0, "count": 9}
        for head, power in ((0, -1.0), (1, -0.5), (2, 0.0))
        for keys in (10.0, 100.0, 1000.0)
        for metric, value in (("largest", keys**power), ("temperature", math.nan if head else keys))
    ]
    who = {"task": "every", "preset": "lite", "spec": "0", "seed": 0, "attn": "ssa"}
    (tmp_path / "fading.csv").write_text(Grid.of(rows, ["layer", "head", "length", "keys"], **who).csv())
    analysis = Fading()
    found = analysis.read(tmp_path)
    assert analysis.seeds(found) == [0]
    assert analysis.value(found, "ssa", {}, "", 0) == pytest.approx(-0.5)
    assert analysis.value(found, "ssa", {"length": [10, 100]}, "slope", 0) == pytest.approx(-0.5)
    assert analysis.value(found, "ssa", {"keys": [100]}, "largest", 0) == pytest.approx(0.1)
    assert analysis.value(found, "ssa", {"keys": [10, 100]}, "temperature", 0) == 55  # what is known
    for cells, metric, message in (
        ({"keys": [10]}, "slope", "a slope needs at least two lengths"),
        ({}, "largest", "names its keys or lengths"),
        ({"keys": [7]}, "largest", "no cell has keys"),
    ):
        with pytest.raises(KeyError, match=message):
            analysis.value(found, "ssa", cells, metric, 0)

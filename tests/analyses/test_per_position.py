"""The error at each place of a prompt, against means taken by hand."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.context import PerPosition, answer_positions
from icl_lab.analyses.frame import StoredGrids
from icl_lab.base.grid import Grid
from icl_lab.pipeline import load_or_train, sweep


def test_half_octaves_of_a_text():
    lies = answer_positions(tasks.build("text"), trained=8, length=32)
    found = {tokens: (chosen + 1).tolist() for tokens, chosen in lies.steps.items()}
    assert list(found) == [1, 2, 4, 5.65685, 8, 11.3137, 16, 22.6274, 32]
    assert found[4] == [3, 4]
    assert found[5.65685] == [5]
    assert found[11.3137] == [9, 10, 11]
    assert [place for chosen in found.values() for place in chosen] == list(range(1, 33))


def test_ends_are_means_over_the_last_quarters():
    lies = answer_positions(tasks.build("text"), trained=8, length=32)
    errors = torch.arange(1.0, 33.0).repeat(2, 1)
    ends = {metric: values.tolist() for metric, values in lies.ends(errors).items()}
    assert ends["within"] == [4.5, 4.5]  # 1 .. 8
    assert ends["beyond"] == [20.5, 20.5]  # 9 .. 32
    assert ends["end-of-training"] == [7.5, 7.5]  # 7, 8
    assert ends["end"] == [28.5, 28.5]  # 25 .. 32
    assert ends["rise"] == [21.0, 21.0]


def test_answers_that_nothing_tells_yet_are_left_out():
    """Of linear, which answers at every second token, those before index 3 count in no metric."""
    lies = answer_positions(tasks.build("linear"), trained=5, length=10)
    assert lies.tokens.tolist() == [7, 9, 11, 13, 15, 17, 19]
    assert lies.steps[8.0].tolist() == [3]
    errors = torch.cat((torch.full((1, 3), 1e6), torch.arange(1.0, 8.0).unsqueeze(0)), 1)
    assert lies.ends(errors)["within"].tolist() == [1.5]  # tokens 7 and 9


@pytest.mark.slow
def test_the_mean_over_all_places_is_the_cell_of_the_grid(tiny, lab):
    settings = ["test.axes.length=16,32", "train.curriculum.start=16", "train.curriculum.stop=16", "train.steps=2"]
    spec = tiny("text", "softmax", *settings, "test.axes.kept=100")
    groups = {"softmax": [lab.store.run(spec, 0)]}
    analysis = runner.checked(PerPosition(prompts=64), groups)
    found = runner.ask(analysis, groups, lab)
    grid = sweep(spec, 0, lab)
    within, beyond = (analysis.value(found, "softmax", {}, metric, 0) for metric in ("within", "beyond"))
    cell = grid.at(attn="softmax", length=32, kept=100, metric="nats")
    assert (within + beyond) / 2 == pytest.approx(cell, rel=1e-5)
    short = grid.at(attn="softmax", length=16, kept=100, metric="nats")
    assert within == pytest.approx(short, rel=1e-5)
    reference = grid.at(attn="reference:5-gram", length=16, kept=100, metric="nats")
    assert analysis.value(found, "reference:5-gram", {}, "within", 0) == pytest.approx(reference, rel=1e-5)
    step = analysis.value(found, "softmax", {"tokens": [32.0]}, "error", 0)
    assert math.isfinite(step)
    for of, metric in (("softmax", "within"), ("softmax", "rise"), ("reference:5-gram", "end")):
        drawn = analysis.on_resamples(found, of, {}, metric, 0)
        assert drawn[0] == pytest.approx(analysis.value(found, of, {}, metric, 0), rel=1e-4)
        told = found["ends"].where(attn=of, metric=metric).frame["stderr"].iloc[0]
        assert drawn[1:].std() == pytest.approx(told, rel=0.1)
    assert analysis.on_resamples(found, "softmax", {"tokens": [32.0]}, "error", 0) is None
    before = StoredGrids({name: found[name] for name in ("per-position", "ends")})
    assert analysis.on_resamples(before, "softmax", {}, "within", 0) is None
    rows = found["prompts"].frame
    later = StoredGrids({**found.grids, "prompts": Grid(rows[rows["attn"] != "softmax"])})  # another seed's were kept
    assert analysis.on_resamples(later, "softmax", {}, "within", 0) is None
    assert analysis.on_resamples(later, "reference:5-gram", {}, "within", 0) is not None
    with pytest.raises(KeyError, match="names its tokens"):
        analysis.value(found, "softmax", {}, "error", 0)
    with pytest.raises(KeyError, match="no metric 'loss'"):
        analysis.value(found, "softmax", {}, "loss", 0)


def test_errors_that_span_decades_are_logarithms(tiny, lab):
    spec = tiny("linear", "softmax", "train.curriculum.start=5", "train.curriculum.stop=6", "train.steps=2")
    groups = {"softmax": [lab.store.run(spec, 0)]}
    load_or_train(groups["softmax"][0], lab)
    analysis = runner.checked(PerPosition(prompts=64), groups)
    found = runner.ask(analysis, groups, lab)
    beyond = float(found["ends"].where(attn="softmax", metric="beyond").frame["value"].iloc[0])
    assert analysis.value(found, "softmax", {}, "", 0) == pytest.approx(math.log(beyond))
    assert analysis.on_resamples(found, "softmax", {}, "", 0)[0] == pytest.approx(math.log(beyond), rel=1e-4)
    ends = found["ends"].where(attn="softmax", metric="beyond").frame.iloc[0]
    assert analysis.prompts_error(found, "softmax", {}, "", 0) == pytest.approx(ends["stderr"] / ends["value"])
    with pytest.raises(KeyError, match="a ratio"):
        analysis.value(found, "softmax", {}, "rise", 0)
    assert "per-position" in analysis.figures(found, "title")
    assert "from" in analysis.finding(found)
    assert any("`reference:zero`" in line for line in analysis.table(found))

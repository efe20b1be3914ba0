"""Far retrieval against robustness, normalizer by normalizer."""

import lzma
import math
from itertools import product

import numpy as np
import pytest
import tradeoff
from tradeoff import Scale, pairs

from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.comparison.statistics import paired
from icl_lab.runs import study_folder
from icl_lab.runs.spec import resolve
from icl_lab.runs.study_folder import StudyRecord


def point(rule, needle, error, before=0.01, seeds=3):
    wobble = np.linspace(-0.01, 0.01, seeds) if seeds > 1 else np.zeros(1)
    means = {"needle": needle, "deviant": math.log(error), "trained": math.log(before)}
    return tradeoff.Point(
        rule, {side: paired([0.0] * seeds, mean + wobble, "difference") for side, mean in means.items()}
    )


@pytest.mark.slow
def test_table_is_ordered_and_correlated(tmp_path, monkeypatch):
    points = [point("softmax", 0.5, 1.0), point("ssmax", 0.9, 4.0), point("ssa", 0.1, 0.25, 0.02, seeds=1)]
    assert tradeoff.correlation(points, "needle", "deviant") == pytest.approx(1)
    four = [*points, point("best", 0.95, 0.1)]
    assert tradeoff.correlation(four, "needle", "deviant") == pytest.approx(-0.2)  # 1 - 6 * 12 / (4 * 15)
    assert math.isnan(tradeoff.correlation(points[:2], "needle", "trained"))  # one of them does not vary
    shown = []
    with monkeypatch.context() as patch:
        patch.setattr(tradeoff, "pairs", lambda *_, **__: pytest.fail("not drawn"))
        with pytest.raises(pytest.fail.Exception, match="not drawn"):
            tradeoff.publish(points, tmp_path, "lite", "linear", "icl-lab tradeoff", shown.append)
    text, files = tradeoff.publish(points, tmp_path, "lite", "linear", "icl-lab tradeoff", shown.append)
    assert shown == [text, text]  # the first time before the figure failed
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["ssmax", "softmax", "ssa"]
    assert "0.9 [0.875, 0.925] | 4 [" in rows[0]
    assert "| 0.1 | 0.25 | 0.02 | 1, 1, 1 |" in rows[2]
    assert "* needles found and error without a deviant: -0.87" in text  # ranks 3 2 1 and 1.5 1.5 3
    assert set(files) == {"tradeoff.csv", "table.md", "tradeoff.png", "tradeoff.svg"}
    first = (tmp_path / "tradeoff.csv").read_text().splitlines()[0]
    assert first.startswith("attn,needle_mean,needle_low,needle_high,deviant_mean")


def test_a_panel_for_every_two_scores():
    spans = {"a": (0.5, 0.4, 0.6), "b": (2.0, 1.0, 4.0), "c": (0.01, math.nan, math.nan)}
    scales = {name: Scale(f"the score {name}", decades=name != "a") for name in spans}
    drawn = pairs({"softmax": spans, "ssa": spans}, scales, title="three scores")
    places = [axes for axes in drawn.axes if axes.axison]
    assert [axes.get_xscale() for axes in places] == ["linear", "log", "linear"]
    assert {axes.get_yscale() for axes in places} == {"log"}
    assert [axes.get_ylabel() for axes in places] == ["the score b", "", "the score c"]
    assert [axes.get_xlabel() for axes in places] == ["", "the score c", "the score a"]
    fills = [line.get_fillstyle() for axes in places for line in axes.lines if line.get_marker() != "None"]
    assert fills == ["full", "full", "none", "none", "none", "none"]  # the third has no interval
    (legend,) = [axes.get_legend() for axes in drawn.axes if axes.get_legend()]
    assert [text.get_text() for text in legend.get_texts()] == ["softmax", "ssa"]


def test_plain_runs_are_read_and_studies_merged(tmp_path, lab):
    with pytest.raises(BadValue, match=r"none has both: 0 have needle runs .* 0 have met a deviant"):
        tradeoff.gather(lab.store, "lite")
    for name, rule, value in (("deviant-a", "softmax", 2.0), ("deviant-b", "ssa", 8.0)):
        rows = [
            {"attn": attn, "position": 0, "factor": factor, "metric": "mse", "stderr": 0, "count": 9}
            | {"value": {10.0: value / 2, 60.0: value, 100.0: 2 * value}.get(factor, 0.001)}
            for attn in (rule, "reference:zero")
            for factor in (1.0, 9.0, 10.0, 60.0, 100.0, 200.0)
        ]
        who = {"task": "linear", "preset": "lite", "spec": "0", "seed": 0}
        table = Grid.of(rows, ["position", "factor"], **who).csv()
        study_folder.publish(StudyRecord("deviant", {}, []), lab.store.root / name, {"deviant.csv": table}, {})
    plain = lab.store.root / "deviant-b" / "deviant.csv"
    plain.with_name("deviant.csv.xz").write_bytes(lzma.compress(plain.read_bytes()))
    plain.unlink()  # a large table is kept packed
    struck = tradeoff.deviants(lab.store, "lite", "linear")
    assert tradeoff.robustness(struck, (10, 100)) == {
        "softmax": [pytest.approx(math.log(2))],
        "ssa": [pytest.approx(math.log(8))],
    }
    assert tradeoff.robustness(struck, (1, 1))["ssa"] == [pytest.approx(math.log(0.001))]
    assert tradeoff.robustness(tradeoff.deviants(lab.store, "smoke", "linear"), (10, 100)) == {}
    plain, other = resolve("needle", "ssa", "lite"), resolve("needle", "softmax", "lite", ["train.rate=0.001"])
    for spec in (plain, other):  # only the plain one counts
        cells = product(spec.test.axes["depth"], spec.test.axes["length"])
        rows = [
            {"attn": spec.attn, "depth": depth, "length": length, "metric": "exact", "stderr": 0, "count": 9}
            | {"value": depth / 100 if length == 512 else 0.0}
            for depth, length in cells
        ]
        run = lab.store.run(spec, 0)
        run.begin()
        grid = Grid.of(rows, ["depth", "length"], task="needle", preset="lite", spec=spec.hash, seed=0)
        (run.folder / "grid.csv").write_text(grid.csv())
    assert tradeoff.retrieval(lab.store, "lite") == {"ssa": [pytest.approx(0.5)]}
    (only,) = tradeoff.gather(lab.store, "lite")
    assert only.rule == "ssa"
    assert [only.span(side)[0] for side in ("needle", "deviant", "trained")] == [
        pytest.approx(0.5),
        pytest.approx(8),
        pytest.approx(0.001),
    ]

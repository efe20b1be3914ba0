"""Far retrieval against robustness, rule by rule."""

import math
from itertools import product

import numpy as np
import pytest

from icl_lab.comparison.statistics import paired
from icl_lab.errors import BadValue
from icl_lab.grid import Grid
from icl_lab.papers import tradeoff
from icl_lab.runs import study_folder
from icl_lab.runs.spec import resolve
from icl_lab.runs.study_folder import StudyRecord


def point(rule, needle, error, seeds=3):
    wobble = np.linspace(-0.01, 0.01, seeds) if seeds > 1 else np.zeros(1)
    return tradeoff.Point(
        rule,
        paired([0.0] * seeds, needle + wobble, "difference"),
        paired([0.0] * seeds, np.log(error) + wobble, "difference"),
    )


def test_table_is_ordered_and_correlated(tmp_path):
    points = [point("softmax", 0.5, 1.0), point("ssmax", 0.9, 4.0), point("ssa", 0.1, 0.25, seeds=1)]
    assert tradeoff.correlation(points) == pytest.approx(1)
    assert tradeoff.correlation([*points, point("best", 0.95, 0.1)]) == pytest.approx(-0.2)  # 1 - 6 * 12 / (4 * 15)
    text, files = tradeoff.publish(points, tmp_path, "lite", "linear", "icl-lab tradeoff")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["ssmax", "softmax", "ssa"]
    assert "0.9 [0.875, 0.925]" in rows[0]
    assert "| 0.1 | 0.25 | 1, 1 |" in rows[2]
    assert set(files) == {"tradeoff.csv", "table.md", "tradeoff.png", "tradeoff.svg"}


def test_plain_runs_are_read_and_studies_merged(tmp_path, lab):
    with pytest.raises(BadValue, match=r"no rule has both: 0 have needle runs .* 0 have met a deviant"):
        tradeoff.gather(lab.store, "lite")
    for name, rule, value in (("deviant-a", "softmax", 2.0), ("deviant-b", "ssa", 8.0)):
        rows = [
            {"attn": attn, "position": 0, "factor": factor, "metric": "mse", "stderr": 0, "count": 9}
            | {"value": {10.0: value / 2, 60.0: value, 100.0: 2 * value}.get(factor, 0.001)}
            for attn in (rule, "reference:zero")
            for factor in (1.0, 9.0, 10.0, 60.0, 100.0, 200.0)
        ]
        who = {"task": "linear", "preset": "lite", "spec": "0", "seed": 0}
        tables = {"deviant.csv": Grid.of(rows, ["position", "factor"], **who).csv()}
        study_folder.publish(StudyRecord("deviant", {}, []), lab.store.root / name, tables, {})
    assert tradeoff.robustness(lab.store, "lite", "linear") == {
        "softmax": [pytest.approx(2)],
        "ssa": [pytest.approx(8)],
    }
    assert tradeoff.robustness(lab.store, "smoke", "linear") == {}
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
    assert (only.rule, only.needle.effect, only.deviant.effect) == (
        "ssa",
        pytest.approx(0.5),
        pytest.approx(math.log(8)),
    )

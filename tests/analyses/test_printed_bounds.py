"""The bound that printed errors need: arithmetic on published functions."""

from pathlib import Path

import numpy as np
import pytest

from icl_lab import tasks
from icl_lab.analyses.printed_bounds import READINGS, _cells, _targets, least_bound
from icl_lab.runs.spec import resolve


def test_the_least_bound_by_hand():
    """Targets 1 and 5: cut at C between 1 and 5 the error is (5 - C)^2 / 2, so an error of 2 needs C = 3."""
    found = least_bound(np.array([1.0, -5.0]), np.array([2.0, 0.5, 13.0, 100.0]))
    assert found.tolist() == pytest.approx([3.0, 4.0, 0.0, 0.0], abs=1e-3)


def test_table_1_needs_the_bounds_that_were_worked_out(lab):
    """SSA's printed row at sigma 10: 28.4 as printed, 27.1 on nine points, 21.9 of the column before."""
    spec = resolve("linear", "softmax", "lite", draws="paper")
    task = tasks.build("linear")
    error = next(error for label, sigma, error in _cells() if label.endswith("Table 1, SSA") and sigma == 10)
    found = [
        float(least_bound(_targets(task, spec.test, points, 10 + column), np.array([error]))[0])
        for points, column in READINGS.values()
    ]
    assert found == pytest.approx([28.4, 27.1, 21.9], abs=0.06)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_pictures")
def test_the_experiment_prints_printed_rows_and_stored_bounds(run, monkeypatch, tmp_path):
    root = Path(__file__).parents[2]
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(root / "results" / "evidence"))
    where = ["--experiments", str(root / "experiments"), "--results", str(tmp_path)]
    out, _ = run.ok("experiment", "printed-bounds", *where)
    assert "| Table 1, SSA | 28.2 | 31.6 | 32.1 | 23.9 | 30.9 | 29.5 | 28.4 |" in out
    assert "| Table 1, SSA | 28.4 | 27.1 | 21.9 |" in out
    assert "| `softmax, lite` | 2 | 9.1 | 1 |" in out

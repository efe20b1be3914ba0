"""The clip model: a bound is found again, and the published rows have the bounds that were computed for them."""

import math

import numpy as np
import pytest

from icl_lab.base import published
from icl_lab.base.errors import BadValue
from icl_lab.comparison.clip import clip_errors, clip_fit


@pytest.fixture(scope="module")
def targets() -> list[np.ndarray]:
    """The published evaluation set: y of sigma 1 .. 10, (functions prompts positions) with index >= 3."""
    functions, stream = published.load("ssa_eval_functions").rows, published.load("ssa_eval_x_stream").rows
    z = np.array([row["z"].number for row in stream])
    x = z[10 * np.arange(64)[:, None] + np.arange(40)][:, 3:]
    a, b = (np.array([row[name].number for row in functions]).reshape(10, 100, 1, 1) for name in "ab")
    return list(a * x + b)


def test_clip_fit_recovers_a_bound() -> None:
    rng = np.random.default_rng(0)
    wanted = [sigma * rng.normal(size=(50, 40)) for sigma in (4, 6, 8, 10)]
    row = [np.mean((np.clip(y, -7.25, 7.25) - y) ** 2) for y in wanted]
    found = clip_fit(wanted, row)
    assert (found.bound, found.edge) == (7.25, False)
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert found.fitted == pytest.approx(row)
    tenth = np.multiply(row, [1.1, 1 / 1.1, 1.1, 1 / 1.1])
    assert clip_fit(wanted, tenth).residual == pytest.approx(math.log(1.1), 0.05)
    at_edge = clip_fit(wanted, row, bounds=[8.0, 9.0])
    assert (at_edge.bound, at_edge.edge) == (8, True)


def test_clip_fit_refuses_what_has_no_fit() -> None:
    wanted = [np.linspace(-4, 4, 9), np.linspace(-8, 8, 9)]
    with pytest.raises(BadValue, match=r"errors must be above 0 .*got 0.0 at position 0"):
        clip_fit(wanted, [0.0, 1.0])
    with pytest.raises(BadValue, match="3 errors need as many sets of targets, got 2"):
        clip_fit(wanted, [1, 1, 1])
    with pytest.raises(BadValue, match="targets must be finite"):
        clip_fit([np.array([1, math.nan]), wanted[0]], [1, 1])
    with pytest.raises(BadValue, match="below the largest target of every cell, got 5, 6"):
        clip_fit(wanted, [1, 1], bounds=[5, 6])


def test_reference_clips_of_the_published_set(targets: list[np.ndarray]) -> None:
    bounds = [0, 5, 10, 15, 20]
    table = published.load("ssa_reference_predictors")
    found = clip_errors(targets, bounds)
    for name, row in zip(["zero", *(f"clip_B{bound}" for bound in bounds[1:])], found.T, strict=True):
        wanted = [table.at("mse", predictor=name, sigma=sigma).number for sigma in range(1, 11)]
        assert row == pytest.approx(wanted, rel=5e-6, abs=1e-12)


def alignment() -> list[tuple[str, str, str]]:
    rows = published.load("ssa_column_alignment").rows
    return [(row["row"].text, row["table"].text, shift) for row in rows for shift in ("shift0", "shift_minus1")]


@pytest.mark.parametrize(("row", "table", "shift"), alignment())
def test_the_published_rows_have_the_bounds_that_were_computed(
    row: str, table: str, shift: str, targets: list[np.ndarray]
) -> None:
    label, value = {"table1": ("method", "mse"), "table6": ("model", "squared_error")}[table]
    source = published.load(f"ssa_{table}")
    printed = [source.at(value, **{label: row}, sigma=sigma).number for sigma in range(4, 11)]
    first = 3 if shift == "shift0" else 2
    found = clip_fit(targets[first : first + 7], printed, bounds=np.arange(2, 60, 0.25))
    increments = np.corrcoef(np.diff(np.log(found.fitted)), np.diff(np.log(printed)))[0, 1]
    computed = {
        "B_clip": f"{found.bound:.2f}", "rms_log_resid": f"{found.residual:.3f}", "corr_increments": f"{increments:.2f}"
    }  # fmt: skip
    for name, text in computed.items():
        stored = published.load("ssa_column_alignment").at(f"{name}_{shift}", table=table, **{"row": row})
        assert text == stored.text
    # Two fits ended where the search began; their footnotes say what is below.
    assert found.edge == (shift == "shift_minus1" and row in ("1L1AH", "1L2AH"))


@pytest.mark.parametrize(("row", "bound", "residual"), [("1L1AH", 1.0, "0.091"), ("1L2AH", 0.75, "0.110")])
def test_the_two_fits_at_the_edge_are_better_below(
    row: str, bound: float, residual: str, targets: list[np.ndarray]
) -> None:
    table = published.load("ssa_table6")
    printed = [table.at("squared_error", model=row, sigma=sigma).number for sigma in range(4, 11)]
    found = clip_fit(targets[2:9], printed)
    assert (found.bound, f"{found.residual:.3f}", found.edge) == (bound, residual, False)

"""Labelled grids over all models that were asked."""

import pytest

from icl_lab.analyses.findings import StoredGrids
from icl_lab.base.grid import Grid

ROWS = [
    {"attn": attn, "seed": seed, "length": 8, "metric": "error", "value": seed + 1.0, "stderr": 0.1, "count": 4}
    for attn, seed in (("softmax", 0), ("softmax", 1), ("ssa", 0), ("reference:zero", 0))
]
FOUND = StoredGrids({"error": Grid.of(ROWS, ["length"], task="linear", preset="smoke", spec="0")})


def test_models_and_references_are_told_apart():
    assert FOUND.rules == ["softmax", "ssa"]
    assert FOUND.references == ["reference:zero"]
    assert (FOUND.seeds, FOUND.seeds_of("ssa")) == ([0, 1], [0])


def test_rows_of_a_model_are_those_of_its_seed():
    assert list(FOUND.own("error", "softmax", 1).frame["value"]) == [2.0]
    with pytest.raises(KeyError, match="no cell has seed=1"):
        FOUND.own("error", "ssa", 1)


def test_rows_of_a_reference_are_the_same_for_every_seed():
    assert list(FOUND.own("error", "reference:zero", 7).frame["value"]) == [1.0]

"""What an analysis found is put together again from its folder, where the folder holds all of it."""

import pytest

from icl_lab.analyses import boundary, publish, saturation
from icl_lab.analyses.frame import Findings, StoredGrids
from icl_lab.runs.spec import resolve


def test_grids_are_enough_where_nothing_else_was_collected(monkeypatch, tmp_path):
    """The figures of boundary values need curves and tests as well, which older folders lack."""
    grids = {"heads": object(), "errors": object(), "patches": object()}
    specs = {"softmax": resolve("linear", "softmax", "smoke")}
    assert saturation.Saturation().again(tmp_path, specs) is None  # an empty folder
    for made in (saturation.Saturation(), boundary.Boundary()):
        monkeypatch.setattr(type(made), "read", lambda self, folder: StoredGrids(grids))
    assert saturation.Saturation().again(tmp_path, specs) == Findings(grids, specs)
    assert boundary.Boundary().again(tmp_path, specs) is None
    del grids["errors"]
    assert saturation.Saturation().again(tmp_path, specs) is None


OLD = "| normalizer | gap |\n| --- | --- |\n| `ssa` | −0.2 [−0.3, 1.2e−3] |\n| softmax | 0.1 |\n* 3 of 4 heads\n"


@pytest.mark.parametrize(("old", "new", "stay"), [
    ("gap", "gap of scores", True),
    ("| softmax | 0.1 |", "| softmax | 0.7 | 0.1 |\n| entmax | 5 |", True),
    ("* 3 of 4 heads", "* of 4 heads 3", False),
    ("−0.2", "0.2", False),
    ("1.2e−3", "1.2", False),
    ("| `ssa` | −0.2 [−0.3, 1.2e−3] |\n| softmax | 0.1 |", "| softmax | 0.1 |\n| `ssa` | −0.2 [−0.3, 1.2e−3] |", False),
    ("softmax", "entmax", False),
    ("| softmax | 0.1 |\n", "", False),
])  # fmt: skip
def test_a_redrawn_text_keeps_rows_in_order_with_names_and_signs(old, new, stay):
    assert old in OLD
    assert publish.numbers_stay(OLD, OLD.replace(old, new)) is stay

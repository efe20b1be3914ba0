"""What an analysis found is put together again from its folder, where the folder holds all of it."""

from icl_lab.analyses import boundary, saturation
from icl_lab.analyses.frame import Findings, StoredGrids
from icl_lab.runs.spec import resolve


def test_grids_are_enough_where_nothing_else_was_collected(monkeypatch, tmp_path):
    """The figures of boundary values need curves and tests as well, which older folders lack."""
    grids = {"heads": object(), "errors": object(), "patches": object()}
    spec = resolve("linear", "softmax", "smoke")
    specs = {"softmax": spec}
    for made in (saturation.Saturation(), boundary.Boundary()):
        monkeypatch.setattr(type(made), "read", lambda self, folder: StoredGrids(grids))
    assert saturation.Saturation().again(tmp_path, specs) == Findings(grids, spec)
    assert boundary.Boundary().again(tmp_path, specs) is None
    del grids["errors"]
    assert saturation.Saturation().again(tmp_path, specs) is None


def test_nothing_is_put_together_from_an_empty_folder(tmp_path):
    assert saturation.Saturation().again(tmp_path, {"softmax": resolve("linear", "softmax", "smoke")}) is None

"""Finding a run by its folder."""

import pytest

from icl_lab.base.errors import UnknownName
from icl_lab.pipeline import sweep


def test_run_is_found_by_its_folder(tiny, lab):
    spec = tiny("needle:alphabet=4,keys=2", "softmax", "test.axes.length=32,48", "test.axes.depth=50", "train.steps=5")
    sweep(spec, 0, lab)
    run = lab.store.run(spec, 0)
    assert lab.store.at(run.folder) == run
    with pytest.raises(UnknownName, match="seed-0"):
        lab.store.at(run.folder.parent / "seed-7")

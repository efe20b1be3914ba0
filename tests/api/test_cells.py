"""The table of all cells: of what is named alone, and of nothing else that is stored."""

import pytest

import icl_lab as icl
from icl_lab.base.errors import LabError
from icl_lab.runs.run import Run

SMALL = {"train.steps": 3, "test.prompts": 64, "test.axes.length": [5], "model.width": 16, "model.heads": 2}


@pytest.mark.slow
def test_only_what_is_named_is_read(tmp_path, monkeypatch, quick_pictures):
    where = icl.Where(results=tmp_path, progress=False, evidence=False, jobs=1)
    for task, attn in (("linear", "ssa"), ("linear", "softmax"), ("every", "ssa")):
        icl.sweep(task, attn, "smoke", SMALL, where=where)
    whole, read = icl.cells(where=where), []
    grid = Run.grid
    monkeypatch.setattr(Run, "grid", lambda run: read.append((run.spec.task, run.spec.attn)) or grid(run))
    some = icl.cells("linear", "ssa", "smoke", where=where)
    assert read == [("linear", "ssa")]
    mine = whole[(whole["task"] == "linear") & whole["spec"].isin(set(some["spec"]))]
    assert some["value"].tolist() == mine["value"].tolist()
    assert set(icl.cells(attn="ssa", where=where)["task"]) == {"linear", "every"}
    for wrong in ({"task": "linea"}, {"attn": "sa"}, {"preset": "nan"}):
        with pytest.raises(LabError, match="Did you mean"):
            icl.cells(**wrong, where=where)

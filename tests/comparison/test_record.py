"""What a study folder says of itself is enough to find its runs again."""

import pytest
from icl_lab.comparison.record import Record

from icl_lab.comparison import record
from icl_lab.errors import RunFailed
from icl_lab.runs.store import Store


@pytest.fixture
def groups(tiny, tmp_path):
    store = Store(tmp_path)
    found = {}
    for attn in ("softmax", "ssa"):
        found[attn] = [store.run(tiny(attn=attn), seed) for seed in (0, 1)]
        for run in found[attn]:
            run.folder.mkdir(parents=True)
            run.begin()
            (run.folder / "grid.csv").write_text("there")
    return found


def test_a_record_finds_its_runs_again(groups, tmp_path):
    (tmp_path / record.NAME).write_text(Record.of(groups, "softmax", "icl-lab compare", "a title").text())
    known = record.read(tmp_path)
    assert (known.command, known.baseline, known.title) == ("icl-lab compare", "softmax", "a title")
    assert record.runs(known, Store(tmp_path)) == groups


def test_a_swapped_rule_is_part_of_what_a_run_is(groups, tmp_path):
    swapped = {"swapped": [run.swapped("ssmax") for run in groups["softmax"]]}
    for run in swapped["swapped"]:
        run.place.mkdir()
        (run.place / "grid.csv").write_text("there")
    known = Record.of({**groups, **swapped}, "softmax", "", "")
    assert record.runs(known, Store(tmp_path))["swapped"] == swapped["swapped"]


def test_a_run_that_is_not_stored_is_named(groups, tmp_path):
    known = Record.of(groups, "softmax", "", "")
    (groups["ssa"][1].folder / "grid.csv").unlink()
    with pytest.raises(RunFailed, match=r"1 runs of this study are not stored: linear ssa smoke-\w{8} seed 1"):
        record.runs(known, Store(tmp_path))


def test_a_folder_without_a_record_has_none_and_a_broken_one_is_said(tmp_path):
    assert record.read(tmp_path) is None
    (tmp_path / record.NAME).write_text('{"command": 3}')
    with pytest.raises(RunFailed, match=r"study\.json cannot be read"):
        record.read(tmp_path)

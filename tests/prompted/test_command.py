"""The command as a whole, against a server on loopback."""

import json

from icl_lab.grid import Grid


def folder(tmp_path):
    (found,) = (path for path in (tmp_path / "results").iterdir() if path.name.startswith("prompted-"))
    return found


def test_a_study_is_asked_measured_and_written(ask, stub, tmp_path):
    code, said, complaint = ask()
    assert code == 0, complaint
    assert len(stub.requests) == 2 * 4  # two sigmas, four prompts
    names = {path.name for path in folder(tmp_path).iterdir()}
    assert {"grid.csv", "answers.csv", "record.jsonl", "table.md", "study.json", "heat-map.png"} <= names
    grid = Grid.read(folder(tmp_path) / "grid.csv")
    assert "prompted:stub" in grid.values("attn")
    assert said.splitlines()[-1].startswith("next: open ")
    assert json.loads((folder(tmp_path) / "record.jsonl").read_text().splitlines()[0])["question"]["model"] == "stub"

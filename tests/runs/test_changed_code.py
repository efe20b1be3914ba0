"""Runs whose parts are others now: they say so, last of all; diverged ones are trained again; verify lists them."""

import json
import re
import shutil

import pytest

import icl_lab as icl
from icl_lab import normalizers, pipeline
from icl_lab.runs import archiving, environment, provenance
from icl_lab.runs.evidence.archive import Archive
from tests.planted import forget, plant

pytestmark = [pytest.mark.usefixtures("quick_pictures"), pytest.mark.slow]

FIELDS = "train.steps=10 train.batch=8 test.prompts=64 model.width=16 model.heads=2 test.axes.length=5,12"
SMALL = ["--task", "linear", "--preset", "smoke", "--set", FIELDS]
WILD = ["--set", "train.rate=1 train.clip=1e30 train.warmup=0 model.norm=no model.layers=8 train.steps=60"]
CHANGED = "made with another version of the normalizer 'ssa' in icl_lab/normalizers/ssa.py (sha256 "


@pytest.fixture
def edit(monkeypatch):
    """Has the code of a class be another one from here on."""
    yield lambda name: plant(monkeypatch, normalizers.registry.part(name).__module__)
    monkeypatch.undo()
    forget()


def env_of(folder):
    (path,) = folder.rglob("env.json")
    return json.loads(path.read_text())


def test_a_run_says_where_the_code_of_its_parts_is_another(run, tmp_path, edit):
    out, err = run.ok("sweep", "--attn", "ssa+gated", *SMALL)
    parts = {(part["kind"], part["name"]): part for part in env_of(tmp_path)["parts"]}
    assert list(parts) == [("task", "linear"), ("normalizer", "ssa"), ("wrapper of a normalizer", "gated"),
                           ("position code", "learned")]  # fmt: skip
    assert parts["normalizer", "ssa"]["file"] == "icl_lab/normalizers/ssa.py"
    assert "another version" not in run("sweep", "--attn", "ssa+gated", *SMALL)[2]
    edit("ssa")
    again, err = run.ok("sweep", "--attn", "ssa+gated", *SMALL)
    assert CHANGED in err.splitlines()[-1]
    assert re.search(r"now [0-9a-f]{8}\); --retrain repeats it\.$", err.splitlines()[-1])
    out, _ = run.ok("verify", str(tmp_path / "results"))
    (line,) = (line for line in out.splitlines() if line.startswith("made with other code: "))
    assert "linear/ssa+gated/" in line
    assert CHANGED.removeprefix("made ") in line
    assert "another version" not in run.ok("sweep", "--attn", "ssa+gated", *SMALL, "--retrain")[1]
    assert "another version" not in run("sweep", "--attn", "ssa+gated", *SMALL)[2]


def test_python_warns_of_runs_made_with_other_code(run, tmp_path, edit):
    assert run("sweep", "--attn", "ssa", *SMALL)[0] == 0
    where = icl.Where(results=tmp_path / "results", progress=False)
    icl.cells(where=where)  # a warning would be an error
    edit("ssa")
    for ask in (lambda: icl.find("linear/ssa/smoke", where=where), lambda: icl.cells(where=where),
                lambda: icl.load("linear/ssa/smoke", where=where)):  # fmt: skip
        with pytest.warns(UserWarning, match=re.escape(CHANGED)) as warned:
            ask()
        assert [each.filename for each in warned] == [__file__]
        (said,) = (str(each.message) for each in warned)
        assert re.search(r"icl-lab sweep --task linear --attn ssa .*--retrain --results .* trains it anew", said)
    err = run("export", "--all", "--out", str(tmp_path / "cells.parquet"), "--results", str(tmp_path / "results"))[2]
    assert CHANGED in err.splitlines()[-1]


def test_evidence_is_compared_and_lost_texts_are_not(run, tmp_path, edit, monkeypatch):
    assert run("sweep", "--attn", "ssa", *SMALL)[0] == 0
    stored = icl.find("linear/ssa/smoke", where=icl.Where(results=tmp_path / "results", progress=False)).stored
    archive = Archive(tmp_path / "evidence")
    archive.add({stored.key: archiving.run_files(stored, weights=True)})
    env, before = stored.folder / "env.json", (stored.folder / "env.json").read_bytes()
    lost = json.loads(before)
    lost["made_by"]["files"] = {"mine.txt": "0" * 64}
    (stored.folder / "manifest.json").unlink()
    env.write_text(json.dumps(lost))
    assert provenance.of(stored).differences == ()
    edit("ssa")
    assert [each.kind for each in provenance.of(stored).differences] == ["normalizer 'ssa'"]
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(archive.root))
    shutil.rmtree(stored.folder)
    stored.folder.mkdir()
    env.write_bytes(before)
    with pytest.warns(UserWarning, match=re.escape(CHANGED)):
        icl.load("linear/ssa/smoke", where=icl.Where(results=tmp_path / "results", progress=False))


def test_a_run_that_diverged_with_other_code_is_trained_again(run, tmp_path, edit):
    words = ("sweep", "--attn", "raw", *SMALL, *WILD)
    out, err = run.failed(*words)
    assert "1 of 1 trainings diverged" in err
    assert "trained:" not in out
    before = env_of(tmp_path)["finished"], sorted(tmp_path.rglob("env.json"))[0].stat().st_mtime_ns
    assert "trained again" not in run(*words)[2]
    assert before[1] == sorted(tmp_path.rglob("env.json"))[0].stat().st_mtime_ns
    edit("raw")
    code, _, err = run(*words)
    assert "diverged with other code than is here: it is trained again." in err
    assert env_of(tmp_path)["finished"] >= before[0]
    assert "trained again" not in run(*words)[2]


def test_a_run_from_before_is_not_compared_and_counted(run, tmp_path, edit, monkeypatch):
    monkeypatch.setattr(environment, "recorded_parts", lambda spec: {})
    monkeypatch.setattr(pipeline, "MADE_BY", "another name")
    assert run("sweep", "--attn", "ssa", *SMALL)[0] == 0
    for name in ("manifest.json", "measured.json"):
        next(tmp_path.rglob(name)).unlink()
    edit("ssa")
    assert "another version" not in run("sweep", "--attn", "ssa", *SMALL)[2]
    out = run("verify", str(tmp_path / "results"))[1]
    assert "code not known: 1 runs were made before it was recorded with which code" in out

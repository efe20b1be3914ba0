"""Models that were asked before: their numbers count on, and are those that asking all at once would give."""

import json
import os
import shutil

import pytest
from msgspec import structs

from icl_lab import analyses
from icl_lab.analyses import earlier_studies, findings, publish
from icl_lab.analyses.boundary import curves
from icl_lab.analyses.deviant import Deviant
from icl_lab.claims import experiment, folders, judge
from icl_lab.claims.sides import Sides
from icl_lab.comparison.verdict import State
from icl_lab.runs import study_folder
from icl_lab.runs.store import Store
from tests.cases import few
from tests.cli.test_report import TWO

pytestmark = [pytest.mark.usefixtures("quick_pictures"), pytest.mark.slow]


@pytest.fixture
def tiny(tmp_path, run, monkeypatch):
    """Ask the experiment, and return what it said; the runs of an earlier command are gone."""
    monkeypatch.setenv("ICL_LAB_EVIDENCE", "")
    files, results = tmp_path / "experiments", tmp_path / "results"
    files.mkdir()
    (files / "tiny.toml").write_text(TWO)

    def ask(*words, root=results):
        shutil.rmtree(root / "runs", ignore_errors=True)
        here = ("--preset", "smoke", "--results", str(root), "--experiments", str(files))
        out, err = run.ok("experiment", "tiny", *here, *words)
        return out + err

    ask.place, ask.runs, ask.files = results / "experiments" / "tiny-smoke", results / "runs", files
    return ask


def trained(tiny):
    return sorted(f"{path.parts[-4]} {path.parts[-2]}" for path in tiny.runs.rglob("model.safetensors"))


def test_only_what_was_not_asked_by_this_code_is_asked(tiny, tmp_path, monkeypatch):
    """New seeds; all models where a study keeps too little, or where other code of the analysis found its numbers."""
    tiny("--seeds", "2")
    with monkeypatch.context() as little:
        little.setattr(Deviant, "needed", ("positions", "gone"))
        assert str(tiny.place) not in tiny("--seeds", "2").partition("wrote ")[0]  # nothing a reader could do about it
        assert len(trained(tiny)) == 4
    first = json.loads((tiny.place / "study.json").read_text())
    assert "asked" not in first
    assert len(first["code"]) == 12
    said = tiny("--seeds", "3")
    assert f"what was asked before is taken from {tiny.place}" in said
    assert trained(tiny) == ["softmax seed-2", "ssa seed-2"]
    made = json.loads((tiny.place / "study.json").read_text())
    assert made["asked"] == {f"{rule}, seed {seed}": first["commit"] for rule in ("softmax", "ssa") for seed in (0, 1)}
    assert "4 of its models were asked by earlier commands" in (tiny.place / "table.md").read_text()
    whole = {name: (tiny.place / name).read_bytes() for name in ("deviant.csv", "positions.csv")}
    monkeypatch.setattr(publish, "code", lambda name: "0" * 12)  # though its version is the same
    said = tiny("--seeds", "3")
    assert "was found by another version of the analysis 'deviant': its models are asked again." in said
    assert len(trained(tiny)) == 6
    assert json.loads((tiny.place / "study.json").read_text())["code"] == "0" * 12
    assert {name: (tiny.place / name).read_bytes() for name in whole} == whole


@pytest.mark.exhaustive
def test_studies_with_single_prompts_are_preferred(tiny, monkeypatch):
    """One from before they were kept holds the same numbers of the same models, and perhaps of more seeds."""
    with monkeypatch.context() as before:
        before.setattr(findings, "SEEDS", 0)
        tiny("--seeds", "3")
    tiny.place.rename(tiny.place.with_name("tiny-smoke-000000"))
    tiny("--seeds", "2", "--force")
    tiny.place.rename(tiny.place.with_name("tiny-smoke-ffffff"))
    tiny("--seeds", "3")
    assert trained(tiny) == []
    kept = [line.split(",") for line in (tiny.place / "prompts.csv").read_text().splitlines()[1:]]
    assert {line[4] for line in kept if line[1] == "ssa"} == {"0", "1"}
    # Of both folders with three seeds claims are read from the one that tells the variance over prompts.
    made, store = experiment.load("tiny", tiny.files), Store(tiny.runs.parent)
    finished = Sides(made, store, "smoke")
    for places in (folders.of("tiny", store, "smoke"), folders.of("tiny", store, "smoke")[::-1]):
        kept = folders.Studies(finished, made.question(), places)
        read = kept.read(kept.place(made.claims[0]))
        assert "prompts" in read.grids
        assert read.seeds == [0, 1, 2]


@pytest.mark.exhaustive
def test_another_question_a_damaged_number_and_force_ask_all(tiny):
    tiny("--seeds", "2")
    for words in (["--force"], ["--no-evidence"]):
        tiny("--seeds", "3", *words)
        assert len(trained(tiny)) == 6
    table = tiny.place / "deviant.csv"
    table.write_text(table.read_text().replace("softmax", "SOFTMAX", 1))
    assert "is damaged or edited" in tiny("--seeds", "3")
    assert len(trained(tiny)) == 6
    (tiny.files / "tiny.toml").write_text(TWO.replace("prompts = 16", "prompts = 17"))
    assert "asked before" not in tiny("--seeds", "3")
    assert len(trained(tiny)) == 6


@pytest.mark.exhaustive
def test_numbers_of_another_analysis_version_are_not_mixed(tiny, monkeypatch):
    tiny("--seeds", "4")
    monkeypatch.setattr(Deviant, "version", 2)
    assert "asked before" not in tiny("--seeds", "3")
    assert len(trained(tiny)) == 6
    (now,) = tiny.place.parent.glob("tiny-smoke-*")
    assert json.loads((now / "study.json").read_text())["options"]["version"] == 2
    # Claims are read from what the latest version found, though there are fewer runs of it.
    store = Store(tiny.runs.parent)
    assert folders.fullest("tiny", store, "smoke") == now
    made = experiment.load("tiny", tiny.files)
    kept = folders.Studies(Sides(made, store, "smoke", ()), made.question(), folders.of("tiny", store, "smoke"))
    assert [kept.place(claim) for claim in made.claims] == [now] * len(made.claims)


def test_until_decided_trains_what_was_not_asked_before(tiny):
    tiny("--seeds", "2")
    assert "tiny: to 3 seeds of softmax, ssa, for 2 open claims" in tiny("--until-decided", "--dry-run")
    tiny("--until-decided")
    seeds = {name.rpartition("-")[2] for name in trained(tiny)}
    assert seeds == {str(seed) for seed in range(2, 1 + max(map(int, seeds)))}


def looked_at(tiny):
    """How many seeds each claim was looked at with, all of which decide nothing."""
    found = judge.stored(experiment.load("tiny", tiny.files), Store(tiny.runs.parent), "smoke")[1]
    return [len(each.seeds) for each in found]


@pytest.mark.exhaustive
def test_more_seeds_of_a_variant_are_stored_and_read_apart(tiny, monkeypatch):
    monkeypatch.setattr(judge, "settled", lambda *words: False)
    tiny("--seeds", "3")
    whole = (tiny.place / "deviant.csv").read_bytes()
    said = tiny("--seeds", "4", "--variant", "softmax")
    assert f"what was asked before is taken from {tiny.place}" in said
    assert trained(tiny) == ["softmax seed-3"]
    assert (tiny.place / "deviant.csv").read_bytes() == whole
    (part,) = tiny.place.parent.glob("tiny-smoke-*")

    said = tiny("--seeds", "5", "--variant", "softmax")
    assert f"what was asked before is taken from {tiny.place} and {part}" in said
    assert trained(tiny) == ["softmax seed-4"]
    assert list(tiny.place.parent.glob("tiny-smoke-*")) == [part]  # it becomes the whole of its own question
    assert looked_at(tiny) == [5, 3]  # though the other has more runs

    tiny("--seeds", "5")
    assert trained(tiny) == ["ssa seed-3", "ssa seed-4"]
    made = json.loads((tiny.place / "study.json").read_text())
    assert sorted(made["asked"]) == [*(f"softmax, seed {k}" for k in range(5)), *(f"ssa, seed {k}" for k in range(3))]
    assert looked_at(tiny) == [5, 5]


def test_until_decided_skips_variants_of_decided_claims(tiny, monkeypatch):
    judged = judge.stored

    def stored(*words):
        said, (first, second) = judged(*words)
        return said, [first, structs.replace(second, state=State.NOT_LEARNED)]  # that of SSA

    monkeypatch.setattr(judge, "stored", stored)
    tiny("--seeds", "2")
    assert "tiny: to 3 seeds of softmax, for 1 open claim" in tiny("--until-decided", "--dry-run")
    tiny("--until-decided")
    assert {name.split()[0] for name in trained(tiny)} == {"softmax"}
    (part,) = tiny.place.parent.glob("tiny-smoke-*")
    assert "--variant softmax" in json.loads((part / "study.json").read_text())["command"]
    assert len(json.loads((tiny.place / "study.json").read_text())["runs"]) == 4


def test_a_record_without_runs_is_passed_over(tmp_path):
    other = study_folder.StudyRecord("deviant", {}, [])
    study_folder.publish(other, tmp_path / "there", {"a.csv": "1\n"}, {})
    member = study_folder.Member("ssa", "linear", "ssa", "smoke", "0", 0)
    asked = study_folder.StudyRecord("deviant", {}, [member])
    part = analyses.registry.part("deviant")()
    assert earlier_studies.find(asked, part, [tmp_path / "there"], print) is None


QUESTIONS = {
    "boundary": ("--contexts", "16", "--slopes", "1", "--scales", "1"),
    "deviant": ("--prompts", "16"),
    "learning": ("--no-evidence",),
}


@pytest.fixture(params=few(1, sorted(QUESTIONS, reverse=True)))
def question(request, run, tmp_path, monkeypatch):
    """Ask a question, and return what was said and the labels and seeds of the models that were asked."""
    monkeypatch.setenv("ICL_LAB_EVIDENCE", "")
    monkeypatch.setattr(curves, "SIDE", 40)  # as few points as the detector takes
    small = ["train.steps=30", "train.batch=8", "model.width=16", "test.prompts=64", "test.axes.sigma_x=1"]
    fixed = [word for setting in small for word in ("--set", setting)]
    words = ["--task", "linear", "--preset", "smoke", *fixed, *QUESTIONS[request.param]]
    asked, part = [], analyses.registry.part(request.param)
    measure = part.measure
    monkeypatch.setattr(part, "measure", lambda self, trained: asked.append(trained.run) or measure(self, trained))

    def ask(*more):
        asked.clear()
        out, err = run.ok(request.param, *words, *more)
        return out, err, sorted((each.name, each.seed) for each in asked)

    ask.folder, ask.name = tmp_path / "results", request.param
    return ask


def test_a_question_asked_again_is_read(question):
    rules = ("--attn", "softmax", "--attn", "ssa")
    table, said, asked = question(*rules)
    assert asked == [("softmax", 0), ("ssa", 0)]
    assert "asked before" not in said
    (folder,) = question.folder.glob(f"{question.name}-linear-smoke-*")
    numbers = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
    again, said, asked = question(*rules)
    assert asked == []
    assert f"what was asked before is taken from {folder}; --force asks again." in said
    assert again == table
    assert {path.name: path.read_bytes() for path in folder.glob("*.csv")} == numbers

    assert question(*rules, "--seeds", "2")[2] == [("softmax", 1), ("ssa", 1)]
    assert len(question(*rules, "--force")[2]) == 2
    (weights,) = question.folder.glob("runs/linear/ssa/smoke-*/seed-0/model.safetensors")
    later = weights.stat().st_mtime + 1e6  # as of a run that was trained again
    os.utime(weights, (later, later))
    assert len(question(*rules)[2]) == 2

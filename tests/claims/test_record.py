"""The record of verdicts, and the cells whose single prompts the evidence keeps for claims."""

import os
import re
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from icl_lab.base.errors import RunFailed
from icl_lab.claims import cost, judge, ledger, record
from icl_lab.claims import experiment as experiments
from icl_lab.claims.ledger import Finding
from icl_lab.claims.sides import claimed
from icl_lab.comparison import rates
from icl_lab.comparison.verdict import State
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"


@pytest.fixture
def repository(tmp_path):
    return Store(tmp_path / "results", Archive(ROOT / "results" / "evidence"))


@pytest.mark.slow
def test_a_record_is_used_only_for_its_own_runs(repository, monkeypatch):
    rows = ledger.stored(repository)[("ssa-table1", "lite2")]
    whole = experiments.load("ssa-table1", EXPERIMENTS)
    sides, _ = judge.fitted(whole, repository, "lite2")
    assert judge.current(sides, rows)
    assert not judge.current(sides, rows[:-1])
    other = experiments.msgspec.structs.replace(whole, sha256="0" * 64)
    assert not judge.current(judge.fitted(other, repository, "lite2")[0], rows)
    assert not judge.current(judge.fitted(whole, Store(repository.root), "lite2")[0], rows)  # without the evidence


@pytest.mark.slow
def test_a_run_of_the_user_is_judged_anew(repository):
    made = experiments.load("ssa-table1", EXPERIMENTS)
    rows = ledger.stored(repository)[("ssa-table1", "lite2")]
    spec = made.spec(made.variants[0], "lite2")
    kept = repository.run(spec, 0).files
    folder = repository.folder(spec) / "seed-0"
    folder.mkdir(parents=True)
    for name, data in kept.files().items():
        (folder / name).write_bytes(data)
    assert not judge.current(judge.fitted(made, repository, "lite2")[0], rows)


def test_the_command_prints_the_record_without_judging(run, monkeypatch, tmp_path):
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(ROOT / "results" / "evidence"))
    judged, whole = [], judge.judged
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(judge, "judged", lambda of, *given: judged.append(of.experiment.name) or whole(of, *given))
    words = ["claims", "--long", "--preset", "lite2", "--experiments", str(EXPERIMENTS)]
    words += ["--results", str(tmp_path / "none")]
    out, _ = run.ok(*words)
    recorded = ledger.stored(Store(tmp_path, Archive(ROOT / "results" / "evidence")))
    wanted = [row for (_, preset), rows in recorded.items() for row in rows if preset == "lite2"]
    assert set(judged).isdisjoint(each.experiment for each in wanted)
    assert sum(" | lite2" in line for line in out.splitlines()) == len(wanted)
    assert "  SSA errs less than softmax far from training (" in out
    said = "    below; smaller than printed | ratio 0.874 [0.785, 0.975], seeds 0 to 11; unpaired ["
    (line,) = [line for line in out.splitlines() if line.startswith(said)]
    assert "]; shared rate | 99.5 % interval | printed 0.0" in line
    code, out, _ = run(*(word for word in words if word != "--long"))
    heads = "| claim |", "| --- |"
    rows = [line for line in out.splitlines() if line.startswith("| ") and not line.startswith(heads)]
    assert len(rows) == len(wanted)
    numbers = "0.874 [0.785, 0.975] | 0.0637 | below, smaller | lite2, 12 |"
    assert f"| SSA errs less than softmax far from training | {numbers}" in rows
    code, out, _ = run(*words, "ssa-table1")
    assert next(line for line in out.splitlines() if re.match(r"[\w-]+: ", line)).startswith("ssa-table1: ")
    code, out, _ = run(*words, "--paper", "ssmax")
    assert "ssa-table1" not in out
    assert run("claims", "ssa-tabel1", "--experiments", str(EXPERIMENTS))[0] == 2


def test_a_record_of_nothing_is_refused_and_a_broken_one_named(tmp_path):
    with pytest.raises(RunFailed, match="nothing to record"):
        record.written(EXPERIMENTS, Store(tmp_path / "results"))
    (tmp_path / "evidence").mkdir()
    (tmp_path / "claims.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RunFailed, match=r"claims\.csv cannot be read: its columns .* icl-lab claims --record"):
        ledger.stored(Store(tmp_path / "none", Archive(tmp_path / "evidence")))


@pytest.mark.slow
def test_the_cells_that_claims_read_are_those_that_they_name(repository):
    """Of Table 1 at nano: sigma_f 4 to 10 and training conditions, at the one published length; own rates are tuned."""
    found = claimed(EXPERIMENTS, ["nano"], repository)
    made = [experiments.load(name, EXPERIMENTS) for name in ("ssa-table1", "table1-own-rates")]
    shared, plain = (each.spec(each.variant("ssa"), "nano") for each in made)
    (tuned,) = rates.own([plain], repository)
    assert tuned.train.rate == 0.01
    for spec in (shared, tuned):
        assert {cell["sigma_f"] for cell in found[spec.hash, ""]} == {1, 4, 5, 6, 7, 8, 9, 10}
    assert {(cell["sigma_x"], cell["length"]) for cell in found[shared.hash, ""]} == {(1, 40)}


def test_the_record_as_a_whole_is_read_where_nothing_has_changed(repository, tmp_path):
    basis = record.basis(EXPERIMENTS, repository)
    assert basis == ledger.recorded_basis(repository)
    other = tmp_path / "files"
    shutil.copytree(EXPERIMENTS, other)
    assert record.basis(other, repository) == basis
    path = other / "ssa-table1.toml"
    path.write_text(path.read_text() + "\n")
    assert record.basis(other, repository) not in (basis, "")
    (repository.root / "runs").mkdir(parents=True)
    assert record.basis(EXPERIMENTS, repository) == ""


@pytest.mark.parametrize("own", ["runs", "own/experiments"])
def test_own_results_are_not_mixed_into_the_record(tmp_path, own):
    (tmp_path / own).mkdir(parents=True)
    shutil.copytree(ROOT / "results" / "evidence", tmp_path / "evidence", copy_function=os.link)
    with pytest.raises(RunFailed, match=f"{own} is your own: the record is of the evidence alone"):
        record.written(EXPERIMENTS, Store(tmp_path, Archive(tmp_path / "evidence")))


def test_a_basis_that_is_none_is_said(tmp_path):
    (tmp_path / "evidence").mkdir()
    (tmp_path / ledger.BASIS).write_text("basis,correlation\nx,much\n")
    with pytest.raises(RunFailed, match=r"claims-basis\.csv cannot be read"):
        ledger.seed_correlation(Store(tmp_path / "none", Archive(tmp_path / "evidence")))


def test_an_edited_record_is_refused(tmp_path):
    shutil.copytree(ROOT / "results" / "evidence", tmp_path / "evidence", copy_function=os.link)
    for name in (ledger.NAME, ledger.BASIS):
        shutil.copy(ROOT / "results" / name, tmp_path / name)
    store = Store(tmp_path / "none", Archive(tmp_path / "evidence"))
    rows = ledger.stored(store)
    assert rows
    for name, old, new in ((ledger.NAME, "0.5", "0.6"), (ledger.BASIS, "0.000", "0.900")):
        whole = (tmp_path / name).read_text()
        (tmp_path / name).write_text(whole.replace(old, new, 1))
        with pytest.raises(RunFailed, match=r"claims\.csv was damaged or edited"):
            ledger.stored(store)
        with pytest.raises(RunFailed, match=r"claims\.csv was damaged or edited"):
            ledger.seed_correlation(store)
        (tmp_path / name).write_text(whole)
    (tmp_path / ledger.NAME).unlink()
    with pytest.raises(RunFailed, match="cannot be read"):
        ledger.seed_correlation(store)


def test_rows_that_are_no_longer_current_are_judged_anew(repository, monkeypatch):
    rows = ledger.stored(repository)[("ssa-table1", "lite2")]
    judged = []
    monkeypatch.setattr(judge, "findings", lambda sides, costs: judged.append(sides.experiment.name) or [])
    costs = cost.Costs(repository, "lite2")
    for changed, wanted in ((rows, []), ([replace(each, judged_from="0" * 16) for each in rows], ["ssa-table1"])):
        judge.recorded("ssa-table1", EXPERIMENTS, repository, "lite2", {("ssa-table1", "lite2"): changed}, costs)
        assert judged == wanted


def test_own_runs_are_never_passed_over_for_the_record(repository, monkeypatch):
    asked = []
    monkeypatch.setattr(judge, "recorded", lambda name, *given: asked.append(name) or ([], []))
    whole, _ = record.everything(EXPERIMENTS, repository, ["lite2"])
    assert asked == []
    assert {each.preset for each in whole} == {"lite2"}
    (repository.root / "runs" / "linear" / "ssa" / "lite2-0123456789ab").mkdir(parents=True)
    found, remarks = record.everything(EXPERIMENTS, repository, ["lite2"])
    assert remarks == {name: [] for name in asked}
    assert "ssa-table1" in asked
    assert {experiments.load(name, EXPERIMENTS).task.partition(":")[0] for name in asked} == {"linear"}
    assert found == [each for each in whole if each.experiment not in asked] != []
    asked.clear()
    (repository.root / "runs" / "needle" / "ssa" / "smoke-0123456789ab" / "seed-0").mkdir(parents=True)
    record.everything(EXPERIMENTS, repository, ["lite", "smoke"])
    tasks = {name: experiments.load(name, EXPERIMENTS).task.partition(":")[0] for name in asked}
    assert set(tasks.values()) == {"needle"}
    of_needle = set(asked)
    asked.clear()
    record.everything(EXPERIMENTS, repository, ["smoke"])
    assert set(asked) == of_needle
    asked.clear()
    (repository.root / "own" / "experiments" / "ssa-figure2-lite2").mkdir(parents=True)
    record.everything(EXPERIMENTS, repository, ["lite2"])
    assert "ssa-figure2" in asked
    monkeypatch.setattr(ledger, "recorded_basis", lambda store: "of other files")
    record.everything(EXPERIMENTS, repository, ["lite2"])
    assert set(asked) == set(experiments.names(EXPERIMENTS))


def test_experiments_are_told_where_they_have_runs():
    """One that has run nowhere is told once, so that it is not forgotten."""
    states = ["begun nano not run", "begun lite not run", "begun lite judged", "none nano not run", "none lite not run"]
    told = [each.split(maxsplit=2) for each in states]
    rows = [Finding(experiment=n, preset=p, claim="c", relation="below", state=State(s)) for n, p, s in told]
    assert record.with_runs(rows) == rows[1:4]

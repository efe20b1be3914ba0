"""What made a run: nothing old, partial or foreign is taken for the number that is asked for."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

import icl_lab as icl
from icl_lab import normalizers, pipeline
from icl_lab.base.errors import BadValue, RunFailed, Stopped, UnknownName
from icl_lab.comparison import rates
from icl_lab.execute.announce import changes
from icl_lab.execute.plan import RunPlan
from icl_lab.extras.site.specifications import every
from icl_lab.normalizers.base import Site
from icl_lab.runs import checkpoints, provenance
from icl_lab.runs.evidence.archive import PLACE as EVIDENCE
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from tests import equal_code
from tests.cases import few, representatives
from tests.planted import forget, plant

pytestmark = pytest.mark.usefixtures("quick_pictures")

SMALL = ["train.steps=6", "train.batch=4", "test.prompts=64", "model.width=16", "model.heads=2", "test.axes.length=5"]
SMALL += ["test.axes.sigma_f=1,2", "test.axes.sigma_x=1"]
PACKAGE = Path(icl.__file__).parent
MODULES = {
    "training": [f"icl_lab.training.{path.stem}" for path in sorted((PACKAGE / "training").glob("[a-z]*.py"))],
    "model": [
        f"icl_lab.model.{path.stem}"
        for path in sorted((PACKAGE / "model").glob("[a-z]*.py")) if path.stem != "positions"
    ],
    "measuring": ["icl_lab.runs.measure", "icl_lab.runs.floor", "icl_lab.pipeline"],
}  # fmt: skip
EDITED = [(kind, module) for kind, modules in MODULES.items() for module in modules]


@pytest.fixture
def edit(monkeypatch):
    """Plants an edit in a module from here on."""
    yield lambda module, name="": plant(monkeypatch, module, name)
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run of softmax, one of qassmax, and their comparison."""
    where = icl.Where(results=tmp_path_factory.mktemp("made") / "results", progress=False, evidence=False, jobs=1)
    icl.compare("linear", ["softmax", "qassmax"], "smoke", SMALL, seeds=2, where=where)
    return where


def run_of(where, attn="softmax"):
    return where.store().run(resolve("linear", attn, "smoke", SMALL), 0)


def test_a_run_is_of_the_code_that_made_it(made):
    run = run_of(made)
    assert str(provenance.of(run)) == "same"
    record = run.env()["made_by"]
    parts = {"task 'linear'", "normalizer 'softmax'", "position code 'learned'"}
    assert set(record["code"]) == {"model", "training", *parts}
    assert record["versions"] == provenance.here()
    measured = json.loads((run.folder / "measured.json").read_text())
    assert set(measured["code"]) == set(record["code"]) - {"training"} | {"measuring"}


@pytest.mark.parametrize(("kind", "module"), EDITED)
def test_an_edit_of_any_module_is_told_by_all_readers(made, edit, kind, module):
    run = run_of(made)
    edit(module)
    told = str(provenance.of(run))
    assert told.startswith("changed: ")
    assert kind in told.removeprefix("changed: ").split(", ")
    assert any(f"another version of the {kind} " in line for line in changes([run]))
    assert f"another version of the {kind} " in provenance.words([run])


@pytest.mark.parametrize("module", ["icl_lab.normalizers.softmax", "icl_lab.normalizers.base", "icl_lab.tasks.linear",
                                    "icl_lab.tasks.base", "icl_lab.tasks.estimators",
                                    "icl_lab.base.rng", "icl_lab.model.positions"])  # fmt: skip
def test_an_edit_of_a_part_is_told(made, edit, module):
    edit(module)
    assert str(provenance.of(run_of(made))).startswith("changed: ")


def test_softmax_inside_another_normalizer_counts(made, edit):
    edit("icl_lab.normalizers.softmax")
    assert str(provenance.of(run_of(made, "qassmax"))) == "changed: normalizer 'qassmax'"


@pytest.mark.parametrize("name", representatives(normalizers.names()))
def test_the_classes_of_all_modules_of_a_normalizer_are_hashed(name, edit):
    def hashed():
        return provenance._parts((("normalizer", normalizers.registry.part(name)),), (name,), 4, 8)

    before = hashed()
    rule = normalizers.registry.build(name, Site(4, 8, 64))
    own = {type(module).__module__ for module in rule.modules()} - {"torch"}
    for module in sorted(module for module in own if module.startswith("icl_lab.")):
        edit(module)
        assert hashed() != before, module


@pytest.mark.slow
def test_every_reader_says_that_the_training_is_another(made, edit, run):
    """The list, a table, a page, Python, the cells, the site, claims and own rates: each asks the one function."""
    edit("icl_lab.training.optimizers")
    results = str(made.root)
    out = run("list", "runs", "--results", results)[1]
    assert "finished, changed: training" in out
    runs = icl.list_runs(where=made)
    assert set(runs[runs.finished].code) == {"changed: training"}
    with pytest.warns(UserWarning, match="another version of the training"):
        cells = icl.cells(where=made)
    assert set(cells.code) == {"changed: training"}
    with pytest.warns(UserWarning, match="another version of the training"):
        study = icl.compare("linear", ["softmax", "qassmax"], "smoke", SMALL, seeds=2, where=made)
    said = "Not of one code: 4 of 4 runs were made with another version of the training (sha256 "
    assert said in (study.folder / "table.md").read_text()
    assert said in (study.folder / "report.html").read_text()
    err = run("evidence", "add", "--results", results, "--dry-run")[2]
    assert "were made with another version of the training" in err
    notes = {note for each in every(made.store())[0] for note in each.notes}
    assert notes == {"made with other code (changed: training)"}


def test_versions_are_told(made, monkeypatch):
    monkeypatch.setattr(provenance, "here", lambda: {"torch": "9.9.9", "Python": "3.99"})
    run = run_of(made)
    assert str(provenance.of(run)) == "changed: Python, torch"
    made_with = provenance.computing({"torch": torch.__version__}, "3.11")["torch"]
    assert f"torch {made_with} (here 9.9.9)" in provenance.words([run])


def test_runs_of_two_versions_of_torch_are_told(made, monkeypatch):
    """Also of runs from before records, which have the versions alone."""
    one, other = run_of(made), run_of(made, "qassmax")
    known = type(one).env

    def env(self):
        found = {name: value for name, value in known(self).items() if name != "made_by"}
        return found | {"versions": {"torch": "1.0.0+cpu" if self.spec.attn == "softmax" else "2.0.0"}}

    monkeypatch.setattr(type(one), "env", env)
    assert "runs were made with torch 1.0.0 and 2.0.0, whose bits differ" in provenance.words([one, other])


def altered(run, name, change):
    """A file of a run written anew, and its manifest removed, as by hand."""
    (run.folder / "manifest.json").unlink(missing_ok=True)
    path = run.folder / name
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


@pytest.fixture
def own(lab):
    spec = resolve("linear", "softmax", "smoke", SMALL)
    pipeline.sweep(spec, 0, lab)
    return lab.store.run(spec, 0)


def test_a_record_of_a_later_version_is_named(own):
    altered(own, "env.json", lambda env: env["made_by"].update(version=2, code="?"))
    assert str(provenance.of(own)) == "changed: record"
    assert "a later icl_lab, whose record of version 2 this one (version 1) cannot read; --retrain" in changes([own])[0]


def test_a_damaged_record_is_one_line(own):
    altered(own, "env.json", lambda env: env["made_by"].update(code=3))
    with pytest.raises(RunFailed, match=r"env\.json: its record of the code cannot be read .*; delete its folder, or"):
        provenance.of(own)
    assert provenance.word(own) == "damaged"
    (own.folder / "measured.json").write_text("{")
    altered(own, "env.json", lambda env: env.pop("made_by"))
    with pytest.raises(RunFailed, match=r"measured\.json cannot be read"):
        provenance.of(own)


def test_a_missing_record_is_unknown(own):
    altered(own, "env.json", lambda env: env.pop("made_by"))
    (own.folder / "measured.json").unlink()
    assert str(provenance.of(own)) == "unknown"
    assert not provenance.of(own)


def stopped(spec, lab):
    """A training that was stopped after its first steps."""
    run = lab.store.run(spec, 0)
    steps = iter([False] * 3)
    held = Lab(lab.store, lab.device, say=lab.say, stopping=lambda: next(steps, True))
    with pytest.raises(Stopped):
        pipeline.load_or_train(run, held)
    assert run.checkpoint_step > 0
    return run


@pytest.mark.parametrize("module", ["icl_lab.normalizers.ssa", "icl_lab.tasks.linear", "icl_lab.training.optimizers"])
def test_a_checkpoint_of_other_code_starts_anew_and_says_so(lab, edit, module):
    spec = resolve("linear", "ssa", "smoke", [*SMALL, "train.steps=20"])
    run = stopped(spec, lab)
    edit(module)
    pipeline.load_or_train(run, lab)
    assert any(f"{run.folder / 'checkpoint.pt'} was made with another version of " in line for line in lab.said)
    assert "no checkpoint is of this code; starts from step 0." in lab.said
    assert run.env()["steps_timed"] == 20
    assert str(provenance.of(run)) == "same"


@pytest.mark.parametrize("words", [["--jobs", "2"], ["--jobs", "1"], ["--shard", "2/2"]])
@pytest.mark.slow
def test_whoever_takes_up_a_checkpoint_of_other_code_says_so(lab, words, run, tmp_path, monkeypatch):
    """The record in the checkpoint is another one, as workers in processes of their own hash the code as it is."""
    spec = resolve("linear", "ssa", "smoke", [*SMALL, "train.steps=20"])
    held = stopped(spec, lab)
    path = held.folder / checkpoints.NAMES[0]
    state = checkpoints.unpacked(path)
    state["made_by"]["code"]["training"] = "0" * 12
    path.write_bytes(checkpoints.packed(state))
    settings = [word for each in [*SMALL, "train.steps=20"] for word in ("--set", each)]
    asked = ["--task", "linear", "--attn", "ssa", "--preset", "smoke", *settings, "--seeds", "2", *words]
    code, _, err = run("sweep", *asked, "--results", str(lab.store.root))
    assert "its checkpoint was made with another version of the training (sha256 00000000, now " in err
    assert "; it starts anew." in err
    assert held.env()["steps_timed"] == 20


def test_the_model_of_other_code_is_not_taken_for_another_test(own, lab, edit):
    edit("icl_lab.training.loop")
    other = resolve("linear", "softmax", "smoke", [*SMALL, "test.prompts=128"])
    pipeline.sweep(other, 0, lab)
    assert any("was trained alike, but with another version of the training" in line for line in lab.said)
    assert str(provenance.of(lab.store.run(other, 0))) == "same"


KILLED = """
import os, sys, torch
from pathlib import Path
from icl_lab import pipeline
from icl_lab.base import files
from icl_lab.runs import run as runs
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
known = runs.publish
def publish(path, data):
    if path.name == sys.argv[2]:
        os.kill(os.getpid(), 9)
    known(path, data)
runs.publish = publish
lab = Lab(Store(Path(sys.argv[1])), torch.device("cpu"))
pipeline.sweep(resolve("linear", "softmax", "smoke", sys.argv[3:]), 0, lab)
"""


@pytest.mark.parametrize("name", few(1, ["grid.csv", "model.safetensors"]))
@pytest.mark.slow
def test_a_process_killed_after_its_record_leaves_no_result(lab, name, edit):
    """The record is there, and the weights or the grid are not: the next command makes them, of its own code."""
    left = subprocess.run([sys.executable, "-c", KILLED, str(lab.store.root), name, *SMALL], check=False)
    assert left.returncode == -signal.SIGKILL
    run = lab.store.run(resolve("linear", "softmax", "smoke", SMALL), 0)
    assert (run.folder / "env.json").exists()
    assert (run.folder / "measured.json").exists() == (name == "grid.csv")
    assert not (run.folder / name).exists()
    edit("icl_lab.runs.measure")
    pipeline.sweep(run.spec, 0, lab)
    assert str(provenance.of(run)) == "same"
    assert run.measured()


MINE = '''
from icl_lab.normalizers import registry
from icl_lab.normalizers.softmax import Softmax
from {helper} import scale

@registry.add("{name}")
class Mine(Softmax):
    """Softmax, scaled.

    Formula: w = softmax(c z)
    Paper: none
    """

    def __init__(self, site):
        super().__init__(site)
        self.c = scale()
'''
ASK = """
import sys
import icl_lab as icl
from icl_lab.runs import provenance
from icl_lab.runs.spec import resolve
for given, name in zip(sys.argv[1::2], sys.argv[2::2]):
    icl.import_parts(given)
    print(provenance.now(resolve("linear", name, "smoke")).code[f"normalizer '{name}'"])
"""


@pytest.mark.slow
def test_helpers_of_parts_from_outside_count(tmp_path):
    """A helper file in the folder that is imported, and one that lies on the path."""
    folder, path = tmp_path / "pack", tmp_path / "path"
    folder.mkdir()
    path.mkdir()
    (folder / "__init__.py").write_text(MINE.format(helper="pack.helper", name="mine"))
    (tmp_path / "single.py").write_text(MINE.format(helper="besides", name="single"))
    words = [sys.executable, "-c", ASK, str(folder), "mine", str(tmp_path / "single.py"), "single"]
    environment = os.environ | {"PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{path}"}
    said = []
    for factor in (2.0, 2.0, 3.0):
        for place in (folder / "helper.py", path / "besides.py"):
            place.write_text(f"def scale():\n    return {factor}\n")
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        said.append(done.stdout.split())
    before, again, after = said
    assert before == again
    assert not {*before} & {*after}


@pytest.mark.slow
def test_a_file_that_changed_since_its_import_is_refused(tmp_path):
    (tmp_path / "single.py").write_text(MINE.format(helper="math", name="late").replace("import scale", "import pi"))
    source = (tmp_path / "single.py").read_text().replace("scale()", "pi")
    (tmp_path / "single.py").write_text(source)
    changed = "icl.import_parts(given)\n    open(given, 'a').write('x = 1')\n"
    words = [sys.executable, "-c", ASK.replace("icl.import_parts(given)\n", changed)]
    done = subprocess.run([*words, str(tmp_path / "single.py"), "late"], capture_output=True, text=True, check=False)
    assert "has changed since it was imported; give the command again." in done.stderr


def test_a_run_of_a_part_that_is_not_here_is_unknown(own):
    """Its import was not given, or its folder has vanished: who lists runs is told nothing wrong of it."""
    lost = replace(own, spec=msgspec.structs.replace(own.spec, attn="gone"))
    assert str(provenance.of(lost)) == "unknown"
    with pytest.raises(UnknownName, match="gone"):
        resolve("linear", "gone", "smoke")


def test_a_curve_of_other_code_is_refused(lab, edit):
    spec = resolve("linear", "softmax", "smoke", SMALL)
    for factor in (0.5, 1.0, 2.0):
        pipeline.sweep(rates.tuning(spec, factor), 100, lab)
    rates.check_code([spec], lab.store)
    edit("icl_lab.training.optimizers")
    with pytest.raises(BadValue, match=r"was made with other code \(training\); make it: icl-lab rates .*--retrain"):
        rates.check_code([spec], lab.store)
    plan = RunPlan("linear", ["softmax"], "smoke", [*SMALL, "rates=own"])
    with pytest.raises(BadValue, match="was made with other code"):
        plan.runs(lab.store)


def test_retrain_is_no_force(lab, run):
    words = ["--task", "linear", "--attn", "softmax", "--preset", "smoke", "--results", str(lab.store.root)]
    words += [word for each in SMALL for word in ("--set", each)]
    assert run("sweep", *words)[0] == 0
    assert "--retrain repeats runs" in run.refused("sweep", *words, "--force")[1]
    assert "--retrain: 1 run to be done anew, about 1 s." in run("sweep", *words, "--retrain")[2]


ALONE = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
from icl_lab.runs import provenance
from icl_lab.runs.spec import resolve
record = provenance.now(resolve("linear", "ssa", "smoke"), "", "measuring")
print(sorted(record.code.items()), provenance.code_of("training"))
"""


@pytest.mark.slow
def test_hashes_do_not_depend_on_what_a_command_loads():
    words = [sys.executable, "-c", ALONE]
    asked = [[], ["icl_lab.pipeline", "icl_lab.api", "icl_lab.cli.main"]]
    said = [subprocess.run([*words, *each], capture_output=True, text=True, check=True).stdout for each in asked]
    assert said[0] == said[1]


def test_hashes_of_equal_bits_are_the_same_code(own, edit, monkeypatch, tmp_path):
    """A chain of refactorings: the first hash is equal to the last, and to no other."""
    old = own.env()["made_by"]["code"]["training"]
    edit("icl_lab.training.muon")
    assert str(provenance.of(own)) == "changed: training"
    now, between = provenance.code_of("training"), "1" * 12
    rows = ["kind,old,new,commit", f"training,{old},{between},aa", f"training,{between},{now},bb"]
    table = tmp_path / "equal_code.csv"
    table.write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(provenance, "EQUAL", table)
    provenance._equal.cache_clear()
    assert str(provenance.of(own)) == "same"
    assert not provenance.equal(old, "2" * 12)
    provenance._equal.cache_clear()


@pytest.mark.parametrize(("other", "rows"), [(["w", "g"], 1), (["w", "h"], 0)])
def test_a_row_of_equal_code_needs_equal_weights_and_cells(other, rows):
    hashes = {"old": {"training": ["a", []]}, "new": {"training": ["b", []]}}

    def asking(tree, code, *words):
        return hashes[tree] if code == equal_code.HASHES else [["w", "g"] if tree == "old" else other] * 5

    found, others = equal_code.equal_rows("old", "new", "c", asking)
    assert len(found) == rows
    assert len(others) == (0 if rows else 5)
    assert found in ([], [{"kind": "training", "old": "a", "new": "b", "commit": "c"}])


def test_a_part_of_other_bits_has_no_row_and_others_have():
    parts = ("stored task 'a'", "stored task 'b'")
    hashes = {tree: {part: [f"{tree} {part}", ["linear", part]] for part in parts} for tree in ("old", "new")}

    def asking(tree, code, *words):
        golden = [["w", "g"]] * len(equal_code.RECIPES)
        return hashes[tree] if code == equal_code.HASHES else [*golden, ["w", tree], ["w", "g"]]

    found, others = equal_code.equal_rows("old", "new", "c", asking)
    assert [row["kind"] for row in found] == ["stored task 'b'"]
    assert [recipe[1] for recipe in others] == ["stored task 'a'"]


@pytest.mark.slow
def test_the_evidence_is_of_this_code_or_the_changelog_says_so():
    """A refactoring with equal bits gets a row by tests/equal_code.py; another change is named by its old hash."""
    root = Path(__file__).parents[2]
    found = {difference for _, difference in provenance.changed(Store(Path("none"), Archive(root / EVIDENCE)).runs())}
    changes_told = (root / "CHANGELOG.md").read_text()
    assert [each for each in found if each.then[:8] not in changes_told and each.kind not in ("torch", "Python")] == []


def test_equalities_name_commits():
    rows = (Path(provenance.__file__).with_name("equal_code.csv")).read_text().splitlines()[1:]
    assert [row for row in rows if not re.fullmatch(r"[0-9a-f]{8}", row.rpartition(",")[2])] == []

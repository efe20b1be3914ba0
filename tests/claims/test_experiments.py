"""Experiments as files, claims as data, and verdicts that come from stored numbers."""

import dataclasses
import hashlib
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from icl_lab import tasks
from icl_lab.analyses.learning import Learning
from icl_lab.analyses.needle import NeedleScores
from icl_lab.analyses.saturation import Saturation
from icl_lab.base import published
from icl_lab.base.errors import BadValue, Undefined, UnknownName
from icl_lab.base.files import publish
from icl_lab.base.grid import Grid
from icl_lab.claims import experiment, files, folders, judge, ledger, printed, study
from icl_lab.claims.experiment import state
from icl_lab.claims.schema import Quantity
from icl_lab.claims.sides import AnalysisSides, Sides, combinations, errors_of_reference, sides_of
from icl_lab.comparison.verdict import EffectSize, State
from icl_lab.pipeline import sweep
from icl_lab.runs import study_folder
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import Member, StudyRecord
from icl_lab.runs.summary import training_cell

pytestmark = pytest.mark.usefixtures("quick_pictures")

FOLDER = Path(__file__).parents[2] / "experiments"
NAMES = experiment.names(FOLDER)

SMALL = """
title = "A title"
paper = "A paper"
task = "linear"
baseline = "softmax"
conditions = "None."
set = ["train.steps=60", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64", "test.axes.length=5,12"]

[printed]
table = "ssa_table1"
row = "method"
axis = "sigma_f"
column = "sigma"
value = "mse"
shifted = { Softmax = -1 }

[[variants]]
name = "softmax"
attn = "softmax"
printed = "Softmax"

[[variants]]
name = "wide"
attn = "ssa"
set = ["model.width=32"]

[[claims]]
statement = "Errors rise"
where = "here"
left = { of = "softmax", cells = { sigma_f = [10] } }
is = "above"
right = { of = "softmax", cells = { sigma_f = [1] } }

[[claims]]
statement = "An exact normalizer is better"
where = "here"
left = { of = "reference:least-squares", cells = { sigma_f = [2, 10] } }
is = "above"
right = { of = "wide", cells = { sigma_f = [2, 10] } }

[[claims]]
statement = "Of cells that nobody measured"
where = "here"
left = { of = "wide", cells = { sigma_f = [7] } }
is = "below"
right = { of = "softmax", cells = { sigma_f = [7] } }
"""


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_file_resolves_at_lite_and_at_the_papers_size(name):
    made = experiment.load(name, FOLDER)
    task = tasks.build(made.task)
    for preset in ("lite", "paper"):
        specs = [made.spec(variant, preset) for variant in made.variants]
        runs = {(spec.hash, variant.swap) for spec, variant in zip(specs, made.variants, strict=True)}
        assert len(runs) == len(specs), "two variants are the same run"
        cells = {axis: set(values) for axis, values in specs[0].test.axes.items()}
        for spec in specs:  # else nothing says whether it has learned its task
            home = training_cell(task, spec).items()
            assert all(axis in task.facets or value in spec.test.axes[axis] for axis, value in home), spec.name
        for claim in made.claims if made.analysis == "compare" else ():
            for axis, values in (*claim.left.cells.items(), *claim.right.cells.items()):
                assert set(values) <= cells[axis], (claim.statement, axis)
    assert set(PRESETS) >= {"lite", "paper"}


@pytest.mark.parametrize("name", NAMES)
def test_every_printed_row_and_number_was_printed(name):
    made = experiment.load(name, FOLDER)
    rows = printed.rows(made, overlay=False)
    columns = {"poster-task3": 4, "text-lssa-table4": 4, "text-lssa-table4-functions": 4}
    columns |= {f"text-lssa-table{n}": 1 for n in (1, 2, 3)}
    for variant in made.variants:
        assert not variant.printed or len(rows[variant.name]) == columns.get(name, 10)
    tables = [f"ssa_{table}" for table in ("table1", "table5", "table6", "reference_predictors")]
    tables += [f"lssa_table{n}" for n in (1, 2, 3, 4)]
    texts = {cell.text for table in tables for row in published.load(table).rows for cell in row.values()}
    for claim in made.claims:
        for number in re.findall(r"\d+\.\d+|\d+e-\d+", claim.published.partition("(computed")[0]):
            assert any(number in text for text in texts), (claim.statement, number)


def test_doubts_come_along_and_the_overlay_says_what_it_is():
    made = experiment.load("ssa-table1", FOLDER)
    plain, moved = (printed.rows(made, overlay) for overlay in (False, True))
    assert plain["softmax"][10] == "45.35"
    assert "softmax, columns moved by -1" not in plain
    assert moved["softmax"] == plain["softmax"]
    assert moved["softmax, columns moved by -1"][9] == "45.35"
    assert not any("ssa, columns" in name for name in moved)
    notes = printed.doubts(made)
    assert any(note.startswith("Softmax: Very probably printed one column too far right") for note in notes)
    assert len(notes) == len(set(notes))


def test_combinations_of_cells():
    training = {"sigma_x": 1.0, "sigma_f": 1.0, "length": 40.0}
    found = combinations({"sigma_x": [1, 10], "sigma_f": [4, 5]}, training)
    assert [(cell["sigma_x"], cell["sigma_f"]) for cell in found] == [(1, 4), (1, 5), (10, 4), (10, 5)]
    assert all(cell["length"] == 40 for cell in found)
    assert combinations({}, training) == [training]


PRINTED = """
[[claims]]
statement = "Errs as much as printed"
where = "here"
left = { of = "wide", cells = { sigma_f = [9, 10] } }
is = "equal"
right = { of = "printed:softmax", cells = { sigma_f = [9, 10] } }
"""


def test_a_printed_row_is_one_side_of_a_claim(tmp_path):
    """Table 1 prints 27.99 and 45.35 for softmax at sigma 9 and 10; errors are compared by their mean logarithm."""
    (tmp_path / "small.toml").write_text(SMALL + PRINTED)
    made = experiment.load("small", tmp_path)
    side = made.claims[-1].right
    assert printed.numbers(made, side) == [27.99, 45.35]
    sides = Sides(made, Store(tmp_path / "results"), "smoke")
    value = sides.values(made.claims[-1], side, [0])[0]
    assert math.exp(value.value) == pytest.approx(math.sqrt(27.99 * 45.35))
    assert value.resamples is None
    assert sides.variant("printed:wide").name == "wide"


def test_a_printed_row_that_is_not_there_is_said(tmp_path):
    for old, new, complaint in (
        ("printed:softmax", "printed:wide", "'wide'.*There are: softmax"),
        ('printed:softmax", cells = { sigma_f = [9, 10]', 'printed:softmax", cells = { sigma_x = [1]', "sigma_x"),
        ('printed:softmax", cells = { sigma_f = [9, 10]', 'printed:softmax", cells = { sigma_f = [11]', "not at 11"),
    ):
        (tmp_path / "bad.toml").write_text(SMALL + PRINTED.replace(old, new))
        with pytest.raises((BadValue, UnknownName), match=complaint):
            experiment.load("bad", tmp_path)


def test_a_claim_about_a_printed_row_goes_with_its_variant(small):
    """Where a model does not fit a preset, what is printed for it is no longer asked about."""
    about = PRINTED.replace('"printed:softmax"', '"printed:odd"').replace('"wide"', '"softmax"')
    odd = '[[variants]]\nname = "odd"\nattn = "softmax"\nset = ["model.heads=3"]\nprinted = "SSA"\n'
    (small / "odd.toml").write_text(SMALL + about + odd)
    made, reasons = experiment.fitting(experiment.load("odd", small), "smoke")
    assert len(reasons) == 1
    assert made.claims == experiment.load("small", small).claims


def test_table_6_is_compared_with_what_is_printed():
    made = experiment.load("ssa-table6", FOLDER)
    (claim,) = [claim for claim in made.claims if claim.right.of.startswith("printed:")]
    assert printed.numbers(made, claim.right) == [119.4]
    assert claim.published == "119.4"
    at_home = msgspec.structs.replace(claim.right, cells={"sigma_f": [1.0]})  # printed as 0.0
    sides = Sides(made, Store(Path("nowhere")), "lite")
    assert math.exp(sides.values(claim, claim.right, [0])[0].value) == pytest.approx(119.4)
    none = sides.values(claim, at_home, [0])[0]
    assert (none.closed, "no logarithm" in none.why) == (State.NOTHING_TO_JUDGE, True)


@pytest.mark.parametrize("name", ["ssmax-figure4", "ssmax-figure6"])
def test_the_switch_comes_after_seven_eighths(name):
    """At lite it is step 5,250 of 6,000, as in the stored runs."""
    made = experiment.load(name, FOLDER)
    variant = made.variant("swapped in training")
    told = [*(each for each in variant.set if not each.startswith("train.switch_step")), "train.switch_step=5250"]
    assert made.spec(variant, "lite") == made.spec(msgspec.structs.replace(variant, set=told), "lite")
    assert made.spec(variant, "nano").train.switch_step == 1050
    assert made.spec(variant, "lite", ["train.steps=800"]).train.switch_step == 700


def test_what_is_wrong_with_a_file_is_said(small):
    with pytest.raises(UnknownName, match="There are: small"):
        experiment.load("smal", small)
    for old, new, complaint in (
        ('baseline = "softmax"', 'baseline = "sofmax"', "Did you mean 'softmax'"),
        ('name = "wide"', 'name = "softmax"', "a name of its own"),
        ('left = { of = "wide"', 'left = { of = "wdie"', "Did you mean 'wide'"),
        ('left = { of = "wide"', 'left = { of = "prompted:big"', "No variant of bad.toml is called 'prompted:big'"),
        ('is = "above"', 'is = "over"', "Invalid enum value"),
        ('title = "A title"', 'titel = "A title"', "titel"),
        (
            'is = "above"',
            'is = "above"\nsuggested_by = { lite3 = [0] }',
            "preset of bad.toml is called 'lite3'. Did you",
        ),
        ('is = "above"', 'is = "above"\nsuggested_by = { lite2 = [-1] }', "Expected `int` >= 0"),
        (
            'is = "above"\nright = { of = "wide"',
            'is = "above"\nmetric = "mse-all"\nright = { of = "wide"',
            "grids hold 'reference:least-squares' in mse-code, median-code, not in mse-all",
        ),
    ):
        (small / "bad.toml").write_text(SMALL.replace(old, new, 1))
        with pytest.raises((BadValue, UnknownName), match=complaint):
            experiment.load("bad", small)


CELL = {"attn": "softmax", "metric": "mse-code", "sigma_x": 1, "sigma_f": 10, "length": 12}


@pytest.mark.slow
def test_from_runs_to_verdicts_and_a_page(small, lab, tmp_path):
    made = experiment.load("small", small)
    groups = study.groups(made, lab.store, "smoke", 2, [])
    place = folders.fullest("small", lab.store, "smoke")
    assert {f.state for f in judge.findings(Sides(made, lab.store, "smoke"))} == {State.NOT_RUN}
    assert state(made, lab.store, "smoke")[:2] == (0, 2)
    for runs in groups.values():
        for run in runs:
            sweep(run.spec, run.seed, lab)
    found = judge.findings(Sides(made, lab.store, "smoke"))
    assert [f.state for f in found] == [State.NOT_LEARNED, State.NOT_LEARNED, State.NOT_RUN]  # sixty steps
    assert "no cell has sigma_f=7" in found[2].words
    assert {finding.study for finding in found} == {""}  # runs tell
    assert found[0].specs == (groups["softmax"][0].spec.hash,)
    low, high = ([run.grid().at(**CELL | {"sigma_f": s}) for run in groups["softmax"]] for s in (1, 10))
    ratio = ((high[0] / low[0]) * (high[1] / low[1])) ** 0.5
    assert found[0].shown(found[0].effect) == pytest.approx(ratio)
    # The variance over prompts is in the interval, that of a reference too, whose errors are measured anew.
    finished = Sides(made, lab.store, "smoke")
    grid, exact, cell = groups["softmax"][0].grid(), "reference:least-squares", {"sigma_x": 1, "sigma_f": 2}
    means = errors_of_reference(finished.spec(exact), "least-squares", [cell | {"length": 5}]).means()
    assert set(means) == {(1, 2, 5), (1, 2, 12)}  # the shorter prompts are cut from the longer ones
    for length in (5, 12):
        there = grid.at(**cell, attn=exact, metric="mse-code", length=length)
        assert means[1, 2, length] == pytest.approx(there, rel=1e-4)
    noise = judge._noise(finished.table(made.claims[1]), ({}, {}), "log-ratio", 2)
    assert noise.effect == pytest.approx(found[1].effect)
    assert not any(each.these_prompts for each in found)
    other = msgspec.structs.replace(made.claims[0], metric="nmse-code")
    for s, column in zip((10, 1), finished.table(other), strict=True):
        assert [value.resamples for value in column.values()] == [None, None]  # kept of the headline only
        errors = [value.error for value in column.values()]
        cell = CELL | {"metric": "nmse-code", "sigma_f": s}
        assert errors == [run.grid().where(**cell).mean_error(logarithm=True) for run in groups["softmax"]]
    # A printed number is taken as it stands: what hangs on the prompts is the error of the run beside it.
    beside = msgspec.structs.replace(made.claims[0], right=Quantity("printed:softmax", {"sigma_f": [10.0]}))
    alone = [run.grid().where(**CELL).mean_error(logarithm=True) for run in groups["softmax"]]
    left, right = finished.table(beside)
    assert [value.error for value in left.values()] == alone
    assert [(value.error, value.resamples) for value in right.values()] == [(0.0, None)] * 2
    text = study.publish(made, study.Order("small", "smoke", overlay=True), groups, lab, place)
    assert {"report.html", "table.md", "comparison.csv"} <= {path.name for path in place.iterdir()}
    assert "| softmax, columns moved by -1 | printed |" in text
    assert "| Errors rise | here |" in text
    page = (place / "report.html").read_text()
    assert "not learned" in page
    assert "<h1>A title (A paper)</h1>" in page
    assert "one column too far right" in page
    # A third seed of one side alone changes nothing: seeds are paired.
    run = lab.store.run(groups["softmax"][0].spec, 2)
    sweep(run.spec, 2, lab)
    assert judge.findings(Sides(made, lab.store, "smoke"))[1].seeds == tuple(range(2))
    assert judge.findings(Sides(made, lab.store, "smoke"))[0].seeds == tuple(range(3))


@pytest.mark.slow
def test_claims_of_deviants_are_read_from_the_stored_grid(tmp_path):
    made = experiment.load("ssa-table5", FOLDER)
    store = Store(tmp_path)
    place = folders.usual("ssa-table5", store, "lite")
    rows = [
        {"attn": name, "seed": seed, "position": 0, "factor": factor, "metric": "mse", "value": value, "count": 9}
        for name, base in (("softmax", 1.0), ("ssa", 2.0), ("ssmax", 1.0))
        for seed in (0, 1, 2)
        for factor in (1, *range(10, 101, 10))
        for value in [base * (0.001 if factor == 1 else 1 + 0.1 * seed + 0.01 * len(name) * (seed - 1) ** 2)]
    ]
    zero = {"attn": "reference:zero", "seed": 0, "position": 0, "factor": 100, "metric": "mse"}
    rows.append({**zero, "value": 5.0, "count": 9})
    who = {"task": "linear", "preset": "lite", "spec": "0"}
    tables = {"deviant.csv": Grid.of(rows, ["position", "factor"], **who).csv()}
    study_folder.publish(StudyRecord("deviant", {}, []), place, tables, {})
    found = judge.findings(sides_of(made, store, "lite"))
    assert [f.agrees for f in found] == [True, False, False, None]
    assert (found[3].size, found[3].decided) == (EffectSize.WITHIN, True)
    assert found[2].effect == pytest.approx(0.67, abs=0.05)
    assert {finding.study for finding in found} == {place.name}
    assert {f.study for f in judge.findings(sides_of(made, Store(tmp_path / "nothing"), "lite"))} == {""}
    # More prompts are the same question, another position is none: nothing is read from what answers that.
    store, analysis = Store(tmp_path / "kept"), made.question()
    usual = folders.usual("ssa-table5", store, "lite")
    same, other = {"prompts": 7, "position": list(analysis.position)}, {"position": [1, 2]}
    for options, wanted, remarks in (
        (same, State.JUDGED, []),
        (other, State.NOT_RUN, ["asked with position=1,2 (now 0): no claim is read from it."]),
    ):
        study_folder.publish(StudyRecord("deviant", options, []), usual, tables, {})
        said, found = judge.stored(experiment.load("ssa-table5", FOLDER), store, "lite")
        assert found[0].state is wanted
        assert [line.partition(" was ")[2] for line in said] == remarks
        shutil.rmtree(usual)


def test_a_claim_is_read_from_the_latest_version_of_an_analysis(tmp_path):
    made, store = experiment.load("ssa-table5", FOLDER), Store(tmp_path)
    finished = Sides(made, store, "lite")
    usual = folders.usual("ssa-table5", store, "lite")
    newer, other = usual.with_name(f"{usual.name}-0123ab"), usual.with_name(f"{usual.name}-4567cd")
    for place, version, seeds in ((usual, 1, 3), (newer, 2, 2), (other, 2, 1)):
        runs = [
            Member(name, spec.task, spec.attn, spec.preset, spec.hash, seed)
            for name, spec in finished.specs.items()
            for seed in range(seeds)
        ]
        study_folder.publish(StudyRecord("deviant", {"version": version}, runs), place, {"deviant.csv": "x"}, {})
    assert folders.fullest("ssa-table5", store, "lite") == newer
    read = folders.Studies(finished, made.question(), [usual, newer, other])
    assert {read.place(claim) for claim in made.claims} == {newer}


def test_options_of_older_studies_are_compared_as_asked():
    def kept(kind, **options):
        return StudyRecord(kind, options, [])

    before = kept("saturation", position=0, factors=[1.0, 10.0], prompts=128)  # there was no length to name
    plain = Saturation(factors=(1.0, 10.0))
    assert folders.asked_otherwise(before, plain) == {}
    assert folders.asked_otherwise(before, dataclasses.replace(plain, length=9)) == {"length": (None, 9)}
    made = experiment.load("text-rules", FOLDER)
    finished = Sides(made, Store(Path("nowhere")), "nano")
    now = folders.prepared(finished, made.question())
    assert folders.asked_otherwise(kept("per-position", length=2048), now) == {}
    assert folders.asked_otherwise(kept("per-position", length=1024), now) == {"length": (1024, 2048)}


def test_a_wider_training_law_is_another_run_and_one_is_none(tiny):
    spec, wide = tiny(), tiny("linear", "softmax", "train.shift.sigma_x=10")
    assert wide.train.shift == {"sigma_x": 10}
    assert wide.hash != spec.hash
    assert tiny("linear", "softmax", "train.shift.sigma_x=1") == spec


def test_a_variant_may_take_its_task_with_other_options(tmp_path):
    text = (FOLDER / "bound-wide.toml").read_text()
    made = experiment.load("bound-wide", FOLDER)
    specs = {name: made.spec(made.variant(name), "nano") for name in ("softmax", "softmax, wide")}
    assert specs["softmax"].task == "linear"
    assert specs["softmax, wide"].task == "linear:spread=10"
    assert specs["softmax, wide"].test == specs["softmax"].test
    other = tmp_path / "other.toml"
    other.write_text(text.replace('task = "linear:spread=10"', 'task = "every"', 1))
    with pytest.raises(BadValue, match=r"softmax, wide: task is linear with other options, got every"):
        experiment.load(str(other), tmp_path)


def test_the_repositorys_experiments_come_first(tmp_path, monkeypatch):
    packaged = tmp_path / "icl_lab" / "experiments"
    packaged.mkdir(parents=True)
    monkeypatch.setattr(files, "SHIPPED", [packaged, tmp_path / "beside"])
    monkeypatch.chdir(tmp_path)
    usual, own = Path("experiments"), Path("mine")
    assert experiment.place(usual) == packaged
    assert experiment.place(own) == own
    (tmp_path / "experiments").mkdir()
    assert experiment.place(usual) == usual
    packaged.rmdir()
    (tmp_path / "experiments").rmdir()
    assert experiment.place(usual) == usual
    (tmp_path / "beside").mkdir()
    assert experiment.place(usual) == tmp_path / "beside"


def test_an_editable_install_finds_the_experiments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert experiment.names(experiment.place(Path("experiments"))) == NAMES


@pytest.mark.slow
def test_variants_that_do_not_fit_are_left_out_with_reason():
    made = experiment.load("ssa-table1", FOLDER)
    fitted, reasons = experiment.fitting(made, "smoke")
    gone = {variant.name for variant in made.variants} - {variant.name for variant in fitted.variants}
    assert gone
    assert [reason.split()[4] for reason in reasons] == sorted(gone)
    assert all("heads" in reason for reason in reasons)
    assert not any({claim.left.of, claim.right.of} & gone for claim in fitted.claims)
    assert experiment.fitting(made, "lite") == (made, [])


def test_a_baseline_that_does_not_fit_is_said(small):
    with pytest.raises(BadValue, match="heads"):
        experiment.fitting(experiment.load("small", small), "smoke", ["model.heads=3"])


def test_some_variants_do_not_hide_the_repositorys_study_of_all(tmp_path):
    layer = SimpleNamespace(root=tmp_path / "repository" / "evidence")
    store = Store(tmp_path / "mine", layer)
    usual = store.root / "experiments" / "deviants-nano"

    def asked(*labels, seeds=2):
        members = [Member(label, "linear", label, "nano", "0", seed) for label in labels for seed in range(seeds)]
        return StudyRecord("deviant", {}, members)

    some, whole = asked("softmax"), asked("softmax", "ssa")
    assert study.destination("deviants", store, "nano", some) == usual
    study_folder.publish(whole, layer.root.parent / "experiments" / usual.name, {}, {})
    part = usual.with_name(f"{usual.name}-{some.hash}")
    assert study.destination("deviants", store, "nano", some) == part
    assert study.destination("deviants", store, "nano", asked("softmax", "ssa", seeds=1)) == usual
    study_folder.publish(some, part, {}, {})
    assert study.destination("deviants", store, "nano", asked("softmax", seeds=3)) == part
    repository = layer.root.parent / "experiments"
    assert folders.of("deviants", store, "nano") == [repository / usual.name, part]
    shutil.move(part, repository)
    assert folders.of("deviants", store, "nano") == [repository / usual.name, repository / part.name]


def test_a_study_names_the_version_of_its_experiment_file(tmp_path):
    """An edited file is said to be another than the one that a stored study was made from."""
    files, store = tmp_path / "files", Store(tmp_path / "results")
    text = (FOLDER / "theory.toml").read_text()
    publish(files / "mine.toml", text.encode())
    made = experiment.load("mine", files)
    assert made.sha256 == hashlib.sha256(text.encode()).hexdigest()
    members = study.groups(made, store, "lite", 1, ())
    record = study.record(made, study.Order("mine", "lite"), members, "icl-lab experiment mine")
    assert record.source == made.sha256
    place = store.root / "experiments" / "mine-lite"
    study_folder.publish(record, place, {"a.csv": "1"}, {})
    assert claims_said(files, store) == []
    publish(files / "mine.toml", text.replace("title", "# edited\ntitle", 1).encode())
    (said,) = claims_said(files, store)
    assert said == f"{place} was made from another version of mine.toml (sha256 {made.sha256[:8]})."


@pytest.mark.slow
def test_training_free_claims_are_judged_once(tmp_path, lab):
    """So that no other preset calls its claims not run, settle does not ask it again, and no table shows it twice."""
    files, store = tmp_path / "files", lab.store
    text = (FOLDER / "theory.toml").read_text().replace("[[variants]]", "[options]\nrows = 20\n\n[[variants]]", 1)
    publish(files / "mine.toml", text.encode())
    made = experiment.load("mine", files)
    for preset in ("nano", "lite"):
        assert {found.state for found in judge.stored(made, store, preset)[1]} == {State.NOT_RUN}
    members = study.groups(made, store, "lite", 3, ())
    study.publish(made, study.Order("mine", "lite"), members, lab, store.root / "experiments" / "mine-lite")
    said, found = judge.stored(made, store, "nano")
    assert (said, found) == (["trains nothing and is the same at every preset: judged at lite"], [])
    assert len(judge.stored(made, store, "lite")[1]) == len(made.claims)
    assert judge.stored(made, store, "nano")[1] == []


def claims_said(files, store):
    return judge.remarks(sides_of(experiment.load("mine", files), store, "lite"))


def test_printed_rows_by_further_labels_on_rescaled_axes():
    """Table 4 of LSSA: lengths 1,024 to 8,192, once without and twice with re-weighting; trained here at an eighth."""
    rows = printed.rows(experiment.load("text-lssa-table4", FOLDER), overlay=False)
    assert rows["softmax"] == {128: "3.1911", 256: "4.1662", 512: "5.4513", 1024: "6.2823"}
    assert rows["softmax, p=15"][128] == "5.3878"
    assert rows["lssa, p=3"][1024] == "6.3007"
    assert rows["lssa"][1024] == "5.9403"


def test_a_table_without_an_axis_stands_at_one_value():
    made = experiment.load("text-lssa-table2", FOLDER)
    assert printed.rows(made, overlay=False)["scores"] == {128: "3.4138"}
    assert printed.doubts(experiment.load("text-lssa-table4", FOLDER)) == [
        "Names with (b=-log N) and (b=-log N, l1-norm) were rebuilt from the extraction.",
        "The bold type is lost. Lowest by value: LSSAR p=3 at 1K, LSSAR p=15 at 2K, 4K and 8K.",
        "LSSAR: Equal to LSSA without re-weighting (3.1905): printed so, perhaps a copying slip.",
    ]
    with pytest.raises(ValueError, match="either a column or the value"):
        printed.Printed(table="t", row="r", axis="length", value="v", column="c", at=1)


@pytest.fixture
def given(monkeypatch, tmp_path):
    """Findings on the claims of an analysis with a ``value(of, metric, seed)`` that nobody measured."""

    def call(name, analysis, value, seeds=(0, 1, 2), preset="nano", files=FOLDER, error=None):
        made = experiment.load(name, files)
        monkeypatch.setattr(analysis, "value", lambda self, found, of, cells, metric, seed: value(of, metric, seed))
        monkeypatch.setattr(analysis, "seeds", lambda self, found: list(seeds))
        monkeypatch.setattr(analysis, "on_resamples", lambda self, *_: None)
        if error is not None:  # over prompts
            monkeypatch.setattr(analysis, "prompts_error", lambda self, *_: error)
        found = judge.findings(AnalysisSides(made, Store(tmp_path), preset, measured=object()))
        return list(zip(made.claims, found, strict=True))

    return call


def of_metric(metric, found):
    """The first finding on a claim in a metric."""
    return next(each for claim, each in found if claim.metric == metric)


def test_undefined_values_differ_from_values_not_there(given):
    """A growing number that changes no answer leaves nothing to heal; another cell was never measured."""
    said = {"recovered": Undefined("it changed no answer"), "largest": KeyError("no such cell")}

    def value(of, metric, seed):
        raise said.get(metric, KeyError("elsewhere"))

    found = given("saturation-every", Saturation, value)
    judged = {claim.metric: (each.state, each.words) for claim, each in found}
    assert judged["recovered"] == (State.NOTHING_TO_JUDGE, "it changed no answer")
    assert judged["largest"] == (State.NOT_RUN, "no such cell")
    lines = ledger.lines(experiment.load("saturation-every", FOLDER), [each for _, each in found])
    assert "    nothing to judge | it changed no answer | nano" in lines


def test_of_an_analysis_that_asks_no_prompts_none_are_named(given):
    """It reads the losses of trainings, each of draws of its own."""
    found = given("ssmax-figure4", Learning, lambda of, metric, seed: len(of) * (1 + 0.1 * seed))
    assert found
    assert all("seeds 0 to 2" in each.words and "these prompts" not in each.words for _, each in found)


@pytest.mark.parametrize(("most", "stands"), [(0.01, True), (1.0, False), (math.nan, False)])
def test_a_verdict_within_prompt_variance_is_told_with_it(given, most, stands):
    """Three seeds recover 0.50 to 0.52: that stands noise of 0.01 and not of 1; prompts are named where it does not."""
    values = {"softmax": (0.50, 0.51, 0.52)}
    found = given("saturation-every", Saturation, lambda of, _, seed: values.get(of, (0, 0, 0))[seed], error=most)
    told = of_metric("recovered", found)
    assert (told.agrees, told.these_prompts) == (True, not stands)
    assert ("these prompts" in told.words) is not stands
    alone = 0.0573 / 2  # Student's half width of the seeds at 99 %
    half = math.hypot(alone * 2, 2.5758 * 2 * most) if stands else alone * 2
    assert told.high - told.effect == pytest.approx(half, rel=1e-2)


def test_trials_alike_in_every_seed_are_known_to_one(given):
    """All of 400 are found, by both normalizers, in three seeds: that is no proof of no difference at all."""
    told = of_metric("found", given("ssmax-figure8", NeedleScores, lambda *_: 1.0))
    assert told.seeds_error == pytest.approx(4 / 400 / math.sqrt(3))


def test_seeds_that_led_to_a_claim_do_not_judge_it(given, tmp_path):
    """At their own preset: seeds 0 and 2 say much, the others nothing, and all together they would support it."""
    text = (FOLDER / "ssa-figure2.toml").read_text()
    assert "suggested_by = { lite2 = [0, 1, 2, 3, 4] }" in text
    (tmp_path / "led.toml").write_text(text.replace("lite2 = [0, 1, 2, 3, 4]", "nano = [0, 2, 9]"))
    drawn = {0: 0.9, 1: 0.41, 2: 0.9, 3: 0.42, 4: 0.415}

    def judged(*seeds, preset="nano"):
        value = lambda of, metric, seed: drawn[seed] if of == "softmax" else 0.4  # noqa: E731
        found = given("led", Saturation, value, seeds, preset, tmp_path, error=math.nan)
        return next(each for claim, each in found if claim.suggested_by)

    told = judged(0, 1, 2, 3, 4)
    assert (told.size, told.seeds, told.left_out) == (EffectSize.WITHIN, (1, 3, 4), (0, 2))
    assert "seeds 0, 2 predate the claim; excluded" in told.words
    alone = judged(0, 2)
    assert (alone.state, alone.words) == (State.NOT_RUN, "seeds 0, 2 predate the claim; excluded")
    elsewhere = judged(0, 1, 2, 3, 4, preset="lite2")
    assert (elsewhere.seeds, elsewhere.left_out) == ((0, 1, 2, 3, 4), ())


def test_seeds_without_the_event_are_passed_over_if_few(given):
    """Seed 1 has nothing to heal: the first look is that of seeds 0, 2 and 3."""
    healed = {0: 0.50, 2: 0.51, 3: 0.52}

    def value(of, metric, seed):
        if metric != "recovered":
            raise KeyError("elsewhere")
        if seed not in healed:
            raise Undefined("it changed no answer")
        return healed[seed] if of == "softmax" else 0.0

    def judged(*seeds):
        return of_metric("recovered", given("saturation-every", Saturation, value, seeds, error=math.nan))

    first = judged(0, 1, 2, 3)
    assert (first.agrees, first.seeds, first.skipped) == (True, (0, 2, 3), (1,))
    unknown = "not known whether 'softmax' learned the task: not tested"
    assert first.words.endswith(f"seeds 0, 2, 3, these prompts; {unknown}; nothing to judge in seed 1")
    more = judged(0, 1, 2, 3, 4)
    assert (more.agrees, more.seeds, more.skipped) == (True, (0, 2, 3), (1, 4))
    few = judged(0, 1, 4, 5)
    assert (few.state, few.words) == (State.NOTHING_TO_JUDGE, "it changed no answer")
    healed[5] = healed.pop(3)
    half = judged(0, 1, 2, 3, 4, 5)  # three tell nothing, three tell something
    assert (half.state, half.words) == (State.NOTHING_TO_JUDGE, "it changed no answer")
    most = judged(0, 1, 2, 4, 5)
    assert (most.agrees, most.seeds, most.skipped) == (True, (0, 2, 5), (1, 4))


def test_a_baseline_alone_is_refused_before_it_is_trained(run, tmp_path):
    words = ["boundary-bound", "--preset", "smoke", "--variant", "softmax", "--results", str(tmp_path / "results")]
    _, err = run.refused("experiment", *words)
    assert "a comparison needs a variant beside its baseline 'softmax'; name another --variant." in err
    assert not (tmp_path / "results" / "runs").exists()

"""Pages of comparisons are built again from stored runs, by their record."""

import json
import re
import shutil
from pathlib import Path

import pytest

from icl_lab.runs import study_folder

pytestmark = pytest.mark.usefixtures("quick_pictures")


def numbers(page):
    """The page without its last lines, which name the day and the commit of who made it."""
    return re.sub(r'<section id="origin">.*', "", page, flags=re.DOTALL)


@pytest.mark.slow
def test_a_page_is_built_again_as_it_was(run, made):
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    (made / "report.html").write_text("stale")
    (made / "table.md").write_text("stale")
    assert f"wrote {made}" in run.ok("report")[0]
    assert {path.name for path in made.iterdir()} == set(before)
    for name in ("table.md", "comparison.csv", "study.json"):
        assert (made / name).read_bytes() == before[name], name
    assert numbers((made / "report.html").read_text()) == numbers(before["report.html"].decode())


@pytest.mark.slow
def test_a_folder_without_a_record_is_no_study(run, made):
    (made / "study.json").unlink()
    (made / "report.html").write_text("left alone")
    assert "holds no study: it has no study.json" in run.refused("report", str(made))[1]
    assert (made / "report.html").read_text() == "left alone"


@pytest.mark.slow
def test_a_page_can_be_written_elsewhere(run, made, tmp_path):
    (made / "report.html").write_text("left alone")
    _, err = run.ok("report", str(made), "--out", str(tmp_path / "out"))
    assert (made / "report.html").read_text() == "left alone"
    assert "finding" in (tmp_path / "out" / made.name / "report.html").read_text()


def everything(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_studies_of_the_repository_are_never_written_over(run, made, tmp_path):
    """In a checkout all goes to results/own: pages built again, and those named by their folders."""
    results = tmp_path / "results"
    (results / "evidence").mkdir()
    (results / "evidence" / "index.json").write_text("{}")
    before = everything(results)
    out, err = run.refused("report")
    assert not out
    assert f"{results / 'own'} holds no comparison" in err
    out, err = run.ok("report", str(made))
    own = results / "own" / made.name
    assert f"wrote {own}: " in out
    assert (own / "comparison.csv").read_bytes() == (made / "comparison.csv").read_bytes()
    (own / "report.html").write_text("stale")
    out, err = run.ok("report")
    assert out.count("wrote") == 1
    assert (own / "report.html").read_text() != "stale"
    assert {name: data for name, data in everything(results).items() if name.parts[0] != "own"} == before


def test_no_command_writes_a_study_but_to_ones_own_results():
    """Who publishes a study asks ``own_studies`` where it goes."""
    source = Path(study_folder.__file__).parents[1]
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        for found in re.findall(r"study_folder\.place\((.*)\)|[^_.]publish_folder\((\w+),", text):
            assert "own_studies(" in found[0] or "own_studies(" in text, path


@pytest.mark.slow
def test_a_missing_run_is_named_and_nothing_is_written(run, made, tmp_path):
    shutil.rmtree(next((tmp_path / "results" / "runs").glob("*/ssa/*/seed-1")))
    (made / "report.html").write_text("left alone")
    _, err = run.failed("report", str(made))
    assert "1 runs of this study are not stored" in err
    assert "ssa" in err
    assert (made / "report.html").read_text() == "left alone"


@pytest.mark.slow
def test_one_broken_study_does_not_stop_the_others(run, made, tmp_path):
    broken = tmp_path / "results" / "another"
    broken.mkdir()
    (broken / "study.json").write_text("{")
    (broken / "report.html").write_text("left alone")
    (made / "report.html").write_text("stale")
    out, err = run.failed("report")
    assert f"wrote {made}" in out
    assert "left as it is" in err
    assert "1 of 2 pages were not built" in err
    assert (broken / "report.html").read_text() == "left alone"


def test_a_league_is_no_comparison_though_it_has_a_baseline(run, tmp_path):
    folder = tmp_path / "results" / "league-nano"
    member = study_folder.Member("linear, softmax", "linear", "softmax", "nano", "00000000", 0)
    made = study_folder.StudyRecord("league", {"baseline": "softmax", "missing": []}, [member], "icl-lab league")
    study_folder.publish(made, folder, {"league.csv": "1\n"}, {})
    assert "holds no comparison" in run.refused("report")[1]
    _, err = run.refused("report", str(folder))
    assert err.splitlines() == [
        f"icl-lab: {folder} holds a study of the kind league; repeat its command: icl-lab league"
    ]


QUICK = '["train.steps=8", "train.batch=8", "model.width=16"]'  # its settings
ANALYSED = f"""
title = "A deviant"
paper = "A paper"
task = "linear"
analysis = "deviant"
baseline = "softmax"
conditions = "Tiny."
set = {QUICK}

[options]
prompts = 16
factors = [1, 10]

[[variants]]
name = "softmax"
attn = "softmax"

[[claims]]
statement = "A deviant raises the error"
where = "nowhere"
left = {{ of = "softmax", cells = {{ factor = [10] }} }}
is = "above"
right = {{ of = "softmax", cells = {{ factor = [1] }} }}
ungated = "the model was trained for eight steps"
"""
# With a second normalizer, and a claim about it.
TWO = ANALYSED + '\n[[variants]]\nname = "ssa"\nattn = "ssa"\n\n[[claims]]'
TWO += ANALYSED.partition("[[claims]]")[2].replace("A deviant", "With SSA it").replace('"softmax"', '"ssa"')


@pytest.mark.slow
def test_an_analysis_is_drawn_again_from_its_numbers(run, tmp_path):
    """Without its runs: they are not asked. Numbers and record stay; a changed file or number is refused."""
    files = tmp_path / "experiments"
    files.mkdir()
    text = ANALYSED.partition("ungated")[0]  # so that it matters whether the model has learned
    (files / "tiny.toml").write_text(text)
    here = ("--results", str(tmp_path / "results"))
    _, err = run.ok("experiment", "tiny", "--preset", "smoke", "--seeds", "2", "--experiments", str(files), *here)
    place = tmp_path / "results" / "experiments" / "tiny-smoke"
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert {"deviant.csv", "deviant.png", "report.html"} <= set(before)
    runs = tmp_path / "results" / "runs"
    assert len(list(runs.rglob("grid.csv"))) == 2  # though it reads none: they say whether the models have learned
    shutil.rmtree(runs)
    for name in ("deviant.png", "report.html"):
        (place / name).unlink()
    words = ("report", str(place), "--experiments", str(files))
    assert f"wrote {place}" in run.ok(*words)[0]
    after = {path.name: path.read_bytes() for path in place.iterdir()}
    assert set(after) == set(before)
    assert after["deviant.csv"] == before["deviant.csv"]
    assert b"A deviant raises the error" in after["table.md"]
    was, now = (json.loads(each["study.json"]) for each in (before, after))
    assert [now[field] for field in ("command", "commit", "runs")] == [was[f] for f in ("command", "commit", "runs")]
    assert run("report", str(place), "--experiments", str(files), "--out", str(tmp_path / "x"))[0] == 0

    (files / "tiny.toml").write_text(text.replace("A deviant raises", "It raises"))
    assert "cannot be drawn from what it holds; repeat its command: icl-lab experiment tiny" in run.refused(*words)[1]
    (files / "tiny.toml").write_text(text)
    (place / "deviant.csv").write_bytes(after["deviant.csv"].replace(b"softmax", b"SOFTMAX", 1))
    _, err = run.failed(*words)
    assert "damaged or edited" in err
    assert "Traceback" not in err


@pytest.mark.exhaustive
def test_an_experiment_can_begin_with_some_variants(run, tmp_path):
    files = tmp_path / "experiments"
    files.mkdir()
    (files / "tiny.toml").write_text(TWO)
    here = ("--results", str(tmp_path / "results"), "--experiments", str(files))
    words = ("experiment", "tiny", "--preset", "smoke", "--seeds", "2", *here)
    place = tmp_path / "results" / "experiments" / "tiny-smoke"
    _, err = run.refused(*words, "--variant", "lssa")
    assert "No variant is called 'lssa'. Did you mean 'ssa'? There are: softmax, ssa." in err
    assert run(*words, "--variant", "softmax")[0] == 0
    assert [path.name for path in (tmp_path / "results" / "runs" / "linear").iterdir()] == ["softmax"]
    assert not list((tmp_path / "results" / "runs").rglob("grid.csv"))  # no claim asks what the models have learned
    assert run("report", str(place), "--experiments", str(files))[0] == 0
    said = (place / "table.md").read_text()
    assert "A deviant raises" in said
    assert "With SSA it raises" not in said
    _, out, _ = run("claims", "--preset", "smoke", *here)
    assert "2 claims: 1 too few seeds, 1 not run." in out
    assert "Not run at" not in out
    _, out, _ = run("claims", "--preset", "nano", *here)
    assert "0 claims: none." in out
    assert "Not run at nano: 1 of 1 experiments with claims." in out
    assert run(*words)[0] == 0
    assert "With SSA it raises" in (place / "table.md").read_text()
    assert [path.name for path in place.parent.iterdir() if path.is_dir()] == ["tiny-smoke"]  # all is more of the same

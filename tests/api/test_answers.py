"""Comparisons and analyses from Python: the files of the command line, and how they show themselves."""

import re
import sys
from dataclasses import replace
from html import unescape

import pytest
from matplotlib.figure import Figure

import icl_lab as icl
from icl_lab import analyses
from icl_lab.api import show
from icl_lab.api.run import Runs
from icl_lab.base.errors import LabError
from icl_lab.runs import study_folder
from tests.api.conftest import SMALL, contents, options, quiet
from tests.claims.test_experiments import SMALL as SMALL_EXPERIMENT
from tests.cli.test_report import ANALYSED
from tests.execute.conftest import Notes

pytestmark = pytest.mark.usefixtures("quick_pictures")

RULES = ["softmax", "ssa"]
HOSTILE = "<img src=x onerror=alert(1)>&'\""


@pytest.fixture
def compared(place):
    def compare(attns=RULES, seeds=2, baseline="softmax", **where):
        there = icl.Where(**{"results": place, "progress": False, **where})
        return icl.compare("linear", attns, "smoke", SMALL, seeds=seeds, baseline=baseline, where=there)

    return compare


@pytest.mark.slow
def test_a_comparison_is_that_of_the_command_line(compared, typed, tmp_path):
    study = compared()
    words = ["--task", "linear", "--attn", "softmax ssa", "--preset", "smoke", *options()]
    out, _ = typed.ok("compare", *words, "--seeds", "2")
    (folder,) = (tmp_path / "typed").glob("compare-*")
    assert folder.name == study.folder.name  # the hash of what is asked
    ours, theirs = study_folder.read(study.folder), study_folder.read(folder)
    assert (ours.hash, ours.runs, ours.options) == (theirs.hash, theirs.runs, theirs.options)
    assert ours.command.partition(" --results")[0] == theirs.command.partition(" --results")[0]
    assert contents(study.folder)["comparison.csv"] == contents(folder)["comparison.csv"]
    shown = [line for line in str(study).splitlines() if line.startswith("| ")][:4]
    assert "\n".join(shown) in out
    assert study.rates in out
    assert str(study).splitlines()[0] in out


@pytest.mark.exhaustive
def test_workers_make_the_same(compared, place, tmp_path):
    alone, together = compared(), compared(results=tmp_path / "other", jobs=2)
    assert alone.effects().equals(together.effects())


@pytest.mark.usefixtures("stocked")
@pytest.mark.slow
def test_the_table_of_a_comparison(compared):
    study = compared()
    table = study.table()
    assert list(table.columns) == ["sigma_f 1", "sigma_f 2", "summary"]
    assert {*RULES, "reference:bayes"} <= set(table.index)
    values = [run.grid.where(attn="ssa", metric="mse-code", sigma_f=2, length=12).at() for run in study.runs[2:]]
    assert table.loc["ssa", "sigma_f 2"] == pytest.approx(sum(values) / 2)
    effects = study.effects()
    assert set(effects["attn"]) == {"ssa"}
    assert {"low", "high", "p_holm"} <= set(effects.columns)


@pytest.mark.usefixtures("stocked")
@pytest.mark.slow
def test_figures_by_name(compared):
    study = compared()
    assert set(study.figures) == {"forest", "curves", "ratios", "maps", "learning"}
    assert isinstance(study.figure("ratios"), Figure)
    with pytest.raises(LabError, match="There are: curves, forest"):
        study.figure("ratio-maps")


@pytest.mark.slow
@pytest.mark.usefixtures("stocked")
def test_an_analysis_is_that_of_the_command_line(swept, typed, tmp_path):
    run = swept()
    answer = icl.deviant(run, prompts=64, where=quiet())
    out, _ = typed.ok("deviant", "--run", str(run.folder), "--prompts", "64")
    (folder,) = (tmp_path / "typed").glob("deviant-*")
    assert folder.name == answer.folder.name
    assert contents(folder)["deviant.csv"] == contents(answer.folder)["deviant.csv"]
    assert study_folder.read(answer.folder).command.startswith(f"icl-lab deviant --run {run.folder} --prompts 64")
    assert set(answer.grids) == {"deviant", "positions", "prompts"}
    assert answer.figures
    assert isinstance(answer.figure(), Figure)
    assert answer.page().path.name == "report.html"


@pytest.mark.slow
def test_an_experiment_is_that_of_the_command_line(place, typed, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL_EXPERIMENT)
    where = icl.Where(results=place, experiments=tmp_path, progress=False)
    report = icl.experiment("small", "smoke", seeds=2, variants=["wide"], where=where)
    words = ["small", "--preset", "smoke", "--seeds", "2", "--variant", "wide", "--experiments", str(tmp_path)]
    out, _ = typed.ok("experiment", *words, "--results", str(tmp_path / "typed"))
    assert report.folder.name in out
    assert str(report).partition("Made by")[0] in out
    assert study_folder.read(report.folder).command == f"icl-lab experiment {' '.join(words)} --results {place}"
    assert report.page().path.name == "report.html"
    assert "<table" in report._repr_html_()
    assert repr(report) == f"<experiment small; {report.folder}>"


@pytest.mark.exhaustive
def test_what_an_experiment_has_asked_is_asked_again_on_demand(place, tmp_path):
    (tmp_path / "tiny.toml").write_text(ANALYSED)

    def ask(seeds, **options):
        notes = Notes()
        where = icl.Where(results=place, experiments=tmp_path, progress=notes, **options)
        icl.experiment("tiny", "smoke", seeds=seeds, where=where)
        return [line for line in notes.said if "what was asked before is taken from" in line]

    assert ask(1) == []
    assert len(ask(2)) == 1
    assert ask(2, evidence=False) == ask(2, force=True) == []


@pytest.mark.usefixtures("stocked")
@pytest.mark.slow
def test_an_analysis_written_again_by_force_repeats_no_training(swept, monkeypatch):
    run, where = swept(), icl.Where(progress=False, name="mine")
    monkeypatch.setattr("icl_lab.pipeline.train", None)
    icl.deviant(run, prompts=16, where=where)
    with pytest.raises(LabError, match="mine"):
        icl.deviant(run, prompts=17, where=where)
    answer = icl.deviant(run, prompts=17, where=replace(where, force=True))
    assert answer.folder.name == "mine"
    assert study_folder.read(answer.folder).options["prompts"] == 17


@pytest.mark.usefixtures("stocked")
@pytest.mark.slow
def test_attention_shows_itself_in_a_frame(swept):
    run = swept()
    answer = icl.attention(run, prompt=[1, -2, 3, 70], function=[1, 0], means=0, live=0, where=quiet())
    shown = answer._repr_html_()
    assert re.fullmatch(r'<iframe title="attention" style="[^"]*" srcdoc="[^"]*"></iframe>', shown, re.DOTALL)
    assert "require" not in shown.replace("requires", "")
    command = study_folder.read(answer.folder).command
    assert "--prompt 1,-2,3,70" in command
    assert "--function 1,0" in command
    assert answer.folder.parent == run.lab.store.root


@pytest.mark.parametrize(
    ("name", "asked", "how", "said"),
    [
        ("deviants", None, {}, "No analysis is called 'deviants'. Did you mean 'deviant'"),
        ("deviant", None, {"promts": 3}, "takes no option 'promts'. Did you mean 'prompts'"),
        ("deviant", None, {"prompts": "many"}, "prompts"),
        ("deviant", [], {}, "is asked of runs"),
        ("deviant", ["ssa"], {}, "is asked of runs"),
        ("theory", ["sssa"], {}, "No normalizer is called 'sssa'"),
    ],
)
@pytest.mark.usefixtures("stocked")
def test_questions_that_make_no_sense(swept, place, name, asked, how, said):
    with pytest.raises(LabError, match=re.escape(said)):
        icl.analyse(name, swept() if asked is None else asked, where=quiet(place), **how)


def test_every_analysis_is_a_function():
    for name in set(analyses.names()) - {"attention"}:  # which has a form of its own
        asks = getattr(icl, name.replace("-", "_"))
        assert callable(asks)
        assert (analyses.registry.part(name).__doc__ or "").partition("\n")[0] in asks.__doc__
    assert {"boundary", "per_position", "sweep"} <= set(dir(icl))
    with pytest.raises(AttributeError, match="no attribute 'boundaries'"):
        icl.boundaries  # noqa: B018


@pytest.mark.slow
def test_what_is_shown_in_a_notebook_is_escaped(swept, compared, tmp_path):
    place = tmp_path / HOSTILE.replace("/", "")
    run = swept(results=place)
    study = compared(results=place)
    answer = icl.deviant(run, prompts=64, where=quiet())
    page = icl.attention(run, prompt=[1, 2, 3], means=0, live=0, where=quiet())
    for shown in (run, Runs([run]), study, study.page(), answer, page, run.grid):
        html = shown._repr_html_()
        assert "<img src=x" not in html
        assert HOSTILE not in html
        assert html.startswith("<")
    for html in (run._repr_html_(), Runs([run])._repr_html_(), study._repr_html_(), answer._repr_html_()):
        assert "&lt;img src=x" in html  # it is there, as text


def test_markdown_is_shown_as_text():
    html = show.of_markdown(f"# {HOSTILE}\n\nA {HOSTILE}.\n\n| a | {HOSTILE} |\n| --- | --- |\n| `b` | **{HOSTILE}** |")
    assert "<img" not in html
    assert html.count("&lt;img src=x") == 4
    assert "<b>&lt;img" in html
    assert unescape(re.sub("<[^<>]*>", "", html)) == f"{HOSTILE}A {HOSTILE}.a{HOSTILE}b{HOSTILE}"


@pytest.mark.usefixtures("stocked")
@pytest.mark.slow
def test_plain_reprs_are_one_line(swept, compared):
    run, study = swept(), compared()
    answer = icl.deviant(run, prompts=64, where=quiet())
    for shown in (run, study, answer, answer.page()):
        assert repr(shown).startswith("<")
        assert "\n" not in repr(shown)
    assert len(repr(study.runs).splitlines()) == 4


@pytest.mark.usefixtures("stocked")
def test_a_grid_in_xarray(swept):
    pytest.importorskip("xarray", reason="xarray is not installed: pip install 'icl_lab[notebook]'")
    run = swept()
    data = run.grid.to_xarray()
    assert data["value"].dims == ("attn", "metric", "sigma_x", "sigma_f", "length")
    assert data.attrs == {"task": "linear", "preset": "smoke", "spec": run.hash, "seed": 0}
    assert list(data["attn"].values) == run.grid.values("attn")
    for row in run.grid.frame.to_dict("records"):
        where = {axis: row[axis] for axis in data["value"].dims}
        assert float(data["value"].sel(where)) == row["value"]
    joined = swept(seeds=2).grid.to_xarray()
    assert list(joined["seed"].values) == [0, 1]


@pytest.mark.usefixtures("stocked")
def test_without_xarray_it_is_said(swept, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(LabError, match=r"pip install 'icl_lab\[notebook\]'"):
        swept().grid.to_xarray()

"""Runs from Python: the files of the command line, its errors, its checkpoints."""

import os
import signal
import sys
from pathlib import Path

import pytest
import torch

import icl_lab as icl
from icl_lab import normalizers
from icl_lab.base.errors import LabError, RunFailed
from icl_lab.execute import reporter
from icl_lab.runs import archiving, environment
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.run import Run
from tests.api.conftest import SMALL, contents, options, quiet
from tests.cli.test_outside_parts import SQUARE

pytestmark = pytest.mark.usefixtures("quick_pictures")

RUN = ["--task", "linear", "--preset", "smoke", *options()]
TIMED = ("env.json", "manifest.json")  # when, and the checksum of that
IMPORT = "from icl_lab.normalizers import registry"
CELL = SQUARE.replace(IMPORT, "import icl_lab as icl").replace("registry.add", "icl.rule")


@pytest.mark.slow
def test_the_files_are_those_of_the_command_line(swept, typed, place, tmp_path):
    run = swept()
    typed.ok("sweep", "--attn", "ssa", *RUN)
    ours, theirs = contents(place, but=TIMED), contents(tmp_path / "typed", but=TIMED)
    assert ours == theirs
    assert f"runs/linear/ssa/smoke-{run.hash}/seed-0/grid.csv" in ours
    assert run.env.keys() == icl.find(f"linear/ssa/smoke-{run.hash}", where=quiet(tmp_path / "typed")).env.keys()


@pytest.mark.usefixtures("stocked")
def test_seeds_are_a_sequence(swept):
    runs = swept(seeds=2)
    assert [run.seed for run in runs] == [0, 1]
    assert isinstance(runs[:1], icl.Runs)
    assert len(runs.grid.frame) == 2 * len(runs[0].grid.frame)
    assert swept(seeds=[1])[0].folder == runs[1].folder
    root = runs[0].lab.store.root
    assert icl.find(f"linear/ssa/smoke-{runs[0].hash}", seed=1, where=quiet(root)).folder == runs[1].folder


@pytest.mark.slow
def test_settings_may_be_a_mapping(swept):
    told = dict(setting.split("=") for setting in SMALL) | {"train.steps": 5, "test.axes.length": [5, 12]}
    assert swept(settings=told).hash == swept().hash


@pytest.mark.usefixtures("stocked")
@pytest.mark.slow
def test_what_the_run_says_of_itself(swept):
    run = swept()
    assert run.env["commit"] == environment.commit()
    assert run.command == icl.find(f"linear/ssa/smoke-{run.hash}", where=quiet(run.lab.store.root)).command
    assert "icl-lab sweep --task linear --attn ssa --preset smoke" in run.command
    assert set(run.learned["name"]) == {"n", "b"}
    assert list(run.history.columns[:2]) == ["step", "loss"]
    assert run.error == pytest.approx(run.grid.where(attn="ssa", metric="mse-code", sigma_f=1, length=12).at())
    assert run.figure("learning-curve").axes
    with pytest.raises(LabError, match="no numbers of its own"):
        swept("softmax").figure("learned")
    with pytest.raises(LabError, match="Did you mean 'heat-map'"):
        run.figure("heat-maps")


@pytest.mark.slow
def test_the_command_makes_the_run_again(swept, typed, tmp_path):
    (run,) = swept(settings=[*SMALL, "model.mlp=no"], seeds=[1])
    words = run.command.split()
    assert words[words.index("--seeds") + 1] == "2"
    out, _ = typed.ok(*words[1 : words.index("--results")], "--dry-run")
    assert f"smoke-{run.hash}/seed-1" in out


@pytest.mark.usefixtures("stocked")
@pytest.mark.slow
def test_another_rule_in_the_model(swept):
    run = swept(swap="ssmax:s=swap")
    assert run.attn == "ssa->ssmax:s=swap"
    assert run.folder.name == "swap-ssmax-s=swap"
    assert not torch.equal(run.model(run.prompts(2).tokens), swept().model(run.prompts(2).tokens))


@pytest.mark.usefixtures("stocked")
def test_a_model_reads_tensors(swept):
    run = swept()
    prompt = run.prompts(3, length=7, sigma_f=2)
    assert prompt.tokens.shape == (3, 14, 1)
    torch.testing.assert_close(prompt.targets, 2 * run.prompts(3, length=7).targets)  # the same, twice as steep
    answers = run.model(prompt.tokens)
    assert answers.shape == (3, 14, 1)
    assert answers.requires_grad
    loaded = icl.load(f"linear/ssa/smoke-{run.hash}", where=quiet(run.lab.store.root))
    assert torch.equal(answers, loaded(prompt.tokens))
    with pytest.raises(LabError, match="no option 'sigma'"):
        run.prompts(3, sigma=2)


@pytest.mark.parametrize(
    "wrong",
    [{"task": "lineer"}, {"attn": "sssa"}, {"attn": "ssa:m=2"}, {"preset": "smokey"}, {"device": "cuda:77"},
     {"set": "train.step=5"}, {"set": "train.batch=10000000"}],
)  # fmt: skip
def test_errors_are_the_lines_of_the_command_line(place, typed, wrong):
    asked = {"task": "linear", "attn": "ssa", "preset": "smoke", **wrong}
    names, settings = [asked[name] for name in ("task", "attn", "preset")], [wrong["set"]] if "set" in wrong else []
    where = icl.Where(results=place, progress=False, device=wrong.get("device", "auto"))
    with pytest.raises(LabError) as raised:
        icl.sweep(*names, settings, where=where)
    code, _, err = typed("sweep", *(word for name, value in asked.items() for word in (f"--{name}", value)))
    assert (code, err.splitlines()[-1]) == (2, f"icl-lab: {raised.value}")
    assert not place.exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"seeds": 0}, "seeds must be a whole number from 1"),
        ({"seeds": [-1]}, "seed must be a whole number from 0"),
        ({"seeds": []}, "seeds must be a whole number from 1"),
        ({"seeds": True}, "seeds must be a whole number, a list of whole numbers or None, got True"),
        ({"settings": [1]}, "settings must be a text, a list of texts or a mapping"),
        ({"attn": ["ssa", 3]}, "attn must be a text or a list of texts"),
    ],
)
def test_what_no_command_could_be_given_is_one_line(swept, how, said):
    with pytest.raises(LabError, match=said) as raised:
        swept(**how)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_ctrl_c_keeps_a_checkpoint_and_is_ctrl_c(swept, monkeypatch):
    settings, before = [*SMALL[1:], "train.steps=60"], signal.getsignal(signal.SIGINT)
    (whole,) = swept(settings=settings, seeds=[1])

    def press(stage, done, total, note):
        if stage == "train" and done == 50:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(reporter, "Bar", lambda: press)
    monkeypatch.setattr(reporter, "say", lambda text: None)
    where = icl.Where(results=whole.lab.store.root, retrain=True)
    with pytest.raises(KeyboardInterrupt, match="goes on where it stands"):
        icl.sweep("linear", "ssa", "smoke", settings, seeds=[1], where=where)
    assert signal.getsignal(signal.SIGINT) is before
    assert list(whole.folder.glob("checkpoint*.pt"))
    (again,) = swept(settings=settings, seeds=[1])
    assert again.grid.csv() == whole.grid.csv()


@pytest.mark.usefixtures("stocked")
def test_without_weights_there_is_no_model(swept):
    run = swept()
    (run.folder / "model.safetensors").unlink()
    with pytest.raises(RunFailed, match=r"weights are not kept.*icl-lab sweep --task linear"):
        icl.find(f"linear/ssa/smoke-{run.hash}", where=quiet(run.lab.store.root)).model  # noqa: B018


@pytest.mark.parametrize("name", ["linear/ssa", "ssa", "", "linear//lite"])
def test_a_name_has_three_parts(place, name):
    with pytest.raises(LabError, match="not of the form TASK/RULE/PRESET"):
        icl.find(name, where=quiet(place))


@pytest.mark.slow
def test_a_name_that_is_not_there_says_what_is(swept):
    run = swept()
    root = run.lab.store.root
    with pytest.raises(LabError, match=f"linear/ssa/smoke-{run.hash}"):
        icl.find("linear/softmax/smoke", where=quiet(root))
    with pytest.raises(LabError, match="No preset is called 'smokey'"):
        icl.find("linear/ssa/smokey", where=quiet(root))
    # With other settings than the preset's it is the only one there: no hash is needed.
    assert icl.find("linear/ssa/smoke", where=quiet(root)).hash == run.hash
    swept(settings=[*SMALL, "model.mlp=no"])
    with pytest.raises(LabError, match=f"There are: linear/ssa/smoke-.*{run.hash}|{run.hash}"):
        icl.find("linear/ssa/smoke", where=quiet(root))
    assert sorted(icl.list_runs(where=quiet(root))["finished"]) == [True, True]


def cell(source):
    """Executes a cell of a notebook."""
    exec(compile(source, "<cell>", "exec"), {"__name__": "__main__"})


@pytest.fixture
def notebook(monkeypatch, own_parts):
    """A main module without a file, as in a notebook."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)


@pytest.mark.usefixtures("notebook")
@pytest.mark.slow
def test_a_rule_of_a_cell_is_a_rule(swept):
    cell(CELL)
    run = swept("square")
    assert run.stored.finished
    assert "square" in icl.list_rules().index
    cell(CELL)  # a cell is executed again
    assert swept("square").folder == run.folder


@pytest.mark.usefixtures("notebook")
@pytest.mark.slow
def test_a_rule_that_changed_since_is_said(swept):
    cell(CELL)
    swept("square")
    cell(CELL.replace("self.c * z", "3 * z"))
    with pytest.warns(UserWarning, match="was made with another version of --import __main__") as warned:
        swept("square")
    assert warned[0].filename.startswith(str(Path(__file__).parent))  # where it was called
    cell(CELL)
    swept("square")  # a warning would be an error


@pytest.mark.usefixtures("notebook")
def test_workers_cannot_import_a_cell(swept):
    cell(CELL)
    with pytest.raises(LabError, match=r"the normalizer 'square' was defined in this program.*jobs=1.*square.py"):
        swept("square", jobs=2, seeds=2)


@pytest.mark.usefixtures("own_parts")
def test_parts_of_a_file_are_imported(tmp_path):
    (tmp_path / "mine.py").write_text(SQUARE)
    assert icl.import_parts(str(tmp_path / "mine.py")) == ["square"]
    assert "square" in normalizers.names()


@pytest.mark.slow
def test_the_evidence_is_read_where_the_command_line_reads_it(swept, tmp_path, monkeypatch):
    run = swept()
    archive = Archive(tmp_path / "evidence")
    archive.add({run.stored.key: archiving.run_files(run.stored, weights=True)})
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(archive.root))
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr("icl_lab.pipeline.train", None)  # nothing is trained
    read = swept(results=elsewhere)
    assert read.stored.copied
    assert read.grid.csv() == run.grid.csv()
    assert not list(elsewhere.rglob("grid.csv"))
    tokens = run.prompts(2).tokens
    assert torch.equal(icl.load(f"linear/ssa/smoke-{run.hash}", where=quiet(elsewhere))(tokens), run.model(tokens))
    assert list(icl.list_runs(where=quiet(elsewhere))["evidence"]) == [True]
    with pytest.raises(TypeError):  # it would be trained
        swept(results=elsewhere, evidence=False)


@pytest.mark.slow
def test_a_table_has_cells_down_and_predictors_across(swept):
    run = swept()
    table = run.table()
    cell = run.grid.where(metric="mse-code").frame.iloc[0]
    assert table.loc[tuple(cell[axis] for axis in run.grid.axes), cell["attn"]] == cell["value"]
    assert list(run.table(models=True).columns) == ["ssa"]
    both = icl.Runs([run, run]).table("mse-code", models=True)
    assert both.equals(run.table(models=True))
    with pytest.raises(LabError, match="metric of the grid is called 'mse'"):
        run.table("mse")


@pytest.mark.slow
def test_only_what_is_named_is_read_for_the_table_of_cells(swept, place, monkeypatch):
    small, where, read = [*SMALL[:5], "test.axes.length=5"], quiet(place), []
    for task, attn in (("linear", "ssa"), ("linear", "softmax"), ("every", "ssa")):
        swept(attn, task, small)
    whole, grid = icl.cells(where=where), Run.grid
    monkeypatch.setattr(Run, "grid", lambda run: read.append((run.spec.task, run.spec.attn)) or grid(run))
    some = icl.cells("linear", "ssa", "smoke", where=where)
    assert read == [("linear", "ssa")]
    mine = whole[(whole["task"] == "linear") & whole["spec"].isin(set(some["spec"]))]
    assert some["value"].tolist() == mine["value"].tolist()
    assert set(icl.cells(attn="ssa", where=where)["task"]) == {"linear", "every"}
    for wrong in ({"task": "linea"}, {"attn": "sa"}, {"preset": "nan"}):
        with pytest.raises(LabError, match="Did you mean"):
            icl.cells(**wrong, where=where)

"""The command line as a user meets it: output, exit codes, one clear line for every slip."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from icl_lab.base.errors import RunFailed
from icl_lab.base.grid import Grid
from icl_lab.runs.store import Store

pytestmark = pytest.mark.usefixtures("quick_pictures")

SMALL = ["--set", "train.steps=10", "--set", "train.batch=8", "--set", "test.prompts=64"]


def sweep(*words):
    return ["sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke", *SMALL, *words]


@pytest.mark.slow
def test_a_sweep_says_what_it_does_and_where_it_is(run, tmp_path):
    code, out, err = run(*sweep())
    assert code == 0
    first = err.splitlines()[0]
    assert all(
        word in first for word in ("linear", "ssa", "smoke", "cpu (1 threads)", "parameters", "10 steps", "about")
    )
    assert "sigma_x down, sigma_f across" in out
    assert "reference:least-squares" in out
    (path,) = (tmp_path / "results").rglob("grid.csv")
    assert str(path) in out
    assert json.loads((path.parent / "env.json").read_text())["command"].startswith(
        "icl-lab sweep --task linear --attn ssa"
    )
    assert (path.parent / "heat-map.png").read_bytes()[:4] == b"\x89PNG"
    assert (path.parent / "heat-map.svg").exists()
    assert (path.parent / "learning-curve.png").exists()
    assert out.splitlines()[-1].startswith("next: ")
    grid = Grid.read(path)
    assert set(grid.values("metric")) == {"mse-code", "mse-eq2", "mse-all", "median-code", "nmse-code", "floor"}


@pytest.mark.slow
def test_a_finished_run_says_so_and_shows_the_grid(run, tmp_path):
    _, first, _ = run(*sweep())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.*")}
    code, out, err = run(*sweep())
    assert code == 0
    assert "finished already" in err
    assert "there already: " in out
    assert out.splitlines()[:4] == first.splitlines()[:4]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.*")}


@pytest.mark.slow
def test_force_repeats(run, tmp_path):
    run(*sweep())
    (path,) = (tmp_path / "results").rglob("grid.csv")
    before = path.stat().st_mtime_ns, path.read_text()
    code, out, _ = run(*sweep("--retrain"))
    assert code == 0
    assert "wrote" in out
    assert path.stat().st_mtime_ns != before[0]
    assert path.read_text() == before[1]


@pytest.mark.slow
def test_missing_or_outdated_pictures_are_drawn(run, tmp_path):
    run(*sweep())
    (picture,) = (tmp_path / "results").rglob("heat-map.png")
    picture.write_bytes(b"as another version drew it")
    picture.with_suffix(".svg").unlink()
    run(*sweep())
    assert picture.read_bytes() == b"as another version drew it"
    assert picture.with_suffix(".svg").exists()
    run(*sweep("--retrain"))
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_dry_run_writes_nothing(run, tmp_path):
    code, out, err = run(*sweep("--seeds", "2", "--attn", "softmax", "--dry-run"))
    assert code == 0
    assert out.count("to do") == 4
    assert "about" in err
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_train_then_sweep(run):
    code, out, _ = run("train", *sweep()[1:])
    assert code == 0
    assert "trained: loss" in out
    code, out, err = run(*sweep())
    assert code == 0
    assert "wrote" in out


@pytest.mark.exhaustive
def test_several_runs_at_once_give_the_same_numbers(run, tmp_path):
    words = [
        "sweep",
        "--task",
        "every",
        "--attn",
        "softmax",
        "--attn",
        "ssmax",
        "--preset",
        "smoke",
        *SMALL,
        "--threads",
        "1",
    ]
    code, _, _ = run(*words, results=tmp_path / "one")
    assert code == 0
    code, out, err = run(*words, "--jobs", "2", results=tmp_path / "two")
    assert code == 0
    assert "2 to do, 2 at once" in err
    grids = [[run.grid().csv() for run in Store(tmp_path / name).runs()] for name in ("one", "two")]
    assert len(grids[0]) == 2
    assert grids[0] == grids[1]


@pytest.mark.slow
def test_compare_trains_what_is_missing_and_writes_a_study(run, tmp_path):
    words = ["compare", "--task", "linear", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke", *SMALL]
    words += ["--set", "test.axes.sigma_f=1,2,4,10", "--seeds", "2"]
    code, out, err = run(*words)
    assert code == 0, err
    assert "| `ssa` |" in out
    assert "reference:3-nn" in out
    (folder,) = (tmp_path / "results").glob("compare-linear-smoke-*")
    names = ("forest", "curves", "ratios", "maps", "learning")
    pictures = {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    texts = {"comparison.csv", "table.md", "study.json", "report.html"}
    assert {path.name for path in folder.iterdir()} == {*texts, *pictures}
    rows = (folder / "comparison.csv").read_text().splitlines()
    assert rows[0].startswith("attn,baseline,sigma_x,sigma_f,length,metric")
    assert all(row.startswith("ssa,softmax,") for row in rows[1:])
    code, again, err = run(*words)
    assert code == 0
    assert "about" not in err, "nothing is left to train"
    assert again == out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "analysis"])
def test_tables_are_printed_before_figures_are_drawn(run, monkeypatch, command):
    from icl_lab.figures import base

    def fail(figure, kind):
        raise RunFailed("not drawn")

    asked = ["compare", "--attn", "softmax"] if command == "compare" else ["per-position"]
    words = [*asked, "--task", "linear", "--attn", "ssa", "--preset", "smoke", *SMALL]
    code, whole, _ = run(*words)
    assert code == 0
    real = base.encode
    for name, module in list(sys.modules.items()):
        if name.startswith("icl_lab.") and getattr(module, "encode", None) is real:
            monkeypatch.setattr(module, "encode", fail)
    code, out, err = run(*words)
    assert code == 1
    assert "not drawn" in err
    assert "| `ssa` |" in out
    assert "wrote" not in out
    assert whole.startswith(out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--attn", "softmax"], "at least two different normalizers"),
        (["--attn", "ssa", "--attn", "ssmax"], "The baseline 'softmax' is not among ssa, ssmax."),
    ],
)
def test_a_comparison_needs_two_rules_and_its_baseline(run, words, said):
    code, _, err = run("compare", "--task", "linear", *words, "--preset", "smoke", *SMALL)
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "linaer", "--attn", "ssa"], ["No task is called 'linaer'", "Did you mean 'linear'?"]),
        (
            ["--task", "linear", "--attn", "sofmax"],
            ["No normalizer is called 'sofmax'", "Did you mean 'softmax'?", "ssa"],
        ),
        (["--task", "linear", "--attn", "ssa:m=2"], ["takes no option 'm'", "n, b, learn, per"]),
        (["--task", "linear", "--attn", "ssa:n=x"], ["n must be a finite number", "'x'"]),
        (["--task", "linear", "--attn", "temperature:tau=-1"], ["tau must be > 0"]),
        (
            ["--task", "linear", "--attn", "ssa", "--preset", "liet"],
            ["No preset is called 'liet'", "Did you mean 'lite'?"],
        ),
        (
            ["--task", "linear", "--attn", "ssa", "--set", "train.stpes=3"],
            ["no option 'stpes'", "Did you mean 'steps'?"],
        ),
        (["--task", "linear", "--attn", "ssa", "--set", "steps=3"], ["no option 'steps'", "model, train, test"]),
        (["--task", "linear", "--attn", "ssa", "--set", "train.steps"], ["field=value"]),
        (["--task", "linear", "--attn", "ssa", "--set", "train=3"], ["is a group", "steps"]),
        (["--task", "linear", "--attn", "ssa", "--set", "train.steps.x=3"], ["single value"]),
        (["--task", "linear", "--attn", "ssa", "--set", "train.steps=0"], ["train.steps", "of at least 1", "'0'"]),
        (["--task", "linear", "--attn", "ssa", "--set", "train.steps=many"], ["a whole number", "'many'"]),
        (["--task", "linear", "--attn", "ssa", "--set", "train.rate=inf"], ["finite number", "'inf'"]),
        (["--task", "linear", "--attn", "ssa", "--set", "model.heads=3"], ["heads must divide width"]),
        (["--task", "linear", "--attn", "ssa", "--set", "model.mlp=maybe"], ["model.mlp", "yes or no"]),
        (["--task", "linear", "--attn", "ssa", "--set", "model.positions=learnt"], ["No position code", "'learned'"]),
        (["--task", "linear", "--attn", "ssa", "--set", "train.curriculum.start=99"], ["start must be <= stop"]),
        (
            ["--task", "linear", "--attn", "ssa", "--set", "test.axes.sigma_x=0"],
            ["sigma_x must be finite and > 0", "'0'"],
        ),
        (["--task", "linear", "--attn", "ssa", "--set", "test.axes.sigma=1"], ["no option 'sigma'", "sigma_x"]),
        (
            ["--task", "linear", "--attn", "ssa", "--set", "test.axes.length=300"],
            ["600 tokens", "512", "none or rotary"],
        ),
        (["--task", "linear", "--attn", "ssa", "--set", "test.axes.length=2"], ["length must be whole numbers >= 4"]),
        (["--task", "linear", "--attn", "ssa", "--device", "tpu"], ["no device 'tpu'", "cpu"]),
        (["--task", "linear"], ["--attn"]),
        (["--task", "linear", "--attn", "ssa", "--seeds", "0"], ["--seeds"]),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, tmp_path, words, said):
    code, out, err = run("sweep", *words)
    assert code == 2
    line = err.strip().splitlines()[-1]
    assert all(word in line for word in said), line
    assert "Traceback" not in err
    assert not (tmp_path / "results").exists()


def test_a_results_folder_that_cannot_be_written(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run(*sweep(), results=tmp_path / "file" / "results")
    assert code == 2
    assert f"{tmp_path / 'file'} is a file" in err.splitlines()[-1]


@pytest.mark.parametrize("what", ["tasks", "normalizers", "positions", "presets"])
def test_list(run, what):
    code, out, _ = run("list", what)
    assert code == 0
    there = {
        "tasks": "every:balance,labels",
        "normalizers": "ssa:n,b,learn,per",
        "positions": "rotary:theta",
        "presets": "lite",
    }
    assert there[what] in out


def test_list_without_a_kind_names_all_kinds(run):
    code, out, _ = run("list")
    assert code == 0
    kinds = dict(line.split(": ", 1) for line in re.sub(r"\n    ", " ", out).splitlines())
    for kind, name in (("tasks", "recall"), ("normalizers", "ssmax"), ("positions", "rotary"), ("presets", "nano")):
        assert name in kinds[kind].split(", ")
    assert "ssa-table1" in kinds["experiments"].split(", ")
    code, out, _ = run(*kinds["next"].split("   ")[0].split()[1:])
    assert code == 0
    assert "w = softmax(" in out


@pytest.mark.slow
def test_list_runs_and_doctor(run, tmp_path):
    run(*sweep())
    code, out, _ = run("list", "runs", "--results", str(tmp_path / "results"))
    assert code == 0
    assert "finished" in out
    assert "ssa" in out
    code, out, _ = run("list", "runs", "--results", str(tmp_path / "results"), "--all")
    assert "finished" in out
    code, out, _ = run("doctor")
    assert code == 0
    assert "torch" in out
    assert "threads" in out


def test_help_imports_nothing_heavy():
    script = """
import sys
from icl_lab.cli.main import cli
try:
    cli(["--help"])
except SystemExit:
    pass
print({"torch", "pandas", "matplotlib", "scipy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.exhaustive
def test_ctrl_c_keeps_a_checkpoint_and_the_same_command_goes_on(tmp_path):
    results = tmp_path / "results"
    words = [sys.executable, "-m", "icl_lab", "train", "--task", "linear", "--attn", "ssa", "--preset", "smoke"]
    words += ["--set", "train.steps=3000", "--threads", "1", "--results", str(results)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(results.rglob("spec.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert "the same command goes on" in said
    assert list(results.rglob("checkpoint.pt"))
    done = subprocess.run(
        [*words[:-2], "--results", str(results), "--dry-run"], capture_output=True, text=True, check=True
    )
    assert "to do" in done.stdout
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "goes on from step" in line:
                process.send_signal(signal.SIGTERM)  # a scheduler that wants its machine back
                break
        said = process.stderr.read()
    assert process.returncode == 75, said


@pytest.mark.slow
def test_shards_divide_the_runs_and_the_last_compares(run, tmp_path):
    words = [*sweep("--attn", "softmax")]
    words[0] = "compare"
    code, out, err = run(*words, "--shard", "1/2")
    assert code == 0
    assert "1 of 2 runs are left to other shards" in err
    assert "wrote" not in out
    assert len(list((tmp_path / "results").rglob("grid.csv"))) == 1
    code, out, _ = run(*words, "--shard", "2/2")
    assert code == 0
    assert "report.html" in out
    assert len(list((tmp_path / "results").rglob("grid.csv"))) == 3  # and the baseline's rescaled test


@pytest.mark.parametrize("shard", ["3/2", "1", "a/b", "0/0", "-1/2"])
def test_a_shard_that_is_none_is_said(run, shard):
    code, _, err = run(*sweep("--shard", shard))
    assert code == 2
    assert "part I of N" in err or "requires an argument" in err


@pytest.mark.slow
def test_a_deviant_from_the_command_line(run, tmp_path):
    words = [*sweep()]
    words[0] = "deviant"
    code, out, _ = run(*words, "--factors", "1,100", "--prompts", "64")
    assert code == 0
    assert "x100" in out
    (folder,) = (tmp_path / "results").glob("deviant-linear-smoke-*")
    assert {path.name for path in folder.iterdir()} == {
        "deviant.csv", "positions.csv", "prompts.csv", "table.md", "deviant.png", "deviant.svg", "study.json",
        "report.html",
    }  # fmt: skip
    before = (folder / "deviant.csv").read_bytes()
    run(*words, "--factors", "1,100", "--prompts", "64")
    assert (folder / "deviant.csv").read_bytes() == before
    code, _, err = run(*words, "--position", "999")
    assert code == 2
    assert "a deviant stands at an index from 0 to" in err


SEARCH = ["--preset", "smoke", *SMALL, "--set", "test.axes.length=32,48", "--set", "test.axes.depth=50"]


@pytest.mark.slow
def test_needles_from_the_command_line(run, tmp_path):
    """From nothing to scores; then by the folder of the run, with the same numbers."""
    code, out, _ = run("needle", "--attn", "ssmax", *SEARCH, "--length", "64", "--trials", "10")
    assert code == 0
    assert "Prompts of 64 tokens" in out
    (folder,) = (tmp_path / "results").glob("needle-needle-smoke-*")
    names = {path.name for path in folder.iterdir()}
    assert names == {"heads.csv", "trials.csv", "table.md", "needle.png", "needle.svg", "study.json", "report.html"}
    before = (folder / "heads.csv").read_bytes()
    (place,) = (tmp_path / "results" / "runs").glob("needle/ssmax/*/seed-0")
    code, out, _ = run("needle", "--run", str(place), "--length", "64", "--prompts", "10")
    assert code == 0
    assert (folder / "heads.csv").read_bytes() == before


@pytest.mark.slow
def test_a_law_from_the_command_line(run, tmp_path):
    code, out, _ = run("law", "--task", "needle", *SEARCH)
    assert code == 0
    assert "log n" in out
    assert len(list((tmp_path / "results").glob("law-needle-smoke-*/law.png"))) == 1


@pytest.mark.slow
def test_boundaries_from_the_command_line(run, tmp_path, monkeypatch):
    """From nothing to bounds; then by the folder of the run, with the same numbers."""
    from icl_lab.analyses.boundary import curves

    monkeypatch.setattr(curves, "SIDE", 40)  # as thin as the detector takes it
    asked = ["--slopes", "3", "--scales", "1", "--contexts", "16", "--reach", "10"]
    code, out, _ = run("boundary", "--attn", "ssa", "--preset", "smoke", *SMALL, "--set", "train.batch=2", *asked)
    assert code == 0
    assert "f(x)" in out
    assert out.splitlines()[-1].startswith("next: open ")
    (folder,) = (tmp_path / "results").glob("boundary-linear-smoke-*")
    names = {path.name for path in folder.iterdir()}
    assert {"curves.csv", "boundary.csv", "table.md", "study.json", "boundary.png", "boundary.svg"} <= names
    assert set(Grid.read(folder / "boundary.csv").values("slope")) == {3}
    before = (folder / "boundary.csv").read_bytes()
    (place,) = (tmp_path / "results" / "runs").glob("linear/ssa/*/seed-0")
    assert (place / "grid.csv").exists()
    code, _, err = run("boundary", "--run", str(place), *asked, "--name", "again")
    assert code == 0
    assert "what was asked before is taken from" in err
    assert (tmp_path / "results" / "again" / "boundary.csv").read_bytes() == before


FIGURE_2 = ["attention", "--prompt", "1,-2,3,70", "--means", "2"]


@pytest.mark.slow
def test_attention_from_the_command_line(run, tmp_path):
    """From nothing to a page; then by the folders of the runs, with the same numbers."""
    which = ["--task", "every", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke", *SMALL]
    which += ["--set", "model.layers=1"]
    code, out, _ = run(*FIGURE_2, *which, "--offer", "average")
    assert code == 0
    assert "| x₄ = 70 | False |" in out
    assert "; the truth is False. The last query has its greatest weight" in out
    (folder,) = (tmp_path / "results").glob("attention-every-smoke-softmax-ssa-1,-2,3,70-*")
    *_, wrote, following = out.splitlines()
    assert wrote.startswith(f"wrote {folder}: answers.csv, attention.html")
    assert following == f"next: open {folder / 'attention.html'}"
    before = (folder / "weights.csv").read_bytes()
    places = [next((tmp_path / "results" / "runs").glob(f"every/{rule}/*/seed-0")) for rule in ("softmax", "ssa")]
    code, out, err = run(*FIGURE_2, "--run", str(places[0]), "--run", str(places[1]), "--name", "again", "--live", "0")
    assert code == 0
    assert "train" not in err
    assert (tmp_path / "results" / "again" / "weights.csv").read_bytes() == before
    code, _, err = run(*FIGURE_2, "--run", str(places[0]).replace("softmax", "sofmax"))
    assert code == 2
    assert f"Did you mean '{places[0]}'" in err


EVERY = ["--task", "every", "--attn", "softmax"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["boundary"], "name the models: --task and --attn, or --run"),
        (["boundary", "--task", "every", "--attn", "ssa"], "every has no prompts of y = a x + b"),
        (["boundary", "--attn", "ssa", "--slopes", "1,steep"], "'1,steep' is not a list of numbers"),
        (["boundary", "--attn", "ssa", "--slopes", "0"], "a slope must not be 0"),
        (["boundary", "--attn", "ssa", "--slopes", "nan"], "'nan' is not a list of numbers"),
        (["boundary", "--attn", "ssa", "--contexts", "4"], "at least 16 contexts, got 4"),
        (["boundary", "--attn", "ssa", "--prompts", "4"], "at least 16 contexts, got 4"),
        (["boundary", "--attn", "ssa", "--reach", "nan"], "'--reach': 'nan' is not a finite number"),
        (["boundary", "--attn", "ssa", "--reach", "5"], "at least 6 times the spread of training y, 8.49, got 5"),
        (["boundary", "--attn", "sssa"], "Did you mean 'ssa'?"),
        (["attention", *EVERY, "--prompt", ""], "a prompt is a list of numbers such as 1,-2,3,70"),
        (["attention", *EVERY, "--prompt", "1,two"], "got 'two'"),
        (["attention", *EVERY, "--prompt", "random:length=300"], "the prompt is too long"),
        (["attention", *EVERY], "Missing option '--prompt'"),
        ([*FIGURE_2, *EVERY, "--layers", "2"], "no layer '2': layers are counted from 0 to 1"),
        ([*FIGURE_2, *EVERY, "--heads", "4"], "no head '4': heads are counted from 0 to 3"),
        ([*FIGURE_2, *EVERY, "--seeds", "3"], "attention takes at most 2 runs, got 3"),
        ([*FIGURE_2, *EVERY, "--means", "1000000000"], "1000000000 is not in the range 0<=x<=10000"),
        (["attention", "--task", "linear", "--attn", "softmax", "--prompt", "1e30,1e30"], "as large as 1e+30"),
        ([*FIGURE_2, *EVERY, "--set", "model.attention=no"], "softmax is a model without attention"),
        ([*FIGURE_2, *EVERY, "--function", "1,0"], "every has no function to choose"),
        (
            [*FIGURE_2, "--task", "needle", "--attn", "softmax"],
            "needle has no prompt of typed numbers, only random ones such as random",
        ),
        ([*FIGURE_2, "--run", "nowhere/seed-0"], "nowhere/seed-0"),
        (["needle"], "name the models: --task and --attn, or --run"),
        (["needle", "--run", "nowhere/seed-0"], "nowhere/seed-0"),
        (
            ["needle", "--task", "linear", "--attn", "ssa"],
            "linear has no answer that stands in its context, for needle scores; tasks that have: needle",
        ),
        (["needle", "--attn", "softmax", "--length", "4"], "a needle of 2 tokens needs prompts of 6 or more"),
        (["law", "--task", "linear", "--attn", "ssmax"], "only ssmax-free learns a factor for every n, got ssmax"),
    ],
)
def test_bad_model_questions_are_one_line(run, tmp_path, words, said):
    code, out, err = run(*words)
    assert code == 2
    assert said in err
    assert not out
    assert not (tmp_path / "results" / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["saturation", "heads"])
def test_heads_are_looked_at_from_the_command_line(run, tmp_path, command):
    small = ["--task", "linear", "--attn", "ssa", "--preset", "smoke", *SMALL, "--set", "test.axes.sigma_f=1,3"]
    more = ["--factors", "10", "--prompts", "16"] if command == "saturation" else ["--prompts", "16"]
    code, out, err = run(command, *small, *more)
    assert code == 0, err
    (folder,) = (tmp_path / "results").glob(f"{command}-linear-smoke-*")
    assert {"table.md", f"{command}.png", f"{command}.svg", "heads.csv"} <= {path.name for path in folder.iterdir()}
    code, _, err = run(command, *small, "--set", "model.attention=no")
    assert code == 2
    assert "a model without attention has no heads" in err


@pytest.mark.slow
def test_single_numbers_are_asked_for_from_the_command_line(run, tmp_path):
    small = ["--task", "every:balance=half", "--attn", "ssa", "--preset", "smoke", *SMALL, "--factors", "10"]
    code, out, err = run("probe", *small)
    assert code == 0, err
    assert "| `ssa` | growing number, alone |" in out
    (folder,) = (tmp_path / "results").glob("probe-every-balance=half-smoke-*")
    assert {"probe.csv", "table.md", "probe.png"} <= {path.name for path in folder.iterdir()}
    code, out, err = run("probe", "--task", "linear", "--attn", "ssa", "--preset", "smoke")
    assert (code, out) == (2, "")
    assert "linear has no answer to a single number; tasks that have: every, some." in err


@pytest.mark.slow
def test_ablations_from_the_command_line(run, tmp_path):
    small = ["--task", "linear", "--preset", "smoke", *SMALL, "--set", "train.steps=5"]
    small += ["--set", "test.axes.sigma_f=1,3", "--set", "test.axes.sigma_x=1"]
    code, out, err = run("ablate", "--attn", "softmax", *small)
    assert code == 0, err
    assert "| `MLP only` |" in out
    assert list((tmp_path / "results").glob("ablate-linear-smoke-*/report.html"))
    code, _, err = run("ablate", "--attn", "softmax", "--attn", "ssa", *small)
    assert code == 2
    assert "give --attn once" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("train.steps=-3", "train.steps: it takes a whole number of at least 1 and at most 1,000,000,000 (got '-3')."),
        (
            "train.steps=1.5",
            "train.steps: it takes a whole number of at least 1 and at most 1,000,000,000 (got '1.5').",
        ),
        ("model.layers=two", "--set model.layers: it takes a whole number of at least 1 and at most 1,000, got 'two'."),
        ("train.rate=-1", "train.rate: it takes a finite number above 0 and at most 1 (got '-1')."),
        ("train.ema=1", "train.ema: it takes a finite number of at least 0 and below 1 (got '1')."),
        (
            "train.curriculum.stop=x",
            "train.curriculum.stop: it takes a whole number of at least 1 and at most 100,000,",
        ),
        ("model.norm=maybe", "model.norm: it takes yes or no (got 'maybe')."),
        ("test.axes.length=a", "test.axes.length: it takes a finite number, got 'a'."),
        ("model.block=bert", "model.block: Invalid enum value 'bert' (got 'bert')."),
    ],
)
def test_a_value_that_does_not_fit_is_answered_in_words(run, given, said):
    code, _, err = run("sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke", "--set", given)
    assert code == 2
    assert said in err


def test_normalizers_may_stand_in_a_row(run):
    words = ["sweep", "--task", "linear", "--preset", "smoke", "--dry-run", "--attn"]
    one, other = run(*words, "softmax,ssa:n=2,per=layer"), run(*words, "softmax", "--attn", "ssa:n=2,per=layer")
    assert one[0] == other[0] == 0
    assert one[1] == other[1]
    assert "ssa:n=2,per=layer" in one[1] + one[2]
    assert run(*words, ",")[0] == 2


def test_one_seed_is_asked_for_by_its_number(run, tmp_path):
    words = ["sweep", "--task", "linear", "--attn", "softmax", "--preset", "smoke", *SMALL]
    code, _, err = run(*words, "--seed", "4")
    assert code == 0, err
    (place,) = (tmp_path / "results" / "runs").glob("linear/softmax/*/seed-*")
    assert place.name == "seed-4"
    assert " --seed 4" in json.loads((place / "env.json").read_text())["command"]
    code, _, err = run(*words, "--seed", "4", "--seeds", "2")
    assert code == 2
    assert "--seeds 2 are the seeds 0 to 1, and --seed 4 is one" in err


def test_the_newest_runs_are_listed_and_all_on_demand(tmp_path):
    from icl_lab.cli import runs
    from icl_lab.runs.spec import resolve
    from icl_lab.runs.store import Store

    store = Store(tmp_path / "results")
    for number in range(23):
        made = store.run(resolve("linear", "ssa", "smoke", [f"train.steps={number + 1}"]), 0)
        made.begin()
        os.utime(made.folder, (number, number))
    shown = list(runs.listing(store, print, whole=False))
    assert [line.split("train.steps=")[1] for line in shown] == [str(steps) for steps in range(23, 3, -1)]
    assert len(list(runs.listing(store, print))) == 23


@pytest.mark.slow
def test_a_comparison_at_one_cell_has_its_own_interval(run, tmp_path, monkeypatch):
    from icl_lab.runs import summary

    words = ["compare", *sweep()[1:], "--attn", "softmax", "--seeds", "2"]
    tables = {}
    for gate in (summary.GATE, math.inf):  # so short a training learns nothing; then what is learned is not asked
        monkeypatch.setattr(summary, "GATE", gate)
        code, out, _ = run(*words, "--at", "sigma_f=2")
        assert code == 0
        tables[gate] = out.split("At sigma_f=2:")[1].partition("wrote")[0]
    unlearned, learned = tables.values()
    for table in (unlearned, learned):
        assert table.splitlines()[2] == "| normalizer | error | ratio to softmax |"
    assert re.search(r"\n\| `ssa` \| [\d.]+ \| [\d.]+ \[[\d.e-]+, [\d.e+]+\] \|\n", learned)
    assert re.search(r"\n\| `ssa` \| [\d.]+ \|\n", unlearned)
    assert unlearned.endswith("Not compared, since not learned: ssa, softmax.\n")
    code, _, err = run(*words, "--at", "sigma_f=3.5")
    assert code == 2
    assert "no cell of the test grid has sigma_f=3.5; tested: " in err
    assert run(*words, "--at", "sigma_f")[0] == 2

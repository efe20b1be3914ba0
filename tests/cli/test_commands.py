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
from icl_lab.cli import runs
from icl_lab.figures import base
from icl_lab.runs import summary
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store

pytestmark = pytest.mark.usefixtures("quick_pictures")

SMALL = ["--set", "train.steps=10", "--set", "train.batch=8", "--set", "test.prompts=64"]


def sweep(*words):
    return ["sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke", *SMALL, *words]


@pytest.mark.slow
def test_a_sweep_says_what_it_does_and_where_it_is(run, tmp_path):
    out, err = run.ok(*sweep())
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
    out, err = run.ok(*sweep())
    assert "finished already" in err
    assert "there already: " in out
    assert out.splitlines()[:4] == first.splitlines()[:4]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.*")}


@pytest.mark.slow
def test_retrain_repeats_numbers_and_missing_pictures_are_drawn(run, tmp_path):
    run(*sweep())
    (grid,) = (tmp_path / "results").rglob("grid.csv")
    before = grid.stat().st_mtime_ns, grid.read_text()
    picture = grid.with_name("heat-map.png")
    picture.write_bytes(b"as another version drew it")
    picture.with_suffix(".svg").unlink()
    run(*sweep())
    assert picture.read_bytes() == b"as another version drew it"
    assert picture.with_suffix(".svg").exists()
    code, out, _ = run(*sweep("--retrain"))
    assert (code, "wrote" in out) == (0, True)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert grid.stat().st_mtime_ns != before[0]
    assert grid.read_text() == before[1]


def test_a_dry_run_writes_nothing(run, tmp_path):
    out, err = run.ok(*sweep("--seeds", "2", "--attn", "softmax", "--dry-run"))
    assert out.count("to do") == 4
    assert "about" in err
    assert not (tmp_path / "results").exists()


@pytest.mark.exhaustive
def test_several_runs_at_once_give_the_same_numbers(run, tmp_path):
    words = ["sweep", "--task", "every", "--attn", "softmax,ssmax", "--preset", "smoke", *SMALL, "--threads", "1"]
    run.ok(*words, results=tmp_path / "one")
    out, err = run.ok(*words, "--jobs", "2", results=tmp_path / "two")
    assert "2 to do, 2 at once" in err
    grids = [[run.grid().csv() for run in Store(tmp_path / name).runs()] for name in ("one", "two")]
    assert len(grids[0]) == 2
    assert grids[0] == grids[1]


@pytest.mark.slow
def test_compare_trains_what_is_missing_and_writes_a_study(run, tmp_path):
    words = ["compare", "--task", "linear", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke", *SMALL]
    words += ["--set", "test.axes.sigma_f=1,2,4,10", "--seeds", "2"]
    out, err = run.ok(*words)
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
    again, err = run.ok(*words)
    assert "about" not in err, "nothing is left to train"
    assert again == out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "analysis"])
def test_tables_are_printed_before_figures_are_drawn(run, monkeypatch, command):
    def fail(figure, kind):
        raise RunFailed("not drawn")

    asked = ["compare", "--attn", "softmax"] if command == "compare" else ["per-position"]
    words = [*asked, "--task", "linear", "--attn", "ssa", "--preset", "smoke", *SMALL]
    whole, _ = run.ok(*words)
    real = base.encode
    for name, module in list(sys.modules.items()):
        if name.startswith("icl_lab.") and getattr(module, "encode", None) is real:
            monkeypatch.setattr(module, "encode", fail)
    out, err = run.failed(*words)
    assert "not drawn" in err
    assert "| `ssa` |" in out
    assert "wrote" not in out
    assert whole.startswith(out)


@pytest.mark.parametrize("what", ["tasks", "normalizers", "positions", "presets"])
def test_list(run, what):
    out, _ = run.ok("list", what)
    named = {"tasks": "every:balance,labels", "normalizers": "ssa:n,b,learn,per", "positions": "rotary:theta"}
    assert named.get(what, "lite") in out


def test_the_doctor_names_the_machine(run):
    code, out, _ = run("doctor")
    assert (code, "torch" in out, "threads" in out) == (0, True, True)


def test_list_without_a_kind_names_all_kinds(run):
    out, _ = run.ok("list")
    kinds = dict(line.split(": ", 1) for line in re.sub(r"\n    ", " ", out).splitlines())
    for kind, name in (("tasks", "recall"), ("normalizers", "ssmax"), ("positions", "rotary"), ("presets", "nano")):
        assert name in kinds[kind].split(", ")
    assert "ssa-table1" in kinds["experiments"].split(", ")
    out, _ = run.ok(*kinds["next"].split("   ")[0].split()[1:])
    assert "w = softmax(" in out


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
    out, err = run.ok(*words, "--shard", "1/2")
    assert "1 of 2 runs are left to other shards" in err
    assert "wrote" not in out
    assert len(list((tmp_path / "results").rglob("grid.csv"))) == 1
    out, _ = run.ok(*words, "--shard", "2/2")
    assert "report.html" in out
    assert len(list((tmp_path / "results").rglob("grid.csv"))) == 3  # and the baseline's rescaled test


FIGURE_2 = ["attention", "--prompt", "1,-2,3,70", "--means", "2"]


@pytest.mark.slow
def test_attention_from_the_command_line(run, tmp_path):
    """From nothing to a page; then by the folders of the runs, with the same numbers."""
    which = ["--task", "every", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke", *SMALL]
    which += ["--set", "model.layers=1"]
    out, _ = run.ok(*FIGURE_2, *which, "--offer", "average")
    assert "| x₄ = 70 | False |" in out
    assert "; the truth is False. The last query has its greatest weight" in out
    (folder,) = (tmp_path / "results").glob("attention-every-smoke-softmax-ssa-1,-2,3,70-*")
    *_, wrote, following = out.splitlines()
    assert wrote.startswith(f"wrote {folder}: answers.csv, attention.html")
    assert following == f"next: open {folder / 'attention.html'}"
    before = (folder / "weights.csv").read_bytes()
    places = [next((tmp_path / "results" / "runs").glob(f"every/{rule}/*/seed-0")) for rule in ("softmax", "ssa")]
    out, err = run.ok(*FIGURE_2, "--run", str(places[0]), "--run", str(places[1]), "--name", "again", "--live", "0")
    assert "train" not in err
    assert (tmp_path / "results" / "again" / "weights.csv").read_bytes() == before
    _, err = run.refused(*FIGURE_2, "--run", str(places[0]).replace("softmax", "sofmax"))
    assert f"Did you mean '{places[0]}'" in err


@pytest.mark.slow
def test_ablations_from_the_command_line(run, tmp_path):
    small = ["--task", "linear", "--preset", "smoke", *SMALL, "--set", "train.steps=5"]
    small += ["--set", "test.axes.sigma_f=1,3", "--set", "test.axes.sigma_x=1"]
    out, err = run.ok("ablate", "--attn", "softmax", *small)
    assert "| `MLP only` |" in out
    assert list((tmp_path / "results").glob("ablate-linear-smoke-*/report.html"))
    _, err = run.refused("ablate", "--attn", "softmax", "--attn", "ssa", *small)
    assert "give --attn once" in err


def test_one_seed_is_asked_for_by_its_number(run, tmp_path):
    words = ["sweep", "--task", "linear", "--attn", "softmax", "--preset", "smoke", *SMALL]
    _, err = run.ok(*words, "--seed", "4")
    (place,) = (tmp_path / "results" / "runs").glob("linear/softmax/*/seed-*")
    assert place.name == "seed-4"
    assert " --seed 4" in json.loads((place / "env.json").read_text())["command"]
    _, err = run.refused(*words, "--seed", "4", "--seeds", "2")
    assert "--seeds 2 are the seeds 0 to 1, and --seed 4 is one" in err


def test_the_newest_runs_are_listed_and_all_on_demand(tmp_path):
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
    words = ["compare", *sweep()[1:], "--attn", "softmax", "--seeds", "2"]
    tables = {}
    for gate in (summary.GATE, math.inf):  # so short a training learns nothing; then what is learned is not asked
        monkeypatch.setattr(summary, "GATE", gate)
        out, _ = run.ok(*words, "--at", "sigma_f=2")
        tables[gate] = out.split("At sigma_f=2:")[1].partition("wrote")[0]
    unlearned, learned = tables.values()
    for table in (unlearned, learned):
        assert table.splitlines()[2] == "| normalizer | error | ratio to softmax |"
    assert re.search(r"\n\| `ssa` \| [\d.]+ \| [\d.]+ \[[\d.e-]+, [\d.e+]+\] \|\n", learned)
    assert re.search(r"\n\| `ssa` \| [\d.]+ \|\n", unlearned)
    assert unlearned.endswith("Not compared, since not learned: ssa, softmax.\n")
    _, err = run.refused(*words, "--at", "sigma_f=3.5")
    assert "no cell of the test grid has sigma_f=3.5; tested: " in err
    assert run(*words, "--at", "sigma_f")[0] == 2

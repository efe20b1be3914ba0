"""The command line as a user meets it: output, exit codes, one clear line for every slip."""

import json
import os
import re
import signal
import sys
from unittest.mock import Mock

import pytest

from icl_lab.base.errors import RunFailed
from icl_lab.base.grid import Grid
from icl_lab.cli import runs
from icl_lab.figures import base
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from icl_lab.training import loop
from tests.cli.conftest import LINEAR

pytestmark = pytest.mark.usefixtures("quick_pictures")

SMALL = ["--set", "train.steps=10", "--set", "train.batch=8", "--set", "test.prompts=64"]


def sweep(*words):
    return ["sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke", *SMALL, *words]


@pytest.mark.slow
def test_a_sweep_says_what_it_does_and_where_it_is(run, tmp_path):
    out, err = run.ok(*sweep())
    announced = ("linear", "ssa", "smoke", "cpu (1 threads)", "parameters", "10 steps", "about")
    assert [word for word in announced if word not in err.splitlines()[0]] == []
    assert "sigma_x down, sigma_f across" in out
    assert "reference:least-squares" in out
    (path,) = (tmp_path / "results").rglob("grid.csv")
    assert str(path) in out
    command = json.loads((path.parent / "env.json").read_text())["command"]
    assert command.startswith("icl-lab sweep --task linear --attn ssa")
    assert (path.parent / "heat-map.png").read_bytes()[:4] == b"\x89PNG"
    assert (path.parent / "heat-map.svg").exists()
    assert (path.parent / "learning-curve.png").exists()
    assert out.splitlines()[-1].startswith("next: ")
    grid = Grid.read(path)
    assert set(grid.values("metric")) == {"mse-code", "mse-eq2", "mse-all", "median-code", "nmse-code", "floor"}


@pytest.mark.slow
def test_a_finished_run_is_shown_and_retrain_repeats_it(run, tmp_path):
    first, _ = run.ok(*sweep())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.*")}
    out, err = run.ok(*sweep())
    assert "finished already" in err
    assert "there already: " in out
    assert out.splitlines()[:4] == first.splitlines()[:4]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.*")}
    (grid,) = (tmp_path / "results").rglob("grid.csv")
    numbers, picture = grid.read_text(), grid.with_name("heat-map.png")
    picture.write_bytes(b"as another version drew it")
    picture.with_suffix(".svg").unlink()
    run.ok(*sweep())
    assert picture.read_bytes() == b"as another version drew it"
    assert picture.with_suffix(".svg").exists()
    assert "wrote" in run.ok(*sweep("--retrain"))[0]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert grid.stat().st_mtime_ns != before[grid]
    assert grid.read_text() == numbers


def test_a_dry_run_writes_nothing(run, tmp_path):
    out, err = run.ok(*sweep("--seeds", "2", "--attn", "softmax", "--dry-run"))
    assert out.count("to do") == 4
    assert "about" in err
    out, err = run.ok("boundary", *sweep("--dry-run")[1:])
    assert (out.count("to do"), err.count("would write")) == (1, 1)
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_compare_trains_what_is_missing_and_writes_a_study(run, compared, made):
    assert "| `ssa` |" in compared.out
    assert "reference:3-nn" in compared.out
    names = ("forest", "curves", "ratios", "maps", "learning")
    pictures = {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    texts = {"comparison.csv", "table.md", "study.json", "report.html"}
    assert {path.name for path in made.iterdir()} == {*texts, *pictures}
    rows = (made / "comparison.csv").read_text().splitlines()
    assert rows[0].startswith("attn,baseline,sigma_x,sigma_f,length,metric")
    assert all(row.startswith("ssa,softmax,") for row in rows[1:])
    again, err = run.ok("compare", *LINEAR, "--attn", "softmax", "--attn", "ssa", "--seeds", "2")
    assert "about" not in err, "nothing is left to train"
    assert again == compared.out.replace(str(compared.root), str(made.parent))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "analysis"])
def test_tables_are_printed_before_figures_are_drawn(run, monkeypatch, command):
    asked = ["compare", "--attn", "softmax"] if command == "compare" else ["per-position"]
    words = [*asked, "--task", "linear", "--attn", "ssa", "--preset", "smoke", *SMALL]
    whole, _ = run.ok(*words)
    real, fail = base.encode, Mock(side_effect=RunFailed("not drawn"))
    for name, module in list(sys.modules.items()):
        if name.startswith("icl_lab.") and getattr(module, "encode", None) is real:
            monkeypatch.setattr(module, "encode", fail)
    out, err = run.failed(*words)
    assert "not drawn" in err
    assert "| `ssa` |" in out
    assert "wrote" not in out
    assert whole.startswith(out)


def test_parts_are_listed_with_options_and_all_kinds_by_name(run):
    named = {"tasks": "every:balance,labels", "normalizers": "ssa:n,b,learn,per", "positions": "rotary:theta"}
    for what, name in {**named, "presets": "lite"}.items():
        assert name in run.ok("list", what)[0]
    out, _ = run.ok("list")
    kinds = dict(line.split(": ", 1) for line in re.sub(r"\n    ", " ", out).splitlines())
    for kind, name in (("tasks", "recall"), ("normalizers", "ssmax"), ("positions", "rotary"), ("presets", "nano")):
        assert name in kinds[kind].split(", ")
    assert "ssa-table1" in kinds["experiments"].split(", ")
    assert "w = softmax(" in run.ok(*kinds["next"].split("   ")[0].split()[1:])[0]


@pytest.mark.slow
def test_shards_divide_the_runs_and_the_last_compares(run, tmp_path):
    words = [*sweep("--attn", "softmax")]
    words[0] = "compare"
    out, err = run.ok(*words, "--shard", "1/2")
    assert "1 of 2 runs are left to other shards" in err
    assert "wrote" not in out
    assert len(list((tmp_path / "results").rglob("grid.csv"))) == 1
    assert "report.html" in run.ok(*words, "--shard", "2/2")[0]
    assert len(list((tmp_path / "results").rglob("grid.csv"))) == 3  # and the baseline's rescaled test


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])  # a user, a scheduler
def test_a_signal_keeps_a_checkpoint_and_the_same_goes_on(run, tmp_path, monkeypatch, number, code):
    words, step = [*sweep("--set", "train.steps=60")], loop.advance

    def signalled(engine, spec, seed, at):
        if at == 20:
            os.kill(os.getpid(), number)
        return step(engine, spec, seed, at)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "advance", signalled)
        left, _, said = run(*words)
    assert (left, "the same command goes on" in said) == (code, True)
    assert list((tmp_path / "results").rglob("checkpoint.pt"))
    assert "goes on from step 21" in run.ok(*words)[1]


FIGURE_2 = ["attention", "--prompt", "1,-2,3,70", "--means", "2", "--live", "0"]


@pytest.mark.slow
def test_attention_from_the_command_line(run, tmp_path):
    """From nothing to a page; then by the folders of the runs, with the same numbers."""
    which = ["--task", "every", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke", *SMALL]
    which += ["--set", "model.layers=1"]
    out, _ = run.ok(*FIGURE_2, *which)
    assert "| x₄ = 70 | False |" in out
    assert "; the truth is False. The last query has its greatest weight" in out
    (folder,) = (tmp_path / "results").glob("attention-every-smoke-softmax-ssa-1,-2,3,70-*")
    *_, wrote, following = out.splitlines()
    assert wrote.startswith(f"wrote {folder}: answers.csv, attention.html")
    assert following == f"next: open {folder / 'attention.html'}"
    before = (folder / "weights.csv").read_bytes()
    places = [next((tmp_path / "results" / "runs").glob(f"every/{rule}/*/seed-0")) for rule in ("softmax", "ssa")]
    out, err = run.ok(*FIGURE_2, "--run", str(places[0]), "--run", str(places[1]), "--name", "again")
    assert "train" not in err
    assert (tmp_path / "results" / "again" / "weights.csv").read_bytes() == before
    _, err = run.refused(*FIGURE_2, "--run", str(places[0]).replace("softmax", "sofmax"))
    assert f"Did you mean '{places[0]}'" in err


@pytest.mark.slow
def test_ablations_from_the_command_line(run, tmp_path):
    small = ["--task", "linear", "--preset", "smoke", *SMALL, "--set", "train.steps=5"]
    small += ["--set", "test.axes.sigma_f=1,3", "--set", "test.axes.sigma_x=1"]
    assert "| `MLP only` |" in run.ok("ablate", "--attn", "softmax", *small)[0]
    assert list((tmp_path / "results").glob("ablate-linear-smoke-*/report.html"))
    assert "give --attn once" in run.refused("ablate", "--attn", "softmax", "--attn", "ssa", *small)[1]


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

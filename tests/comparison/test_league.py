"""Skill and ranks by hand, what is missing, and the command."""

import math

import pytest

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.comparison import league
from icl_lab.comparison.league import WORST, League, Skill
from icl_lab.runs.spec import resolve


def grid(choice, cells, axis):
    """A grid along one axis: name -> the headline error at each value; other axes as in training."""
    task = tasks.build(choice)
    fixed = {**task.training, "length": 40.0}
    rows = [
        {"attn": name, **fixed, axis: value, "metric": task.headline, "value": error}
        for name, errors in cells.items()
        for value, error in errors.items()
    ]
    who = {"task": choice, "preset": "smoke", "spec": "0", "seed": 0, "stderr": 0.0, "count": 64}
    return Grid.of(rows, list(fixed), **who)


def test_skill_by_hand():
    """Trivial errs 2 at sigma 1 and 200 at 10, the best reference 0; ours 0.5 and 150: 3/4 and 1/4."""
    made = grid(
        "linear",
        {"ssa": {1: 0.5, 10: 150}, "reference:zero": {1: 2, 10: 200}, "reference:bayes": {1: 0, 10: 0}},
        "sigma_f",
    )
    assert league.of(made, tasks.build("linear"), resolve("linear", "ssa", "smoke")) == (0.75, 0.25)


def test_a_grid_without_training_conditions_tells_no_skill():
    made = grid("linear", {"ssa": {1: 1, 10: 3}, "reference:zero": {1: 4, 10: 4}}, "sigma_f")
    assert all(
        map(
            math.isnan,
            league.of(made, tasks.build("linear"), resolve("linear", "ssa", "smoke", ["train.shift.sigma_f=3"])),
        )
    )


@pytest.mark.parametrize("bad", [math.inf, 1e9])
def test_worse_than_trivial_counts_as_the_worst(bad):
    made = grid(
        "linear",
        {"ssa": {1: 0.5, 10: bad}, "reference:zero": {1: 2, 10: 200}, "reference:bayes": {1: 0, 10: 0}},
        "sigma_f",
    )
    assert league.of(made, tasks.build("linear"), resolve("linear", "ssa", "smoke")) == (0.75, WORST)


def made(**rules):
    """A league: normalizer -> task -> the skills of its seeds, alike near and far."""
    skills = {
        (rule, task): Skill(dict(enumerate(values)), dict(enumerate(values)))
        for rule, by_task in rules.items()
        for task, values in by_task.items()
    }
    return League(skills, "softmax")


def test_mean_ranks_by_hand():
    """Of a, b and c: 1, 2, 3 on one task; 2, 1, 3 on the other."""
    found = made(
        softmax={"x": [0.9, 0.9], "y": [0.5, 0.5]},
        ssa={"x": [0.8, 0.8], "y": [0.6, 0.6]},
        lssa={"x": [0.1], "y": [0.2]},
    )
    standings = found.standings("far")
    assert {rule: each.mean for rule, each in standings.items()} == {"softmax": 1.5, "ssa": 1.5, "lssa": 3.0}
    assert (standings["lssa"].low, standings["lssa"].high) == (3.0, 3.0)
    assert (standings["softmax"].low, standings["softmax"].high) == (1.0, 2.0)  # which task is drawn decides


def test_ties_share_a_rank_with_its_interval():
    """On one task, so that only seeds are drawn: ssa is at 0.6 with one of its two seeds, the others are alike."""
    standings = made(softmax={"x": [0.5]}, lssa={"x": [0.5]}, ssa={"x": [0.1, 0.6]}).standings("near")
    assert {rule: each.mean for rule, each in standings.items()} == {"softmax": 1.5, "lssa": 1.5, "ssa": 3.0}
    assert (standings["ssa"].low, standings["ssa"].high) == (1.0, 3.0)
    assert (standings["softmax"].low, standings["softmax"].high) == (1.5, 2.5)


def test_a_task_without_skill_in_a_part_ranks_nobody():
    found = made(softmax={"x": [0.9], "y": [math.nan]}, ssa={"x": [0.8], "y": [math.nan]})
    assert {rule: each.mean for rule, each in found.standings("far").items()} == {"softmax": 1.0, "ssa": 2.0}
    assert made(softmax={"y": [math.nan]}, ssa={"y": [math.nan]}).standings("far") == {}


def test_a_rule_that_lacks_a_task_has_no_rank():
    found = made(softmax={"x": [0.9], "y": [0.5]}, ssa={"x": [0.8], "y": [0.6]}, sink={"x": [1.0]}, lone={"z": [1.0]})
    assert found.tasks == ["x", "y"]
    assert set(found.standings("near")) == {"softmax", "ssa"}
    text = "\n".join(league.table(found, 3))
    assert "Without a rank, because a task is missing: `sink`, `lone`." in text
    assert "| `sink` | 1.00 | missing |" in text
    assert "runs that are missing: 3." in text


def test_only_a_difference_over_seeds_is_marked():
    found = made(
        softmax={"x": [0.50, 0.52, 0.51], "y": [0.5]},
        ssa={"x": [0.80, 0.82, 0.83], "y": [0.9]},
        lssa={"x": [0.40, 0.70, 0.51], "y": [0.9]},
    )
    assert found.clear("ssa", "x", "far")
    assert not found.clear("lssa", "x", "far")
    assert not found.clear("ssa", "y", "far")  # one seed
    assert not found.clear("softmax", "x", "far")
    assert "| `ssa` | 0.82* | 0.90 |" in "\n".join(league.table(found, 0))
    assert league.table(found, 0)[-1].startswith("\\* differs from `softmax`")
    alone = league.League({cell: skill for cell, skill in found.skills.items() if cell[0] != "softmax"}, "softmax")
    assert "differs from" not in "\n".join(league.table(alone, 0))


@pytest.mark.slow
def test_league_ranks_stored_runs_and_trains_on_request(run, quick_pictures, tmp_path):
    small = [w for s in ("train.steps=3", "train.batch=4", "model.width=8", "test.prompts=64") for w in ("--set", s)]
    words = ["league", "--preset", "smoke", *small, "--results", str(tmp_path / "r"), "--no-evidence", "--threads", "1"]
    words += ["--task", "linear", "--task", "every:balance=half", "--attn", "softmax", "--attn", "ssa"]
    code, _, err = run(*words)
    assert code == 2
    assert "a league needs two normalizers with finished runs of one task" in err
    code, out, err = run(*words, "--train")
    assert code == 0, err
    assert "2 normalizers, 2 tasks" in out
    folder = tmp_path / "r" / "league-smoke"
    assert {path.name for path in folder.iterdir()} >= {
        "league.csv",
        "table.md",
        "league.png",
        "ranks.png",
        "study.json",
    }
    assert len((folder / "league.csv").read_text().splitlines()) == 1 + 2 * 2 * 2
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    code, out, _ = run(*words, "--add", "lssa", "--dry-run")
    assert (code, out) == (0, "4 of 6 runs are there to be ranked; --train trains what is missing.\n")
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    code, out, err = run(*words, "--add", "lssa")
    assert code == 0
    assert "2 of 6 runs are missing; --train trains them." in err
    assert "`lssa`" not in out.split("###")[1]


def test_a_task_without_trivial_references_is_refused():
    task = tasks.build("linear")
    bare = type("Bare", (type(task),), {"trivial": ()})()
    with pytest.raises(BadValue, match="names no trivial reference"):
        league.of(grid("linear", {"ssa": {1: 1}}, "sigma_f"), bare, resolve("linear", "ssa", "smoke"))

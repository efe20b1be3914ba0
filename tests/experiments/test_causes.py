"""Numbers of the figure of causes, computed again from the Parquet parts with pandas alone."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from icl_lab import tasks
from icl_lab.runs.measure import draw
from icl_lab.runs.spec import resolve

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "results" / "evidence"
PARTS = [EVIDENCE / part["name"] for part in json.loads((EVIDENCE / "index.json").read_text())["parts"]]
TABLE = pd.read_csv(ROOT / "docs" / "pictures" / "causes.csv").set_index(["task", "row", "dot"])
# How each dot was trained and tested, by the fields of its specification; others are the preset's.
NANO = {
    "train.steps": 1200,
    "train.rate": 0.005,
    "train.muon_rate": 0.005,
    "test.rescale": "none",
    "test.positions": "",
}
LINEAR = NANO | {"task": "linear", "test.draws": "paper", "test.axes.sigma_f": [*range(1, 11), 100]}
EVERY = NANO | {"task": "every:balance=half", "test.axes.length": [40, 200], "test.prompts": 512}
NEEDLE = NANO | {
    "task": "needle",
    "test.axes.length": [64, 128, 256, 512, 1024],
    "test.axes.depth": [10, 30, 50, 70, 90],
}
FOUR = {"train.rate": 0.02, "train.muon_rate": 0.02}
ALIBI, ROTARY = {"model.positions": "alibi"}, {"model.positions": "rotary"}
WIDE, HOME = {"sigma_x": [1], "sigma_f": [10], "length": [40]}, {"sigma_x": [1], "sigma_f": [1], "length": [40]}
LARGE, AS_TRAINED = {"sigma": [30], "length": [40]}, {"sigma": [1], "length": [40]}
LONG, SHORT = {"length": [256, 512, 1024]}, {"length": [64]}
DOTS = {
    "linear": (LINEAR, LINEAR | {"test.rescale": "labels"}, WIDE, HOME, "mse-code"),
    "every": (EVERY, EVERY | FOUR, LARGE, AS_TRAINED, "balanced-last"),
    "needle": (NEEDLE | ROTARY, NEEDLE | ALIBI, LONG, SHORT, "exact"),
}
USUAL = {"model.layers": 2, "model.norm": True, "model.norm_in": False, "model.final_norm": "block", "model.mlp": True}
USUAL |= {"model.attention": True, "model.read_in": "linear", "model.read_in_start": 1, "model.read_out_start": 1}
USUAL |= {"train.shift": {}, "train.switch_to": "", "train.scaling": "fixed", "train.optimizer": "muon"}
SPELLED = {"needle": {"ssmax": "ssmax:s=swap"}}  # the normalizer that a row of the figure names in short


def field(spec, path):
    """A field of a specification; None where the run is from before there was such a field."""
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, dict) else None
    return spec


@pytest.fixture(scope="module")
def runs():
    table = pd.concat(
        [pd.read_parquet(part / "runs.parquet", columns=["key", "attn", "preset", "spec_json"]) for part in PARTS]
    )
    table = table[table["preset"] == "nano"].drop_duplicates("key", keep="last")
    table["fields"] = table["spec_json"].map(json.loads)
    usual = [all(field(spec, path) in (None, value) for path, value in USUAL.items()) for spec in table["fields"]]
    return table[usual]


@pytest.fixture(scope="module")
def cells():
    columns = ["key", "swap", "metric", "value", "seed", "sigma_x", "sigma_f", "sigma", "length"]
    known = []
    for part in PARTS:
        names = pd.read_parquet(part / "cells.parquet").columns.intersection(columns)
        known.append(pd.read_parquet(part / "cells.parquet", columns=list(names)))
    return pd.concat(known)


@pytest.mark.slow
@pytest.mark.parametrize("task", TABLE.index.unique("task"))
def test_each_dot_is_a_mean_over_seeds(task, runs, cells):
    plain, right, away, home, metric = DOTS[task]
    rows = TABLE.loc[task].reset_index()
    for name in rows[rows["dot"] == "in training"]["row"]:
        attn = SPELLED.get(task, {}).get(name, name)
        keys = [{key for key, fields in zip(of["key"], of["fields"], strict=True)
                 if all(field(fields, path) in (None, value) for path, value in wanted.items())}
                for of in [runs[runs["attn"] == attn]] for wanted in (plain, right)]  # fmt: skip
        values = []
        for which, where in ((keys[0], away), (keys[1], away), (keys[0], home)):
            mine = cells[cells["key"].isin(which) & (cells["swap"] == "") & (cells["metric"] == metric)]
            for axis, wanted in where.items():
                mine = mine[mine[axis].isin(wanted)]
            seeds = mine.groupby("seed")["value"]
            values.append(seeds.apply(lambda each: np.exp(np.log(each).mean()) if task == "linear" else each.mean()))
        both = values[0].index.intersection(values[1].index)
        assert len(both) > 0, (task, name)
        for dot, found in zip(("as papers test it", "cause right", "in training"), values, strict=True):
            found = found.loc[both]
            mean = np.exp(np.log(found).mean()) if task == "linear" else found.mean()
            row = TABLE.loc[task, name, dot]
            wanted = [mean, found.min(), found.max(), len(both)]
            assert row[["value", "low", "high", "seeds"]].tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-9), name


def test_errors_by_the_asked_number_add_up_to_the_figures():
    """The balanced error is half the share wrong where yes is right, and half of that where no is, by hand."""
    task = tasks.build("every:balance=half")
    test = resolve("every:balance=half", "softmax", "nano", ["test.axes.length=40,200", "test.prompts=512"]).test
    prompt = draw(task, 40, test, {"sigma": 30.0})
    numbers = prompt.tokens[:, 0 : prompt.end : 2, 0]
    last = numbers[:, -1][(numbers <= 0).any(1)].numpy()
    groups = [last <= 0, (last > 0) & (last <= 10), (last > 10) & (last <= 20), last > 20]
    block = (ROOT / "docs/extrapolation.md").read_text().split("<!-- asked -->\n")[1].split("<!-- end asked -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]]
    assert len(rows) > 10
    for name, rate, *cells in rows:
        yes, *no = (float(cell.replace("−", "-")) for cell in cells[:-1])
        balanced = (yes + sum(share * group.mean() for share, group in zip(no, groups, strict=True))) / 2
        dot = "as papers test it" if rate == "the preset's" else "cause right"
        assert balanced == pytest.approx(TABLE.loc["every", name, dot]["value"], abs=0.005), (name, rate)


def test_numbers_of_readmes_first_finding_are_the_figures():
    (bullet,) = re.findall(r"\* \*\*What decides\.\*\*(.*?)\(", (ROOT / "README.md").read_text(), re.DOTALL)
    printed = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", bullet)]
    held = [
        TABLE.loc[task, "softmax", dot]["value"] * (1 if task == "linear" else 100)
        for task in ("linear", "every", "needle") for dot in ("as papers test it", "cause right")
    ]  # fmt: skip
    digits = (0, 2, 0, 0, 0, 1)
    assert printed == [round(value, places) for value, places in zip(held, digits, strict=True)]

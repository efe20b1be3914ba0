"""Every interval that README and findings print, computed again with pandas and scipy from the Parquet parts alone.

Nothing of icl_lab's statistics is imported. What is read of the record is which runs a claim is about, its values of
analyses (which no Parquet part holds), and the printed interval that the result is compared with.
"""

import json
import math
import re
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from icl_lab import tasks
from tests.claims.test_prose import RECORD

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "results" / "evidence"
PARTS = [EVIDENCE / part["name"] for part in json.loads((EVIDENCE / "index.json").read_text())["parts"]]
LOOKS = {3: 0.2, 5: 0.2, 8: 0.2, 12: 0.1, 16: 0.1, 24: 0.08, 32: 0.06, 48: 0.04, 64: 0.02}  # shares of 5 %
CLOSE = 0.06  # of an interval's half width: another bootstrap of the prompts, and three printed digits


@cache
def table(name):
    """Rows of all parts; of a run that stands in several, those of the last."""
    frames = [pd.read_parquet(part / f"{name}.parquet").assign(part=number) for number, part in enumerate(PARTS)
              if (part / f"{name}.parquet").exists()]  # fmt: skip
    found = pd.concat(frames, ignore_index=True)
    return found[found["part"] == found.groupby("key")["part"].transform("max")]


@cache
def references():
    """Rows of the references of all parts; each test once."""
    found = pd.concat([pd.read_parquet(part / "references.parquet") for part in PARTS], ignore_index=True)
    return found.drop_duplicates([name for name in found.columns if name not in ("row", "value", "stderr", "count")])


def printed():
    """Claims that README and findings show or cite: experiment, statement, preset -> the interval as it is printed.

    Of a claim that a paragraph cites it is that of the record, which the paragraph rounds.
    """
    rows = {}
    for page in ("README.md", "results/findings.md"):
        text = (ROOT / page).read_text()
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("| ") and len(cells) == 7 and "experiments/" in cells[6]:
                name = re.search(r"experiments/([\w-]+)\.toml", cells[6])[1]
                preset = re.match(r"`(\w+)`", cells[5])[1]
                rows[name, cells[0], preset] = cells[2]
        for name, statement, preset in re.findall(r"<!-- cites ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|", text):
            row = RECORD[name, statement, preset]
            if row["state"] == "judged":
                rows.setdefault((name, statement, preset), _recorded(row))
    return rows


def _recorded(row):
    shown = [float(row[name]) for name in ("effect", "low", "high")]
    effect, low, high = np.exp(shown) if row["scale"] == "log-ratio" else shown
    return f"{effect:.6g} [{low:.6g}, {high:.6g}]"


def numbers(row, name):
    return [float(value) for value in row[name].split()]


def values_of(side, spec, seeds, experiment, metric, log, home):
    """One number per seed: the mean over the cells of a side (of logarithms where ratios are compared), and prompts."""
    cells, errors = table("cells"), table("errors")
    spec, _, swap = spec.partition("->")
    mine = cells[(cells["spec"] == spec) & (cells["swap"] == swap) & (cells["metric"] == metric)]
    if side["of"].startswith("reference:"):  # the same in every run that was tested alike
        tests = mine[["key", "seed", "swap", "test"]].drop_duplicates()
        known = references()
        mine = known[(known["reference"] == side["of"]) & (known["metric"] == metric)]
        mine = mine.merge(tests, on="test")
    kept = errors[errors["key"].isin(mine["key"].unique()) & (errors["swap"] == swap.replace(":", "-"))]
    per_seed, per_error, per_prompt = [], [], []
    for seed in seeds:
        group = mine[mine["seed"] == seed]
        held = kept[kept["key"].isin(group["key"].unique())]
        for axis, wanted in {**{axis: [value] for axis, value in home.items()}, **side["cells"]}.items():
            group, held = group[group[axis].isin(wanted)], held[held[axis].isin(wanted)]
        count = math.prod(len(wanted) for wanted in side["cells"].values())
        assert len(group) > 0, (experiment, spec, seed)
        assert len(group) % count == 0, (experiment, spec, seed)
        per_seed.append(np.log(group["value"]).mean() if log else group["value"].mean())
        per_error.append((group["stderr"] / group["value"] if log else group["stderr"]).mean())
        per_prompt.append([np.asarray(each) for each in held["errors"]] if len(held) == len(group) else None)
    return np.array(per_seed), per_error, per_prompt


def prompts_error(left, right, log):
    """Standard errors of the prompts below and above, by a bootstrap of its own; none where a side lacks them.

    Sides of unequal seeds are averaged each by itself.
    """
    if len(left) == len(right):
        pairs = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
        left, right = zip(*pairs, strict=True) if pairs else ((), ())
    left, right = ([cells for cells in side if cells is not None] for side in (left, right))
    if not left or not right:
        return None
    draws = np.random.default_rng(12345).multinomial(n := len(left[0][0]), np.full(n, 1 / n), size=4000) / n
    height = np.log if log else lambda values: values

    def gap(weights):
        sides = ([[height(weights @ cell) for cell in cells] for cells in side] for side in (left, right))
        return np.subtract(*(np.mean(side, axis=(0, 1)) for side in sides))

    middle, drawn = gap(np.full((1, n), 1 / n))[0], gap(draws)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return (middle - low) / stats.norm.ppf(0.975), (high - middle) / stats.norm.ppf(0.975)


def interval(left, right, noise, resolution=0.0, unpaired=False):
    """Effect with the interval of a look: t over seeds and normal over prompts, in quadrature."""
    seeds = min(len(left), len(right))
    if unpaired:
        (one, n), (other, m) = ((side.var(ddof=1) / len(side), len(side)) for side in (left, right))
        error = math.sqrt(one + other)
        freedom = error**4 / (one**2 / (n - 1) + other**2 / (m - 1))
    else:
        error, freedom = (left - right).std(ddof=1) / math.sqrt(seeds), seeds - 1
    error = max(error, resolution / math.sqrt(seeds))
    tail = 1 - LOOKS[seeds] * 0.05 / 2
    wide = [math.hypot(stats.t.ppf(tail, freedom) * error, stats.norm.ppf(tail) * side) for side in noise or (0, 0)]
    effect = left.mean() - right.mean()
    return effect, effect - wide[0], effect + wide[1]


def home_of(spec, experiment):
    """Training conditions: every sigma at 1, the longest tested length of training; axes of facets are averaged."""
    runs = table("runs")
    made = json.loads(runs[runs["spec"] == spec.partition("->")[0]]["spec_json"].iloc[0])
    axes, stop = made["test"]["axes"], made["train"]["curriculum"]["stop"]
    usual = {"sigma": 1.0, "sigma_x": 1.0, "sigma_f": 1.0, "kept": 100.0, "noise": 0.0}
    here = {axis: made["train"].get("shift", {}).get(axis, usual[axis]) for axis in axes if axis in usual}
    return here | {"length": max(length for length in axes["length"] if length <= stop)}


@pytest.mark.slow
@pytest.mark.parametrize("where", printed(), ids=lambda where: f"{where[0]}-{where[2]}-{where[1][:20]}")
def test_a_printed_interval_is_computed_again(where):
    name, statement, preset = where
    row, shown = RECORD[where], printed()[where]
    made = tomllib.loads((ROOT / "experiments" / f"{name}.toml").read_text())
    (claim,) = (each for each in made["claims"] if each["statement"] == statement)
    log, seeds = row["scale"] == "log-ratio", [int(seed) for seed in row["seeds"].split()]
    right_seeds = [int(seed) for seed in row["right_seeds"].split()] or seeds
    if not row["low"]:
        assert "[" not in shown
        return
    from_grids = made.get("analysis", "compare") == "compare"
    resolution = 0.0
    if from_grids:
        specs, variants = row["specs"].split(), [each["name"] for each in made["variants"]]
        sides = [claim["left"], claim["right"]]
        ordered = sorted({side["of"] for side in sides if side["of"] in variants}, key=variants.index)
        spec_of = dict(zip(ordered, specs, strict=True))
        headline = tasks.build(made["task"]).headline
        metric = claim.get("metric") or headline
        trained = next(iter(spec_of.values()))
        home = home_of(spec_of.get(claim["left"]["of"], trained), made)
        (left, left_errors, left_prompts), (right, right_errors, right_prompts) = (
            values_of({"cells": {}, **side}, spec_of.get(side["of"], trained), own, name, metric, log, home)
            for side, own in zip(sides, (seeds, right_seeds), strict=True)
        )
        if row["pairing"]:  # of two models all seeds count where a side has two or more that the other lacks
            cells, specs_of = table("cells"), [spec_of[side["of"]].partition("->") for side in sides]
            own = [set(cells[(cells["spec"] == spec) & (cells["swap"] == swap)]["seed"]) for spec, _, swap in specs_of]
            both, out = own[0] & own[1], set(map(int, row["left_out"].split()))
            further = max(map(len, own)) - len(both)
            if specs_of[0][0] != specs_of[1][0] and not row["left_out"] and further < 2:
                assert right_seeds == seeds
            elif row["right_seeds"]:
                assert [set(seeds), set(right_seeds)] == [side - out for side in own]
        if any(side["of"].startswith("reference:") for side in sides):  # whose single prompts are drawn, not stored
            noise = tuple(float(row[f"prompts_error_{side}"] or 0) for side in ("below", "above"))
        else:
            noise = prompts_error(left_prompts, right_prompts, log) if metric == headline else None
        if noise is None:  # single prompts are not kept: the most that their standard errors can be
            noise = (np.mean(left_errors) + np.mean(right_errors),) * 2
        cells = table("cells")
        mine = cells[(cells["spec"] == trained.partition("->")[0]) & (cells["metric"] == metric)]
        counts = mine["value"] * mine["count"]  # a rate moves by one prompt, so that these are whole numbers
        if not log and np.allclose(counts, counts.round(), atol=1e-3):
            resolution = 1 / mine["count"].max()
    else:
        left, right = (np.array(numbers(row, side)) for side in ("left", "right"))
        left, right = (np.log(left), np.log(right)) if log else (left, right)
        noise = tuple(float(row[f"prompts_error_{side}"] or 0) for side in ("below", "above"))
    unpaired = row["pairing"] == "unpaired"
    effect, low, high = interval(left, right, noise, resolution, unpaired)
    shown_numbers = [float(text) for text in re.findall(r"-?\d[\d.e+-]*|inf", shown.partition(";")[0])]
    expected = [math.log(value) for value in shown_numbers] if log else shown_numbers
    half, found = max((high - low) / 2, 1e-9), [effect, low, high]
    if not log:  # rates and shares differ by no more than 1
        found = [math.copysign(1, ours) if abs(theirs) == 1 < abs(ours) else ours
                 for ours, theirs in zip(found, expected, strict=True)]  # fmt: skip
    for ours, theirs in zip(found, expected, strict=True):
        assert abs(ours - theirs) < CLOSE * half + 0.006 * abs(theirs), (found, expected)


def test_both_pages_print_intervals():
    assert len(printed()) >= 12

"""Runs that nobody trained, with all files that a run leaves: enough for pages that read what is stored."""

import io
import json
import math
from itertools import product
from pathlib import Path

import msgspec
from PIL import Image

from icl_lab import tasks
from icl_lab.base.grid import Grid
from icl_lab.claims.card import Card
from icl_lab.claims.ledger import Finding
from icl_lab.claims.schema import Claim, Experiment, Quantity
from icl_lab.comparison.verdict import Direction, State
from icl_lab.extras.site.build import Stock, build
from icl_lab.extras.site.cards import Cards
from icl_lab.extras.site.claims import ClaimEntry, Claims
from icl_lab.runs.measure import Errors
from icl_lab.runs.run_files import encode_history
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import Member, StudyRecord, publish

SMALL = ["train.steps=60", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64"]
ENV = {"command": "icl-lab sweep --task x", "commit": "abc123", "device": "cpu"}
EXPERIMENT = """
title = "Made"
paper = "Somebody, 2025"
task = "linear"
baseline = "softmax"
conditions = "none"
set = ["train.steps=60", "train.batch=8", "model.width=16", "model.heads=2", "test.prompts=64"]
variants = [{name = "softmax", attn = "softmax"}, {name = "half", attn = "ssa"}, {name = "none", attn = "ssmax"}]

[[claims]]
statement = "Half errs less"
where = "here"
left = {of = "half"}
is = "below"
right = {of = "softmax"}
"""


def experiment(folder):
    """Three seeds of two normalizers, and in ``files`` an experiment about them; returns the store."""
    made = store(folder)
    for seed, luck in enumerate((1.0, 1.5, 1.2)):
        finished(made, "softmax", seed)
        finished(made, "ssa", seed, 0.5 * luck)
    (folder / "files").mkdir()
    (folder / "files" / "made.toml").write_text(EXPERIMENT)
    return made


def spec_of(attn="softmax", task="linear", *settings):
    return resolve(task, attn, "smoke", [*SMALL, *settings])


def store(root, archive=None):
    return Store(root / "results", archive)


def trained(run, losses=(3.0, 2.0, 1.0), finished="2026-11-21", learned=None):
    """Publish a history, an environment and weight."""
    history = [{"step": 20.0 * (i + 1), "loss": loss, "length": 12.0, "rate": 1e-3} for i, loss in enumerate(losses)]
    history = [row | (learned or {}) for row in history]
    env = json.dumps({**ENV, "finished": f"{finished}T10:00:00+00:00"}).encode()
    run.publish_trained({"history.csv": encode_history(history), "env.json": env, "model.safetensors": b"weights"})
    return run


def grid_of(run, factor=1.0, drop=()):
    """A grid whose error is the product of the axis values, times ``factor``; the cells of ``drop`` are left out."""
    task, axes = tasks.build("linear" if run.spec.task not in tasks.names() else run.spec.task), run.spec.test.axes
    shifts = [axis for axis in axes if axis != "length"]
    rows = []
    for place in product(*(axes[axis] for axis in [*shifts, "length"])):
        where = dict(zip([*shifts, "length"], place, strict=True))
        for name, times in ((run.name, factor), ("reference:zero", 3.0), ("reference:least-squares", 1e-9)):
            value = {"value": math.prod(place) * times, "stderr": 0.1, "count": 64}
            rows += [] if place in drop else [{**where, **value, "attn": name, "metric": task.headline}]
    return Grid.of(rows, [*shifts, "length"], **run.labels)


def measured(run, factor=1.0):
    """Publish a grid."""
    axes = [axis for axis in run.spec.test.axes if axis != "length"]
    run.finish(grid_of(run, factor), Grid.of([], [*axes, "index"], **run.labels), Errors([*axes, "length"]))
    return run


def finished(store, attn="softmax", seed=0, factor=1.0, task="linear", settings=(), **how):
    run = store.run(spec_of(attn, task, *settings), seed)
    return measured(trained(run, **how), factor)


def called(store, attn, seed=0):
    """A finished run of a normalizer that is not here, under any name."""
    spec = msgspec.structs.replace(spec_of(), attn=attn)
    return measured(trained(store.run(spec, seed)))


def study(root, name, table="", kind="compare", members=(), command="icl-lab compare", files=None):
    """A folder with a record, a table and a picture."""
    specs = [(run, run.spec) for run in members]
    runs = [Member("group", spec.task, spec.attn, spec.preset, spec.hash, run.seed, run.swap) for run, spec in specs]
    record = StudyRecord(kind, {"baseline": "softmax"}, runs, command, "abc123", "a machine")
    folder = root / name
    publish(record, folder, {"table.md": table, **(files or {})}, {})
    with io.BytesIO() as picture:
        Image.new("RGB", (400, 300), "red").save(picture, "png")
        (folder / "forest.png").write_bytes(picture.getvalue())
    return folder


def none(*_):
    """In place of the claims, which take seconds."""
    return Claims(why_none="No claim was judged.")


def site(store, judge=none, files=Path("no-experiments")):
    return build(Stock.of(store, files, judge=judge))


def claim(statement, direction, experiment="made", preset="smoke", **fields):
    """A judged claim of an experiment: half the error of softmax in three seeds."""
    sides = Quantity("ssa"), Quantity("softmax", {"sigma_f": [4.0, 5.0]})
    stated = Claim(statement, "everywhere", sides[0], "below", sides[1], published="0.1 against 0.2")
    asked = Experiment(f"Title of {experiment}", "A paper, 2025", "linear", "softmax", [], [stated], "none")
    answers = {"agrees": True, "decided": True} if direction == "below" else {}
    found = Finding(
        experiment=experiment,
        preset=preset,
        claim=statement,
        relation="below",
        state=State.JUDGED,
        direction=Direction(direction),
        margin=math.log(1.25),
        scale="log-ratio",
        effect=math.log(0.5),
        low=math.log(0.4),
        high=math.log(0.6),
        confidence=0.99,
        seeds=(0, 1, 2),
        left=(1.0, 2.0, 3.0),
        right=(2.0, 4.0, 6.0),
        **answers,
    )
    return ClaimEntry(asked, stated, msgspec.structs.replace(found, **fields))


def claims(*entries, comparisons=()):
    """What ``Stock.of`` judges by, where these are the claims."""
    return lambda *_: Claims(entries, entries, comparisons)


def cards():
    """Cards of ssa, on two questions better and open, and of ssmax, worse on the first."""
    below, wide = claim("a", "below").found, {"low": math.log(0.4), "high": math.log(1.6), "more": 2}
    asked = {"near": "RULE errs less than softmax", "far": "RULE errs less than softmax far away"}
    ssa = {"near": below, "far": claim("b", "inconclusive", effect=math.log(0.8), **wide).found}
    ssmax = {"near": claim("a", "above", effect=math.log(2), low=math.log(1.5), high=math.log(2.5)).found}
    found = {"ssmax": ssmax, "ssa": ssa}
    made = [
        Card(
            rule=rule,
            version="1",
            rates="shared",
            answers={"softmax": each},
            slowdown={"softmax": 1.5},
            memory={"softmax": 2.25},
            facts={"sum to 1": True},
            inside={rule: (0.5, 0.25, 8.0), "softmax": (0.5, 0.25, 8.0)},
            nearest=("lssa", 0.25),
            distance="half a sum",
        )
        for rule, each in found.items()
    ]
    return Cards(asked, found, made)

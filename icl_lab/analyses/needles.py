"""Rules in search of the needle: from finished runs to the scores of their heads, the ends of trials, and a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses.needle import OUTCOMES, retrieve
from icl_lab.errors import BadValue
from icl_lab.figures import ranks
from icl_lab.figures.base import short
from icl_lab.files import publish_folder as save
from icl_lab.grid import Grid
from icl_lab.registry import require
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.sweep import load_or_train
from icl_lab.tasks.needle import Needle

TOP = 25  # heads that are shown, as in Figure 7 of arXiv 2501.19399
STRETCH = 8  # the usual test length, in training lengths: as in the paper


@dataclass(frozen=True)
class Search:
    """Needle scores of finished runs (axes: length, layer, head), and their trials (axes: length, trial).

    Metrics of a trial are ``top``, the score of its best head, and ``outcome``, an index of ``OUTCOMES``.
    """

    heads: Grid
    trials: Grid

    @property
    def rules(self) -> list[str]:
        """The rules, in the order that they were asked for."""
        return list(self.heads.values("attn"))

    def ranked(self, rule: str) -> list[float]:
        """The scores of all heads of all seeds of a rule, greatest first."""
        return sorted(self.heads.where(attn=rule).frame["value"], reverse=True)

    def endings(self, rule: str) -> tuple[list[float], list[int]]:
        """The top scores of all trials of a rule, greatest first, and how each of them ended."""
        frame = self.trials.where(attn=rule).frame.pivot(index=["seed", "trial"], columns="metric", values="value")
        frame = frame.sort_values("top", ascending=False)
        return list(frame["top"]), [int(outcome) for outcome in frame["outcome"]]


def check(spec: RunSpec, length: int | None = None) -> Needle:
    """Returns the task; raises ``BadValue`` where it is not the needle, or a needle does not fit into the length."""
    task = tasks.build(spec.task)
    if not isinstance(task, Needle):
        raise BadValue(f"needle scores are for the task needle, got {spec.task}.")
    if length is not None:
        require(length >= task.least, f"a needle needs prompts of {task.least} tokens or more", length)
    return task


def search(groups: Mapping[str, Sequence[Run]], lab: Lab, length: int | None, trials: int) -> Search:
    """Lets the models of each name look for needles at any depth, in prompts that all of them share."""
    heads: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    runs = [(name, run) for name, seeds in groups.items() for run in seeds]
    for number, (name, run) in enumerate(runs):
        task, spec = check(run.spec), run.spec
        model = load_or_train(run, lab)
        tokens = length or STRETCH * spec.train.longest
        prompt = draw(task, tokens, TestSpec(prompts=trials, axes={"length": [float(tokens)]}), {}).take(trials)
        found = retrieve(model, task, prompt, lab.device)
        who = {**run.labels, "attn": name}
        who["length"] = tokens
        spread = found.scores.std(0) / len(found.scores) ** 0.5
        for layer in range(len(found.heads)):
            for head in range(len(found.heads[layer])):
                score = {"value": found.heads[layer, head].item(), "stderr": spread[layer, head].item()}
                row = {**who, "layer": layer, "head": head, "metric": "needle-score", **score}
                heads.append({**row, "count": len(found.scores)})
        for trial, (top, outcome) in enumerate(zip(found.best.tolist(), found.outcomes.tolist(), strict=True)):
            for metric, value in (("top", top), ("outcome", float(outcome))):
                ends.append({**who, "trial": trial, "metric": metric, "value": value, "stderr": None, "count": 1})
        lab.tick("needles", number + 1, len(runs), name)
    return Search(Grid.of(heads, ["length", "layer", "head"]), Grid.of(ends, ["length", "trial"]))


def markdown(found: Search, spec: RunSpec, command: str) -> str:
    """Returns the best heads of each rule, how trials ended, and the mean top score of each ending."""
    lengths = ", ".join(f"{length:g}" for length in found.heads.values("length"))
    text = [
        f"Task {spec.task}, preset {spec.preset}: prompts of {lengths} tokens, trained up to {spec.train.longest}.",
        "",
        "The needle score of a head is its attention mass on the needle's value, read where the first symbol of the "
        "answer is wanted. The best head of a trial: mean over the trials that ended so.",
        "",
        *md.head(["rule", "best heads (layer.head: score)", *OUTCOMES[::-1], "best head of a trial that ended so"]),
    ]
    for rule in found.rules:
        frame = found.heads.where(attn=rule).frame.sort_values("value", ascending=False).head(3)
        best = ", ".join(
            f"{int(layer)}.{int(head)} of seed {seed}: {short(value)}"
            for seed, layer, head, value in zip(
                frame["seed"], frame["layer"], frame["head"], frame["value"], strict=True
            )
        )
        tops, ends = found.endings(rule)
        counts = [ends.count(outcome) for outcome in (2, 1, 0)]
        means = [[top for top, end in zip(tops, ends, strict=True) if end == outcome] for outcome in (2, 1, 0)]
        spoken = ", ".join(short(sum(scores) / len(scores)) if scores else "none" for scores in means)
        text.append(md.row([f"`{rule}`", best, *(f"{n} of {len(ends)}" for n in counts), spoken]))
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def publish(found: Search, spec: RunSpec, folder: Path, command: str, more: str = "") -> tuple[str, list[str]]:
    """Writes the grids, the table and the figure; returns the table as text and the names of the files."""
    text = markdown(found, spec, command) + more
    files = {"heads.csv": found.heads.csv(), "trials.csv": found.trials.csv(), "table.md": text}
    drawn = figure(found, f"{spec.task}, {spec.preset}: {found.heads.values('length')[0]:g} tokens")
    return text, save(folder, files, {"needle": drawn})


def figure(found: Search, title: str) -> Figure:
    """Draws the ranked heads of each rule, and the ranked trials with how they ended."""
    return ranks.needles(
        {rule: found.ranked(rule)[:TOP] for rule in found.rules},
        {rule: found.endings(rule) for rule in found.rules},
        OUTCOMES,
        title=title,
    )

"""The least bound on answers that a printed row of errors needs, on the functions that its paper evaluated.

A model whose answers are bounded by C errs at least as much as exact answers clipped at +-C. So a printed error says
how large C must have been. Tables 1 and 6 of Naim, Bhar, Bolte, Asher 2025, arXiv 2508.14685.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure

from icl_lab.analyses import registry
from icl_lab.analyses.findings import cell
from icl_lab.analyses.frame import Analysis, Findings, Row, Rows, TrainedModel
from icl_lab.base import markdown as md
from icl_lab.base import published
from icl_lab.base.errors import BadValue
from icl_lab.comparison.clip import clip_errors, clip_targets
from icl_lab.figures import heads
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task

NOBODY = {"preset": "-", "spec": "-", "seed": 0}  # a row belongs to no run
# Published table -> the columns of its row labels, the standard deviation, and the error.
PRINTED = {"ssa_table1": ("method", "sigma", "mse"), "ssa_table6": ("model", "sigma", "squared_error")}
POINTS, FEW = 40, 9  # examples of a published prompt, and what the text says of short ones
# Readings: the examples that are scored, and the number added to the standard deviation of the column.
READINGS = {"as printed": (POINTS, 0), "9 points": (FEW, 0), "column before": (POINTS, -1)}
LOWEST = 4.0  # the standard deviation from which an error is one of a bound, not of learning
STEP = 0.01


@registry.add("printed-bounds")
@dataclass(frozen=True, kw_only=True)
class PrintedBounds(Analysis):
    """Say how large the bound on answers must have been for printed errors, and the bounds of stored models.

    Formula: the C at which mean (max(|y| - C, 0))^2 over the published functions equals the printed error

    ``points`` are the examples of a prompt that are scored, ``column`` what is added to the printed standard deviation.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"printed": ("points", "column", "printed"), "stored": ("layers",)}
    title: ClassVar[str] = "the bound that printed errors need"
    reads_models: ClassVar[bool] = False
    trains: ClassVar[bool] = False

    def check(self, spec: RunSpec) -> None:
        if spec.test.draws != "paper":
            raise BadValue("printed-bounds reads published functions: set draws = 'paper' (icl-lab experiment does).")

    def measure(self, trained: TrainedModel) -> Rows:
        """Invert the clip error of each printed cell; then read the bounds of the stored models of the task."""
        task, printed = trained.task, list[Row]()
        cells = [each for each in _cells() if each[1] >= LOWEST]
        for points, column in READINGS.values():
            for sigma in sorted({sigma for _, sigma, _ in cells}):
                targets = _targets(task, trained.spec.test, points, sigma + column)
                labels, errors = zip(*((label, error) for label, at, error in cells if at == sigma), strict=True)
                where = {**NOBODY, "points": points, "column": column, "printed": sigma}
                for label, value in zip(labels, least_bound(targets, np.array(errors)), strict=True):
                    printed.append(cell("least-bound", round(float(value), 3), targets.size, **where, attn=label))
        return {"printed": printed, "stored": list(_stored(trained))}

    def table(self, found: Findings) -> list[str]:
        """The least bound of each printed row by column, then by reading, and the bounds of our own models."""
        grid = found["printed"]
        sigmas = grid.values("printed")
        text = [
            "The final norm and the read-out bound every answer by C (docs/boundary.md). A row of errors needs at "
            "least the C at which exact answers, clipped at +-C, err as much on the same 100 functions.",
            "",
            *md.head(["row", *(f"sigma {sigma:g}" for sigma in sigmas), "median"]),
        ]
        for label in grid.values("attn"):
            known = _by_sigma(found, label, *READINGS["as printed"])
            cells = [f"{known[sigma]:.1f}" if sigma in known else "" for sigma in sigmas]
            text.append(md.row([label, *cells, f"{median(known.values()):.1f}"]))
        text += [
            "",
            f"At sigma {max(sigmas):g} by reading: as printed; if {FEW} examples were scored and not {POINTS}; if the "
            "number belongs to the column before.",
            "",
            *md.head(["row", *READINGS]),
        ]
        for label in grid.values("attn"):
            each = (_by_sigma(found, label, *reading).get(max(sigmas)) for reading in READINGS.values())
            text.append(md.row([label, *("" if value is None else f"{value:.1f}" for value in each)]))
        if "stored" in found.grids:
            text += ["", "Bounds C of models that are stored here, over training seeds:", ""]
            text += [*md.head(["model", "layers", "C", "seeds"])]
            for name in found["stored"].values("attn"):
                own = found["stored"].where(attn=name).frame
                low, high = own["value"].min(), own["value"].max()
                span = f"{low:.1f}" if len(own) == 1 else f"{low:.1f} to {high:.1f}"
                text.append(md.row([f"`{name}`", f"{own['layers'].iloc[0]:g}", span, str(len(own))]))
        settle = (
            "Two numbers of each checkpoint would settle it: the length of g * w (the gain of the final norm times the "
            "weight of the read-out), with and without its mean."
        )
        return [*text, "", settle]

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The least bound over the printed standard deviation, a panel a reading."""
        panels = {}
        for name, reading in READINGS.items():
            lines = {
                label: sorted(_by_sigma(found, label, *reading).items()) for label in found["printed"].values("attn")
            }
            panels[f"least bound C, {name}"] = {label: [line] for label, line in lines.items() if line}
        drawn = heads.curves(panels, title=title, across="sigma of the printed column", scales={})
        return {"printed-bounds": drawn}


def least_bound(targets: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Bounds C >= 0 at which exact answers, clipped, have these mean squared errors; 0 where the answer 0 errs less.

    The root of the error falls evenly in C, so that it is interpolated between bounds ``STEP`` apart.
    """
    bounds = np.arange(0.0, float(np.abs(targets).max()) + STEP, STEP)
    roots = np.sqrt(clip_errors([targets], bounds)[0])
    return np.asarray(np.interp(np.sqrt(errors), roots[::-1], bounds[::-1]))


def _cells() -> Iterator[tuple[str, float, float]]:
    for name, (row, sigma, value) in PRINTED.items():
        table = published.load(name)
        for line in table.rows:
            if "Llama" not in line[row].text:  # prompted, and no model of this kind
                yield f"{table.source.table}, {line[row].text}", line[sigma].number, line[value].number


def _targets(task: Task, test: TestSpec, points: int, sigma: float) -> np.ndarray:
    prompt = draw(task, POINTS, test, {task.summary.axis: sigma}).first(task.tokens(points))
    return clip_targets(task, prompt)


def _stored(trained: TrainedModel) -> Iterator[Row]:
    """The bounds of the stored models of the task, whole models alone."""
    for run in trained.lab.store.runs():
        model = run.spec.model
        whole = model.mlp and model.attention and model.norm and model.read_in == "linear"
        if run.spec.task != trained.spec.task or not whole:
            continue
        if (bound := run.bound()) is not None and np.isfinite(bound):
            final = "" if model.final_norm == "block" else f", {model.final_norm} norm"
            name = f"{run.spec.attn}, {run.spec.preset}{final}"
            yield cell("bound", round(bound, 4), 1, **{**NOBODY, "seed": run.seed}, attn=name, layers=model.layers)


def _by_sigma(found: Findings, label: str, points: int, column: int) -> dict[float, float]:
    frame = found["printed"].frame
    own = frame[(frame["attn"] == label) & (frame["points"] == points) & (frame["column"] == column)]
    return dict(zip(own["printed"].astype(float), own["value"].astype(float), strict=True))

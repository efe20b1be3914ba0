"""What the claims of an experiment are read from: grids of finished runs, or the files of another analysis."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from icl_lab import normalizers, tasks
from icl_lab.analyses import laws
from icl_lab.analyses.deviants import Disturbance
from icl_lab.comparison.statistics import Scale
from icl_lab.errors import LabError
from icl_lab.files import present
from icl_lab.grid import Grid, model_name
from icl_lab.papers.experiment import Experiment, Quantity, Variant, combinations
from icl_lab.runs import summary
from icl_lab.runs.store import Store

Read = Callable[[Quantity, str, int], float]  # a quantity, a metric (or ""), a seed -> the value, or its mean logarithm
Found = tuple[Read, list[int]]  # how to read, and the training seeds that both sides have


def scale(experiment: Experiment) -> Scale:
    """Ratios where the analysis' own metric spans decades, differences where it does not."""
    decades = tasks.build(experiment.task).log_scale and experiment.analysis in ("compare", "deviant")
    return "log-ratio" if decades else "difference"


def gather(
    experiment: Experiment,
    store: Store,
    preset: str,
    settings: Sequence[str],
    place: Path,
    sides: Sequence[Quantity],
) -> Found:
    """Returns what reads the two sides of a claim; no seeds where nothing is there. Trains nothing."""
    if experiment.analysis == "compare":
        return _from_grids(experiment, store, preset, settings, sides)
    readers = {
        "deviant": _from_deviants,
        "needle": _from_needles,
        "law": _from_laws,
        "saturation": _from_saturation,
        "boundary": _from_boundary,
    }
    return readers[experiment.analysis](place)


def rule(variant: Variant) -> str:
    """The rule that stands in the trained model when it is tested, by its one spelling; empty for its own."""
    return normalizers.canonical(variant.swap) if variant.swap else ""


def _from_grids(
    experiment: Experiment, store: Store, preset: str, settings: Sequence[str], sides: Sequence[Quantity]
) -> Found:
    training: dict[str, float] = {}
    grids: dict[tuple[str, int], Grid] = {}
    common: set[int] | None = None
    for side in sides:
        # A reference is the same in every run: it is read beside the baseline.
        variant = experiment.variant(side.of) or experiment.variant(experiment.baseline)
        if variant is None:
            raise LabError(f"'{side.of}' is no variant of this experiment.")
        spec = experiment.spec(variant, preset, settings)
        runs = [store.run(spec, seed, rule(variant)) for seed in store.seeds(spec)]
        there = {run.seed for run in runs if run.finished}
        common = there if common is None else common & there
        grids |= {(side.of, run.seed): run.grid() for run in runs if run.finished}
        training = training or summary.training_cell(tasks.build(experiment.task), spec)
    task = tasks.build(experiment.task)

    def read(side: Quantity, metric: str, seed: int) -> float:
        grid = grids[side.of, seed]
        name = side.of if side.of.startswith("reference:") else model_name(grid)
        cells = combinations(side.cells, {axis: value for axis, value in training.items() if axis not in task.facets})
        found = [grid.where(attn=name, metric=metric or task.headline, **cell).frame["value"] for cell in cells]
        return _mean([value for values in found for value in values], task.log_scale)

    return read, sorted(common or ())


def _from_deviants(place: Path) -> Found:
    grid = _grid(place / "deviant.csv")
    if grid is None:
        return _nothing, []
    found = Disturbance(grid, grid)
    decades = "mse" in grid.values("metric")
    usual = "mse" if decades else "balanced-last"

    def read(side: Quantity, metric: str, seed: int) -> float:
        # References were put before the deviant once: they are the same beside every model.
        who = {} if side.of.startswith("reference:") else {"seed": seed}
        cells = [grid.at(attn=side.of, metric=metric or usual, factor=factor, **who) for factor in side.cells["factor"]]
        return _mean(cells, decades)

    return read, _seeds(found.cells.where(attn=found.rules[0]))


def _from_needles(place: Path) -> Found:
    """``best-head``: a head's greatest score; ``top``: the mean of the trials' best; ``found``: trials all right."""
    heads, trials = _grid(place / "heads.csv"), _grid(place / "trials.csv")
    if heads is None or trials is None:
        return _nothing, []

    def read(side: Quantity, metric: str, seed: int) -> float:
        if metric == "best-head":
            return float(heads.where(attn=side.of, seed=seed).frame["value"].max())
        kind = "outcome" if metric == "found" else "top"
        values = trials.where(attn=side.of, seed=seed, metric=kind).frame["value"]
        return float((values == 2).mean() if metric == "found" else values.mean())

    return read, _seeds(heads)


def _from_laws(place: Path) -> Found:
    """Akaike's criterion of a law, per fitted value."""
    path = place / "p.csv"
    if not path.exists():
        return _nothing, []
    fitted = laws.fitted(path.read_text())

    def read(side: Quantity, metric: str, seed: int) -> float:
        return next(fit.aic for fit in fitted[seed] if fit.law == side.of)

    return read, sorted(fitted)


def _from_saturation(place: Path) -> Found:
    """Means over heads of what heads do; ``last``, ``mse``: errors; ``recovered``: by the calm attention of all heads.

    ``reference:nothing`` is 0, for claims that something is more than nothing.
    """
    grids = [_grid(place / name) for name in ("heads.csv", "errors.csv", "patches.csv")]
    if any(grid is None for grid in grids):
        return _nothing, []
    heads, errors, patches = (grid for grid in grids if grid is not None)

    def read(side: Quantity, metric: str, seed: int) -> float:
        if side.of == "reference:nothing":
            return 0.0
        grid = patches if metric == "recovered" else errors if metric in errors.values("metric") else heads
        where = {"attn": side.of, "seed": seed, "metric": metric, "factor": side.cells["factor"]}
        rows = grid.where(**where, **({"layer": -1, "head": -1} if metric == "recovered" else {}))
        value = float(rows.frame["value"].mean())
        if math.isnan(value):
            raise KeyError("the growing number changed no answer, so there is nothing to recover")
        return value

    return read, _seeds(heads.where(attn=heads.values("attn")[0]))


def _from_boundary(place: Path) -> Found:
    """The mean over both sides and the slopes asked for, in contexts as in training; usually of ``clip``.

    That is the B for which min(t, B) is nearest to the curve: it exists for curves of every class.
    """
    grid = _grid(place / "boundary.csv")
    if grid is None:
        return _nothing, []
    rules = [name for name in grid.values("attn") if not name.startswith("reference:")]

    def read(side: Quantity, metric: str, seed: int) -> float:
        who = {} if side.of.startswith("reference:") else {"seed": seed}
        asked = {"metric": metric or "clip", "slope": side.cells["slope"], "scale": 1.0, **who}
        return float(grid.where(attn=side.of, **asked).frame["value"].mean())

    return read, _seeds(grid.where(attn=rules[0]))


def _grid(path: Path) -> Grid | None:
    there = present(path)
    return Grid.read(there) if there else None


def _seeds(grid: Grid) -> list[int]:
    return [int(seed) for seed in grid.values("seed")]


def _nothing(side: Quantity, metric: str, seed: int) -> float:
    return math.nan


def _mean(values: Sequence[float], decades: bool) -> float:
    return fmean(math.log(value) for value in values) if decades else fmean(values)

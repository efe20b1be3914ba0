"""Arms of the boundary: bound C, largest answer B, errors and floors of each variant, beside what was predicted."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from icl_lab import markdown as md
from icl_lab.grid import Grid, model_name
from icl_lab.papers import experiment as experiments
from icl_lab.papers import folders
from icl_lab.papers.finished import Finished
from icl_lab.papers.schema import Experiment
from icl_lab.runs.measure import FLOOR
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.run_files import row_at
from icl_lab.runs.store import Store

ERRORS, BOUNDS, OPTIMIZER = "boundary-bound", "boundary-values", "boundary-optimizer"  # the experiments' files
RESCALED = ", labels rescaled"  # ends the name of a variant
BASELINE, FAR, FARTHEST = "softmax", (4, 5, 6, 7, 8, 9, 10), 10
APART, RATIO, LEFT, REACHED = 0.1, 0.75, 0.05, 0.97  # the predictions: see docs/boundary.md
SHARES = (0.0625, 0.125, 0.25, 0.5, 1)  # of a training's steps
SHORT = ("smoke", "nano", "lite", "lite2")  # trained too briefly for the prediction about rescaled labels


def table(files: Path, store: Store) -> list[str]:
    """Returns one row a variant and preset of which runs are finished; cells that fail their prediction are bold."""
    rows = []
    for name in (ERRORS, OPTIMIZER):
        made = experiments.load(name, files)
        for preset in PRESETS:
            rows += _rows(made, name, preset, files, store)
    head = [
        "preset",
        "model",
        "seeds",
        "C",
        "B/C",
        "error at 10",
        "floor",
        "ratio to softmax, 4 to 10",
        "rescaled, at 10",
    ]
    return [*md.head(head), *rows]


def _rows(made: Experiment, name: str, preset: str, files: Path, store: Store) -> list[str]:
    finished, rows = Finished(made, store, preset), []
    reached = _reached(files, store, preset) if name == ERRORS else {}
    grids = {
        variant.name: {seed: finished.measured(variant.name, seed)[0] for seed in sorted(finished.seeds(variant.name))}
        for variant in made.variants
    }
    label = preset if name == ERRORS else f"{preset}, published optimizer"
    for variant, each in grids.items():
        if not each or variant.endswith(RESCALED):
            continue
        first = BASELINE + variant[len(variant.partition(",")[0]) :] if variant.partition(",")[0] != BASELINE else ""
        first = first if first in grids else BASELINE
        bounds = [known for seed in each if (known := _bound(finished, variant, seed)) is not None]
        base = [_bound(finished, first, seed) for seed in each if seed in grids[first]]
        errors = [_at(grid, FARTHEST) for grid in each.values()]
        floors = [value for grid in each.values() if not math.isnan(value := _at(grid, FARTHEST, FLOOR))]
        shared = [seed for seed in each if seed in grids[first]] if variant != first else []
        ratio = math.exp(fmean(_far(each[s]) - _far(grids[first][s]) for s in shared)) if shared else math.nan
        rescaled = [_at(grid, FARTHEST) for grid in grids.get(variant + RESCALED, {}).values()]
        moved = (
            [math.log(a / b) for a, b in zip(bounds, base, strict=False) if b is not None] if variant != first else []
        )
        shares = reached.get(variant, [])
        cells = [
            _marked(_span(bounds, ".1f") or "none", bool(moved) and abs(fmean(moved)) >= APART),
            _marked(_span([100 * share for share in shares], ".0f", " %"), bool(shares) and min(shares) < REACHED),
            f"{fmean(errors):.3g}",
            f"{fmean(floors):.3g}" if floors else "none",
            "" if math.isnan(ratio) else _marked(f"{ratio:.2f}", ratio <= RATIO),
            _marked(_span(rescaled, ".2g"), preset not in SHORT and bool(rescaled) and max(rescaled) >= LEFT),
        ]
        rows.append(md.row([f"`{label}`", variant, str(len(each)), *cells]))
    return rows


def curve(files: Path, store: Store) -> list[str]:
    """Returns C during training: one row a variant and preset, mean over seeds after shares of all steps."""
    made, rows = experiments.load(ERRORS, files), []
    for preset in PRESETS:
        finished = Finished(made, store, preset)
        for variant in [name for name in finished.specs if not name.endswith(RESCALED)]:
            spec, seeds = finished.specs[variant], sorted(finished.seeds(variant))
            histories = [store.run(spec, seed).history() for seed in seeds]
            if histories and "bound" in histories[0][-1]:
                after = [[row_at(each, share * spec.train.steps)["bound"] for each in histories] for share in SHARES]
                rows.append([f"`{preset}`", variant, str(len(seeds)), *(f"{fmean(bounds):.1f}" for bounds in after)])
    return md.table(["preset", "model", "seeds", *(f"{100 * share:g} %" for share in SHARES)], rows)


def _bound(finished: Finished, variant: str, seed: int) -> float | None:
    """C of a variant's model; None where it is not kept, or there is none."""
    known = finished.store.run(finished.spec(variant), seed).answer_bound()
    return float(known[1][0]) if known is not None and bool(known[1].isfinite().all()) else None


def _reached(files: Path, store: Store, preset: str) -> dict[str, list[float]]:
    """B/C of each variant, one a seed, from the study of the boundary analysis, where there is one."""
    made, shares = experiments.load(BOUNDS, files), dict[str, list[float]]()
    question = made.question()
    found = folders.stored(question, folders.fullest(BOUNDS, store, preset)) if question is not None else None
    if question is None or found is None:
        return {}
    for variant in made.variants:
        for seed in question.seeds(found):
            try:
                shares.setdefault(variant.name, []).append(question.value(found, variant.name, {}, "reached", seed))
            except KeyError:  # without a final norm there is no bound
                continue
    return shares


def _at(grid: Grid, sigma: float, metric: str = "") -> float:
    """A metric (the headline unless named) of a run's model at one spread of functions; NaN where there is none."""
    values = _along(grid, metric)
    return values.get(float(sigma), math.nan)


def _far(grid: Grid) -> float:
    """Mean logarithm of the headline error over the spreads that the claims read."""
    values = _along(grid)
    return fmean(math.log(values[float(sigma)]) for sigma in FAR)


def _along(grid: Grid, metric: str = "") -> dict[float, float]:
    frame = grid.where(attn=model_name(grid)).frame
    own = frame[frame["metric"] == (metric or frame["metric"].iloc[0])]
    return dict(zip(own[grid.axes[1]], own["value"], strict=True))


def _span(values: Iterable[float], form: str, unit: str = "") -> str:
    known: Sequence[float] = list(values)
    if not known:
        return ""
    low, high = format(min(known), form), format(max(known), form)
    return (low if low == high else f"{low} to {high}") + unit


def _marked(text: str, failed: bool) -> str:
    return f"**{text}**" if failed else text

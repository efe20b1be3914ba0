"""Arms of the boundary: bound C, largest answer, errors and floors of each variant, compared with the predictions.

python experiments/boundary_arms.py            reads the evidence, writes the tables of docs/boundary.md between marks
python experiments/boundary_arms.py --check    only says whether the page would change, and exits with 1 if it would
"""

import math
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import click
from bound_law import PAGE, evidence, filled_page

from icl_lab.analyses import frame
from icl_lab.analyses.boundary import bounds
from icl_lab.analyses.boundary.bounds import Model, bound_and_largest
from icl_lab.analyses.findings import StoredGrids
from icl_lab.base import markdown as md
from icl_lab.base.grid import Grid, model_name
from icl_lab.claims import experiment as experiments
from icl_lab.claims import folders
from icl_lab.claims.schema import Experiment
from icl_lab.claims.sides import Sides
from icl_lab.runs.measure import FLOOR
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

# Experiments that train, and what their rows add to the preset.
TRAINED = {"boundary-bound": "", "boundary-graph": ", CUDA graphs", "boundary-optimizer": ", published optimizer"}
RESCALED = ", labels rescaled"  # ends the name of a variant
BASELINE, FAR, FARTHEST = "softmax", (4, 5, 6, 7, 8, 9, 10), 10
APART, RATIO, LEFT, REACHED = 0.1, 0.75, 0.05, 0.97
PREDICTED = {  # before the first run: the field of ``Outcome`` that answers -> the prediction
    "moved": f"Log ratio of C to softmax's within {APART:g} of 0",
    "ratio": f"Error over σ {FAR[0]} to {FAR[-1]} above {RATIO:g} times softmax's",
    "rescaled": f"Labels rescaled: error at σ {FARTHEST} below {LEFT:g}",
    "reached": f"Largest answer within {100 * (1 - REACHED):.0f} % of C",
}
SHORT = ("smoke", "nano", "lite", "lite2")  # trained too briefly for the prediction about rescaled labels


@dataclass(frozen=True)
class Arm:
    """A variant's models at one preset, by seed."""

    grids: Mapping[int, Grid]
    bounds: Mapping[int, float]  # C, of the seeds for which it is kept; empty without a final norm
    rescaled: Mapping[int, Grid]  # the same models, tested with rescaled labels
    reached: Sequence[float]  # B/C, of the models that the boundary analysis has asked


@dataclass(frozen=True)
class Outcome:
    """Measured numbers of an arm beside those of its softmax; what is empty or None was not measured."""

    preset: str
    label: str  # what its experiment adds to the preset
    variant: str
    seeds: int
    bounds: Sequence[float]  # C
    moved: Sequence[float]  # log ratio of C to softmax's
    reached: Sequence[float]  # B/C
    error: float
    floor: float | None
    ratio: float | None  # of errors to softmax's, geometric mean over the spreads of FAR
    rescaled: Sequence[float]  # errors with labels rescaled

    @property
    def place(self) -> str:
        """The preset and what its experiment adds to it."""
        return f"`{self.preset}{self.label}`"

    def holds(self) -> dict[str, bool]:
        """Return the predictions that the numbers answer, by their names in PREDICTED, each with whether it holds."""
        answered = {
            "moved": abs(fmean(self.moved)) < APART if self.moved else None,
            "ratio": self.ratio > RATIO if self.ratio is not None else None,
            "rescaled": max(self.rescaled) < LEFT if self.rescaled and self.preset not in SHORT else None,
            "reached": min(self.reached) >= REACHED if self.reached else None,
        }
        return {name: held for name, held in answered.items() if held is not None}


def outcomes(files: Path, store: Store) -> list[Outcome]:
    """Return what was measured of each variant and preset of which runs are sides."""
    found, reached = [], _reached(store)
    for name, label in TRAINED.items():
        made = experiments.load(name, files)
        for preset in PRESETS:
            arms = _arms(made, store, preset, reached)
            for variant, arm in arms.items():
                if arm.grids:
                    found.append(_outcome(arm, arms[_compared_with(variant, arms)], preset, label, variant))
    return found


def table(known: Sequence[Outcome]) -> list[str]:
    """Return one row an arm; cells that fail their prediction are bold."""
    rows = [md.row([one.place, one.variant, str(one.seeds), *_cells(one)]) for one in known]
    head = ["preset", "model", "seeds", "C", "log ratio of C", "largest answer / C", "error at 10", "floor"]
    return [*md.head([*head, "ratio, 4 to 10", "rescaled, at 10"]), *rows]


def tally(known: Sequence[Outcome]) -> list[str]:
    """Return one row a prediction: the arms in which it fails, and in how many of those that answer it it holds."""
    rows = []
    for number, (name, prediction) in enumerate(PREDICTED.items(), 1):
        held = {f"{one.place} {one.variant}": one.holds()[name] for one in known if name in one.holds()}
        failed = [arm for arm, right in held.items() if not right]
        rows.append([f"{number}. {prediction}", "; ".join(failed) or "none", f"{sum(held.values())} of {len(held)}"])
    return md.table(["predicted for every arm", "fails in", "holds in"], rows)


def _arms(made: Experiment, store: Store, preset: str, reached: Mapping[tuple[str, int], float]) -> dict[str, Arm]:
    """Arms by variant; one with rescaled labels is part of the arm whose models it tests."""
    sides = Sides(made, store, preset)
    grids = {
        variant.name: {seed: sides.measured(variant.name, seed)[0] for seed in sorted(sides.seeds(variant.name))}
        for variant in made.variants
    }
    arms = {}
    for variant in [name for name in grids if not name.endswith(RESCALED)]:
        known = {seed: _bound(sides, variant, seed) for seed in grids[variant]}
        bounds = {seed: bound for seed, bound in known.items() if bound is not None}
        asked = [reached[key] for seed in grids[variant] if (key := (sides.spec(variant).hash, seed)) in reached]
        arms[variant] = Arm(grids[variant], bounds, grids.get(variant + RESCALED, {}), asked)
    return arms


def _compared_with(variant: str, names: Container[str]) -> str:
    """Softmax with the same final norm; plain softmax for softmax itself and where there is no such variant."""
    rule, comma, norm = variant.partition(",")
    alike = BASELINE + comma + norm
    return alike if rule != BASELINE and alike in names else BASELINE


def _outcome(arm: Arm, softmax: Arm, preset: str, label: str, variant: str) -> Outcome:
    """Numbers of an arm; those that depend on softmax are empty for softmax itself."""
    errors = [_at(grid, FARTHEST) for grid in arm.grids.values()]
    floors = [value for grid in arm.grids.values() if not math.isnan(value := _at(grid, FARTHEST, FLOOR))]
    other = arm is not softmax
    paired = sorted(arm.grids.keys() & softmax.grids.keys()) if other else []
    with_bounds = sorted(arm.bounds.keys() & softmax.bounds.keys()) if other else []
    return Outcome(
        *(preset, label, variant, len(arm.grids)),
        bounds=list(arm.bounds.values()),
        moved=[math.log(arm.bounds[seed] / softmax.bounds[seed]) for seed in with_bounds],
        reached=arm.reached,
        error=fmean(errors),
        floor=fmean(floors) if floors else None,
        ratio=math.exp(fmean(_far(arm.grids[seed]) - _far(softmax.grids[seed]) for seed in paired)) if paired else None,
        rescaled=[_at(grid, FARTHEST) for grid in arm.rescaled.values()],
    )


def _cells(one: Outcome) -> list[str]:
    """The cells of an arm's row from C on."""
    failed = {name for name, held in one.holds().items() if not held}
    return [
        _span(one.bounds, ".1f") or "none",
        _marked(_span(one.moved, "+.2f"), "moved" in failed),
        _marked(_span([100 * share for share in one.reached], ".0f", " %"), "reached" in failed),
        f"{one.error:.3g}",
        "none" if one.floor is None else f"{one.floor:.3g}",
        "" if one.ratio is None else _marked(f"{one.ratio:.2f}", "ratio" in failed),
        _marked(_span(one.rescaled, ".2g"), "rescaled" in failed),
    ]


def _bound(sides: Sides, variant: str, seed: int) -> float | None:
    """C of a variant's model; None where it is not kept, or there is none."""
    bound = sides.store.run(sides.spec(variant), seed).bound()
    return bound if bound is not None and math.isfinite(bound) else None


def _reached(store: Store) -> dict[tuple[str, int], float]:
    """B/C by specification and seed."""
    return {
        key: largest / bound for key, model in _asked(store).items() for bound, largest in [bound_and_largest(model)]
    }


def _asked(store: Store) -> dict[tuple[str, int], Model]:
    """Numbers of every model with a bound that a stored study of the boundary analysis has asked, by spec and seed."""
    analysis, known = frame.build("boundary", {}), {}
    for place, study in folders.of_kind("boundary", store).items():
        found = folders.stored(analysis, place)
        if not isinstance(found, StoredGrids) or not bounds.bounded(found):
            continue
        kept = bounds.kept(found)
        for run in [each for each in study.runs if not each.swap]:
            if numbers := kept.get(run.label, {}).get(run.seed):
                known[run.spec, run.seed] = numbers
    return known


def _at(grid: Grid, sigma: float, metric: str = "") -> float:
    """A metric (the headline unless named) of a run's model at one spread of functions; NaN where there is none."""
    values = _along(grid, metric)
    return values.get(float(sigma), math.nan)


def _far(grid: Grid) -> float:
    """Mean logarithm of the headline error over the spreads that the claims read."""
    values = _along(grid)
    return fmean(math.log(values[float(sigma)]) for sigma in FAR)


def _along(grid: Grid, metric: str = "") -> dict[float, float]:
    cells = grid.where(attn=model_name(grid)).frame
    own = cells[cells["metric"] == (metric or cells["metric"].iloc[0])]
    return dict(zip(own[grid.axes[1]], own["value"], strict=True))


def _span(values: Iterable[float], form: str, unit: str = "") -> str:
    known = list(values)
    if not known:
        return ""
    low, high = format(min(known), form), format(max(known), form)
    return (low if low == high else f"{low} to {high}") + unit


def _marked(text: str, failed: bool) -> str:
    return f"**{text}**" if failed else text


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
def main(check: bool) -> None:
    """Bring the tables of the arms in step with the evidence."""
    found = outcomes(Path(__file__).parent, evidence())
    page = filled_page({"arms": table(found), "predictions": tally(found)})
    stale = page != PAGE.read_text()
    click.echo(f"{len(found)} arms; {PAGE.name if stale else 'nothing'} out of step")
    if check:
        sys.exit(1 if stale else 0)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()

"""Picture of README: error of softmax and SSA over the spread of functions, at the paper's size and as printed.

python experiments/error_over_sigma.py            reads the evidence and writes docs/pictures/error-over-sigma.png
python experiments/error_over_sigma.py --check    only says whether the picture is of other numbers (exit status 1)
"""

import json
import sys
from pathlib import Path

import click

from icl_lab.base import published
from icl_lab.base.files import sha256
from icl_lab.base.grid import model_name
from icl_lab.claims import experiment as experiments
from icl_lab.claims.sides import Sides
from icl_lab.figures import base, lines
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.store import Store

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/pictures/error-over-sigma.png"
EXPERIMENT, PRESET = "boundary-graph", "paper2"
SIGMAS = [float(sigma) for sigma in range(1, 11)]
SHOWN = ("softmax", "ssa", "softmax, labels rescaled", "ssa, labels rescaled")
FLOOR = "floor of softmax's bound"


def numbers() -> dict[str, list[list[float]]]:
    """Return the mean squared error of each line at each sigma, one per seed; of the floor and the printed row, one."""
    store = Store(ROOT / "results", Archive(ROOT / "results/evidence"))
    sides = Sides(experiments.load(EXPERIMENT, ROOT / "experiments"), store, PRESET)
    found = {name: _over_sigma(sides, name, sides.task.headline) for name in SHOWN}
    found[FLOOR] = [[sum(seeds) / len(seeds)] for seeds in _over_sigma(sides, "softmax", "floor")]
    printed = published.load("ssa_table1")
    row = [printed.at("mse", method="SSA", sigma=int(sigma)).number for sigma in SIGMAS]
    return found | {"SSA as printed": [[number] for number in row]}


def _over_sigma(sides: Sides, name: str, metric: str) -> list[list[float]]:
    grids = [sides.measured(name, seed)[0] for seed in sorted(sides.seeds(name))]
    cells = [{"attn": "", "metric": metric, "sigma_x": 1.0, "sigma_f": sigma} for sigma in SIGMAS]
    found = [grid.values_at([{**cell, "attn": model_name(grid)} for cell in cells]) for grid in grids]
    return [list(seeds) for seeds in zip(*found, strict=True)]


@click.command()
@click.option("--check", is_flag=True)
def main(check: bool) -> None:
    """Draw the picture, or say whether it is of other numbers than the evidence holds."""
    found = numbers()
    origin = f"{EXPERIMENT} at {PRESET}: {sha256(json.dumps(found).encode())[:12]}"
    stale = not PICTURE.exists() or base.origin(PICTURE) != origin
    click.echo(f"{PICTURE.name if stale else 'nothing'} out of step")
    if check:
        sys.exit(stale)
    rules = {name: found.pop(name) for name in SHOWN}
    figure = lines.rivals(
        SIGMAS,
        rules,
        {name: [seeds[0] for seeds in values] for name, values in found.items()},
        axis="standard deviation of a and b, in units of training",
        title="y = ax + b: error far from training (12 layers, width 256, three seeds)",
        label="mean squared error",
        log=True,
    )
    PICTURE.write_bytes(base.encode(figure, "png", origin))


if __name__ == "__main__":
    main()

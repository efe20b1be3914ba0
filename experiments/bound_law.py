"""The law of the bound: C against the largest label of each training, and the error far from training against C.

python experiments/bound_law.py            reads the evidence, draws the labels of new runs again, writes what follows
python experiments/bound_law.py --check    only says what would change, and exits with 1 if anything would
python experiments/bound_law.py --draws    prints the C that Table 1's rows need on other draws of their functions

Written: results/bound-law/runs.csv (a row per model), docs/pictures/bound-law.png and the tables of docs/boundary.md
between the marks ``<!-- law -->``, ``<!-- cause -->`` and their ends.
"""

import io
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import click
import msgspec
import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq

from icl_lab import tasks
from icl_lab.analyses.boundary.bounds import training_labels
from icl_lab.base import markdown as md
from icl_lab.base import published
from icl_lab.base.grid import model_name
from icl_lab.claims import experiment as experiments
from icl_lab.claims.sides import Sides
from icl_lab.figures import base, bounds
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store
from icl_lab.tasks.drawing import published_inputs
from icl_lab.tasks.linear import Linear

ROOT = Path(__file__).resolve().parents[1]
TABLE, PICTURE, PAGE = (
    ROOT / "results/bound-law/runs.csv",
    ROOT / "docs/pictures/bound-law.png",
    ROOT / "docs/boundary.md",
)
FILES = {  # experiments that train, and what their rows add to a variant
    "boundary-bound": "",
    "boundary-graph": ", CUDA graphs",
    "boundary-optimizer": ", published optimizer",
    "bound-law": "",
    "bound-cause": "",
    "bound-wide": "",
}
WHO = ["preset", "variant", "spec", "seed"]
NEWLINE = "\n"
MEASURED = ["steps", "bound", "labels", "largest", "beyond", "error", "floor"]
FAR = 10.0  # sigma_f at which errors are shown
PRINTED_LABELS, NEEDED = 500_000 * 64 * 40, {"ssa": 28.4, "softmax": 13.0}  # by ``printed-bounds`` at FAR
PRINTED_ROWS = {"ssa": "SSA", "softmax": "Softmax"}  # of the published table
MARKS = {
    "width 64": "o",
    "width 256": "s",
    "other spread of labels": "^",
    "bounded law": "D",
    "read-out started larger": "v",
}


def runs(store: Store, known: pd.DataFrame) -> pd.DataFrame:
    """Return a row per finished model with a bound; labels that ``known`` has are not drawn again."""
    drawn = {(row.spec, row.seed): (row.labels, row.largest) for row in known.itertuples()}
    rows, trained = {}, set()
    for name, preset in product(FILES, PRESETS):
        sides = Sides(experiments.load(name, ROOT / "experiments"), store, preset)
        for variant, spec in sides.specs.items():
            if "scaled" in variant or spec.model.norm_before_read_out == "none":
                continue
            for seed in sorted(sides.seeds(variant)):
                run, training = store.run(spec, seed), (msgspec.json.encode(spec.training), seed)
                bound = run.bound() if training not in trained else None  # another test of a model that is there
                trained.add(training)
                if bound is None or not math.isfinite(bound):
                    continue
                if (spec.hash, seed) not in drawn:
                    found = training_labels(spec, seed, bound)
                    drawn[spec.hash, seed] = found["labels"], found["largest-label"]
                labels, largest = drawn[spec.hash, seed]
                task = tasks.build(spec.task)
                beyond = labels * task.share_beyond(bound, **spec.train.shift) if isinstance(task, Linear) else math.nan
                ours = spec.test.draws != "paper"  # errors are shown on one set of functions, the published
                error, floor = (math.nan if ours else _far(run.grid(), metric) for metric in ("mse-code", "floor"))
                measured = (spec.train.steps, bound, labels, largest, beyond, error, floor)
                rows[spec.hash, seed] = (
                    preset,
                    variant + FILES[name],
                    spec.hash,
                    seed,
                    *(float(f"{each:.6g}") for each in measured),
                )
    return pd.DataFrame(rows.values(), columns=[*WHO, *MEASURED]).sort_values(WHO, ignore_index=True)


def _far(grid, metric: str) -> float:
    """A metric of the run's model at ``FAR`` and the training length; NaN where it was not measured."""
    cells = grid.where(attn=model_name(grid), metric=metric).frame
    cells = cells[(cells["sigma_f"] == FAR) & (cells["sigma_x"] == 1)]
    cells = cells[cells["length"] == 40] if "length" in cells and (cells["length"] == 40).any() else cells
    return float(cells["value"].iloc[0]) if len(cells) else math.nan


def kind(row) -> str:
    """Kind of a model, by which it is marked."""
    if "read-out" in row.variant:
        return "read-out started larger"
    if "uniform" in row.variant:
        return "bounded law"
    if "functions" in row.variant or "wide" in row.variant:
        return "other spread of labels"
    return "width 256" if row.preset in ("wide4", "paper2", "paper") else "width 64"


def dots(found: pd.DataFrame) -> list[bounds.BoundDot]:
    """Return the models as dots; an error is shown where training had every sigma at 1."""
    made = []
    for row in found.itertuples():
        shown = kind(row) not in ("other spread of labels", "bounded law")
        made.append(
            bounds.BoundDot(
                row.variant.partition(",")[0], kind(row), row.largest, row.bound, row.error if shown else math.nan
            )
        )
    return made


def printed() -> dict[str, bounds.BoundDot]:
    """Return the rows of Table 1: the C that they need, the size beyond which one label is expected, the error."""
    sizes = np.geomspace(5, 50, 400)
    expected = [PRINTED_LABELS * Linear().share_beyond(size) for size in sizes]
    largest = float(sizes[int(np.argmax(np.array(expected) < 1))])
    table = published.load("ssa_table1")
    errors = {label: table.at("mse", method=row, sigma=FAR).number for label, row in PRINTED_ROWS.items()}
    return {f"Table 1, {label}": bounds.BoundDot(label, "", largest, NEEDED[label], errors[label]) for label in NEEDED}


def floor() -> list[tuple[float, float]]:
    """Return the floor at ``FAR`` over C: the mean of (|y| - C)+^2 over the published functions and inputs."""
    y = Linear().published(40, sigma_f=FAR).targets[:, ::2][:, 3:].abs().double().numpy()
    return [(float(c), float(np.square(np.clip(y - c, 0, None)).mean())) for c in np.geomspace(4, 45, 60)]


def other_draws(draws: int = 40) -> list[str]:
    """Return lines: the C that printed rows need on other draws of 100 functions, medians over sigma 4 to 10."""
    x, lines = published_inputs(64, 40), []
    for label, row in PRINTED_ROWS.items():
        needed = np.zeros((draws, 7))
        for draw, sigma in product(range(draws), range(4, 11)):
            a, b = sigma * torch.randn(2, 100, 1, 1, generator=torch.Generator().manual_seed(1000 * draw + sigma))
            y = np.abs((a * x + b)[..., 3:].double().numpy())
            error = published.load("ssa_table1").at("mse", method=row, sigma=sigma).number
            excess = lambda c, y=y, error=error: float(np.square(np.clip(y - c, 0, None)).mean()) - error  # noqa: E731
            needed[draw, sigma - 4] = brentq(excess, 0, float(y.max()))
        (low, high), (least, most) = np.percentile(np.median(needed, 1), [5, 95]), np.percentile(needed, [5, 95])
        lines.append(f"{label}: {low:.1f} to {high:.1f} (medians over sigma), {least:.1f} to {most:.1f} (each sigma)")
    return lines


def law(found: pd.DataFrame) -> list[str]:
    """Return a row per arm: the largest label of the training, C, and labels expected beyond C, over seeds."""
    rows = []
    for arm, part in _arms(found[~found["variant"].str.contains("read-out")]):
        rows.append([*arm, _span(part["largest"]), _span(part["bound"]), _span(part["beyond"])])
    return md.table(["preset", "model", "seeds", "largest label", "C", "expected beyond C"], rows)


def cause(found: pd.DataFrame) -> list[str]:
    """Return a row per arm of the read-out's start: C, the error at ``FAR`` and its floor, means over seeds."""
    started = found[found["variant"].str.contains("read-out")]
    plain = found[found["variant"].isin(["softmax", "ssa"]) & found["preset"].isin(started["preset"])]
    plain = plain[plain["steps"].isin(started["steps"])]
    rows = []
    for arm, part in _arms(pd.concat([plain, started]).sort_values(WHO)):
        error, floor = part["error"].mean(), part["floor"].mean()
        rows.append([*arm, _span(part["bound"]), _span(part["error"]), f"{floor:.3g}", f"{floor / error:.2f}"])
    return md.table(["preset", "model", "seeds", "C", f"error at σ {FAR:g}", "floor", "floor / error"], rows)


def _arms(found: pd.DataFrame) -> Iterator[tuple[list[str], pd.DataFrame]]:
    for (preset, variant, _), part in found.groupby(["preset", "variant", "spec"], sort=False):
        yield [f"`{preset}`", variant, str(len(part))], part


def _span(values: pd.Series) -> str:
    low, high = (f"{each:,.0f}" if each >= 1000 else f"{each:.3g}" for each in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def evidence() -> Store:
    """Runs of the repository, whatever lies in the results folder."""
    return Store(ROOT / "results" / "runs-of-nobody", Archive(ROOT / "results" / "evidence"))


def filled_page(tables: Mapping[str, Sequence[str]]) -> str:
    """Return docs/boundary.md with lines between ``<!-- name -->`` and ``<!-- end name -->``, by name."""
    page = PAGE.read_text()
    for mark, lines in tables.items():
        block = f"(<!-- {mark} -->\n).*?(<!-- end {mark} -->)"
        page = re.sub(block, rf"\g<1>{NEWLINE.join(lines)}\n\g<2>", page, flags=re.DOTALL)
    return page


@click.command()
@click.option("--draws", is_flag=True, help="Print the C that Table 1 needs on 40 other draws of its functions.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
def main(check: bool, draws: bool) -> None:
    """Bring the table, the picture and the page in step with the evidence."""
    if draws:
        click.echo("\n".join(other_draws()))
        return
    store = evidence()
    known = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=[*WHO, *MEASURED])
    found = runs(store, known)
    text = io.StringIO()
    found.to_csv(text, index=False)
    filled = filled_page({"law": law(found), "cause": cause(found)})
    stale = [
        path.name
        for path, same in (
            (TABLE, TABLE.exists() and TABLE.read_text() == text.getvalue()),
            (PAGE, filled == PAGE.read_text()),
        )
        if not same
    ]
    click.echo(f"{len(found)} models; {', '.join(stale) or 'nothing'} out of step")
    if check:
        sys.exit(1 if stale else 0)
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(text.getvalue())
    PAGE.write_text(filled)
    figure = bounds.law(
        dots(found),
        title="What sets the bound C, and what it costs",
        marks=MARKS,
        floor=floor(),
        printed=printed(),
        error=f"mean squared error at σ {FAR:g}",
    )
    PICTURE.write_bytes(base.encode(figure, "png", "results/bound-law/runs.csv"))


if __name__ == "__main__":
    main()

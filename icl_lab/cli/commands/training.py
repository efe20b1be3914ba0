"""Commands that train, test and compare."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

import icl_lab as icl
from icl_lab.base import markdown as md
from icl_lab.base.errors import RunFailed
from icl_lab.cli.hints import then
from icl_lab.cli.options import (
    crowd_options,
    dry_run_option,
    gathered,
    grid_option,
    name_option,
    over_option,
    retrain_option,
    run_options,
    seed_option,
    tell_files,
    where_options,
)
from icl_lab.cli.output import out
from icl_lab.cli.values import Numbers, attn_option, cell_of
from icl_lab.execute.where import SEEDS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from icl_lab.execute.plan import RunPlan
    from icl_lab.execute.where import Where


@click.command()
@run_options
@grid_option
@seed_option
@crowd_options
@click.option(
    "--swap", default="", metavar="RULE", help="Test the trained model with another normalizer, e.g. ssmax:s=swap."
)
@gathered
def sweep(plan: "RunPlan", where: "Where") -> None:
    """Train a model for each normalizer and seed, and test it over every shift."""
    from icl_lab.cli.show import RunTable, close, tell_repeat
    from icl_lab.execute import complete

    if plan.grid:
        _grid(plan, where)
        return
    shown = RunTable(plan)
    here = replace(where, evidence=bool(where.evidence), progress=shown)
    try:
        complete.sweep(plan, here)
    finally:
        if shown.done:
            close(shown.done)
            tell_repeat(shown.done)
    if lost := sum(bool(run.diverged) for run in shown.done):
        raise RunFailed(f"{lost} of {len(shown.done)} trainings diverged, see above; there is no model of them.")


@click.command()
@run_options
@grid_option
@crowd_options
@click.option("--baseline", default="softmax", show_default=True, help="What the others are compared with.")
@click.option(
    "--rates",
    type=click.Choice(["shared", "own"]),
    default="shared",
    show_default=True,
    help="own: each normalizer at the best rates of its stored curve (icl-lab rates).",
)
@click.option(
    "--at",
    "cell",
    multiple=True,
    metavar="AXIS=VALUE",
    callback=cell_of,
    help="Also compare in this cell of the test grid, e.g. length=80; other axes as in training.",
)
@name_option
@gathered
def compare(plan: "RunPlan", baseline: str, cell: "Mapping[str, float]", where: "Where") -> None:
    """Compare normalizers over training seeds, and train missing runs."""
    from icl_lab.cli.show import warn

    if plan.grid:
        _grid(plan, where, baseline)
        return
    study = icl.Study.of(plan, baseline, where)
    if cell:
        _tell_cell(study, cell, baseline)
    warn([run.stored for run in study.runs])
    tell_files(study.folder, study.made.files, "report.html")
    out(f"next: {then('compare', {'--seeds': [str(len(plan.seeds) + 2)]})}   (more seeds: surer answers)")


@click.command()
@click.option("--task", required=True, help="See: icl-lab list tasks.")
@attn_option(required=True, help="Normalizer; may be given again.")
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(1, SEEDS), help="Tuning seeds, from 100 on.")
@click.option(
    "--factors",
    default="0.25,0.5,1,2,4,8",
    show_default=True,
    type=Numbers(float, 2.0**-8, 2.0**8),
    help="Powers of 2 that multiply the recipe's rates; more are added until the best has a worse one on each side.",
)
@click.option("--widths", default="", type=Numbers(int, 8, 8192, empty=True), help="A curve per width.")
@dry_run_option
@over_option
@retrain_option
@name_option
@where_options
@crowd_options
@gathered
def rates(where: "Where", **asked: Any) -> None:
    """Find the best learning rates of each normalizer: errors over their factor.

    Trains from tuning seeds and tests on tuning prompts, which no comparison reads; compare --rates own takes the best.
    """
    from icl_lab.execute import rates as curves

    plan = curves.RatesPlan(**asked)
    with where.session() as lab:
        study = curves.measure(plan, lab, where)
    tell_files(study.folder, study.files, "rates.png")
    out(f"next: {then('compare', {'--seeds': ['3'], '--rates': ['own'], '--preset': [plan.preset]})}")


@click.command()
@run_options
@crowd_options
@name_option
@gathered
def ablate(plan: "RunPlan", where: "Where") -> None:
    """Leave one part of the model out at a time, and compare with the whole.

    Attention only, MLP only, no norm, a layer less.
    """
    from icl_lab.execute import study

    with where.session() as lab:
        written = study.ablate(plan, lab, where)
    tell_files(written.folder, written.files, "report.html")


def _tell_cell(study: "icl.Study", cell: "Mapping[str, float]", baseline: str) -> None:
    said = ", ".join(f"{axis}={value:g}" for axis, value in cell.items())
    kind = "ratio" if study.numbers.scale == "log-ratio" else "difference"
    rows = [
        [f"`{row['attn']}`", f"{row['error']:.3g}", *([] if math.isnan(row["effect"]) else [_interval(row)])]
        for row in study.at(**cell).to_dict("records")
    ]
    lost = study.numbers.not_learned
    note = [f"Not compared, since not learned: {', '.join(lost)}."] if lost else []
    out("\n".join([f"At {said}:", "", *md.table(["normalizer", "error", f"{kind} to {baseline}"], rows), "", *note]))


def _interval(row: "Mapping[Hashable, float]") -> str:
    return md.interval(row["effect"], row["low"], row["high"])


def _grid(plan: "RunPlan", where: "Where", baseline: str = "") -> None:
    from icl_lab.execute import grids

    with where.session() as lab:
        study = grids.measure(plan, lab, where, baseline)
    tell_files(study.folder, study.files, "grid.png" if "grid.png" in study.files else "")

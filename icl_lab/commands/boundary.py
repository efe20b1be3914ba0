"""The command that asks trained models for values far from their examples."""

from typing import Any

import click

from icl_lab.console import model_options, numbers, tell
from icl_lab.runs import Order, complete, models


@click.command()
@model_options
@click.option("--slopes", default="1,3,9,10", show_default=True, help="Slopes a of f(x) = a x + b.")
@click.option("--intercepts", default="0", show_default=True, help="Intercepts b.")
@click.option("--scales", default="1,0.3", show_default=True, help="Spreads of the examples' inputs; 1 is training's.")
@click.option("--contexts", default=32, show_default=True, help="Contexts of examples, 16 or more.")
@click.option("--reach", type=float, help="True values go from -REACH to REACH.  [default: 40]")
def boundary(
    slopes: str, intercepts: str, scales: str, contexts: int, reach: float | None, task: str, **where: Any
) -> None:
    """Detect the values that answers do not exceed, and what they hang on; trains what is missing."""
    from icl_lab import boundaries, boundary_report
    from icl_lab.analyses.extrapolation import lines
    from icl_lab.names import filename
    from icl_lab.studies import by_rule

    asked = lines(numbers(slopes, "--slopes"), numbers(intercepts, "--intercepts"), numbers(scales, "--scales"))
    runs, lab = models(task=task or "linear", **where)
    groups = by_rule(runs)
    boundaries.check(groups, reach, contexts)
    complete(runs, lab, Order())
    found = boundaries.follow(groups, lab, asked, contexts, reach)
    spec = runs[0].spec
    folder = lab.store.root / f"boundary-{filename(spec.task)}-{spec.preset}"
    text, files = boundary_report.publish(found, boundaries.sweeps(found, groups), spec, folder, lab.command)
    tell(text, folder, files, "boundary.png")

"""The command that asks trained models for values far from their examples."""

from typing import Any

import click

from icl_lab.cli.launch import Order, complete, models
from icl_lab.cli.options import model_options, numbers, tell


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
    from icl_lab.analyses.boundary import report, study
    from icl_lab.analyses.boundary.extrapolation import lines
    from icl_lab.registry import filename
    from icl_lab.runs.groups import by_rule

    asked = lines(numbers(slopes, "--slopes"), numbers(intercepts, "--intercepts"), numbers(scales, "--scales"))
    runs, lab = models(task=task or "linear", **where)
    groups = by_rule(runs)
    study.check(groups, reach, contexts)
    complete(runs, lab, Order())
    found = study.follow(groups, lab, asked, contexts, reach)
    spec = runs[0].spec
    folder = lab.store.root / f"boundary-{filename(spec.task)}-{spec.preset}"
    text, files = report.publish(found, study.sweeps(found, groups), spec, folder, lab.command)
    tell(text, folder, files, "boundary.png")

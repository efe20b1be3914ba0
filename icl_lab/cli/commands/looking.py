"""Commands that look into trained models."""

from typing import Any

import click

from icl_lab.cli.launch import models
from icl_lab.cli.options import model_options, tell


@click.command()
@model_options
@click.option("--length", type=click.IntRange(min=1), help="Tokens of a prompt.  [default: 8 training lengths]")
@click.option("--trials", default=100, show_default=True, type=click.IntRange(min=2), help="Prompts.")
def needle(task: str, length: int | None, trials: int, **where: Any) -> None:
    """Score every head by the attention that it pays to the needle; trains what is missing."""
    from icl_lab.analyses import needles
    from icl_lab.registry import filename
    from icl_lab.runs.groups import by_rule

    runs, lab = models(task=task or "needle", **where)
    for run in runs:
        needles.check(run.spec, length)
    found = needles.search(by_rule(runs), lab, length, trials)
    spec = runs[0].spec
    folder = lab.store.root / f"needle-scores-{filename(spec.task)}-{spec.preset}"
    text, files = needles.publish(found, spec, folder, lab.command)
    tell(text, folder, files, "needle.png")


@click.command()
@model_options
def law(attns: tuple[str, ...], **where: Any) -> None:
    """Fit laws of n to the free-form factor that ssmax-free has learned; trains what is missing."""
    from icl_lab.analyses import laws
    from icl_lab.registry import filename

    runs, lab = models(attns=attns or ("ssmax-free",), **where)
    for run in runs:
        laws.check(run.spec)
    spec = runs[0].spec
    found = laws.learn(runs, lab)
    folder = lab.store.root / f"law-{filename(spec.task)}-{spec.preset}"
    text, files = laws.publish(found, spec, folder, lab.command)
    tell(text, folder, files, "law.png")

"""Commands that look into trained models."""

from typing import Any

import click

from icl_lab.console import crowd_options, numbers, run_options
from icl_lab.runs import Order, complete, settle


@click.command()
@run_options
@crowd_options
@click.option("--position", default="0", show_default=True, help="Index of the deviant example, or several: 0,5.")
@click.option("--factors", default="", help="What it is multiplied by, e.g. 1,10,100.  [default: the task's own]")
@click.option("--prompts", default=1024, show_default=True, type=click.IntRange(min=2), help="Test prompts.")
def deviant(
    task: str, attns: tuple[str, ...], seeds: int, position: str, factors: str, prompts: int, **where: Any
) -> None:
    """Multiply one number of the prompt and see how far the answers after it go wrong; trains what is missing."""
    from icl_lab import deviants
    from icl_lab.names import filename
    from icl_lab.studies import by_rule

    at = [int(index) for index in numbers(position, "--position")]
    stretches = numbers(factors, "--factors") if factors else []
    order = Order.of(where)
    runs, lab = settle(task, attns, seeds, **where)
    deviants.check(runs[0].spec, at)
    if not complete(runs, lab, order):
        return
    found = deviants.disturb(by_rule(runs), lab, at, stretches, prompts)
    spec = runs[0].spec
    place = "" if at == [0] else f"-at-{position.replace(' ', '')}"
    folder = lab.store.root / f"deviant-{filename(spec.task)}-{spec.preset}{place}"
    text, files = deviants.publish(found, spec, folder, lab.command)
    click.echo(text)
    click.echo(f"wrote {folder}: {', '.join(files)}")
    click.echo(f"next: open {folder / 'deviant.png'}")

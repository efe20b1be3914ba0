"""Command that lists what there is. It imports little: whoever lists runs wants them at once."""

from pathlib import Path

import click

from icl_lab.claims import experiment
from icl_lab.cli import catalogue, runs
from icl_lab.cli.hints import then
from icl_lab.cli.options import experiments_option, gathered, read_option
from icl_lab.cli.output import out
from icl_lab.execute.progress import counted, say
from icl_lab.execute.where import Where

WHAT = ("tasks", "normalizers", "positions", "presets", "experiments")


@click.command("list")
@click.argument("what", type=click.Choice([*WHAT, "runs"]), required=False)
@read_option
@experiments_option
@click.option("--long", is_flag=True, help="With runs: the bound on each model's answers, and which have not learned.")
@click.option("--all", "whole", is_flag=True, help="All runs, not the newest 20 specifications alone.")
@gathered
def list_(what: str | None, long: bool, whole: bool, where: Where) -> None:
    """List tasks, normalizers, positions, presets, runs or experiments; without one, all names."""
    place = experiment.place(Path(where.experiments))
    if what is None:
        for kind in WHAT:
            there = experiment.names(place) if kind == "experiments" else catalogue.names(kind)
            out(f"{kind}: {', '.join(there)}", prose=True)
        out(f"next: {then('list', {'what': ['normalizers']})}   (formulas and sources; the others, and runs, alike)")
        return
    if what == "experiments":
        for name in counted(experiment.names(place), "reading experiments"):
            for line in experiment.card(name, experiment.load(name, place), where.store()):
                out(line, prose=True)
        return

    if what == "runs":
        lines = list(runs.listing(where.store(), say, long, where.reporter.tick, whole=whole))
        for line in lines:
            out(line, prose=True)
        if not whole and sum(not line.startswith(" ") for line in lines) == runs.NEWEST:
            out(f"next: {then('list', {'what': ['runs'], '--all': ['True']})}   (these are the newest {runs.NEWEST})")
        return
    for line in catalogue.listing(what):
        out(line, prose=True)
    for line in dict.fromkeys(line for registry in catalogue.KINDS.get(what, []) for line in registry.broken()):
        say(line)

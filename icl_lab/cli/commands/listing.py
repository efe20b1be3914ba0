"""Command that lists what there is. Names and titles are there without torch."""

from pathlib import Path

import click

from icl_lab.claims import files
from icl_lab.cli import catalogue
from icl_lab.cli.hints import then
from icl_lab.cli.options import experiments_option, gathered, read_option
from icl_lab.cli.output import out
from icl_lab.execute.progress import say
from icl_lab.execute.where import Where

WHAT = ("tasks", "normalizers", "positions", "presets", "experiments")


@click.command("list")
@click.argument("what", type=click.Choice([*WHAT, "runs"]), required=False)
@click.argument("name", default="")
@read_option
@experiments_option
@click.option("--long", is_flag=True, help="With runs: the bound on each model's answers, and which have not learned.")
@click.option("--all", "whole", is_flag=True, help="All runs, not the newest 20 specifications alone.")
@gathered
def list_(what: str | None, name: str, long: bool, whole: bool, where: Where) -> None:
    """List tasks, normalizers, positions, presets, runs or experiments; without one, all names.

    NAME is an experiment, whose cost and state at each preset are listed.
    """
    place = files.place(Path(where.experiments))
    if name and what != "experiments":
        raise click.UsageError(f"{what} are listed all: '{name}' can be a name of experiments alone.")
    if what is None:
        for kind in WHAT:
            there = files.names(place) if kind == "experiments" else catalogue.names(kind)
            out(f"{kind}: {', '.join(there)}", prose=True)
        out(f"next: {then('list', {'what': ['normalizers']})}   (formulas and sources; the others, and runs, alike)")
        return
    if what == "experiments" and name:
        from icl_lab.claims import experiment

        for line in experiment.card(name, experiment.load(name, place), where.store()):
            out(line, prose=True)
        return
    if what == "experiments":
        for name, made in files.titled(place).items():
            out(f"{name}: {made.title}", prose=True)
        if name:
            out(f"next: {then('list', {'what': [what], 'name': [name]})}   (cost and state of this one)")
        return
    if what == "runs":
        from icl_lab.cli import runs

        lines = list(runs.listing(where.store(), say, long, where.reporter.tick, whole=whole))
        for line in lines:
            out(line, prose=True)
        if not whole and sum(not line.startswith(" ") for line in lines) == runs.NEWEST:
            out(f"next: {then('list', {'what': ['runs'], '--all': ['True']})}   (these are the newest {runs.NEWEST})")
        return
    for line in catalogue.listing(what):
        out(line, prose=True)
    registries = [] if what == "presets" else catalogue.registries(what)
    for line in dict.fromkeys(line for registry in registries for line in registry.broken()):
        say(line)

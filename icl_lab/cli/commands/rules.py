"""Commands about normalizers by themselves, without training."""

import json

import click

from icl_lab import normalizers
from icl_lab.analyses.profiles import costs as costs_of
from icl_lab.analyses.profiles import functions as functions_of
from icl_lab.analyses.profiles.families import FAMILIES
from icl_lab.base.files import made
from icl_lab.cli.hints import then, typed
from icl_lab.cli.options import PAIRS, device_option, gathered, results_option, threads_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Numbers, attn_option
from icl_lab.execute.progress import counted
from icl_lab.execute.where import Where
from icl_lab.figures import rules
from icl_lab.figures.files import publish_folder
from icl_lab.runs import environment
from icl_lab.runs.evidence.archive import own_studies


@click.command()
@results_option
@gathered
def functions(where: Where) -> None:
    """Draw what each normalizer does to scores: who fades, who concentrates; trains nothing."""
    folder = made(own_studies(where.root) / "functions")
    tick = where.reporter.tick
    grids = {name: functions_of.GRIDS[name]() for name in counted(list(functions_of.GRIDS), "weighing scores", tick)}
    drawn = dict(rules.functions(grids, FAMILIES))
    publish_folder(folder, {f"{name}.csv": grid.csv() for name, grid in grids.items()}, drawn)
    for name in drawn:
        out(f"figure: {folder / name}.png")
    for choice in functions_of.left_out():
        out(f"left out: {choice}, which reads the tokens of a model and has no weights without one")
    out(f"wrote {folder}: {', '.join(grids)} as CSV, and the figures as PNG and SVG")
    out(f"next: {then('costs')}   (what each normalizer costs in time and memory)")


@click.command()
@click.option(
    "--lengths",
    default="256,512,1024,2048,4096",
    show_default=True,
    type=Numbers(int, 1, 10**9),
    help="Tokens of a prompt.",
)
@attn_option(help="Only this normalizer; may be given again.  [default: all]")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(1, PAIRS), help="Timed pairs with softmax.")
@results_option
@device_option
@threads_option
@gathered
def costs(lengths: tuple[int, ...], attns: tuple[str, ...], pairs: int, where: Where) -> None:
    """Count operations as the poster does, and measure time and memory of each normalizer against softmax."""
    costs_of.check(lengths)
    here = where.torch_device()
    attns = tuple(map(normalizers.canonical, attns))
    folder = made(own_studies(where.root) / "costs")
    counted = costs_of.operations()
    measured = costs_of.measure(lengths, attns or None, pairs=pairs, device=here, tick=where.reporter.tick)
    printed = costs_of.printed_times()
    beside = ["", "printed by the poster:", *costs_of.table(printed), "", "here:", *costs_of.table(measured)]
    out("\n".join([*costs_of.counts(counted), *beside]))
    grids = {"poster-times": printed, "operations": counted, "measured": measured}
    files = {f"{name}.csv": grid.csv() for name, grid in grids.items()}
    files["env.json"] = json.dumps(environment.environment(here, typed()), indent=1, sort_keys=True) + "\n"
    publish_folder(folder, files, {"measured": rules.costs(measured)})
    out(f"wrote {folder}: operations.csv, poster-times.csv, measured.csv, measured.png, measured.svg, env.json")
    out(f"next: {then('functions')}   (what each normalizer does to scores)")

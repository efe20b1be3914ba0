"""Commands about published results: do them again, and say what held."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

import icl_lab as icl
from icl_lab import tasks
from icl_lab.analyses.publish import written
from icl_lab.cli.hints import then
from icl_lab.cli.options import (
    beside_option,
    crowd_options,
    experiments_option,
    gathered,
    read_option,
    results_option,
    seeds_option,
    style_option,
    tell,
    where_options,
)
from icl_lab.cli.output import out
from icl_lab.cli.terminal import typed
from icl_lab.cli.until_decided import budget_option, decide, until_decided_option
from icl_lab.comparison.verdict import Verdict
from icl_lab.evidence.layer import own_studies
from icl_lab.files import write
from icl_lab.launch.where import Where
from icl_lab.markdown import listed
from icl_lab.papers import cost
from icl_lab.papers import experiment as experiments
from icl_lab.papers import record as records
from icl_lab.papers import tradeoff as tradeoffs
from icl_lab.runs.presets import PRESETS


@click.command()
@click.argument("name")
@where_options
@crowd_options
@seeds_option
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Only this one beside the baseline, and the claims about them; may be given again.",
)
@click.option("--overlay", is_flag=True, help="Show rows of doubtful columns a second time, moved, and say so.")
@beside_option
@experiments_option
@click.option("--force", is_flag=True, help="Repeat runs that are finished.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@until_decided_option
@budget_option
@gathered
def experiment(
    name: str,
    preset: str,
    settings: Sequence[str],
    seeds: int,
    variants: Sequence[str],
    overlay: bool,
    until_decided: bool,
    budget: float | None,
    where: Where,
) -> None:
    """Do a published table or figure again: train what is missing, and write ours beside the printed numbers.

    With --until-decided seeds are added in the steps at which claims are looked at (3, 5, 8, 12, .. 64), to the sides
    of claims that are open, until all are decided or the time of --budget is up; the same command goes on.
    """
    if budget is not None and not until_decided:
        raise click.UsageError("--budget is the time of --until-decided: add that.")
    if until_decided:
        refused = {"--seeds": seeds > 1, "--set": settings, "--overlay": overlay, "--beside": where.beside}
        refused |= {"--force": where.force, "--shard": where.shard[1] > 1}
        if wrong := [option for option, given in refused.items() if given]:
            raise click.UsageError(f"--until-decided gives the claims as they are seeds: leave out {listed(wrong)}.")
        decide(name, preset, variants, budget or 3600.0, where)
        return
    done = icl.experiment(name, preset, settings, seeds=seeds, variants=variants, overlay=overlay, where=where)
    out(str(done))
    out(f"wrote {done.folder}: {', '.join(written(done.folder))}")
    out(f"next: {then('claims')}   (what held and what did not, over all experiments)")


@click.command()
@click.option("--preset", default="lite", show_default=True, help="The scale at which to judge.")
@read_option
@experiments_option
@click.option("--record", is_flag=True, help="Judge all claims anew, at all scales, and write the repository's record.")
@gathered
def claims(preset: str, record: bool, where: Where) -> None:
    """Print what each experiment claims and what was seen at this scale, from finished results; trains nothing.

    Verdicts of the repository's runs are read from results/claims.csv; others are judged now.
    """
    store, place, tally = where.store(), experiments.place(Path(where.experiments)), Counter[str]()
    if record:
        write(where.root / records.NAME, records.written(place, store).encode())
        out(f"wrote {where.root / records.NAME}")
        return
    costs, recorded = cost.Costs(store, preset), records.stored(store)
    for name in experiments.names(place):
        chosen, remarks, rows = records.rows(name, place, store, preset, recorded, costs)
        for line in (*records.text(name, chosen, rows), *(f"  {line}" for line in remarks)):
            out(line)
        tally.update(row["verdict"] for row in rows)
    told = ", ".join(f"{count} {verdict}" for verdict, count in tally.most_common())
    out(f"{tally.total()} claims at {preset}: {told}.")
    if tally[Verdict.NOT_RUN] and (others := [each for each in PRESETS if each != preset and store.has(each)]):
        out(f"There are runs at {listed(others)} too; next: {then('claims', {'--preset': [others[0]]})}")


@click.command()
@click.option("--preset", default="lite", show_default=True, help="The scale of the runs.")
@click.option("--task", default="linear", show_default=True, help="The task of the deviants.")
@results_option
@style_option
@gathered
def tradeoff(preset: str, task: str, where: Where) -> None:
    """Set retrieval far out against robustness to a deviant, for all rules of which both are stored; trains nothing."""
    task = tasks.canonical(task)
    points = tradeoffs.gather(where.store(), preset, task)
    folder = own_studies(where.root) / f"tradeoff-{preset}"
    text, files = tradeoffs.publish(points, folder, preset, task, typed())
    tell(text, folder, files, "tradeoff.png")

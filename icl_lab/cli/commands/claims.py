"""Commands about claims of published results: what held, and what trades against what."""

from collections import Counter
from pathlib import Path

import click

from icl_lab import tasks
from icl_lab.cli.hints import then, typed
from icl_lab.cli.options import (
    experiments_option,
    gathered,
    read_option,
    results_option,
    style_option,
    tell,
)
from icl_lab.cli.output import out
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

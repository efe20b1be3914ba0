"""The command that measures how fast the laboratory is."""

import json

import click

from icl_lab import bench as benches
from icl_lab.bench import PARTS, base, table
from icl_lab.cli.hints import then, typed
from icl_lab.cli.options import PAIRS, device_option, gathered, results_option, threads_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Finite
from icl_lab.evidence.archive import own_studies
from icl_lab.files import write
from icl_lab.launch.progress import say
from icl_lab.launch.where import Where
from icl_lab.runs import environment

MINUTES = 1440  # a day a recipe and task


@click.command()
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Only this part; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON in place of the table.")
@click.option("--pairs", default=3, show_default=True, type=click.IntRange(1, PAIRS), help="Timed pairs, A B A B ...")
@click.option(
    "--minutes",
    default=0.5,
    show_default=True,
    type=Finite(0, MINUTES, least_open=True),
    help="Part quality: the most training of each recipe on each task.",
)
@click.option("--setup", is_flag=True, help="Part start: also install afresh with pip and uv, which downloads.")
@results_option
@device_option
@threads_option
@gathered
def bench(only: tuple[str, ...], as_json: bool, pairs: int, minutes: float, setup: bool, where: Where) -> None:
    """Measure how fast this is, as ratios within one run: steps, engines, grids, time to quality, jobs ..."""
    here = where.torch_device()
    folder = own_studies(where.root) / "bench"
    rows_file, about = folder / "bench.csv", folder / "env.json"
    old = table.read(rows_file.read_text()) if rows_file.exists() else []
    known = json.loads(about.read_text()) if about.exists() else {}
    parts = [part for part in PARTS if part in (only or PARTS)]
    rows = list(benches.measure(parts, base.Bench(here, pairs, minutes, setup, say=say, tick=where.reporter.tick)))
    # Parts that were measured at other times keep their rows, and each its own environment.
    env = environment.environment(here, typed())
    known |= {f"{part} on {here.type}": env for part in parts}
    write(rows_file, table.as_csv(table.merge(old, rows)).encode())
    write(about, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())
    if as_json:
        out(table.as_json(rows))
    else:
        out("\n".join(table.table(rows)))
    done = say if as_json else out
    done(f"wrote {folder}: bench.csv, env.json")
    done(f"next: {then('costs')}   (what each rule costs at other lengths)")

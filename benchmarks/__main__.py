"""``python -m benchmarks``: how fast the laboratory is."""

import json
import shlex
import sys

import click

import benchmarks as benches
from benchmarks import PARTS, rows
from icl_lab.base.files import write
from icl_lab.cli.main import cli, main
from icl_lab.cli.options import PAIRS, device_option, gathered, results_option, threads_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Finite
from icl_lab.execute.progress import say
from icl_lab.execute.where import Where
from icl_lab.runs import environment
from icl_lab.runs.evidence.archive import own_studies

MINUTES = 1440  # a day a recipe and task


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(PARTS)), help="Only this part; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON in place of the table.")
@click.option("--pairs", default=3, show_default=True, type=click.IntRange(1, PAIRS), help="Timed pairs, A B A B ...")
@click.option(
    "--minutes",
    default=0.5,
    show_default=True,
    type=Finite(0, MINUTES, min_open=True),
    help="Part quality: the most training of each recipe on each task.",
)
@results_option
@device_option
@threads_option
@gathered
def bench(only: tuple[str, ...], as_json: bool, pairs: int, minutes: float, where: Where) -> None:
    """Measure how fast this is, as ratios within one run: steps, engines, grids, time to quality, jobs ..."""
    here = where.torch_device()
    folder = own_studies(where.root) / "bench"
    rows_file, about = folder / "bench.csv", folder / "env.json"
    kept = rows.read(rows_file.read_text()) if rows_file.exists() else []
    known = json.loads(about.read_text()) if about.exists() else {}
    found = list[rows.Measurement]()

    def describe(part: str) -> None:
        # Parts that were measured at other times keep their rows, and each its own environment.
        known[f"{part} on {here.type}"] = environment.environment(
            here, shlex.join(["python", "-m", "benchmarks", *sys.argv[2:]])
        )
        write(about, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())

    settings = rows.Bench(here, pairs, minutes, say=say, tick=where.reporter.tick)
    for part in (part for part in PARTS if part in (only or PARTS)):
        if not as_json:
            out(part)
        new: list[rows.Measurement] = []
        for row in benches.measure(part, settings):
            new.append(row)
            if not as_json:
                out(rows.line(row))
            # Kept at once, in the place of the same number of before, with where it was measured: a stop loses nothing.
            write(rows_file, rows.as_csv(rows.merge(kept, new, *rows.KEY)).encode())
            if len(new) == 1:
                describe(part)
        kept = rows.merge(kept, new, "device", "part")
        write(rows_file, rows.as_csv(kept).encode())
        describe(part)
        found += new
    if as_json:
        out(rows.as_json(found))
    done = say if as_json else out
    done(f"wrote {folder}: bench.csv, env.json")


if __name__ == "__main__":
    cli.add_command(bench)
    sys.argv.insert(1, "bench")
    main()

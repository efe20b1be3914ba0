"""The command that shows everything in a results folder as static pages."""

import time
from pathlib import Path

import click

from icl_lab.base.errors import RunFailed
from icl_lab.claims import experiment
from icl_lab.cli.hints import program
from icl_lab.cli.options import experiments_option, gathered, results_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder
from icl_lab.execute.announce import duration
from icl_lab.execute.progress import say
from icl_lab.execute.where import Where
from icl_lab.extras.site import build, cards
from icl_lab.extras.site import place as places


@click.command()
@results_option
@click.option("--out", "place", default=None, type=Folder(), help="Write the pages there.  [default: site]")
@click.option("--evidence/--no-evidence", default=None, help="Whether the repository's runs are shown too.")
@click.option("--force", is_flag=True, help="Write into a folder that holds other things, which stay.")
@experiments_option
@gathered
def site(place: Path | None, where: Where) -> None:
    """Write pages of all that is stored, which open from disk: claims, studies, runs."""
    known = experiment.place(Path(where.experiments))
    target = place or Path("site")
    places.check(target, where.root, where.force)
    began = time.monotonic()
    bar = where.reporter.tick
    store = where.store()
    stock = build.Stock.of(store, known, bar, cards=cards.stored(store, where))
    size = places.write(build.build(stock, bar), target)
    out(
        f"wrote {target}: {stock.runs} runs, {len(stock.studies)} studies, {len(stock.claims.all)} verdicts, "
        f"{size / 2**20:.1f} MB, in {duration(time.monotonic() - began)}"
    )
    if stock.damaged:
        are = "is" if stock.damaged == 1 else "are"
        say(f"{stock.damaged} of them {are} damaged, and listed as such; {program()} verify {where.root}")
    if stock.claims.failed:
        raise RunFailed(stock.claims.why_none)
    out(f"next: open {target / 'index.html'}")

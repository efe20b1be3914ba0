"""Commands about claims of published results: what held."""

from pathlib import Path

import click

import icl_lab as icl
from icl_lab.base.errors import UnknownName
from icl_lab.base.files import write
from icl_lab.claims import files, headlines, ledger
from icl_lab.claims import record as records
from icl_lab.cli.hints import then
from icl_lab.cli.options import experiments_option, gathered, read_option
from icl_lab.cli.output import out
from icl_lab.cli.values import Folder
from icl_lab.execute.where import Where
from icl_lab.runs.presets import PRESETS

READING = "docs/findings.md"  # how verdicts are made


@click.command()
@click.argument("names", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--paper", type=click.Choice(list(ledger.PAPERS)), help="Only those of a paper.")
@click.option("--preset", help="Only at this scale.  [default: the largest that decides a claim]")
@click.option("--all", "all_scales", is_flag=True, help="At every scale at which there are runs.")
@click.option("--long", "whole", is_flag=True, help="With what limits each verdict, and what would decide it.")
@read_option
@experiments_option
@click.option("--record", is_flag=True, help="Judge all claims anew, at all scales, and write the repository's record.")
@gathered
def claims(
    names: tuple[str, ...],
    paper: str | None,
    preset: str | None,
    all_scales: bool,
    whole: bool,
    record: bool,
    where: Where,
) -> None:
    """Print the claims of each experiment and their verdicts; trains nothing.

    Each claim once, at the largest scale that decides it, by paper.
    Verdicts of the repository's runs are read from results/claims.csv; others are judged now.
    In a whole clone --record also writes experiments/registered.csv: since when each claim stands.
    """
    if preset is not None and all_scales:
        raise click.UsageError("--preset names one scale: leave out --all.")
    if preset is not None and preset not in PRESETS:
        raise UnknownName("preset", preset, PRESETS)
    store, place = where.store(), files.place(Path(where.experiments))
    if record:
        for name, text in records.written(place, store, tick=where.reporter.tick).items():
            write(where.root / name, text.encode())
            out(f"wrote {where.root / name}")
        return
    titled = files.titled(place)
    for name in names:
        if name not in titled:
            raise UnknownName("experiment", name, titled)
    papers = {name: ledger.paper_of(experiment.paper) for name, experiment in titled.items()}
    found, remarks = records.everything(place, store, [preset] if preset else list(PRESETS), where.reporter.tick)
    asked = [each for each in found if not names or each.experiment in names]
    asked = [each for each in asked if paper is None or papers[each.experiment] == paper]
    shown = asked if all_scales else ledger.strongest(asked)
    if whole:
        for name in dict.fromkeys(each.experiment for each in shown):
            title, *lines = ledger.lines(titled[name], [each for each in shown if each.experiment == name])
            out("\n".join([f"{name}: {title}", *lines, *remarks.get(name, ())]))
    else:
        for short, group in headlines.by_paper(shown, papers).items():
            out("\n".join([short, "", *ledger.short_table(group), ""]))
    theory = [each for each in shown if each.theory]
    out(f"Below (a ratio below 1, a difference below 0): less error on the left. {ledger.MARKS} More: {READING}")
    out(f"{ledger.tally(each for each in shown if not each.theory)}.")
    if theory:
        out(f"Theory (bounds and identities, no training): {ledger.tally(theory)}.")
    if preset and not (names or paper):
        there = {each.experiment for each in shown}
        if missing := sum(bool(titled[name].claims) for name in titled.keys() - there):
            out(f"Not run at {preset}: {missing} of {len(there) + missing} experiments with claims.")
    used = {spec.partition("->")[0] for each in shown for spec in each.specs}
    if store.recorded(used):  # else nothing says which code made them, and torch need not be loaded
        from icl_lab.execute.announce import changes

        for line in changes(list(store.runs(lambda reason: None, hashes=used))):
            where.reporter.last(line)
    if not whole and shown:
        out(f"next: {then('claims', {'--long': ['True']})}   (what limits each verdict)")


@click.command("paper-report")
@click.argument("paper")
@read_option
@experiments_option
@click.option("--out", "target", type=Folder(), help="Write there.  [default: paper-PAPER in the results folder]")
@gathered
def paper_report(paper: str, target: Path | None, where: Where) -> None:
    """Write one paper's claims as Markdown and LaTeX with a figure; trains nothing.

    PAPER is ssa, ssmax, lssa or poster. Each claim once, at the largest scale that decides it.
    """
    written = icl.paper_report(paper, to=target, where=where)
    out(f"wrote {written.parent}: {', '.join(sorted(path.name for path in written.parent.iterdir()))}")
    out(f"next: open {written}   (or: pdflatex {written.with_suffix('.tex').name} in that folder)")

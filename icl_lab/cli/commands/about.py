"""Commands that say what there is."""

import os
import shutil
import sys
from pathlib import Path

import click

from icl_lab.base.errors import UnknownName
from icl_lab.base.registry import Choice
from icl_lab.base.version import VERSION
from icl_lab.cli import catalogue, citations
from icl_lab.cli.hints import program
from icl_lab.cli.options import results_option
from icl_lab.cli.output import out
from icl_lab.execute.progress import say
from icl_lab.runs import extras


@click.command()
@results_option
def doctor(results: Path) -> None:
    """Report on this machine: versions, device, extras with missing packages, disk."""
    from icl_lab.runs import environment  # and torch, which ``cite`` does without

    device = environment.device("auto")
    out(f"icl-lab   {VERSION}, commit {environment.commit()}")
    out(f"machine   {environment.machine_class()}, Python {sys.version.split()[0]}")
    out(f"device    {environment.describe(device)}")
    for name, version in environment.versions().items():
        out(f"package   {name} {version}")
    folder = results if results.exists() else Path()
    writable = "writable" if os.access(folder, os.W_OK) else "NOT writable"
    out(f"disk      {shutil.disk_usage(folder).free / 2**30:.1f} GiB free, results {writable}")
    for extra, needs in extras.requirements().items():
        lacking, purpose = extras.missing(needs), extras.PURPOSES.get(extra, "").replace("`", "")
        state = f"missing {', '.join(lacking)}: pip install 'icl_lab[{extra}]'" if lacking else "there"
        out(f"extra     {extra}: {state} (for {purpose})" if purpose else f"extra     {extra}: {state}")
    out(f"browser   {shutil.which('chromium') or 'no chromium: the browser tests will be skipped'}")


@click.command()
@click.argument("names", nargs=-1, metavar="[RULE|TASK]...")
def cite(names: tuple[str, ...]) -> None:
    """Print the papers of normalizers and tasks as BibTeX; without a name, icl_lab's own entry."""
    there = {entry.name: entry.paper for what in ("normalizers", "tasks") for entry in catalogue.entries(what)}
    chosen = [Choice.parse(part).name for name in names for part in name.split("+")]
    for name in chosen:
        if name not in there:
            raise UnknownName("normalizer or task", name, there)
    if not chosen:
        out(citations.ITSELF % VERSION)
        return
    papers = citations.of(there[name] for name in chosen)
    for paper in papers:
        out(paper.bibtex)
    if not papers:
        say(f"{', '.join(chosen)}: no paper with an arXiv number is named; see {program()} list normalizers.")

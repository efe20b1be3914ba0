"""Commands that say what there is."""

import os
import sys
from pathlib import Path

import click

from icl_lab import __version__
from icl_lab.cli.options import say


@click.command("list")
@click.argument("what", type=click.Choice(["tasks", "normalizers", "positions", "presets", "runs", "experiments"]))
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--experiments", "files", default="experiments", type=click.Path(path_type=Path), help="Folder of files.")
def list_(what: str, results: Path, files: Path) -> None:
    """Say what there is: tasks, normalizers, positions, presets, runs or experiments."""
    from icl_lab.cli import index
    from icl_lab.papers import claims, experiment
    from icl_lab.runs.store import Store

    if what == "experiments":
        for name in experiment.names(files):
            for line in claims.card(name, experiment.load(name, files), Store(results)):
                click.echo(line)
        return

    if what == "runs":
        for run in Store(results).runs():
            state = "finished" if run.finished else "trained" if run.trained else "begun"
            click.echo(f"{run.spec.task:28} {run.spec.attn:28} {run.folder.parent.name:16} seed {run.seed}  {state}")
        return
    for line in index.listing(what):
        click.echo(line)
    for line in dict.fromkeys(line for registry in index.KINDS.get(what, []) for line in registry.broken()):
        say(line)


@click.command("index")
@click.option("--check", is_flag=True, help="Only say whether the README is in step; exit 1 if not.")
@click.option("--readme", default="README.md", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def index_(check: bool, readme: Path) -> None:
    """Write the README's tables of tasks, normalizers and presets from the docstrings."""
    from icl_lab.cli import index
    from icl_lab.files import publish

    old = readme.read_text()
    new = index.fill(old)
    if old == new:
        click.echo(f"{readme} is in step.")
    elif check:
        raise click.ClickException(f"{readme} is out of step; run: make index")
    else:
        publish(readme, new.encode())
        click.echo(f"wrote {readme}")


@click.command()
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
def doctor(results: Path) -> None:
    """Say what this machine offers: versions, device, threads, disk, browser, results folder."""
    import shutil

    from icl_lab.runs import environment

    device = environment.device("auto")
    click.echo(f"icl-lab   {__version__}, commit {environment.commit()}")
    click.echo(f"machine   {environment.machine_class()}, Python {sys.version.split()[0]}")
    click.echo(f"device    {environment.describe(device)}")
    for name, version in environment.versions().items():
        click.echo(f"package   {name} {version}")
    place = results if results.exists() else Path()
    writable = "writable" if os.access(place, os.W_OK) else "NOT writable"
    click.echo(f"disk      {shutil.disk_usage(place).free / 2**30:.1f} GiB free, results {writable}")
    click.echo(f"browser   {shutil.which('chromium') or 'no chromium: the browser tests will be skipped'}")

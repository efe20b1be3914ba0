"""The command line. Heavy imports stand inside the commands, so that ``--help`` answers at once."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from icl_lab import __version__
from icl_lab.console import (
    PREEMPTED,
    Bar,
    catch_signals,
    caught,
    crowd_options,
    numbers,
    run_options,
    say,
    typed,
    where_options,
    write,
)
from icl_lab.errors import BadValue, LabError, Stopped
from icl_lab.runs import Order, announce, complete, draw_history, finish, laboratory, settle, show


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="icl-lab")
def cli() -> None:
    r"""Which attention normalizer generalises, where, and by how much?

    \b
    icl-lab sweep --task linear --attn ssa      train, then test under distribution shift
    icl-lab list normalizers                    what can stand in place of softmax
    """


def main() -> None:
    """Runs the command line, and turns complaints into one line and an exit code (0, 1, 2, 75 or 130)."""
    try:
        cli.main(standalone_mode=False)
    except LabError as error:
        click.echo(f"icl-lab: {error}", err=True)
        preempted = isinstance(error, Stopped) and signal.SIGINT not in caught
        sys.exit(PREEMPTED if preempted else error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("icl-lab: stopped.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


@cli.command()
@run_options
@crowd_options
@click.option("--swap", default="", metavar="RULE", help="Test the trained model with another rule, e.g. ssmax:s=swap.")
def sweep(task: str, attns: tuple[str, ...], seeds: int, swap: str, **where: Any) -> None:
    """Train a model for each normalizer and seed, and test it over every shift."""
    from icl_lab import normalizers

    order = Order.of(where)
    runs, lab = settle(task, attns, seeds, swap=swap, **where)
    swap = normalizers.settle(swap) if swap else ""
    complete(runs, lab, order, swap=swap, after=lambda run, already: show(run, already, swap))


@cli.command()
@run_options
@crowd_options
@click.option("--baseline", default="softmax", show_default=True, help="What the others are compared with.")
@click.option("--name", default="", help="Folder of the study in the results folder.  [default: task and preset]")
def compare(task: str, attns: tuple[str, ...], seeds: int, baseline: str, name: str, **where: Any) -> None:
    """Compare normalizers, paired over training seeds; trains what is missing."""
    from icl_lab import normalizers
    from icl_lab.names import filename
    from icl_lab.studies import by_rule, gather, publish

    order = Order.of(where)
    runs, lab = settle(task, attns, seeds, **where)
    if len(attns) < 2:
        raise click.UsageError("a comparison needs at least two normalizers: give --attn again.")
    if normalizers.settle(baseline) not in {run.spec.attn for run in runs}:
        # Said before anything is trained for it.
        raise BadValue(f"The baseline '{baseline}' is not among {', '.join(attns)}.")
    if not complete(runs, lab, order):
        return
    study, spec = gather(by_rule(runs), normalizers.settle(baseline)), runs[0].spec
    folder = lab.store.root / (name or f"{filename(spec.task)}-{spec.preset}")
    text, files = publish(study, runs, folder, lab.command)
    click.echo(text)
    click.echo(f"wrote {folder}: {', '.join(files)}")
    click.echo(f"next: open {folder / 'report.html'}, or more seeds for surer answers: --seeds {study.seeds + 2}")


@cli.command()
@run_options
@crowd_options
@click.option("--position", default="0", show_default=True, help="Index of the deviant example, or several: 0,5.")
@click.option("--factors", default="", help="What it is multiplied by, e.g. 1,10,100.  [default: the task's own]")
@click.option("--prompts", default=1024, show_default=True, type=click.IntRange(min=2), help="Test prompts.")
def deviant(
    task: str, attns: tuple[str, ...], seeds: int, position: str, factors: str, prompts: int, **where: Any
) -> None:
    """Multiply one number of the prompt and see how far the answers after it go wrong; trains what is missing."""
    from icl_lab import deviants
    from icl_lab.names import filename
    from icl_lab.studies import by_rule

    at = [int(index) for index in numbers(position, "--position")]
    stretches = numbers(factors, "--factors") if factors else []
    order = Order.of(where)
    runs, lab = settle(task, attns, seeds, **where)
    deviants.check(runs[0].spec, at)
    if not complete(runs, lab, order):
        return
    found = deviants.disturb(by_rule(runs), lab, at, stretches, prompts)
    spec = runs[0].spec
    place = "" if at == [0] else f"-at-{position.replace(' ', '')}"
    folder = lab.store.root / f"deviant-{filename(spec.task)}-{spec.preset}{place}"
    text, files = deviants.publish(found, spec, folder, lab.command)
    click.echo(text)
    click.echo(f"wrote {folder}: {', '.join(files)}")
    click.echo(f"next: open {folder / 'deviant.png'}")


@cli.command()
@click.argument("name")
@where_options
@crowd_options
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(min=1), help="Seeds 0 to N-1.")
@click.option("--overlay", is_flag=True, help="Show rows of doubtful columns a second time, moved, and say so.")
@click.option("--experiments", "files", default="experiments", type=click.Path(path_type=Path), help="Folder of files.")
@click.option("--force", is_flag=True, help="Repeat runs that are finished.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
def experiment(
    name: str,
    preset: str,
    settings: tuple[str, ...],
    results: Path,
    device: str,
    threads: int | None,
    seeds: int,
    overlay: bool,
    files: Path,
    **order: Any,
) -> None:
    """Do a published table or figure again: train what is missing, and write ours beside the printed numbers."""
    from icl_lab import experiments, ledger

    chosen = experiments.load(name, files)
    lab = laboratory(results, device, threads)
    groups = ledger.groups(chosen, lab.store, preset, seeds, settings)
    runs = [run for group in groups.values() for run in group]
    if not complete(runs, lab, Order.of(order)):
        return
    folder = ledger.folder(name, lab.store, preset)
    text, written = ledger.publish(chosen, groups, lab, preset, folder, overlay, settings)
    click.echo(text)
    click.echo(f"wrote {folder}: {', '.join(written)}")
    click.echo("next: icl-lab claims   (what held and what did not, over all experiments)")


@cli.command()
@click.option("--preset", default="lite", show_default=True, help="The scale at which to judge.")
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--experiments", "files", default="experiments", type=click.Path(path_type=Path), help="Folder of files.")
def claims(preset: str, results: Path, files: Path) -> None:
    """Print what each experiment claims and what was seen at this scale, from finished results; trains nothing."""
    from icl_lab import experiments, ledger
    from icl_lab.store import Store

    store = Store(results)
    for name in experiments.names(files):
        chosen = experiments.load(name, files)
        found = ledger.findings(chosen, store, preset, ledger.folder(name, store, preset))
        for line in ledger.text(name, chosen, found):
            click.echo(line)


@cli.command(hidden=True)
def work() -> None:
    """Do one run as a worker: orders on standard input, progress on standard output."""
    import json

    import msgspec
    import torch

    from icl_lab import machine
    from icl_lab.spec import RunSpec
    from icl_lab.store import Store
    from icl_lab.sweep import Lab

    orders = json.loads(sys.stdin.readline())
    torch.set_num_threads(orders["threads"])
    spec = msgspec.convert(orders["spec"], RunSpec)
    asked = catch_signals()
    orphaned: list[bool] = []

    def tick(stage: str, done: int, total: int, note: str) -> None:
        try:
            print(json.dumps({"step": done if stage == "train" else spec.train.steps}), flush=True)
        except BrokenPipeError:
            # The supervisor is gone: keep what there is, and stop as if asked to.
            orphaned.append(True)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123

    lab = Lab(
        Store(Path(orders["results"])),
        machine.device(orders["device"]),
        say,
        tick,
        lambda: bool(asked() or orphaned),
        orders["command"],
    )
    finish(lab.store.run(spec, orders["seed"]), lab)


@cli.command()
@run_options
def train(task: str, attns: tuple[str, ...], seeds: int, force: bool, dry_run: bool, **where: Any) -> None:
    """Train only: what sweep does before it tests."""
    from icl_lab.sweep import trained

    runs, lab = settle(task, attns, seeds, **where)
    for run in runs:
        announce(run, lab, dry_run=dry_run)
        if dry_run:
            continue
        with run.alone(lab.say, lab.stopping):
            if force:
                run.clear()
            already = run.trained
            trained(run, lab)
        draw_history(run)
        last = run.history()[-1]
        click.echo(
            f"{'was trained already' if already else 'trained'}: loss {last['loss']:.4g} at step {last['step']:.0f}"
        )
        click.echo(f"wrote {run.folder / 'model.safetensors'}, history.csv, learning-curve.png")
        click.echo(f"next: icl-lab sweep --task {run.spec.task} --attn {run.spec.attn} --preset {run.spec.preset}")


@cli.command("list")
@click.argument("what", type=click.Choice(["tasks", "normalizers", "positions", "presets", "runs", "experiments"]))
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--experiments", "files", default="experiments", type=click.Path(path_type=Path), help="Folder of files.")
def list_(what: str, results: Path, files: Path) -> None:
    """Say what there is: tasks, normalizers, positions, presets, runs or experiments."""
    from icl_lab import experiments, index, ledger
    from icl_lab.store import Store

    if what == "experiments":
        for name in experiments.names(files):
            for line in ledger.card(name, experiments.load(name, files), Store(results)):
                click.echo(line)
        return

    if what == "runs":
        for run in Store(results).runs():
            state = "finished" if run.finished else "trained" if run.trained else "begun"
            click.echo(f"{run.spec.task:28} {run.spec.attn:28} {run.folder.parent.name:16} seed {run.seed}  {state}")
        return
    for line in index.listing(what):
        click.echo(line)


@cli.command("index")
@click.option("--check", is_flag=True, help="Only say whether the README is in step; exit 1 if not.")
@click.option("--readme", default="README.md", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def index_(check: bool, readme: Path) -> None:
    """Write the README's tables of tasks, normalizers and presets from the docstrings."""
    from icl_lab import index
    from icl_lab.store import publish

    old = readme.read_text()
    new = index.fill(old)
    if old == new:
        click.echo(f"{readme} is in step.")
    elif check:
        raise click.ClickException(f"{readme} is out of step; run: make index")
    else:
        publish(readme, new.encode())
        click.echo(f"wrote {readme}")


@cli.command()
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
def functions(results: Path) -> None:
    """Draw what each normalizer does to scores, without training: who fades, and who concentrates."""
    from icl_lab.analyses import FAMILIES
    from icl_lab.analyses import functions as analysis
    from icl_lab.figures import rules
    from icl_lab.figures.base import encode

    folder = results / "functions"
    grids = dict(analysis.everything())
    for name, grid in grids.items():
        write(folder / f"{name}.csv", grid.csv().encode())
    for name, figure in rules.functions(grids, FAMILIES):
        for kind in ("png", "svg"):
            write(folder / f"{name}.{kind}", encode(figure, kind))
        click.echo(f"figure: {folder / name}.png")
    click.echo(f"wrote {folder}: {', '.join(grids)} as CSV, and the figures as PNG and SVG")
    click.echo("next: icl-lab costs   (what each rule costs in time and memory)")


@cli.command()
@click.option("--lengths", default="256,512,1024,2048,4096", show_default=True, help="Tokens of a prompt.")
@click.option("--attn", "attns", multiple=True, help="Only this normalizer; may be given again.  [default: all]")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(min=1), help="Timed pairs with softmax.")
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 or mps.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: all cores]")
def costs(lengths: str, attns: tuple[str, ...], pairs: int, results: Path, device: str, threads: int | None) -> None:
    """Count operations as the poster does, and measure time and memory of each normalizer beside softmax."""
    import json

    import torch

    from icl_lab import machine
    from icl_lab.analyses import costs as analysis
    from icl_lab.figures import rules
    from icl_lab.figures.base import encode

    if not all(word.strip().isdigit() and int(word) > 0 for word in lengths.split(",")):
        raise click.BadParameter(
            f"'{lengths}' is not a list of whole numbers such as 256,1024.", param_hint="--lengths"
        )
    if threads is not None:
        torch.set_num_threads(threads)
    here = machine.device(device)
    folder = results / "costs"
    counted = analysis.operations()
    measured = analysis.measure(
        [int(word) for word in lengths.split(",")], attns or None, pairs=pairs, device=here, tick=Bar()
    )
    printed = analysis.printed_times()
    for line in (*analysis.counts(counted), "", "printed by the poster:", *analysis.table(printed), "", "here:"):
        click.echo(line)
    for line in analysis.table(measured):
        click.echo(line)
    write(folder / "poster-times.csv", printed.csv().encode())
    write(folder / "operations.csv", counted.csv().encode())
    write(folder / "measured.csv", measured.csv().encode())
    write(
        folder / "env.json", (json.dumps(machine.environment(here, typed()), indent=1, sort_keys=True) + "\n").encode()
    )
    for kind in ("png", "svg"):
        write(folder / f"measured.{kind}", encode(rules.costs(measured), kind))
    click.echo(f"wrote {folder}: operations.csv, poster-times.csv, measured.csv, measured.png, measured.svg, env.json")
    click.echo("next: icl-lab functions   (what each rule does to scores)")


@cli.command()
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
def doctor(results: Path) -> None:
    """Say what this machine offers: versions, device, threads, disk, browser, results folder."""
    import shutil

    from icl_lab import machine

    device = machine.device("auto")
    click.echo(f"icl-lab   {__version__}, commit {machine.commit()}")
    click.echo(f"machine   {machine.machine_class()}, Python {sys.version.split()[0]}")
    click.echo(f"device    {machine.describe(device)}")
    for name, version in machine.versions().items():
        click.echo(f"package   {name} {version}")
    place = results if results.exists() else Path()
    writable = "writable" if os.access(place, os.W_OK) else "NOT writable"
    click.echo(f"disk      {shutil.disk_usage(place).free / 2**30:.1f} GiB free, results {writable}")
    click.echo(f"browser   {shutil.which('chromium') or 'no chromium: the browser tests will be skipped'}")

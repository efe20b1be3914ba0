"""The command line. Heavy imports stand inside the commands, so that ``--help`` answers at once."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from icl_lab import __version__
from icl_lab.errors import LabError, Stopped

if TYPE_CHECKING:
    from icl_lab.store import Run
    from icl_lab.sweep import Lab

Command = TypeVar("Command", bound=Callable[..., Any])
PREEMPTED = 75  # stopped at a checkpoint by a scheduler: run the same command again
_caught: list[int] = []  # the signals that asked this process to stop


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
        preempted = isinstance(error, Stopped) and signal.SIGINT not in _caught
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


def where_options(command: Command) -> Command:
    """Adds the options of every command that trains or reads runs."""
    for option in reversed(
        [
            click.option("--preset", default="lite", show_default=True, help="Size of model, training and test grid."),
            click.option(
                "--set", "settings", multiple=True, metavar="A.B=V", help="Change a field, e.g. train.steps=2000."
            ),
            click.option(
                "--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder."
            ),
            click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 or mps."),
            click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: all cores]"),
        ]
    ):
        command = option(command)
    return command


def run_options(command: Command) -> Command:
    """Adds the options that name runs."""
    for option in reversed(
        [
            click.option("--task", required=True, help="See: icl-lab list tasks."),
            click.option("--attn", "attns", required=True, multiple=True, help="Normalizer; may be given again."),
            click.option("--seeds", default=1, show_default=True, type=click.IntRange(min=1), help="Seeds 0 to N-1."),
            click.option("--force", is_flag=True, help="Repeat runs that are finished."),
            click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing."),
        ]
    ):
        command = option(command)
    return where_options(command)


@cli.command()
@run_options
@click.option(
    "--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Runs at once; threads are divided."
)
@click.option("--swap", default="", metavar="RULE", help="Test the trained model with another rule, e.g. ssmax:s=swap.")
def sweep(
    task: str, attns: tuple[str, ...], seeds: int, force: bool, dry_run: bool, jobs: int, swap: str, **where: Any
) -> None:
    """Train a model for each normalizer and seed, and test it over every shift."""
    runs, lab = _runs(task, attns, seeds, swap=swap, **where)
    if force and not dry_run:
        for run in runs:
            with run.alone(lab.say):
                run.clear()
    if jobs > 1 and not dry_run:
        _at_once(runs, lab, jobs)
    for run in runs:
        _announce(run, lab, dry_run)
        if not dry_run:
            already = _finish(run, lab)
            if swap:
                already = _finish(run, lab, swap)
            _show(run, already, swap)


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
    asked = _catch_signals()
    orphaned: list[bool] = []

    def tick(stage: str, done: int, total: int, note: str) -> None:
        try:
            print(json.dumps({"step": done if stage == "train" else spec.train.steps}), flush=True)
        except BrokenPipeError:
            # The supervisor is gone: keep what there is, and stop as if asked to.
            orphaned.append(True)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123

    lab = Lab(
        Store(Path(orders["results"])), machine.device(orders["device"]), _say, tick, lambda: bool(asked() or orphaned)
    )
    _finish(lab.store.run(spec, orders["seed"]), lab)


@cli.command()
@run_options
def train(task: str, attns: tuple[str, ...], seeds: int, force: bool, dry_run: bool, **where: Any) -> None:
    """Train only: what sweep does before it tests."""
    from icl_lab.sweep import trained

    runs, lab = _runs(task, attns, seeds, **where)
    for run in runs:
        _announce(run, lab, dry_run)
        if dry_run:
            continue
        with run.alone(lab.say):
            if force:
                run.clear()
            already = run.trained
            trained(run, lab)
        _draw_history(run)
        last = run.history()[-1]
        click.echo(
            f"{'was trained already' if already else 'trained'}: loss {last['loss']:.4g} at step {last['step']:.0f}"
        )
        click.echo(f"wrote {run.folder / 'model.safetensors'}, history.csv, learning-curve.png")
        click.echo(f"next: icl-lab sweep --task {run.spec.task} --attn {run.spec.attn} --preset {run.spec.preset}")


@cli.command("list")
@click.argument("what", type=click.Choice(["tasks", "normalizers", "positions", "presets", "runs"]))
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Folder.")
def list_(what: str, results: Path) -> None:
    """Say what there is: tasks, normalizers, positions, presets or runs."""
    from icl_lab import index
    from icl_lab.store import Store

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
    from icl_lab import figures
    from icl_lab.analyses import FAMILIES
    from icl_lab.analyses import functions as analysis

    folder = results / "functions"
    grids = dict(analysis.everything())
    for name, grid in grids.items():
        _write(folder / f"{name}.csv", grid.csv().encode())
    for name, figure in figures.functions(grids, FAMILIES):
        for kind in ("png", "svg"):
            _write(folder / f"{name}.{kind}", figures.encode(figure, kind))
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

    from icl_lab import figures, machine
    from icl_lab.analyses import costs as analysis

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
        [int(word) for word in lengths.split(",")], attns or None, pairs=pairs, device=here, tick=_Bar()
    )
    for line in (*analysis.counts(counted), "", *analysis.table(measured)):
        click.echo(line)
    _write(folder / "operations.csv", counted.csv().encode())
    _write(folder / "measured.csv", measured.csv().encode())
    _write(folder / "env.json", (json.dumps(machine.environment(here), indent=1, sort_keys=True) + "\n").encode())
    for kind in ("png", "svg"):
        _write(folder / f"measured.{kind}", figures.encode(figures.costs(measured), kind))
    click.echo(f"wrote {folder}: operations.csv, measured.csv, measured.png, measured.svg, env.json")
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


def _runs(
    task: str,
    attns: Sequence[str],
    seeds: int,
    preset: str,
    settings: Sequence[str],
    results: Path,
    device: str,
    threads: int | None,
    swap: str = "",
) -> tuple[list["Run"], "Lab"]:
    """Resolves and checks every run before the first begins."""
    import torch

    from icl_lab import machine
    from icl_lab.spec import resolve
    from icl_lab.store import Store
    from icl_lab.sweep import Lab

    if threads is not None:
        torch.set_num_threads(threads)
    if swap:
        resolve(task, swap, preset, settings)  # the other rule must fit the model as well
    specs = {spec.hash: spec for spec in (resolve(task, attn, preset, settings) for attn in attns)}
    store = Store(results)
    lab = Lab(store, machine.device(device), say=_say, tick=_Bar(), stopping=_catch_signals())
    return [store.run(spec, seed) for spec in specs.values() for seed in range(seeds)], lab


def _finish(run: "Run", lab: "Lab", swap: str = "") -> bool:
    """Makes sure that a run, or its evaluation with another rule, is finished and drawn; returns whether it was."""
    from icl_lab.normalizers import settle
    from icl_lab.sweep import sweep

    swap = settle(swap) if swap else ""
    already = run.measured(swap)
    sweep(run.spec, run.seed, lab, swap)
    if not already:
        _draw(run, swap)
    return already


def _at_once(runs: Sequence["Run"], lab: "Lab", jobs: int) -> None:
    """Does the unfinished runs in worker processes; raises ``LabError`` unless all are finished."""
    import msgspec
    import torch

    from icl_lab.errors import RunFailed
    from icl_lab.jobs import Job, supervise

    todo = [run for run in runs if not run.finished]
    threads = max(1, torch.get_num_threads() // jobs)
    orders = {"results": str(lab.store.root), "device": str(lab.device), "threads": threads}
    size = {run.folder: run.spec.train.steps for run in todo}
    done = len(runs) - len(todo)
    _say(f"{done} of {len(runs)} runs are finished; {len(todo)} to do, {jobs} at once with {threads} threads each")
    outcomes = supervise(
        [
            Job(
                f"{run.spec.attn} seed {run.seed}",
                {**orders, "spec": msgspec.to_builtins(run.spec), "seed": run.seed},
                size[run.folder],
            )
            for run in todo
        ],
        [sys.executable, "-m", "icl_lab", "work"],
        jobs,
        stopping=lab.stopping,
        tick=lambda done, total, note: lab.tick("runs", done, total, note),
    )
    for outcome in outcomes:
        if outcome.state != "done":
            _say(f"{outcome.state}: {outcome.job.name} ({outcome.reason})")
    states = [outcome.state for outcome in outcomes]
    if "stopped" in states:
        raise Stopped("stopped; the same command goes on where each run stands.")
    if "failed" in states:
        raise RunFailed(f"{states.count('failed')} of {len(states)} runs failed, see above; the others are finished.")


def _announce(run: "Run", lab: "Lab", dry_run: bool) -> None:
    """The first line: what, on what, and how long it will take."""
    from icl_lab import machine
    from icl_lab.sweep import estimate

    spec = run.spec
    what = f"{spec.task} | {spec.attn} | {spec.preset} | seed {run.seed} on {machine.describe(lab.device)}"
    if run.finished:
        state = "finished already"
    else:
        seconds, parameters = estimate(spec, lab.device)
        state = f"{parameters:,} parameters, {spec.train.steps:,} steps, about {_duration(seconds)}"
    _say(f"{what}: {state}{' (dry run)' if dry_run else ''}")
    if dry_run:
        click.echo(f"{'done' if run.finished else 'to do'}  {run.folder}")


def _show(run: "Run", already: bool, swap: str = "") -> None:
    """The last lines: the grid in brief, the error in training conditions beside the references, and the paths."""
    from icl_lab import report, tasks
    from icl_lab.normalizers import settle

    swap = settle(swap) if swap else ""
    place = run.place(swap)
    click.echo(report.brief(run.grid(swap), tasks.build(run.spec.task), run.spec))
    click.echo(f"{'there already' if already else 'wrote'}: {place / 'grid.csv'}")
    click.echo(f"heat map: {place / 'heat-map.png'}")
    other = "ssa" if run.spec.attn == "softmax" else "softmax"
    repeat = "   (--force repeats this one)" if already else ""
    click.echo(f"next: icl-lab sweep --task {run.spec.task} --attn {other} --preset {run.spec.preset}{repeat}")


def _draw(run: "Run", swap: str = "") -> None:
    from icl_lab import figures, report, tasks
    from icl_lab.store import publish

    figure = report.heat_map(run.grid(swap), tasks.build(run.spec.task), run.spec)
    for kind in ("png", "svg"):
        publish(run.place(swap) / f"heat-map.{kind}", figures.encode(figure, kind))
    if not swap:
        _draw_history(run)


def _draw_history(run: "Run") -> None:
    from icl_lab import figures
    from icl_lab.store import publish

    title = f"{run.spec.task}, {run.spec.attn}, {run.spec.preset}, seed {run.seed}"
    figure = figures.learning_curve({run.spec.attn: run.history()}, title=title, label="training loss")
    publish(run.folder / "learning-curve.png", figures.encode(figure, "png"))


def _write(path: Path, data: bytes) -> None:
    from icl_lab.errors import RunFailed
    from icl_lab.store import publish

    try:
        publish(path, data)
    except OSError as error:
        raise RunFailed(f"{path} cannot be written: {error.strerror or error}.") from error


def _say(text: str) -> None:
    click.echo(text, err=True)


class _Bar:
    """One progress bar a stage, on standard error; without a terminal a line now and then instead."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        from tqdm import tqdm

        if stage != self._stage:
            quiet = not sys.stderr.isatty()
            # mininterval: a log file wants a line a minute, not ten a second.
            self._bar = tqdm(
                total=total, initial=0, desc=stage, file=sys.stderr, mininterval=60 if quiet else 0.1, leave=not quiet
            )
            self._stage = stage
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.close()
            self._stage = ""


def _catch_signals() -> Callable[[], bool]:
    """Turns the first Ctrl-C or termination into a stop at the next step; the second acts at once."""
    _caught.clear()

    def catch(number: int, frame: object) -> None:
        _caught.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        click.echo("\nstopping after this step; once more stops at once.", err=True)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, catch)
    return lambda: bool(_caught)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return (
        f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
        if seconds < 172_800
        else f"{seconds / 86_400:.0f} days"
    )

"""What the command line shares: options, signals, the progress bar. The door to tqdm."""

import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
PREEMPTED = 75  # stopped at a checkpoint by a scheduler: run the same command again
caught: list[int] = []  # the signals that asked this process to stop


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


def crowd_options(command: Command) -> Command:
    """Adds the options of commands that may do many runs: at once here, as one, or one part of them here."""
    jobs = click.option(
        "--jobs",
        default=1,
        show_default=True,
        type=click.IntRange(min=1),
        help="Runs at once; threads are divided.",
    )
    stack = click.option(
        "--stack", is_flag=True, help="Train the seeds of a normalizer as one stack: for a GPU; a CPU gains nothing."
    )
    shard = click.option(
        "--shard", default="1/1", metavar="I/N", callback=_shard, help="Only part I of N of the runs, for job arrays."
    )
    return jobs(stack(shard(command)))


def _shard(context: click.Context, option: click.Parameter, text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not (slash and part.isdigit() and parts.isdigit() and 0 <= int(part) <= int(parts) != 0):
        raise click.BadParameter(f"'{text}' is not part I of N, such as 1/4 (0/4 and 4/4 are the same part).")
    return int(part), int(parts)


def run_options(command: Command) -> Command:
    """Adds the options that name runs."""
    for option in reversed(
        [
            click.option("--task", required=True, help="See: icl-lab list tasks."),
            click.option("--attn", "attns", required=True, multiple=True, help="Normalizer; may be given again."),
            click.option("--seeds", default=1, show_default=True, type=click.IntRange(min=1), help="Seeds 0 to N-1."),
            click.option(
                "--draws", type=click.Choice(["ours", "paper"]), default="ours", help="paper: the published test set."
            ),
            click.option("--force", is_flag=True, help="Repeat runs that are finished."),
            click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing."),
        ]
    ):
        command = option(command)
    return where_options(command)


def model_options(command: Command) -> Command:
    """Adds the options that name trained models: by task and rule, or by the folder of a run."""
    for option in reversed(
        [
            click.option("--run", "places", multiple=True, type=click.Path(path_type=Path), help="Folder of a run."),
            click.option("--task", default="", help="See: icl-lab list tasks."),
            click.option("--attn", "attns", multiple=True, help="Normalizer; may be given again."),
            click.option("--seeds", default=1, show_default=True, type=click.IntRange(min=1), help="Seeds 0 to N-1."),
        ]
    ):
        command = option(command)
    return where_options(command)


def wholes(text: str, option: str, least: int = 1) -> list[int]:
    """Reads a list of whole numbers such as ``64,128``; none from an empty text."""
    if not all(word.strip().isdecimal() and int(word) >= least for word in text.split(",") if text):
        raise click.BadParameter(f"'{text}' is not a list of whole numbers such as 256,1024.", param_hint=option)
    return [int(word) for word in text.split(",") if text]


def numbers(text: str, option: str) -> list[float]:
    """Reads a list of numbers such as ``1,10,100``."""
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"'{text}' is not a list of numbers such as 1,10,100.", param_hint=option) from None


def typed() -> str:
    """Returns the command line as it was typed."""
    return shlex.join(["icl-lab", *sys.argv[1:]])


def say(text: str) -> None:
    """Tells whoever waits: to standard error, because standard output is for data."""
    click.echo(text, err=True)


class Bar:
    """One progress bar a stage, on standard error; without a terminal a line now and then instead."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        """Shows that ``done`` of ``total`` steps of a stage are done."""
        from tqdm import tqdm

        if stage != self._stage:
            quiet = not sys.stderr.isatty()
            # mininterval: a log file wants a line a minute, not ten a second.
            self._bar = tqdm(
                total=total,
                initial=done,
                desc=stage,
                file=sys.stderr,
                mininterval=60 if quiet else 0.1,
                leave=not quiet,
            )
            self._stage = stage
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.close()
            self._stage = ""


def catch_signals() -> Callable[[], bool]:
    """Turns the first Ctrl-C or termination into a stop at the next step; the second acts at once."""
    caught.clear()

    def catch(number: int, frame: object) -> None:
        caught.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        click.echo("\nstopping after this step; once more stops at once.", err=True)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, catch)
    return lambda: bool(caught)


def duration(seconds: float) -> str:
    """Returns a time as one says it: 40 s, 4 min, 2.5 h, 3 days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def tell(text: str, folder: Path, files: Sequence[str], picture: str) -> None:
    """Prints what was found, where it was written, and what to open next."""
    click.echo(text)
    click.echo(f"wrote {folder}: {', '.join(files)}")
    click.echo(f"next: open {folder / picture}")

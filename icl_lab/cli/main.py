"""The command line. Commands are imported when they are called, so that ``--help`` answers at once."""

import io
import os
import signal
import sys
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from icl_lab.base import outside
from icl_lab.base.errors import LabError, Stopped, brief, first_line
from icl_lab.base.version import VERSION, commit
from icl_lab.cli import hints, menu
from icl_lab.cli.deferred import Deferred
from icl_lab.cli.imports import HELP_IMPORT, DeferredAnalysis, Menu, named
from icl_lab.cli.signals import PREEMPTED, caught

HELP = """Which attention normalizer generalises, where, and by how much?

\b
icl-lab sweep --task linear --attn ssa      train, then test under distribution shift
icl-lab list normalizers                    what can stand in place of softmax
"""


# Variables by which a user has decided how threads wait.
THREADS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")
LOADS = Path("/proc/loadavg")  # Linux
BUSY = 0.5  # processes at work, the mean of a minute


def version(context: click.Context, option: click.Parameter, given: bool) -> None:
    """Say version and commit, and end."""
    if given:
        click.echo(f"icl-lab, version {VERSION}, commit {commit()}")
        context.exit()


@click.group(cls=Menu, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=version, help="Say version and commit."
)
@click.option("--import", expose_value=False, multiple=True, metavar="MODULE|FILE.py", help=HELP_IMPORT)
def cli() -> None:
    """The group of all commands."""


def command_of(entry: menu.Command) -> click.Command:
    """Import a command of the folder ``commands``."""
    command: click.Command = getattr(import_module(f"icl_lab.cli.commands.{entry.module}"), entry.part)
    return command


for built_in in menu.commands():
    cli.add_command(Deferred(built_in.name, built_in.help, partial(command_of, built_in)))
for built_in in menu.analyses():
    cli.add_command(DeferredAnalysis(built_in.name, built_in.help))


def out_of_memory(error: Exception) -> bool:
    """True if an error says that no memory is left: Python's own, or torch's for a processor or a GPU."""
    return isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error)


def settle_streams() -> None:
    """Let standard output and error take every text: closed ones lose it, and what ASCII lacks is written as escapes.

    A closed one is opened on the null device, also lest a file of results gets its number.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def wait_asleep(loads: Path = LOADS) -> None:
    """Let the threads of torch sleep while they wait for each other, where other processes are at work.

    By default they spin, and take the very core that the thread they wait for is to run on: with other processes at
    work a first sweep took two to six times as long (docs/speed.md). On a free machine sleep costs up to a quarter, so
    there all stays as it is, as elsewhere than on Linux. It must be set before torch is imported, and changes no bit.
    """
    if not loads.exists() or any(name in os.environ for name in THREADS):
        return
    minute, _, _, running, _ = loads.read_text().split()
    # The mean of a minute may be that of a command that has ended; this process is one of those that run now.
    if float(minute) >= BUSY and int(running.partition("/")[0]) > 1:
        os.environ["OMP_WAIT_POLICY"] = "passive"


def warning_line(message: Warning | str, *place: Any, **line: Any) -> str:
    """Return a warning as it is shown: without the place in the code where it was given."""
    return f"icl-lab: {brief(str(message))}\n"


def main() -> None:
    """Run the command line, and turn complaints into one line and an exit code (0, 1, 2, 75 or 130)."""
    settle_streams()
    wait_asleep()
    warnings.formatwarning = warning_line
    try:
        words, imports = named(sys.argv[1:])
        for given in imports:
            outside.load(given)
        cli.check()
        cli.main(args=words, standalone_mode=False)
    except LabError as error:
        named_program = str(error).replace("icl-lab ", f"{hints.program()} ")  # in commands that it says to type
        click.echo(brief(f"icl-lab: {named_program}"), err=True)
        preempted = isinstance(error, Stopped) and signal.SIGINT not in caught
        sys.exit(PREEMPTED if preempted else error.exit_code)
    except click.ClickException as error:
        if (short := brief(error.format_message())) == error.format_message():
            error.show()
        else:
            click.echo(f"Error: {short}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # nobody reads any more (``| head -1``)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    except OSError as error:  # a folder that vanishes, a disk that is full: no fault of the program
        where = f"{error.filename}: " if error.filename else ""
        click.echo(brief(f"icl-lab: {where}{error.strerror or error}."), err=True)
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):  # an Abort is a RuntimeError
        click.echo("icl-lab: stopped.", err=True)
        sys.exit(130)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        click.echo(f"icl-lab: there is too little memory: {brief(first_line(error))}", err=True)
        sys.exit(1)

"""The options that say where runs are executed; every command that takes ``--jobs`` takes them."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from icl_lab.cli.values import Finite
from icl_lab.workers.fleet import ENGINES, PROGRAM
from icl_lab.workers.supervisor import SILENCE

Command = TypeVar("Command", bound=Callable[..., Any])


def fleet_options(command: Command) -> Command:
    """Adds the options that say where runs are executed."""
    for option in reversed(
        [
            click.option(
                "--on",
                multiple=True,
                metavar="HOST[:N],..",
                help="Execute runs on these hosts by ssh, N at once on each; or behind a command with blanks in it, "
                "'srun -N1 -n1:4'. May be given again.",
            ),
            click.option(
                "--remote-command",
                default=PROGRAM,
                show_default=True,
                metavar="COMMAND",
                help="What starts icl-lab at the places of --on.",
            ),
            click.option(
                "--engine",
                default="local",
                show_default=True,
                type=click.Choice(ENGINES),
                help="Where runs are executed: by processes of this machine (or --on), or on a Ray cluster. (What does "
                "the steps of a training is --set train.engine.)",
            ),
            click.option(
                "--address",
                default="",
                metavar="auto|HOST:PORT|local",
                help="The Ray cluster: the one that this machine belongs to, another one, or one of its own, here.  "
                "[default: local]",
            ),
            click.option(
                "--gpus-per-run",
                default=0.0,
                type=Finite(0, 64),
                help="GPUs that Ray reserves for a run; 0.25 puts four on one.  [default: none]",
            ),
            click.option(
                "--silence",
                default=SILENCE,
                show_default=True,
                type=Finite(10, 86_400),
                help="Seconds without a word after which a worker is given up, and its run done by another.",
            ),
        ]
    ):
        command = option(command)
    return command

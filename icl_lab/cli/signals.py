"""Signals that ask this process to stop: Ctrl-C, and those of schedulers and closed terminals."""

import os
import signal
from collections.abc import Callable, Sequence

import click

PREEMPTED = 75  # stopped at a checkpoint by a scheduler: run the same command again
caught: list[int] = []  # the signals that asked this process to stop


def catch_signals() -> Callable[[], bool]:
    """Turn the first Ctrl-C or termination into a stop at the next step; the second acts at once."""
    caught.clear()
    screens = [number for number in (0, 1, 2) if os.isatty(number)]  # asked now: one that was closed is none any more

    def catch(number: int, frame: object) -> None:
        caught.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if number == signal.SIGHUP:
            _silence(screens)
        click.echo("\nstopping after this step; once more stops at once.", err=True)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup: the terminal does not matter
            signal.signal(number, catch)
    return lambda: bool(caught)


def _silence(screens: Sequence[int]) -> None:
    """Redirect further output to the null device, since the terminal was closed."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in screens:
        os.dup2(nowhere, number)
    os.close(nowhere)

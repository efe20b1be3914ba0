"""One progress bar on standard error, a line a minute where that is no terminal. The door to tqdm."""

import sys
import time
from typing import Any

import click

REDRAWN = 0.25  # seconds between two looks of a bar
SAID = 60.0  # seconds between two lines where there is no terminal


class Bar:
    """The progress of one stage after another; the same progress told twice is shown once.

    A stage begins with its first ``done`` of ``total`` and ends with the first that is complete; told again that it is
    complete, nothing is shown.
    """

    def __init__(self) -> None:
        self._stage: tuple[str, int] | None = None
        self._last: tuple[int, str] = (-1, "")
        self._bar: Any = None
        self._said = time.monotonic()

    def __call__(self, stage: str, done: int, total: int, note: str) -> None:
        """Shows that ``done`` of ``total`` steps of a stage are done."""
        over = self._stage == (stage, total) and self._last[0] == total and done == total
        if over or (self._stage == (stage, total) and self._last == (done, note)):
            return
        again = self._stage != (stage, total) or done < self._last[0]
        if sys.stderr.isatty():
            self._draw(stage, done, total, note, again)
        elif time.monotonic() - self._said >= SAID:
            click.echo(f"{stage}: {done:,} of {total:,}{', ' if note else ''}{note}", err=True)
            self._said = time.monotonic()
        self._stage, self._last = (stage, total), (done, note)

    def _draw(self, stage: str, done: int, total: int, note: str, again: bool) -> None:
        from tqdm import tqdm

        if again:
            if self._bar is not None:
                self._bar.close()
            self._bar = tqdm(total=total, initial=done, desc=stage, file=sys.stderr, mininterval=REDRAWN)
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.close()
            self._bar = None


def say(text: str) -> None:
    """Tells whoever waits: to standard error, because standard output is for data; a bar there is drawn again below."""
    if sys.stderr.isatty() and "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(text, file=sys.stderr)
    else:
        click.echo(text, err=True)

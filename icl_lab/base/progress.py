"""Progress as a function that is called with a stage, how many steps of how many are done, and the current item."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Tick = Callable[[str, int, int, str], object]
Item = TypeVar("Item")


def silent(stage: str, done: int, total: int, note: str) -> None:
    """Show nothing."""


def counted(
    items: Sequence[Item], stage: str, tick: Tick, name: Callable[[Item], str] = lambda item: ""
) -> Iterator[Item]:
    """Yield each item and report to ``tick`` how many are done; ``name`` describes the current one.

    Without items ``tick`` is not called.
    """
    for done, item in enumerate(items):
        tick(stage, done, len(items), name(item))
        yield item
    if items:
        tick(stage, len(items), len(items), "")

"""Progress as a function that is called with a stage, how many steps of how many are done, and what is done now."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Tick = Callable[[str, int, int, str], object]
Item = TypeVar("Item")


def silent(stage: str, done: int, total: int, note: str) -> None:
    """Show nothing."""


def counted(
    items: Sequence[Item], stage: str, tick: Tick, name: Callable[[Item], str] = lambda item: ""
) -> Iterator[Item]:
    """Yield each item and tell ``tick`` how many are done; ``name`` is what is said of the one that is done now.

    Of no items nothing is told.
    """
    for done, item in enumerate(items):
        tick(stage, done, len(items), name(item))
        yield item
    if items:
        tick(stage, len(items), len(items), "")

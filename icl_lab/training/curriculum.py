"""Curriculum of prompt lengths: a function of the training step, with no state."""

from typing import Annotated

import msgspec
from msgspec import Meta

LONGEST = 100_000  # examples of a prompt: the pairs of its tokens alone would fill most memories
Length = Annotated[int, Meta(ge=1, le=LONGEST)]

GOLDEN = (5**0.5 - 1) / 2


class Staircase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Starts at ``start`` pairs and climbs ``rise`` every ``run`` steps, never past ``stop``.

    The paper describes 3 -> 40, its code runs 11 -> 41, both by 2 every 2,000 of 500,000 steps (arXiv 2508.14685).
    ``run`` is a share of the training, so that shorter trainings climb as early: 0.004 = 2,000 / 500,000. With
    ``mixed`` the prompts of a step have any length from ``start`` to the height that is reached, in equal shares: a
    model that has met one length only has no reason to work at another.

    >>> climb = Staircase(start=11, stop=41, rise=2, run=0.004)
    >>> [climb.at(step, steps=500_000) for step in (0, 1999, 2000, 29_999, 30_000, 499_999)]
    [11, 11, 13, 39, 41, 41]
    >>> mixture = Staircase(start=16, stop=64, rise=48, run=0.1, mixed=True)
    >>> [mixture.at(step, steps=100) for step in (0, 9, 10, 11, 12, 13)]
    [16, 16, 24, 55, 36, 17]
    """

    start: Length = 11
    stop: Length = 41
    rise: Annotated[int, Meta(ge=0, le=LONGEST)] = 2
    run: Annotated[float, Meta(gt=0, le=1)] = 0.004
    mixed: bool = False

    def __post_init__(self) -> None:
        if self.start > self.stop:
            raise ValueError(f"start must be <= stop, got {self.start} and {self.stop}")

    def at(self, step: int, steps: int) -> int:
        """Return the number of pairs in the prompts of ``step`` (from 0) of ``steps``."""
        height = self.height(step, steps)
        if not self.mixed:
            return height
        # Multiples of the golden section spread evenly over any stretch of steps, without a generator.
        return self.start + int(step * GOLDEN % 1 * (height - self.start + 1))

    def height(self, step: int, steps: int) -> int:
        """Return the greatest number of pairs that ``step`` (from 0) of ``steps`` can have."""
        every = max(1, round(self.run * steps))
        return min(self.start + self.rise * (step // every), self.stop)

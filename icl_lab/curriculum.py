"""How long prompts are at each step of training: a function of the step, with nothing to save and nothing to replay."""

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]


class Staircase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Starts at ``start`` pairs and climbs ``rise`` every ``run`` steps, never past ``stop``.

    The paper describes 3 -> 40, its code runs 11 -> 41, both by 2 every 2,000 of 500,000 steps (arXiv 2508.14685).
    ``run`` is a share of the training, so that shorter trainings climb as early: 0.004 = 2,000 / 500,000.

    >>> climb = Staircase(start=11, stop=41, rise=2, run=0.004)
    >>> [climb.at(step, steps=500_000) for step in (0, 1999, 2000, 29_999, 30_000, 499_999)]
    [11, 11, 13, 39, 41, 41]
    """

    start: Positive = 11
    stop: Positive = 41
    rise: Annotated[int, Meta(ge=0)] = 2
    run: Annotated[float, Meta(gt=0, le=1)] = 0.004

    def __post_init__(self) -> None:
        if self.start > self.stop:
            raise ValueError(f"start must be <= stop, got {self.start} and {self.stop}")

    def at(self, step: int, steps: int) -> int:
        """Returns the number of pairs in the prompts of ``step`` (from 0) of ``steps``."""
        every = max(1, round(self.run * steps))
        return min(self.start + self.rise * (step // every), self.stop)

"""Comparisons that are shown together, with p values corrected for multiple comparisons."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from icl_lab.comparison.statistics import CLEAR, Effect, holm

Place = tuple[str, frozenset[tuple[str, float]]]


def place(rule: str, cell: Mapping[str, float]) -> Place:
    """A normalizer in a cell, as a key; the cell of a declared summary is empty."""
    return rule, frozenset(cell.items())


@dataclass(frozen=True)
class Family:
    """Normalizers against one other in cells, or by a summary; p is corrected by Holm's method over all of them.

    Where no normalizer differs in any cell, one such family in twenty has a corrected p below 0.05 at all.
    """

    effects: Mapping[Place, Effect]

    @classmethod
    def of(cls, found: Iterable[tuple[str, Mapping[str, float], Effect | None]]) -> "Family":
        """Build a family of normalizers in cells; a comparison that is None is not there."""
        return cls({place(rule, cell): effect for rule, cell, effect in found if effect is not None})

    @cached_property
    def size(self) -> int:
        """Number of comparisons; those that have no p do not count."""
        return sum(not math.isnan(effect.p) for effect in self.effects.values())

    @cached_property
    def _corrected(self) -> dict[Place, float]:
        p = holm([effect.p for effect in self.effects.values()])
        return dict(zip(self.effects, p.tolist(), strict=True))

    def effect(self, rule: str, cell: Mapping[str, float]) -> Effect | None:
        """The comparison by itself; None where there is none."""
        return self.effects.get(place(rule, cell))

    def corrected(self, rule: str, cell: Mapping[str, float]) -> float:
        """Its p, corrected over the family; NaN where it has none."""
        return self._corrected.get(place(rule, cell), math.nan)

    def marked(self, rule: str, cell: Mapping[str, float]) -> bool:
        """True if a difference is said to be there: the corrected p is below 0.05."""
        return self.corrected(rule, cell) < CLEAR

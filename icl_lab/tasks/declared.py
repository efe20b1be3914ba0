"""Declarations of a task, so that tables, figures and analyses need not know it by name."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Label:
    """Name of an axis: in words for figures, as a symbol in headers of tables."""

    words: str
    symbol: str = ""


@dataclass(frozen=True)
class Summary:
    """The one number that a run is summarised by: a mean along one axis, all other axes as in training.

    ``range`` is the mean height over ``low`` to ``high`` by trapezoids (both ends must have been tested), ``beyond``
    the mean over the values greater than in training, ``mean`` the mean over all tested values. Facets, axes of which
    training has met every value, are averaged first. Where the task's errors span decades, errors enter as logarithms.
    """

    axis: str = "length"
    kind: Literal["range", "beyond", "mean"] = "beyond"
    low: float = 0.0
    high: float = 0.0

    def words(self, log: bool) -> str:
        """Return what the number is, as it stands below a table; ``log`` where logarithms are averaged."""
        what = "mean log error" if log else "mean error"
        plural = "lengths" if self.axis == "length" else f"values of {self.axis}"
        if self.kind == "range":
            return f"{what} over {self.axis} {self.low:g} to {self.high:g}"
        return f"{what} over the {plural} beyond training" if self.kind == "beyond" else f"{what} over all {plural}"


@dataclass(frozen=True)
class Clip:
    """The axis, and its first value, at which answers clipped at +-B are compared with a model's.

    For tasks with a real-valued answer whose size grows with the axis: nearer than ``start`` an error is that of
    learning, not of a bound (arXiv 2508.14685, Table 1).
    """

    axis: str
    start: float


def mixed_curriculum(start: int, stop: int, rise: int, *, positions: str) -> dict[str, str]:
    """Fields of a preset: training prompts of mixed lengths from ``start`` up to a bound that rises to ``stop``."""
    return {
        "train.curriculum.start": str(start),
        "train.curriculum.stop": str(stop),
        "train.curriculum.rise": str(rise),
        "train.curriculum.mixed": "yes",
        "model.positions": positions,
    }


LENGTH = Label("length of the prompt", "length")

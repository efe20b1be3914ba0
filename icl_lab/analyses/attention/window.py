"""Window of a page: layers, heads and queries, no more cells than a browser draws well."""

from collections.abc import Sequence
from dataclasses import dataclass

from icl_lab import tasks
from icl_lab.analyses.attention.prompt import Asked, fits
from icl_lab.errors import BadValue
from icl_lab.runs.run import Run

CELLS = 4_000_000  # of all maps of a page: more make it slow to open and to draw


@dataclass(frozen=True)
class Window:
    """Which layers and heads are shown, and how many queries, counted from the end (none: all)."""

    layers: list[int]
    heads: list[int]
    last: int | None = None

    def rows(self, t: int) -> int:
        """Returns how many queries are shown of ``t`` tokens."""
        return min(self.last or t, t)

    def cells(self, t: int) -> int:
        """Returns the cells of all maps of a prompt of ``t`` tokens, hidden ones included."""
        return len(self.layers) * len(self.heads) * self.rows(t) * t


def choose(runs: Sequence[Run], asked: Asked, layers: str = "", heads: str = "", last: int | None = None) -> Window:
    """Returns what will be shown of these runs, ``layers`` and ``heads`` as text such as ``0,2`` (empty: all).

    Raises ``BadValue`` on runs of different tasks or shapes, on a layer or head that is not there, on a prompt too long
    for a run, and on more cells than a page holds.
    """
    first = runs[0].spec
    for run in runs:
        if run.spec.task != first.task:
            raise BadValue(f"two runs side by side read one prompt, got the tasks {first.task} and {run.spec.task}.")
        if (run.spec.model.layers, run.spec.model.heads) != (first.model.layers, first.model.heads):
            shapes = " and ".join(f"{each.spec.model.layers} x {each.spec.model.heads}" for each in runs)
            raise BadValue(f"two runs side by side need the same layers x heads, got {shapes}.")
        fits(run.spec, tasks.build(run.spec.task), asked.length)
    t = asked.prompt.tokens.shape[1]
    made = Window(chosen("layer", layers, first.model.layers), chosen("head", heads, first.model.heads), last)
    if (cells := len(runs) * made.cells(t)) > CELLS:
        raise BadValue(
            f"{cells:,} cells are more than the {CELLS:,} that a page holds; show fewer: --layers 0 or --heads 0,1 "
            f"(now {len(made.layers)} x {len(made.heads)}), or --last 32 for the last queries (now {made.rows(t)})."
        )
    return made


def chosen(what: str, text: str, count: int) -> list[int]:
    """Reads ``0,2`` as numbers of layers or heads; all of them from an empty text."""
    words = [word.strip() for word in text.split(",")] if text.strip() else [str(number) for number in range(count)]
    for word in words:
        if not (word.isdecimal() and int(word) < count):
            raise BadValue(f"there is no {what} '{word}': {what}s are counted from 0 to {count - 1}.")
    return sorted({int(word) for word in words})

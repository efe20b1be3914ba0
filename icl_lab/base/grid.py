"""Numbers with their labels: one row per cell, axis values first. The only door to pandas."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import numpy as np
import pandas as pd

from icl_lab.base.errors import LabError

SETTINGS = ("model_settings", "train_settings", "test_settings")  # of tables of many runs: what no preset says
WHO = ("task", "attn", "preset", "spec", "seed")
WHAT = ("metric", "value", "stderr", "count")
# Columns of words, held as Python's own strings: they are compared and looked up far more often than stored.
WORDS = dict.fromkeys(("task", "attn", "preset", "spec", "metric"), object)
NUMBERS = dict.fromkeys(("value", "stderr"), float)
# pandas before 3.1 reads floats back to the last bit only where it is told to; later ones do, and warn where told.
EXACT: dict[str, Any] = {"float_precision": "round_trip"} if [*map(int, pd.__version__.split(".")[:2])] < [3, 1] else {}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Grid:
    """A long table of measured cells: the columns ``WHO``, then one column an axis, then ``WHAT``.

    The axes are whatever stands between ``seed`` and ``metric``. ``stderr`` is the standard error of ``value`` over the
    ``count`` prompts that it summarises, empty where it is not defined.
    """

    frame: pd.DataFrame

    @classmethod
    def of(cls, rows: Iterable[Row], axes: Sequence[str], **who: object) -> Self:
        """Build a grid from rows that carry the axes and ``WHAT``; ``who`` fills the columns that they leave out."""
        frame = pd.DataFrame([{**who, **row} for row in rows], columns=[*WHO, *axes, *WHAT])
        return cls(frame.astype(WORDS | NUMBERS | dict.fromkeys(axes, float)))

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> Self:
        """Build a grid from whole columns, as ``read`` would give them."""
        return cls(pd.DataFrame({name: pd.Series(column, dtype=column.dtype) for name, column in columns.items()}))

    @property
    def axes(self) -> list[str]:
        """The names of the axes, in the order of the columns."""
        return [name for name in self.frame.columns if name not in (*WHO, *WHAT)]

    def where(self, **labels: object) -> Self:
        """Return the cells with these labels (a list: any of its values). Raises ``KeyError`` with what exists."""
        frame, chosen = self.frame, np.ones(len(self.frame), dtype=bool)
        for name, wanted in labels.items():
            if name not in frame.columns:
                raise KeyError(f"this grid has no column '{name}'; it has {', '.join(frame.columns)}")
            # Labels are compared as whole numbers, and rows are selected once: claims ask this thousands of times.
            numbers, known = self._numbered(name)
            labelled = wanted if isinstance(wanted, list | tuple) else [wanted]
            asked = [known[label] for label in labelled if label in known]
            found = chosen & (numbers == asked[0] if len(asked) == 1 else np.isin(numbers, asked))
            if not found.any():
                there = ", ".join(_tidy(value) for value in frame[name][chosen].drop_duplicates())
                raise KeyError(f"no cell has {name}={wanted}; there are {there}")
            chosen = found
        return type(self)(frame[chosen])

    def of_model(self, metric: str) -> Self:
        """Return the cells of the model, without references, in a metric; none where the grid lacks it."""
        return type(self)(self.frame[(self.frame["metric"] == metric) & (self.frame["attn"] == model_name(self))])

    def at(self, **labels: object) -> float:
        """Return the value of the one cell with these labels; raises ``KeyError`` unless there is just one."""
        cells = self.where(**labels).frame
        if len(cells) != 1:
            raise KeyError(f"{len(cells)} cells have {labels}; add labels until one is left")
        return float(cells["value"].iloc[0])

    def mean_error(self, *, logarithm: bool = False) -> float:
        """Return the most that the standard error over prompts of the mean value, or mean logarithm, can be.

        Formula: mean of e_i, or of e_i / v_i; v_i values of cells, e_i their ``stderr``, as if fully correlated

        NaN where a cell has none.
        """
        return mean_error(self.frame["value"], self.frame["stderr"], logarithm=logarithm)

    def values_at(self, cells: Sequence[Mapping[str, object]], column: str = "value") -> list[float]:
        """Return the values of all cells that have one of these sets of labels, of the same columns, in their order.

        Or another ``column`` of them. Raises ``KeyError`` with what exists where a set has no cell.
        """
        columns = tuple(cells[0])
        if set(columns) - set(self.frame.columns):
            self.where(**cells[0])  # says which columns there are
        known, found = self.by(*columns, column=column), []
        for cell in cells:
            wanted = tuple(cell[column] for column in columns)
            if wanted not in known:
                self.where(**cell)  # says which labels there are
            found += known[wanted]
        return found

    def by(self, *columns: str, column: str = "value") -> dict[tuple[object, ...], list[float]]:
        """Return the values of the cells, or another column, by their labels in these columns, in the table's order.

        One pass over the table for all that ask: claims and pages ask for hundreds of cells of one grid.
        """
        if (key := (column, columns)) not in self._passes:
            found = self._passes[key] = {}
            labels = zip(*(self.frame[name].tolist() for name in columns), strict=True)
            for key_of_cell, value in zip(labels, self.frame[column].tolist(), strict=True):
                found.setdefault(key_of_cell, []).append(value)
        return self._passes[key]

    def _numbered(self, name: str) -> tuple[Any, dict[Any, int]]:
        """The label of each row of a column as a number, and the number of each label."""
        if name not in self._columns:
            numbers, labels = pd.factorize(self.frame[name], use_na_sentinel=False)
            self._columns[name] = numbers, {label: number for number, label in enumerate(labels)}
        return self._columns[name]

    @cached_property
    def _passes(self) -> dict[tuple[str, tuple[str, ...]], dict[tuple[object, ...], list[float]]]:
        return {}

    @cached_property
    def _columns(self) -> dict[str, tuple[Any, dict[Any, int]]]:
        return {}

    def values(self, column: str) -> list[Any]:
        """Return the distinct labels of a column, in order of appearance."""
        return list(self._numbered(column)[1])

    def rows(self) -> list[dict[str, Any]]:
        """Return the cells as rows with all their labels; ``of`` makes the grid of them again."""
        return [{str(name): value for name, value in row.items()} for row in self.frame.to_dict("records")]

    def lines(self, along: str, *by: str) -> list[list[tuple[float, float]]]:
        """Return (label, value) along one axis, one list for each combination of the labels ``by``, in their order."""
        groups = self.frame.groupby(list(by), sort=True)
        return [list(zip(part[along], part["value"], strict=True)) for _, part in groups]

    def table(self, rows: str, columns: str, column: str = "value") -> pd.DataFrame:
        """Return one metric spread out, ``rows`` down and ``columns`` across; ``KeyError`` if a cell is not unique."""
        if self.frame.duplicated([rows, columns]).any():
            raise KeyError(f"several cells share one {rows} and {columns}; choose the other labels first")
        order = self.values(rows), self.values(columns)
        return self.frame.pivot(index=rows, columns=columns, values=column).reindex(index=order[0], columns=order[1])

    def csv(self) -> str:
        """Return the grid as CSV text; ``read`` gives the same grid back, to the last bit of every value."""
        frame = self.frame.copy()
        for axis in self.axes:
            frame[axis] = [_tidy(value) for value in frame[axis]]
        return str(frame.to_csv(index=False, lineterminator="\n"))

    def to_xarray(self) -> Any:
        """Return an xarray ``Dataset`` with ``value``, ``stderr`` and ``count`` over attn, metric and the axes.

        What is the same in all cells (task, preset, hash, seed) is an attribute, else a dimension too. Raises
        ``LabError`` where xarray is not installed, and ``KeyError`` where two cells have all labels in common.
        """
        same = [name for name in WHO if name != "attn" and self.frame[name].nunique() <= 1]
        labels = [name for name in (*WHO, "metric", *self.axes) if name not in same]
        if self.frame.duplicated(labels).any():
            raise KeyError(f"several cells share their labels ({', '.join(labels)})")
        try:
            dataset: Any = self.frame.set_index(labels)[["value", "stderr", "count"]].to_xarray()
        except ImportError:
            raise LabError("to_xarray needs xarray, which is not installed: pip install 'icl_lab[notebook]'") from None
        kept = [axis for axis in labels if axis in dataset.dims]
        order = {axis: self.values(axis) for axis in kept}  # as in the table, not as letters sort
        return dataset.reindex(order).assign_attrs({name: self.values(name)[0] for name in same if len(self.frame)})

    def to_polars(self) -> Any:
        """Return the cells as a ``DataFrame`` of polars; raises ``LabError`` where that is not installed."""
        try:
            import polars
        except ImportError:
            raise LabError("to_polars needs polars, which is not installed: pip install polars") from None
        return polars.from_pandas(self.frame)

    def _repr_html_(self) -> str:
        return f"<div>{len(self.frame):,} cells over {', '.join(self.axes)}</div>{frame_html(self.frame)}"

    @classmethod
    def read(cls, source: Path | str) -> Self:
        """Read a CSV file, or CSV text that ``csv`` returned; raises ``ValueError`` where it is none."""
        text = io.StringIO(source) if isinstance(source, str) else source
        frame = pd.read_csv(text, dtype=WORDS | NUMBERS, **EXACT)
        missing = [name for name in (*WHO, *WHAT) if name not in frame.columns]
        if missing:
            raise ValueError(f"no grid: the columns {', '.join(missing)} are missing")
        for name in ("task", "attn", "metric"):
            if frame[name].isna().any():
                raise ValueError(f"no grid: a row without {name}")
        for name in frame.columns.difference([*WHO, *WHAT]):
            if frame[name].dtype != float:  # to put a column back takes longer than to look
                frame[name] = frame[name].astype(float)
        return cls(frame)

    @classmethod
    def join(cls, grids: Iterable[Self]) -> Self:
        """Put grids with the same axes under one another."""
        frames = [grid.frame for grid in grids]
        if len({tuple(frame.columns) for frame in frames}) != 1:
            raise ValueError("grids with different axes cannot be joined")
        return cls(pd.concat(frames, ignore_index=True))


def stacked(grids: Iterable[tuple[Grid, Mapping[str, str], bool, str]]) -> pd.DataFrame:
    """Return cells under one another: ``WHO``, ``SETTINGS``, all axes, ``WHAT``, ``evidence`` and ``code``.

    Each grid, of whatever axes, comes with its settings, whether it is the repository's, and whether its code is
    another one now. An axis that a task does not have is NaN. Rows with the same task, normalizer, preset and settings
    are of one model but for the seed.
    """
    frames, axes = list[pd.DataFrame](), dict[str, None]()
    for grid, settings, copied, code in grids:
        axes |= dict.fromkeys(grid.axes)
        frames.append(grid.frame.assign(**settings, evidence=copied, code=code))
    columns = [*WHO, *SETTINGS, *axes, *WHAT, "evidence", "code"]
    if not frames:
        return pd.DataFrame(columns=columns)
    return pd.concat(frames, ignore_index=True).reindex(columns=columns)


def mean_error(values: Iterable[float], errors: Iterable[float], *, logarithm: bool) -> float:
    """``Grid.mean_error`` of values and their standard errors."""
    return fmean(error / value if logarithm else error for value, error in zip(values, errors, strict=True))


def frame_of(rows: Iterable[Row], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return rows as a table of pandas, with these columns or with all that they have."""
    return pd.DataFrame(list(rows), columns=None if columns is None else list(columns))


def frame_html(frame: pd.DataFrame) -> str:
    """Return the first rows of a table for a notebook, every text in it escaped."""
    return str(frame.to_html(max_rows=12, index=False, escape=True, border=0))


def model_name(grid: Grid) -> str:
    """The one predictor of a run's grid that is not a reference: the normalizer, or ``rule->swapped rule``."""
    (name,) = (name for name in grid.values("attn") if not name.startswith("reference:"))
    return str(name)


def _tidy(value: object) -> str:
    return format(value, ".12g") if isinstance(value, int | float) else str(value)

"""A trained model under shift: every cell of a grid, with the task's references on the same prompts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, Self

import msgspec
import torch
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from icl_lab.base.option_values import GREATEST
from icl_lab.base.rescale import FIRST, Rescale
from icl_lab.base.rng import stream
from icl_lab.tasks.base import Predictor, Prompt, Task
from icl_lab.training.curriculum import LONGEST

CELLS = 100_000  # of a shift grid: the widest of the papers has 600
TEST_SEED = 0  # not the training seed: all models, of all seeds, meet the same prompts
BLOCK = 64  # prompts of one address, so that asking for more prompts keeps the first ones
NOT_FINITE = "not-finite"  # the metric that marks a cell
FLOOR = "floor"  # the metric of a model's bound: the headline of the exact answer, clipped to the bound
QUERIES = 64  # that one pass asks after a context
MEMORY = 256 * 2**20  # bytes that one forward pass may take, roughly; small enough to be kind to the caches


class TestSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shift grid: the product of its axes, ``prompts`` in each cell (rounded up to whole blocks of 64).

    ``draws=paper`` measures on the published evaluation set instead, which has its own number of prompts;
    ``draws=tuning`` on prompts by which recipes are chosen, and which no other test draws.
    ``positions`` names the position code that the model reads with when tested, where it is not that of training.
    ``rescale`` divides labels, inputs or both by their size in the first ``rescale_from`` examples and multiplies the
    answers back (``icl_lab/base/rescale.py``).
    """

    __test__ = False  # not a test case, whatever its name suggests to pytest

    prompts: Annotated[int, Meta(ge=1, le=100_000_000)]
    axes: dict[str, list[float]]
    draws: Literal["ours", "paper", "tuning"] = "ours"
    positions: str = ""
    rescale: Rescale = "none"
    rescale_from: Annotated[int, Meta(ge=1, le=LONGEST)] = FIRST

    def __post_init__(self) -> None:
        for axis, values in self.axes.items():
            if not values:
                raise ValueError(f"{axis} has no values")
            for value in values:
                if axis == "length" and not (1 <= value < math.inf and value == int(value)):
                    raise ValueError(f"length must be whole numbers >= 1, got {value:g}")
                if axis == "length" and value > LONGEST:
                    raise ValueError(f"length must be at most {LONGEST:,}, got {value:g}")
                if axis != "length" and not 0 <= value < math.inf:
                    raise ValueError(f"{axis} must be finite and > 0, or 0 where training has none, got {value:g}")
                if axis != "length" and value > GREATEST:
                    raise ValueError(f"{axis} must be at most {GREATEST:g}, got {value:g}")
        if (cells := math.prod(map(len, self.axes.values()))) > CELLS:
            raise ValueError(f"the axes make {cells:,} cells, more than the {CELLS:,} that a test may have")

    @property
    def lengths(self) -> list[int]:
        """The lengths, in ascending order."""
        return sorted(int(value) for value in self.axes["length"])

    def shifts(self) -> list[dict[str, float]]:
        """Every combination of the axes other than length."""
        others = {axis: values for axis, values in self.axes.items() if axis != "length"}
        return [dict(zip(others, values, strict=True)) for values in product(*others.values())]


@dataclass(frozen=True)
class Measured:
    """Rows for ``grid.csv`` (axes: shifts, length); of the subject that was named first also the rows for
    ``positions.csv`` (axes: shifts, index; at the greatest length) and what each prompt adds to the headline metric.
    """

    cells: list[dict[str, Any]]
    positions: list[dict[str, Any]]
    errors: "Errors"


class Errors:
    """Contribution of each prompt to the headline metric: one row per cell of the grid, one column per prompt.

    The mean of a row is the value of its cell; paired between two models, row by row and prompt by prompt, it says how
    far a difference depends on the prompts that were drawn. Prompts of the published set that share a function are one
    column, their mean: they are not independent draws.
    """

    def __init__(self, axes: Sequence[str]) -> None:
        self.axes = list(axes)
        self.cells: dict[tuple[float, ...], Tensor] = {}

    def at(self, cell: Mapping[str, float]) -> Tensor:
        """Return the shares of the prompts of a cell, (b); raises ``KeyError`` where it was not measured.

        Without a label for some axis: the mean over its cells, which share their prompts.
        """
        wanted = tuple(cell.get(axis) for axis in self.axes)
        if wanted in self.cells:
            return self.cells[wanted]  # type: ignore[index]
        found = [
            kept
            for labels, kept in self.cells.items()
            if all(value is None or label == value for label, value in zip(labels, wanted, strict=True))
        ]
        if not found:
            where = ", ".join(f"{axis} {value:g}" for axis, value in cell.items())
            raise KeyError(
                f"single prompts at {where} are not kept: the evidence has those that claims read; "
                "--no-evidence trains the run and keeps all"
            )
        return torch.stack(found).mean(0)

    def means(self) -> dict[tuple[float, ...], float]:
        """Return the mean of each cell, by its labels in the order of the axes; all are summed in one pass."""
        rows = torch.stack(list(self.cells.values())).double().mean(1).tolist() if self.cells else []
        return dict(zip(self.cells, rows, strict=True))

    def add(self, cell: Mapping[str, float], values: Tensor, share: int = 1) -> None:
        """Keep values (b) or (b g) of a cell, the mean of each ``share`` prompts in a row (those of one function)."""
        kept = shares(values).double().view(-1, share).mean(1)
        self.cells[tuple(float(cell[axis]) for axis in self.axes)] = kept.float()

    def encoded(self) -> bytes:
        """Return ``errors.safetensors``: a tensor of shares (cells b), and one of labels (cells) for each axis."""
        labels = torch.tensor(list(self.cells), dtype=torch.float64).reshape(len(self.cells), len(self.axes))
        columns = {f"axis {number} {axis}": labels[:, number].clone() for number, axis in enumerate(self.axes)}
        errors = torch.stack(list(self.cells.values())) if self.cells else torch.empty(0, 0)
        return save({"errors": errors, **columns})

    def only(self, cells: Sequence[Mapping[str, float]]) -> Self:
        """Return the errors of those cells that have one of these sets of labels; other labels are not asked."""
        made = type(self)(self.axes)
        for labels, kept in self.cells.items():
            here = dict(zip(self.axes, labels, strict=True))
            if any(all(here.get(axis, value) == value for axis, value in cell.items()) for cell in cells):
                made.cells[labels] = kept
        return made

    def keeps(self, cells: Sequence[Mapping[str, float]]) -> bool:
        """True if errors of all these cells are here: of a run of the evidence they are where a claim reads them."""
        try:
            return all(self.at(cell) is not None for cell in cells)
        except KeyError:
            return False

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Read such a file; raises ``ValueError`` where it is none."""
        try:
            tensors = load(data)
            shares = tensors["errors"]
        except (SafetensorError, KeyError) as error:
            raise ValueError(str(error)) from error
        columns = sorted(name for name in tensors if name.startswith("axis "))
        return cls.of(shares, {name.split(" ", 2)[2]: tensors[name] for name in columns})

    @classmethod
    def of(cls, errors: Tensor, labels: Mapping[str, Any]) -> Self:
        """Build them from a tensor (cells, prompts) and the labels (cells) of each axis."""
        made = cls(list(labels))
        made.cells = dict(zip(zip(*(column.tolist() for column in labels.values()), strict=True), errors, strict=True))
        return made


@dataclass(frozen=True)
class Subject:
    """A predictor to be measured, whether one pass at the greatest length serves all, and the bytes a prompt takes.

    ``exact_within_bound`` gives the exact answers clipped to the bound of a model, where it has one; ``answer_queries``
    the answers (b q c) to queries (b q w) after a context (b t w), where one pass can read the context for all of them.
    """

    predict: Predictor
    one_pass: bool = True
    bytes_of: Callable[[int], float] = lambda t: 200.0 * t * t
    exact_within_bound: Predictor | None = None
    answer_queries: Callable[[Tensor, Tensor], Tensor] | None = None


@torch.no_grad()
def measure(
    subjects: Mapping[str, Subject],
    task: Task,
    test: TestSpec,
    tick: Callable[[int, int], object] = lambda done, total: None,
) -> Measured:
    """Measure each subject in every cell, on prompts that depend on nothing but the task and the cell.

    Where shorter prompts are prefixes of longer ones and the subject is prefix-consistent, one pass at the greatest
    length scores all lengths; otherwise there is one pass per length. Both ways give the same numbers.

    An answer that is not finite has the task's worst error. A cell with such answers is marked by a row of the metric
    ``not-finite``, the share of its prompts that have one; other cells have no such row.

    A model whose answers are bounded has rows of the metric ``floor``: the headline of the exact answers clipped to the
    bound. No answer within the bound errs less, so that what lies above the floor is the model's own doing.
    """
    shifts, first = test.shifts(), next(iter(subjects))
    result = Measured([], [], Errors([*(axis for axis in test.axes if axis != "length"), "length"]))
    tick(0, len(shifts))  # the first shift of a large model takes minutes
    for done, shift in enumerate(shifts):
        # The published set is what it is: it has no second, balanced one.
        for prefix, suite in (task.suites() if test.draws != "paper" else {"": task}).items():
            for name, subject in subjects.items():
                for length, views, errors, lost in _passes(subject, suite, test, shift):
                    if name == first and task.headline in views and task.headline.startswith(prefix):
                        share = task.published_share if test.draws == "paper" else 1
                        result.errors.add({**shift, "length": length}, views[task.headline], share)
                    if lost.any():
                        row = {"attn": name, **shift, "length": length, "metric": f"{prefix}{NOT_FINITE}"}
                        result.cells.append(row | summary(lost.double()))
                    for metric, values in views.items():
                        # A median over prompts that share their functions would be one of few numbers.
                        asked = name == first or test.draws == "paper" or metric in task.metrics_of_references
                        if metric == FLOOR and suite.headline != task.headline:
                            metric = f"{prefix}{FLOOR}"
                        asked = asked and (metric == FLOOR or metric.startswith(prefix))
                        if asked and (test.draws != "paper" or metric not in task.medians):
                            row = {"attn": name, **shift, "length": length, "metric": metric}
                            result.cells.append(row | summary(values, median=metric in task.medians))
                    if name == first and length == test.lengths[-1]:
                        for index, values in enumerate(errors.unbind(1)):
                            row = {"attn": name, **shift, "index": index, "metric": f"{prefix}error"}
                            result.positions.append(row | summary(values))
        tick(done + 1, len(shifts))
    return result


def summary(values: Tensor, *, median: bool = False) -> dict[str, float]:
    """Values (b) or (b g), NaN where a prompt does not count -> value, stderr and count of one cell.

    The mean over classes of the mean over prompts. The standard error of a median is half the distance of the order
    statistics one standard deviation of a fair coin to either side.
    """
    classes = [column[~column.isnan()].double() for column in values.reshape(len(values), -1).unbind(1)]
    count = sum(len(column) for column in classes)
    if median:
        (column,) = (column.sort().values for column in classes)
        reach = math.sqrt(count) / 2
        low, high = max(0, math.floor((count - 1) / 2 - reach)), min(count - 1, math.ceil((count - 1) / 2 + reach))
        stderr = (column[high] - column[low]).item() / 2 if count > 1 else math.nan
        return _cell(column.quantile(0.5).item(), stderr, count)
    # A class without prompts has no mean: the cell is a marked gap (NaN), not the mean of the other class.
    means = [column.mean().item() for column in classes]
    errors = [column.var().item() / len(column) if len(column) > 1 else math.nan for column in classes]
    return _cell(sum(means) / len(means), math.sqrt(sum(errors)) / len(errors), count)


def shares(values: Tensor) -> Tensor:
    """Values (b) or (b g), NaN where a prompt does not count -> (b), whose mean is the value of the cell.

    Formula: a prompt's value of class g times prompts / (classes * prompts of class g), summed over its classes
    """
    columns = values.reshape(len(values), -1)
    counts = (~columns.isnan()).sum(0)
    return (columns * (len(values) / (columns.shape[1] * counts))).nansum(1)


def influences(values: Tensor) -> Tensor:
    """Values (b) or (b g), NaN where a prompt does not count -> (b), whose mean is the value of the cell.

    Formula: v + sum over classes g of (x_g - v_g) * prompts / (classes * prompts of g), v the value, v_g that of g

    Unlike ``shares``, means over resamples vary, to first order, as the value of a cell does: by what prompts of a
    class differ in, and not by how many of a class are drawn.
    """
    columns = values.reshape(len(values), -1)
    means = columns.nanmean(0)
    scale = len(values) / (columns.shape[1] * (~columns.isnan()).sum(0))
    return means.mean() + ((columns - means) * scale).nansum(1)


def _cell(value: float, stderr: float, count: int) -> dict[str, float]:
    # Digits beyond these are far below any standard error, and would double the size of every grid.
    return {"value": float(f"{value:.8g}"), "stderr": float(f"{stderr:.4g}"), "count": count}


def draw(task: Task, length: int, test: TestSpec, shift: Mapping[str, float]) -> Prompt:
    """Draw test prompts by address: a length has its own prompts unless it is cut from the greatest."""
    if test.draws == "paper":
        return task.published(length, **shift)
    set_name = "tuning" if test.draws == "tuning" else "test"
    address: tuple[str | int, ...] = (set_name,) if task.prefixes else (set_name, length)
    blocks = [
        task.sample(stream(TEST_SEED, *address, block), BLOCK, length, **shift)
        for block in range(-(-test.prompts // BLOCK))
    ]
    return Prompt(*(torch.cat([getattr(p, part) for p in blocks]) for part in ("tokens", "targets", "scored")))


@torch.no_grad()  # with gradients all that the passes computed would be kept as long as the answers are
def predict(subject: Subject, prompt: Prompt) -> Tensor:
    """Return the outputs (b t c) on the CPU, from as many prompts at once as memory allows."""
    return torch.cat([subject.predict(piece).cpu() for piece in fitting(prompt, subject.bytes_of)])


@torch.no_grad()
def predict_at(subject: Subject, prompt: Prompt, at: int, alike: int) -> Tensor:
    """Return the outputs (b c) at token ``at``, on the CPU, of prompts (b t w).

    Of these, ``alike`` in a row have all tokens before it in common, which a model reads once where it can.
    """
    if subject.answer_queries is None:
        return predict(subject, prompt)[:, at]
    contexts = at_once(subject.bytes_of, at + 2 * QUERIES)  # a token of another role may stand between two queries
    found = list[Tensor]()
    for piece in prompt.pieces(contexts * alike):
        tokens = piece.tokens.view(-1, alike, *piece.tokens.shape[1:])
        context, queries = tokens[:, 0, :at], tokens[:, :, at]
        parts = [subject.answer_queries(context, queries[:, k : k + QUERIES]).cpu() for k in range(0, alike, QUERIES)]
        found.append(torch.cat(parts, 1).flatten(0, 1))
    return torch.cat(found)


def broken(outputs: Tensor, prompt: Prompt) -> Tensor:
    """Outputs (b t c) -> whether a scored token has an answer with a number that is not finite, (b t)."""
    return prompt.scored & ~outputs.isfinite().all(2)


def judged(task: Task, outputs: Tensor, prompt: Prompt) -> Tensor:
    """Outputs (b t c) -> the task's errors, the worst possible where an answer is not finite.

    A comparison with NaN is false and a NaN error would not count: without this, an answer that is not a number would
    be right, or left out. Raises ``ValueError`` where errors are neither (b t) nor one column per scored token.
    """
    errors, bad = task.errors(outputs, prompt), broken(outputs, prompt)
    if not bad.any():
        return errors
    if errors.shape != bad.shape:
        counts = prompt.scored.sum(1)
        if not bool((counts == errors.shape[1]).all()):
            raise ValueError(f"{task.name}: errors {tuple(errors.shape)} are no column for each scored token.")
        bad = bad[prompt.scored].view(errors.shape)
    return errors.where(~bad, task.worst)


@torch.no_grad()
def errors_of(task: Task, subject: Subject, prompt: Prompt) -> Tensor:
    """Return the errors of every answer of the prompts, (b q), from as many at once as memory allows.

    Piece by piece: the answers of all prompts at once may be the largest thing there is.
    """
    pieces = fitting(prompt, subject.bytes_of)
    return torch.cat([judged(task, subject.predict(piece).cpu(), piece) for piece in pieces])


def fitting(prompt: Prompt, bytes_of: Callable[[int], float]) -> Iterator[Prompt]:
    """Yield the prompts in pieces that fit into memory, given the bytes for a prompt of t tokens."""
    return prompt.pieces(at_once(bytes_of, prompt.tokens.shape[1]))


def at_once(bytes_of: Callable[[int], float], t: int) -> int:
    """Prompts of t tokens that memory allows in one pass, at ``bytes_of(t)`` for each."""
    return max(1, int(MEMORY / bytes_of(t)))


def _passes(
    subject: Subject, task: Task, test: TestSpec, shift: Mapping[str, float]
) -> Iterator[tuple[int, dict[str, Tensor], Tensor, Tensor]]:
    """Yield what ``_score`` does for every length, from as few passes as the subject and the task allow."""
    lengths = test.lengths
    if not task.prefixes:
        for length in lengths:
            yield from _score(subject, task, draw(task, length, test, shift), [length], shift)
        return
    # Drawn once at the greatest length and cut: a shorter draw from the same address would be other numbers.
    longest = draw(task, lengths[-1], test, shift)
    for group in [lengths] if subject.one_pass else [[length] for length in lengths]:
        yield from _score(subject, task, longest.first(task.tokens(group[-1])), group, shift)


def _score(
    subject: Subject, task: Task, prompt: Prompt, lengths: Sequence[int], shift: Mapping[str, float]
) -> Iterator[tuple[int, dict[str, Tensor], Tensor, Tensor]]:
    """Yield for every length: views, errors (b q), and the prompts with an answer that is not finite, (b)."""
    found: dict[int, list[tuple[Tensor, Tensor, dict[str, Tensor], Tensor | None]]] = {length: [] for length in lengths}
    # Errors are taken piece by piece: the answers of all prompts at once may be the largest thing there is.
    for piece in fitting(prompt, subject.bytes_of):
        outputs = subject.predict(piece).cpu()
        for length in lengths:
            t = task.tokens(length)
            cut, answers = piece.first(t), outputs[:, :t]
            lost = broken(answers, cut).any(1)
            sure = {name: values.where(~lost, math.inf) for name, values in task.confidence(answers, cut).items()}
            nearest = subject.exact_within_bound
            floor = None if nearest is None else task.errors(nearest(cut), cut)
            found[length].append((judged(task, answers, cut), lost, sure, floor))
    for length, parts in found.items():
        errors, lost = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        whole = prompt.first(task.tokens(length))
        views = task.views(errors, whole, **shift)
        views |= {name: torch.cat([part[2][name] for part in parts]) for name in parts[0][2]}
        floors = [floor for *_, floor in parts if floor is not None]
        if floors and task.headline in views:  # else it is one of another test set
            views[FLOOR] = task.views(torch.cat(floors), whole, **shift)[task.headline]
        yield length, views, errors, lost

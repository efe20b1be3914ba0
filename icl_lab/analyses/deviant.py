"""One number far from the others: what it does to the answers after it, and how long it is felt.

After Table 5 of arXiv 2508.14685, where the first input is drawn with a larger standard deviation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from icl_lab.errors import BadValue
from icl_lab.runs.measure import Subject, TestSpec, draw, predict, summary
from icl_lab.tasks.base import Prompt, Task

Row = dict[str, Any]
ROUNDING = 1e-6  # what a prediction may differ by because a sum was rounded otherwise


@dataclass(frozen=True)
class Deviants:
    """Rows of two grids: metrics over the factor, and the mean error over factor and index."""

    cells: list[Row] = field(default_factory=list)
    positions: list[Row] = field(default_factory=list)


@torch.no_grad()
def deviant(
    subjects: Mapping[str, Subject],
    task: Task,
    test: TestSpec,
    *,
    at: Sequence[int] = (0,),
    factors: Sequence[float] = (),
    tick: Callable[[int, int], object] = lambda done, total: None,
) -> Deviants:
    """Multiplies the numbers with the indices ``at`` by each factor, everything else as in training.

    A standard normal number times the factor is one drawn with that standard deviation. All factors share their
    prompts, so that factor 1 is the undisturbed prompt. The metrics are those of ``Task.disturbed``; ``recovery`` is
    the number of examples after the last deviant until the mean error is within twice the undisturbed one, and stays
    there (NaN: not within the prompt).

    Raises ``BadValue`` on an index outside the prompt and on a task that knows no deviant.
    """
    length = test.lengths[-1]
    check(task, length, at)
    suite = task.balanced
    calm = draw(suite, length, test, task.training)
    shared: Row = {"position": min(at)}
    found = Deviants()
    for done, (name, subject) in enumerate(subjects.items()):
        before = _errors(subject, suite, calm)
        for factor in factors or task.deviants:
            stirred = suite.deviate(calm, at, factor)
            after = _errors(subject, suite, stirred)
            where = {"attn": name, **shared, "factor": factor}
            for metric, values in suite.disturbed(before, after, stirred, at).items():
                found.cells.append({**where, "metric": metric} | summary(values))
            felt = recovery(before.mean(0), after.mean(0), max(at))
            row = {**where, "metric": "recovery", "value": felt, "stderr": float("nan"), "count": len(after)}
            found.cells.append(row)
            for index, values in enumerate(after.unbind(1)):
                found.positions.append({**where, "index": index, "metric": "error"} | summary(values))
        tick(done + 1, len(subjects))
    return found


def check(task: Task, length: int, at: Sequence[int]) -> None:
    """Raises ``BadValue`` on an index outside the prompt and on a task that knows no deviant."""
    if not task.deviants:
        raise BadValue(f"{type(task).__name__.lower()} knows no deviant: its tokens are not numbers to be stretched.")
    for index in at:
        if not 0 <= index < length - 1:
            raise BadValue(f"a deviant stands at an index from 0 to {length - 2}, so that answers follow; got {index}.")


def recovery(before: Tensor, after: Tensor, last: int) -> float:
    """Mean errors (L) without and with deviants, the last of them at index ``last`` -> examples until it is over.

    1 means that the very next answer is as good as it would have been; NaN that none to the end of the prompt is.
    """
    felt = (after[last + 1 :] > 2 * before[last + 1 :] + ROUNDING).nonzero()
    examples = 1 if len(felt) == 0 else int(felt[-1]) + 2
    return float(examples) if last + examples < len(after) else float("nan")


def _errors(subject: Subject, task: Task, prompt: Prompt) -> Tensor:
    return task.errors(predict(subject, prompt), prompt)

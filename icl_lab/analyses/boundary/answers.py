"""The bound C that the final norm and the read-out set, beside the largest answers B and the errors that C leaves."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses.base import constant
from icl_lab.analyses.findings import Findings, Row, StoredGrids, TrainedModel, cell
from icl_lab.grid import Grid
from icl_lab.model.gpt2 import GPT2
from icl_lab.rng import stream
from icl_lab.runs.floor import exact_within_bound
from icl_lab.runs.measure import TEST_SEED
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Prompt, Task
from icl_lab.tasks.capabilities import HasLines, Rescalable
from icl_lab.training.loop import drawn

Model = Mapping[str, Mapping[float, float]]  # metric of ``measured`` -> spread of functions -> value
GRID = "answers"
REACHED = "reached"  # the metric of claims that is a share; the others are compared as ratios
CLAIMED: Mapping[str, Callable[[Mapping[str, float]], float]] = {  # of the numbers of ``measured`` at the spread SHOWN
    "answer-bound": lambda of: of["bound"],
    REACHED: lambda of: of["largest"] / of["bound"],
    "bound-over-rms": lambda of: of["bound"] / of["label-rms"],
    "bound-over-largest": lambda of: of["bound"] / of["largest-label"],
    "bound-over-possible": lambda of: of["bound"] / of["largest-possible"],
    "labels-beyond": lambda of: of["labels-beyond"],
}
SPREADS = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 30.0, 100.0, 1000.0)  # of functions, in multiples of training's
PROMPTS, EXAMPLES = 512, 40
SHOWN = 10.0  # the spread whose shares the table names


@torch.no_grad()
def measured(trained: TrainedModel) -> list[Row]:
    """Rows of the grid: the bound, the largest distance of an answer from its centre, and errors at each spread.

    Metrics: ``bound`` C, ``largest`` max |answer - c| so far, ``error`` of the model, ``floor`` of the exact answers
    clipped to the bound, ``rescaled`` of the model with labels rescaled, and the labels of its training
    (``training_labels``). No rows without a finite bound, and none where prompts are rescaled already.
    """
    model, task = trained.model, trained.task
    centre, bound = (float(value[0]) for value in model.answer_bound())
    if model.rescaling is not None or not task.numeric or bound == float("inf"):
        return []
    rows, largest = list[Row](), 0.0
    labels = training_labels(trained.run.spec, trained.run.seed, bound)
    for spread in SPREADS:
        shift = {task.summary.axis: spread * task.training[task.summary.axis]}
        prompt = task.sample(stream(TEST_SEED, "bound"), PROMPTS, EXAMPLES, **shift)
        answers = _answers(model, task, prompt)
        largest = max(largest, float((answers - centre).abs().max()))
        numbers = {"bound": bound, "largest": largest, "error": _error(task, answers, prompt)}
        nearest = exact_within_bound(model, task)
        if nearest is not None:
            numbers["floor"] = _error(task, nearest(prompt), prompt)
        if isinstance(task, Rescalable) and "labels" in task.rescales:
            model.rescaling = task.rescaling("labels")
            numbers["rescaled"] = _error(task, _answers(model, task, prompt), prompt)
            model.rescaling = None
        if spread == SHOWN:  # one number a model, at the spread whose numbers claims read
            numbers |= labels
        where = {"attn": trained.label, "spread": spread}
        rows += [cell(metric, float(f"{value:.6g}"), PROMPTS, **where) for metric, value in numbers.items()]
    return rows


def training_labels(spec: RunSpec, seed: int, bound: float) -> dict[str, float]:
    """Numbers of the labels that a run was trained on, whose prompts are drawn again from its seed.

    ``labels``: how many there are; ``largest-label``: the largest in size; ``label-rms``: their root mean square under
    the training law; ``labels-beyond``: expected number beyond ``bound`` (``labels`` times ``share_beyond``);
    ``largest-possible``: the least upper bound of the law, left out where it is infinite. Empty without lines.
    """
    task = tasks.build(spec.task)
    if not isinstance(task, HasLines):
        return {}
    count, largest = 0, 0.0
    for step in range(spec.train.steps):
        asked = drawn(task, spec.train, seed, step).targets[:, task.answers]
        count, largest = count + asked.numel(), max(largest, float(asked.abs().max()))
    shift, limit = spec.train.shift, task.largest_label(**spec.train.shift)
    found = {"labels": float(count), "largest-label": largest, "label-rms": task.label_rms(**shift)}
    found["labels-beyond"] = count * task.share_beyond(bound, **shift)
    return found | ({"largest-possible": limit} if math.isfinite(limit) else {})


def _answers(model: GPT2, task: Task, prompt: Prompt) -> torch.Tensor:
    device = model.read_in.weight.device
    return torch.cat([model(piece.tokens.to(device)).cpu() for piece in prompt.pieces(128)])


def _error(task: Task, outputs: torch.Tensor, prompt: Prompt) -> float:
    return float(task.views(task.errors(outputs, prompt), prompt)[task.headline].mean())


def kept(found: StoredGrids) -> dict[str, dict[int, Model]]:
    """Label -> seed -> metric -> spread -> value; empty of a model without a bound, or of which nothing is kept."""
    made: dict[Any, Any] = {label: {seed: {} for seed in found.seeds_of(label)} for label in found.rules}
    grid = found.grids.get(GRID)
    for (label, seed, metric, spread), (value,) in grid.by("attn", "seed", "metric", "spread").items() if grid else ():
        made[label][seed].setdefault(metric, {})[spread] = value
    return made


def table(found: Findings) -> list[str]:
    """C and B of each model, and how much of its error far from training lies above C."""
    rows = []
    for label, seeds in kept(found).items():
        for seed, known in seeds.items():
            cells = ["none", *[""] * 6]
            if known:
                bound, largest = bound_and_largest(known)
                error, floor = known["error"][SHOWN], known["floor"][SHOWN]
                cells = [f"{bound:.2f}", f"{largest:.2f}", f"{largest / bound:.1%}", f"{error:.3g}", f"{floor:.3g}"]
                cells += [f"{floor / error:.0%}", f"{known['rescaled'][SHOWN]:.3g}" if "rescaled" in known else ""]
            rows.append(md.row([f"`{label}`", str(seed), *cells]))
    far = f"error at {tasks.build(found.spec.task).summary.axis} {SHOWN:g}"
    said = (
        "The final norm and the linear read-out bound every answer: |answer - c| <= C, for any prompt and any "
        "normalizer (docs/boundary.md). B: the largest |answer - c| on prompts whose functions are 1 to "
        f"{SPREADS[-1]:,.0f} times as wide as in training. Floor: the error of exact answers clipped to the bound, "
        "which no model with this C can go below; share: of the error. Rescaled: labels divided by the size of the "
        "first three, answers multiplied back, without training. none: no bound, since there is no final norm, or "
        "nothing is kept."
    )
    return [said, "", *md.head(["normalizer", "seed", "C", "B", "B/C", far, "floor", "share", "rescaled"]), *rows]


def bounded(found: StoredGrids) -> dict[str, list[Model]]:
    """The numbers of each model that has a bound, by label, one a seed: what the picture draws."""
    made = {label: [numbers for numbers in seeds.values() if numbers] for label, seeds in kept(found).items()}
    return {label: numbers for label, numbers in made.items() if numbers}


def bound_and_largest(model: Model) -> tuple[float, float]:
    """C of a model, and its largest answer B."""
    return model["bound"][SHOWN], max(model["largest"].values())


def words(task: Task) -> tuple[str, str]:
    """Names of the spread of functions and of the error, for the axes of a picture."""
    return task.axis_words[task.summary.axis], task.metric_label(task.headline)


def sentence(found: Findings) -> str:
    """C beside B in words; empty where nothing is kept."""
    parts = []
    for label, seeds in bounded(found).items():
        known = [bound_and_largest(model) for model in seeds]
        bounds, shares = [bound for bound, _ in known], [100 * (largest / bound) for bound, largest in known]
        parts.append(f"`{label}` {_span(bounds)} ({_span(shares)} % of it reached)")
    return f"The final norm and the read-out bound all answers at C: {'; '.join(parts)}." if parts else ""


def _span(values: Sequence[float]) -> str:
    low, high = (f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def value(grid: Grid, label: str, seed: int, metric: str) -> float:
    """Number of a claim, of a metric in ``CLAIMED``: a logarithm but for ``reached``.

    ``label`` may be a number, ``reference:28``. Raises ``KeyError`` where the number is not kept.
    """
    number = constant(label)
    if number is None:
        cells = grid.where(attn=label, seed=seed).frame
        rows = cells[cells["spread"] == SHOWN]
        shown = {str(name): float(value) for name, value in zip(rows["metric"], rows["value"], strict=True)}
        largest = cells.loc[cells["metric"] == "largest", "value"].max()
        try:
            number = CLAIMED[metric](shown | {"largest": float(largest)})
        except KeyError as missing:
            raise KeyError(f"{metric} of {label}, seed {seed}: {missing.args[0]} is not kept") from None
    if metric == REACHED:
        return number
    if number <= 0:
        raise KeyError(f"{metric} of {label}, seed {seed}, is {number:g}, of which there is no ratio")
    return math.log(number)

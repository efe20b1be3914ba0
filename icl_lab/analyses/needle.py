"""Which heads attend to the needle: their score in every layer and head, and how trials end.

After Section 3.4 of Nakanishi 2025, arXiv 2501.19399.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.attention_rows import attention_rows, shares
from icl_lab.analyses.findings import cell, check_drawn
from icl_lab.analyses.frame import Analysis, Cells, Findings, Metric, Rows, StoredGrids, TrainedModel, option
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, Undefined
from icl_lab.base.grid import Grid
from icl_lab.comparison.given import Array
from icl_lab.comparison.statistics import draws, resampled
from icl_lab.figures import ranks
from icl_lab.figures.base import short
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import judged
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import Retrieval
from icl_lab.training.curriculum import LONGEST

TOP = 25  # heads that are shown, as in Figure 7 of arXiv 2501.19399
STRETCH = 8  # the usual test length, in training lengths: as in the paper
OUTCOMES = ("wrong", "first only", "all right")
LEAST_OUTCOME = {"found": len(OUTCOMES) - 1, "first": 1}  # that counts as a success, an index of OUTCOMES


@registry.add("needle")
@dataclass(frozen=True, kw_only=True)
class NeedleScores(Analysis):
    """Score every head by the attention that it pays to the needle.

    The needle score of a head is the share of its attention that falls on the needle's value symbols, read at the token
    where the first symbol of the answer is wanted. Needles lie at any depth. Each trial is told by its best head's
    score and its outcome: wrong, the first symbol only, or all right.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"heads": ("length", "layer", "head"), "trials": ("length", "trial")}
    needed: ClassVar[Sequence[str]] = ("trials",)
    title: ClassVar[str] = "attention to the needle"
    usual_task: ClassVar[str] = "needle"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "top": Metric("trials", mean=False, kind="share", constants=True),
        "best-head": Metric("heads", kind="share", constants=True),
        **dict.fromkeys(("found", "first", "auc"), Metric("trials", mean=False, kind="share", constants=True)),
    }

    length: int | None = option(None, "Tokens of a prompt.  [default: 8 training lengths]", least=1, most=LONGEST)
    trials: int = option(100, "Prompts.", least=2, most=100_000, names=("prompts",))

    def tokens(self, spec: RunSpec) -> int:
        """The length of the prompts."""
        return self.length or STRETCH * spec.train.longest

    def asks(self, spec: RunSpec) -> list[tuple[int, int]]:
        return [(self.trials, self.tokens(spec))]

    def beyond(self, spec: RunSpec) -> bool:
        return self.tokens(spec) > spec.train.longest

    def check(self, spec: RunSpec) -> None:
        task = tasks.require(tasks.build(spec.task), Retrieval)
        if not spec.model.attention:
            raise BadValue("a model without attention has no heads to score.")
        length = self.tokens(spec)
        task.check_length(length)
        check_drawn(spec, length)

    def measure(self, trained: TrainedModel) -> Rows:
        """Let the model look for needles at any depth, in prompts that all models share."""
        length = self.tokens(trained.spec)
        prompt = trained.prompts(self.trials, {"length": length}).take(self.trials)
        scores, outcomes = retrieve(trained.model, tasks.require(trained.task, Retrieval), prompt, trained.lab.device)
        means, errors = scores.mean(0), scores.std(0) / len(scores) ** 0.5
        heads = [
            {"length": length, "layer": layer, "head": head, "metric": "needle-score"}
            | {"value": means[layer, head].item(), "stderr": errors[layer, head].item(), "count": len(scores)}
            for layer, head in np.ndindex(*means.shape)
        ]
        trials = [
            cell(metric, float(value), length=length, trial=trial)
            for trial, (top, outcome) in enumerate(zip(scores.amax((1, 2)).tolist(), outcomes.tolist(), strict=True))
            for metric, value in (("top", top), ("outcome", outcome))
        ]
        return {"heads": heads, "trials": trials}

    def table(self, found: Findings) -> list[str]:
        """The best heads of each normalizer, how trials ended, and the mean top score of each outcome."""
        lengths = ", ".join(f"{length:g}" for length in found["heads"].values("length"))
        text = [
            f"Prompts of {lengths} tokens, trained up to {found.spec.train.longest}. The needle score of a head is the "
            "share of its attention on the needle's value, read where the first symbol of the answer is wanted. The "
            "best head of a trial: mean over the trials that ended so.",
            "",
            *md.head(
                ["normalizer", "best heads (layer.head: score)", *OUTCOMES[::-1], "best head of a trial that ended so"]
            ),
        ]
        for rule in found.rules:
            best_heads = ", ".join(
                f"{layer}.{head} of seed {seed}: {short(score)}" for score, seed, layer, head in ranked(found, rule)[:3]
            )
            tops, ends = endings(found, rule)
            counts = [ends.count(outcome) for outcome in (2, 1, 0)]
            means = [[top for top, end in zip(tops, ends, strict=True) if end == outcome] for outcome in (2, 1, 0)]
            shown = ", ".join(short(sum(scores) / len(scores)) if scores else "none" for scores in means)
            text.append(md.row([f"`{rule}`", best_heads, *(f"{n} of {len(ends)}" for n in counts), shown]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The ranked heads of each normalizer, and the ranked trials with how they ended."""
        drawn = ranks.needles(
            {rule: [score for score, *_ in ranked(found, rule)[:TOP]] for rule in found.rules},
            {rule: endings(found, rule) for rule in found.rules},
            OUTCOMES,
            title=f"{title}, {found['heads'].values('length')[0]:g} tokens",
        )
        return {"needle": drawn}

    def finding(self, found: Findings) -> str:
        """The score of each normalizer's best head, and the share of trials that are all right."""
        shares_of = []
        for rule in found.rules:
            score, seed, layer, head = ranked(found, rule)[0]
            _, ends = endings(found, rule)
            right = f"{ends.count(2)} of {len(ends)} trials all right"
            shares_of.append(f"{short(score)} with {rule} (layer {layer}, head {head} of seed {seed}; {right})")
        lengths = md.listed(f"{length:g}" for length in found["heads"].values("length"))
        return f"In prompts of {lengths} tokens the best head gives the needle a share of {md.listed(shares_of)}."

    def value(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> float:
        """``best-head``: a head's greatest score; ``top`` (usual): mean over the trials' best; ``found``: share right.

        ``first``: share whose first symbol is right, the others or not. ``auc``: how well the best score of a trial
        separates those that are all right from the others, see ``auc``; ``reference:0.5`` is chance. Cells may
        name the length. Raises ``KeyError`` on another metric, and where all trials ended alike.
        """
        metric = metric or "top"
        if metric == "best-head" or self._constant(of, metric) is not None:
            return super().value(found, of, cells, metric, seed)
        tops, right = self._trials(found, of, cells, metric, seed)
        if metric == "auc":
            return auc(tops.flatten().tolist(), right.flatten().tolist())
        return float((tops if metric == "top" else right).mean())

    def on_resamples(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Array | None:
        """Values on resamples, of all metrics but ``best-head``, where the trials are kept."""
        metric = metric or "top"
        if self._constant(of, metric) is not None:
            return super().on_resamples(found, of, cells, metric, seed)
        if metric == "best-head" or "trials" not in found.grids:
            return None
        tops, right = self._trials(found, of, cells, metric, seed)
        if metric == "auc":
            return auc_on_resamples(tops, right)
        return np.asarray(resampled(tops if metric == "top" else right, seed=0).mean(axis=1))

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """Head that is best on these trials, for ``best-head``; None for numbers of single trials."""
        if metric != "best-head":
            return None
        heads = self.rows_of(found, of, metric, seed).where(**cells)
        return Grid(heads.frame.sort_values("value").tail(1))

    def _trials(
        self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Best scores of the trials (lengths trials), and which of them a metric counts as successes."""
        own = self.rows_of(found, of, metric, seed).where(**cells)
        tops, outcomes = (own.where(metric=kind).table("length", "trial").to_numpy() for kind in ("top", "outcome"))
        return tops, outcomes >= LEAST_OUTCOME.get(metric, LEAST_OUTCOME["found"])


def retrieve(model: GPT2, task: Retrieval, prompt: Prompt, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the needle score of every head (b l h), and outcomes (b): 0 wrong, 1 the first symbol only, 2 all right.

    Signed weights count by their size.
    """
    scores, outcomes = [], []
    for row in attention_rows(model, prompt, task.asking(prompt.tokens.shape[1]), device):
        where = task.value_places(row.prompt)[:, None, None].expand(*row.weights.shape[:3], -1)
        scores.append(shares(row.weights).gather(3, where).sum(3))
        right = judged(task, row.outputs, row.prompt) == 0
        outcomes.append(torch.where(right.all(1), 2, right[:, 0].long()))
    return torch.cat(scores), torch.cat(outcomes)


def auc(scores: Sequence[float], right: Sequence[bool]) -> float:
    """The area under the ROC curve of a score of successes: 0.5 is chance, 1 separates all.

    Formula: the share of pairs of a success and a failure in which the success scores more, a tie counting half

    Raises ``Undefined`` without a success or without a failure.
    """
    high = np.array([score for score, success in zip(scores, right, strict=True) if success])
    low = np.array([score for score, success in zip(scores, right, strict=True) if not success])
    if not len(high) or not len(low):
        raise Undefined(f"{len(high)} of {len(right)} trials are all right: the score has nothing to tell apart")
    return float(_above(high, low).mean())


def _above(high: Array, low: Array) -> Array:
    """Scores of successes and of failures -> for each pair 1 where the success scores more, 0.5 for a tie, 0 else."""
    return np.asarray((high[:, None] > low[None, :]) + 0.5 * (high[:, None] == low[None, :]))


def auc_on_resamples(scores: Array, right: NDArray[np.bool_]) -> Array:
    """Scores of trials (lengths trials), and which are successes -> ``auc`` over them all, on resamples of the trials.

    A resample without a success or without a failure takes the value of all trials.
    """
    lengths, trials = scores.shape
    drawn = np.repeat(np.vstack([np.ones(trials), draws(0, trials)])[:, None], lengths, axis=1)
    successes, failures = drawn[:, right], drawn[:, ~right]  # how often each is drawn, (1 + resamples, those)
    above = _above(scores[right], scores[~right])
    with np.errstate(invalid="ignore"):
        found = ((successes @ above) * failures).sum(axis=1) / (successes.sum(axis=1) * failures.sum(axis=1))
    return np.asarray(np.where(np.isnan(found), found[0], found))


def ranked(found: Findings, rule: str) -> list[tuple[float, int, int, int]]:
    """The heads of all seeds of a normalizer as (score, seed, layer, head), greatest score first."""
    frame = found["heads"].where(attn=rule).frame.sort_values("value", ascending=False)
    columns = (frame["value"], *(frame[name].astype(int) for name in ("seed", "layer", "head")))
    return list(zip(*columns, strict=True))


def endings(found: Findings, rule: str) -> tuple[list[float], list[int]]:
    """Top scores of all trials of a normalizer, greatest first, and how each ended (an index of OUTCOMES)."""
    frame = found["trials"].where(attn=rule).frame.pivot(index=["seed", "trial"], columns="metric", values="value")
    frame = frame.sort_values("top", ascending=False)
    return list(frame["top"]), [int(outcome) for outcome in frame["outcome"]]

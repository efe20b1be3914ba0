"""One number growing without bound: what it does to every head, and whether that is what spoils the answer.

The causal test puts the attention of the undisturbed prompt in the place of the disturbed one, head by head: the part
of the error that goes away is what the attention pattern caused; what stays came by another way (values, norms).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icl_lab.analyses.observe import entropy, looks, shares
from icl_lab.model.gpt2 import GPT2
from icl_lab.normalizers.base import Normalizer, causal
from icl_lab.runs.measure import Subject, predict, summary
from icl_lab.tasks.base import Prompt, Task

Row = dict[str, Any]
METRICS = ("largest", "effective", "distance", "deviant", "theory")
BEFORE, AFTER = 0.5, 0.9  # a head saturates where its largest weight climbs from below the one to above the other


@torch.no_grad()
def saturation(
    model: GPT2, task: Task, calm: Prompt, at: int, factors: Sequence[float], device: torch.device
) -> tuple[list[Row], list[Row]]:
    """Multiplies the number with index ``at`` by each factor; returns rows of heads, and rows of errors.

    Of each head, in the row that is asked last: its ``largest`` weight; ``effective`` keys exp(entropy); the total
    variation ``distance`` to its undisturbed row, sum |p - p0| / 2; the weight on the ``deviant`` example (number and
    answer); and by ``theory`` what the rule gives to one key whose score stands as far above n - 1 equal ones as the
    deviant's stands above the mean of the others. Errors are those of ``Task.disturbed``, and ``last``, of the last
    answer.
    """
    length = calm.tokens.shape[1] // task.roles
    row, first_token = task.asking(length), task.roles * at
    own = slice(first_token, first_token + task.roles)
    reader = Subject(lambda prompt: model(prompt.tokens.to(device)), bytes_of=model.bytes_a_prompt)
    before = task.errors(predict(reader, calm), calm)
    first = torch.cat([shares(look.weights) for look in looks(model, calm, row, device)])
    heads: list[Row] = []
    errors: list[Row] = []
    for factor in factors:
        stirred = task.deviate(calm, [at], factor)
        found: dict[str, list[Tensor]] = {metric: [] for metric in METRICS}
        seen = 0
        for look in looks(model, stirred, row, device):
            p, p0 = shares(look.weights), first[seen : seen + len(look.weights)]
            seen += len(p)
            gap = look.scores[..., own].amax(-1) - _others(look.scores, own).mean(-1)
            found["largest"].append(p.amax(-1))
            found["effective"].append(entropy(look.weights).exp())
            found["distance"].append((p - p0).abs().sum(-1) / 2)
            found["deviant"].append(p[..., own].sum(-1))
            found["theory"].append(
                torch.stack([_theory(rule, gap[:, layer], row + 1) for layer, rule in enumerate(model.rules)], 1)
            )
        for metric, pieces in found.items():
            values = torch.cat(pieces)
            for layer, head in np.ndindex(*values.shape[1:]):
                where = {"layer": layer, "head": head, "factor": factor, "metric": metric}
                heads.append(where | summary(values[:, layer, head]))
        after = task.errors(predict(reader, stirred), stirred)
        told = {"last": after[:, -1], **task.disturbed(before, after, stirred, [at])}
        errors += [{"factor": factor, "metric": metric} | summary(values) for metric, values in told.items()]
    return heads, errors


@torch.no_grad()
def patch(
    model: GPT2, task: Task, calm: Prompt, at: int, factor: float, device: torch.device
) -> tuple[float, float, list[Row]]:
    """Returns the mean error without and with the deviant, and that with the calm attention of single heads put back.

    Rows: ``layer`` and ``head`` (-1: all of them) with the ``recovered`` share of the error that the deviant caused,
    (E - E_patched) / (E - E_calm); 1 heals the model, 0 changes nothing, less makes it worse. E is the first metric of
    ``Task.disturbed``.
    """
    stirred = task.deviate(calm, [at], factor)
    kept: dict[int, Tensor] = {}

    def keep(layer: int, weights: Tensor, scores: Tensor) -> None:
        kept[layer] = weights

    untouched = task.errors(model(calm.tokens.to(device), keep).cpu(), calm)

    def error(prompt: Prompt, watch: Callable[[int, Tensor, Tensor], Tensor | None] | None = None) -> float:
        errors = task.errors(model(prompt.tokens.to(device), watch).cpu(), prompt)
        return summary(next(iter(task.disturbed(untouched, errors, prompt, [at]).values())))["value"]

    base, spoiled = error(calm), error(stirred)
    layers, heads = len(kept), kept[0].shape[1]
    single = [(layer, head) for layer in range(layers) for head in range(heads)]
    rows: list[Row] = []
    for layer, head in [*single, *((layer, -1) for layer in range(layers)), (-1, -1)]:

        def mend(there: int, weights: Tensor, scores: Tensor, layer: int = layer, head: int = head) -> Tensor | None:
            if layer not in (-1, there):
                return None
            if head == -1:
                return kept[there]
            mended = weights.clone()
            mended[:, head] = kept[there][:, head]
            return mended

        patched = error(stirred, mend)
        share = (spoiled - patched) / (spoiled - base) if spoiled != base else float("nan")
        rows.append({"layer": layer, "head": head, "factor": factor, "metric": "recovered", "value": share})
    return base, spoiled, rows


def point(factors: Sequence[float], largest: Sequence[float]) -> float:
    """The smallest factor at which a head's largest weight is above 0.9, if it was below 0.5 before; else NaN."""
    if largest[0] >= BEFORE:
        return float("nan")
    return next((factor for factor, weight in zip(factors, largest, strict=True) if weight > AFTER), float("nan"))


def _others(scores: Tensor, own: slice) -> Tensor:
    return torch.cat((scores[..., : own.start], scores[..., own.stop :]), -1)


@torch.no_grad()
def _theory(rule: Normalizer, gap: Tensor, n: int) -> Tensor:
    """Gaps (b h) -> the share of the first of n keys whose score is the gap, where all others are 0, (b h)."""
    b, h = gap.shape
    d = 2
    q, k = torch.zeros(b, h, n, d), torch.zeros(b, h, n, d)
    q[..., 0] = d**0.5
    k[:, :, 0, 0] = gap.float()
    device = next((p.device for p in rule.parameters()), torch.device("cpu"))
    weights = rule.weights(q.to(device), k.to(device), causal(n, device))[:, :, -1].cpu()
    return shares(weights)[..., 0]

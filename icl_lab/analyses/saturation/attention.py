"""Attention of every head, and errors, while one number of the prompt grows."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from icl_lab.analyses.attention_rows import attention_rows, entropy, head_rows, shares
from icl_lab.analyses.findings import Row
from icl_lab.model.gpt2 import GPT2
from icl_lab.normalizers.base import Normalizer, causal
from icl_lab.runs.measure import Subject, errors_of, judged, predict
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import Stretchable

METRICS = {
    "largest": "largest weight",
    "effective": "effective keys",
    "distance": "distance to the undisturbed weights",
    "deviant": "weight on the deviant",
    "theory": "weight by the normalizer's formula",
}
AGAINST = "deviant-against"  # of heads: the weight on the deviant in the prompts whose truth it speaks against
BEFORE, AFTER = 0.5, 0.9  # a head saturates where its largest weight climbs from below the one to above the other


@torch.no_grad()
def disturb(
    model: GPT2,
    task: Stretchable,
    undisturbed: Prompt,
    at: int,
    factors: Sequence[float],
    device: torch.device,
    tick: Callable[[int], object] = lambda done: None,
) -> tuple[list[Row], dict[float, dict[str, Tensor]]]:
    """Multiplies the number with index ``at`` by each factor; returns rows of heads, and by factor errors of prompts.

    Metrics of a head, at the token that is asked last: its ``largest`` weight; ``effective`` keys exp(entropy); the
    total variation ``distance`` to its weights p0 in the undisturbed prompt, sum |p - p0| / 2; the weight on the
    ``deviant`` example (number and answer), and ``deviant-against``, the same over the prompts in which the number says
    the opposite of the truth (``Stretchable.misleads``), if it can; and by ``theory`` the weight that the normalizer
    gives to one key whose score stands as far above n - 1 equal scores as the deviant's stands above the mean of the
    others. Errors are those of ``Stretchable.disturbed``, and ``last``, of the last answer, (b) or (b g); beside them
    what ``Stretchable.agreement`` tells.
    """
    length = undisturbed.tokens.shape[1] // task.roles
    row, first_token = task.asking(length), task.roles * at
    own = slice(first_token, first_token + task.roles)
    reader = Subject(lambda prompt: model(prompt.tokens.to(device)), bytes_of=model.bytes_a_prompt)
    before = errors_of(task, reader, undisturbed)
    first = torch.cat([shares(seen.weights) for seen in attention_rows(model, undisturbed, row, device)])
    heads: list[Row] = []
    errors: dict[float, dict[str, Tensor]] = {}
    for done, factor in enumerate(factors):
        disturbed = task.deviate(undisturbed, [at], factor)
        found: dict[str, list[Tensor]] = {metric: [] for metric in METRICS}
        prompts = 0
        for seen in attention_rows(model, disturbed, row, device):
            p, p0 = shares(seen.weights), first[prompts : prompts + len(seen.weights)]
            prompts += len(p)
            others = torch.cat((seen.scores[..., : own.start], seen.scores[..., own.stop :]), -1)
            gap = seen.scores[..., own].amax(-1) - others.mean(-1)
            found["largest"].append(p.amax(-1))
            found["effective"].append(entropy(seen.weights).exp())
            found["distance"].append((p - p0).abs().sum(-1) / 2)
            found["deviant"].append(p[..., own].sum(-1))
            found["theory"].append(
                torch.stack([_theory(rule, gap[:, layer], row + 1) for layer, rule in enumerate(model.rules)], 1)
            )
        measured = {metric: torch.cat(pieces) for metric, pieces in found.items()}
        against = task.misleads(undisturbed, at)
        if against is not None:
            measured[AGAINST] = measured["deviant"].where(against[:, None, None], torch.nan)
        heads += head_rows(measured, {"factor": factor})
        outputs = predict(reader, disturbed)
        after = judged(task, outputs, disturbed)
        errors[factor] = {"last": after[:, -1], **task.disturbed(before, after, disturbed, [at])}
        errors[factor] |= task.agreement(outputs, disturbed)
        tick(done + 1)
    return heads, errors


def saturation_point(factors: Sequence[float], largest: Sequence[float]) -> float:
    """The smallest factor at which a head's largest weight is above 0.9, if it is below 0.5 at the first; else NaN."""
    if largest[0] >= BEFORE:
        return float("nan")
    return next((factor for factor, weight in zip(factors, largest, strict=True) if weight > AFTER), float("nan"))


@torch.no_grad()
def _theory(rule: Normalizer, gap: Tensor, n: int) -> Tensor:
    """Gaps (b h) -> the share of the first of n keys whose score is the gap, where all others are 0, (b h).

    NaN where the normalizer reads the tokens: made-up scores have none.
    """
    if rule.reads_tokens == "weights":
        return torch.full_like(gap, torch.nan)
    b, h = gap.shape
    d = 2
    q, k = torch.zeros(b, h, n, d), torch.zeros(b, h, n, d)
    q[..., 0] = d**0.5
    k[:, :, 0, 0] = gap.float()
    device = next((p.device for p in rule.parameters()), torch.device("cpu"))
    weights = rule.weights(q.to(device), k.to(device), causal(n, device))[:, :, -1].cpu()
    return shares(weights)[..., 0]

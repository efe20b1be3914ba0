"""Measurements of one model: heads and errors while a number grows, and the share that undisturbed activations heal.

Activation patching (arXiv 2309.16042) puts undisturbed activations into a disturbed prompt: the part of the error that
goes away was caused by them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from icl_lab.analyses.attention_rows import attention_rows, entropy, head_rows, shares
from icl_lab.analyses.findings import Row, cell
from icl_lab.model.gpt2 import GPT2
from icl_lab.model.trace import Patch
from icl_lab.normalizers.base import Normalizer, causal
from icl_lab.runs.measure import Subject, errors_of, judged, predict, summary
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import Stretchable

ALL = -1  # the layer or the head of a row: all of them at once
AGAINST = "deviant-against"  # of heads: the weight on the deviant in the prompts whose truth it speaks against
METRICS = {
    "largest": "largest weight",
    "effective": "effective keys",
    "distance": "distance to the undisturbed weights",
    "deviant": "weight on the deviant",
    "theory": "weight by the normalizer's formula",
}
BY_LAYER = {  # put back in one layer, and in all
    "weights": "attention weights",
    "attention": "attention outputs",
    "mlp": "MLP outputs",
    "outputs": "attention and MLP outputs",
}
FROM_LAYER = {  # put back after one layer: earlier layers have read the disturbed prompt
    "input": "the input's own contribution, at the end",
    "residual": "the whole stream, at the end",
}
KINDS = BY_LAYER | FROM_LAYER
NORMS = {"attention": "last attention output", "mlp": "last MLP output", "stream": "residual stream at the end"}


@torch.no_grad()
def disturb(
    model: GPT2,
    task: Stretchable,
    calm: Prompt,
    at: int,
    factors: Sequence[float],
    device: torch.device,
    tick: Callable[[int], object] = lambda done: None,
) -> tuple[list[Row], dict[float, dict[str, Tensor]]]:
    """Multiply the number with index ``at`` by each factor; return rows of heads, and by factor errors of prompts.

    Metrics of a head, at the token that is asked last: its ``largest`` weight; ``effective`` keys exp(entropy); the
    total variation ``distance`` to its weights p0 in the undisturbed prompt, sum |p - p0| / 2; the weight on the
    ``deviant`` example (number and answer), and ``deviant-against``, the same over the prompts in which the number says
    the opposite of the truth (``Stretchable.misleads``), if it can; and by ``theory`` the weight that the normalizer
    gives to one key whose score is as far above n - 1 equal scores as the deviant's is above the mean of the others.
    Errors are those of ``Stretchable.disturbed``, ``last``, of the last answer, (b) or (b g), and the metrics of
    ``Stretchable.agreement``.
    """
    row, own = task.asking(calm.tokens.shape[1] // task.roles), slice(task.roles * at, task.roles * (at + 1))
    reader = Subject(lambda prompt: model(prompt.tokens.to(device)), bytes_of=model.bytes_a_prompt)
    before, against = errors_of(task, reader, calm), task.misleads(calm, at)

    def seen(prompt: Prompt) -> list[Tensor]:
        pieces = [(each.weights, each.scores) for each in attention_rows(model, prompt, row, device)]
        return [torch.cat(part) for part in zip(*pieces, strict=True)]

    p0, heads, errors = shares(seen(calm)[0]), list[Row](), dict[float, dict[str, Tensor]]()
    for done, factor in enumerate(factors, 1):
        wild = task.deviate(calm, [at], factor)
        w, z = seen(wild)
        p, others = shares(w), torch.cat((z[..., : own.start], z[..., own.stop :]), -1)
        gap = z[..., own].amax(-1) - others.mean(-1)
        found = {
            "largest": p.amax(-1),
            "effective": entropy(w).exp(),
            "distance": (p - p0).abs().sum(-1) / 2,
            "deviant": p[..., own].sum(-1),
            "theory": torch.stack([_theory(rule, gap[:, at], row + 1) for at, rule in enumerate(model.rules)], 1),
        }
        if against is not None:
            found[AGAINST] = found["deviant"].where(against[:, None, None], torch.nan)
        heads += head_rows(found, {"factor": factor})
        outputs = predict(reader, wild)
        after = judged(task, outputs, wild)
        errors[factor] = {"last": after[:, -1]} | task.disturbed(before, after, wild, [at])
        errors[factor] |= task.agreement(outputs, wild)
        tick(done)
    return heads, errors


@torch.no_grad()
def _theory(rule: Normalizer, gap: Tensor, n: int) -> Tensor:
    """Gaps (b h) -> the share of one of n keys, all other scores 0; NaN where the normalizer reads the tokens."""
    if rule.reads_tokens == "weights":
        return torch.full_like(gap, torch.nan)
    q, k = torch.zeros(2, *gap.shape, n, 2)
    q[..., 0], k[:, :, 0, 0] = 2**0.5, gap.float()
    device = next((p.device for p in rule.parameters()), torch.device("cpu"))
    return shares(rule.weights(q.to(device), k.to(device), causal(n, device))[:, :, -1].cpu())[..., 0]


def patch(model: GPT2, task: Stretchable, calm: Prompt, at: int, factor: float) -> tuple[list[Row], Tensor]:
    """Return the share of the added error that patching heads recovers, and the error left in each prompt.

    Formula: recovered = (E - E_patched) / (E - E_undisturbed), E the first metric of ``Stretchable.disturbed``

    A row for each ``layer`` and ``head``, for all heads of a layer, and for all heads (``ALL``). 1: without the
    deviant's error; 0: patching changes nothing; below 0: it makes the error greater; NaN: the deviant changed none.
    The error left is that with all heads patched, (b) or (b g).
    """
    wild, trace = task.deviate(calm, [at], factor), model.trace(calm, only=["*.weights", "answers"])
    before = judged(task, trace["answers"].cpu(), calm)

    def errors(prompt: Prompt, patch: Mapping[str, Patch] | None = None) -> Tensor:
        return next(iter(task.disturbed(before, _judged(model, task, prompt, patch), prompt, [at]).values()))

    without, spoiled = (summary(errors(prompt))["value"] for prompt in (calm, wild))
    layers, rows = range(len(model.blocks)), list[Row]()
    for layer, head in [*product(layers, range(model.spec.heads)), *((layer, ALL) for layer in layers), (ALL, ALL)]:
        names = [f"layers.{each}.weights" for each in layers if layer in (ALL, each)]
        where = (slice(None), slice(None) if head == ALL else head)
        left = errors(wild, {name: partial(_put, where, trace[name][where]) for name in names})
        share = _share(without, spoiled, summary(left)["value"])
        rows.append(cell("recovered", share, len(calm.tokens), layer=layer, head=head, factor=factor))
    return rows, left  # all heads came last


def healing(model: GPT2, task: Stretchable, calm: Prompt, at: int, factor: float) -> list[Row]:
    """Return, for the number with index ``at`` stretched, the share of the added error that each patch heals.

    Formula: healed = (E - E_patched) / (E - E_undisturbed), E the mean error of the last answer

    All patches are at the token that is asked last. ``weights-healed``: its attention weights are put back;
    ``attention-healed`` and ``mlp-healed``: the output of attention or MLP; ``outputs-healed``: both outputs. These in
    each layer, and in all (layer ``ALL``): with all outputs back, only the read-in's own part of the stream is still
    that of the stretched prompt. ``input-healed`` is the reverse: after a layer the read-in's contribution is put back,
    and the outputs of the layers stay. ``residual-healed``: the whole stream after a layer, which says nothing where
    the number is the query itself: no other token knows of it, so the share is 1. ``attention-norm``, ``mlp-norm``,
    ``stream-norm``: mean euclidean norms in the stretched prompt, unpatched.

    NaN where the stretch adds no error. Raises ``ValueError`` where the truth of the last answer changes with the
    stretch: the calm prompt's answer would be one to another question.
    """
    wild, token = task.deviate(calm, [at], factor), task.asking(calm.tokens.shape[1] // task.roles)
    if not torch.equal(wild.targets[:, token], calm.targets[:, token]):
        raise ValueError(f"{task.name}: the truth of the last answer changes with the number at index {at}.")
    before, after = (rows_at(model, prompt.tokens, token) for prompt in (calm, wild))

    def error(prompt: Prompt, patch: Mapping[str, Patch] | None = None) -> float:
        return summary(_judged(model, task, prompt, patch)[:, -1])["value"]

    layers, count, ends = range(len(model.blocks)), len(wild.tokens), (error(calm), error(wild))
    rows = [
        cell(f"{kind}-healed", _share(*ends, error(wild, made)), count, layer=layer, factor=factor)
        for kind in KINDS
        for layer in (*layers, *[ALL] * (kind in BY_LAYER))
        # Empty where the model does not have the part.
        if (made := patches(kind, layers if layer == ALL else [layer], token, before, after))
    ]
    for layer, name in product(layers, NORMS):
        values = after.get(f"layers.{layer}.{'after' if name == 'stream' else name}")
        if values is not None:
            norm = values.norm(dim=-1).mean().item()
            rows.append(cell(f"{name}-norm", norm, count, layer=layer, factor=factor))
    return rows


def rows_at(model: GPT2, tokens: Tensor, at: int) -> dict[str, Tensor]:
    """Tokens (b t w) -> the model's activations at token ``at``: (b d), and weights (b h t)."""
    trace = model.trace(tokens, only=["layers.0.before", "*.weights", "*.attention", "*.mlp", "*.after"])
    return {name: x[..., at, :].clone() for name, x in trace.items()}


def patches(
    kind: str, layers: Iterable[int], at: int, calm: Mapping[str, Tensor], wild: Mapping[str, Tensor]
) -> dict[str, Patch]:
    """Return the patches of activations at token ``at``, of a kind, in some layers."""
    where = (..., at, slice(None))
    if kind == "input":
        moved = calm["layers.0.before"] - wild["layers.0.before"]
        return {f"layers.{layer}.after": lambda x: _put(where, x[where] + moved, x) for layer in layers}
    parts = {"residual": ("after",), "outputs": ("attention", "mlp")}.get(kind, (kind,))
    names = [f"layers.{layer}.{part}" for part in parts for layer in layers]
    return {name: partial(_put, where, calm[name]) for name in names if name in calm}


def _judged(model: GPT2, task: Stretchable, prompt: Prompt, patch: Mapping[str, Patch] | None) -> Tensor:
    return judged(task, model.trace(prompt, patch or {}, only=["answers"])["answers"].cpu(), prompt)


def _share(without: float, spoiled: float, left: float) -> float:
    return (spoiled - left) / (spoiled - without) if spoiled != without else float("nan")


def _put(where: Any, value: Tensor, x: Tensor) -> Tensor:
    x[where] = value
    return x

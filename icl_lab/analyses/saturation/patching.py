"""Activation patching (arXiv 2309.16042): what the undisturbed prompt held is put in the place of the disturbed one.

Head by head: the part of the error that goes away is what the attention pattern caused; what stays came by another way
(values, norms). At the token that is asked last, part by part of the residual stream: where does a large number do its
harm?
"""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product

import torch
from torch import Tensor

from icl_lab.analyses.findings import Row, cell
from icl_lab.model.gpt2 import GPT2
from icl_lab.model.trace import Patch
from icl_lab.runs.measure import judged, summary
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import Stretchable


def patch(model: GPT2, task: Stretchable, undisturbed: Prompt, at: int, factor: float) -> tuple[list[Row], Tensor]:
    """Returns the share of the added error that patching heads recovers, and what is left of it in each prompt.

    Formula: recovered = (E - E_patched) / (E - E_undisturbed), E the first metric of ``Stretchable.disturbed``

    A row for each ``layer`` and ``head``, for all heads of a layer, and for all heads (``ALL``). 1: without the
    deviant's error; 0: patching changes nothing; below 0: it makes the error greater; NaN: the deviant changed none.
    What is left is the error with all heads patched, (b) or (b g).
    """
    disturbed = task.deviate(undisturbed, [at], factor)
    calm = model.trace(undisturbed, only=["*.weights", "answers"])
    before = judged(task, calm["answers"].cpu(), undisturbed)

    def errors(prompt: Prompt, patch: Mapping[str, Patch]) -> Tensor:
        after = judged(task, model.trace(prompt, patch, only=["answers"])["answers"].cpu(), prompt)
        return next(iter(task.disturbed(before, after, prompt, [at]).values()))

    without, spoiled = (summary(errors(prompt, {}))["value"] for prompt in (undisturbed, disturbed))
    layers, heads = range(len(model.blocks)), range(model.spec.heads)
    single = [(layer, head) for layer in layers for head in heads]
    rows: list[Row] = []
    for layer, head in [*single, *((layer, ALL) for layer in layers), (ALL, ALL)]:
        chosen = [f"layers.{each}.weights" for each in layers if layer in (ALL, each)]
        patched = errors(disturbed, {name: partial(_put_head, head, calm[name]) for name in chosen})
        left = summary(patched)["value"]
        share = (spoiled - left) / (spoiled - without) if spoiled != without else float("nan")
        rows.append(cell("recovered", share, len(undisturbed.tokens), layer=layer, head=head, factor=factor))
    return rows, patched  # all heads came last


ALL = -1  # the layer or the head of a row: all of them at once
BY_LAYER = {  # put back in one layer, and in all
    "weights": "attention weights",
    "attention": "attention outputs",
    "mlp": "MLP outputs",
    "outputs": "attention and MLP outputs",
}
FROM_LAYER = {  # put back after one layer: what was before has been read
    "input": "the input's own contribution, at the end",
    "residual": "the whole stream, at the end",
}
KINDS = BY_LAYER | FROM_LAYER
NORMS = {  # of a metric: the activation
    "attention": ("attention", "last attention output"),
    "mlp": ("mlp", "last MLP output"),
    "stream": ("after", "residual stream at the end"),
}


def rows_at(model: GPT2, tokens: Tensor, at: int) -> dict[str, Tensor]:
    """Lets the model read tokens (b t w); returns its activations at token ``at``: (b d), and weights (b h t)."""
    trace = model.trace(tokens, only=["layers.0.before", "*.weights", "*.attention", "*.mlp", "*.after"])
    return {name: x[..., at, :].clone() for name, x in trace.items()}


def healing(model: GPT2, task: Stretchable, undisturbed: Prompt, at: int, factor: float) -> list[Row]:
    """Returns, for the number with index ``at`` stretched, the share of the added error that each patch heals.

    Formula: healed = (E - E_patched) / (E - E_undisturbed), E the mean error of the last answer

    All patches are at the token that is asked last. ``weights-healed``: its attention weights are put back;
    ``attention-healed`` and ``mlp-healed``: what attention or MLP adds to the stream; ``outputs-healed``: what both
    add. These in each layer, and in all (layer ``ALL``): with all outputs back, only what the read-in itself put into
    the stream is still that of the stretched prompt. ``input-healed`` is the reverse: after a layer the read-in's
    contribution is put back, and what the layers have added stays. ``residual-healed``: the whole stream after a layer,
    which says nothing where the number is the query itself: no other token knows of it, so the share is 1.
    ``attention-norm``, ``mlp-norm``, ``stream-norm``: mean euclidean norms in the stretched prompt, unpatched.

    NaN where the stretch adds no error. Raises ``ValueError`` where the truth of the last answer changes with the
    stretch: the calm prompt's answer would be one to another question.
    """
    disturbed = task.deviate(undisturbed, [at], factor)
    token = task.asking(undisturbed.tokens.shape[1] // task.roles)
    if not torch.equal(disturbed.targets[:, token], undisturbed.targets[:, token]):
        raise ValueError(f"{task.name}: the truth of the last answer changes with the number at index {at}.")
    calm, wild = (rows_at(model, prompt.tokens, token) for prompt in (undisturbed, disturbed))

    def error(prompt: Prompt, patch: Mapping[str, Patch]) -> float:
        outputs = model.trace(prompt, patch, only=["answers"])["answers"]
        return summary(judged(task, outputs.cpu(), prompt)[:, -1])["value"]

    without, spoiled = error(undisturbed, {}), error(disturbed, {})
    layers, rows, count = len(model.blocks), list[Row](), len(disturbed.tokens)
    for kind in KINDS:
        for layer in (*range(layers), *((ALL,) if kind in BY_LAYER else ())):
            patch = patches(kind, range(layers) if layer == ALL else [layer], token, calm, wild)
            if not patch:
                continue  # a part that the model does not have
            left = error(disturbed, patch)
            share = (spoiled - left) / (spoiled - without) if spoiled != without else float("nan")
            rows.append(cell(f"{kind}-healed", share, count, layer=layer, factor=factor))
    for layer, (name, (part, _)) in product(range(layers), NORMS.items()):
        if (values := wild.get(f"layers.{layer}.{part}")) is not None:
            norm = values.norm(dim=-1).mean().item()
            rows.append(cell(f"{name}-norm", norm, count, layer=layer, factor=factor))
    return rows


def patches(
    kind: str, layers: Iterable[int], at: int, calm: Mapping[str, Tensor], wild: Mapping[str, Tensor]
) -> dict[str, Patch]:
    """Returns what is put in the place of activations at token ``at`` for a kind of patch in some layers."""
    if kind == "input":
        moved = calm["layers.0.before"] - wild["layers.0.before"]
        return {f"layers.{layer}.after": partial(_add, at, moved) for layer in layers}
    parts = {"residual": ("after",), "outputs": ("attention", "mlp")}.get(kind, (kind,))
    names = [f"layers.{layer}.{part}" for part in parts for layer in layers]
    return {name: partial(_put, at, calm[name]) for name in names if name in calm}


def _put(at: int, row: Tensor, x: Tensor) -> Tensor:
    x[..., at, :] = row
    return x


def _add(at: int, row: Tensor, x: Tensor) -> Tensor:
    x[..., at, :] += row
    return x


def _put_head(head: int, weights: Tensor, x: Tensor) -> Tensor:
    chosen = slice(None) if head == ALL else head
    x[:, chosen] = weights[:, chosen]
    return x

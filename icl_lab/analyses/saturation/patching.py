"""Activation patching (arXiv 2309.16042): what the undisturbed prompt held is put in the place of the disturbed one.

Head by head: the part of the error that goes away is what the attention pattern caused; what stays came by another way
(values, norms). At the token that is asked last, part by part of the residual stream: where does a large number do its
harm?
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from icl_lab.analyses.findings import Row
from icl_lab.model.blocks import Block
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import judged, summary
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import Stretchable


@torch.no_grad()
def patch(
    model: GPT2, task: Stretchable, undisturbed: Prompt, at: int, factor: float, device: torch.device
) -> tuple[list[Row], Tensor]:
    """Returns the share of the added error that patching heads recovers, and what is left of it in each prompt.

    Formula: recovered = (E - E_patched) / (E - E_undisturbed), E the first metric of ``Stretchable.disturbed``

    A row for each ``layer`` and ``head``, for all heads of a layer, and for all heads (``ALL``). 1: without the
    deviant's error; 0: patching changes nothing; below 0: it makes the error greater; NaN: the deviant changed none.
    What is left is the error with all heads patched, (b) or (b g).
    """
    disturbed = task.deviate(undisturbed, [at], factor)
    kept: dict[int, Tensor] = {}

    def keep(layer: int, weights: Tensor, scores: Tensor) -> None:
        kept[layer] = weights

    before = judged(task, model(undisturbed.tokens.to(device), keep).cpu(), undisturbed)

    def errors(prompt: Prompt, watch: Callable[[int, Tensor, Tensor], Tensor | None] | None = None) -> Tensor:
        after = judged(task, model(prompt.tokens.to(device), watch).cpu(), prompt)
        return next(iter(task.disturbed(before, after, prompt, [at]).values()))

    without, spoiled = (summary(errors(prompt))["value"] for prompt in (undisturbed, disturbed))
    layers, heads = len(kept), kept[0].shape[1]
    single = [(layer, head) for layer in range(layers) for head in range(heads)]
    rows: list[Row] = []
    for layer, head in [*single, *((layer, ALL) for layer in range(layers)), (ALL, ALL)]:

        def replace(there: int, weights: Tensor, scores: Tensor, layer: int = layer, head: int = head) -> Tensor | None:
            if layer not in (ALL, there):
                return None
            if head == ALL:
                return kept[there]
            patched = weights.clone()
            patched[:, head] = kept[there][:, head]
            return patched

        patched = errors(disturbed, replace)
        left = summary(patched)["value"]
        share = (spoiled - left) / (spoiled - without) if spoiled != without else float("nan")
        row = {"layer": layer, "head": head, "factor": factor, "metric": "recovered", "value": share}
        rows.append({**row, "stderr": None, "count": len(undisturbed.tokens)})
    return rows, patched  # all heads came last


Part = tuple[str, int]  # what, and of which layer: attention and mlp are outputs, stream is what leaves the block
Change = Callable[[Tensor], Tensor]  # what a part holds at the token, (b d) -> what is put there
ALL = -1  # the layer or the head of a row: all of them at once
BY_LAYER = ("weights", "attention", "mlp", "outputs")  # put back in one layer, and in all
FROM_LAYER = ("input", "residual")  # put back after one layer: what was before has been read
KINDS = (*BY_LAYER, *FROM_LAYER)
NORMS = ("attention", "mlp", "stream")


@dataclass
class Held:
    """Activations at one token: outputs (b t c), input of the first block (b d), each part (b d)."""

    outputs: Tensor = field(default_factory=lambda: torch.empty(0))
    entry: Tensor = field(default_factory=lambda: torch.empty(0))
    parts: dict[Part, Tensor] = field(default_factory=dict)
    weights: dict[int, Tensor] = field(default_factory=dict)  # attention weights by layer, (b h t)


@torch.no_grad()
def held(
    model: GPT2,
    tokens: Tensor,
    at: int,
    changes: Mapping[Part, Change] | None = None,
    weights: Mapping[int, Tensor] | None = None,
) -> Held:
    """Lets the model read tokens (b t w), and returns what it held at token ``at``, what was put there included.

    ``changes`` says what is put in the place of a part, and ``weights`` (b h t) which attention weights of the token in
    the place of a layer's own.
    """
    found, wanted, rows = Held(), changes or {}, weights or {}

    def enter(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        found.entry = inputs[0][:, at].clone()

    def leave(part: Part) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            if part in wanted:
                output = output.clone()
                output[:, at] = wanted[part](output[:, at])
            found.parts[part] = output[:, at].clone()
            return output

        return hook

    def watch(layer: int, own: Tensor, scores: Tensor) -> Tensor | None:
        found.weights[layer] = own[:, :, at].clone()
        if layer not in rows:
            return None
        other = own.clone()
        other[:, :, at] = rows[layer]
        return other

    with ExitStack() as stack:
        stack.callback(model.blocks[0].register_forward_pre_hook(enter).remove)
        for part, module in _modules(model):
            stack.callback(module.register_forward_hook(leave(part)).remove)
        found.outputs = model(tokens, watch)
    return found


def _modules(model: GPT2) -> Iterator[tuple[Part, nn.Module]]:
    for layer, block in enumerate(model.blocks):
        made = cast(Block, block)
        for name, module in (("attention", made.attention), ("mlp", made.mlp), ("stream", made)):
            if module is not None:
                yield (name, layer), module


def healing(
    model: GPT2, task: Stretchable, undisturbed: Prompt, at: int, factor: float, device: torch.device
) -> list[Row]:
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
    tokens = disturbed.tokens.to(device)
    calm, wild = held(model, undisturbed.tokens.to(device), token), held(model, tokens, token)

    def error(outputs: Tensor, prompt: Prompt) -> float:
        return summary(judged(task, outputs.cpu(), prompt)[:, -1])["value"]

    without, spoiled = error(calm.outputs, undisturbed), error(wild.outputs, disturbed)
    layers, rows = len(model.blocks), []

    def row(metric: str, layer: int, value: float) -> Row:
        where = {"layer": layer, "factor": factor, "metric": metric, "value": value}
        return {**where, "stderr": None, "count": len(tokens)}

    for kind in KINDS:
        for layer in (*range(layers), *((ALL,) if kind in BY_LAYER else ())):
            changes, weights = patches(kind, range(layers) if layer == ALL else [layer], calm, wild)
            if not (changes or weights):
                continue  # a part that the model does not have
            left = error(held(model, tokens, token, changes, weights).outputs, disturbed)
            share = (spoiled - left) / (spoiled - without) if spoiled != without else float("nan")
            rows.append(row(f"{kind}-healed", layer, share))
    for (name, layer), values in wild.parts.items():
        rows.append(row(f"{name}-norm", layer, values.norm(dim=-1).mean().item()))
    return rows


def patches(kind: str, layers: Iterable[int], calm: Held, wild: Held) -> tuple[dict[Part, Change], dict[int, Tensor]]:
    """Returns what is to be put in the place of parts, and of attention weights, for a kind of patch in some layers."""
    if kind == "weights":
        return {}, {layer: calm.weights[layer] for layer in layers if layer in calm.weights}
    if kind == "input":
        return {("stream", layer): lambda x: x + (calm.entry - wild.entry) for layer in layers}, {}
    names = {"residual": ("stream",), "outputs": ("attention", "mlp")}.get(kind, (kind,))
    wanted = [(name, layer) for name in names for layer in layers if (name, layer) in calm.parts]
    return {part: lambda x, part=part: calm.parts[part] for part in wanted}, {}  # type: ignore[misc]

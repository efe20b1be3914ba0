"""Equivariance in the labels: labels times s ask for answers times s; which part of a model does not give them?

For y = a x + b a prompt whose functions are s times as wide as in training is one of training with its labels times s.
An exact predictor is equivariant, f(x, s y) = s f(x, y), so that its error there is its failure of equivariance.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any, ClassVar, Self, cast

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.findings import known, mean_rows
from icl_lab.analyses.frame import Analysis, Cells, Findings, Metric, Row, Rows, StoredGrids, TrainedModel, option
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, Undefined
from icl_lab.base.grid import Grid
from icl_lab.base.registry import require
from icl_lab.base.rescale import Rescaling
from icl_lab.figures import shares as pictures
from icl_lab.figures.base import short
from icl_lab.model.blocks import Block
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.floor import exact_within_bound
from icl_lab.runs.measure import predict
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Prompt, Task
from icl_lab.tasks.capabilities import Rescalable

PARTS = {  # metric of the share that a part removes: the part in words
    "read-in": "read-in",
    "norms": "norms before blocks",
    "attention-weights": "attention weights",
    "values": "values",
    "mlp": "MLPs",
    "read-out": "final norm and read-out",
}
ERRORS = {"failure": "failure of equivariance", "error": "error", "floor": "error that the bound C forces"}
SHOWN = (10.0, 100.0)  # the scales of the picture, or those next to them
LEAST = 1e-9  # a failure below this is rounding: it has no shares
AT_ONCE = 64  # prompts in a pass


@registry.add("equivariance")
@dataclass(frozen=True, kw_only=True)
class Equivariance(Analysis):
    """Multiply the labels of prompts: which part of a model keeps its answers from growing with them?

    With answers f, truth y, and means over prompts of training conditions and their scored answers:

    * ``failure``: mean (f(s y) - s f(y))^2 / mean (s y)^2, squared so that shares of it and errors compare;
    * ``error``: mean (f(s y) - s y)^2 / mean (s y)^2, 1 for answering 0; ``floor``: that of exact answers clipped to
      the bound C of the model, where it has one;
    * the name of a part: the share of the failure that goes away where this part alone is put right; ``all-but-`` with
      its name: where all others are; ``all``: where all are: 1, but for norms and gates within the attention.

    A part is put right by what it gives for y: the stream before the first block, the values and what MLPs add are
    taken s times, attention weights as they are. A norm divides by what it divides by for y, so that it is linear: the
    output of the final norm for y, s times, would be the answer itself. The biases of the value projection and of the
    read-out, and the shifts of norms, are taken s times. Where prompts are rescaled, s is what is left of it.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"equivariance": ("scale",)}
    title: ClassVar[str] = "answers to multiplied labels, part by part"
    usual_task: ClassVar[str] = "linear"
    metrics: ClassVar[Mapping[str, Metric]] = {
        **dict.fromkeys(ERRORS, Metric("equivariance", ("scale",), kind="ratio")),
        "error": Metric("equivariance", ("scale",), kind="ratio", baselines=True),
        **dict.fromkeys(
            (*PARTS, *(f"all-but-{part}" for part in PARTS), "all"), Metric("equivariance", ("scale",), constants=True)
        ),
    }

    scales: tuple[float, ...] = option(
        (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0), "What labels are multiplied by.", least=1e-6, most=1e6
    )
    prompts: int = option(256, "Test prompts.", least=2, most=100_000)

    def beyond(self, spec: RunSpec) -> bool:
        return True

    def check(self, spec: RunSpec) -> None:
        require(bool({*self.scales} - {1.0}), "labels are multiplied by scales other than 1", "none")
        task = tasks.build(spec.task)
        if not scales_with_labels(task):
            there = ", ".join(name for name in tasks.names() if scales_with_labels(tasks.build(name)))
            raise BadValue(f"the truth of {task.name} does not scale with its labels; tasks whose truth does: {there}.")

    def prepared(self, runs: Sequence[Run]) -> Self:
        return replace(self, scales=tuple(sorted({*map(float, self.scales)})))

    def measure(self, trained: TrainedModel) -> Rows:
        """Ask the model, whole and with parts put right, and with the first model the references."""
        model, prompt, rows = trained.model, trained.prompts(self.prompts), list[Row]()
        at, least = scored(model, trained.task, prompt), exact_within_bound(model, trained.task)
        for name, subject in trained.subjects().items():
            plain = predict(subject, prompt)[:, at, 0].double()
            for done, scale in enumerate(self.scales):
                far = multiplied(prompt, scale)
                answers, truth = predict(subject, far)[:, at, 0].double(), far.targets[:, at].double()
                off = {"error": answers - truth} | ({} if scale == 1 else {"failure": answers - scale * plain})
                if name == trained.label and least is not None:
                    off["floor"] = least(far)[:, at, 0].double() - truth
                squares = {metric: each.square().sum(1) for metric, each in off.items()}
                numbers = {metric: ratio(each, truth.square().sum(1)) for metric, each in squares.items()}
                if name == trained.label and scale != 1:
                    some = math.nan if numbers["failure"].mean() < LEAST else 1.0
                    left = failures(model, prompt, scale, at)
                    numbers |= {metric: some * (1 - ratio(each, squares["failure"])) for metric, each in left.items()}
                    trained.tick(done, len(self.scales))
                rows += mean_rows(numbers, attn=name, scale=scale)
        return {"equivariance": rows}

    def table(self, found: Findings) -> list[str]:
        """Errors by scale, then the share of the failure that each part removes, alone and where all others do."""
        means, two = _means(found), shown(found)
        scales = found["equivariance"].values("scale")
        text = [
            f"Labels of {self.prompts:,} prompts times s; squares relative to that of the truth, means over seeds.",
            "",
            *md.head(["normalizer", "of the answers", *(f"s = {scale:g}" for scale in scales)]),
        ]
        for metric, words in ERRORS.items():
            for name in [*found.rules, *found.references]:
                if (name, metric, two[0]) in means:
                    cells = [short(means.get((name, metric, scale), 0.0)) for scale in scales]
                    text.append(md.row([f"`{name}`", words, *cells]))
        scales = [scale for scale in scales if scale != 1]
        text += ["", "Share of the failure that goes away where a part is put right; below 0 the failure grows.", ""]
        last = f"all but it, s = {' and '.join(f'{scale:g}' for scale in two)}"
        text += md.head(["normalizer", "put right", *(f"s = {scale:g}" for scale in scales), last])
        for rule in found.rules:
            for part, words in {**PARTS, "all": "all of these"}.items():
                if (rule, part, two[0]) in means:
                    cells = [_share(means[rule, part, scale]) for scale in scales]
                    others = [_share(means[rule, f"all-but-{part}", scale]) for scale in two if part != "all"]
                    text.append(md.row([f"`{rule}`", words, *cells, ", ".join(others)]))
        return text

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """The share that each part alone removes, at two scales."""
        values = found["equivariance"].by("attn", "metric", "scale")
        there = {part: words for part, words in PARTS.items() if part in found["equivariance"].values("metric")}

        def shares(rule: str, scale: float) -> dict[str, list[float]]:
            return {words: known(values.get((rule, part, scale), ())) for part, words in there.items()}

        panels = {rule: {f"labels times {s:g}": shares(rule, s) for s in shown(found)} for rule in found.rules}
        label = "share of the failure of equivariance that goes away where this part alone is put right"
        return {"equivariance": pictures.bars(panels, list(there.values()), title=title, label=label)}

    def finding(self, found: Findings) -> str:
        """The failure at the first scale of the picture, and the part that removes most of it."""
        scale, means, said = shown(found)[0], _means(found), list[str]()
        for rule in found.rules:
            removed = {part: share for part in PARTS if (share := means.get((rule, part, scale), math.nan)) > 0}
            best = max(removed, key=lambda part: removed[part], default=None)
            part = f"with the {PARTS[best]} put right {removed[best]:.0%} less" if best else "no part alone removes any"
            said.append(f"{short(means[rule, 'failure', scale])} with {rule} ({part})")
        return f"With labels times {scale:g} the squared failure of equivariance is {md.listed(said)}."

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """Return the declared cells; raises ``Undefined`` where answers are equivariant."""
        own = super().cells_of(found, of, cells, metric, seed)
        values = cast(Grid, own).frame["value"]  # every metric is a mean of cells
        if values.isna().any() or (self.metric(metric).kind == "ratio" and (values <= 0).any()):
            raise Undefined("answers are equivariant there, so that there is no failure to compare or to share out")
        return own


def scales_with_labels(task: Task) -> bool:
    """True if answers are numbers and the truth is multiplied as the labels are."""
    return task.numeric and isinstance(task, Rescalable) and "labels" in task.rescales


def multiplied(prompt: Prompt, scale: float) -> Prompt:
    """Prompts x_1 y_1 x_2 y_2 .. (b t w) with labels and targets times ``scale``."""
    tokens = prompt.tokens.clone()
    tokens[:, 1::2] *= scale
    return Prompt(tokens, prompt.targets * scale, prompt.scored)


def scored(model: GPT2, task: Task, prompt: Prompt) -> list[int]:
    """Tokens of the answers that the headline counts; where prompts are rescaled, after the scale is known."""
    asked = task.asked(prompt.tokens.shape[1] // task.roles)
    start = model.rescaling(prompt.tokens[:1]).start if model.rescaling is not None else 0
    return [token for token in asked[task.scored_from :] or asked if token >= start]


def ratio(top: Tensor, bottom: Tensor) -> Tensor:
    """Values (b) whose mean is mean(top) / mean(bottom), and whose variance is that of the ratio to first order."""
    value = top.mean() / bottom.mean()
    return value + (top - value * bottom) / bottom.mean()


def parts_of(model: GPT2) -> dict[str, list[str | nn.Module]]:
    """Parts that a model has: the activations, norms and linear maps by which each is put right."""
    blocks = [cast(Block, block) for block in model.blocks]
    heads = {f"layers.{layer}.": block.attention for layer, block in enumerate(blocks) if block.attention is not None}
    found: dict[str, Sequence[str | nn.Module | None]] = {
        "read-in": ["layers.0.before"],
        "norms": [norm for block in blocks for norm in (block.before_attention, block.before_mlp)],
        "attention-weights": [f"{layer}weights" for layer in heads],
        "values": [*(f"{layer}v" for layer in heads), *(attention.project for attention in heads.values())],
        "mlp": [f"layers.{layer}.mlp" for layer, block in enumerate(blocks) if block.mlp is not None],
        "read-out": [model.norm, model.read_out],
    }
    kept = {name: [each for each in part if each and not isinstance(each, nn.Identity)] for name, part in found.items()}
    return {name: part for name, part in kept.items() if part}


@torch.no_grad()
def failures(model: GPT2, prompt: Prompt, scale: float, at: Sequence[int]) -> dict[str, Tensor]:
    """Squared failure (b), a sum over the answers at ``at``, with parts put right: each, all but each, and all.

    A pass reads b prompts and then the same with their labels multiplied, which take activations from the first.
    """
    parts = parts_of(model)
    sets = {name: [name] for name in parts} | {f"all-but-{name}": [n for n in parts if n != name] for name in parts}
    sets["all"] = list(parts)
    found: dict[str, list[Tensor]] = {metric: [] for metric in sets}
    rescaling: Rescaling | None = model.rescaling
    model.rescaling = None  # activations are those of the pass over rescaled tokens
    try:
        for piece in prompt.pieces(AT_ONCE):
            tokens = torch.cat((piece.tokens, multiplied(piece, scale).tokens)).to(model.read_out.weight)
            factor = torch.ones_like(tokens[:, :, :1])
            if rescaling is not None:
                tokens, factor, _ = rescaling(tokens)
            one, far = factor[:, :1].chunk(2)
            s = scale * one / far
            for metric, names in sets.items():
                own = [each for name in names for each in parts[name]]
                patch = {each: partial(_to_scale, s, each) for each in own if isinstance(each, str)}
                with ExitStack() as stack:
                    for module in own:
                        if isinstance(module, nn.Module):
                            stack.callback(module.register_forward_hook(partial(_linear, s)).remove)
                    answers = model.trace(tokens, patch, only=["answers"])["answers"] * factor
                plain, moved = answers[:, at, 0].double().cpu().chunk(2)
                found[metric].append((moved - scale * plain).square().sum(1))
    finally:
        model.rescaling = rescaling
    return {metric: torch.cat(values) for metric, values in found.items()}


def _to_scale(s: Tensor, name: str, x: Tensor) -> Tensor:
    """Activations (2b ..) of prompts and multiplied ones -> the first, and s (b 1 1) times them; weights unchanged."""
    plain, _ = x.chunk(2)
    return torch.cat((plain, plain if name.endswith("weights") else s.view(-1, *[1] * (x.ndim - 1)) * plain))


def _linear(s: Tensor, module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """For the multiplied prompts: biases times s (b 1 1), and norms with the divisor of the others."""
    plain, moved = output.chunk(2)
    bias = getattr(module, "bias", None)
    shift, grown = torch.zeros_like(s) if bias is None else bias, torch.ones_like(s)
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        x = inputs[0] - inputs[0].mean(-1, keepdim=True) if isinstance(module, nn.LayerNorm) else inputs[0]
        size, new = (x.square().mean(-1, keepdim=True) + cast(float, module.eps)).sqrt().chunk(2)
        grown = new / size
    return torch.cat((plain, (moved - shift) * grown + s * shift))


def shown(found: StoredGrids) -> list[float]:
    """The scales nearest to those that the picture is meant to show, in ascending order."""
    scales = [scale for scale in found["equivariance"].values("scale") if scale != 1]
    return sorted({min(scales, key=lambda scale: abs(math.log(scale / wanted))) for wanted in SHOWN})


def _means(found: StoredGrids) -> dict[tuple[Any, ...], float]:
    return {key: fmean(values) for key, values in found["equivariance"].by("attn", "metric", "scale").items()}


def _share(value: float) -> str:
    return "—" if math.isnan(value) else f"{value:z.2f}"

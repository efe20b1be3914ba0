"""Graphs of a model and of normalizers, as torch.export makes them, for a page that runs them in a browser.

A model is exported once, with a hole where each layer's attention weights are, and each normalizer by itself: any of
them then fits into the model. A graph is a list of core ATen operators; the numbers that it reads stand beside it.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from icl_lab import normalizers
from icl_lab.analyses.attention.live.graph import CHECKED, Inputs, NotExportable, OperatorGraph, pack, trace
from icl_lab.base.errors import LabError
from icl_lab.model.gpt2 import GPT2
from icl_lab.normalizers.base import Normalizer, causal, extra


@dataclass(frozen=True)
class LayerGraphs:
    """A normalizer in one layer: ``weights`` (x, q, k) -> w, and ``output`` (x, o) -> o where it changes its output."""

    weights: OperatorGraph
    output: OperatorGraph | None


@dataclass(frozen=True)
class Exported:
    """A model without its normalizer, the normalizer that it was trained with, and others at their start, by name."""

    spec: dict[str, int | None]
    size: int  # numbers of the model, those of normalizers apart
    trunk: OperatorGraph
    own: list[LayerGraphs]
    swaps: dict[str, list[LayerGraphs]]
    left_out: dict[str, str]  # normalizers without a graph, and why


def export_model(model: GPT2, swaps: Sequence[str] = (), tick: Callable[[int], object] = lambda done: None) -> Exported:
    """Export a model and the normalizers that may be put into it; ``tick`` gets the number of both that are done.

    Raises ``NotExportable`` where the model or its own normalizer has no graph.
    """
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    if model.rescaling is not None:
        raise NotExportable("the prompts are rescaled before the model reads them")
    if model.spec.mask == "full":
        raise NotExportable("the model sees both sides of a token (model.mask=full)")
    if model.positions.random:
        raise NotExportable("the model sets its tokens at places drawn at random")
    if model.positions.adds_to_scores:
        raise NotExportable("the position code adds to the scores")
    spec, reading = model.spec, model.reading
    site = {"heads": spec.heads, "head_dim": spec.width // spec.heads}
    own = export_normalizer(model.attn, model.rules, **site)
    trunk = _trunk(model)
    found: dict[str, list[LayerGraphs]] = {}
    left_out = {}
    for done, choice in enumerate(swaps, 1):
        tick(done)
        try:
            found[choice] = _at_start(choice, spec.layers, reading.train_tokens, **site)
        except (NotExportable, LabError) as why:  # or a normalizer that does not fit into the model
            left_out[choice] = str(why)
    held = {
        "layers": spec.layers,
        "heads": spec.heads,
        "reads": 1 if reading.vocabulary else reading.width,
        "outputs": reading.outputs,
        "roles": reading.roles,
        "vocabulary": reading.vocabulary,
        "limit": model.positions.limit,
    }
    return Exported(held, sum(math.prod(shape) for shape in trunk.shapes), trunk, own, found, left_out)


@cache
def _at_start(choice: str, layers: int, train_tokens: int, heads: int, head_dim: int) -> list[LayerGraphs]:
    rules = normalizers.build_layers(choice, layers=layers, heads=heads, head_dim=head_dim, train_tokens=train_tokens)
    rules = rules.eval().requires_grad_(False)
    return export_normalizer(choice, [cast(Normalizer, rule) for rule in rules], heads, head_dim)


def export_normalizer(choice: str, rules: Sequence[Normalizer], heads: int, head_dim: int) -> list[LayerGraphs]:
    """Export a normalizer in each layer; layers that differ in their tensors alone share a graph.

    Raises ``NotExportable``.
    """
    what, found = f"the normalizer '{choice}'", []
    examples = (lambda t: _drawn(t, heads, head_dim)[:3], lambda t: _drawn(t, heads, head_dim)[::3])  # x, q, k; x, o
    programs: list[tuple[list[Any], list[ExportedProgram]]] = []
    for rule in rules:
        parts = (Weights(rule), Output(rule)) if rule.finishes else (Weights(rule),)
        constants = [_constants(part) for part in rule.modules()]
        made = next((made for known, made in programs if known == constants), None)
        if made is None:
            made = [trace(part, what, example) for part, example in zip(parts, examples, strict=False)]
            programs.append((constants, made))
        weights, *output = (pack(program, part, what) for program, part in zip(made, parts, strict=True))
        found.append(LayerGraphs(weights, output[0] if output else None))
    return found


def _constants(part: nn.Module) -> list[Any]:
    """Constants that tracing writes into a graph: the class of a module, and its attributes other than parameters."""
    own = {name: value for name, value in vars(part).items() if name not in vars(nn.Module())}
    return [type(part), {name: value.tolist() if isinstance(value, Tensor) else value for name, value in own.items()}]


def _trunk(model: GPT2) -> OperatorGraph:
    words, width, limit = model.reading.vocabulary, model.reading.width, model.positions.limit
    if limit is not None and limit < CHECKED:
        raise NotExportable(f"its position code tells only {limit} tokens apart")

    def example(t: int) -> Inputs:
        rng = torch.Generator().manual_seed(t)
        return (torch.randint(words, (1, t), generator=rng) if words else torch.randn(1, t, width, generator=rng),)

    trunk = Trunk(model)
    return pack(trace(trunk, "the model", example, limit), trunk, "the model")


class Trunk(nn.Module):
    """Tokens (1 t w) -> answers (1 t c), and the scores of each layer (1 h t t); the normalizers of ``model`` give way
    to holes.
    """

    varying = (1,)  # the dimension of each input that is t

    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.model = model
        for layer, block in enumerate(self.model.blocks):
            cast(Any, block).attention.rule = Hole(layer)

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Return the answers, then the scores of each layer."""
        scores: list[Tensor] = []
        answers = self.model(tokens, lambda layer, w, z: scores.append(z))
        return answers, *scores


@torch.library.custom_op("icl_lab::weights", mutates_args=())
def _weights(x: Tensor, q: Tensor, k: Tensor, layer: int) -> Tensor:
    return q @ k.transpose(-1, -2)


@torch.library.custom_op("icl_lab::output", mutates_args=())
def _output(x: Tensor, o: Tensor, layer: int) -> Tensor:
    return o.clone()


_weights.register_fake(lambda x, q, k, layer: q @ k.transpose(-1, -2))
_output.register_fake(lambda x, o, layer: torch.empty_like(o))


class Hole(Normalizer):
    """Two operators that the page fills with the graphs of any normalizer; here they weigh by the plain products."""

    reads_tokens = "weights"

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer

    def weights(
        self, q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        """Operator that the page replaces by the weights of this layer."""
        return cast(Tensor, _weights(self.tokens(x), q, k, self.layer))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        """Sum of values by these weights, finished."""
        return self.output(self.weights(q, k, visible, bias, x) @ v, x)

    def output(self, o: Tensor, x: Tensor | None = None) -> Tensor:
        """Operator that the page replaces by the normalizer's own ``output``."""
        return cast(Tensor, _output(self.tokens(x), o, self.layer))


class Weights(nn.Module):
    """Tokens x (1 t w), queries and keys (1 h t d) -> attention weights (1 h t t), under the causal mask."""

    varying = (1, 2, 2)

    def __init__(self, rule: Normalizer) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """The weights."""
        return self.rule.weights(q, k, causal(q.shape[2], q.device), **extra(self.rule, None, x))


class Output(nn.Module):
    """Tokens x (1 t w) and sums of values o (1 h t d) -> what the normalizer makes of them (1 h t d)."""

    varying = (1, 2)

    def __init__(self, rule: Normalizer) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, x: Tensor, o: Tensor) -> Tensor:
        """The finished output."""
        return self.rule.output(o, **extra(self.rule, None, x))


def _drawn(t: int, heads: int, head_dim: int) -> Inputs:
    rng = torch.Generator().manual_seed(t)
    return torch.randn(1, t, heads * head_dim, generator=rng), *torch.randn(3, 1, heads, t, head_dim, generator=rng)

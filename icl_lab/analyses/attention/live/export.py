"""Graphs of a model and of normalizers, as torch.export makes them, for a page that runs them in a browser.

A model is exported once, with a hole where each layer's attention weights are, and each normalizer by itself: any of
them then fits into the model. A graph is a list of core ATen operators; the numbers that it reads stand beside it.
"""

import base64
import copy
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node

from icl_lab import normalizers
from icl_lab.errors import LabError
from icl_lab.model.gpt2 import GPT2
from icl_lab.normalizers.base import Normalizer, causal
from icl_lab.normalizers.contextual import Contextual, told

LEAST = 3  # tokens that torch promises a graph for; shorter prompts run on the same graphs (tests hold one and two)
TRACED, CHECKED = 11, 17  # tokens of the example that is traced, and of the one that the graph is checked on
IGNORED = (
    "device",
    "pin_memory",
    "layout",
    "memory_format",
    "dtype",
)  # a browser has one memory and one kind of number
INTERPRETER = Path(__file__).with_name("interpreter.js")

Inputs = tuple[Tensor, ...]


class NotExportable(Exception):
    """A part of a model has no graph that the page can run; the text is the end of a sentence."""


@dataclass(frozen=True)
class Graph:
    """Operators as JSON; and of the tensors that they read the shapes, and the numbers in base64 (single precision)."""

    nodes: list[list[object]]
    shapes: list[list[int]]
    numbers: str


@dataclass(frozen=True)
class LayerGraphs:
    """A normalizer in one layer: ``weights`` (x, q, k) -> w, and ``output`` (x, o) -> o where it changes its output."""

    weights: Graph
    output: Graph | None


@dataclass(frozen=True)
class Exported:
    """A model without its normalizer, the normalizer that it was trained with, and others at their start, by name."""

    spec: dict[str, int | None]
    size: int  # numbers of the model, those of normalizers apart
    trunk: Graph
    own: list[LayerGraphs]
    swaps: dict[str, list[LayerGraphs]]
    left_out: dict[str, str]  # normalizers without a graph, and why


def export(model: GPT2, swaps: Sequence[str] = (), tick: Callable[[int], object] = lambda done: None) -> Exported:
    """Exports a model and the normalizers that may be put into it; ``tick`` is told how many of both are done.

    Raises ``NotExportable`` where the model or its own normalizer has no graph.
    """
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    if model.rescaling is not None:
        raise NotExportable("the prompts are rescaled before the model reads them")
    if model.positions.random:
        raise NotExportable("the model sets its tokens at places drawn at random")
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
    """Exports a normalizer in each layer; layers that differ in their tensors alone share a graph.

    Raises ``NotExportable``.
    """
    what, found = f"the normalizer '{choice}'", []
    programs: list[tuple[list[Any], list[ExportedProgram]]] = []
    for rule in rules:
        parts = [Weights(rule), Output(rule)] if rule.finishes else [Weights(rule)]
        constants = [_constants(part) for part in rule.modules()]
        made = next((made for known, made in programs if known == constants), None)
        if made is None:
            made = [trace(part, what, lambda t, part=part: part.example(t, heads, head_dim)) for part in parts]
            programs.append((constants, made))
        weights, *output = (pack(program, part, what) for program, part in zip(made, parts, strict=True))
        found.append(LayerGraphs(weights, output[0] if output else None))
    return found


def _constants(part: nn.Module) -> list[Any]:
    """What tracing writes into a graph as it is: the class of a module, and its attributes that are no parameters."""
    own = {name: value for name, value in vars(part).items() if name not in vars(nn.Module())}
    return [type(part), {name: value.tolist() if isinstance(value, Tensor) else value for name, value in own.items()}]


def _trunk(model: GPT2) -> Graph:
    words, width, limit = model.reading.vocabulary, model.reading.width, model.positions.limit
    if limit is not None and limit < CHECKED:
        raise NotExportable(f"its position code tells only {limit} tokens apart")

    def example(t: int) -> Inputs:
        rng = torch.Generator().manual_seed(t)
        return (torch.randint(words, (1, t), generator=rng) if words else torch.randn(1, t, width, generator=rng),)

    trunk = Trunk(model)
    return pack(trace(trunk, "the model", example, limit), trunk, "the model")


class Trunk(nn.Module):
    """Tokens (1 t w) -> answers (1 t c), and the scores of each layer (1 h t t); each normalizer is a hole."""

    varying = (1,)  # the dimension of each input that is t

    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        for layer, block in enumerate(self.model.blocks):
            cast(Any, block).attention.rule = Hole(layer)

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Returns the answers, then the scores of each layer."""
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


class Hole(Contextual):
    """Two operators that the page fills with the graphs of any normalizer; here they weigh by the plain products."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer

    def weights_of(self, x: Tensor, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        """Asks for the weights of this layer."""
        return _weights(x, q, k, self.layer)

    def output_of(self, x: Tensor, o: Tensor) -> Tensor:
        """Asks what the normalizer makes of the sums of values."""
        return _output(x, o, self.layer)


class Weights(nn.Module):
    """Tokens x (1 t w), queries and keys (1 h t d) -> attention weights (1 h t t), under the causal mask."""

    varying = (1, 2, 2)

    def __init__(self, rule: Normalizer) -> None:
        super().__init__()
        self.rule = rule

    def example(self, t: int, heads: int, head_dim: int) -> Inputs:
        """Random inputs of t tokens."""
        x, q, k, _ = _drawn(t, heads, head_dim)
        return x, q, k

    def forward(self, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """The weights."""
        return told(self.rule, x).weights(q, k, causal(q.shape[2], q.device))


class Output(nn.Module):
    """Tokens x (1 t w) and sums of values o (1 h t d) -> what the normalizer makes of them (1 h t d)."""

    varying = (1, 2)

    def __init__(self, rule: Normalizer) -> None:
        super().__init__()
        self.rule = rule

    def example(self, t: int, heads: int, head_dim: int) -> Inputs:
        """Random inputs of t tokens."""
        x, *_, o = _drawn(t, heads, head_dim)
        return x, o

    def forward(self, x: Tensor, o: Tensor) -> Tensor:
        """The finished output."""
        return told(self.rule, x).output(o)


def _drawn(t: int, heads: int, head_dim: int) -> Inputs:
    rng = torch.Generator().manual_seed(t)
    return torch.randn(1, t, heads * head_dim, generator=rng), *torch.randn(3, 1, heads, t, head_dim, generator=rng)


@torch.no_grad()
def trace(
    part: Trunk | Weights | Output, what: str, example: Callable[[int], Inputs], limit: int | None = None
) -> ExportedProgram:
    """Exports a module with a length that varies, and checks the graph at another length than was traced."""
    length = Dim("t", min=LEAST, max=limit)
    sizes = tuple({dim: length} for dim in part.varying)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about its own parts
            program = torch.export.export(part, example(TRACED), dynamic_shapes=sizes, strict=False)
            program = program.run_decompositions()
            found, wanted = program.module()(*example(CHECKED)), part(*example(CHECKED))
    except Exception as error:  # whatever torch, or code from outside, says to tracing: the page shows what is stored
        line = next(iter(str(error).strip().splitlines()), "")
        raise NotExportable(f"torch cannot export {what} as a graph ({type(error).__name__}: {line[:120]})") from error
    pairs = zip(*([each] if isinstance(each, Tensor) else each for each in (found, wanted)), strict=True)
    if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) for a, b in pairs):
        raise NotExportable(f"the exported graph of {what} computes something else than {what} itself")
    return program


def pack(program: ExportedProgram, part: nn.Module, what: str) -> Graph:
    """A graph with the numbers of ``part``, which may be another layer than the one that was exported."""
    signature, inputs = program.graph_signature, {}
    known = {**program.constants, **dict(part.named_parameters(remove_duplicate=False)), **dict(part.named_buffers())}
    for names in (
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        signature.inputs_to_lifted_tensor_constants,
    ):
        inputs |= {name: known[source] for name, source in names.items()}
    nodes: list[Any] = []
    at: dict[Node, int] = {}
    held = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            row = ["held", len(held)]
            held.append(inputs[node.name])
        elif node.op == "placeholder":
            row = ["given", list(signature.user_inputs).index(node.name)]
        elif node.op == "output":
            row = ["out", _plain(node.args[0], at)]
        elif (name := _name(node)) == "aten._assert_tensor_metadata":
            continue
        else:
            ignored = [key for key in IGNORED if (key, name) != ("dtype", "aten._to_copy")]
            words = {key: _plain(value, at) for key, value in node.kwargs.items() if key not in ignored}
            row = [name, _plain(node.args, at), *([words] if words else [])]
        at[node] = len(nodes)
        nodes.append(row)
    if missing := sorted({row[0] for row in nodes} - operators()):
        raise NotExportable(f"the page has no operator {', '.join(missing)}, which {what} asks for")
    raw = b"".join(part.detach().float().contiguous().numpy().astype("<f4").tobytes() for part in held)
    return Graph(nodes, [list(part.shape) for part in held], base64.b64encode(raw).decode())


def _name(node: Node) -> str:
    """``aten.add`` for every overload of it: the interpreter tells scalars from tensors by looking at them."""
    if isinstance(node.target, torch._ops.OpOverload):
        return f"{node.target.namespace}.{node.target._opname}"
    return f"py.{getattr(node.target, '__name__', node.target)}"


def _plain(value: Any, at: dict[Node, int]) -> Any:
    """An argument as JSON: {"n": i} is the result of node i, {"f": "inf"} a number that JSON cannot write."""
    if isinstance(value, Node):
        return {"n": at[value]}
    if isinstance(value, list | tuple):
        return [_plain(each, at) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"f": str(value)}
    return value if isinstance(value, int | float | str | None) else str(value)


@cache
def operators() -> frozenset[str]:
    """Names that interpreter.js can run."""
    text = INTERPRETER.read_text(encoding="utf-8")
    return frozenset(re.findall(r'"((?:aten|py)\.\w+)":', text)) | {
        "held",
        "given",
        "out",
        "icl_lab.weights",
        "icl_lab.output",
    }

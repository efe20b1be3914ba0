"""Graphs of torch.export as JSON, for the operators that interpreter.js can run."""

import base64
import io
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node

LEAST = 3  # tokens that torch promises a graph for; shorter prompts run on the same graphs (tests hold one and two)
TRACED, CHECKED = 11, 17  # tokens of the example that is traced, and of the one that the graph is checked on
IGNORED = {"device", "pin_memory", "layout", "memory_format", "dtype"}  # a browser has one memory, one kind of number
INTERPRETER = Path(__file__).with_name("interpreter.js")
PLACES = {"held", "given", "out"}  # nodes that are no operators: a tensor of the graph, an input, the outputs
HOLES = {"icl_lab.weights", "icl_lab.output"}  # operators that model.js fills

Inputs = tuple[Tensor, ...]


class NotExportable(Exception):
    """A part of a model has no graph that the page can run; the text is the end of a sentence."""


@dataclass(frozen=True)
class OperatorGraph:
    """Operators as JSON; and of the tensors that they read the shapes, and the numbers in base64 (single precision)."""

    nodes: list[list[object]]
    shapes: list[list[int]]
    numbers: str


@torch.no_grad()
def trace(part: nn.Module, what: str, example: Callable[[int], Inputs], limit: int | None = None) -> ExportedProgram:
    """Export a module with a length that varies, and checks the graph at another length than was traced.

    ``part.varying`` is the dimension of each input that is the length; ``example`` makes inputs of a length. Raises
    ``NotExportable``, about ``what``.
    """
    length = Dim("t", min=LEAST, max=limit)
    sizes = tuple({dim: length} for dim in cast(tuple[int, ...], part.varying))
    try:
        with _quiet():
            program = torch.export.export(part, example(TRACED), dynamic_shapes=sizes, strict=False)
            program = program.run_decompositions()
            computed, expected = program.module()(*example(CHECKED)), part(*example(CHECKED))
    except Exception as error:  # whatever torch, or code from outside, says to tracing: the page shows what is stored
        # By its name: the module of the class imports sympy, which takes a quarter of a second of every command.
        if type(error).__name__ == "GuardOnDataDependentSymNode":
            raise NotExportable(f"{what} decides by its own numbers, which no graph can") from error
        line = next(iter(str(error).strip().splitlines()), "")
        raise NotExportable(f"torch cannot export {what} as a graph ({type(error).__name__}: {line[:120]})") from error
    pairs = zip(*([each] if isinstance(each, Tensor) else each for each in (computed, expected)), strict=True)
    if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) for a, b in pairs):
        raise NotExportable(f"the exported graph of {what} computes something else than {what} itself")
    return cast(ExportedProgram, program)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back the output of torch on its internals, and the graphs that it prints where it fails."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def pack(program: ExportedProgram, part: nn.Module, what: str) -> OperatorGraph:
    """Write a graph with the numbers of ``part``, which may be another layer than the one that was exported.

    Raises ``NotExportable`` where it needs an operator that the interpreter lacks.
    """
    signature = program.graph_signature
    inputs: dict[str, Tensor] = {}
    known = {**program.constants, **dict(part.named_parameters(remove_duplicate=False)), **dict(part.named_buffers())}
    for names in (
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        signature.inputs_to_lifted_tensor_constants,
    ):
        inputs |= {name: known[source] for name, source in names.items()}
    nodes: list[Any] = []
    at: dict[Node, int] = {}
    held: list[Tensor] = []
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
            ignored = IGNORED - ({"dtype"} if name == "aten._to_copy" else set())
            words = {key: _plain(value, at) for key, value in node.kwargs.items() if key not in ignored}
            row = [name, _plain(node.args, at), *([words] if words else [])]
        at[node] = len(nodes)
        nodes.append(row)
    if missing := sorted({row[0] for row in nodes} - operators()):
        raise NotExportable(f"the page has no operator {', '.join(missing)}, which {what} asks for")
    raw = b"".join(part.detach().float().contiguous().numpy().astype("<f4").tobytes() for part in held)
    return OperatorGraph(nodes, [list(part.shape) for part in held], base64.b64encode(raw).decode())


def _name(node: Node) -> str:
    """``aten.add`` for every overload of it: the interpreter distinguishes scalars from tensors by looking at them."""
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
    return frozenset(re.findall(r'"((?:aten|py)\.\w+)":', text)) | PLACES | HOLES

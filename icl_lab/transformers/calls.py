"""Check that a pass of a model calls the normalizers that are installed in it: else it is another model.

Other libraries replace attention layers or the attention implementation, and softmax's numbers would come out without a
word (TransformerLens' bridge does so).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from icl_lab.base.errors import LabError
from icl_lab.transformers.attention import CALLED, NAME

WATCHED = "attention_rule_layers"  # attribute of the base model: its layers with a normalizer, by name
ADVICE = "this pass is not the model that was asked for. Wrap the model in no library that brings its own attention."


def watch(base: nn.Module, layers: Mapping[str, nn.Module]) -> list[RemovableHandle]:
    """Make a base model raise after a pass in which one of these layers did not call its normalizer.

    A layer that a pass leaves out, as layer drop does, is not a fault, unless all are or another replaces it.
    """
    base.__dict__[WATCHED] = dict(layers)
    handles = [base.register_forward_pre_hook(_begin), base.register_forward_hook(_end)]
    return handles + [layer.register_forward_hook(_layer_end) for layer in layers.values()]


@contextmanager
def unwatched(base: nn.Module) -> Iterator[None]:
    """Within, passes may use another attention implementation."""
    layers = base.__dict__.get(WATCHED)
    if layers is None:
        yield
        return
    for layer in layers.values():
        setattr(layer, CALLED, True)  # which the beginning of a pass takes back, of the layers that it knows
    try:
        base.__dict__[WATCHED] = {}
        yield
    finally:
        base.__dict__[WATCHED] = layers


def _begin(base: nn.Module, given: tuple[Any, ...]) -> None:
    for layer in base.__dict__[WATCHED].values():
        setattr(layer, CALLED, False)


def _layer_end(layer: nn.Module, given: tuple[Any, ...], output: Any) -> None:
    if not getattr(layer, CALLED, False):
        raise LabError(f"{type(layer).__name__} did not call its normalizer, {_reason(layer)}: {ADVICE}")


def _end(base: nn.Module, given: tuple[Any, ...], output: Any) -> None:
    layers = base.__dict__[WATCHED]
    left_out = [name for name, layer in layers.items() if not getattr(layer, CALLED)]
    if not left_out:
        return
    now = {name: module for name, module in base.named_modules() if name in layers}
    replaced = [name for name in left_out if now.get(name) is not layers[name]]
    if replaced or len(left_out) == len(layers):
        why = (
            f"{replaced[0]} is {type(now[replaced[0]]).__name__ if replaced[0] in now else 'no module'} now"
            if replaced
            else _reason(base)
        )
        raise LabError(f"the normalizers of {', '.join(replaced or left_out)} were not called, {why}: {ADVICE}")


def _reason(module: nn.Module) -> str:
    name = getattr(getattr(module, "config", None), "_attn_implementation", NAME)
    return "its own code has attention of another kind" if name == NAME else f"the attention implementation is '{name}'"

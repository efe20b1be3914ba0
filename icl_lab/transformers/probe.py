"""Attention layers of a model, found by one forward pass on a few tokens, which checks the code path too."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from logging import ERROR
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.utils import logging

from icl_lab import normalizers
from icl_lab.base.errors import BadValue, LabError, first_line
from icl_lab.transformers.attention import serve, visible_mask
from icl_lab.transformers.calls import unwatched

NAME = "icl_lab_probe"
TOKENS = 5


@dataclass(frozen=True)
class Layer:
    """An attention layer as it was met: its name within the base model, its module, query heads and their width."""

    name: str
    module: nn.Module
    heads: int
    head_dim: int


_met: ContextVar[dict[nn.Module, tuple[int, int]]] = ContextVar("attention layers met")


def layers(model: PreTrainedModel, before: str) -> list[Layer]:
    """Return the attention layers of a model in the order in which they are called.

    ``before`` is the implementation that the model has without a normalizer.

    Raises ``LabError`` where there are none that ask the attention interface, and where softmax by this road is not
    what the model computes by its own: then it does something there that a normalizer would lose.
    """
    kind = type(model).__name__
    found: dict[nn.Module, tuple[int, int]] = {}
    mark, after = _met.set(found), model.config._attn_implementation
    try:
        with _at_rest(model), unwatched(model.base_model):
            use(model, before)
            own = _outputs(model)
            use(model, NAME)
            ours = _outputs(model)
    finally:
        use(model, after)
        _met.reset(mark)
    if not found:
        raise BadValue(
            f"{kind} does not ask the attention interface of transformers, so no normalizer can be put into it."
        )
    off = float((ours - own).abs().max() / own.abs().max().clamp(min=torch.finfo(own.dtype).tiny))
    if not off <= torch.finfo(own.dtype).eps ** 0.5:
        raise BadValue(
            f"{kind} does more in its attention than softmax of its scores (by this road it differs by {off:.1g}), and"
            " a normalizer would lose that: it cannot be served."
        )
    names = {module: name for name, module in model.base_model.named_modules()}
    return [Layer(names[module], module, *site) for module, site in found.items()]


def refuse_unsuited(model: nn.Module) -> None:
    """Raise ``LabError`` for a model of which it is known beforehand that no normalizer can be put into it."""
    kind = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        raise BadValue(f"{kind} is no model of transformers; put the normalizer in before the model is wrapped.")
    if model.config.is_encoder_decoder or getattr(model.config, "add_cross_attention", False):
        raise BadValue(f"{kind} has cross-attention, whose keys have no places among its queries: it cannot be served.")
    inside = {
        type(m).__name__ for m in model.modules() if isinstance(m, PreTrainedModel) and m.config is not model.config
    }
    if inside:
        raise BadValue(
            f"{kind} is made of several models ({', '.join(sorted(inside))}): put the normalizer into the one for text."
        )


def _listen(module: nn.Module, query: Tensor, *given: Any, **said: Any) -> tuple[Tensor, Tensor | None]:
    """Note who calls, and answer by softmax."""
    heads, head_dim = query.shape[1], query.shape[-1]
    _met.get()[module] = (heads, head_dim)
    softmax = normalizers.build("softmax", heads=heads, head_dim=head_dim, train_tokens=TOKENS)
    return serve(softmax, module, query, *given, **said)


def _outputs(model: PreTrainedModel) -> Tensor:
    """The base model's first output for a few token ids: a head may want more than those."""
    ids = torch.arange(TOKENS, device=model.device).unsqueeze(0) % getattr(model.config, "vocab_size", TOKENS)
    try:
        first: Tensor = model.base_model(input_ids=ids)[0]
    except LabError:
        raise
    except Exception as error:  # whatever a model raises that wants something else than text
        raise BadValue(f"{type(model).__name__} cannot be tried on {TOKENS} token ids: {first_line(error)}") from error
    return first


@contextmanager
def _at_rest(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients; each module goes back to the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def use(model: PreTrainedModel, name: str) -> None:
    """Set the attention implementation, past what an installed normalizer puts before it."""
    with quiet():  # of a model that cannot, there is one line later
        type(model).set_attn_implementation(model, name)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of transformers."""
    loudness = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(loudness)


AttentionInterface.register(NAME, _listen)
AttentionMaskInterface.register(NAME, visible_mask)

"""Attention function and mask function that transformers calls: the mask gives n, the layer holds the normalizer.

Axis letters: b prompts, h query heads, g key heads (each for h / g query heads), t_q queries, t_k keys, d head width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from icl_lab.base.errors import BadValue, LabError
from icl_lab.normalizers.base import Normalizer, causal, extra, is_causal

collector: Any
try:
    from transformers.utils.output_capturing import _active_collector as collector
except ImportError:  # another version: whether weights are asked for is not known, so they are always handed out
    collector = None

NAME = "icl_lab"  # of the attention function and of its mask function
RULE = "attention_rule"  # the submodule of an attention layer that holds the normalizer
READ = "attention_rule_tokens"  # attribute of a layer during a pass: the tokens, where its normalizer reads them
CALLED = "attention_rule_called"  # attribute of a layer: its normalizer was called in this pass of the model

# What other attention functions understand and a normalizer would drop: a cap on scores, a learned sink, an added bias,
# a choice of keys besides the mask, a paged cache.
REFUSED = ("softcap", "s_aux", "sinks", "position_bias", "indices", "block_indices", "cache")


def rules(model: nn.Module) -> dict[str, Normalizer]:
    """Return the normalizers of a model, by the names of their layers, in order."""
    parts = ((name.removesuffix(f".{RULE}"), part) for name, part in model.named_modules() if name.endswith(f".{RULE}"))
    return {name: part for name, part in parts if isinstance(part, Normalizer)}


def visible_mask(*, q_length: int, kv_length: int, allow_is_causal_skip: bool = True, **said: Any) -> Tensor:
    """Which keys each query sees, (b 1 t_q t_k) bool. Never None: without a mask nobody knows n.

    A mask that is plainly causal carries the mark by which normalizers know ``causal(t)``.
    """
    # The shortcut for a kernel's own is_causal finds that out. It reads the padding, which compiled code cannot do.
    find = allow_is_causal_skip and q_length == kv_length and not torch.compiler.is_compiling()
    said["allow_is_bidirectional_skip"] = False
    mask: Tensor | None = sdpa_mask(q_length=q_length, kv_length=kv_length, allow_is_causal_skip=find, **said)
    if mask is None:
        # A copy: were a model to write into its mask, all others would read that.
        mask = causal(q_length, said.get("device", "cpu")).clone().view(1, 1, q_length, kv_length)
        mask.causal = True  # type: ignore[attr-defined]
    return mask


def attention(module: nn.Module, *given: Any, **said: Any) -> tuple[Tensor, Tensor | None]:
    """The layer's normalizer on query (b h t_q d), key and value (b g t_k d) -> (b t_q h d), and weights if asked for.

    It is given what ``serve`` takes. Raises ``LabError`` where the layer has no normalizer, or gets an argument that
    normalizers do not know.
    """
    rule = getattr(module, RULE, None)
    if rule is None:
        raise LabError(
            f"{type(module).__name__} has no normalizer: read saved models by icl_lab.transformers.load, or put one"
            " in by icl_lab.transformers.install. Who makes a second model from this one's name (DPO does, without"
            " ref_model) is given a copy: ref_model=copy.deepcopy(model)."
        )
    setattr(module, CALLED, True)
    return serve(rule, module, *given, **said)


def listen(module: nn.Module) -> list[RemovableHandle]:
    """Make a layer keep its tokens (b t_q w) for the time of a pass: what its projections read, the first argument."""
    before = module.register_forward_pre_hook(_keep, with_kwargs=True)
    return [before, module.register_forward_hook(_forget, always_call=True)]


def _keep(module: nn.Module, given: tuple[Any, ...], said: dict[str, Any]) -> None:
    setattr(module, READ, said["hidden_states"] if "hidden_states" in said else given[0])


def _forget(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
    module.__dict__.pop(READ, None)


def serve(
    rule: Normalizer,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **said: Any,
) -> tuple[Tensor, Tensor | None]:
    """``attention`` by this normalizer."""
    told = [name for name in REFUSED if said.get(name) is not None]
    if told:
        raise BadValue(
            f"{type(module).__name__} passes {' and '.join(told)}, which no normalizer knows: it cannot be served."
        )
    visible = _visible(module, attention_mask, query.shape[-2], key.shape[-2], query.device)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    root = query.shape[-1] ** -0.5
    if scaling is not None and scaling != root:  # normalizers divide by sqrt(d) themselves
        query = query * (scaling / root)
    drops = dropout > 0 and module.training
    x = None if rule.reads_tokens == "no" else getattr(module, READ)
    more = extra(rule, None, x)
    if not drops and not _weights_wanted(said):
        return rule.attend(query, key, value, visible, **more).transpose(1, 2).contiguous(), None
    weights = rule.weights(query, key, visible, **more).to(value.dtype)
    if drops:
        weights = F.dropout(weights, dropout)
    return rule.output(weights @ value, **more).transpose(1, 2).contiguous(), weights


def _visible(module: nn.Module, mask: Tensor | None, t_q: int, t_k: int, device: torch.device) -> Tensor:
    """The mask as normalizers take it: ``causal(t)`` itself, or (b 1 t_q t_k) bool."""
    name = type(module).__name__
    if mask is None:
        raise BadValue(f"{name} passes no mask, so nobody knows how many keys a query sees: it cannot be served.")
    if mask.ndim != 4 or mask.shape[1] != 1 or tuple(mask.shape[-2:]) != (t_q, t_k):
        raise BadValue(
            f"{name} passes a mask of the shape {tuple(mask.shape)}, not (prompts, 1, {t_q}, {t_k}): not served."
        )
    if is_causal(mask):
        return causal(t_q, device)
    return mask if mask.dtype is torch.bool else _truth(name, mask)


def _truth(name: str, mask: Tensor) -> Tensor:
    """A mask to be added to scores as truth values. One that adds anything else than 0 or "never" is refused."""
    if not mask.is_floating_point():
        raise BadValue(f"{name} passes a mask of {mask.dtype}; a mask of four dimensions must be bool.")
    if torch.compiler.is_compiling():
        raise BadValue(f"{name} passes a mask of {mask.dtype}, which compiled code cannot check; pass one of bool.")
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    if not bool((hidden | (mask == 0)).all()):
        raise BadValue(
            f"{name} passes a mask that adds to the scores, which a normalizer would drop: it cannot be served."
        )
    return ~hidden


def _weights_wanted(said: dict[str, Any]) -> bool:
    """True if somebody asked for ``output_attentions``: by keyword, or by the hooks that collect outputs."""
    if said.get("output_attentions"):
        return True
    if collector is None:
        return True
    # Compiled code cannot read a context variable; the collector keeps a plain one for it.
    asked = collector.global_var if torch.compiler.is_compiling() else collector.get()
    return bool(asked) and any(what.endswith("attentions") for what in asked)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, visible_mask)

"""Adapters (LoRA and others of peft) that were trained in a model with a normalizer name it in their config."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from icl_lab.base.files import sha256
from icl_lab.transformers.attention import RULE
from icl_lab.transformers.folder import KEY

FILE = "adapter_config.json"
PARAMETERS = "parameters_sha256"  # of the normalizers, which an adapter's own file holds only if it trains them


def name_normalizer(model: PreTrainedModel, *_: Any) -> None:
    """Make the configs of a model's adapters write its normalizer; peft warns of keys that it does not know in them.

    A hook of its base model: a model is not notified when it gets an adapter.
    """
    for config in vars(model).get("peft_config", {}).values():
        if "to_dict" not in vars(config):
            config.to_dict = partial(_with_normalizer, config, model)


def parameters_sha256(model: nn.Module) -> str:
    """SHA-256, shortened, of the parameters of all normalizers of a model."""
    own = [p for name, p in model.named_parameters() if f".{RULE}." in name]
    data = b"".join(p.detach().cpu().double().contiguous().numpy().tobytes() for p in own)
    return sha256(data)[:16]


def same_normalizer(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two descriptions of normalizers, as configs hold them, are of the same."""
    return all(one[name] == other[name] for name in ("attn", "train_tokens", "layers"))


def _with_normalizer(config: Any, model: PreTrainedModel) -> dict[str, Any]:
    own: dict[str, Any] = type(config).to_dict(config)
    return {**own, KEY: {**getattr(model.config, KEY), PARAMETERS: parameters_sha256(model)}}

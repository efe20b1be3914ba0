"""Adapters (LoRA and others of peft) that were trained in a model with a normalizer name it in their config."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from icl_lab.errors import BadValue
from icl_lab.files import sha256
from icl_lab.transformers.attention import RULE
from icl_lab.transformers.folder import KEY

FILE = "adapter_config.json"
NUMBERS = "parameters_sha256"  # of the normalizers, which an adapter's own file holds only if it trains them


def name_normalizer(model: PreTrainedModel, *_: Any) -> None:
    """Makes the configs of a model's adapters write its normalizer; peft warns of what it does not know in them.

    A hook of its base model: nobody tells a model when it gets an adapter.
    """
    for config in vars(model).get("peft_config", {}).values():
        if "to_dict" not in vars(config):
            config.to_dict = partial(_with_normalizer, config, model)


def parameters_sha256(model: nn.Module) -> str:
    """SHA-256, shortened, of the parameters of all normalizers of a model."""
    own = [p for name, p in model.named_parameters() if f".{RULE}." in name]
    data = b"".join(p.detach().cpu().double().contiguous().numpy().tobytes() for p in own)
    return sha256(data)[:16]


def _with_normalizer(config: Any, model: PreTrainedModel) -> dict[str, Any]:
    told: dict[str, Any] = type(config).to_dict(config)
    return {**told, KEY: {**getattr(model.config, KEY), NUMBERS: parameters_sha256(model)}}


def asked(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Part of a description of normalizers that decides what a model computes."""
    return {name: told[name] for name in ("attn", "train_tokens", "layers")}


def description(folder: Path) -> dict[str, Any]:
    """Returns the config of a saved adapter; raises ``BadValue`` where it names no normalizer."""
    try:
        told = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadValue(f"{folder} is no folder that an adapter was saved in: {error}") from None
    if not isinstance(told, dict) or not {"attn", "train_tokens", "layers"} <= set(told.get(KEY) or ()):
        raise BadValue(f"{folder} names no attention normalizer; peft reads it.")
    return told

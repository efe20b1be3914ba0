"""A saved model with its normalizer: read back exactly, or not at all."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

from icl_lab.errors import BadValue
from icl_lab.normalizers.base import Normalizer
from icl_lab.transformers.attention import RULE
from icl_lab.transformers.placing import KEY, build, place
from icl_lab.transformers.probe import quiet


def load(auto: Any, folder: str | Path, *, attn_implementation: str | None = None, **said: Any) -> Any:
    """Returns ``auto.from_pretrained(folder, **said)`` with its normalizer and what that has learned.

    ``auto`` is ``AutoModelForCausalLM``, or any other class with ``from_pretrained``; one with another head starts that
    head anew. ``attn_implementation`` is what ``uninstall`` would go back to.

    Raises ``LabError`` where the folder holds no normalizer, or not all of it.
    """
    folder = Path(folder)
    told = _description(folder)
    rules = build(told)
    learned = _learned(folder, rules)
    with quiet():  # transformers would report the normalizer's numbers as unexpected
        model, found = auto.from_pretrained(
            folder, attn_implementation=attn_implementation, output_loading_info=True, **said
        )
    if not isinstance(model, PreTrainedModel):
        raise BadValue(f"{auto.__name__} does not give a model that a normalizer can be put into.")
    if found["missing_keys"]:
        told_missing = ", ".join(sorted(found["missing_keys"]))
        logging.get_logger(__name__).warning(f"{folder} has no weights for {told_missing}: they start anew.")
    names = {name for name, _ in model.base_model.named_modules()}
    if astray := [name for name in told["layers"] if name not in names]:
        raise BadValue(f"{type(model).__name__} has no layer {astray[0]}, which {folder} holds a normalizer for.")
    place(model, told)
    with torch.no_grad():
        for name, values in learned.items():
            layer, _, parameter = name.partition(f".{RULE}.")
            own = model.base_model.get_submodule(layer).get_submodule(RULE).get_parameter(parameter)
            own.data = values.to(own.device)  # in the precision in which it was saved
    return model


def _description(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadValue(f"{folder} is no folder that a model was saved in: {error}") from None
    told = config.get(KEY)
    if not isinstance(told, dict) or not {"attn", "train_tokens", "layers", "version"} <= set(told):
        raise BadValue(f"{folder} holds no attention normalizer; from_pretrained of transformers reads it.")
    return told


def _learned(folder: Path, rules: dict[str, Normalizer]) -> dict[str, Tensor]:
    """The parameters of the normalizers as they were saved, by their names within the base model."""
    saved: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            saved |= {key: file.get_tensor(key) for key in file.keys() if f".{RULE}." in key}  # noqa: SIM118
    found: dict[str, Tensor] = {}
    for layer, rule in rules.items():
        for name, parameter in rule.named_parameters():
            key = f"{layer}.{RULE}.{name}"
            # Of a parameter that all layers share, transformers writes one.
            same = [
                f"{other}.{RULE}.{again}"
                for other, its in rules.items()
                for again, p in its.named_parameters()
                if p is parameter
            ]
            values = [tensor for k, tensor in saved.items() if any(k == s or k.endswith(f".{s}") for s in same)]
            if len(values) != 1 or values[0].shape != parameter.shape:
                raise BadValue(f"{folder} does not hold the normalizer's {key} once and whole: save the model again.")
            found[key] = values[0]
    return found

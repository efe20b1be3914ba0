"""A saved model, or an adapter, with its normalizer: read back exactly, or not at all."""

import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import CONFIG_MAPPING, PreTrainedModel
from transformers.utils import logging

from icl_lab.base.errors import BadValue, LabError, first_line
from icl_lab.normalizers.base import Normalizer
from icl_lab.transformers import adapters
from icl_lab.transformers.attention import RULE
from icl_lab.transformers.folder import KEY, model_config, read_config
from icl_lab.transformers.placing import build, installed, place, uninstall
from icl_lab.transformers.probe import quiet


def load(auto: Any, folder: str | Path, *, attn_implementation: str | None = None, **said: Any) -> Any:
    """Return ``auto.from_pretrained(folder, **said)`` with its normalizer and what that has learned.

    ``auto`` is ``AutoModelForCausalLM``, or any other class with ``from_pretrained``; one with another head starts that
    head anew. ``attn_implementation`` is what ``uninstall`` would go back to.

    Raises ``LabError`` where the folder holds no normalizer, or not all of it.
    """
    folder = Path(folder)
    config = model_config(folder)
    told = config[KEY]
    rules = build(told)
    learned = _learned(folder, rules)
    with quiet():  # transformers would report the normalizer's numbers as unexpected
        if config["model_type"] in CONFIG_MAPPING:
            kind = CONFIG_MAPPING[config["model_type"]]
            precision: dict[str, Any] = {name: said.pop(name) for name in ("dtype", "torch_dtype") if name in said}
            made, unused = kind.from_dict(config, return_unused_kwargs=True, **said)
            said = {**unused, **precision, "config": made}
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


def load_adapter(model: PreTrainedModel, folder: str | Path, **said: Any) -> Any:
    """Return ``peft.PeftModel.from_pretrained(model, folder, **said)`` on the normalizer that it was trained with.

    The normalizer is installed where the model has none yet. Raises ``LabError`` where the adapter names none, where
    the model has another, or where its normalizer had learned what neither the model nor the adapter holds.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise LabError("adapters need peft: pip install peft.") from None
    without = "names no attention normalizer; peft reads it"
    config = read_config(Path(folder) / adapters.FILE, "an adapter", without)
    trained = dict(config[KEY])
    parameters = trained.pop(adapters.PARAMETERS, None)
    before = installed(model)
    if before and not adapters.same_normalizer(getattr(model.config, KEY), trained):
        here = getattr(model.config, KEY)["attn"]
        raise BadValue(
            f"{folder} was trained with '{trained['attn']}', and this model has '{here}' installed otherwise."
        )
    if not before:
        place(model, trained)
    if RULE not in (config.get("modules_to_save") or ()) and parameters != adapters.parameters_sha256(model):
        if not before:
            uninstall(model)
        raise BadValue(
            f"{folder} was trained with a '{trained['attn']}' that had learned, and the adapter does not hold what:"
            " read its model by icl_lab.transformers.load first."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", rf"Unexpected keyword arguments \['{KEY}'\]")
        return PeftModel.from_pretrained(model, folder, **said)


def _learned(folder: Path, rules: dict[str, Normalizer]) -> dict[str, Tensor]:
    """The parameters of the normalizers as they were saved, by their names within the base model."""
    saved: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                saved |= {key: file.get_tensor(key) for key in file.keys() if f".{RULE}." in key}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise BadValue(f"{path} cannot be read: {first_line(error)}.") from None
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

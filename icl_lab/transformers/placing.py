"""Normalizers put into the attention layers of a model, and taken out again."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Never

from torch import nn
from transformers import PreTrainedModel

from icl_lab import normalizers
from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.base.version import VERSION
from icl_lab.normalizers.base import Normalizer
from icl_lab.transformers import card, probe
from icl_lab.transformers.adapters import name_normalizer
from icl_lab.transformers.attention import CALLED, NAME, RULE, listen
from icl_lab.transformers.calls import WATCHED, watch
from icl_lab.transformers.folder import KEY, ONLY, mark

HOOKS = "attention_rule_hooks"  # attribute of the base model: those of its layers and its own
BEFORE = "attention_before_rule"  # attribute of the model: the implementation that uninstall goes back to


def install(
    model: PreTrainedModel,
    attn: str,
    *,
    train_tokens: int | None = None,
    only: Callable[[str, nn.Module], bool] | None = None,
) -> list[str]:
    """Put a normalizer into the attention layers of a model in place; return the names of the layers that got it.

    ``attn`` is a choice such as ``ssa``, ``ssmax:s=swap`` or ``lssa+reweight:p=3``. ``train_tokens`` is the length of a
    training text, which some normalizers start from; by default the longest that the model has positions for.
    ``only(name, layer)`` says which layers get the normalizer; the others run softmax. A second call replaces the
    first.

    Raises ``LabError`` where the choice, or the model, cannot be served.
    """
    attn = normalizers.canonical(attn)
    require(train_tokens is None or train_tokens >= 1, "train_tokens must be >= 1", train_tokens)
    probe.refuse_unsuited(model)
    met = probe.layers(model, getattr(model, BEFORE, None) or model.config._attn_implementation)
    names = {module: name for name, module in model.named_modules()}
    chosen = [layer for layer in met if only is None or only(names[layer.module], layer.module)]
    if not chosen:
        raise BadValue(f"'only' leaves out every attention layer: {', '.join(names[layer.module] for layer in met)}.")
    tokens = train_tokens or getattr(model.config, "max_position_embeddings", None)
    if not tokens:
        raise BadValue(f"{type(model).__name__} does not say how long its texts are; give train_tokens.")
    described = {
        layer.name: {
            "attn": attn if layer in chosen else "softmax",
            "heads": layer.heads,
            "head_dim": layer.head_dim,
        }
        for layer in met
    }
    width = getattr(model.config, "hidden_size", 0)
    told = {"attn": attn, "train_tokens": tokens, "layers": described, "width": width}
    place(model, told | {"version": VERSION})
    return [names[layer.module] for layer in chosen]


def uninstall(model: PreTrainedModel) -> None:
    """Take the normalizer out: the model is as it was before ``install``. Raises ``LabError`` where there is none."""
    if not installed(model):
        raise BadValue(f"{type(model).__name__} has no attention normalizer installed.")
    for layer in model.base_model.__dict__.pop(WATCHED).values():
        delattr(layer, RULE)
        layer.__dict__.pop(CALLED, None)
    for hook in model.base_model.__dict__.pop(HOOKS):
        hook.remove()
    probe.use(model, getattr(model, BEFORE))
    for name in (BEFORE, "save_pretrained", "set_attn_implementation"):
        delattr(model, name)
    for name in (KEY, "attn_implementation"):
        delattr(model.config, name)


def installed(model: PreTrainedModel) -> bool:
    """True if a normalizer is installed in this model."""
    return hasattr(model, BEFORE)


def place(model: PreTrainedModel, stored: Mapping[str, Any]) -> None:
    """Put the normalizers of a description (as the config holds it) into a model, in place of the present ones."""
    rules = build(stored)
    if installed(model):
        uninstall(model)
    setattr(model, BEFORE, model.config._attn_implementation)
    layers = {name: model.base_model.get_submodule(name) for name in rules}
    hooks = [model.base_model.register_forward_pre_hook(partial(name_normalizer, model))]
    hooks += watch(model.base_model, layers)
    for name, rule in rules.items():
        layer = layers[name]
        where = next((p.device for p in layer.parameters() if p.device.type != "meta"), None)
        setattr(layer, RULE, rule.to(where).train(layer.training))
        if rule.reads_tokens != "no":
            hooks += listen(layer)
    model.base_model.__dict__[HOOKS] = hooks
    probe.use(model, NAME)
    setattr(model.config, KEY, dict(stored))
    model.config.attn_implementation = ONLY  # saved, every other way to load the model fails with these words
    for name, method in (("save_pretrained", _save), ("set_attn_implementation", _refuse_another)):
        setattr(model, name, partial(method, model))  # a bound method of no name of the model could not be pickled


def build(stored: Mapping[str, Any]) -> dict[str, Normalizer]:
    """Build the normalizers of a description, by the names of their layers."""
    alike: dict[tuple[str, int, int], dict[str, int]] = {}
    for number, (name, layer) in enumerate(stored["layers"].items()):
        alike.setdefault((layer["attn"], layer["heads"], layer["head_dim"]), {})[name] = number
    rules: dict[str, Normalizer] = {}
    for (attn, heads, head_dim), numbers in alike.items():
        site = {"heads": heads, "head_dim": head_dim, "train_tokens": stored["train_tokens"]}
        site["width"] = stored.get("width", 0)  # a folder of an older version has none
        built = normalizers.build_layers(attn, layers=list(numbers.values()), **site)
        rules |= {name: rule for name, rule in zip(numbers, built, strict=True) if isinstance(rule, Normalizer)}
    for part in [part for rule in rules.values() for part in rule.modules() if isinstance(part, Normalizer)]:
        if part.reads_tokens == "weights":
            raise BadValue(
                f"'{stored['attn']}' weighs keys by the tokens themselves, which a KV cache does not keep: it is not"
                " served inside models."
            )
        if not part.prefix_consistent:
            raise BadValue(
                f"'{stored['attn']}' reads the length of the whole text, which a KV cache, padding and packing hide:"
                " it is not served inside models."
            )
        # A parameter of all layers is one tensor; so transformers gets the names that mean it, and writes it once.
        object.__setattr__(part, "_tied_weights_keys", {name: name for name in part.shared})
    return {name: rules[name] for name in stored["layers"]}


def _save(model: PreTrainedModel, save_directory: Any, *args: Any, **said: Any) -> None:
    """Run ``save_pretrained`` of the model, and make the folder one that is read with its normalizers or not at all."""
    if said.get("push_to_hub"):
        raise BadValue(
            "save_pretrained would send the folder before it names its normalizer: use model.push_to_hub(name)."
        )
    type(model).save_pretrained(model, save_directory, *args, **said)
    if said.get("is_main_process", True):
        mark(Path(save_directory))
        card.write(save_directory, type(model).__name__, getattr(model.config, KEY))


def _refuse_another(model: PreTrainedModel, *_: Any, **__: Any) -> Never:
    raise BadValue(
        f"{type(model).__name__} has an attention normalizer: icl_lab.transformers.uninstall takes it out first."
    )

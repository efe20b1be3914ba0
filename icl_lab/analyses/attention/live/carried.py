"""What a page carries to compute a model in the browser: its weights and its shape, and what its rules may be."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import numpy as np
from torch import Tensor

from icl_lab import normalizers
from icl_lab import option_values as values
from icl_lab.analyses.attention.live.script import names
from icl_lab.model import positions
from icl_lab.model.gpt2 import GPT2
from icl_lab.normalizers.base import Normalizer
from icl_lab.registry import Choice, Registry

# Rules that the page cannot compute, and why. A rule that comes from outside is none of them: its formula is not ours.
MISSING: Mapping[str, str] = {}
CODES = ("none", "learned", "sinusoidal", "rotary")  # those of positions.js
# Rules whose start is drawn at random, with the options for which the page holds it; others start where a formula says.
DRAWN: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("differential", {}),
    ("forget", {}),
    ("qassmax", {"per": "channel", "hidden": 64}),
    ("qassmax", {"per": "head", "hidden": 64}),
    ("gated", {"per": "head"}),
    ("gated", {"per": "channel"}),
)


@dataclass(frozen=True)
class Carried:
    """A model as the page holds it, how many numbers that is, and what the page knows of rules for it."""

    model: dict[str, Any]
    size: int
    known: dict[str, Any]


def refusal(model: GPT2, code: str) -> str:
    """Returns why the page cannot compute a model with a position code, as the end of a sentence; empty if it can."""
    for registry, name in normalizers.parts(model.attn):
        if registry.source(name):
            return f"the rule '{name}' comes from outside the package"
        if name not in names() | names("wrapper"):
            return f"of the rule '{name}' it has no formula ({MISSING.get(name, 'not written yet')})"
    if (name := Choice.parse(code).name) not in CODES:
        return f"the position code '{name}' comes from outside the package"
    if model.rescaling is not None:
        return "the prompts are rescaled before the model reads them"
    if model.positions.random:
        return "the model sets its tokens at places drawn at random"
    return ""


def carried(model: GPT2, code: str) -> Carried:
    """Packs a model and its position code: weights in single precision, numbers of rules by the names of formulas."""
    state = {name: part for name, part in model.state_dict().items() if ".rule." not in name}
    spec, reading = model.spec, model.reading
    place = Choice.parse(code)
    choices = positions.registry.options(place.name)
    told = {key: values.read(text, choices[key].annotation) for key, text in place.options}
    rules = [[_numbers(link) for link in _links(rule)] for rule in model.rules]
    return Carried(
        {
            "spec": {
                "layers": spec.layers,
                "heads": spec.heads,
                "width": spec.width,
                "reads": 1 if reading.vocabulary else reading.width,
                "outputs": reading.outputs,
                "roles": reading.roles,
                "vocabulary": reading.vocabulary,
                "train_tokens": reading.train_tokens,
                "limit": model.positions.limit,
                "positions": {
                    "name": place.name,
                    "options": {key: option.default for key, option in choices.items()} | told,
                },
            },
            "rule": model.attn,
            "parameters": rules,
            "tensors": [[name, part.numel()] for name, part in state.items()],
            "bytes": packed(state.values()),
        },
        sum(part.numel() for part in state.values()),
        known(model),
    )


def known(model: GPT2) -> dict[str, Any]:
    """Returns what the page knows of rules: their options with kinds and defaults, and starts that are drawn."""
    spec = model.spec
    site = {"heads": spec.heads, "head_dim": spec.width // spec.heads, "train_tokens": model.reading.train_tokens}
    starts = []
    for name, options in DRAWN:
        text = str(Choice(name, tuple((key, str(value)) for key, value in options.items())))
        wrapped = name in normalizers.wrappers.names()
        if name == "differential" and site["head_dim"] % 2:
            continue
        rules = normalizers.build_layers(f"softmax+{text}" if wrapped else text, layers=spec.layers, **site)
        starts.append({"name": name, "options": options, "layers": [_numbers(_links(rule)[-1]) for rule in rules]})
    return {
        "rules": _options(normalizers.registry, names()),
        "wrappers": _options(normalizers.wrappers, names("wrapper")),
        "starts": starts,
    }


def packed(parts: Iterable[Tensor]) -> str:
    """Returns tensors one after another as single-precision numbers in base64."""
    return base64.b64encode(
        b"".join(np.asarray(part.detach().cpu().float(), "<f4").tobytes() for part in parts)
    ).decode()


def _links(rule: Any) -> list[Normalizer]:
    """A rule and the wrappers around it, from the inside out."""
    inside = getattr(rule, "rule", None)
    return [*(_links(inside) if isinstance(inside, Normalizer) else []), rule]


def _numbers(rule: Normalizer) -> dict[str, str]:
    names = (*rule.learned, *rule.maps)
    return {name: packed([value]) for name in names if (value := getattr(rule, name)) is not None}


def _options(registry: Registry, computed: Iterable[str]) -> dict[str, Any]:
    return {
        name: {
            "options": {
                key: {"value": parameter.default, "kinds": [_kind(kind) for kind in values.kinds(parameter.annotation)]}
                for key, parameter in registry.options(name).items()
            }
        }
        for name in sorted(computed)
        if name in registry.names()
    }


def _kind(kind: Any) -> Any:
    return list(get_args(kind)) if get_origin(kind) is Literal else kind.__name__

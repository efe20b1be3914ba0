"""The contract of a normalizer: masks, declared traits, gradients, precision, parameters and documentation.

``CHECKS`` are in order of dependence. Each takes a choice such as ``ssa:n=2`` or ``softmax+reweight``.
"""

import inspect
from collections.abc import Mapping
from typing import cast

import torch

from icl_lab import normalizers
from icl_lab.normalizers.base import READS, Normalizer, causal
from icl_lab.testing.base import hold
from icl_lab.testing.rule_formula import FORMULA
from icl_lab.testing.rule_inputs import HEADS, TRAINED, WIDTH, asked, build, gradients, perturb, qkv, single, stirred
from icl_lab.testing.rule_masks import MASKS

__all__ = ["CHECKS", "build"]


def it_says_what_it_is(choice: str) -> None:
    """The docstring has a first sentence, ``Formula: w...`` and ``Paper:``; the constructor takes ``site`` first."""
    for registry, name in normalizers.parts(choice):
        entry = next(entry for entry in registry.entries() if entry.name == name)
        hold(entry.line.endswith("."), f"the first line of the docstring of '{name}' is no sentence: '{entry.line}'")
        hold(entry.formula.startswith("w"), f"the docstring of '{name}' has no line 'Formula: w = ...'")
        hold(bool(entry.paper), f"the docstring of '{name}' has no line 'Paper: ...'")
        site = inspect.signature(registry.part(name).__init__).parameters.get("site")  # type: ignore[misc]
        hold(
            site is not None and site.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD,
            f"the constructor of '{name}' does not take site as its first argument",
        )


def it_has_one_spelling(choice: str) -> None:
    """The canonical text of a choice is its own canonical text."""
    text = normalizers.canonical(choice)
    hold(normalizers.canonical(text) == text, f"'{text}' is not its own canonical spelling")


def two_builds_start_alike(choice: str) -> None:
    """Parameters start at values independent of random state, so that a training seed says all."""
    with torch.random.fork_rng():
        states = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            states.append(build(choice).state_dict())
    for name, value in states[0].items():
        hold(torch.equal(value, states[1][name]), f"{name} starts at other values in each build")


def parameters_are_named_have_one_entry_a_head_and_learn(choice: str) -> None:
    """``learned`` and ``shared`` name parameters; each has one entry per head (shared: per token), and a gradient.

    A parameter that ``maps`` names may have any shape; its gradient is asked for where it has left its start.
    """
    rule, later = build(choice), stirred(choice)
    learned = [p for p in rule.parameters() if p.requires_grad]
    for part in rule.modules():
        if isinstance(part, Normalizer):
            for name in part.learned:
                found = getattr(part, name, None)
                hold(isinstance(found, torch.Tensor), f"learned names '{name}', which is no tensor")
            missing = sorted(set(part.shared) - set(part.learned))
            hold(not missing, f"shared names {', '.join(missing)}, which learned does not")
            absent = sorted(set(part.maps) - {name for name, _ in part.named_parameters(recurse=False)})
            hold(not absent, f"maps names {', '.join(absent)}, which is no parameter")
            says = isinstance(part.maps, Mapping) and set(part.maps.values()) <= set(READS)
            hold(says or not part.maps, f"maps does not say what each parameter reads: {', '.join(READS)}")
            for name, parameter in part.named_parameters(recurse=False):
                if name in part.maps:
                    continue
                entries = TRAINED if name in part.shared else (1 if "per=layer" in choice else HEADS)
                shape = tuple(parameter.shape)
                hold(shape == (entries,), f"the parameter {name} has the shape {shape}, not ({entries},)")
    declared = any(part.learned or part.maps for part in rule.modules() if isinstance(part, Normalizer))
    hold(
        bool(learned) is (declared and "learn=no" not in choice),
        "a parameter learns that learned does not name" if learned else "learned names what does not learn",
    )
    (_, grads), (_, moved) = (gradients(each, qkv(8), causal(8)) for each in (rule, later))
    maps = {
        f"{path}.{name}".lstrip(".")
        for path, part in rule.named_modules()
        if isinstance(part, Normalizer)
        for name in part.maps
    }
    for name, parameter in rule.named_parameters():
        if parameter.requires_grad:
            hold(name in grads, f"the output does not depend on the parameter {name}")
            hold(grads[name].isfinite().all(), f"the gradient of {name} is not finite")
            hold(((moved if name in maps else grads)[name] != 0).any(), f"the gradient of {name} is 0")
            if name not in rule.shared and name not in maps:
                hold((grads[name] != 0).all(), f"the gradient of {name} is 0 in some heads")


def layers_share_what_is_declared_and_nothing_else(choice: str) -> None:
    """Parameters declared ``shared`` are one tensor, which the second layer reads too; no other is in two layers."""
    site = {"heads": HEADS, "head_dim": WIDTH, "train_tokens": TRAINED}
    built = normalizers.build_layers(choice, layers=2, **site)
    first, second = (asked(cast(Normalizer, rule.double())) for rule in built)
    tensors = {id(p) for p in first.parameters()}
    declared = {
        id(getattr(part, name)): name
        for part in first.modules()
        if isinstance(part, Normalizer)
        for name in part.shared
    }
    for name, parameter in second.named_parameters():
        where = "is declared shared and is not" if id(parameter) not in tensors else "is not declared shared and is"
        hold((id(parameter) in tensors) is (id(parameter) in declared), f"the parameter {name} {where} in two layers")
    others = {id(p) for p in build(choice).parameters()}
    hold(not tensors & others, "a parameter is the same tensor in two models")
    perturb(first, seed=6)
    q, k, _ = qkv(8)
    w = second.weights(q, k, causal(8)).square().sum()
    for part in first.modules():
        for name in part.shared if isinstance(part, Normalizer) else ():
            parameter = getattr(part, name)
            if parameter.requires_grad:
                (grad,) = torch.autograd.grad(w, parameter, retain_graph=True, allow_unused=True)
                hold(grad is not None and bool((grad != 0).any()), f"the second layer does not read the shared {name}")


def half_precision_differs_by_three_percent_at_most(choice: str) -> None:
    """In bfloat16 the weights and the output are of that type, and within 3 % of the largest in single precision."""
    rule = single(choice)
    q, k, v = (x.bfloat16() for x in qkv(12))
    for what, got, wanted in (
        ("weights", rule.weights(q, k, causal(12)), rule.weights(q.float(), k.float(), causal(12))),
        ("attend", rule.attend(q, k, v, causal(12)), rule.attend(q.float(), k.float(), v.float(), causal(12))),
    ):
        hold(got.dtype is torch.bfloat16, f"{what} of bfloat16 is {got.dtype}")
        hold((got - wanted).abs().max() <= 0.03 * wanted.abs().max(), f"{what} in bfloat16 is more than 3 % off")


CHECKS = (
    it_says_what_it_is,
    it_has_one_spelling,
    two_builds_start_alike,
    *FORMULA,
    *MASKS,
    half_precision_differs_by_three_percent_at_most,
    parameters_are_named_have_one_entry_a_head_and_learn,
    layers_share_what_is_declared_and_nothing_else,
)

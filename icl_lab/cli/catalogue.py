"""Catalogue of what can be named: tasks, normalizers, positions and presets, as lines for a terminal and as tables."""

import re
from collections.abc import Iterable

from icl_lab import normalizers, tasks
from icl_lab.base import markdown as md
from icl_lab.base.registry import Registry
from icl_lab.model import positions
from icl_lab.normalizers.base import Normalizer
from icl_lab.runs.presets import PRESETS

KINDS: dict[str, list[Registry]] = {
    "tasks": [tasks.registry],
    "normalizers": [normalizers.registry, normalizers.wrappers],
    "positions": [positions.registry],
}
SOURCE = "source (arXiv)"  # column of a table
HEADS = 8  # of the normalizers whose parameters are counted
# Traits in words, and as marks: a column of a table has no room for words.
TRAITS = {
    "sums_to_one": ("sums to 1", "Σ"),
    "non_negative": ("never negative", "+"),
    "prefix_consistent": ("prefix-consistent", "p"),
    "ordered": ("ordered", "o"),
}
LEGEND = (
    "Learned: numbers a head, as built without options. Traits: Σ the weights of a row sum to 1, + none is negative, "
    "p a row does not change when the prompt goes on, o the order of the keys matters."
)


def names(what: str) -> list[str]:
    """Return the names of the parts of one kind, or of the presets."""
    return list(PRESETS) if what == "presets" else [name for registry in KINDS[what] for name in registry.names()]


def listing(what: str) -> Iterable[str]:
    """Yield lines for the terminal. ``what`` is ``tasks``, ``normalizers``, ``positions`` or ``presets``."""
    if what == "presets":
        yield "\n".join(presets())
        return
    for registry in KINDS[what]:
        for entry in registry.entries():
            yield f"{entry.name}{_options(registry, entry.name)}"
            yield f"    {entry.line}"
            if entry.formula:
                yield f"    {entry.formula}"
            if what == "normalizers":
                rule = _rule(registry, entry.name)
                yield f"    learned a head: {_learned(rule)}; {', '.join(_traits(rule, 0))}"
            yield f"    {entry.paper}"


def parts(what: str) -> list[str]:
    """Return the table of the parts of one kind."""
    more = ["learned", "traits"] if what == "normalizers" else []
    rows = []
    for registry in KINDS[what]:
        for entry in registry.entries(outside=False):
            name, formula = f"`{entry.name}{_options(registry, entry.name)}`", f"`{entry.formula}`".replace("``", "")
            rule = _rule(registry, entry.name) if more else None
            about = [_learned(rule), "".join(_traits(rule, 1))] if rule else []
            rows.append([name, entry.line, formula, *about, source(entry.paper)])
    lines = md.table(["name", "what it is", "formula", *more, SOURCE], rows)
    return [*lines, "", LEGEND] if more else lines


def source(paper: str) -> str:
    """Return the arXiv numbers of a source, with the sections cited; a source without them unchanged.

    >>> source("Naim et al. 2025, arXiv 2508.14685, Eq. 2 and Table 1; Garg et al. 2022, arXiv 2208.01066 (dim=20)")
    '2508.14685, Eq. 2 and Table 1; 2208.01066 (dim=20)'
    """
    return "; ".join(re.findall(r"arXiv (\d{4}\.\d{5}(?:[^;()]|\([^;]*\))*)", paper)) or paper


def presets() -> list[str]:
    """Return the table of the presets."""
    rows = []
    for name, p in PRESETS.items():
        size, work = f"{p.model.layers}, {p.model.heads}, {p.model.width}", f"{p.train.steps:,} x {p.train.batch}"
        rows.append([f"`{name}`", size, work, p.purpose])
    return md.table(["preset", "layers, heads, width", "steps x batch", "for"], rows)


def _options(registry: Registry, name: str) -> str:
    options = registry.options(name)
    return ":" + ",".join(options) if options else ""


def _rule(registry: Registry, name: str) -> Normalizer:
    """Build a normalizer without options; a wrapper stands around softmax."""
    choice = f"softmax+{name}" if registry is normalizers.wrappers else name
    return normalizers.build(choice, heads=HEADS, head_dim=32, train_tokens=82)


def _learned(rule: Normalizer) -> str:
    """Number of parameters that a head learns, and that all layers learn together."""
    sizes = {name: p.numel() for name, p in rule.named_parameters() if p.requires_grad}
    together = sum(size for name, size in sizes.items() if name in rule.shared)
    alone = (sum(sizes.values()) - together) / HEADS
    return f"{alone:g}" + (f", and {together} shared by all layers" if together else "")


def _traits(rule: Normalizer, which: int) -> list[str]:
    """The traits of a normalizer in words (0) or as marks (1)."""
    return [words[which] for trait, words in TRAITS.items() if getattr(rule, trait)] or ["none of the traits"]

"""Catalogue of names: tasks, normalizers, positions and presets, as lines for a terminal."""

from collections.abc import Iterator
from typing import NamedTuple

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
HEADS = 8  # of the normalizers whose parameters are counted
TRAITS = {
    "sums_to_one": "sums to 1",
    "non_negative": "never negative",
    "prefix_consistent": "prefix-consistent",
    "ordered": "ordered",
}
NO_TRAIT = "none of the traits"


class ListedPart(NamedTuple):
    """A part as its docstring declares it: name with options, first line, formula and paper; of a normalizer more."""

    name: str
    line: str
    formula: str
    paper: str
    learned: str = ""  # number of parameters that a head learns
    traits: tuple[str, ...] = ()


def names(what: str) -> list[str]:
    """Return the names of the parts of one kind, or of the presets."""
    return list(PRESETS) if what == "presets" else [name for registry in KINDS[what] for name in registry.names()]


def listing(what: str) -> Iterator[str]:
    """Yield lines for the terminal. ``what`` is ``tasks``, ``normalizers``, ``positions`` or ``presets``."""
    if what == "presets":
        yield "\n".join(presets())
        return
    for part in parts(what):
        yield part.name
        yield f"    {part.line}"
        if part.formula:
            yield f"    {part.formula}"
        if part.learned:
            yield f"    learned a head: {part.learned}; {', '.join(map(TRAITS.__getitem__, part.traits)) or NO_TRAIT}"
        yield f"    {part.paper}"


def parts(what: str, *, outside: bool = True) -> Iterator[ListedPart]:
    """Yield the parts of one kind; those from ``outside`` the package too, if they are wanted."""
    for registry in KINDS[what]:
        for entry in registry.entries(outside=outside):
            options = registry.options(entry.name)
            name = f"{entry.name}:{','.join(options)}" if options else entry.name
            part = ListedPart(name, entry.line, entry.formula, entry.paper)
            if what == "normalizers":
                rule = _rule(registry, entry.name)
                traits = tuple(trait for trait in TRAITS if getattr(rule, trait))
                part = part._replace(learned=_learned(rule), traits=traits)
            yield part


def presets() -> list[str]:
    """Return the table of the presets."""
    rows = []
    for name, p in PRESETS.items():
        size, work = f"{p.model.layers}, {p.model.heads}, {p.model.width}", f"{p.train.steps:,} x {p.train.batch}"
        rows.append([f"`{name}`", size, work, p.purpose])
    return md.table(["preset", "layers, heads, width", "steps x batch", "for"], rows)


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

"""Catalogue of names: tasks, normalizers, positions and presets, as lines for a terminal.

Names and docstrings of this package's parts are read from its sources, since an import of them is one of torch.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from icl_lab.base import markdown as md
from icl_lab.base import outside as imports
from icl_lab.base.registry import Entry, Registry
from icl_lab.cli import menu

if TYPE_CHECKING:
    from icl_lab.normalizers.base import Normalizer

# A kind -> the folder of its parts, the module of its registries, and their names there.
KINDS = {
    "tasks": ("tasks", "icl_lab.tasks", ("registry",)),
    "normalizers": ("normalizers", "icl_lab.normalizers", ("registry", "wrappers")),
    "positions": ("model", "icl_lab.model.positions", ("registry",)),
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


def registries(what: str) -> list[Registry]:
    """Return the registries of one kind."""
    _, module, attributes = KINDS[what]
    return [getattr(import_module(module), name) for name in attributes]


def entries(what: str) -> list[Entry]:
    """Return what the parts of one kind say of themselves; loads no torch unless some may come from outside."""
    folder, module, attributes = KINDS[what]
    if imports.brings(module):
        return [entry for registry in registries(what) for entry in registry.entries()]
    found = [sorted(menu.parts(folder, name)) for name in attributes]
    return [Entry.of(part.name, part.help) for parts in found for part in parts]


def names(what: str) -> list[str]:
    """Return the names of the parts of one kind, or of the presets."""
    return menu.keys("runs/presets.py", "PRESETS") if what == "presets" else [entry.name for entry in entries(what)]


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
    for registry in registries(what):
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
    from icl_lab.runs.presets import PRESETS

    rows = []
    for name, p in PRESETS.items():
        size, work = f"{p.model.layers}, {p.model.heads}, {p.model.width}", f"{p.train.steps:,} x {p.train.batch}"
        rows.append([f"`{name}`", size, work, p.purpose])
    return md.table(["preset", "layers, heads, width", "steps x batch", "for"], rows)


def _rule(registry: Registry, name: str) -> "Normalizer":
    """Build a normalizer without options; a wrapper stands around softmax."""
    from icl_lab import normalizers

    choice = f"softmax+{name}" if registry is normalizers.wrappers else name
    return normalizers.build(choice, heads=HEADS, head_dim=32, train_tokens=82)


def _learned(rule: "Normalizer") -> str:
    """Number of parameters that a head learns, and that all layers learn together."""
    sizes = {name: p.numel() for name, p in rule.named_parameters() if p.requires_grad}
    together = sum(size for name, size in sizes.items() if name in rule.shared)
    alone = (sum(sizes.values()) - together) / HEADS
    return f"{alone:g}" + (f", and {together} shared by all layers" if together else "")

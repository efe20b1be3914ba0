"""What there is, read from the parts themselves: for ``list`` and for the README's tables."""

import re
from collections.abc import Iterable

from icl_lab import normalizers, positions, tasks
from icl_lab.names import Registry
from icl_lab.presets import PRESETS

KINDS: dict[str, list[Registry]] = {
    "tasks": [tasks.registry],
    "normalizers": [normalizers.registry, normalizers.wrappers],
    "positions": [positions.registry],
}


def listing(what: str) -> Iterable[str]:
    """Yields lines for the terminal. ``what`` is ``tasks``, ``normalizers``, ``positions`` or ``presets``."""
    if what == "presets":
        for name, preset in PRESETS.items():
            model, train = preset.model, preset.train
            size = f"{model.layers} layers, {model.heads} heads, width {model.width}, {train.steps:,} steps of {train.batch}"
            yield f"{name:8} {size:56} {preset.purpose}"
        return
    for registry in KINDS[what]:
        for card in registry.cards():
            yield f"{card.name}{_options(registry, card.name)}"
            yield f"    {card.line}"
            if card.formula:
                yield f"    {card.formula}"
            yield f"    {card.paper}"


def fill(readme: str) -> str:
    """Returns the README with the text between each pair of index marks written anew."""

    def table(match: re.Match[str]) -> str:
        what = match["what"]
        rows = [f"| {' | '.join(row)} |" for row in _rows(what)]
        return "\n".join([match["open"], *rows, match["close"]])

    return re.sub(r"(?P<open><!-- index (?P<what>\w+) -->)\n.*?(?P<close><!-- end -->)", table, readme, flags=re.DOTALL)


def _rows(what: str) -> list[list[str]]:
    if what == "presets":
        head = [["preset", "layers, heads, width", "steps x batch", "for"], ["---"] * 4]
        return head + [
            [
                f"`{name}`",
                f"{p.model.layers}, {p.model.heads}, {p.model.width}",
                f"{p.train.steps:,} x {p.train.batch}",
                p.purpose,
            ]
            for name, p in PRESETS.items()
        ]
    head = [["name", "what it is", "formula", "source"], ["---"] * 4]
    return head + [
        [
            f"`{card.name}{_options(registry, card.name)}`",
            card.line,
            f"`{card.formula}`".replace("|", "\\|"),
            card.paper,
        ]
        for registry in KINDS[what]
        for card in registry.cards()
    ]


def _options(registry: Registry, name: str) -> str:
    options = registry.options(name)
    return ":" + ",".join(options) if options else ""

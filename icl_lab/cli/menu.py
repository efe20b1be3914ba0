"""The commands in groups, read from the sources without importing them.

Needs the standard library alone: ``make help`` runs this file before anything is installed.
"""

import ast
import pkgutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
GROUPS = {
    "Train and compare": ("sweep", "compare", "rates", "ablate", "judge"),
    "Look inside": (
        *("attention", "heads", "boundary", "saturation", "probe", "deviant", "per-position", "functions"),
    ),
    "Papers": ("experiment", "claims", "paper-report", "site"),
    "Language models": ("lm", "prompted"),
    "Maintenance": ("list", "doctor", "report", "export", "verify"),
}
LINE = 100  # characters


class Command(NamedTuple):
    """A command in the sources: its help text, and the function or analysis that it is."""

    name: str
    help: str
    module: str
    part: str


def commands() -> Iterator[Command]:
    """Yield every command of the folder ``commands``: the functions that ``click.command`` or ``click.group`` makes."""
    for module in pkgutil.iter_modules([str(ROOT / "cli" / "commands")]):
        for node in _parsed(ROOT / "cli" / "commands" / f"{module.name}.py"):
            call = _decorated(node, "click", ("command", "group"))
            if call is not None and isinstance(node, ast.FunctionDef):
                name = _text(call) or node.name.replace("_", "-")
                yield Command(name, ast.get_docstring(node) or "", module.name, node.name)


def analyses() -> Iterator[Command]:
    """Yield the command of each analysis in the package."""
    return parts("analyses")


def parts(folder: str, registry: str = "registry") -> Iterator[Command]:
    """Yield the parts that a folder of the package adds to a registry, with their docstrings, in any order."""
    for module in pkgutil.iter_modules([str(ROOT / folder)]):
        path = ROOT / folder / module.name
        for node in _parsed(path / "__init__.py" if module.ispkg else path.with_suffix(".py")):
            call = _decorated(node, registry, ("add",))
            if call is not None and isinstance(node, ast.ClassDef):
                yield Command(_text(call), ast.get_docstring(node) or "", module.name, node.name)


def keys(path: str, name: str) -> list[str]:
    """Return the keys of the dictionary of this name in a file of the package."""
    for node in _parsed(ROOT / path):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Dict(keys=literals)) if found == name:
                return [str(key.value) for key in literals if isinstance(key, ast.Constant)]
    raise ValueError(f"{path} has no dictionary {name}")


def grouped(about: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the commands of each group with the first line of their help, which ``about`` holds by name.

    >>> grouped({"sweep": "Train and test.", "site": "Write pages.", "costs": "Measure time."})
    {'Train and compare': {'sweep': 'Train and test.'}, 'Papers': {'site': 'Write pages.'}}
    """
    first = {name: text.partition("\n")[0] for name, text in about.items()}
    there = {group: {name: first[name] for name in names if name in first} for group, names in GROUPS.items()}
    return {group: lines for group, lines in there.items() if lines}


def rare(names: Iterable[str]) -> list[str]:
    """Return the commands that no group has, sorted."""
    shown = {name for group in GROUPS.values() for name in group}
    return sorted(set(names) - shown)


def _parsed(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def _decorated(node: ast.stmt, owner: str, names: tuple[str, ...]) -> ast.Call | None:
    """Return the decorator ``@owner.name(...)`` of a function or class, if it has one."""
    for decorator in getattr(node, "decorator_list", ()):
        match decorator:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr=name)) if found == owner and name in names:
                return decorator
    return None


def _text(call: ast.Call) -> str:
    """Return the first argument of a call where it is a text."""
    match call.args:
        case [ast.Constant(value=str(text)), *_]:
            return text
    return ""


def main() -> None:
    """Print the menu as targets of make."""
    about = {each.name: each.help for each in (*commands(), *analyses())}
    for group, lines in grouped(about).items():
        print(f"{group}:")
        for name, line in lines.items():
            print(f"  make {name:<12} {line}")
    print("Further commands:")
    names = ", ".join(rare(about))
    print(textwrap.fill(names, LINE, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))


if __name__ == "__main__":
    main()

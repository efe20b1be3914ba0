"""Commands known by name and help text, and imported when they are called: ``--help`` answers at once."""

import ast
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[1]


class Deferred(click.Command):
    """A command whose module is imported by ``load``."""

    def __init__(self, name: str, help: str, load: Callable[[], click.Command], hidden: bool = False) -> None:
        super().__init__(name, help=help, hidden=hidden)
        self.load = load

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Context of the loaded command."""
        return self.load().make_context(info_name, args, parent, **extra)


class DeferredAnalysis(Deferred):
    """The command of an analysis; menu and manual have its first line alone."""

    def __init__(self, name: str, about: str) -> None:
        super().__init__(name, about.partition("\n")[0], self._load)
        self.short_help = self.help

    def _load(self) -> click.Command:
        found: click.Command = import_module("icl_lab.cli.commands.analyses").command(self.name)
        return found


def loaded(command: click.Command) -> click.Command:
    """Return a command with its options."""
    return command.load() if isinstance(command, Deferred) else command


def commands() -> Iterator[Deferred]:
    """Yield every command of the folder ``commands``: the functions that ``click.command`` or ``click.group`` makes."""
    for module in pkgutil.iter_modules([str(ROOT / "cli" / "commands")]):
        for node in _parsed(ROOT / "cli" / "commands" / f"{module.name}.py"):
            call = _decorated(node, "click", ("command", "group"))
            if call is not None and isinstance(node, ast.FunctionDef):
                name = _text(call) or node.name.replace("_", "-")
                hidden = any(word.arg == "hidden" for word in call.keywords)
                yield Deferred(name, ast.get_docstring(node) or "", _loader(module.name, node.name), hidden)


def analyses() -> Iterator[DeferredAnalysis]:
    """Yield the command of each analysis that lies in the package."""
    for module in pkgutil.iter_modules([str(ROOT / "analyses")]):
        path = ROOT / "analyses" / module.name
        for node in _parsed(path / "__init__.py" if module.ispkg else path.with_suffix(".py")):
            call = _decorated(node, "registry", ("add",))
            if call is not None and isinstance(node, ast.ClassDef):
                yield DeferredAnalysis(_text(call), ast.get_docstring(node) or "")


def _loader(module: str, function: str) -> Callable[[], click.Command]:
    def load() -> click.Command:
        found: click.Command = getattr(import_module(f"icl_lab.cli.commands.{module}"), function)
        return found

    return load


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

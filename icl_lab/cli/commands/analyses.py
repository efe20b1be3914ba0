"""One command for each analysis: its name, its docstring and its fields are the command's."""

import ast
import dataclasses
import pkgutil
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from icl_lab.cli.launch import Order, complete, models, resolve_runs
from icl_lab.cli.options import SEEDS, crowd_options, model_options, results_option, style_option, tell
from icl_lab.cli.progress import say
from icl_lab.cli.values import Finite, Numbers

FOLDER = Path(__file__).parents[2] / "analyses"


class Deferred(click.Command):
    """A command that is known by name and first line; what it needs is imported when it is called."""

    def __init__(self, name: str, line: str) -> None:
        super().__init__(name, short_help=line, help=line)

    def load(self) -> click.Command:
        """Returns the command with its options."""
        return command(str(self.name))

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Help of the loaded command."""
        return self.load().make_context(info_name, args, parent, **extra)


def deferred() -> Iterator[Deferred]:
    """Yields the command of each analysis that lies in the package, without importing it: help answers at once."""
    for module in pkgutil.iter_modules([str(FOLDER)]):
        path = FOLDER / module.name
        source = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.ClassDef):
                for name in map(_announced, node.decorator_list):
                    if name:
                        yield Deferred(name, (ast.get_docstring(node) or "").partition("\n")[0])


def command(name: str) -> click.Command:
    """Returns the command of an analysis; raises ``UnknownName`` where there is none of that name."""
    from icl_lab.analyses import registry

    part: Any = registry.part(name)

    def ask(**words: Any) -> None:
        _ask(name, part, words)

    decorated = (
        model_options(draws_option(study_options(crowd_options(ask))))
        if part.trains
        else rule_options(study_options(ask))
    )
    hints = typing.get_type_hints(part)
    for field in reversed(dataclasses.fields(part)):
        decorated = _option(field, hints[field.name])(decorated)
    return click.command(name, help=part.__doc__)(decorated)


def study_options(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of every command that publishes a study."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Say what would be trained and written, and do nothing."),
        click.option("--force", is_flag=True, help="Write over another study in the folder that --name names."),
        click.option("--name", default="", help="Folder in the results folder.  [default: named by what is asked]"),
    ):
        ask = option(ask)
    return ask


def draws_option(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the choice of the test set."""
    choice = click.Choice(["ours", "paper"])
    return click.option("--draws", type=choice, default="ours", help="paper: the published test set.")(ask)


def rule_options(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a command that asks rules without a model."""
    draws = click.option(
        "--seeds", default=1, show_default=True, type=click.IntRange(1, SEEDS), help="Independent draws, 0 to N-1."
    )
    attn = click.option("--attn", "attns", multiple=True, help="Normalizer; may be given again.  [default: the usual]")
    return attn(draws(results_option(style_option(ask))))


def _ask(name: str, part: Any, words: dict[str, Any]) -> None:
    from icl_lab import tasks
    from icl_lab.launch import study

    analysis = part(**{field.name: words.pop(field.name) for field in dataclasses.fields(part)})
    folder, force, order = words.pop("name"), words.pop("force"), Order.of(words)
    words["attns"] = words["attns"] or tuple(analysis.usual_rules)
    if analysis.trains:
        words["task"] = words["task"] or part.usual_task
        runs, lab = models(**words)
    else:  # a run stands for a rule and a seed: of which task and size says nothing
        words |= {"task": tasks.names()[0], "preset": "smoke", "settings": (), "draws": "ours"}
        runs, lab = resolve_runs(**words, device="cpu", threads=None, evidence=False)

    def unfinished(place: Path) -> None:
        if order.dry_run:
            say(f"would write {place}")

    made = study.analyse(
        name,
        analysis,
        runs,
        lab,
        lambda runs, tested: complete(runs, lab, order, tested=tested),
        name=folder,
        force=force,
        unfinished=unfinished,
    )
    if made is not None:
        page = next(page for page in (f"{name}.html", "report.html") if page in made.files)
        tell(made.text, made.folder, made.files, page)


def _announced(decorator: ast.expr) -> str:
    """The name in ``@registry.add("name")``; empty for another decorator."""
    match decorator:
        case ast.Call(func=ast.Attribute(attr="add"), args=[ast.Constant(value=str(name))]):
            return name
    return ""


def _option(field: "dataclasses.Field[Any]", hint: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The click option of a field: by its type, its default and what ``option`` says of it."""
    from icl_lab.analyses import options

    about, (kind, many), default = field.metadata, options.kind_of(hint), _default(field)
    names = [f"--{name.replace('_', '-')}" for name in (field.name, *about.get("names", ()))]
    settings: dict[str, Any] = {"help": about.get("help", ""), "required": default is None and not _optional(hint)}
    if kind is bool:
        return click.option(
            f"{names[0]}/--no-{names[0][2:]}", field.name, default=default, show_default=True, **settings
        )
    least, most = options.bounds(field, kind) if kind in (int, float) else (0, 0)
    if many:
        shown = ",".join(f"{value:g}" for value in default)
        row = Numbers(kind, max(0, least) if kind is int else least, most, empty=True)
        return click.option(*names, field.name, type=row, default=shown, show_default=bool(shown), **settings)
    if default is not None:
        settings |= {"default": default, "show_default": default != ""}
    bounded: dict[type, Any] = {int: click.IntRange(int(least), int(most)), float: Finite(least, most)}
    return click.option(*names, field.name, type=bounded.get(kind, kind), **settings)


def _default(field: "dataclasses.Field[Any]") -> Any:
    """The default of a field; None where it has none."""
    return None if field.default is dataclasses.MISSING else field.default


def _optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)

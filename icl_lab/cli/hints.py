"""The command to type next: spelled as the program was started, with what was asked for this time."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from icl_lab.cli.deferred import loaded
from icl_lab.cli.variables import as_words, option, spelled
from icl_lab.parts import outside

# Of one command alone: which part of it, where it writes, and what it throws away.
OWN = ("--force", "--dry-run", "--shard", "--name", "--swap")


def then(name: str, changes: Mapping[str, Sequence[str]] | None = None) -> str:
    """Returns the command ``name`` with the options that were typed now, where it takes them.

    ``changes`` holds options, such as ``--attn``, with the values that they have instead; none to leave one out.
    """
    context = click.get_current_context()
    menu = context.find_root().command
    command = menu.get_command(context, name) if isinstance(menu, click.Group) else None
    if command is None:
        raise ValueError(f"there is no command '{name}' to be done next")
    command = loaded(command)
    takes = {option(parameter): parameter for parameter in command.params}
    chosen = {name: values for name, values in _typed(context).items() if name not in OWN} | dict(changes or {})
    said = [(parameter, value) for name, parameter in takes.items() for value in chosen.get(name, ())]
    imports = [source.given for source in outside.loaded()]
    if by_make():
        variables = {outside.VARIABLE: ",".join(imports), "PYTHON": os.environ.get("PYTHON", "")}
        before = "".join(f"{key}={shlex.quote(value)} " for key, value in variables.items() if value)
        return f"{before}make {name} {spelled(command, said)}".strip()
    words = [*(word for each in imports for word in ("--import", each)), name]
    return f"{program()} {shlex.join([*words, *(word for each in said for word in as_words(*each))])}"


def given(command: click.Command) -> list[str]:
    """Returns the options that were typed now and that another command takes, as its words."""
    typed = _typed(click.get_current_context())
    takes = ((parameter, typed.get(option(parameter), ())) for parameter in command.params)
    return [word for parameter, values in takes for value in values for word in as_words(parameter, value)]


def typed() -> str:
    """Return the command line as it was typed, but for ``--track``, which no result depends on."""
    words = list(sys.argv[1:])
    while "--track" in words:
        del words[(at := words.index("--track")) : at + 2]
    return shlex.join(["icl-lab", *(word for word in words if not word.startswith("--track="))])


def by_make() -> bool:
    """True if ``make`` started this program."""
    return sys.argv[0] == "make"


def program() -> str:
    """Returns what starts this program: ``icl-lab`` as it was typed or beside Python, or ``python -m icl_lab``."""
    script = Path(sys.executable).with_name("icl-lab")
    if by_make() and script.exists():
        return _short(str(script))
    if by_make() or Path(sys.argv[0]).name == "__main__.py":
        return f"{_python()} -m icl_lab"
    return sys.argv[0] if os.sep not in sys.argv[0] else _short(sys.argv[0])


def _python() -> str:
    here = next((name for name in ("python", "python3") if shutil.which(name) == sys.executable), sys.executable)
    return here if os.sep not in here else _short(here)


def _short(path: str) -> str:
    """A path as it can be typed here: its name where the shell finds it, or relative to this folder."""
    there = Path(path).absolute()
    if shutil.which(there.name) == str(there):
        return there.name
    return str(there.relative_to(Path.cwd())) if there.is_relative_to(Path.cwd()) else path


def _typed(context: click.Context) -> dict[str, Sequence[str]]:
    """The options of the command that runs now that were given to it, with their values as text."""
    found: dict[str, Sequence[str]] = {}
    for parameter in context.command.params:
        name, given = str(parameter.name), context.get_parameter_source(str(parameter.name))
        if given is ParameterSource.COMMANDLINE and name in context.params:
            value = context.params[name]
            found[option(parameter)] = [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
    return found

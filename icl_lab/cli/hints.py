"""The command to type next, spelled as the program was started, with the options of this call."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from icl_lab.base import outside
from icl_lab.cli.deferred import loaded

# Options of one command alone, not carried over to the next.
OWN = ("--force", "--retrain", "--dry-run", "--shard", "--name", "--swap")


def then(name: str, changes: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return the command ``name`` with the options that were typed now, where it takes them.

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
    if attns := chosen.get("--attn"):
        chosen["--attn"] = [" ".join(attns)]  # the form of README, whatever was typed
    said = [(parameter, value) for name, parameter in takes.items() for value in chosen.get(name, ())]
    words = [*(word for source in outside.loaded() for word in ("--import", source.given)), name]
    return f"{program()} {shlex.join([*words, *(word for each in said for word in as_words(*each))])}"


def typed() -> str:
    """Return the command line as it was typed, but for ``--track``, which no result depends on."""
    words = list(sys.argv[1:])
    while "--track" in words:
        del words[(at := words.index("--track")) : at + 2]
    return shlex.join(["icl-lab", *(word for word in words if not word.startswith("--track="))])


def option(parameter: click.Parameter) -> str:
    """Return the longest name of an option or argument."""
    return max(parameter.opts, key=len)


def as_words(parameter: click.Parameter, value: str) -> list[str]:
    """Return an option or argument with a value as it is typed; of a flag, the name that has the value."""
    if isinstance(parameter, click.Argument):
        return [value]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [parameter.secondary_opts[0] if value == "False" and parameter.secondary_opts else option(parameter)]
    # A value that begins with a dash would be taken for an option.
    return [f"{option(parameter)}={value}"] if value.startswith("-") else [option(parameter), value]


def program() -> str:
    """Return the way to start this program: ``icl-lab`` as it was typed, or the script or module of this Python."""
    if Path(sys.argv[0]).name != "__main__.py":
        return sys.argv[0] if os.sep not in sys.argv[0] else _short(sys.argv[0])
    script = Path(sys.executable).with_name("icl-lab")
    return _short(str(script)) if script.exists() else f"{_python()} -m icl_lab"


def _python() -> str:
    here = next((name for name in ("python", "python3") if shutil.which(name) == sys.executable), sys.executable)
    return here if os.sep not in here else _short(here)


def _short(path: str) -> str:
    """A path as it can be typed here: its name where the shell finds it, or relative to this folder."""
    there = Path(path).absolute()
    if shutil.which(there.name) == str(there):
        return there.name
    return str(there.relative_to(Path.cwd())) if there.is_relative_to(Path.cwd()) else path


def _listed(values: object) -> str:
    return ",".join(map(str, values)) if isinstance(values, list) else f"{values:g}"


def _typed(context: click.Context) -> dict[str, Sequence[str]]:
    """The options of the command that runs now that were given to it, with their values as text."""
    found: dict[str, Sequence[str]] = {}
    for parameter in context.command.params:
        name, given = str(parameter.name), context.get_parameter_source(str(parameter.name))
        if given is ParameterSource.COMMANDLINE and name in context.params:
            value = context.params[name]
            if isinstance(value, Mapping):  # of AXIS=VALUE and FIELD=A,B
                value = tuple(f"{key}={_listed(values)}" for key, values in value.items())
            found[option(parameter)] = [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
    return found

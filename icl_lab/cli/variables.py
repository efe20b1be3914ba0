"""Make variables as options of a command: ``make sweep TASK=linear ATTN="softmax ssa"`` is ``sweep --task linear ...``.

Values come through the environment, so that neither make nor a shell reads them as code. Any option of a command is a
variable by its name in capitals (``--dry-run`` is ``DRY_RUN=yes``); ``ARGS`` holds further words as the program takes
them.
"""

import shlex
from collections.abc import Iterable, Mapping

import click

from icl_lab.errors import BadValue, UnknownOption

USUAL = {"TASK": "linear", "ATTN": "softmax"}  # where a command cannot do without
NO = ("no", "false", "off", "0")


def options(command: click.Command) -> dict[str, click.Parameter]:
    """Returns what a command takes, by the name of its variable.

    >>> @click.command()
    ... @click.argument("name")
    ... @click.option("--dry-run", is_flag=True)
    ... def experiment(name, dry_run): ...
    >>> sorted(options(experiment))
    ['ARGS', 'DRY_RUN', 'NAME']
    """
    found = {
        name: parameter for parameter in command.params for name in map(_variable, parameter.opts) if len(name) > 1
    }
    return {**found, "ARGS": click.Argument(["args"], nargs=-1)}


def option(parameter: click.Parameter) -> str:
    """Returns the longest name of an option or argument."""
    return max(parameter.opts, key=len)


def as_words(parameter: click.Parameter, value: str) -> list[str]:
    """Returns an option or argument with a value as it is typed: of a flag the name that says so."""
    if isinstance(parameter, click.Argument):
        return [value]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [parameter.secondary_opts[0] if value == "False" and parameter.secondary_opts else option(parameter)]
    # A value that begins with a dash would be taken for an option.
    return [f"{option(parameter)}={value}"] if value.startswith("-") else [option(parameter), value]


def _variable(name: str) -> str:
    """The make variable of an option: ``--dry-run`` is ``DRY_RUN``."""
    return name.lstrip("-").replace("-", "_").upper()


def words(command: click.Command, values: Mapping[str, str], given: Iterable[str], found: Iterable[str]) -> list[str]:
    """Returns the words that follow the name of a command, from the values of make variables; empty ones do not count.

    ``given`` were typed: raises ``UnknownOption`` where the command does not take one. ``found`` were in the
    environment, which holds much that is not meant: they count where they are taken.
    """
    taken, made = options(command), list[str]()
    typed = [name for name in given if values.get(name)]
    for name in typed:
        if name not in taken:
            raise UnknownOption(str(command.name), name, sorted(taken))
    held = {name: values[name] for name in found if name in taken and values.get(name)}
    held |= {name: values[name] for name in typed}
    needed = {name: value for name, value in USUAL.items() if name in taken and taken[name].required}
    for name, value in ({**needed, **held}).items():
        if name != "ARGS":
            made += _said(name, taken[name], value)
    return made + _split("ARGS", held.get("ARGS", ""))


def spelled(command: click.Command, said: Iterable[tuple[click.Parameter, str]]) -> str:
    """Returns parameters with their values as ``make`` takes them: ``TASK=linear ATTN='softmax ssa'``."""
    together: dict[str, list[str]] = {}
    for parameter, value in said:
        together.setdefault(_variable(option(parameter)), []).append(value)
    several = {_variable(option(parameter)) for parameter in command.params if _several(parameter)}
    texts = {name: shlex.join(values) if name in several else values[-1] for name, values in together.items()}
    return " ".join(f"{name}={shlex.quote(text)}" for name, text in texts.items())


def _said(name: str, parameter: click.Parameter, value: str) -> list[str]:
    if isinstance(parameter, click.Option) and parameter.is_flag and value in NO:
        return []
    parts = _split(name, value) if _several(parameter) else [value]
    return [word for part in parts for word in as_words(parameter, part)]


def _several(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.multiple


def _split(name: str, value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        raise BadValue(f"{name}={value} cannot be read as a list of words: {error}.") from None

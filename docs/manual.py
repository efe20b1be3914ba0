"""The manual of the command line, read from the commands themselves: names, arguments, options, defaults."""

import re
from collections import Counter
from collections.abc import Iterator

import click

from icl_lab.cli.deferred import loaded
from icl_lab.cli.imports import DeferredAnalysis

MANY = 4  # commands that take an option, from which on it is explained once


def manual(root: click.Group, program: str) -> list[str]:
    """Return the options of many commands, and a section for each other command, as Markdown; groups are opened.

    Analyses are left out: their table is in docs/analyses.md.
    """
    sections = {name: (command, _rows(command, name)) for name, command in _walk(root, program)}
    counts = Counter(row for _, rows in sections.values() for row in rows)
    shared = [row for row, count in counts.items() if count >= MANY]
    lines = ["## Options of many commands", "", *shared]
    for name, (command, rows) in sections.items():
        usage = " ".join([name, *command.collect_usage_pieces(click.Context(command, info_name=name))])
        about = (command.help or "").replace("\b\n", "").strip().replace("<", "&lt;")  # \b forbids click to wrap lines
        lines += ["", f"## `{name.removeprefix(program + ' ')}`", "", about]
        lines += ["", f"Usage: `{usage}`"] if usage != f"{name} [OPTIONS]" else []
        own = [row for row in rows if row not in shared]
        lines += ["", *own] if own else []
        taken, missing = ([row for row in shared if (row in rows) == there] for there in (True, False))
        others = ", ".join(f"`{re.findall('[^ `*,]+', row)[0]}`" for row in min(taken, missing, key=len))
        but = f"all{others and ' but '}" if len(missing) < len(taken) else ""
        lines += ["", f"As above: {but}{others}."] if taken else []
    return lines


def _rows(command: click.Command, name: str) -> list[str]:
    """Return the options of a command as items of a list; every command has --help."""
    context = click.Context(command, info_name=name)
    records = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    return [f"* `{_short(names)}`: {_short(words)}" for names, words in records if words and "--help" not in names]


def _short(words: str) -> str:
    """Text in one line without the ranges of numbers, which the commands themselves name where one is left."""
    words = re.sub(r"(INTEGER|FLOAT) RANGE", "NUMBER", " ".join(words.split()))
    return re.sub(r"; [\w.]*<?=?x?<=?[\w.<=]+(?=\])| ?\[[\w.]*<?=?x?<=?[\w.<=]+\]", "", words).replace("<", "&lt;")


def _walk(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, sorted, a group's own commands after it."""
    for name in sorted(group.commands):
        if isinstance(group.commands[name], DeferredAnalysis):
            continue
        command = loaded(group.commands[name])
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _walk(command, f"{path} {name}")

"""The manual of the command line, read from the commands themselves: names, arguments, options, defaults."""

from collections import Counter
from collections.abc import Iterator

import click

from icl_lab import markdown as md
from icl_lab.cli.deferred import loaded
from icl_lab.cli.imports import DeferredAnalysis

MANY = 4  # commands that take an option, from which on it is explained once


def manual(root: click.Group, program: str) -> list[str]:
    """Return the options of many commands, and a section for each command, as Markdown; groups are opened."""
    sections = {name: (command, _rows(command, name)) for name, command in _walk(root, program)}
    counts = Counter(row for _, rows in sections.values() for row in rows)
    shared = [row for row, count in counts.items() if count >= MANY]
    lines = ["## Options of many commands", "", *md.table(["option", "meaning"], shared)]
    for name, (command, rows) in sections.items():
        usage = " ".join([name, *command.collect_usage_pieces(click.Context(command, info_name=name))])
        about = _plain((command.help or "").replace("\b\n", "").strip())  # a mark that forbids click to wrap lines
        lines += ["", f"## `{name.removeprefix(program + ' ')}`", "", about, "", f"Usage: `{usage}`"]
        own = [row for row in rows if row not in shared]
        others = [row[0].split()[0].strip("`,") for row in rows if row in shared]
        lines += ["", *md.table(["option", "meaning"], own)] if own else []
        lines += ["", f"As above: {', '.join(f'`{option}`' for option in others)}."] if others else []
    return lines


def _rows(command: click.Command, name: str) -> list[tuple[str, str]]:
    context = click.Context(command, info_name=name)
    records = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    # Every command has --help; saying so each time tells nothing.
    return [(f"`{_cell(names)}`", _cell(words)) for names, words in records if "--help" not in names]


def _walk(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, sorted, a group's own commands after it."""
    for name in sorted(group.commands):
        command = group.commands[name]
        command = command if isinstance(command, DeferredAnalysis) else loaded(command)
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _walk(command, f"{path} {name}")


def _cell(words: str) -> str:
    return _plain(" ".join(words.split()))


def _plain(words: str) -> str:
    """Text in which nothing is taken for HTML."""
    return words.replace("<", "&lt;")

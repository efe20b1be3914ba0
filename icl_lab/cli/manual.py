"""The manual of the command line, read from the commands themselves: names, arguments, options, defaults."""

from collections.abc import Iterator

import click

from icl_lab import markdown as md
from icl_lab.cli.deferred import loaded
from icl_lab.cli.imports import DeferredAnalysis


def manual(root: click.Group, program: str) -> list[str]:
    """Returns a section for each command as Markdown; groups inside ``root`` are opened, hidden commands left out."""
    lines: list[str] = []
    for name, command in _walk(root, program):
        context = click.Context(command, info_name=name)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        about = _plain((command.help or "").replace("\b\n", "").strip())  # a mark that forbids click to wrap lines
        lines += ["", f"## `{name.removeprefix(program + ' ')}`", "", about, "", f"Usage: `{usage}`"]
        records = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
        # Every command has --help; saying so each time tells nothing.
        rows = [(f"`{_cell(names)}`", _cell(words)) for names, words in records if "--help" not in names]
        lines += ["", *md.table(["option", "meaning"], rows)] if rows else []
    return lines[1:]


def _walk(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yields every command with its full name, sorted, a group's own commands after it."""
    for name in sorted(group.commands):
        if group.commands[name].hidden:
            continue
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

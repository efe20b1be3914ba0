"""``--import`` on the command line: taken out before a command reads its words, so that it may stand anywhere."""

import os
from collections.abc import Sequence

import click

OPTION = "--import"
VARIABLE = "ICL_LAB_IMPORT"
HELP_IMPORT = (
    "Add the normalizers, tasks and analyses of a module or a file; may be given again, before or after the command, "
    f"or by {VARIABLE}=./mine.py,mypackage. Runs its code."
)


def named(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the words without ``--import X`` and ``--import=X``, and each X after those of the environment.

    Words after ``--`` stay as they are. Raises ``UsageError`` where ``--import`` names nothing.
    """
    imports = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    left: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if word == "--":
            left += [word, *rest]
        elif option != OPTION:
            left.append(word)
        else:
            name = value if equals else next(rest, "")
            if not name or name.startswith("-"):
                raise click.UsageError(f"{OPTION} takes a module or the path of a .py file.")
            imports.append(name)
    return left, imports

"""Standard output: Markdown as it is where a program reads it, and as aligned columns where a person does."""

import os
import sys

import click

from icl_lab.base import markdown


def out(text: str) -> None:
    """Print a text that may hold Markdown tables.

    Where nobody reads any more (``| head -1``) what follows goes nowhere, and the work that is left is done all the
    same.
    """
    if sys.stdout.isatty():
        text = markdown.plain(text, lambda cell: click.style(cell, bold=True))
    try:
        click.echo(text)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123

"""The command that shows the attention maps of a prompt."""

from typing import Any

import click

from icl_lab.cli.launch import models
from icl_lab.cli.options import model_options, tell


@click.command("attention")
@model_options
@click.option("--prompt", required=True, help="Numbers such as 1,-2,3,70, or random:sigma=10,length=20,seed=1.")
@click.option("--function", default="", help="The function behind typed numbers, e.g. 1,0.  [default: drawn]")
@click.option("--layers", default="", help="Layers to show, from 0, e.g. 0,1.  [default: all]")
@click.option("--heads", default="", help="Heads to show, from 0.  [default: all]")
@click.option("--last", type=click.IntRange(min=1), help="Show only the last queries.  [default: all]")
@click.option(
    "--means", default=64, show_default=True, type=click.IntRange(min=0), help="Prompts of the means; 0: none."
)
@click.option(
    "--name", default="", help="Folder in the results folder.  [default: attention, task, preset, rules, prompt]"
)
def attention_(
    prompt: str, function: str, layers: str, heads: str, last: int | None, means: int, name: str, **where: Any
) -> None:
    """Show what every head attends to in a prompt, as a page; trains what is missing."""
    from icl_lab.analyses.attention import page, report, study
    from icl_lab.analyses.attention import prompt as prompts
    from icl_lab.runs import environment

    runs, lab = models(**where)
    asked = prompts.read(prompt, runs[0].spec, function)
    shown = study.window(runs, asked, layers, heads, last)
    found = study.look(runs, lab, asked, shown, means)
    folder = lab.store.root / (name or study.folder_name(runs, asked))
    html = page.page(found, lab.command, environment.origin()).html
    text, files = report.publish(found, html, folder, lab.command)
    tell(text, folder, files, "attention.html")

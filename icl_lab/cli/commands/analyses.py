"""One command for each analysis: its name, its docstring and its fields are the command's."""

import dataclasses
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

import icl_lab as icl
from icl_lab.analyses import frame, registry
from icl_lab.cli.options import (
    crowd_options,
    draws_option,
    gathered,
    model_options,
    results_option,
    style_option,
    tell_files,
    together,
)
from icl_lab.cli.values import Finite, Numbers, attn_option
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.where import SEEDS, Where

# Of every command that publishes a study.
study_options = together(
    click.option("--name", default="", help="Folder in the results folder.  [default: named by what is asked]"),
    click.option(
        "--force", is_flag=True, help="Ask again, and write over another study in the folder that --name names."
    ),
    click.option("--dry-run", is_flag=True, help="Say what would be trained and written, and do nothing."),
)
ask_options = together(model_options, draws_option, study_options, crowd_options)
# Of a command that asks normalizers without a model.
rule_options = together(
    attn_option(help="Normalizer; may be given again.  [default: the usual]"),
    click.option(
        "--seeds", default=1, show_default=True, type=click.IntRange(1, SEEDS), help="Independent draws, 0 to N-1."
    ),
    results_option,
    style_option,
    study_options,
)


def command(name: str) -> click.Command:
    """Return the command of an analysis; raises ``UnknownName`` where there is none of that name."""
    part: Any = registry.part(name)

    @gathered
    def ask_models(places: Sequence[Path], plan: RunPlan, where: Where, **own: Any) -> None:
        _tell(icl.analyse(name, models(name, places, plan, where), where=where, **own))

    @gathered
    def ask_normalizers(attns: Sequence[str], seeds: int, where: Where, **own: Any) -> None:
        _tell(icl.analyse(name, attns, seeds=seeds, where=where, **own))

    decorated = ask_options(ask_models) if part.trains else rule_options(ask_normalizers)
    hints = typing.get_type_hints(part)
    for field in reversed(dataclasses.fields(part)):
        decorated = _option(field, hints[field.name])(decorated)
    return click.command(name, help=part.__doc__)(decorated)


def models(question: str, places: Sequence[Path], plan: RunPlan, where: Where) -> list[icl.Run]:
    """Return the runs in these folders, or else those of a plan, trained or not.

    Raises ``UnknownName`` where a folder holds no run, and ``UsageError`` where nothing is named.
    """
    part: Any = registry.part(question)
    attns = plan.attns or tuple(part.usual_rules)
    task = plan.task or part.usual_task
    with where.session() as lab:
        if places:
            runs = [lab.store.at(place) for place in places]
        elif task and attns:
            runs = dataclasses.replace(plan, task=task, attns=attns).runs(lab.store)
        else:
            raise click.UsageError("name the models: --task and --attn, or --run with the folder of a run.")
    return [icl.Run(run, lab) for run in runs]


def _tell(answer: icl.Answer) -> None:
    files = answer.made.files
    page = next(page for page in (f"{answer.question}.html", "report.html") if page in files)
    tell_files(answer.folder, files, page)


def _option(field: "dataclasses.Field[Any]", hint: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The click option of a field: by its type, its default and what ``option`` says of it."""
    about, (kind, many) = field.metadata, frame.kind_of(hint)
    default: Any = None if field.default is dataclasses.MISSING else field.default
    names = [f"--{name.replace('_', '-')}" for name in (field.name, *about.get("names", ()))]
    settings: dict[str, Any] = {"help": about.get("help", ""), "required": default is None and not _optional(hint)}
    if kind is bool:
        return click.option(
            f"{names[0]}/--no-{names[0][2:]}", field.name, default=default, show_default=True, **settings
        )
    least, most = frame.bounds(field, kind) if kind in (int, float) else (0, 0)
    if many:
        shown = ",".join(f"{value:g}" for value in default)
        row = Numbers(kind, max(0, least) if kind is int else least, most, empty=True)
        return click.option(*names, field.name, type=row, default=shown, show_default=bool(shown), **settings)
    if default is not None:
        settings |= {"default": default, "show_default": default != ""}
    bounded: dict[type, Any] = {int: click.IntRange(int(least), int(most)), float: Finite(least, most)}
    return click.option(*names, field.name, type=bounded.get(kind, kind), **settings)


def _optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)

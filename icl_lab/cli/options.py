"""Options that commands share."""

import dataclasses
import functools
import re
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from icl_lab.cli.output import out
from icl_lab.cli.terminal import hand_over
from icl_lab.cli.values import Finite, Folder, RunsAtOnce, attn_option, grid_of, seconds, several_settings
from icl_lab.execute.where import SEEDS, Where

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
PAIRS = 1000  # of timed runs


def together(*options: Decorator) -> Decorator:
    """Several options as one, in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def _shard(context: click.Context, option: click.Parameter, text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    part, parts = map(int, found.groups()) if found else (1, 0)
    if part > parts or not parts:
        raise click.BadParameter(f"'{text}' is not part I of N, such as 1/4 (0/4 and 4/4 are the same part).")
    return part, parts


# Fields whose values are written otherwise than in Python.
SPECIAL: dict[str, dict[str, Any]] = {
    "jobs": {"type": RunsAtOnce()},
    "shard": {"callback": _shard, "default": "1/1"},
}


def of_group(group: str, own: type[Where] = Where) -> dict[str, Decorator]:
    """Return the click options of a group of fields of ``Where``, by the names of the fields."""
    hints = typing.get_type_hints(own)
    chosen = [field for field in dataclasses.fields(own) if field.metadata["group"] == group]
    return {field.name: _of_field(field, hints[field.name]) for field in chosen}


def _of_field(field: "dataclasses.Field[Any]", hint: Any) -> Decorator:
    """The click option of a field, from its type, default and metadata."""
    about, name = field.metadata, f"--{field.name.replace('_', '-')}"
    if hint is bool:
        return click.option(name, is_flag=True, help=about["help"])
    if hint == bool | None:
        return click.option(f"{name}/--no-{name[2:]}", default=None, help=about["help"])
    usual = f"  [default: {about['usual']}]" if "usual" in about else ""
    words = {"help": about["help"] + usual, "default": field.default, "metavar": about.get("metavar")}
    if not usual:
        words["show_default"] = field.name not in SPECIAL
    if typing.get_origin(hint) is Literal:
        words["type"] = click.Choice(typing.get_args(hint))
    elif "most" in about:
        words["type"] = (Finite if hint is float else click.IntRange)(about["least"], about["most"])
    return click.option(name, **words | SPECIAL.get(field.name, {}))


place_options = of_group("place")
device_option, threads_option, evidence_option = (place_options[name] for name in ("device", "threads", "evidence"))
results_option = click.option(  # read before --run, wherever it stands
    "--results", default="results", show_default=True, type=Folder(), is_eager=True, help="Folder."
)
read_option = click.option("--results", default="results", show_default=True, type=Folder(there=True), help="Folder.")
experiments_option = click.option(
    "--experiments", default="experiments", type=Folder(there=True), help="Folder of files."
)
until_decided_option = click.option(
    "--until-decided", is_flag=True, help="Add seeds until all claims are decided, 64 seeds, or the budget is used."
)
budget_option = click.option(
    "--budget", metavar="TIME", callback=seconds, help="When --until-decided stops: 90m, 3h.  [default: 1h]"
)


def gathered(command: Callable[..., None]) -> Callable[..., None]:
    """Hand options to a command as a ``where`` and a ``plan``, if it takes these, and the others by their names."""

    @functools.wraps(command)
    def call(**words: Any) -> None:
        hand_over(command, words)

    return call


def _style(context: click.Context, option: click.Parameter, style: str) -> None:
    if style == "paper":
        from icl_lab.figures import paper

        context.with_resource(paper.as_well())


style_option = click.option(
    "--style",
    type=click.Choice(["screen", "paper"]),
    default="screen",
    show_default=True,
    expose_value=False,
    callback=_style,
    help="paper: figures for print as well, as NAME-paper.pdf, 3.25 or 6.75 inches wide.",
)
seeds_option = click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1, SEEDS), help="Seeds 0 to N-1."
)

seed_option = click.option("--seed", type=click.IntRange(0, 10**9), help="This seed alone, in place of --seeds.")
draws_option = click.option(
    "--draws",
    type=click.Choice(["ours", "paper", "tuning"]),
    default="ours",
    help="paper: the published test set; tuning: prompts to choose recipes by.",
)
retrain_option = click.option("--retrain", is_flag=True, help="Repeat runs that are finished.")
over_option = click.option("--force", is_flag=True, help="Write over another study in that folder.")
grid_option = click.option(
    "--grid",
    multiple=True,
    metavar="A.B=V,W",
    callback=grid_of,
    help="Several values of a field; again: all combinations. Writes a table and a figure.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
name_option = click.option(
    "--name", default="", help="Folder in the results folder.  [default: named by what is compared]"
)
# Of every command that trains or reads runs.
where_options = together(
    click.option("--preset", default="lite", show_default=True, help="Size of model, training and test grid."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="A.B=V",
        callback=several_settings,
        help="Change a field, e.g. train.steps=2000.",
    ),
    results_option,
    *place_options.values(),
)


# Of commands that may do many runs: at once here, or one part of them here.
crowd_options = together(*of_group("runs").values(), style_option)
# What names runs.
run_options = together(
    click.option("--task", required=True, help="See: icl-lab list tasks."),
    attn_option(required=True, help="Normalizer; may be given again."),
    seeds_option,
    draws_option,
    retrain_option,
    over_option,
    dry_run_option,
    where_options,
)


def stored_runs(context: click.Context, option: click.Parameter, places: Sequence[Path]) -> Sequence[Path]:
    """Read folders of runs; raises ``UnknownName`` where one holds none, before any other option is missed."""
    store = Where(results=context.params["results"]).store()
    for place in places:
        store.at(place)
    return places


# What names trained models: task and normalizer, or the folder of a run.
model_options = together(
    click.option("--run", "places", multiple=True, type=Folder(), callback=stored_runs, help="Folder of a run."),
    click.option("--task", default="", help="See: icl-lab list tasks."),
    attn_option(help="Normalizer; may be given again."),
    seeds_option,
    where_options,
)


def tell_files(folder: Path, files: Sequence[str], picture: str = "") -> None:
    """Print where a study was written, and what to open next."""
    out(f"wrote {folder}: {', '.join(files)}")
    if picture:
        out(f"next: open {folder / picture}")

"""Options that commands share."""

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from icl_lab.cli.output import out
from icl_lab.cli.values import Finite, Folder, RunsAtOnce, seconds, several_rules, several_settings
from icl_lab.launch.bounds import ENGINES, JOBS, SEEDS

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
PAIRS = 1000  # of timed runs


def together(*options: Decorator) -> Decorator:
    """Several options as one, in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


results_option = click.option("--results", default="results", show_default=True, type=Folder(), help="Folder.")
beside_option = click.option(
    "--beside",
    multiple=True,
    type=Folder(there=True),
    help="Folder of a prompted model, as a line beside the normalizers.",
)
read_option = click.option("--results", default="results", show_default=True, type=Folder(there=True), help="Folder.")
experiments_option = click.option(
    "--experiments", default="experiments", type=Folder(there=True), help="Folder of files."
)
evidence_option = click.option(
    "--evidence/--no-evidence",
    default=None,
    help="Whether the repository's runs stand in for runs that the folder lacks.",
)
threads_option = click.option("--threads", type=click.IntRange(1, JOBS), help="CPU threads.  [default: all cores]")
device_option = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 or mps.")
large_option = click.option(
    "--allow-large", is_flag=True, help="Begin even what by estimate exceeds this machine's memory, or eight hours."
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
        from icl_lab.cli.terminal import hand_over  # which imports torch

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
    "--draws", type=click.Choice(["ours", "paper"]), default="ours", help="paper: the published test set."
)
repeat_option = click.option("--force", is_flag=True, help="Repeat runs that are finished.")
over_option = click.option("--force", is_flag=True, help="Write over another study in that folder.")
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
    evidence_option,
    device_option,
    threads_option,
    large_option,
    click.option(
        "--track",
        default="",
        metavar="NAME[:PROJECT]",
        help="Follow trainings in trackio, wandb or tensorboard.  [default: ICL_LAB_TRACK, or none]",
    ),
)


def _shard(context: click.Context, option: click.Parameter, text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    part, parts = map(int, found.groups()) if found else (1, 0)
    if part > parts or not parts:
        raise click.BadParameter(f"'{text}' is not part I of N, such as 1/4 (0/4 and 4/4 are the same part).")
    return part, parts


# Of commands that may do many runs: at once here, or one part of them here.
crowd_options = together(
    click.option(
        "--jobs",
        type=RunsAtOnce(),
        help="Runs at once; threads are divided. auto: one a core, on a Ray cluster as there is room for.  "
        "[default: auto]",
    ),
    click.option(
        "--shard", default="1/1", metavar="I/N", callback=_shard, help="Only part I of N of the runs, for job arrays."
    ),
    style_option,
    click.option(
        "--engine",
        default="local",
        show_default=True,
        type=click.Choice(ENGINES),
        help="Where runs are executed: by processes of this machine, or on a Ray cluster. (What does the steps of a "
        "training is --set train.engine.)",
    ),
    click.option(
        "--address",
        default="",
        metavar="auto|HOST:PORT|local",
        help="The Ray cluster: the one that this machine belongs to, another one, or one of its own, here.  "
        "[default: local]",
    ),
    click.option(
        "--gpus-per-run",
        default=0.0,
        type=Finite(0, 64),
        help="GPUs that Ray reserves for a run; 0.25 puts four on one.  [default: none]",
    ),
)
# What names runs.
run_options = together(
    click.option("--task", required=True, help="See: icl-lab list tasks."),
    click.option(
        "--attn", "attns", required=True, multiple=True, callback=several_rules, help="Normalizer; may be given again."
    ),
    seeds_option,
    draws_option,
    repeat_option,
    dry_run_option,
    where_options,
)
# What names trained models: task and normalizer, or the folder of a run.
model_options = together(
    click.option("--run", "places", multiple=True, type=Folder(), help="Folder of a run."),
    click.option("--task", default="", help="See: icl-lab list tasks."),
    click.option("--attn", "attns", multiple=True, callback=several_rules, help="Normalizer; may be given again."),
    seeds_option,
    where_options,
)


def tell_files(folder: Path, files: Sequence[str], picture: str = "") -> None:
    """Prints where a study was written, and what to open next."""
    out(f"wrote {folder}: {', '.join(files)}")
    if picture:
        out(f"next: open {folder / picture}")

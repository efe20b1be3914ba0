"""The command that ranks many normalizers over many tasks."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import click

from icl_lab import normalizers, tasks
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.cli.options import (
    crowd_options,
    dry_run_option,
    gathered,
    seeds_option,
    tell_files,
    where_options,
)
from icl_lab.cli.output import out
from icl_lab.cli.values import several_rules
from icl_lab.comparison import league as numbers
from icl_lab.comparison import league_pictures as pictures
from icl_lab.execute.complete import complete
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.progress import counted, say
from icl_lab.execute.where import Where
from icl_lab.runs import provenance, study_folder
from icl_lab.runs.evidence.archive import own_studies
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.store import Store

RULES = (
    *("softmax", "ssmax", "ssa", "lssa", "entmax", "sigmoid:bias=visible,l1=yes", "stick-breaking", "scale-invariant"),
    *("sink", "softmax+gated", "forget", "differential"),
)


@click.command()
@click.option("--task", "choices", multiple=True, help="Only this task; may be given again.  [default: all]")
@click.option(
    "--attn",
    "attns",
    multiple=True,
    callback=several_rules,
    help=f"Only this normalizer; may be given again.  [default: {len(RULES)}]",
)
@click.option("--add", "added", multiple=True, help="A normalizer beside these; one of your own after --import.")
@click.option("--train", is_flag=True, help="Train missing runs: hours to days. Without it, stored runs count.")
@click.option("--baseline", default="softmax", show_default=True, help="What cells are told from.")
@click.option("--force", is_flag=True, help="Write over another study in the folder.")
@dry_run_option
@click.option("--name", default="", help="Folder in the results folder.")
@seeds_option
@where_options
@crowd_options
@gathered
def league(
    choices: Sequence[str],
    attns: Sequence[str],
    added: Sequence[str],
    train: bool,
    baseline: str,
    preset: str,
    settings: Sequence[str],
    seeds: int,
    where: Where,
) -> None:
    """Rank normalizers over tasks, by their skill against each task's own references."""
    rules = [normalizers.canonical(rule) for rule in (*(attns or RULES), *added)]
    baseline = normalizers.canonical(baseline)
    plan = RunPlan("", list(dict.fromkeys(rules)), preset, settings, range(seeds))
    with where.session() as lab:
        runs = _fitting(plan, _ranked(choices), lab.store)
        if train and not complete(runs, lab, replace(where, retrain=False)):
            return
        missing = sum(not run.finished for run in runs)
        if where.dry_run:
            out(f"{len(runs) - missing} of {len(runs)} runs are there to be ranked; --train trains what is missing.")
            return
        _publish(runs, baseline, preset, lab, where)
    if missing:
        say(f"{missing} of {len(runs)} runs are missing; --train trains them.")


def _ranked(choices: Sequence[str]) -> list[str]:
    """The tasks that have a trivial reference."""
    ranked = []
    for task in choices or tasks.names():
        if tasks.build(task).trivial:
            ranked.append(task)
        else:
            say(f"{task} names no trivial reference, against which skill could be told: left out.")
    return ranked


def _fitting(plan: RunPlan, ranked: Sequence[str], store: Store) -> list[Run]:
    """The runs of each normalizer on each task; pairs that do not fit are named and left out.

    Raises ``BadValue`` where none fits.
    """
    runs, misfits = list[Run](), dict[str, list[str]]()
    for task, attn in product(ranked, plan.attns):
        try:
            runs += replace(plan, task=task, attns=[attn]).runs(store)
        except BadValue as reason:
            misfits.setdefault(str(reason), []).append(f"{attn} on {task}")
    if not runs:
        raise BadValue(next(iter(misfits), "no task is named."))
    for why, pairs in misfits.items():
        say(f"left out: {', '.join(pairs)}: {why}")
    return runs


def _publish(runs: Sequence[Run], baseline: str, preset: str, lab: Lab, where: Where) -> None:
    """Write the league of finished runs, and print it."""
    missing = sum(not run.finished for run in runs)
    table = numbers.gather(counted(runs, "reading runs", where.reporter.tick), baseline)
    groups = {
        f"{run.spec.task} {run.spec.attn}": [r for r in runs if r.spec == run.spec and r.finished] for run in runs
    }
    made = study_folder.StudyRecord.of("league", {"baseline": baseline, "missing": missing}, groups, lab.command)
    name = where.name or f"league-{preset}"
    folder = study_folder.place(made, own_studies(lab.store.root), name, force=where.force or not where.name)
    told = numbers.table(table, missing)
    head = [f"# League, preset {preset}", "", *told, "", f"Made by {md.code(lab.command)}.", ""]
    if other_code := provenance.words([run for run in runs if run.finished]):
        head += [other_code, ""]
    out("\n".join(told))
    files = {"league.csv": numbers.listed(table), "table.md": "\n".join(head)}
    written = study_folder.publish(made, folder, files, pictures.drawn(table, preset))
    lab.tracked.study(folder, files["table.md"])
    tell_files(folder, written)

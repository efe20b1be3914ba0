"""The command that sets many rules side by side over many tasks."""

from typing import TYPE_CHECKING, Any

import click

from icl_lab.cli.launch import Order, complete, resolve_runs
from icl_lab.cli.options import crowd_options, seeds_option, where_options
from icl_lab.cli.output import out
from icl_lab.cli.progress import say

if TYPE_CHECKING:
    from icl_lab.runs.run import Run

RULES = (
    *("softmax", "ssmax", "ssa", "lssa", "entmax", "sigmoid:bias=visible,l1=yes", "stick-breaking", "scale-invariant"),
    *("sink", "softmax+gated", "forget", "differential"),
)


@click.command()
@click.option("--task", "choices", multiple=True, help="Only this task; may be given again.  [default: all]")
@click.option("--attn", "attns", multiple=True, help=f"Only this rule; may be given again.  [default: {len(RULES)}]")
@click.option("--add", "added", multiple=True, help="A rule beside these; one of your own after --import.")
@click.option("--train", is_flag=True, help="Train what is missing: hours to days. Without it, what is there counts.")
@click.option("--baseline", default="softmax", show_default=True, help="What cells are told from.")
@click.option("--force", is_flag=True, help="Write over another study in the folder.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@click.option("--name", default="", help="Folder in the results folder.")
@seeds_option
@where_options
@crowd_options
def league(
    choices: tuple[str, ...],
    attns: tuple[str, ...],
    added: tuple[str, ...],
    train: bool,
    baseline: str,
    name: str,
    seeds: int,
    **where: Any,
) -> None:
    """Rank rules over tasks: skill against the tasks' own references, mean ranks with intervals, what is missing."""
    from dataclasses import replace

    from icl_lab import markdown as md
    from icl_lab import normalizers, tasks
    from icl_lab.comparison import league as numbers
    from icl_lab.comparison import league_pictures as pictures
    from icl_lab.evidence.archive import own_studies
    from icl_lab.runs import study_folder

    force = bool(where.pop("force"))
    order = Order.of(where)
    rules = [normalizers.canonical(rule) for rule in (*(attns or RULES), *added)]
    baseline = normalizers.canonical(baseline)
    runs: list[Run] = []
    for task in choices or tasks.names():
        if not tasks.build(task).trivial:
            say(f"{task} names no trivial reference, against which skill could be told: left out.")
            continue
        found, lab = resolve_runs(task, list(dict.fromkeys(rules)), seeds, draws="ours", **where)
        runs += found
    if train and not complete(runs, lab, replace(order, force=False)):
        return
    missing = sum(not run.finished for run in runs)
    if order.dry_run:
        out(f"{len(runs) - missing} of {len(runs)} runs are there to be ranked; --train trains what is missing.")
        return
    table = numbers.gather(runs, baseline)
    groups = {
        f"{run.spec.task} {run.spec.attn}": [r for r in runs if r.spec == run.spec and r.finished] for run in runs
    }
    made = study_folder.StudyRecord.of("league", {"baseline": baseline, "missing": missing}, groups, lab.command)
    folder = study_folder.place(
        made, own_studies(lab.store.root), name or f"league-{where['preset']}", force=force or not name
    )
    told = numbers.table(table, missing)
    head = [f"# League, preset {where['preset']}", "", *told, "", f"Made by {md.code(lab.command)}.", ""]
    drawn = pictures.drawn(table, where["preset"])
    files = study_folder.publish(
        made, folder, {"league.csv": numbers.listed(table), "table.md": "\n".join(head)}, drawn
    )
    out("\n".join(told))
    out(f"wrote {folder}: {', '.join(files)}")
    if missing:
        say(f"{missing} of {len(runs)} runs are missing; --train trains them.")

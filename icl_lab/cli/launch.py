"""From the words of a command to finished runs: what the commands that train have in common."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from icl_lab.cli.options import Bar, catch_signals, duration, say, typed
from icl_lab.errors import RunFailed, Stopped

if TYPE_CHECKING:
    from icl_lab.runs.session import Lab
    from icl_lab.runs.store import Run


def resolve_runs(
    task: str,
    attns: Sequence[str],
    seeds: int,
    preset: str,
    settings: Sequence[str],
    draws: str,
    results: Path,
    device: str,
    threads: int | None,
    swap: str = "",
    evidence: bool | None = None,
) -> tuple[list["Run"], "Lab"]:
    """Resolves and checks every run before the first begins; with ``swap`` also its test with that rule."""
    from icl_lab.runs.spec import resolve

    # The other rule must fit the model as well, and is called by its one spelling.
    rules = ["", resolve(task, swap, preset, settings, draws).attn] if swap else [""]
    specs = {spec.hash: spec for spec in (resolve(task, attn, preset, settings, draws) for attn in attns)}
    lab = laboratory(results, device, threads, evidence)
    return [lab.store.run(spec, seed, rule) for spec in specs.values() for seed in range(seeds) for rule in rules], lab


def models(
    places: Sequence[Path], task: str, attns: Sequence[str], seeds: int, **where: Any
) -> tuple[list["Run"], "Lab"]:
    """Returns the runs in these folders, or else those of a task and its rules, trained or not.

    Raises ``UnknownName`` where a folder holds no run, and ``UsageError`` where nothing is named.
    """
    if not places:
        if not (task and attns):
            raise click.UsageError("name the models: --task and --attn, or --run with the folder of a run.")
        runs, lab = resolve_runs(task, attns, seeds, draws="ours", **where)
    else:
        lab = laboratory(where["results"], where["device"], where["threads"], where.get("evidence"))
        runs = [lab.store.at(place) for place in places]
    tell_evidence([run for run in runs if run.trained])
    return runs, lab


def laboratory(results: Path, device: str, threads: int | None, evidence: bool | None = None) -> "Lab":
    """Returns the laboratory that a command works in, its progress on standard error.

    The repository's runs stand in for those that the folder lacks, unless ``evidence`` is False.
    """
    import torch

    from icl_lab.evidence.layer import Layer
    from icl_lab.runs import environment
    from icl_lab.runs.session import Lab
    from icl_lab.runs.store import Store

    if threads is not None:
        torch.set_num_threads(threads)
    here = environment.device(device)
    layer = None if evidence is False else Layer.find()
    return Lab(Store(results, layer), here, say=say, tick=Bar(), stopping=catch_signals(), command=typed())


def tell_evidence(runs: Sequence["Run"]) -> None:
    """Says, where it is so, that runs are not the user's own but read from the evidence."""
    kept = {run.key: run.kept for run in runs}
    found = [each for each in kept.values() if each is not None]
    if found:
        be, them = ("run is", "it") if len(found) == 1 else ("runs are", "them")
        place = found[0].layer.root
        say(f"{len(found)} {be} read from the repository's evidence ({place}); add --no-evidence to train {them} here.")


@dataclass(frozen=True)
class Order:
    """How many runs at once, which part of them, and whether to repeat them or only to say what would be done.

    With ``stack`` the seeds of a specification are trained in this process as one.
    """

    jobs: int = 1
    stack: bool = False
    shard: tuple[int, int] = (1, 1)
    force: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.stack and self.jobs > 1:
            raise click.UsageError("--stack trains seeds in one process and --jobs in several: choose one of them.")

    @classmethod
    def of(cls, words: dict[str, Any]) -> "Order":
        """Takes its own options out of those of a command."""
        return cls(**{field.name: words.pop(field.name) for field in fields(cls) if field.name in words})


def complete(
    runs: Sequence["Run"],
    lab: "Lab",
    order: Order,
    *,
    after: Callable[["Run", bool], object] = lambda run, already: None,
) -> bool:
    """Finishes the runs of this shard; returns whether all runs are finished, so that something can be made of them.

    ``after`` is called with each run as it is there, and whether it was there already.

    Raises ``RunFailed`` when runs failed, once the others are finished.
    """
    part, parts = order.shard
    if order.force:  # what is repeated is the user's own
        lab = replace(lab, store=replace(lab.store, layer=None))
        runs = [replace(run, layer=None) for run in runs]
    mine = [run for number, run in enumerate(runs) if number % parts == part % parts]
    tell_evidence([run for run in mine if run.finished])
    if order.dry_run:
        seconds = sum(announce(run, lab, dry_run=True) for run in mine)
        done = sum(run.finished for run in mine)
        say(
            f"{done} of {len(mine)} runs are finished; the rest would take about {duration(seconds)} one after another."
        )
        if order.stack:
            stack(mine, lab, dry_run=True)
        return False
    if order.force:
        for run in mine:
            with run.locked(lab.say, lab.stopping):
                run.clear()
    if order.jobs > 1:
        at_once(mine, lab, order.jobs)
    failed = stack(mine, lab) if order.stack else {}
    for run in mine:
        if run.folder not in failed:
            announce(run, lab)
            after(run, finish(run, lab))
    if failed:
        raise RunFailed(f"{len(failed)} of {len(mine)} runs failed, see above; the others are finished.")
    left = [run for run in runs if not run.finished]
    if left:
        say(f"{len(left)} of {len(runs)} runs are left to other shards; once they are finished, ask without --shard.")
    return not left


def finish(run: "Run", lab: "Lab") -> bool:
    """Makes sure that a run is finished and drawn; returns whether it was."""
    from icl_lab.sweep import sweep

    already = run.finished
    sweep(run.spec, run.seed, lab, run.swap)
    draw(run, afresh=not already)
    return already


def at_once(runs: Sequence["Run"], lab: "Lab", jobs: int) -> None:
    """Does the unfinished runs in worker processes; raises ``LabError`` unless all are finished."""
    import msgspec
    import torch

    from icl_lab.cli.supervisor import Job, supervise

    todo = [run for run in runs if not run.finished]
    threads = max(1, torch.get_num_threads() // jobs)
    orders = {"results": str(lab.store.root), "device": str(lab.device), "threads": threads, "command": lab.command}
    orders["evidence"] = lab.store.layer is not None
    done = len(runs) - len(todo)
    say(f"{done} of {len(runs)} runs are finished; {len(todo)} to do, {jobs} at once with {threads} threads each")
    outcomes = supervise(
        [
            Job(
                f"{run.name} seed {run.seed}",
                {**orders, "spec": msgspec.to_builtins(run.spec), "seed": run.seed, "swap": run.swap},
                run.spec.train.steps,
            )
            for run in todo
        ],
        [sys.executable, "-m", "icl_lab", "work"],
        jobs,
        stopping=lab.stopping,
        tick=lambda done, total, note: lab.tick("runs", done, total, note),
    )
    for outcome in outcomes:
        if outcome.state != "done":
            say(f"{outcome.state}: {outcome.job.name} ({outcome.reason})")
    states = [outcome.state for outcome in outcomes]
    if "stopped" in states:
        raise Stopped("stopped; the same command goes on where each run stands.")
    if "failed" in states:
        raise RunFailed(f"{states.count('failed')} of {len(states)} runs failed, see above; the others are finished.")


def stack(runs: Sequence["Run"], lab: "Lab", dry_run: bool = False) -> dict[Path, str]:
    """Trains what is missing, the seeds of each specification as one; returns why runs failed, by their folder."""
    from icl_lab.runs import environment
    from icl_lab.runs.ensembles import groups, train_together

    found, failed = groups(runs), dict[Path, str]()
    if not found:
        say("nothing to stack: no specification has two seeds left to train.")
    for group in found:
        seeds, spec = ", ".join(str(run.seed) for run in group), group[0].spec
        what = f"{spec.task} | {spec.attn} | {spec.preset} | seeds {seeds} on {environment.describe(lab.device)}"
        say(f"{what}: trained as one stack of {len(group)}{' (dry run)' if dry_run else ''}")
        if not dry_run:
            failed |= train_together(group, lab)
    for folder, reason in failed.items():
        say(f"failed: {folder} ({reason})")
    return failed


def announce(run: "Run", lab: "Lab", dry_run: bool = False) -> float:
    """The first line: what, on what, and how long it will take; returns the seconds."""
    from icl_lab.runs import environment
    from icl_lab.runs.estimate import estimate

    spec = run.spec
    what = f"{spec.task} | {run.name} | {spec.preset} | seed {run.seed} on {environment.describe(lab.device)}"
    seconds, state = 0.0, "finished already"
    if not run.finished:
        seconds, parameters = (0.0, 0) if run.trained else estimate(spec, lab.device)
        state = f"{parameters:,} parameters, {spec.train.steps:,} steps, about {duration(seconds)}"
        state = "trained already, to be tested" if run.trained else state
    say(f"{what}: {state}{' (dry run)' if dry_run else ''}")
    if dry_run:
        click.echo(f"{'done' if run.finished else 'to do'}  {run.folder}")
    return seconds


def show(run: "Run", already: bool) -> None:
    """The last lines: the grid in brief, the error in training conditions beside the references, and the paths."""
    from icl_lab import tasks
    from icl_lab.runs import summary

    place = run.place
    click.echo(summary.brief(run.grid(), tasks.build(run.spec.task), run.spec))
    if run.kept is not None:
        click.echo(f"read from {run.kept.path}; icl-lab evidence unpack writes it out")
        return
    click.echo(f"{'there already' if already else 'wrote'}: {place / 'grid.csv'}")
    click.echo(f"heat map: {place / 'heat-map.png'}")
    other = "ssa" if run.spec.attn == "softmax" else "softmax"
    repeat = "   (--force repeats this one)" if already else ""
    click.echo(f"next: icl-lab sweep --task {run.spec.task} --attn {other} --preset {run.spec.preset}{repeat}")


def tell_repeat(runs: Sequence["Run"]) -> None:
    """Puts the user's own runs beside the repository's runs of the same specification and seed, where there are any."""
    from icl_lab.evidence.layer import Layer
    from icl_lab.runs import repeat

    layer = Layer.find()
    if layer is None:
        return
    for run in runs:
        if run.kept is None and run.finished:
            for line in repeat.lines(run, layer):
                click.echo(line)


def draw(run: "Run", afresh: bool) -> None:
    """Draws the heat map and the learning curve of a finished run; where they are not of new numbers, what is missing.

    A picture that is kept beside the grid stays as it is, though another version would draw it with other bytes.
    """
    from icl_lab import tasks
    from icl_lab.figures.base import encode
    from icl_lab.files import KINDS, publish
    from icl_lab.runs import summary

    if run.kept is not None:  # nothing is drawn into the evidence
        return
    places = [run.place / f"heat-map.{kind}" for kind in KINDS]
    wanted = [place for place in places if afresh or not place.exists()]
    if not wanted:
        return
    figure = summary.heat_map(run.grid(), tasks.build(run.spec.task), run.spec)
    for place in wanted:
        publish(place, encode(figure, place.suffix[1:]))
    if not run.swap:
        draw_history(run)


def draw_history(run: "Run") -> None:
    """Draws the learning curve of a trained run, and what its rules learned on the way."""
    from icl_lab.figures.base import encode
    from icl_lab.figures.lines import learned, learning_curve
    from icl_lab.files import publish

    title, history = f"{run.spec.task}, {run.spec.attn}, {run.spec.preset}, seed {run.seed}", run.history()
    figure = learning_curve({run.spec.attn: history}, title=title, label="training loss")
    publish(run.folder / "learning-curve.png", encode(figure, "png"))
    if (numbers := learned(history, title=title)) is not None:
        publish(run.folder / "learned.png", encode(numbers, "png"))

"""From the words of a command to finished runs: what the commands that train have in common."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from icl_lab.cli.announce import Clock, announce, announce_all, title
from icl_lab.cli.crowd import at_once, shared_threads
from icl_lab.cli.options import catch_signals, duration, typed
from icl_lab.cli.progress import Bar, say
from icl_lab.cli.show import draw
from icl_lab.errors import Diverged, RunFailed, UnknownName
from icl_lab.workers.fleet import Fleet, share

if TYPE_CHECKING:
    from icl_lab.analyses.frame import Analysis
    from icl_lab.runs.run import Run
    from icl_lab.runs.session import Lab

FORCED = ".forced"  # in the folder of a run that was cleared by --force and is not finished yet


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
    allow_large: bool = False,
) -> tuple[list["Run"], "Lab"]:
    """Resolves and checks every run before the first begins; with ``swap`` also its test with that rule."""
    from icl_lab.runs import provenance
    from icl_lab.runs.spec import check_swap, resolve

    try:
        # The other rule must fit the model as well, and is called by its one spelling.
        rules = ["", resolve(task, swap, preset, settings, draws).attn] if swap else [""]
        specs = {spec.hash: spec for spec in (resolve(task, attn, preset, settings, draws) for attn in attns)}
    except UnknownName as error:
        raise provenance.explained(error, results) from None
    for spec in specs.values():
        check_swap(spec, swap)
    lab = laboratory(results, device, threads, evidence, allow_large)
    return [lab.store.run(spec, seed, rule) for spec in specs.values() for seed in range(seeds) for rule in rules], lab


def models(
    places: Sequence[Path], task: str, attns: Sequence[str], seeds: int, draws: str = "ours", **where: Any
) -> tuple[list["Run"], "Lab"]:
    """Returns the runs in these folders, or else those of a task and its rules, trained or not.

    Raises ``UnknownName`` where a folder holds no run, and ``UsageError`` where nothing is named.
    """
    if not places:
        if not (task and attns):
            raise click.UsageError("name the models: --task and --attn, or --run with the folder of a run.")
        runs, lab = resolve_runs(task, attns, seeds, draws=draws, **where)
    else:
        names = ("results", "device", "threads", "evidence", "allow_large")
        lab = laboratory(**{name: where[name] for name in names if name in where})
        runs = [lab.store.at(place) for place in places]
    tell_evidence([run for run in runs if run.trained])
    return runs, lab


def laboratory(
    results: Path, device: str, threads: int | None, evidence: bool | None = None, allow_large: bool = False
) -> "Lab":
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
    return Lab(Store(results, layer), here, say, Bar(), catch_signals(), typed(), allow_large)


def check_sizes(runs: Sequence["Run"], lab: "Lab", together: int = 1, tested: bool = True) -> None:
    """Raises ``BadValue`` where what is left of runs, ``together`` at once, does not fit this machine.

    Asked before anything is trained or measured for them; unless the laboratory allows what is large.
    """
    from icl_lab.runs import size

    if lab.allow_large:
        return
    for run in {run.spec.hash: run for run in runs if not run.trained}.values():
        size.check_training(run.spec, lab.device, together)
    for run in {run.spec.hash: run for run in runs if tested and not run.finished}.values():
        size.check_test(run.spec, lab.device, together)


def check_asked(analysis: "Analysis", runs: Sequence["Run"], lab: "Lab") -> None:
    """Raises ``BadValue`` where the prompts that an analysis draws for runs do not fit this machine."""
    from icl_lab.runs import size

    for spec in {run.spec.hash: run.spec for run in runs}.values() if analysis.trains and not lab.allow_large else ():
        size.check_prompts(spec, analysis.asks(spec))


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
    """How many runs at once and where, which part of them, whether to repeat them, or only to say what would be done.

    With ``stack`` the seeds of a specification are trained in this process as one.
    """

    jobs: int | None = None
    stack: bool = False
    shard: tuple[int, int] = (1, 1)
    force: bool = False
    dry_run: bool = False
    fleet: Fleet = field(default_factory=Fleet)

    def __post_init__(self) -> None:
        if self.stack and ((self.jobs or 1) > 1 or self.fleet.remote):
            raise click.UsageError(
                "--stack trains seeds in one process; --jobs, --on and --engine ray use several: choose one of them."
            )

    @classmethod
    def of(cls, words: dict[str, Any]) -> "Order":
        """Takes its own options out of those of a command; each run elsewhere has the device and threads of these."""
        shared = {name: words[name] for name in ("device", "threads") if name in words}
        where, how = (
            {each.name: words.pop(each.name) for each in fields(part) if each.name in words.keys() - shared.keys()}
            for part in (Fleet, cls)
        )
        return cls(**how, fleet=Fleet(**where, **shared))

    @property
    def crowd(self) -> bool:
        """Whether workers do the runs."""
        return (self.jobs or 1) > 1 or self.fleet.remote


def complete(
    runs: Sequence["Run"],
    lab: "Lab",
    order: Order,
    *,
    after: Callable[["Run", bool], object] = lambda run, already: None,
    tested: bool = True,
) -> bool:
    """Finishes the runs of this shard; returns whether all runs are finished, so that something can be made of them.

    Unless ``tested``, a run is finished as soon as it is trained. ``after`` is called with each run as it is there, and
    whether it was there already.

    Raises ``RunFailed`` when runs failed, once the others are finished.
    """
    part, parts = order.shard
    if order.force:  # what is repeated is the user's own
        lab = replace(lab, store=replace(lab.store, layer=None))
        runs = [replace(run, layer=None) for run in runs]
    mine = [run for number, run in enumerate(runs) if number % parts == part % parts]
    clock = Clock(lab.device, tested)
    if not tested:
        mine = [run for run in mine if not clock.done(run)]
    else:
        tell_evidence([run for run in mine if run.finished])
    left = [run for run in mine if not clock.done(run)]
    seeds = Counter(run.spec.hash for run in left)
    if not order.fleet.remote:  # what it takes elsewhere nobody knows here
        together = max(seeds.values(), default=1) if order.stack else min(order.jobs or 1, len(left))
        check_sizes(left, lab, together, tested)
    if order.dry_run:
        rehearse(mine, lab, clock, order.stack)
        return False
    if order.force:
        for run in mine:
            restart(run, lab)
    before = {run.place for run in mine if clock.done(run)}
    crowd = order.crowd and not all(clock.done(run) for run in mine)
    places = order.fleet.places(order.jobs) if crowd else []
    with shared_threads(share(places) or 1):
        announce_all(mine, clock, share(places) or 1)
    failed = at_once(mine, lab, order.fleet, places, tested) if crowd else {}
    if order.stack:
        stack(mine, lab)
    for run in mine:
        if run.folder in failed:
            continue
        if not clock.done(run) or len(mine) == 1:
            announce(run, lab, clock)
        try:
            finish(run, lab, tested)
        except Diverged:
            settled(run)
        except RunFailed as error:  # the runs after it are none the worse
            say(f"failed: {title(run)} ({error})")
            failed[run.folder] = str(error)
        else:
            settled(run)
            after(run, run.place in before)
    tell_divergence(mine)
    if len(mine) == 1 and failed:
        raise RunFailed(*failed.values())
    if failed:
        raise RunFailed(
            f"{len(failed)} of {len(mine)} runs did not finish, see above; the others are finished, and the same "
            f"command tries again what is left."
        )
    left = [run for run in runs if not clock.done(run)]
    if left and parts == 1:
        raise RunFailed(f"{len(left)} of {len(runs)} runs were cleared meanwhile by another process (--force).")
    if left:
        say(f"{len(left)} of {len(runs)} runs are left to other shards; once they are finished, ask without --shard.")
    return not left


def rehearse(runs: Sequence["Run"], lab: "Lab", clock: Clock, stacked: bool) -> None:
    """Says what would be done, run by run, and how long it would take."""
    seconds = sum(announce(run, lab, clock, dry_run=True) for run in runs)
    done = sum(clock.done(run) for run in runs)
    say(f"{done} of {len(runs)} runs are there; the rest would take about {duration(seconds)} one after another.")
    if stacked:
        stack(runs, lab, dry_run=True)


def restart(run: "Run", lab: "Lab") -> None:
    """Clears a run to be done afresh; one that was cleared for that and then stopped goes on where it stands."""
    with run.locked(lab.say, lab.stopping):
        begun = run.folder / FORCED
        if run.finished or not begun.exists():
            run.clear()
            begun.touch()


def tell_divergence(runs: Sequence["Run"]) -> None:
    """Says which trainings diverged, and so count as wrong everywhere."""
    for run in runs:
        if reason := run.diverged:
            say(f"diverged: {title(run)} ({reason}) Its cells count as wrong; --force trains it again.")


def settled(run: "Run") -> None:
    """Forgets that a run was to be done afresh, now that it is finished, and what was set aside for that."""
    (run.folder / FORCED).unlink(missing_ok=True)
    run.forget_replaced()


def finish(run: "Run", lab: "Lab", tested: bool = True) -> bool:
    """Makes sure that a run is finished and drawn, or only trained unless ``tested``; returns whether it was."""
    from icl_lab.workers import work

    already = work.finish(run, lab, tested)
    if tested:
        draw(run, afresh=not already)
    return already


def stack(runs: Sequence["Run"], lab: "Lab", dry_run: bool = False) -> None:
    """Trains what is missing, the seeds of each specification as one."""
    from icl_lab.runs import environment
    from icl_lab.runs.ensembles import groups, train_together

    found = groups(runs)
    if not found:
        say("nothing to stack: no specification has two seeds left to train.")
    for group in found:
        seeds, spec = ", ".join(str(run.seed) for run in group), group[0].spec
        what = f"{spec.task} | {spec.attn} | {spec.preset} | seeds {seeds} on {environment.describe(lab.device)}"
        say(f"{what}: trained as one stack of {len(group)}{' (dry run)' if dry_run else ''}")
        if not dry_run:
            train_together(group, lab)

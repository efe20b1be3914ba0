"""Run, or resume, everything in a list of runs: here one after another, or by workers."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from icl_lab import pipeline
from icl_lab.base import outside
from icl_lab.base.errors import BadValue, Diverged, RunFailed, Stopped
from icl_lab.execute import allocation, parallel
from icl_lab.execute.announce import (
    Clock,
    Say,
    announce,
    announce_all,
    changes,
    count_words,
    duration,
    tell_engine,
    title,
    too_long,
)
from icl_lab.execute.draw import draw
from icl_lab.execute.parallel import Processes, WorkerPool, WorkItem
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.progress import Job
from icl_lab.execute.where import Where
from icl_lab.runs import checkpoints, environment, estimate, provenance, trial
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab

if TYPE_CHECKING:
    from icl_lab.analyses.frame import AnyAnalysis

FORCED = ".forced"  # in the folder of a run that was cleared by --retrain and is not finished yet


def check_asked(analysis: "AnyAnalysis", runs: Sequence[Run], lab: Lab) -> None:
    """Raise ``BadValue`` where the prompts that an analysis draws for runs do not fit this machine."""
    for spec in {run.spec.hash: run.spec for run in runs}.values() if analysis.trains and not lab.allow_large else ():
        estimate.check_prompts(spec, analysis.asks(spec))


def sweep(plan: RunPlan, where: Where) -> tuple[list[Run], Lab]:
    """Finish the runs of a plan; return them with the session that did.

    Raises ``BadValue`` for ``--force``, which writes over the folder of a study, and what ``complete`` raises.
    """
    if where.force:
        raise BadValue("--force writes over the folder of a study, and there is none here; --retrain repeats runs.")
    with where.session(plan.command("sweep", where)) as lab:
        runs = plan.runs(lab.store)
        complete(runs, lab, where)
    return runs, lab


def complete(runs: Sequence[Run], lab: Lab, where: Where, *, tested: bool = True, models: bool = False) -> bool:
    """Finish the runs of this shard; return True if all runs are finished, so that a study can be made of them.

    Unless ``tested``, a run is finished as soon as it is trained; with ``models`` it is once its weights are there too.
    The reporter of ``where`` gets each finished run, and in a dry run its folder. Raises ``RunFailed``
    where runs failed, once the others are finished.
    """
    copies = len({run.folder for run in runs if run.copied}) if where.retrain else 0
    if where.retrain:  # a repeated run is the user's
        lab = replace(lab, store=replace(lab.store, archive=None))
        runs = [replace(run, copy=None) for run in runs]
    clock = Clock(lab.device, tested, lab.stopping, allocation.share(where.jobs or 1), models)
    every = mine = select(runs, where.shard)
    check_code(mine, lab, where)
    tell_engine(mine, lab)
    if not (tested or where.retrain):
        mine = untrained(mine, clock, where)
    check(mine, lab, where, clock)
    given, (where, clock) = where, allocated(where, unfinished(mine, clock), lab, clock)
    if where.dry_run:
        rehearse(every, lab, clock, where)
        return False
    if where.bounded and (sentence := too_long(mine, lab, clock, where.jobs or 1)):
        raise BadValue(sentence)
    if where.retrain:
        restart_all(mine, lab, clock, where, copies)
        where, clock = allocated(given, mine, lab, clock)
    workers = pool(where) if where.parallel and unfinished(mine, clock) else None
    announce_all(every, clock, lab.say, workers.jobs if workers is not None else 1)
    check_failures(mine, carry_out(mine, lab, where, workers, clock), lab.say)
    return all_finished(runs, lab, where, clock)


def select(runs: Sequence[Run], shard: tuple[int, int]) -> list[Run]:
    """Return the runs of a shard: part I of N has every N-th.

    >>> select(["a", "b", "c", "d"], (1, 3)), select(["a", "b", "c", "d"], (3, 3))
    (['b'], ['a', 'd'])
    """
    part, parts = shard
    return list(runs[part % parts :: parts])


def unfinished(runs: Sequence[Run], clock: Clock) -> list[Run]:
    """Return the runs with something left to do."""
    return [run for run in runs if not clock.done(run)]


def check_code(runs: Sequence[Run], lab: Lab, where: Where) -> None:
    """Clear the files without a model that other code made, and say which numbers that are kept it made.

    Raises ``BadValue`` where workers could not import a part of runs.
    """
    if where.parallel:
        check_importable([run for run in runs if not run.finished])
    if where.retrain:
        return
    for run in () if where.dry_run else runs:
        if run.diverged and not run.copied and provenance.of(run):
            lab.say(f"{title(run)} diverged with other code than is here: it is trained again.")
            restart(run, lab)
        elif not (run.trained or run.diverged):
            _drop_outdated(run, lab)
    for line in changes(runs):  # numbers of another code are read
        where.reporter.last(line)


def untrained(runs: Sequence[Run], clock: Clock, where: Where) -> list[Run]:
    """Return the runs that are to be trained, and report the others, which are trained."""
    for run in filter(clock.done, runs):
        if run.trained and not where.dry_run:  # its process may have been killed before it drew
            draw(run, afresh=False, tested=False)
        where.reporter.finished(run, True)
    return unfinished(runs, clock)


def check(runs: Sequence[Run], lab: Lab, where: Where, clock: Clock) -> None:
    """Raise ``BadValue`` where the rest of runs does not fit this machine, ``LabError`` where a part of them fails.

    Sizes are checked unless the session allows large runs, or another machine does them.
    """
    left = unfinished(runs, clock)
    sized = [] if lab.allow_large or where.remote else left
    together = min(where.jobs or 1, len(left))
    for spec in {run.spec.hash: run.spec for run in sized if not run.trained}.values():
        estimate.check_training(spec, lab.device, together)
    for run in {(run.spec.hash, run.swap): run for run in sized if clock.tested and not run.finished}.values():
        estimate.check_test(run.spec, lab.device, together, run.swap)
    for spec in {(run.spec.task, run.spec.attn): run.spec for run in left}.values():
        trial.check_parts(spec)


def restart_all(runs: Sequence[Run], lab: Lab, clock: Clock, where: Where, copies: int) -> None:
    """Clear runs to be done afresh, in place of which ``copies`` runs of the evidence were read.

    Raises ``BadValue`` where they would take longer than the session allows.
    """
    seconds, number = clock.whole(runs) / min(where.jobs or 1, len(runs) or 1), len({run.folder for run in runs})
    theirs = f"; {copies} of the repository's evidence are left out" if copies else ""
    lab.say(f"--retrain: {number} run{'s' * (number > 1)} to be done anew, about {duration(seconds)}{theirs}.")
    if where.bounded and seconds > lab.longest:
        raise BadValue(f"more than {duration(lab.longest)}: add --allow-large to begin it all the same.")
    for run in runs:
        restart(run, lab)


def carry_out(runs: Sequence[Run], lab: Lab, where: Where, workers: WorkerPool | None, clock: Clock) -> dict[Path, str]:
    """Finish runs, those that are left by ``workers`` where there are any; return why runs failed, by folder."""
    before = {run.place: run.copied for run in runs if clock.done(run)}
    failures = by_workers(unfinished(runs, clock), lab, where, workers, clock) if workers is not None else {}
    # A run that the evidence has without its weights is finished until another test trains its model anew: then it is
    # one's own, and to be tested too.
    again = (run for run in runs if before.get(run.place) and not clock.done(run))
    with environment.threads(clock.threads if workers is None else torch.get_num_threads()):
        for run in chain(runs, again):
            if run.folder in failures:
                continue
            if not clock.done(run) or len(runs) == 1:
                announce(run, lab, clock)
            try:
                finish(run, lab, clock.tested, clock.models)
            except Diverged:
                settled(run)
            except RunFailed as error:  # the runs after it are none the worse
                lab.say(f"failed: {title(run)} ({error})")
                failures[run.folder] = str(error)
            else:
                settled(run)
                where.reporter.finished(run, run.place in before)
    return failures


def check_failures(runs: Sequence[Run], failures: Mapping[Path, str], say: Say) -> None:
    """Say which trainings diverged, and so count as wrong everywhere; raise ``RunFailed`` where others failed."""
    for run in runs:
        if reason := run.diverged:
            say(f"diverged: {title(run)} ({reason}) Its cells count as wrong; --retrain trains it again.")
    if len(runs) == 1 and failures:
        raise RunFailed(*failures.values())
    if failures:
        raise RunFailed(
            f"{len(failures)} of {len(runs)} runs did not finish, see above; the others are finished, and the same "
            f"command tries again what is left."
        )


def all_finished(runs: Sequence[Run], lab: Lab, where: Where, clock: Clock) -> bool:
    """Return whether runs are finished, or say how many are left to other shards.

    Raises ``RunFailed`` where another process cleared some, so that they are left though this is the only shard.
    """
    left = unfinished(runs, clock)
    if left and where.shard[1] == 1:
        raise RunFailed(f"{len(left)} of {len(runs)} runs were cleared meanwhile by another process (--retrain).")
    if left:
        lab.say(
            f"{len(left)} of {len(runs)} runs are left to other shards; once they are finished, ask without --shard."
        )
    return not left


def allocated(where: Where, left: Sequence[Run], lab: Lab, clock: Clock) -> tuple[Where, Clock]:
    """Return the same with a number of runs at once where none was asked for, and a clock for the threads of each."""
    number = where.jobs
    if number is None and not where.remote:
        with suppress(BadValue):  # else one after another, in this process
            check_importable(left)
            number = allocation.runs_at_once(left, lab.device, clock)
    threads = allocation.share(number or 1, allocation.MOST if where.threads is None else None)
    if threads != clock.threads:
        clock = Clock(lab.device, clock.tested, lab.stopping, threads, clock.models)
    return (where if number == where.jobs else replace(where, jobs=number, progress=where.reporter)), clock


def check_importable(runs: Sequence[Run]) -> None:
    """Raise ``BadValue`` where a part of runs was defined in this program, in no file that workers could import."""
    for registry, name in dict.fromkeys(part for run in runs for part in environment.parts(run.spec)):
        source = registry.source(name)
        if source is not None and not source.distribution and source not in outside.loaded():
            raise BadValue(
                f"the {registry.kind} '{name}' was defined in this program, which other processes cannot import: use "
                f"jobs=1, or write it to a file and name that by icl.import_parts('./{name}.py')."
            )


def rehearse(runs: Sequence[Run], lab: Lab, clock: Clock, where: Where) -> None:
    """Say what would be done, run by run, how long it would take, and whether that is too long."""
    for run in runs:
        if clock.tested or not clock.done(run):  # a trained one was shown
            announce(run, lab, clock, where.reporter.out)
    lab.say(count_words(runs, clock, where.jobs or 1))
    if where.bounded and (sentence := too_long(runs, lab, clock, where.jobs or 1)):
        lab.say(sentence)


def restart(run: Run, lab: Lab) -> None:
    """Clear a run to be done afresh; one that was cleared for that and then stopped goes on where it stands."""
    with run.locked(lab.say, lab.stopping):
        begun = run.folder / FORCED
        if run.finished or not begun.exists():
            run.clear()
            begun.touch()


def _drop_outdated(run: Run, lab: Lab) -> None:
    """Remove checkpoints that were made by other code than is here; the training starts anew, whoever does it."""
    path = run.folder / checkpoints.NAMES[0]
    if other := provenance.of_stored(checkpoints.made_by(run.folder), run.spec, path):
        lab.say(f"{title(run)}: its checkpoint was made with {' and '.join(other)}; it starts anew.")
        with run.locked(lab.say, lab.stopping):
            checkpoints.remove(run.folder)


def settled(run: Run) -> None:
    """Clear the request to redo a run, now that it is finished, and the copy set aside for that."""
    forced = run.folder / FORCED
    if forced.exists():  # the folder of a finished run may be read-only
        forced.unlink()
    run.forget_replaced()


def finish(run: Run, lab: Lab, tested: bool = True, models: bool = False) -> bool:
    """Finish and draw a run, or only train it unless ``tested``; return whether that was done already."""
    already = undrawn(run, lab, tested, models)
    draw(run, afresh=not already, tested=tested)
    lab.tracked.finished(run)
    return already


def undrawn(run: Run, lab: Lab, tested: bool, models: bool = False) -> bool:
    """Finish a run without its pictures, or only train it unless ``tested``; return whether it was."""
    already = run.done(tested, models)
    if not already and (models or not tested):
        with run.locked(lab.say, lab.stopping):
            pipeline.trained(run, lab)
    if tested and run.finished:  # in whatever folder it lies
        run.grid()
    elif tested:
        pipeline.sweep(run.spec, run.seed, lab, run.swap)
    return already


def pool(where: Where) -> WorkerPool:
    """Processes of this machine, or a Ray cluster; raises ``BadValue`` where that is unknown."""
    if not where.remote:
        return Processes(where.jobs or 1)
    from icl_lab.execute import ray_engine  # Ray is optional

    return ray_engine.join(where.address or "local", where.jobs, where.threads or 1, where.gpus_per_run)


def by_workers(runs: Sequence[Run], lab: Lab, where: Where, workers: WorkerPool, clock: Clock) -> dict[Path, str]:
    """Do unfinished runs in parallel; return why runs failed, by folder. Raises ``Stopped`` when asked to stop."""
    left = parallel.trainings_first(list({run.place: run for run in runs}.values()))
    threads = (where.threads or 1) if where.remote else allocation.share(workers.jobs)
    evidence = None if lab.store.archive is not None else False
    there = replace(
        where.of_runs(lab), threads=threads, evidence=evidence, track=lab.tracked.asked, jobs=None, progress=False
    )
    jobs = [
        Job(
            f"{title(run)} ({run.spec.hash})",
            run.spec.train.steps,
            WorkItem(
                spec=run.spec,
                seed=run.seed,
                swap=run.swap,
                tested=clock.tested,
                models=clock.models,
                finish=undrawn if where.remote else finish,
                where=there,
                command=lab.command,
                imports=outside.imported(),
            ),
            step=run.spec.train.steps if run.trained else run.checkpoint_step,
            training=estimate.operations_by_step(run.spec),
            test=estimate.test_operations(run.spec) if clock.tested else 0.0,
        )
        for run in left
    ]
    if jobs:
        engine = f" ({where.engine})" if where.remote else ""
        lab.say(f"{len(jobs)} to do, {workers.jobs} at once with {threads} thread{'s' * (threads > 1)} each{engine}")
    with where.reporter.board() as watch:
        parallel.execute(jobs, workers, lab.stopping, watch, lab.say)
    failures = {}
    for run, job in zip(left, jobs, strict=True):
        if job.state != "done" and not run.diverged:
            lab.say(f"{job.state}: {job.name} ({job.reason})")
            failures[run.folder] = job.reason
    if any(job.state == "stopped" for job in jobs):
        raise Stopped("stopped; the same command goes on where each run stands.")
    return failures

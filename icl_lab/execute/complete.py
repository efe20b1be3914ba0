"""Run, or resume, everything in a list of runs: here one after another, or by workers."""

from collections.abc import Sequence
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
    check_time,
    count_words,
    duration,
    tell_engine,
    title,
    too_long,
)
from icl_lab.execute.draw import draw
from icl_lab.execute.parallel import Processes, WorkerPool, WorkItem
from icl_lab.execute.progress import Job
from icl_lab.execute.where import Where
from icl_lab.runs import checkpoints, environment, estimate, provenance, trial
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab

if TYPE_CHECKING:
    from icl_lab.analyses.frame import AnyAnalysis

FORCED = ".forced"  # in the folder of a run that was cleared by --retrain and is not finished yet


def check_sizes(runs: Sequence[Run], lab: Lab, together: int = 1, tested: bool = True) -> None:
    """Raise ``BadValue`` where the remaining work, ``together`` runs at once, does not fit this machine.

    Asked before anything is trained or measured for them; unless the session allows large runs.
    """
    if lab.allow_large:
        return
    for run in {run.spec.hash: run for run in runs if not run.trained}.values():
        estimate.check_training(run.spec, lab.device, together)
    for run in {(run.spec.hash, run.swap): run for run in runs if tested and not run.finished}.values():
        estimate.check_test(run.spec, lab.device, together, run.swap)


def check_no_study(where: Where) -> None:
    """Raise ``BadValue`` for ``--force`` where runs alone are asked for: it writes over the folder of a study."""
    if where.force:
        raise BadValue("--force writes over the folder of a study, and there is none here; --retrain repeats runs.")


def check_asked(analysis: "AnyAnalysis", runs: Sequence[Run], lab: Lab) -> None:
    """Raise ``BadValue`` where the prompts that an analysis draws for runs do not fit this machine."""
    for spec in {run.spec.hash: run.spec for run in runs}.values() if analysis.trains and not lab.allow_large else ():
        estimate.check_prompts(spec, analysis.asks(spec))


def complete(runs: Sequence[Run], lab: Lab, where: Where, *, tested: bool = True, models: bool = False) -> bool:
    """Finish the runs of this shard; return True if all runs are finished, so that a study can be made of them.

    Unless ``tested``, a run is finished as soon as it is trained; with ``models`` it is once its weights are there too.
    The reporter of ``where`` gets each finished run, and in a dry run its folder. Raises ``RunFailed``
    where runs failed, once the others are finished.
    """
    part, parts = where.shard
    if where.retrain:  # a repeated run is the user's
        left_out = len({run.folder for run in runs if run.copied})
        lab = replace(lab, store=replace(lab.store, archive=None))
        runs = [replace(run, copy=None) for run in runs]
    mine = [run for number, run in enumerate(runs) if number % parts == part % parts]
    if where.parallel:
        check_importable([run for run in mine if not run.finished])
    if not (where.retrain or where.dry_run):  # outdated files without a model: nothing is lost
        for run in mine:
            if run.diverged and not run.copied and provenance.of(run):
                lab.say(f"{title(run)} diverged with other code than is here: it is trained again.")
                restart(run, lab)
            elif not (run.trained or run.diverged):
                _drop_outdated(run, lab)
    for line in [] if where.retrain else changes(mine):  # numbers of another code are read
        where.reporter.last(line)
    tell_engine(mine, lab)
    clock = Clock(lab.device, tested, lab.stopping, allocation.share(where.jobs or 1), models)
    every = mine
    if not (tested or where.retrain):
        for run in filter(clock.done, mine):
            if run.trained and not where.dry_run:  # its process may have been killed before it drew
                draw(run, afresh=False, tested=False)
            where.reporter.finished(run, True)
        mine = [run for run in mine if not clock.done(run)]
    left = [run for run in mine if not clock.done(run)]
    if not where.remote:  # its time elsewhere is unknown here
        check_sizes(left, lab, min(where.jobs or 1, len(left)), tested)
    for spec in {(run.spec.task, run.spec.attn): run.spec for run in left}.values():
        trial.check_parts(spec)
    asked, (where, clock) = where, allocated(where, left, lab, clock)
    if where.dry_run:
        rehearse(every, lab, clock, where)
        if where.bounded and (sentence := too_long(mine, lab, clock, where.jobs or 1)):
            lab.say(sentence)
        return False
    if where.bounded:
        check_time(mine, lab, clock, where.jobs or 1)
    if where.retrain:
        seconds, number = clock.whole(mine) / min(where.jobs or 1, len(mine) or 1), len({run.folder for run in mine})
        theirs = f"; {left_out} of the repository's evidence are left out" if left_out else ""
        lab.say(f"--retrain: {number} run{'s' * (number > 1)} to be done anew, about {duration(seconds)}{theirs}.")
        if where.bounded and seconds > lab.longest:
            raise BadValue(f"more than {duration(lab.longest)}: add --allow-large to begin it all the same.")
        for run in mine:
            restart(run, lab)
        where, clock = allocated(asked, mine, lab, clock)
    before = {run.place for run in mine if clock.done(run)}
    copied = {run.place for run in mine if run.place in before and run.copied}
    workers = pool(where) if where.parallel and not all(clock.done(run) for run in mine) else None
    together = workers.jobs if workers is not None else 1
    announce_all(every, clock, lab.say, together)
    left = [run for run in mine if not clock.done(run)]
    failed = by_workers(left, lab, where, workers, clock) if workers is not None else {}
    # A run that the evidence has without its weights is finished until another test trains its model anew: then it is
    # one's own, and to be tested too.
    with environment.threads(clock.threads if workers is None else torch.get_num_threads()):
        for run in chain(mine, (run for run in mine if run.place in copied and not clock.done(run))):
            if run.folder in failed:
                continue
            if not clock.done(run) or len(mine) == 1:
                announce(run, lab, clock)
            try:
                finish(run, lab, tested, models)
            except Diverged:
                settled(run)
            except RunFailed as error:  # the runs after it are none the worse
                lab.say(f"failed: {title(run)} ({error})")
                failed[run.folder] = str(error)
            else:
                settled(run)
                where.reporter.finished(run, run.place in before)
    tell_divergence(mine, lab.say)
    if len(mine) == 1 and failed:
        raise RunFailed(*failed.values())
    if failed:
        raise RunFailed(
            f"{len(failed)} of {len(mine)} runs did not finish, see above; the others are finished, and the same "
            f"command tries again what is left."
        )
    left = [run for run in runs if not clock.done(run)]
    if left and parts == 1:
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
    """Say what would be done, run by run, and how long it would take."""
    for run in runs:
        if clock.tested or not clock.done(run):  # a trained one was shown
            announce(run, lab, clock, where.reporter.out)
    lab.say(count_words(runs, clock, where.jobs or 1))


def restart(run: Run, lab: Lab) -> None:
    """Clear a run to be done afresh; one that was cleared for that and then stopped goes on where it stands."""
    with run.locked(lab.say, lab.stopping):
        begun = run.folder / FORCED
        if run.finished or not begun.exists():
            run.clear()
            begun.touch()


def tell_divergence(runs: Sequence[Run], say: Say) -> None:
    """Say which trainings diverged, and so count as wrong everywhere."""
    for run in runs:
        if reason := run.diverged:
            say(f"diverged: {title(run)} ({reason}) Its cells count as wrong; --retrain trains it again.")


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
    each = (where.threads or 1) if where.remote else allocation.share(workers.jobs)
    evidence = None if lab.store.archive is not None else False
    there = replace(
        where.of_runs(lab), threads=each, evidence=evidence, track=lab.tracked.asked, jobs=None, progress=False
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
        lab.say(f"{len(jobs)} to do, {workers.jobs} at once with {each} thread{'s' * (each > 1)} each{engine}")
    with where.reporter.board() as watch:
        parallel.execute(jobs, workers, lab.stopping, watch, lab.say)
    failed = {}
    for run, job in zip(left, jobs, strict=True):
        if job.state != "done" and not run.diverged:
            lab.say(f"{job.state}: {job.name} ({job.reason})")
            failed[run.folder] = job.reason
    if any(job.state == "stopped" for job in jobs):
        raise Stopped("stopped; the same command goes on where each run stands.")
    return failed

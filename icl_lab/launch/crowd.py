"""Many runs by workers: what is left to do, in orders, and what became of it."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from icl_lab.errors import Stopped
from icl_lab.launch.announce import title
from icl_lab.workers.fleet import Fleet, share

if TYPE_CHECKING:
    from icl_lab.runs.run import Run
    from icl_lab.runs.session import Lab
    from icl_lab.workers.job import Standing
    from icl_lab.workers.transport import Place

Board = Callable[[], AbstractContextManager[Callable[[Sequence["Standing"]], object]]]  # shows where each run stands


def trainings_first(runs: Sequence["Run"]) -> list["Run"]:
    """The runs, one of each training before all that share it, so that none waits for or repeats what another does."""
    met = Counter[tuple[str, int]]()

    def turn(run: "Run") -> int:
        met[run.training] += 1
        return met[run.training]

    return sorted(runs, key=turn)


@contextmanager
def shared_threads(jobs: int) -> Iterator[int]:
    """Leaves this process, for a while, the threads that each of ``jobs`` will have; yields how many."""
    import torch

    whole = torch.get_num_threads()
    torch.set_num_threads(max(1, whole // jobs))
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(whole)


def at_once(
    runs: Sequence["Run"],
    lab: "Lab",
    fleet: Fleet,
    places: Sequence["Place"],
    board: Board,
    tested: bool = True,
) -> dict[Path, str]:
    """Does the unfinished runs by workers; returns why runs failed, by their folder.

    Raises ``Stopped`` when asked to stop.
    """
    import msgspec

    from icl_lab import outside
    from icl_lab.workers.job import Job
    from icl_lab.workers.run_files import RunFiles
    from icl_lab.workers.supervisor import supervise

    left = {run.place: run for run in runs if not (run.finished if tested else run.trained or run.diverged)}
    todo = trainings_first(list(left.values()))
    many = share(places)
    with shared_threads(many) as each:
        orders = {"results": str(lab.store.root), "device": str(lab.device), "threads": each, "command": lab.command}
    orders |= {"evidence": lab.store.layer is not None, "tested": tested, "imports": outside.orders()}
    if fleet.remote:
        each = fleet.threads or 1
        orders |= {"remote": True, "results": "", "device": fleet.device, "threads": each, "evidence": False}
        orders |= {"silence": fleet.silence, "share": fleet.gpus_per_run}
    if todo:
        where = f" ({', '.join(f'{place.name} {place.at_once}' for place in places)})" if fleet.remote else ""
        lab.say(f"{len(todo)} to do, {many} at once with {each} {'thread' if each == 1 else 'threads'} each{where}")
    jobs = [
        Job(
            f"{title(run)} ({run.spec.hash})",
            {**orders, "spec": msgspec.to_builtins(run.spec), "seed": run.seed, "swap": run.swap},
            run.spec.train.steps,
            RunFiles(run, tested, lab.say) if fleet.remote else None,
        )
        for run in todo
    ]
    with board() as watch:
        outcomes = supervise(jobs, places, stopping=lab.stopping, watch=watch, say=lab.say, silence=fleet.silence)
    failed = {}
    for run, outcome in zip(todo, outcomes, strict=True):
        if outcome.state != "done" and not run.diverged:
            lab.say(f"{outcome.state}: {outcome.job.name} ({outcome.reason})")
            failed[run.folder] = outcome.reason
    if any(outcome.state == "stopped" for outcome in outcomes):
        raise Stopped("stopped; the same command goes on where each run stands.")
    return failed

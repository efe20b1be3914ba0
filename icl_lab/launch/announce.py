"""What will be trained and about how long it takes, said before the first step."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from icl_lab.errors import Stopped

if TYPE_CHECKING:
    import torch

    from icl_lab.runs.run import Run
    from icl_lab.runs.session import Lab
    from icl_lab.runs.spec import RunSpec

Say = Callable[[str], object]


class Clock:
    """Times trainings by a few steps of each specification, measured once.

    Where there are many, those that differ from a measured one by their rule alone are taken to be as fast: a league of
    a hundred trainings is announced within a minute. A run is done once it is ``tested``, or where only models are
    wanted once it is trained. Raises ``Stopped`` between two measurements when ``stopping``.
    """

    MEASURED = 16  # specifications, before rules count as equally fast

    def __init__(self, device: "torch.device", tested: bool = True, stopping: Callable[[], bool] = bool) -> None:
        self._device, self.tested, self._stopping = device, tested, stopping
        self._measured: dict[str, tuple[float, int]] = {}
        self._alike: dict[object, tuple[float, int]] = {}

    def __call__(self, run: "Run") -> tuple[float, int, int]:
        """Returns the seconds of training that are left of a run, its parameters, and the step of its checkpoint."""
        from icl_lab.runs.estimate import examples, standing

        if self.done(run) or run.trained or run.diverged:
            return 0.0, 0, 0
        seconds, parameters = self._measure(run.spec)
        since = standing(run)
        return seconds * examples(run.spec.train, since) / examples(run.spec.train), parameters, since

    def done(self, run: "Run") -> bool:
        """Whether nothing is left to do of a run."""
        return run.finished if self.tested else run.trained or bool(run.diverged)

    def _measure(self, spec: "RunSpec") -> tuple[float, int]:
        from icl_lab.runs.estimate import estimate

        alike = repr((spec.task, spec.preset, spec.model, spec.train))
        if len(self._measured) >= self.MEASURED and alike in self._alike:
            return self._measured.get(spec.hash, self._alike[alike])
        if spec.hash not in self._measured:
            if self._stopping():
                raise Stopped("stopped before anything was begun.")
            self._measured[spec.hash] = estimate(spec, self._device)
            self._alike.setdefault(alike, self._measured[spec.hash])
        return self._measured[spec.hash]


def title(run: "Run") -> str:
    """A run in one line: task, rule, preset, seed."""
    return f"{run.spec.task} | {run.name} | {run.spec.preset} | seed {run.seed}"


def announce(run: "Run", lab: "Lab", clock: Clock, rehearsal: Say | None = None) -> float:
    """Says what will be trained, on what, and how long it will take; returns the seconds of training.

    In a ``rehearsal`` that is told the run's folder, and nothing will be done.
    """
    from icl_lab.runs import environment, provenance

    spec, (seconds, parameters, since) = run.spec, clock(run)
    steps = (
        f"{spec.train.steps - since:,} of {spec.train.steps:,} steps left" if since else f"{spec.train.steps:,} steps"
    )
    state = f"{parameters:,} parameters, {steps}, about {duration(seconds)}"
    state = "trained already, to be tested" if run.trained else state
    state = ("finished already" if clock.tested else "trained already") if clock.done(run) else state
    lab.say(f"{title(run)} on {environment.describe(lab.device)}: {state}{' (dry run)' if rehearsal else ''}")
    for sentence in provenance.changed(spec, run.folder):
        lab.say(sentence)
    if rehearsal:
        rehearsal(f"{'done' if clock.done(run) else 'to do'}  {run.place}")
    return seconds


def announce_all(runs: Sequence["Run"], clock: Clock, say: Say, jobs: int = 1) -> None:
    """Says, where runs are several, how many there are, how many are done, and how long the rest takes in total.

    Seeds and tests of one training count once.
    """
    if len(runs) < 2:
        return
    done = sum(clock.done(run) for run in runs)
    trainings = {run.folder: run for run in runs if not (clock.done(run) or run.trained)}
    seconds = sum(clock(run)[0] for run in trainings.values()) / max(1, min(jobs, len(trainings)))
    rest = f"; about {duration(seconds)} of training in total{f', {jobs} at once' * (jobs > 1)}" if trainings else ""
    say(f"{len(runs)} runs, {done} of them finished{rest}")


def duration(seconds: float) -> str:
    """Returns a time as one says it: 40 s, 4 min, 2.5 h, 3 days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"

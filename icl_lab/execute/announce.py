"""Announcement of what will be trained and about how long it takes, before the first step."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from icl_lab.base.errors import LabError, Stopped
from icl_lab.runs import environment, estimate, presets, provenance, reuse
from icl_lab.runs.command import repeats
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec, resolve

MINUTES = 30 * 60.0  # seconds of runs that are suggested in the place of those that take too long
Say = Callable[[str], object]


class Took(NamedTuple):
    """Measured time of a specification: seconds of its training and of its test, and its parameters."""

    training: float
    test: float
    parameters: int


class Clock:
    """Times trainings and tests by a few steps and a few prompts of each specification, measured once.

    Where there are many, those that differ from a measured one by their normalizer alone are reckoned from it: a league
    of a hundred trainings is announced within a minute. A run is done once it is ``tested``, where ``models`` are
    wanted too once its weights are there as well, and where only these are wanted once it is trained. ``threads`` are
    those of each run, by default those of this process. Raises ``Stopped`` between two measurements when ``stopping``.
    """

    MEASURED = 16  # specifications, before the others are reckoned from them

    def __init__(
        self,
        device: torch.device,
        tested: bool = True,
        stopping: Callable[[], bool] = bool,
        threads: int | None = None,
        models: bool = False,
    ) -> None:
        self._device, self.tested, self.models, self._stopping = device, tested, models, stopping
        self.threads = threads or torch.get_num_threads()
        self._measured: dict[str, Took] = {}
        self._rules: dict[str, dict[str, Took]] = {}  # by all that a specification says but its normalizer

    def __call__(self, run: Run) -> tuple[float, int, int]:
        """Return the seconds that are left of a run, its parameters, and the step of its checkpoint."""
        if self.done(run) or run.diverged:
            return 0.0, 0, 0
        if run.trained:
            return self.test(run), 0, 0
        return self.training(run) + self.test(run), self._took(run.spec).parameters, run.checkpoint_step

    def done(self, run: Run) -> bool:
        """True if nothing is left to do of a run."""
        return run.done(self.tested, self.models)

    def training(self, run: Run) -> float:
        """The seconds of training that are left of a run; none where another was trained alike."""
        if self.done(run) or run.diverged or reuse.has_model(run):
            return 0.0
        left = estimate.examples(run.spec.train, run.checkpoint_step) / estimate.examples(run.spec.train)
        return self._took(run.spec).training * left

    def test(self, run: Run) -> float:
        """The seconds that the test of a run takes, where it is left to do."""
        return 0.0 if self.done(run) or run.diverged else self._took(run.spec).test

    def whole(self, runs: Sequence[Run]) -> float:
        """The seconds that runs take from their first step on, one after another, whatever of them is done."""
        trainings = {run.training: run for run in runs}.values()
        tests = {run.place: run for run in runs}.values()
        return sum(self._took(run.spec).training for run in trainings) + sum(self._took(run.spec).test for run in tests)

    def _took(self, spec: RunSpec) -> Took:
        by_rule = self._rules.setdefault(repr((spec.task, spec.preset, spec.model, spec.train)), {})
        if spec.hash in self._measured:
            return self._measured[spec.hash]
        if by_rule and len(self._measured) >= self.MEASURED:
            return self._reckoned(spec.attn, by_rule)
        if self._stopping():
            raise Stopped("stopped before anything was begun.")
        with environment.threads(self.threads):
            training, parameters = estimate.training_seconds(spec, self._device)
            test = estimate.test_seconds(spec, self._device) if self.tested else 0.0
        by_rule[spec.attn] = self._measured[spec.hash] = Took(training, test, parameters)
        return by_rule[spec.attn]

    def _reckoned(self, attn: str, measured: Mapping[str, Took]) -> Took:
        """Estimated time of a normalizer from those that are known, by their ratio elsewhere where it is known."""
        if attn in measured:
            return measured[attn]
        for elsewhere in self._rules.values():
            both = [rule for rule in measured if rule in elsewhere]
            if both and attn in elsewhere:
                same, same_elsewhere, own = measured[both[0]], elsewhere[both[0]], elsewhere[attn]
                test = same.test * own.test / same_elsewhere.test if same_elsewhere.test else 0.0
                return Took(same.training * own.training / same_elsewhere.training, test, same.parameters)
        return next(iter(measured.values()))


def title(run: Run) -> str:
    """A run in one line: task, normalizer, preset, seed."""
    return f"{run.spec.task} | {run.name} | {run.spec.preset} | seed {run.seed}"


def announce(run: Run, lab: Lab, clock: Clock, rehearsal: Say | None = None) -> None:
    """Announce the planned training, the device, and the expected time.

    With ``rehearsal``, a callback of dry runs, the run's folder is announced too, and nothing is done.
    """
    spec, (seconds, parameters, since) = run.spec, clock(run)
    steps = (
        f"{spec.train.steps - since:,} of {spec.train.steps:,} steps left" if since else f"{spec.train.steps:,} steps"
    )
    if clock.done(run):
        state = "finished already" if clock.tested else "trained already"
    elif reuse.has_model(run):
        state = f"trained already{'' if run.trained else ', as another run'}, to be tested: about {duration(seconds)}"
    else:
        state = f"{parameters:,} parameters, {steps}, about {duration(seconds)}"
    with environment.threads(clock.threads):
        device = environment.describe(lab.device)
    lab.say(f"{title(run)} on {device}: {state}{' (dry run)' if rehearsal else ''}")
    if rehearsal:
        rehearsal(f"{'done' if clock.done(run) else 'to do'}  {run.place}")


def changes(runs: Sequence[Run]) -> list[str]:
    """Return a line for each thing that stored runs were made with, and that is another one now (``provenance``)."""
    folders_of = dict[str, list[Path]]()
    for run, difference in provenance.changed(runs):
        folders_of.setdefault(difference.words, []).append(run.place)
    lines = []
    for version, folders in folders_of.items():
        others, them = (f" and {len(folders) - 1} more were", "them") if len(folders) > 1 else (" was", "it")
        lines.append(f"{folders[0]}{others} made with {version}; --retrain repeats {them}.")
    return lines


def changed(run: Run, results: Path) -> list[str]:
    """Return a line where a stored run was made with other code or versions, with the command that repeats it."""
    if not (differences := provenance.of(run)):
        return []
    anew = f"{repeats(run, results, anew=True)} trains it anew, as icl.sweep does with where=icl.Where(retrain=True)"
    return [f"{run.folder} was made with {' and '.join(each.words for each in differences.differences)}; {anew}."]


def tell_engine(runs: Sequence[Run], lab: Lab) -> None:
    """Say, where a GPU is about to train eagerly, how its steps would take a fraction of the time."""
    if lab.device.type != "cuda":
        return
    if any(run.spec.train.engine == "eager" and not (run.finished or run.trained) for run in runs):
        lab.say(
            "eager steps leave a GPU idle: with --set train.engine=graph they took a seventh of the time on an H200 "
            "(docs/speed.md); that is another run."
        )


def announce_all(runs: Sequence[Run], clock: Clock, say: Say, jobs: int = 1) -> None:
    """Announce the trainings of several runs and their time, unless all are finished here."""
    done = [run for run in runs if clock.done(run)]
    if len(done) < len(runs) > 1 or any(run.copied for run in done):
        say(count_words(runs, clock, jobs))


def count_words(runs: Sequence[Run], clock: Clock, jobs: int = 1) -> str:
    """Return the numbers of models to be trained and only to be tested, the time, and the number that is finished.

    ``trains 4 of 6 models, about 27 min (2 from evidence)``. A model that is tested in several ways is one.
    """
    models = dict[str, list[Run]]()
    for run in runs:
        models.setdefault(str(run.training), []).append(run)
    left = {name: [run for run in group if not (clock.done(run) or run.diverged)] for name, group in models.items()}
    training = sum(any(not reuse.has_model(run) for run in group) for group in left.values())
    testing = sum(map(bool, left.values())) - training
    copied = sum(all(run.copied for run in models[name]) for name, group in left.items() if not group)
    here = len(models) - training - testing - copied
    sources = ", ".join(f"{n} {where}" for n, where in ((copied, "from evidence"), (here, "finished here")) if n)
    whole = f"{len(models)} model{'s' * (len(models) > 1)}"
    if not training + testing:
        evidence = "; --no-evidence trains here what is read from it" if copied else ""
        return f"trains nothing: {whole} ({sources}){evidence}"
    parts = [f"{verb} {n}" for verb, n in (("trains", training), ("tests", testing)) if n]
    about = duration(_together([run for group in left.values() for run in group], clock, jobs))
    at_once = f", {jobs} at once" if jobs > 1 else ""
    return f"{' and '.join(parts)} of {whole}, about {about}{at_once}" + (f" ({sources})" if sources else "")


def too_long(runs: Sequence[Run], lab: Lab, clock: Clock, jobs: int = 1) -> str:
    """Say that the remaining work takes longer than the session allows, and name a preset that fits; else nothing."""
    left = [run for run in runs if not clock.done(run)]
    seconds = _together(left, clock, jobs)
    if seconds <= lab.longest:
        return ""
    shorter = _shorter([run.spec for run in left], seconds, lab.device.type)
    instead = f"--preset {shorter[0]} would take about {duration(shorter[1])}; " if shorter else ""
    return (
        f"what is left would take about {duration(seconds)} on {environment.describe(lab.device)}, more than "
        f"{duration(lab.longest)}: {instead}add --allow-large to begin it all the same."
    )


def _shorter(specs: Sequence[RunSpec], seconds: float, device: str) -> tuple[str, float] | None:
    """The largest preset in which these runs take minutes, or else the smallest, with the seconds that they take."""
    whole = sum(_about(spec, device) for spec in specs)
    times = dict[str, float]()
    for name in presets.PRESETS:
        try:
            specs_there = [resolve(spec.task, spec.attn, name, draws=spec.test.draws) for spec in specs]
        except LabError:  # a task need not fit every preset
            continue
        times[name] = seconds * sum(_about(spec, device) for spec in specs_there) / whole
    fitting = [name for name, about in times.items() if about <= MINUTES]
    chosen = max(fitting, key=times.__getitem__) if fitting else min(times, key=times.__getitem__, default="")
    return (chosen, times[chosen]) if chosen and times[chosen] < seconds else None


def _about(spec: RunSpec, device: str) -> float:
    size = estimate.size_of(spec, device)
    return size.train_seconds + size.test_seconds


def _together(left: Sequence[Run], clock: Clock, jobs: int) -> float:
    """The seconds that unfinished runs take, ``jobs`` at once."""
    return remaining(left, clock) / max(1, min(jobs, len({run.folder for run in left})))


def remaining(runs: Sequence[Run], clock: Clock) -> float:
    """The seconds that runs take one after another; a training that is tested in several ways counts once."""
    left = {run.place: run for run in runs if not clock.done(run)}
    trainings = {run.training: run for run in left.values()}
    return sum(map(clock.training, trainings.values())) + sum(map(clock.test, left.values()))


def duration(seconds: float) -> str:
    """Return a time in a unit that suits it.

    >>> [duration(seconds) for seconds in (0.2, 89, 90, 5399, 5400, 172_799, 172_800)]
    ['1 s', '89 s', '2 min', '90 min', '1.5 h', '48.0 h', '2 days']
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"

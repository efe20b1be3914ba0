"""Printed summary of a finished run: its grid in brief, its pictures, and its paths."""

import shlex
from collections.abc import Sequence

from icl_lab import tasks
from icl_lab.base import outside
from icl_lab.cli.hints import program, then
from icl_lab.cli.output import out
from icl_lab.cli.terminal import Terminal
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.progress import say
from icl_lab.runs import summary
from icl_lab.runs.evidence.archive import Archive, ArchivedRun
from icl_lab.runs.run import Run
from icl_lab.runs.store import by_rule

CHECK = "check-part"
NOISE = "Its errors elsewhere then say nothing of the normalizer: more steps (--set train.steps), or a larger preset?"


def show(run: Run, already: bool, brief: bool = False) -> None:
    """Print the grid, errors of model and references in training conditions, and the paths; ``brief``: one line."""
    task, place, verb = tasks.build(run.spec.task), run.place, "there already" if already else "wrote"
    if brief:
        grid = run.grid()
        error = summary.errors_in_distribution([grid], task, run.spec)[run.name]
        here = f"{error:.3g} {summary.home(grid, task, run.spec)}"
        out(f"{run.name}, seed {run.seed}: {here}; {verb}: {place / 'grid.csv'}")
        return
    out(summary.brief(run.grid(), task, run.spec))
    if run.copied:
        out(f"read from {run.files.path}; {program()} evidence unpack writes it out")
        return
    out(f"{verb}: {place / 'grid.csv'}")
    out(f"heat map: {place / 'heat-map.png'}")


def close(runs: Sequence[Run]) -> None:
    """Print means over the seeds of each normalizer, warnings of unlearned tasks, and the next command."""
    task, rules = tasks.build(runs[0].spec.task), by_rule(runs)
    for name, seeds in rules.items():
        if len(seeds) > 1:
            out(f"\n{name}, mean ± standard deviation over {len(seeds)} seeds")
            out(summary.spread([run.grid() for run in seeds], task, seeds[0].spec))
    if broken := warn(runs):
        out(f"next: {_check(broken[0])}")
        return
    plain = [name for name, seeds in rules.items() if not seeds[0].swap]
    rivals = plain if len(plain) > 1 else [*plain, "ssa" if plain == ["softmax"] else "softmax"]
    # A comparison needs its baseline.
    baseline = [] if "softmax" in rivals else ["--baseline", rivals[0]]
    out(f"next: {then('compare', {'--attn': rivals, **({'--baseline': baseline[1:]} if baseline else {})})}")


def warn(runs: Sequence[Run]) -> list[str]:
    """Warn of normalizers that have learned nothing: comparing them compares noise.

    Returns those whose answers are not finite even in training conditions.
    """
    broken = []
    for name, seeds in by_rule(runs).items():
        task = tasks.build(seeds[0].spec.task)
        grids, spec = [run.grid() for run in seeds], seeds[0].spec
        if lacking := summary.left_out(grids[0], task, spec):
            say(f"{name}: whether it learned its task is not known: {lacking}. Add them with --set test.axes.")
        elif reason := summary.unlearned(grids, task, spec):
            diverged = [run.diverged for run in seeds if run.diverged]
            if any(CHECK not in each for each in diverged):  # which has said what may help
                say(f"{name}: {reason}.")
            elif reason != summary.NO_NUMBERS and not diverged:
                say(f"{name}: {reason}. {NOISE}")
            else:
                broken.append(name)
                say(f"{name}: {reason}; {CHECK} looks for the fault.")
    return broken


def _check(name: str) -> str:
    """Command that holds a normalizer, that put in for a test where one was, against the contract."""
    imports = [word for source in outside.loaded() for word in ("--import", source.given)]
    return f"{program()} {shlex.join([*imports, CHECK, name.rpartition('->')[2]])}"


def tell_repeat(runs: Sequence[Run]) -> None:
    """Compare the user's runs with the repository's runs of the same specification and seed, where they exist."""
    archive = Archive.find()
    if archive is None:
        return
    own = (run for run in runs if not run.copied and run.finished)
    if comparisons := [repeat for run in own if (repeat := summary.repeated(run, ArchivedRun(archive, run.key)))]:
        out(f"\nbeside the repository's run{'s' * (len(comparisons) > 1)} of the same specification and seed:")
    for comparison, _ in comparisons:
        out(comparison)
    if not all(equal for _, equal in comparisons):
        out(summary.REPEATS_DIFFER)


class RunTable(Terminal):
    """Terminal that shows each run of a plan as it is finished; with several seeds in a line."""

    def __init__(self, plan: RunPlan) -> None:
        super().__init__()
        self._brief, self._swap, self.done = len(plan.seeds) > 1, plan.swap, list[Run]()

    def finished(self, run: Run, already: bool) -> None:
        """Show a run."""
        if run.swap or not self._swap:
            show(run, already, brief=self._brief)
            self.done.append(run)

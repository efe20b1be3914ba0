"""Claims of many experiments at one scale: what is found by now, what is to be done next, and the doing of it."""

import shlex
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from icl_lab.launch.announce import Clock
from icl_lab.launch.complete import check_sizes
from icl_lab.launch.study import Finish

if TYPE_CHECKING:
    from icl_lab.analyses.earlier import Earlier
    from icl_lab.papers.finished import Finished
    from icl_lab.papers.ledger import Entry
    from icl_lab.papers.schema import Experiment
    from icl_lab.papers.settle import Step
    from icl_lab.papers.verdicts import Finding
    from icl_lab.runs.session import Lab
    from icl_lab.runs.spec import RunSpec


class Settlement:
    """What experiments have found by now at one scale, each looked at once until a step changes it.

    ``part`` stands in the name of its ledger, so that parts at work at the same time write tables of their own.
    """

    def __init__(self, files: Path, preset: str, lab: "Lab", names: Sequence[str], part: str) -> None:
        from icl_lab.papers.cost import Costs

        self.files, self.preset, self.lab, self.names = files, preset, lab, names
        self.place = lab.store.root / f"ledger-{preset}{part}.csv"
        self._costs = Costs(lab.store, preset, self._measured)
        self._known: dict[str, tuple[Finished, list[Finding]]] = {}
        self._asked: dict[tuple[str, ...], Earlier | None] = {}  # an experiment and some of its variants
        self._taken_steps: set[tuple[str, ...]] = set()  # what did not open a later look is not taken twice

    def decided(self) -> set[tuple[str, str]]:
        """The claims, (experiment, statement), that have a verdict here."""
        from icl_lab.papers.ledger import having_verdicts

        return having_verdicts(self.entries())

    def step(self, name: str, left: Set[tuple[str, str]]) -> "Step | None":
        """Returns the next step of an experiment; None where nothing is open that seeds could decide.

        No seed is spent on the claims that are ``left``.
        """
        from icl_lab.papers import settle

        finished, found = self._look(name)
        found = [each for each in found if (name, each.claim.statement) not in left]
        step = settle.step(name, finished, found, self._costs, lambda asked: self._before(asked, name))
        return None if step is None or _key(step) in self._taken_steps else step

    def take(self, step: "Step", lab: "Lab", finish: Finish) -> None:
        """Has ``finish`` do what the step lacks, and asks the analysis of its experiment again."""
        from icl_lab.launch.study import stages
        from icl_lab.papers import experiment, study

        finished, _ = self._known.pop(step.experiment)  # looked at again, where it is stopped on the way too
        made = experiment.only(finished.experiment, step.variants)
        for runs, tested in stages(step.runs, made.question(), made.tested) if step.runs else ():
            finish(runs, tested)
        if made.question() is not None:
            groups = study.groups(made, lab.store, self.preset, step.seeds, ())
            asked = study.Order(step.experiment, self.preset)
            command = _command(step, self.preset, finished.experiment)
            known = study.record(made, asked, groups, command)
            folder = study.destination(step.experiment, lab.store, self.preset, known)
            before = self._before(made, step.experiment)
            study.publish(made, asked, groups, replace(lab, command=command), folder, before)
            self._asked = {key: kept for key, kept in self._asked.items() if key[0] != step.experiment}
        self._taken_steps.add(_key(step))

    def entries(self) -> "list[Entry]":
        """The claims as they stand."""
        from icl_lab.papers.ledger import Entry, among

        looked = [(name, *self._look(name)) for name in self.names]
        paper = {name: finished.experiment.paper for name, finished, _ in looked}
        return among([Entry(name, paper[name], self.preset, each) for name, _, found in looked for each in found])

    def write(self) -> None:
        """Writes the ledger as it stands."""
        from icl_lab.files import write
        from icl_lab.papers.ledger import table_csv

        write(self.place, table_csv(self.entries()).encode())

    def summary(self) -> str:
        """What is decided by now, and what is open."""
        from icl_lab.papers.ledger import tally

        entries = self.entries()
        lines = [
            f"{entry.finding.verdict.upper():13} {entry.experiment}: {entry.finding.claim.statement}"
            + (f" ({entry.finding.outlook})" if entry.finding.outlook else "")
            for entry in entries
        ]
        return "\n".join([*lines, f"{tally(entries)} at {self.preset}.", f"wrote {self.place}"])

    def _before(self, made: "Experiment", name: str) -> "Earlier | None":
        from icl_lab.papers import study

        key = (name, *(variant.name for variant in made.variants))
        if key not in self._asked:
            first = study.groups(made, self.lab.store, self.preset, 1, ())
            self._asked[key] = study.asked_before(made, study.Order(name, self.preset), first, self.lab)
        return self._asked[key]

    def _look(self, name: str) -> "tuple[Finished, list[Finding]]":
        from icl_lab.papers import claims
        from icl_lab.papers.finished import Finished

        if name not in self._known:
            made, _, found = claims.stored(name, self.files, self.lab.store, self.preset, self._costs)
            self._known[name] = Finished(made, self.lab.store, self.preset), found
        return self._known[name]

    def _measured(self, spec: "RunSpec") -> float:
        """Seconds of one operation, by a few steps of a training that is done here for the first time."""
        from icl_lab.runs import size

        like = replace(self.lab.store, layer=None).run(spec, -1)  # a seed of which nothing is there
        check_sizes([like], self.lab, tested=False)
        return Clock(self.lab.device, tested=False)(like)[0] / size.trained(spec)


def _key(step: "Step") -> tuple[str, ...]:
    """What tells the steps of one preset apart."""
    return step.experiment, str(step.seeds), *step.variants


def _command(step: "Step", preset: str, whole: "Experiment") -> str:
    """The command that does what a step of an analysis does."""
    words = ["icl-lab", "experiment", step.experiment, "--preset", preset, "--seeds", str(step.seeds)]
    if len(step.variants) < len(whole.variants):
        named = [name for name in step.variants if name != whole.baseline] or [whole.baseline]
        words += [word for name in named for word in ("--variant", name)]
    return shlex.join(words)

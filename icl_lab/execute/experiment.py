"""An experiment with a fixed number of seeds, or with the number that its claims need."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from icl_lab.base.errors import BadValue, Unfinished
from icl_lab.claims import experiment as experiments
from icl_lab.claims import judge, ledger, study
from icl_lab.claims.ledger import FIRST, LIKELY, Finding
from icl_lab.claims.schema import Claim, Experiment
from icl_lab.claims.sides import Sides, sides_of
from icl_lab.comparison.rates import check_code
from icl_lab.comparison.sequential import SPENT
from icl_lab.execute.complete import check_asked, complete
from icl_lab.execute.study import Made, complete_for, tell_before
from icl_lab.execute.where import Where
from icl_lab.runs.session import Lab


def chosen(
    name: str, preset: str, settings: Sequence[str], variants: Sequence[str], folder: Path
) -> tuple[Experiment, list[str]]:
    """Return an experiment with these variants, by default all that fit a preset, and why others do not fit."""
    whole = experiments.load(name, experiments.place(folder))
    return experiments.fitting(experiments.only(whole, variants) if variants else whole, preset, settings)


def carry_out(made: Experiment, order: study.Order, seeds: int, lab: Lab, where: Where, *, anew: bool = False) -> Made:
    """Finish the runs of an experiment and write its study; asks models ``anew`` that were asked before.

    Raises ``Unfinished`` where runs are left, and ``BadValue`` where only a baseline is there to be compared.
    """
    if made.question() is None and len(made.variants) < 2:
        raise BadValue(f"a comparison needs a variant beside its baseline '{made.baseline}'; name another --variant.")
    if made.rates == "own":
        check_code([made.spec(each, order.preset, order.settings) for each in made.variants], lab.store)
    groups = study.groups(made, lab.store, order.preset, seeds, order.settings)
    question = made.question()
    if question is not None:
        check_asked(question, [run for group in groups.values() for run in group], lab)
    known = study.record(made, order, groups, lab.command)
    folder = study.destination(order.name, lab.store, order.preset, known)
    before = None if anew else study.asked_before(made, order, groups, lab)
    if before is not None:
        tell_before(before.folders(known), lab.say, "--force or --no-evidence")
    if not complete_for(question, study.lacking(made, groups, before), lab, where, tested=made.tested):
        raise Unfinished(folder)
    text = study.publish(made, order, groups, lab, folder, before)
    lab.tracked.study(folder, text)
    return Made(made, text, folder, ())


@dataclass(frozen=True)
class Step:
    """Next look at open claims: how many seeds they have then, and the variants that they depend on."""

    claims: tuple[str, ...]
    variants: tuple[str, ...]
    seeds: int


def next_step(sides: Sides, findings: Sequence[Finding]) -> Step | None:
    """Return what brings the open claims with the fewest seeds to their next look; None where no look is left.

    A claim that 64 seeds decide with a chance below ``LIKELY``, because the effect or the test prompts stand
    in the way, is left. Skipped and exploratory seeds count for no look.
    """
    looks, claims = list[tuple[int, Claim]](), {claim.statement: claim for claim in sides.experiment.claims}
    for found in findings:
        after = next((look for look in SPENT if look > found.count), None)
        hopeless = found.count >= FIRST and not found.chance >= LIKELY
        # A note says why there is no number, for instance because the test grid has no such cell.
        if found.open and not found.note and after is not None and not hopeless:
            looks.append((after + len(found.skipped) + len(found.left_out), claims[found.claim]))
    if not looks:
        return None
    seeds = min(look for look, _ in looks)
    now = tuple(claim for look, claim in looks if look == seeds)
    return Step(tuple(claim.statement for claim in now), tuple(sides.variants_for(now)), seeds)


@dataclass
class UntilDecided:
    """An experiment that is given seeds until its claims are decided; each step continues from the stored runs."""

    name: str
    whole: Experiment
    preset: str
    files: Path
    lab: Lab

    def __post_init__(self) -> None:
        self._taken = set[Step]()
        self.look()

    def look(self) -> None:
        """Judge the claims by the runs stored now."""
        statements = {claim.statement for claim in self.whole.claims}
        found = judge.stored(experiments.load(self.name, self.files), self.lab.store, self.preset)[1]
        self.findings = [finding for finding in found if finding.claim in statements]

    def next(self) -> Step | None:
        """Return the next step; one that has opened no later look is not taken twice."""
        step = next_step(sides_of(self.whole, self.lab.store, self.preset), self.findings)
        return None if step in self._taken else step

    def take(self, step: Step, lab: Lab, where: Where) -> list[Finding]:
        """Do the runs of a step, ask its analysis, and judge; return the claims that are decided since."""
        self._taken.add(step)
        before = {finding.claim for finding in self.findings if finding.decided}
        made = experiments.only(self.whole, step.variants)
        if made.question() is not None:  # claims are read from its study
            lab = replace(lab, command=self._command(step))
            with suppress(Unfinished):  # what is missing is asked for at the next look
                carry_out(made, study.Order(Path(self.name).stem, self.preset), step.seeds, lab, where)
        else:
            groups = study.groups(made, lab.store, self.preset, step.seeds, ())
            complete([run for name in step.variants for run in groups[name]], lab, where)
        self.look()
        return [each for each in self.findings if each.decided and each.claim not in before]

    def described(self, step: Step) -> str:
        """Say what a step will do."""
        about = f"{len(step.claims)} open claim{'s' * (len(step.claims) > 1)}"
        return f"{self.name}: to {step.seeds} seeds of {', '.join(step.variants)}, for {about}"

    def summary(self) -> str:
        """Say how many claims are decided."""
        decided = sum(finding.decided for finding in self.findings)
        return f"{decided} of {len(self.findings)} claims decided at {self.preset}"

    def text(self) -> str:
        """Return the claims with their verdicts, and what would decide the open ones."""
        made = experiments.fitting(self.whole, self.preset)[0]
        return f"{self.name}: " + "\n".join(ledger.lines(made, self.findings))

    def _command(self, step: Step) -> str:
        """The command that does what a step does."""
        words = ["icl-lab", "experiment", self.name, "--preset", self.preset, "--seeds", str(step.seeds)]
        if len(step.variants) < len(self.whole.variants):
            named = [name for name in step.variants if name != self.whole.baseline] or [self.whole.baseline]
            words += [word for name in named for word in ("--variant", name)]
        return shlex.join(words)

"""A normalizer on the questions of the suite: its contract, its runs, its card; and the table of all normalizers."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from icl_lab import normalizers
from icl_lab.analyses.profiles.costs import attention_bytes
from icl_lab.base import outside
from icl_lab.base.errors import BadValue, Unfinished
from icl_lab.claims import card, cost, ledger
from icl_lab.claims import experiment as experiments
from icl_lab.claims.card import PRESET, Answers, Card
from icl_lab.claims.sides import Sides
from icl_lab.comparison.rates import check_code
from icl_lab.comparison.verdict import State
from icl_lab.execute.complete import complete
from icl_lab.execute.experiment import next_step
from icl_lab.execute.where import SEEDS, Where
from icl_lab.runs import command
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.store import Store
from icl_lab.testing import facts


@dataclass(frozen=True)
class Trial:
    """A normalizer to be judged: against which others, over how many seeds, on which questions, at which rates."""

    rule: str
    against: Sequence[str] = ("softmax",)
    seeds: int = 3
    only: Sequence[str] = ()
    rates: str = "shared"

    def command(self, where: Where) -> str:
        """Return the command that judges it."""
        usual = {"against": "softmax", "rates": "shared", "experiments": "experiments"}
        settings = {"against": ",".join(self.against), "rates": self.rates, "experiments": str(where.experiments)}
        changes = {name: value for name, value in settings.items() if value != usual[name]}
        words = command.options({"seeds": self.seeds, "only": list(self.only), **changes})
        line = command.joined("judge", [self.rule, *words], where.root)
        imports = [word for source in outside.loaded() for word in ("--import", source.given)]
        return line.replace("icl-lab", shlex.join(["icl-lab", *imports]), 1)


def judge(trial: Trial, lab: Lab, where: Where) -> Card:
    """Finish the runs of a trial and return its card; in a dry run that of the runs that are there.

    Before anything is trained it raises ``BadValue`` where the normalizer breaks its contract, fits no question, is
    compared with itself, or lacks a curve for own rates, and ``UnknownName`` for unknown names; ``Unfinished`` where
    runs are left.
    """
    rule = normalizers.canonical(trial.rule)
    trial = replace(trial, rule=rule, against=list(dict.fromkeys(map(normalizers.canonical, trial.against))))
    if rule in trial.against or not trial.against:
        raise BadValue(f"{rule} is compared with itself: name another normalizer, or --against another.")
    if broken := facts.broken_promise(rule):
        raise BadValue(f"{rule} breaks the contract of normalizers, so that nothing is trained: {broken}.")
    compared, left_out = _compared(trial, [rule], lab.store, where)
    for line in left_out:
        lab.say(line)
    if not complete(_runs(list(compared.values()), trial.seeds), lab, where) and not where.dry_run:
        raise Unfinished(lab.store.root)
    # Trainings of now are among the seeds of sides that are read anew.
    compared = {name: [Sides(each.experiment, lab.store, PRESET) for each in sides] for name, sides in compared.items()}
    costs = cost.Costs(lab.store, PRESET)
    answers = {baseline: card.answers(sides, costs).get(rule, {}) for baseline, sides in compared.items()}
    return _card(trial, compared, answers, left_out, where)


def _card(
    trial: Trial,
    compared: dict[str, list[Sides]],
    answers: Mapping[str, Answers],
    left_out: Sequence[str],
    where: Where,
) -> Card:
    every = [each for sides in compared.values() for each in sides]
    return Card(
        rule=trial.rule,
        version=card.suite(Path(where.experiments)).version,
        rates=trial.rates,
        answers=answers,
        slowdown={baseline: card.slowdown(sides, trial.rule, baseline) for baseline, sides in compared.items()},
        memory={baseline: _bytes(trial.rule) / _bytes(baseline) for baseline in compared},
        facts=facts.facts(trial.rule),
        inside={name: (*facts.largest(name), card.bound(every, name)) for name in (trial.rule, *compared)},
        nearest=facts.nearest(trial.rule),
        distance=facts.DISTANCE,
        left_out=left_out,
        onward=_onward(trial, compared, answers, where),
    )


def _bytes(rule: str) -> int:
    return attention_bytes(rule, card.TOKENS)


def judge_all(trial: Trial, store: Store, where: Where) -> dict[str, dict[str, Answers]]:
    """Return what stored runs answer on every normalizer, by baseline; trains nothing.

    Each has its defaults, and each wrapper is around softmax.
    """
    every = [*normalizers.names(), *(f"softmax+{name}" for name in normalizers.wrappers.names())]
    costs, answers = cost.Costs(store, PRESET), dict[str, dict[str, Answers]]()
    for baseline in map(normalizers.canonical, trial.against):
        rules = [rule for rule in every if rule != baseline]
        compared = _compared(replace(trial, against=[baseline]), rules, store, where)[0][baseline]
        findings = card.answers(compared, costs)
        answers[baseline] = {rule: findings.get(rule, {}) for rule in rules}
    return answers


def cards(answers: Mapping[str, Answers], store: Store, where: Where) -> list[Card]:
    """Return the card of each normalizer with stored runs, by what ``judge_all`` answers against softmax.

    Chance finds are those among the questions of a card, as in a card that is trial for by itself.
    """
    every = list[Card]()
    for rule, answered in answers.items():
        if any(each.state is not State.NOT_RUN for each in answered.values()):
            compared, left_out = _compared(Trial(rule), [rule], store, where)
            rated = dict(zip(answered, ledger.rated(list(answered.values())), strict=True))
            every.append(_card(Trial(rule), compared, {card.BASELINE: rated}, left_out, where))
    return every


def _compared(
    trial: Trial, rules: Sequence[str], store: Store, where: Where
) -> tuple[dict[str, list[Sides]], list[str]]:
    """Both sides of every question that fits a normalizer, by baseline; what does not fit, and why."""
    suite = card.suite(Path(where.experiments), trial.only)
    sides, reasons = dict[str, list[Sides]](), dict[str, None]()
    for baseline in trial.against:
        questions = [card.instance(each, rules, baseline, trial.rates) for each in suite.experiments]
        curves = store if trial.rates == "own" and len(rules) > 1 else None  # one rule is refused without its own
        fitted = [experiments.fitting(each, PRESET, curves=curves) for each in questions]
        reasons |= dict.fromkeys(f"{each.task}: {line}" for each, lines in fitted for line in lines)
        kept = [each for each, _ in fitted if each.claims]
        if trial.rates == "own":
            check_code([each.spec(one, PRESET) for each in kept for one in each.variants], store)
        sides[baseline] = [Sides(each, store, PRESET) for each in kept]
    if not any(sides.values()):
        raise BadValue(f"no question of the suite fits: {'; '.join(reasons)}.")
    return sides, list(reasons)


def _runs(compared: Sequence[Sequence[Sides]], count: int) -> list[Run]:
    """Runs of every question, each once; of each task the seeds that most of its variants have, then the lowest."""
    tasks = dict[str, list[tuple[Sides, str]]]()
    for sides in (each for group in compared for each in group):
        trial = sides.variants_for(sides.experiment.claims)
        tasks.setdefault(sides.experiment.name, []).extend((sides, name) for name in trial)
    by_place = dict[Path, Run]()
    for named in tasks.values():
        have = [sides.seeds(name) for sides, name in named]
        seeds = sorted(range(SEEDS), key=lambda seed: (-sum(seed in known for known in have), seed))[:count]
        runs = (sides.store.run(sides.spec(name), seed) for sides, name in named for seed in sorted(seeds))
        by_place |= {run.place: run for run in runs}
    return list(by_place.values())


def _onward(trial: Trial, compared: dict[str, list[Sides]], answers: Mapping[str, Answers], where: Where) -> str:
    """The command that brings open questions to their next look, or else repeats all at own rates, if known."""
    every = [(sides, answers[baseline]) for baseline, each in compared.items() for sides in each]
    steps = (next_step(sides, [known[claim.where] for claim in sides.experiment.claims]) for sides, known in every)
    if looks := [step.seeds for step in steps if step is not None]:
        return replace(trial, seeds=max(trial.seeds, min(looks))).command(where)
    own = replace(trial, rates="own")
    with suppress(BadValue):  # no curves, or other code
        return own.command(where) if own != trial and _compared(own, [trial.rule], where.store(), where) else ""
    return ""

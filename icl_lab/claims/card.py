"""A card: one normalizer against others on every question of the suite, by the ledger's rules of verdicts.

The suite is a folder of experiments, in which ``RULE`` and ``softmax`` hold the places of the normalizer that is judged
and of its baseline. Its claims are none of the ledger's: ``where`` is the name of a question, ``margin`` its size of no
difference.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

import msgspec
from msgspec.structs import replace

from icl_lab.analyses import publish
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.claims import cost, judge, ledger
from icl_lab.claims import experiment as experiments
from icl_lab.claims.ledger import RATES, Finding
from icl_lab.claims.schema import Claim, Experiment, Variant
from icl_lab.claims.sides import Sides
from icl_lab.comparison import sequential
from icl_lab.comparison.verdict import Direction, EffectSize, State
from icl_lab.runs.run import Run

RULE, BASELINE = "RULE", "softmax"  # their places in the files of the suite
FOLDER, VERSION = "suite", "version.txt"
PRESET = "nano"
TOKENS = 512  # of a prompt whose attention's memory is counted
HEAD = ("question", "value", "baseline", "effect", "seeds", "verdict")
LEGEND = (
    "Effect: value over the baseline's, or value less the baseline's (rates, nats), with the interval of the look that "
    "these seeds allow; less is better. Alike: all of it within the question's size of no difference. Open: neither; "
    f"so many seeds more would decide it (+{max(sequential.SPENT)}: or more than that). °: small scale "
    f"(preset {PRESET}). †: may be a chance find among these questions. {ledger.LIMITED}"
)
Answers = Mapping[str, Finding]  # by question


@dataclass(frozen=True)
class Suite:
    """Questions as experiments with places for a normalizer and its baseline, and the version of all of them."""

    version: str
    experiments: Sequence[Experiment]

    @property
    def questions(self) -> list[str]:
        """Names of the questions."""
        return [claim.where for template in self.experiments for claim in template.claims]


def suite(files: Path, only: Sequence[str] = ()) -> Suite:
    """Read the suite in a folder of experiments; of the questions ``only`` those named so, or so and a hyphen.

    Raises ``BadValue`` where there is none, and ``UnknownName`` for an unknown question.
    """
    folder = experiments.place(files) / FOLDER
    templates = [experiments.load(name, folder) for name in experiments.names(folder)]
    if not templates or not (folder / VERSION).is_file():
        raise BadValue(f"{folder} holds no suite of questions: experiments, and their version in {VERSION}.")
    whole = Suite((folder / VERSION).read_text().strip(), templates)
    for name in only:
        if not any(_asks(question, [name]) for question in whole.questions):
            raise UnknownName("question", name, whole.questions)
    claims = [[claim for claim in each.claims if not only or _asks(claim.where, only)] for each in templates]
    kept = [replace(each, claims=some) for each, some in zip(templates, claims, strict=True) if some]
    return Suite(whole.version, kept)


def _asks(question: str, only: Sequence[str]) -> bool:
    return any(f"{question}-".startswith(f"{name}-") for name in only)


def instance(template: Experiment, rules: Sequence[str], baseline: str, rates: str = "shared") -> Experiment:
    """Return an experiment of the suite with these normalizers and this baseline in their places."""

    def put(text: str, rule: str) -> str:
        return re.sub(f"{RULE}|{BASELINE}", lambda match: rule if match[0] == RULE else baseline, text)

    def variant(each: Variant, rule: str) -> Variant:
        return replace(each, name=put(each.name, rule), attn=put(each.attn, rule))

    def claim(each: Claim, rule: str) -> Claim:
        left, right = (replace(side, of=put(side.of, rule)) for side in (each.left, each.right))
        return replace(each, statement=put(each.statement, rule), left=left, right=right)

    variants = [variant(each, rule) for each in template.variants for rule in (rules if each.attn == RULE else [""])]
    claims = [claim(each, rule) for rule in rules for each in template.claims]
    return replace(template, baseline=put(template.baseline, ""), variants=variants, claims=claims, rates=rates)


def answers(compared: Sequence[Sides], costs: cost.Costs) -> dict[str, dict[str, Finding]]:
    """Judge the claims of an ``instance`` of each question: findings by normalizer and question."""
    keys = [(sides.spec(claim.left.of).attn, claim.where) for sides in compared for claim in sides.experiment.claims]
    findings = ledger.rated([finding for sides in compared for finding in judge.findings(sides, costs)])
    answers_of = dict[str, dict[str, Finding]]()
    for (rule, question), finding in zip(keys, findings, strict=True):
        answers_of.setdefault(rule, {})[question] = finding
    return answers_of


def slowdown(compared: Sequence[Sides], rule: str, baseline: str) -> float:
    """Seconds of a training over the baseline's: the median over tasks and classes of machines; NaN where unknown."""
    ratios = list[float]()
    for sides in compared:
        mine, theirs = (_seconds(sides, attn) for attn in (rule, baseline))
        ratios += [median(mine[machine]) / median(theirs[machine]) for machine in mine.keys() & theirs.keys()]
    return median(ratios) if ratios else math.nan


def _seconds(sides: Sides, attn: str) -> dict[tuple[str, int], list[float]]:
    """Seconds of the stored trainings of a normalizer, by class of machine and threads."""
    seconds_of = dict[tuple[str, int], list[float]]()
    for run in _trainings(sides, attn):
        env = run.env() if run.recorded else {}
        if "machine" in env and (seconds := cost.seconds_of(run, run.spec)) is not None:
            seconds_of.setdefault((env["machine"], env.get("threads", 0)), []).append(seconds)
    return seconds_of


def bound(compared: Sequence[Sides], attn: str) -> float:
    """Return C, the bound on answers of numbers: the median over stored trainings, at their end; NaN where unknown."""
    runs = (run for sides in compared if sides.task.log_scale for run in _trainings(sides, attn))
    last = [rows[-1]["bound"] for run in runs if (rows := run.history()) and "bound" in rows[-1]]
    return median(last) if last else math.nan


def _trainings(sides: Sides, attn: str) -> Iterator[Run]:
    named = (name for name, spec in sides.specs.items() if spec.attn == attn)
    return (sides.trained(name, seed) for name in named for seed in sides.seeds(name))


def verdict(finding: Finding) -> str:
    """Return the verdict on a question in a word or two: better, worse, alike, open, or why nothing is judged."""
    if not finding.judged:
        return "open" if finding.state is State.FEW_SEEDS else str(finding.state)
    if finding.size is EffectSize.WITHIN:
        return "alike"
    return {Direction.BELOW: "better", Direction.ABOVE: "worse"}.get(finding.direction, "open")


def verdict_words(finding: Finding) -> str:
    """Return the verdict with its marks, and how many further seeds would decide an open one."""
    word = verdict(finding) + finding.marks
    return (
        f"{word}: +{finding.more or max(sequential.SPENT)}" if verdict(finding) == "open" and finding.outlook else word
    )


@dataclass(frozen=True)
class Card:
    """Answers on a normalizer, its costs, and facts about its weights."""

    rule: str
    version: str  # of the suite
    rates: str
    answers: Mapping[str, Answers]  # by baseline
    slowdown: Mapping[str, float]  # by baseline
    memory: Mapping[str, float]  # of attention over TOKENS tokens, forward and backward: over each baseline's
    facts: Mapping[str, bool]  # of its weights
    inside: Mapping[str, Sequence[float]]  # by normalizer: its largest weight of 16 and of 256 random keys, and C
    nearest: tuple[str, float]  # another normalizer, and the distance of its weights
    distance: str  # its definition
    left_out: Sequence[str] = ()  # questions that the normalizer does not fit, and why
    onward: str = ""  # the command that goes on; empty where nothing is open

    def sentence(self, baseline: str) -> str:
        """The verdict in words: "On 2 of 9 questions better than softmax, on 1 worse, 3 alike, 1 open"."""
        counts = Counter(map(verdict, (answered := self.answers[baseline]).values()))
        text = f"On {counts.pop('better', 0)} of {len(answered)} questions better than {baseline}, "
        text += ", ".join(
            f"{start}{counts.pop(word, 0)} {word}" for start, word in (("on ", "worse"), ("", "alike"), ("", "open"))
        )
        time = self.slowdown[baseline]
        cost_words = (
            "the time of a training is not known" if math.isnan(time) else f"{time:.2f} times the training time"
        )
        return "; ".join([text, *(f"{count} {why}" for why, count in counts.items()), cost_words]) + "."

    def rows(self) -> list[dict[str, Any]]:
        """Every question as a row (``rows``), against each baseline."""
        return [row for baseline, answered in self.answers.items() for row in rows(self.rule, baseline, answered)]

    def page(self, command: str) -> str:
        """The card as a page of one file, made by a command."""
        settings = [("Suite", self.version), ("Preset", PRESET), ("Learning rate", RATES[self.rates])]
        verdicts = list(map(self.sentence, self.answers))
        lines = [line for line in self.lines()[1:] if line not in verdicts]
        title = f"{self.rule} against {md.listed(self.answers)}"
        return publish.document(title, "", " ".join(verdicts), settings, lines, {}, command)

    def lines(self) -> list[str]:
        """The card as lines of Markdown."""
        text = [f"# {md.code(self.rule)}, suite {self.version}, preset {PRESET}, {RATES[self.rates]}"]
        for baseline, answered in self.answers.items():
            rows = []
            for question, finding in answered.items():
                written = md.short if finding.ratio else "{:.3g}".format  # nats differ in the second decimal
                values = [written(_mean(finding, side)) if side else "—" for side in (finding.left, finding.right)]
                seeds = finding.counts.replace(" and", ",")
                rows.append([question, *values, finding.interval or "—", seeds, verdict_words(finding)])
            text += ["", self.sentence(baseline), "", *md.table(HEAD, rows)]
            notes = {question: finding.note or finding.unlearned for question, finding in answered.items()}
            text += [f"{question}: {note}." for question, note in notes.items() if note]
        text += self.left_out
        name, distance = self.nearest
        yes, no = ([fact for fact, holds in self.facts.items() if holds is wanted] for wanted in (True, False))
        text += ["", LEGEND, ""]
        text += [f"Weights: {', '.join(yes) or 'none of these'}. Not: {', '.join(no) or 'none'}."]
        inside = (f"{md.code(name)} {', '.join(map(md.short, values))}" for name, values in self.inside.items())
        what = "Largest weight of 16 and of 256 random keys, and C, the bound on answers of `linear`"
        text += [f"{what}: {'; '.join(inside)}."]
        memory = md.listed(f"{ratio:.2f} times {md.code(name)}" for name, ratio in self.memory.items())
        text += [f"Memory of attention over {TOKENS} tokens, forward and backward: {memory}."]
        return [*text, f"Nearest known weights: {md.code(name)}, {distance:.3f} apart ({self.distance})."]

    def json(self) -> str:
        """The card as JSON; unknown numbers are null."""
        name, distance = self.nearest
        numbers = {"verdict": {each: self.sentence(each) for each in self.answers}, "questions": self.rows()}
        numbers |= {"nearest": {"rule": name, "distance": distance, "definition": self.distance}}
        fields = {
            each: getattr(self, each)
            for each in ("rule", "rates", "slowdown", "memory", "facts", "inside", "left_out", "onward")
        }
        return encoded({"suite": self.version, "preset": PRESET} | fields | numbers)


def encoded(values: object) -> str:
    """Return numbers and words as JSON; numbers that are not finite are null."""
    return msgspec.json.format(msgspec.json.encode(values)).decode()


def rows(rule: str, baseline: str, answered: Answers) -> list[dict[str, Any]]:
    """Return a row per question: verdict, values, effect (a ratio or a difference) with interval, seeds, note."""
    return [
        {"rule": rule, "against": baseline, "question": question, "verdict": verdict(finding), "marks": finding.marks}
        | {"value": _mean(finding, finding.left), "baseline": _mean(finding, finding.right), "scale": finding.scale}
        | {name: finding.shown(getattr(finding, name)) for name in ("effect", "low", "high")}
        | {"seeds": finding.count, "more": finding.more, "note": "; ".join(finding.limits)}
        for question, finding in answered.items()
    ]


def table(answers_of: Mapping[str, Answers], baseline: str, rates: str, asked: Suite) -> list[str]:
    """Return the table of many normalizers as lines: verdicts on each question, with the effect where there is one."""
    head = f"# Suite {asked.version}, preset {PRESET}, {rates}: verdicts against {baseline}"
    cells = ([md.code(rule), *(cell(each.get(name)) for name in asked.questions)] for rule, each in answers_of.items())
    return [head, "", *md.table(["normalizer", *asked.questions], cells), "", LEGEND]


def cell(finding: Finding | None) -> str:
    """Return the verdict with its marks, but that of the scale, which all share, and with the effect."""
    if finding is None or finding.state is State.NOT_RUN:
        return "—"
    effect = "" if math.isnan(finding.effect) else f" {md.short(finding.shown(finding.effect))}"
    return verdict(finding) + finding.marks.replace("°", "") + effect


def _mean(finding: Finding, values: Sequence[float]) -> float:
    if not values:
        return math.nan
    return geometric_mean(values) if finding.ratio and min(values) > 0 else fmean(values)

"""Grammatical minimal pairs: does a language model give the grammatical sentence the higher score?

After Huebner, Sulem, Fisher, Roth 2021 (BabyBERTa, CoNLL) and their test suite Zorro; sentences of a bidirectional
model are scored by pseudo-log-likelihood (Salazar, Liang, Nguyen, Kirchhoff 2020, arXiv 1910.14659), where words are of
several tokens as Kauf and Ivanova 2023 (arXiv 2305.10588) do.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import ClassVar, Self

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.frame import ANY, Analysis, Cells, Findings, Metric, Row, Rows, StoredGrids, TrainedModel, option
from icl_lab.base import foreign
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.base.registry import require
from icl_lab.comparison.given import Array
from icl_lab.figures import ranking
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs.measure import fitting, summary
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Prompt
from icl_lab.tasks.capabilities import ReadsText
from icl_lab.tasks.texts import grammar
from icl_lab.tasks.texts.corpus import Corpus

Pair = tuple[str, str]  # an ungrammatical sentence and the grammatical one, as Zorro's files hold them
SCORINGS = ("masked", "whole")
NAME = re.compile(r"\w[\w .+-]*")  # of a paradigm: a metric of tables, and a word of claims
MEAN = "mean"  # the metric of all paradigms
CHARACTERS = 2_000  # of a sentence: its memory grows with their square, of a masked one with their cube


@registry.add("probe-pairs")
@dataclass(frozen=True, kw_only=True)
class ProbePairs(Analysis):
    """Score pairs of a grammatical and an ungrammatical sentence: how often does the grammatical one win?

    Accuracy of each paradigm, a tie half. A model that reads one side sums the log-probabilities of a sentence's next
    tokens; one that fills in masks sums those of its tokens, each masked in turn with those after it in the same word
    (``masked``), or takes their mean with nothing masked (``whole``). Each sentence stands between two ends of lines.
    Pairs are those of the grammar, none of whose sentences stands in its text, or those of a folder.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"accuracy": (), "prompts": ("prompt",)}
    needed: ClassVar[Sequence[str]] = ("prompts",)
    title: ClassVar[str] = "grammatical minimal pairs"
    usual_task: ClassVar[str] = "masked-text:file=grammar"
    metrics: ClassVar[Mapping[str, Metric]] = dict.fromkeys(
        (MEAN, ANY), Metric("accuracy", kind="share", constants=True)
    )

    pairs: str = option("", "A folder of Zorro's files: paradigm.txt, lines in turn bad and good.  [default: grammar]")
    prompts: int = option(500, "Pairs of each paradigm; of a file at most those that it has.", least=2, most=10_000)
    scoring: str = option("masked", "Of models that fill in masks: masked or whole.")
    sha: str = option("", "SHA-256 of the pairs, which is filled in.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.scoring in SCORINGS, f"scoring is {' or '.join(SCORINGS)}", self.scoring)

    def check(self, spec: RunSpec) -> None:
        corpus = tasks.require(tasks.build(spec.task), ReadsText).corpus
        for paradigm, pairs in self.paradigms().items():
            if (count := len(known(corpus, pairs))) < 2:
                raise BadValue(
                    f"{count or 'no'} pair of {paradigm} is made of words that {corpus.name} has; two or more count."
                )

    def prepared(self, runs: Sequence[Run]) -> Self:
        sha = hashlib.sha256(repr(self.paradigms()).encode()).hexdigest()[:12]
        if not sha.startswith(self.sha):
            raise BadValue(f"the pairs have changed: their SHA-256 begins with {sha}, not with {self.sha}.")
        return replace(self, sha=sha)

    def paradigms(self) -> dict[str, list[Pair]]:
        """Return the pairs by paradigm; raises ``BadValue`` where a folder has none, or a file holds no pairs."""
        if not self.pairs:
            return {name: grammar.pairs(name, self.prompts) for name in grammar.grammar().pairs}
        return {path.stem: read(path)[: self.prompts] for path in found(Path(self.pairs))}

    def measure(self, trained: TrainedModel) -> Rows:
        """Scores all pairs whose words the model knows."""
        task, rows, single = tasks.require(trained.task, ReadsText), list[Row](), list[Row]()
        paradigms, lost, total = self.paradigms(), 0, 0
        for done, (paradigm, pairs) in enumerate(paradigms.items()):
            kept = known(task.corpus, pairs)
            lost, total = lost + len(pairs) - len(kept), total + len(pairs)
            scoring = self.scoring if task.bidirectional else "next"
            bad, good = (
                scores(trained.model, task.corpus, side, scoring, trained.lab.device)
                for side in zip(*kept, strict=True)
            )
            right = (good > bad).double() + (good == bad).double() / 2
            rows.append({"metric": paradigm, **summary(right)})
            single += trained.of_prompts({}, {paradigm: right})
            trained.tick(done + 1, len(paradigms))
        if lost and trained.first:
            trained.lab.say(f"{lost:,} of {total:,} pairs hold words that {task.corpus.name} lacks and are left out.")
        return {"accuracy": rows, "prompts": single}

    def table(self, found: Findings) -> list[str]:
        """The accuracy of each normalizer by paradigm, and the difference of the others from the first."""
        first, *others = found.rules
        columns = [f"{rule}, minus {first}" for rule in others]
        text = [
            "Share of pairs in which the grammatical sentence scores higher; chance is 0.5. Means over seeds, with the "
            "standard error over pairs and seeds; differences are paired in both.",
            "",
            *md.head(["paradigm", "pairs", *(f"`{rule}`" for rule in found.rules), *columns]),
        ]
        for paradigm in found.first.values("metric"):
            each = {rule: trials(found, rule, paradigm) for rule in found.rules}
            cells = [spread(each[rule], "{:.3f}") for rule in found.rules]
            seeds = {rule: min(len(each[first]), len(each[rule])) for rule in others}
            cells += [spread(each[rule][: seeds[rule]] - each[first][: seeds[rule]], "{:+.3f}") for rule in others]
            text.append(md.row([paradigm, str(each[first].shape[1]), *cells]))
        means = [f"{self.value(found, rule, {}, 'mean', seed):.3f}" for rule in found.rules for seed in found.seeds]
        return [*text, "", f"Mean over the paradigms, seed by seed: {', '.join(means)}."]

    def figures(self, found: Findings, title: str) -> Mapping[str, Figure]:
        """A dot for each paradigm with its seeds, a panel for each normalizer; grey: chance."""
        names = found.first.values("metric")
        panels = {
            rule: ranking.Panel({name: _dot(trials(found, rule, name)) for name in names}, {"chance": 0.5})
            for rule in found.rules
        }
        return {"probe-pairs": ranking.ranking(panels, names, title=title, label="accuracy", log=False)}

    def finding(self, found: Findings) -> str:
        """The mean accuracy of each normalizer."""
        means = [
            fmean(self.value(found, rule, {}, MEAN, seed) for seed in found.seeds_of(rule)) for rule in found.rules
        ]
        shares = md.listed(f"{mean:.1%} with {rule}" for rule, mean in zip(found.rules, means, strict=True))
        return f"The grammatical sentence wins in {shares} of the pairs (mean over the paradigms)."

    def cells_of(self, found: StoredGrids, of: str, cells: Cells, metric: str, seed: int) -> Grid | None:
        """The accuracy in the paradigm that a metric names, or in all of them (``mean``, the usual one)."""
        if metric in ("", MEAN):
            return self.rows_of(found, of, MEAN, seed)
        return super().cells_of(found, of, cells, metric, seed)


def found(folder: Path) -> list[Path]:
    """Return the files of a folder of pairs; raises ``BadValue`` where there is none, or one has no plain name."""
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if not files:
        raise BadValue(f"there are no pairs in '{folder}': a folder of files such as Zorro's, paradigm.txt, is read.")
    if odd := [path.stem for path in files if not NAME.fullmatch(path.stem) or path.stem == MEAN]:
        raise BadValue(
            f"{odd[0]!r} in '{folder}' names no paradigm: letters, digits, blanks and _ . + - do, and not '{MEAN}'."
        )
    return files


def read(path: Path) -> list[Pair]:
    """Read a file of pairs, a sentence a line; raises ``BadValue`` where it is not text or their number is odd."""
    try:
        text = foreign.read(path, foreign.MOST_TEXT).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(f"{path} cannot be read: {error}.") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if (longest := max(map(len, lines), default=0)) > CHARACTERS:
        raise BadValue(f"{path} has a sentence of {longest:,} characters, at most {CHARACTERS:,} are scored.")
    if len(lines) % 2 or len(lines) < 4:
        raise BadValue(f"{path} has {len(lines)} sentences: pairs are two each, a bad one and a good one, and several.")
    return list(zip(lines[::2], lines[1::2], strict=True))


def known(corpus: Corpus, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs whose words the corpus has."""
    return [pair for pair in pairs if all(corpus.ids(sentence) for sentence in pair)]


@torch.no_grad()
def scores(model: GPT2, corpus: Corpus, sentences: Sequence[str], scoring: str, device: torch.device) -> Tensor:
    """Sentences -> the score of each, (b): ``next``, ``masked`` or ``whole``.

    Formula: sum_i log p(x_i | x_<i); sum_i log p(x_i | x without x_i and the tokens after it in its word);
    mean_i log p(x_i | x)

    With the rest of a word in sight its tokens tell each other, and words of more tokens, the rarer ones, would win.

    Raises ``BadValue`` where a sentence is too long for the model's positions.
    """
    lines = [_line(corpus, sentence) for sentence in sentences]
    alike = defaultdict[tuple[int, range], list[int]](list)  # no padding: a normalizer may count its keys
    for i, (ids, places, _) in enumerate(lines):
        alike[len(ids), places].append(i)
    scored = torch.zeros(len(lines), dtype=torch.float64)
    for (_, places), where in alike.items():
        tokens, asked, length = torch.tensor([lines[i][0] for i in where]), torch.tensor(places), len(places)
        if scoring == "masked":
            words = torch.tensor([lines[i][2] for i in where])
            hidden = (words.unsqueeze(2) == words.unsqueeze(1)).triu()
            read = tokens.unsqueeze(1).repeat(1, length, 1)
            read[:, :, asked] = torch.where(hidden, corpus.mask, read[:, :, asked])
            log_p = _log_p(model, read.flatten(0, 1), tokens.repeat_interleave(length, 0), device)
            scored[where] = log_p.view(len(where), length, -1)[:, torch.arange(length), asked].sum(1)
        elif scoring == "whole":
            scored[where] = _log_p(model, tokens, tokens, device).mean(1)
        else:
            scored[where] = _log_p(model, tokens[:, :-1], tokens[:, 1:], device)[:, asked[asked > 0] - 1].sum(1)
    return scored


def _line(corpus: Corpus, sentence: str) -> tuple[list[int], range, list[int]]:
    """Tokens of a sentence between two ends of lines, as a text has them; places of those in it; their words.

    Where a mark and the end of a line are one token, it is one of the sentence. A tokenizer may have no end of a line.
    """
    text, start = f"\n{sentence}\n", 1
    if (ids := corpus.ids(text)) is None:
        text, start, ids = sentence, 0, corpus.ids(sentence) or []
    spans = enumerate(corpus.spans_of(text))
    places = [place for place, (low, high) in spans if low < start + len(sentence) and high > start]
    inside = range(min(places, default=0), max(places, default=-1) + 1)
    return ids, inside, corpus.words_of(text)[inside.start : inside.stop]


def _log_p(model: GPT2, read: Tensor, targets: Tensor, device: torch.device) -> Tensor:
    """Tokens that are read, and targets, (b t) -> the log-probability of each target, (b t)."""
    prompt = Prompt(read, targets, torch.ones_like(read, dtype=torch.bool))
    found = [
        model(piece.tokens.to(device)).cpu().double().log_softmax(2).gather(2, piece.targets.unsqueeze(2)).squeeze(2)
        for piece in fitting(prompt, model.bytes_a_prompt)
    ]
    return torch.cat(found)


def trials(found: StoredGrids, rule: str, paradigm: str) -> Array:
    """Return what became of each pair in the seeds of which single pairs are kept, (seeds pairs)."""
    return np.asarray(found["prompts"].where(attn=rule, metric=paradigm).table("seed", "prompt").to_numpy())


def spread(values: Array, form: str) -> str:
    """Values (seeds pairs) -> their mean and its standard error in words."""
    return f"{form.format(values.mean())} ± {error(values):.3f}"


def error(values: Array) -> float:
    """Values (seeds pairs) -> the standard error of their mean over both.

    Formula: sqrt(var_seeds(mean over pairs) / seeds + var_pairs(mean over seeds) / pairs)
    """
    seeds = values.mean(axis=1).var(ddof=1) / len(values) if len(values) > 1 else 0.0
    return math.sqrt(seeds + values.mean(axis=0).var(ddof=1) / values.shape[1])


def _dot(values: Array) -> ranking.Dot:
    middle, half = float(values.mean()), 1.96 * error(values)
    return ranking.Dot(middle, middle - half, middle + half, values.mean(axis=1).tolist())

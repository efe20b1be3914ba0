"""One language model with several rules in its attention, on the same texts: losses, needles, and what they say."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from icl_lab import markdown as md
from icl_lab import normalizers
from icl_lab.comparison.statistics import wilson
from icl_lab.errors import BadValue, Stopped
from icl_lab.figures import lines
from icl_lab.figures.base import short
from icl_lab.grid import Grid
from icl_lab.language import needle
from icl_lab.language.finetune import Recipe, tune
from icl_lab.language.loss import losses
from icl_lab.language.model import LanguageModel, read
from icl_lab.registry import filename
from icl_lab.rng import stream
from icl_lab.runs.measure import TEST_SEED, summary
from icl_lab.runs.places import Places
from icl_lab.texts.corpus import Corpus, corpus_in
from icl_lab.texts.ngrams import ngram

Row = dict[str, Any]
Progress = Callable[[str, int, int], object]  # what is done, done, total
REFERENCES = {"reference:unigram": 1, "reference:5-gram": 5}


@dataclass(frozen=True)
class Needles:
    """Contexts in tokens, depths in percent, and how many texts in each of their cells."""

    contexts: tuple[int, ...] = (256, 512)
    depths: tuple[float, ...] = (10.0, 30.0, 50.0, 70.0, 90.0)
    samples: int = 10


@dataclass(frozen=True)
class Question:
    """What is asked: of which model, with which rules, on which text, over how many windows of which length.

    ``near`` is the length that rules take for that of training, and up to which a place counts as within; the model's
    own where it is 0.
    """

    model: str
    attns: tuple[str, ...]
    text: str = ""
    length: int = 0
    windows: int = 16
    near: int = 0
    needles: Needles | None = None
    recipe: Recipe | None = None

    @property
    def short(self) -> str:
        """What the model is called: its folder, or its file."""
        return Path(self.model).resolve().name.removesuffix(".gguf") or "model"

    def tuned(self, corpus: Corpus) -> str:
        """The folder of fine-tunings of this model by this recipe on this text, whatever is measured afterwards."""
        asked = (str(Path(self.model).resolve()), corpus.sha, self.near, self.recipe)
        return f"{self.short}-{hashlib.sha256(repr(asked).encode()).hexdigest()[:8]}"

    def options(self, corpus: Corpus) -> dict[str, Any]:
        """What the record of the study says was asked; the text by its hash too."""
        told = {**asdict(self), "text": f"{corpus.name} {corpus.sha[:12]}"}
        return dict(json.loads(json.dumps(told)))  # as it is read back


@dataclass
class Answers:
    """What was measured: rows of the grids, and the losses of every window (b t) by rule."""

    places: Places
    losses: dict[str, Tensor] = field(default_factory=dict)
    needles: list[Row] = field(default_factory=list)
    heads: list[Row] = field(default_factory=list)
    histories: dict[str, list[float]] = field(default_factory=dict)


def checked(question: Question, device: torch.device) -> tuple[Question, LanguageModel, Corpus]:
    """Reads model and text, fills in the lengths, and raises ``BadValue`` where anything cannot be done later."""
    attns = tuple(dict.fromkeys(normalizers.canonical(attn) for attn in question.attns))
    language = read(question.model, device)
    corpus = corpus_in(language.tokenizer, question.text)
    if int(max(int(span.max()) for span in (*corpus.training, *corpus.held_out))) >= language.words:
        raise BadValue(f"the tokenizer of {question.model} has words that the model does not know: they do not fit.")
    limit = language.limit or max(2 * language.trained, 1024)
    length = question.length or max(2, min(1024, limit, corpus.longest_window))
    near = question.near or min(language.trained, length)
    language.check_length(length + len(language.start))
    if length > corpus.longest_window:
        raise BadValue(corpus.too_short(length))
    question = replace(question, attns=attns, length=length, near=near)
    if question.needles:
        for context, depth in needle.grid(question.needles.contexts, question.needles.depths):
            language.check_length(context + needle.DIGITS + 3)
            needle.hidden(language, corpus, context, depth, 0)
    if question.recipe:
        language.check_length(question.recipe.length + len(language.start))
        corpus.windows("train", stream(0), 1, question.recipe.length)
    for attn in attns:  # a rule that does not fit this model is told before anything is computed
        with language.ruled(attn, near):
            if question.needles:  # which are looked for with a cache
                needle.head_scores(language, needle.Hidden([0, 1, 2, 3], "", range(1, 2)))
    return question, language, corpus


def measure(
    question: Question,
    language: LanguageModel,
    corpus: Corpus,
    folder: Path,
    progress: Progress = lambda what, done, total: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Answers:
    """Asks every rule, on the same windows and needles. ``folder`` keeps the states of fine-tunings.

    Raises ``Stopped`` when asked to stop: what is fine-tuned stays.
    """
    windows = corpus.windows("held-out", stream(TEST_SEED, "language"), question.windows, question.length)
    found = Answers(Places(tuple(range(1, question.length + 1)), question.near))
    for attn in question.attns:
        if question.recipe and found.losses:
            language = read(question.model, language.device)  # the weights of before the fine-tuning
        with language.ruled(attn, question.near):
            if question.recipe:
                path = folder / question.tuned(corpus) / f"{filename(attn)}.pt"
                tick = _told(progress, f"fine-tuning {attn}")
                found.histories[attn] = tune(language, corpus, question.recipe, path, tick, stopping)
            found.losses[attn] = losses(language, windows, _told(progress, f"loss with {attn}"))
            for row, heads in _needles(question, language, corpus, attn, _told(progress, f"needles with {attn}")):
                found.needles.append(row)
                found.heads += heads
        if stopping():
            raise Stopped("stopped; nothing was written, and fine-tuning that is done is kept.")
    for name, order in REFERENCES.items():
        model = ngram(corpus, order)
        found.losses[name] = torch.cat(
            [-model(row[:, :-1]).gather(2, row[:, 1:].unsqueeze(2)).squeeze(2) for row in torch.split(windows, 1)]
        )
    return found


def grids(question: Question, answers: Answers, corpus: Corpus) -> dict[str, Grid]:
    """The numbers as grids: ``loss`` by tokens read, ``ends``, ``needle`` by context and depth, ``heads``."""
    who = {"task": corpus.name, "preset": Path(question.model).name, "spec": corpus.sha[:8], "seed": 0}
    steps, ends = [], []
    for name, nats in answers.losses.items():
        for tokens, chosen in answers.places.steps.items():
            steps.append(_row(name, "nats", nats[:, chosen].mean(1), tokens=tokens))
        ends += [_row(name, metric, values) for metric, values in answers.places.ends(nats).items()]
        ends.append(_row(name, "bits-per-byte", nats.mean(1) / (math.log(2) * corpus.bytes_a_token)))
    made = {"loss": Grid.of(steps, ["tokens"], **who), "ends": Grid.of(ends, [], **who)}
    if answers.needles:
        made["needle"] = Grid.of(answers.needles, ["context", "depth"], **who)
        made["heads"] = Grid.of(answers.heads, ["layer", "head", "context", "depth"], **who)
    return made


def table(question: Question, answers: Answers, corpus: Corpus) -> list[str]:
    """What was found, as lines of Markdown."""
    first = question.attns[0]
    shown = list(answers.places.steps)[-1::-4][::-1]
    bits = math.log(2) * corpus.bytes_a_token
    tuned = (
        f" after {question.recipe.steps:,} steps of fine-tuning ({question.recipe.learn})" if question.recipe else ""
    )
    text = [
        f"Loss in nats per token{tuned}: {question.windows} windows of {question.length:,} tokens of the held-out "
        f"parts of {corpus.name}, {corpus.bytes_a_token:.2f} bytes a token. Rules take {question.near:,} tokens for "
        "the length of training. A column of numbers is the half octave of tokens up to there. The difference is to "
        f"{first}, paired over windows, with 1.96 standard errors: windows overlap, so the true ones are larger.",
        "",
        *md.head(["rule", *(f"{tokens:g}" for tokens in shown), "all", "difference", "bits per byte"]),
    ]
    for name, nats in answers.losses.items():
        cells = [short(nats[:, answers.places.steps[tokens]].mean().item()) for tokens in shown]
        mean = nats.mean(1)
        apart = "" if name == first else _difference(mean - answers.losses[first].mean(1))
        text.append(md.row([f"`{name}`", *cells, f"{mean.mean():.4f}", apart, f"{mean.mean() / bits:.3f}"]))
    if question.needles:
        text += ["", *_needle_table(question, answers)]
    return text


def figures(question: Question, answers: Answers, corpus: Corpus) -> dict[str, Figure]:
    """The loss over the tokens read, and the share of needles that were found over the context."""
    steps = answers.places.steps
    means = {name: [nats[:, at].mean().item() for at in steps.values()] for name, nats in answers.losses.items()}
    title = f"{Path(question.model).name}: {corpus.name}"
    drawn = {
        "loss": lines.rivals(
            list(steps),
            {name: [[value] for value in line] for name, line in means.items() if name not in REFERENCES},
            {name.removeprefix("reference:"): line for name, line in means.items() if name in REFERENCES},
            axis="tokens read",
            title=title,
            label="loss in nats per token",
            log=False,
            mark=question.near,
        )
    }
    if question.needles and len(question.needles.contexts) > 1:
        wrong = {
            attn: [[_share(answers.needles, attn, context)] for context in question.needles.contexts]
            for attn in question.attns
        }
        drawn["needle"] = lines.rivals(
            question.needles.contexts,
            wrong,
            {},
            axis="tokens of context",
            title=title,
            label="needles missed",
            log=False,
            mark=question.near,
        )
    return drawn


def _needles(
    question: Question, language: LanguageModel, corpus: Corpus, attn: str, tick: Callable[[int, int], object]
) -> Iterator[tuple[Row, list[Row]]]:
    """Yields, for every context and depth, the share of needles missed, and the needle score of each head."""
    asked = question.needles
    if asked is None:
        return
    cells = list(needle.grid(asked.contexts, asked.depths))
    for done, (context, depth) in enumerate(cells):
        where = {"context": context, "depth": depth}
        missed, scores = [], []
        for sample in range(asked.samples):
            hide = needle.hidden(language, corpus, context, depth, sample)
            missed.append(float(not needle.right(needle.answer(language, hide), hide.number)))
            scores.append(needle.head_scores(language, hide))
        each = torch.tensor(scores)
        heads = [
            _row(attn, "needle-score", each[:, layer, head], layer=layer, head=head, **where)
            for layer in range(each.shape[1])
            for head in range(each.shape[2])
        ]
        tick(done + 1, len(cells))
        yield _row(attn, "missed", torch.tensor(missed), **where), heads


def _needle_table(question: Question, answers: Answers) -> list[str]:
    asked = question.needles
    if asked is None:
        return []
    cells = asked.samples * len(asked.depths)
    text = [
        f"Needles missed: a number of {needle.DIGITS} digits hidden at {', '.join(f'{d:g}' for d in asked.depths)} "
        f"percent of the context, {cells} texts for each context, with the 95 % interval of Wilson; all digits must be "
        "right. Best head: the greatest weight of the last token on the digits, mean over texts.",
        "",
        *md.head(["rule", *(f"{context:,} tokens" for context in asked.contexts), "best head"]),
    ]
    for attn in question.attns:
        row = []
        for context in asked.contexts:
            share = _share(answers.needles, attn, context)
            low, high = wilson(round(share * cells), cells)
            row.append(f"{share:.2f} [{low:.2f}, {high:.2f}]")
        scores: dict[tuple[int, int], list[float]] = {}
        for each in answers.heads:
            if each["attn"] == attn:
                scores.setdefault((each["layer"], each["head"]), []).append(each["value"])
        (layer, head), values = max(scores.items(), key=lambda item: sum(item[1]))
        text.append(md.row([f"`{attn}`", *row, f"{layer}.{head}: {sum(values) / len(values):.2f}"]))
    return text


def _share(rows: Sequence[Row], attn: str, context: int) -> float:
    values = [row["value"] for row in rows if row["attn"] == attn and row["context"] == context]
    return float(sum(values) / len(values))


def _difference(values: Tensor) -> str:
    """The mean of paired differences (b) with 1.96 standard errors."""
    if not bool(values.isfinite().all()):
        return "not finite"
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{values.mean().item():+.4f} ± {1.96 * error:.4f}".replace("-", "−")


def _row(name: str, metric: str, values: Tensor, **where: float) -> Row:
    return {"attn": name, **where, "metric": metric} | summary(values)


def _told(progress: Progress, what: str) -> Callable[[int, int], object]:
    return lambda done, total: progress(what, done, total)

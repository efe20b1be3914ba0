"""One language model with several normalizers in its attention, on the same texts: losses and needles."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icl_lab import normalizers
from icl_lab.analyses.attention_rows import head_rows
from icl_lab.analyses.context import AnswerPositions
from icl_lab.analyses.findings import mean_rows
from icl_lab.base.errors import BadValue, Stopped
from icl_lab.base.progress import Tick, silent
from icl_lab.base.rng import stream
from icl_lab.extras.language import needle
from icl_lab.extras.language.disk import OnDisk
from icl_lab.extras.language.loss import losses
from icl_lab.extras.language.model import LanguageModel, read
from icl_lab.runs.measure import TEST_SEED
from icl_lab.tasks.texts.corpus import Corpus, corpus_in
from icl_lab.tasks.texts.ngrams import ngram

Row = Mapping[str, Any]
REFERENCES = {"reference:unigram": 1, "reference:5-gram": 5}


@dataclass(frozen=True)
class Needles:
    """Contexts in tokens, depths in percent, and how many texts in each of their cells."""

    contexts: tuple[int, ...] = (256, 512)
    depths: tuple[float, ...] = (10.0, 30.0, 50.0, 70.0, 90.0)
    samples: int = 10


@dataclass(frozen=True)
class LanguageQuestion:
    """Question to a language model: its normalizers, the text, number and length of windows.

    ``near`` is the length that normalizers take for that of training, and up to which a place counts as within; the
    model's own where it is 0.
    """

    model: str
    attns: tuple[str, ...]
    text: str = ""
    length: int = 0
    windows: int = 16
    near: int = 0
    needles: Needles | None = None

    @property
    def disk(self) -> OnDisk:
        """Path of the model."""
        return OnDisk(Path(self.model))

    @property
    def short(self) -> str:
        """Name of the model: its folder, or its file."""
        return self.disk.name

    def options(self, corpus: Corpus) -> dict[str, Any]:
        """Options of the study as they are recorded; the text and the weights by their hashes too."""
        return {**asdict(self), "text": f"{corpus.name} {corpus.sha[:12]}", "weights": self.disk.fingerprint}


@dataclass
class Answers:
    """Measurements: rows of the grids, and the losses of every window (b t) by normalizer."""

    places: AnswerPositions
    losses: dict[str, Tensor] = field(default_factory=dict)
    needles: list[Row] = field(default_factory=list)
    heads: list[Row] = field(default_factory=list)


def checked(question: LanguageQuestion, device: torch.device) -> tuple[LanguageQuestion, LanguageModel, Corpus]:
    """Read model and text and fill in the lengths; raises ``BadValue`` where anything cannot be done later."""
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
        for context, depth in product(question.needles.contexts, question.needles.depths):
            language.check_length(context + needle.DIGITS + 3)
            needle.hidden(language, corpus, context, depth, 0)
    for attn in attns:  # a normalizer that does not fit this model is reported before anything is computed
        with language.ruled(attn, near):
            if question.needles:  # which are looked for with a cache
                needle.head_scores(language, needle.Hidden([0, 1, 2, 3], "", range(1, 2)))
    return question, language, corpus


def measure(
    question: LanguageQuestion,
    language: LanguageModel,
    corpus: Corpus,
    progress: Tick = silent,
    stopping: Callable[[], bool] = lambda: False,
) -> Answers:
    """Ask every normalizer, on the same windows and needles. Raises ``Stopped`` when asked to stop."""
    windows = corpus.windows("held-out", stream(TEST_SEED, "language"), question.windows, question.length)
    found = Answers(AnswerPositions(tuple(range(1, question.length + 1)), question.near))
    for attn in question.attns:
        with language.ruled(attn, question.near):
            found.losses[attn] = losses(language, windows, _counter(progress, f"loss with {attn}"))
            for row, heads in _needles(question, language, corpus, attn, _counter(progress, f"needles with {attn}")):
                found.needles.append(row)
                found.heads += heads
        if stopping():
            raise Stopped("stopped; nothing was written.")
    for name, order in REFERENCES.items():
        model = ngram(corpus, order)
        found.losses[name] = torch.cat(
            [-model(row[:, :-1]).gather(2, row[:, 1:].unsqueeze(2)).squeeze(2) for row in torch.split(windows, 1)]
        )
    return found


def _needles(
    question: LanguageQuestion, language: LanguageModel, corpus: Corpus, attn: str, tick: Callable[[int, int], object]
) -> Iterator[tuple[Row, list[Row]]]:
    """Yield, for every context and depth, the share of needles missed, and the needle score of each head."""
    asked = question.needles
    if asked is None:
        return
    cells = list(product(asked.contexts, asked.depths))
    for done, (context, depth) in enumerate(cells):
        where = {"attn": attn, "context": context, "depth": depth}
        missed, scores = [], []
        for sample in range(asked.samples):
            hide = needle.hidden(language, corpus, context, depth, sample)
            missed.append(float(not needle.right(needle.answer(language, hide), hide.number)))
            scores.append(needle.head_scores(language, hide))
        tick(done + 1, len(cells))
        (row,) = mean_rows({"missed": torch.tensor(missed)}, **where)
        yield row, head_rows({"needle-score": torch.tensor(scores)}, where)


def _counter(progress: Tick, what: str) -> Callable[[int, int], object]:
    return lambda done, total: progress(what, done, total, "")

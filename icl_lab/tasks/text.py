"""Natural text: the next token, and the tokens at masked positions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Task
from icl_lab.tasks.capabilities import ReadsText, check_unchanged
from icl_lab.tasks.symbols import mean_where, nats, wrong
from icl_lab.tasks.texts import compressors
from icl_lab.tasks.texts.corpus import GRAMMAR, Corpus, corpus
from icl_lab.tasks.texts.ngrams import ngram

TAIL = 4  # the tail is the last quarter of a window
PAIRED = 4096  # words of which all pairs are held in memory


@dataclass(frozen=True, kw_only=True)
class Windows(ReadsText):
    """Base of tasks that ask about windows of a text: where the text comes from, and what of it is read."""

    roles: ClassVar[int] = 1
    headline: ClassVar[str] = "nats"
    trivial: ClassVar[tuple[str, ...]] = ("unigram",)
    heat_map: ClassVar[tuple[str, str]] = ("kept", "length")
    usual: ClassVar[Mapping[str, str]] = {
        "train.curriculum.start": "128",
        "train.curriculum.stop": "128",
        "model.positions": "rotary",
        "test.prompts": "64",  # a twentieth of a nat can be resolved; where less is asked, an experiment names more
    }
    axis_labels: ClassVar[Mapping[str, Label]] = {"kept": Label("tokens read as they stand, in percent", "kept")}
    training: ClassVar[dict[str, float]] = {"kept": 100.0}
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"kept": (80, 90, 95, 100), "length": (128, 256, 512, 1024, 2048)},
        "thin": {"kept": (80, 100), "length": (128, 256, 512, 1024, 2048)},
        "tiny": {"kept": (80, 100), "length": (128, 256)},
    }

    file: str = ""
    tokenizer: str = ""
    part: Literal["train", "held-out"] = "train"
    sha: str = ""

    @property
    def corpus(self) -> Corpus:
        """The text; raises ``BadValue`` where it cannot be read, or is not the one that ``sha`` names."""
        found = corpus(self.file, self.tokenizer)
        check_unchanged(found.name, found.sha, self.sha)
        return found

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each token of the text."""
        return self.corpus.vocabulary if self.tokenizer or self.file == GRAMMAR else 256

    def pins(self) -> Mapping[str, str]:
        return {"sha": self.corpus.sha[:12]} if self.file or self.tokenizer else {}

    def reads(self) -> Mapping[str, str]:
        return {self.corpus.name: self.corpus.sha}

    def suites(self) -> dict[str, Task]:
        """Windows of the held-out parts."""
        return {"": replace(self, part="held-out")}

    def check_length(self, length: int, **shift: float) -> None:
        """A window and the token after it must fit into a part; at most all tokens are kept."""
        require(length >= 1, f"{self.name} needs a length of 1 or more", length)
        if length > self.corpus.longest_window:
            raise BadValue(self.corpus.too_short(length))
        kept = self.sigmas(shift)[0]
        require(kept <= 100, "kept is a percentage, at most 100", f"{kept:g}")

    def read(self, window: Tensor, rng: torch.Generator, kept: float) -> Tensor:
        """Window (b t) -> its tokens as they are read, ``kept`` percent of them as they stand.

        Fewer kept tokens replace more of the same places by the same tokens.
        """
        seen = self.corpus.everything_seen
        others = seen[torch.randint(len(seen), window.shape, generator=rng)].long()
        return torch.where(100 * torch.rand(window.shape, generator=rng) < kept, window, others)

    def _gram(self, order: int) -> Predictor:
        return lambda prompt: ngram(self.corpus, order)(prompt.tokens)

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Each token as it is spelled, a blank as ␣."""
        return [Mark("x", t, self._spelled(token)) for t, token in enumerate(prompt.tokens[0].tolist(), 1)]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        return self._spelled(int(outputs[0, t].argmax())), self._spelled(int(prompt.targets[0, t]))

    def _spelled(self, token: int) -> str:
        return self.corpus.spelled([token]).replace(" ", "␣")


@registry.add("text")
@dataclass(frozen=True, kw_only=True)
class Text(Windows):
    """Which token follows, at every place of a window of text?

    Formula: x_1 .. x_L -> x_2 .. x_(L+1); cross-entropy in nats
    Paper: after Nakanishi 2025, arXiv 2501.19399, Sections 3.1 and 3.2; Gao, Spratling 2025, arXiv 2501.13428, Table 4

    Tokens are the bytes of ``file``, or of the help texts that come with Python; with ``tokenizer`` those of a Hugging
    Face ``tokenizer.json``. ``file=grammar`` is a text of simple English from a grammar of this laboratory's own, whose
    tokens are its 800 words. The text is cut into 64 parts, of which every eighth is held out for tests (``part``). A
    window is drawn anywhere inside the parts of its kind; ``length`` counts its tokens, 128 in training. ``kept`` is
    the percentage of tokens that are read as they stand: the others are drawn from the text anew, and the target stays
    the true next token. ``sha`` names the text, so that runs of two versions of a file are never mixed: it is filled in
    for a file of the user.

    Metrics are the loss in ``nats``, the mean over a window, and over its last quarter (``tail``), and
    ``bits-per-byte``, which compares across tokenizers.
    """

    # Bigrams and a compressor read a window, but less of it than attention is for.
    trivial: ClassVar[tuple[str, ...]] = ("unigram", "bigram", "gzip")
    beside: ClassVar[tuple[str, ...]] = ("nats", "tail", "bits-per-byte")
    metric_labels: ClassVar[Mapping[str, str]] = {
        "nats": "loss in nats per token",
        "tail": "loss in nats per token, last quarter of the window",
        "bits-per-byte": "bits per byte",
    }
    prefixes: ClassVar[bool] = True
    suffixes: ClassVar[bool] = True

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        """256 bytes, or the words of the tokenizer."""
        return self.outputs

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw windows; the target stays the true next token."""
        (kept,) = self.sigmas(shift)
        window = self.corpus.windows(self.part, rng, prompts, length)
        tokens = self.read(window[:, :-1], rng, kept)
        return Prompt(tokens, window[:, 1:].float(), torch.ones(prompts, length, dtype=torch.bool))

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean cross-entropy in nats over all tokens."""
        return self.errors(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The cross-entropy of each token in nats, (b t)."""
        return nats(outputs, prompt)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        nats = errors.mean(1)
        tail = errors[:, -max(1, errors.shape[1] // TAIL) :].mean(1)
        return {"nats": nats, "tail": tail, "bits-per-byte": nats / (math.log(2) * self.corpus.bytes_a_token)}

    def references(self) -> dict[str, Predictor]:
        """N-gram models of the training parts, and compressors, which know nothing but the window.

        Compressors code the text as it is, whatever the model reads in its place.
        """
        grams = {"unigram": 1, "bigram": 2, "5-gram": 5}
        return {name: self._gram(order) for name, order in grams.items()} | {
            "gzip": self._compressor(compressors.deflate),
            "xz": self._compressor(compressors.lzma2),
        }

    def _compressor(self, compress: compressors.Compress) -> Predictor:
        def predict(prompt: Prompt) -> Tensor:
            window = torch.cat((prompt.tokens[:, :1], prompt.targets.long()), 1)
            return compressors.logits(window, self.vocabulary, compress, self.corpus.bytes_of)

        return predict


@registry.add("masked-text")
@dataclass(frozen=True, kw_only=True)
class MaskedText(Windows):
    """Which tokens belong at the masked positions of a window of text?

    Formula: share of the places asked; of these 1 - random - unmasked read [mask], the others another token or their
        own; cross-entropy in nats
    Paper: Devlin, Chang, Lee, Toutanova 2018, arXiv 1810.04805; without unmasking: Huebner, Sulem, Fisher, Roth 2021,
        BabyBERTa (CoNLL)

    The text is that of ``text``, with its options; bidirectional attention is usual (``model.mask=causal``: the tokens
    before a place only). Of each window ``share`` percent of the places are asked, at least one. Of the asked places
    ``random`` percent read a token drawn evenly from all words, ``unmasked`` percent their own, the others the mask:
    word 256 with bytes, ``[MASK]`` or ``<mask>`` of a tokenizer. BabyBERTa is ``unmasked=0``.

    Metrics are the loss in ``nats`` and the share of ``wrong`` answers, at asked places. The reference ``neighbours``
    multiplies the bigram probabilities of the word after its left and of the right after the word.
    """

    beside: ClassVar[tuple[str, ...]] = ("nats", "wrong")
    metric_labels: ClassVar[Mapping[str, str]] = {
        "nats": "loss in nats per masked token",
        "wrong": "error rate at masked tokens",
    }
    usual: ClassVar[Mapping[str, str]] = {**Windows.usual, "model.mask": "full"}
    bidirectional: ClassVar[bool] = True

    share: float = 15.0
    random: float = 10.0
    unmasked: float = 10.0

    def __post_init__(self) -> None:
        require(0 < self.share <= 100, "share is a percentage above 0, at most 100", f"{self.share:g}")
        for name, part in (("random", self.random), ("unmasked", self.unmasked)):
            require(part >= 0, f"{name} is a percentage, at least 0", f"{part:g}")
        both = self.random + self.unmasked
        require(both <= 100, "random and unmasked are at most 100 percent of the asked places", f"{both:g}")

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        """The words of the text, and the mask where it is none of them."""
        return max(self.outputs, self.corpus.mask + 1)

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw windows and the places that are asked, as many in each."""
        (kept,) = self.sigmas(shift)
        window = self.corpus.windows(self.part, rng, prompts, length - 1)
        tokens = self.read(window, rng, kept)
        count = max(1, round(self.share / 100 * length))
        asked = torch.rand(prompts, length, generator=rng).argsort(1).argsort(1) < count
        kind = 100 * torch.rand(prompts, length, generator=rng)
        words = torch.randint(self._words, (prompts, length), generator=rng)
        words += words >= self.corpus.mask  # the mask itself is never drawn
        unmasked = window.where(kind >= 100 - self.unmasked, self.corpus.mask)
        shown = words.where(kind < self.random, unmasked)
        return Prompt(shown.where(asked, tokens), window.float(), asked)

    @property
    def _words(self) -> int:
        return self.outputs - (self.corpus.mask < self.outputs)

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean cross-entropy in nats over the asked places."""
        return prompt.mean(nats(outputs, prompt))

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The cross-entropy of each asked token in nats, NaN elsewhere, (b t)."""
        return prompt.blank(nats(outputs, prompt))

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        return {"nats": mean_where(errors, prompt.scored)}

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """Share of the asked places at which another word is likeliest."""
        return {"wrong": mean_where(wrong(outputs, prompt), prompt.scored)}

    def references(self) -> dict[str, Predictor]:
        """The unigram model of the training parts and, of up to 4,096 words, its bigram model read from both sides."""
        return {"unigram": self._gram(1)} | ({"neighbours": self._neighbours} if self.outputs <= PAIRED else {})

    def _neighbours(self, prompt: Prompt) -> Tensor:
        """log P(w|l) + log P(r|w), normalised; a neighbour that is masked, or beyond the window, adds nothing."""
        words, tokens = self.outputs, prompt.tokens
        bigram, unigram = ngram(self.corpus, 2), ngram(self.corpus, 1)
        after = bigram(torch.arange(words).unsqueeze(1))[:, 0]  # row: the word before
        plain = unigram(torch.zeros(1, 1, dtype=torch.int64))[0]
        # One more row, and column, for unknown tokens.
        known = torch.where(tokens == self.corpus.mask, words, tokens).cpu()
        unknown = torch.full_like(known[:, :1], words)
        left, right = torch.cat((unknown, known[:, :-1]), 1), torch.cat((known[:, 1:], unknown), 1)
        before = torch.cat((after.T, torch.zeros(1, words)))
        joint = torch.cat((after, plain))[left] + before[right]
        return joint.log_softmax(2).to(tokens.device)

    def _spelled(self, token: int) -> str:
        return "[mask]" if token == self.corpus.mask else super()._spelled(token)

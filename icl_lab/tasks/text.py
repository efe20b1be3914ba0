"""Natural text: what comes next?"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from icl_lab.errors import BadValue
from icl_lab.parts.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Task
from icl_lab.tasks.capabilities import ReadsText
from icl_lab.tasks.symbols import nats
from icl_lab.texts import compressors
from icl_lab.texts.corpus import Corpus, corpus
from icl_lab.texts.ngrams import ngram

TAIL = 4  # the tail is the last quarter of a window


@registry.add("text")
@dataclass(frozen=True, kw_only=True)
class Text(ReadsText):
    """Which token follows, at every place of a window of text?

    Formula: x_1 .. x_L -> x_2 .. x_(L+1); cross-entropy in nats
    Paper: after Nakanishi 2025, arXiv 2501.19399, Sections 3.1 and 3.2; Gao, Spratling 2025, arXiv 2501.13428, Table 4

    Tokens are the bytes of ``file``, or of the help texts that come with Python; with ``tokenizer`` those of a Hugging
    Face ``tokenizer.json``. The text is cut into 64 parts, of which every eighth is held out for tests (``part``). A
    window is drawn anywhere inside the parts of its kind; ``length`` counts its tokens, 128 in training. ``kept`` is
    the percentage of tokens that are read as they stand: the others are drawn from the text anew, and what is wanted
    stays the true next token. ``sha`` names the text, so that runs of two versions of a file are never mixed: it is
    filled in for a file of one's own.

    Metrics are the loss in ``nats``, the mean over a window, and over its last quarter (``tail``), and
    ``bits-per-byte``, which compares across tokenizers.
    """

    roles: ClassVar[int] = 1
    headline: ClassVar[str] = "nats"
    beside: ClassVar[tuple[str, ...]] = ("nats", "tail", "bits-per-byte")
    trivial: ClassVar[tuple[str, ...]] = ("unigram",)
    heat_map: ClassVar[tuple[str, str]] = ("kept", "length")
    usual: ClassVar[Mapping[str, str]] = {
        "train.curriculum.start": "128",
        "train.curriculum.stop": "128",
        "model.positions": "rotary",
        "test.prompts": "64",  # a twentieth of a nat is told apart; where less is asked, an experiment names more
    }
    axis_labels: ClassVar[Mapping[str, Label]] = {"kept": Label("tokens read as they stand, in percent", "kept")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "nats": "loss in nats per token",
        "tail": "loss in nats per token, last quarter of the window",
        "bits-per-byte": "bits per byte",
    }
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
        if not found.sha.startswith(self.sha):
            raise BadValue(
                f"{found.name} has changed: its SHA-256 begins with {found.sha[:12]}, not with {self.sha}; "
                "leave sha out for a run of its own."
            )
        return found

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        """256 bytes, or the words of the tokenizer."""
        return self.corpus.vocabulary if self.tokenizer else 256

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each token."""
        return self.vocabulary

    @property
    def prefixes(self) -> bool:
        return True

    @property
    def suffixes(self) -> bool:
        return True

    @property
    def training(self) -> dict[str, float]:
        return {"kept": 100.0}

    def pins(self) -> Mapping[str, str]:
        return {"sha": self.corpus.sha[:12]} if self.file or self.tokenizer else {}

    def reads(self) -> Mapping[str, str]:
        return {self.corpus.name: self.corpus.sha}

    def suites(self) -> dict[str, Task]:
        """Windows of the held-out parts."""
        return {"": replace(self, part="held-out")}

    def check_length(self, length: int, **shift: float) -> None:
        """A window and the token after it must fit into a part; at most all tokens are kept."""
        require(length >= 1, "text needs a length of 1 or more", length)
        if length > self.corpus.longest_window:
            raise BadValue(self.corpus.too_short(length))
        kept = self.sigmas(shift)[0]
        require(kept <= 100, "kept is a percentage, at most 100", f"{kept:g}")

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draws windows; fewer kept tokens replace more of the same places by the same tokens."""
        kept = self.sigmas(shift)[0]
        text = self.corpus  # looked for on the disk each time it is asked for
        window, seen = text.windows(self.part, rng, prompts, length), text.everything_seen
        others = seen[torch.randint(len(seen), (prompts, length), generator=rng)].long()
        stays = 100 * torch.rand(prompts, length, generator=rng) < kept
        tokens = torch.where(stays, window[:, :-1], others)
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

    def _gram(self, order: int) -> Predictor:
        return lambda prompt: ngram(self.corpus, order)(prompt.tokens)

    def _compressor(self, compress: compressors.Compress) -> Predictor:
        def predict(prompt: Prompt) -> Tensor:
            window = torch.cat((prompt.tokens[:, :1], prompt.targets.long()), 1)
            return compressors.logits(window, self.vocabulary, compress, self.corpus.bytes_of)

        return predict

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Each token as it is spelled, a blank as ␣."""
        return [Mark("x", t, self._spelled(token)) for t, token in enumerate(prompt.tokens[0].tolist(), 1)]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        return self._spelled(int(outputs[0, t].argmax())), self._spelled(int(prompt.targets[0, t]))

    def _spelled(self, token: int) -> str:
        return self.corpus.spelled([token]).replace(" ", "␣")

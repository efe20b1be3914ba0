"""One binding of a key to a value among many tokens, asked for at the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt
from icl_lab.tasks.capabilities import Retrieval
from icl_lab.tasks.declared import mixed_curriculum

MOST = 100_000  # symbols, and keys: tokens are one-hot


@registry.add("needle")
@dataclass(frozen=True, kw_only=True)
class Needle(Retrieval):
    """Retrieval of the value of the key that is asked for at the end.

    Formula: ... k v_1 .. v_m ... q k -> v_1 .. v_m; one-hot tokens, cross-entropy of each answer symbol
    Paper: after Nakanishi 2025, arXiv 2501.19399, Section 3.3, and Task 3 of El Alami & El Hassani's poster

    With m = 1 and letters for values a prompt reads ``b a c K d a b Q K``, and the answer to the last token is d.
    ``answer`` is m, the symbols of a value; from the second on the model reads the right ones before, so that all are
    right exactly where greedy decoding would be. ``alphabet`` is the number of symbols, ``keys`` the number of keys.
    ``distractors=noise`` (easy) fills the context with symbols, ``bindings`` (hard) with other keys and values of their
    own. ``depth`` is where the needle stands, in percent of the context: 100 is next to the question. Training draws it
    evenly, and mixes lengths from 16 to 64; ``length`` counts tokens. With ``keys=1`` the question names no key, as
    there is but one: the layout of the poster (``alphabet=24``).

    Metrics are error rates, ``exact`` (any symbol wrong) and ``first`` (the first symbol wrong), and ``cross-entropy``
    in nats, the mean over the symbols of the answer.
    """

    headline: ClassVar[str] = "exact"
    trivial: ClassVar[tuple[str, ...]] = ("chance", "most-frequent", "most-recent")
    beside: ClassVar[tuple[str, ...]] = ("exact", "first")
    facets: ClassVar[tuple[str, ...]] = ("depth",)
    heat_map: ClassVar[tuple[str, str]] = ("length", "depth")
    roles: ClassVar[int] = 1
    worst: ClassVar[float] = 1.0
    axis_labels: ClassVar[Mapping[str, Label]] = {"depth": Label("depth of the needle in percent", "depth")}
    metric_labels: ClassVar[Mapping[str, str]] = {
        "exact": "error rate, whole answer",
        "first": "error rate, first symbol",
        "cross-entropy": "cross-entropy of the answer in nats",
    }
    training: ClassVar[dict[str, float]] = {"depth": 50.0}  # the middle: training draws every depth alike
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"depth": (10, 30, 50, 70, 90), "length": (64, 128, 256, 512, 1024)},
        "thin": {"depth": (10, 30, 50, 70, 90), "length": (64, 128, 256, 512, 1024)},
        "tiny": {"depth": (10, 50, 90), "length": (64, 128)},
    }

    answer: int = 1
    distractors: Literal["noise", "bindings"] = "noise"
    alphabet: int = 24
    keys: int = 8

    def __post_init__(self) -> None:
        require(1 <= self.answer <= 7, "answer must be 1 to 7", self.answer)
        require(2 <= self.alphabet <= MOST, f"alphabet must be at least 2 and at most {MOST:,}", self.alphabet)
        require(1 <= self.keys <= MOST, f"keys must be at least 1 and at most {MOST:,}", self.keys)
        if self.distractors == "bindings":
            require(self.keys >= 2, "other keys to be told apart from need keys of 2 or more", self.keys)

    @property
    def usual(self) -> Mapping[str, str]:  # type: ignore[override]
        """Mixed lengths from 16 on, or from the least that holds the needle."""
        return mixed_curriculum(max(16, self.least), 64, 8, positions="rotary")

    @property
    def width(self) -> int:  # type: ignore[override]
        """Symbols, keys and the mark of the question, one-hot."""
        return self.alphabet + self.keys + 1

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A logit for each symbol."""
        return self.alphabet

    @property
    def answers(self) -> slice:  # type: ignore[override]
        return slice(-self.answer, None)

    @property
    def question(self) -> int:
        """Tokens from the mark of the question to the end: the key is named where there are several."""
        return self.answer if self.keys == 1 else self.answer + 1

    @property
    def least(self) -> int:  # type: ignore[override]
        """Tokens of the shortest prompt: the needle, context of the same length, and the question."""
        return 2 * (1 + self.answer) + self.question

    def asking(self, length: int) -> int:
        """The token at which the first symbol of the answer is wanted."""
        return length - self.answer

    def check_length(self, length: int, **shift: float) -> None:
        """Check that the needle, context of the same length, and the question fit."""
        bound = f"a needle of {1 + self.answer} tokens needs prompts of {self.least} or more"
        require(length >= self.least, bound, length)

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw contexts; a shift of depth moves the needle and draws nothing anew.

        Raises ``BadValue`` where needle and question do not fit into ``length`` tokens.
        """
        self.sigmas(shift)
        m, body = self.answer, length - self.question
        self.check_length(length)
        noise = torch.randint(self.alphabet, (prompts, body), generator=rng)
        value = torch.randint(self.alphabet, (prompts, m), generator=rng)
        key = torch.randint(self.keys, (prompts, 1), generator=rng)
        others = torch.randint(max(1, self.keys - 1), (prompts, body), generator=rng)
        depth = torch.rand(prompts, 1, generator=rng) if "depth" not in shift else torch.tensor(shift["depth"] / 100)
        step = 1 if self.distractors == "noise" else 1 + m  # a needle among bindings stands where one of them would
        places = (body - 1 - m) // step
        start = (depth * places).round().long() * step + (body - 1 - m) % step
        index = torch.arange(body)
        if self.distractors == "bindings":
            heads = (index - (body - 1 - m) % step) % step == 0
            heads &= index >= (body - 1 - m) % step
            noise = torch.where(heads, self.alphabet + others + (others >= key), noise)
        away = index - start  # tokens since the needle began
        needle = torch.cat((self.alphabet + key, value), dim=1).gather(1, away.clamp(0, m).expand(prompts, -1))
        body_tokens = torch.where((away >= 0) & (away <= m), needle, noise)
        asked = torch.full((prompts, 1), self.alphabet + self.keys)
        named = (self.alphabet + key)[:, : 0 if self.keys == 1 else 1]
        tokens = torch.cat((body_tokens, asked, named, value[:, :-1]), dim=1)
        targets = torch.zeros(prompts, length)
        targets[:, self.answers] = value.float()
        scored = torch.zeros(prompts, length, dtype=torch.bool)
        scored[:, self.answers] = True
        return Prompt(F.one_hot(tokens, self.width).float(), targets, scored)

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean cross-entropy in nats over the symbols of the answer."""
        wanted = prompt.targets[:, self.answers].long()
        return F.cross_entropy(outputs[:, self.answers].flatten(0, 1), wanted.flatten())

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """1 where a symbol of the answer is wrong, (b m)."""
        chosen = outputs[:, self.answers].argmax(2)
        return (chosen != prompt.targets[:, self.answers].long()).to(outputs.dtype)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        return {"exact": errors.amax(1), "first": errors[:, 0]}

    def confidence(self, outputs: Tensor, prompt: Prompt) -> dict[str, Tensor]:
        """The cross-entropy in nats, the mean over the symbols of an answer."""
        wanted = prompt.targets[:, self.answers].long()
        nats = F.cross_entropy(outputs[:, self.answers].transpose(1, 2), wanted, reduction="none")
        return {"cross-entropy": nats.mean(1)}

    def references(self) -> dict[str, Predictor]:
        return {
            "chance": self._answers(lambda context: torch.zeros(len(context), self.alphabet)),
            "most-frequent": self._answers(lambda context: context[..., : self.alphabet].sum(1)),
            "most-recent": self._answers(self._latest),
            "exact-rule": self._exact,
        }

    def _answers(self, rule: Callable[[Tensor], Tensor]) -> Predictor:
        """Let a normalizer on what stands before the question, (b s w) -> (b a), answer every symbol alike.

        Ties are broken by a fixed symbol for each prompt, so that a normalizer without preference scores chance.
        """

        def predict(prompt: Prompt) -> Tensor:
            context = prompt.tokens[:, : -self.question]
            whim = torch.arange(len(context), device=context.device) * 7919 % self.alphabet
            scores = rule(context).to(context) + 0.5 * F.one_hot(whim, self.alphabet)
            return scores.unsqueeze(1).expand(-1, prompt.tokens.shape[1], -1)

        return predict

    def _latest(self, context: Tensor) -> Tensor:
        """The last symbol before the question, (b s w) -> (b a)."""
        return context[:, -1, : self.alphabet]

    def value_places(self, prompt: Prompt) -> Tensor:
        """Tokens after the key that is asked for, (b m)."""
        ids, m = prompt.tokens.argmax(2), self.answer
        body = ids[:, : -self.question]
        key = torch.full_like(ids[:, :1], self.alphabet) if self.keys == 1 else ids[:, -m].unsqueeze(1)
        return (body == key).float().argmax(1, keepdim=True) + 1 + torch.arange(m, device=ids.device)

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Symbols are letters and keys K1, K2 ...; tokens of neither needle nor question are quiet."""
        places = self.value_places(prompt)[0].tolist()
        t = prompt.tokens.shape[1]
        roles = {places[0] - 1: "key"} | dict.fromkeys(places, "needle")
        roles |= dict.fromkeys(range(t - self.question, t), "query")
        count: dict[str, int] = {}
        found = []
        for at, token in enumerate(prompt.tokens[0].argmax(1).tolist()):
            role = roles.get(at, "noise")
            count[role] = count.get(role, 0) + 1
            found.append(Mark(role, count[role], self.spelled(token), quiet=role == "noise"))
        return found

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        return self.spelled(int(outputs[0, t].argmax())), self.spelled(int(prompt.targets[0, t]))

    def spelled(self, token: int) -> str:
        """Return a token as it is written."""
        if token >= self.alphabet:
            return "?" if token == self.alphabet + self.keys else f"K{token - self.alphabet + 1}"
        return chr(ord("a") + token) if self.alphabet <= 26 else f"s{token + 1}"

    def _exact(self, prompt: Prompt) -> Tensor:
        """The whole answer, read where it stands."""
        ids = prompt.tokens.argmax(2)
        outputs = torch.zeros(*ids.shape, self.alphabet, device=ids.device)
        outputs[:, self.answers] = F.one_hot(ids.gather(1, self.value_places(prompt)), self.alphabet).float()
        return outputs

"""The needle among vectors: which value was paired with the queried key?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from icl_lab.base.registry import require
from icl_lab.tasks import registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Task, plain
from icl_lab.tasks.declared import mixed_curriculum

MOST = 100_000  # numbers of a vector


@registry.add("needle-vectors")
@dataclass(frozen=True, kw_only=True)
class VectorNeedle(Task):
    """Which vector was paired with the queried key?

    Formula: k_1 v_1 .. k_P v_P k_j -> v_j; squared error, the mean over the numbers of the value
    Paper: after the vector retrieval of MambaFormer (Park et al. 2024, arXiv 2402.04248)

    Keys and values are standard normal vectors of ``dim`` numbers, each a token: with dim = 1 a prompt could read
    ``0.3 -1.2 | 1.1 0.4 | -0.7 2.0 | 1.1``, and the answer is 0.4. ``length`` counts the pairs and the question, so a
    prompt has 2 length - 1 tokens. ``depth`` is where the pair that is asked for stands, in percent of the context;
    training draws it evenly. Answering 0 scores 1.
    """

    headline: ClassVar[str] = "error"
    trivial: ClassVar[tuple[str, ...]] = ("zero", "mean-value", "most-recent")
    beside: ClassVar[tuple[str, ...]] = ("error",)
    facets: ClassVar[tuple[str, ...]] = ("depth",)
    heat_map: ClassVar[tuple[str, str]] = ("length", "depth")
    answers: ClassVar[slice] = slice(-1, None)
    least: ClassVar[int] = 3
    axis_labels: ClassVar[Mapping[str, Label]] = {"depth": Label("depth of the needle in percent", "depth")}
    metric_labels: ClassVar[Mapping[str, str]] = {"error": "squared error of the answer (0 scores 1)"}
    usual: ClassVar[Mapping[str, str]] = mixed_curriculum(4, 16, 2, positions="rotary")
    training: ClassVar[dict[str, float]] = {"depth": 50.0}  # the middle: training draws every depth alike
    axes: ClassVar[Mapping[str, Axes]] = {
        "full": {"depth": (10, 30, 50, 70, 90), "length": (16, 32, 64, 128, 256)},
        "thin": {"depth": (10, 30, 50, 70, 90), "length": (16, 32, 64, 128)},
        "tiny": {"depth": (10, 50, 90), "length": (16, 32)},
    }

    dim: int = 8

    def __post_init__(self) -> None:
        require(1 <= self.dim <= MOST, f"dim must be at least 1 and at most {MOST:,}", self.dim)

    @property
    def width(self) -> int:  # type: ignore[override]
        """A key, or a value."""
        return self.dim

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """A value."""
        return self.dim

    def tokens(self, length: int) -> int:
        return 2 * length - 1

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw pairs and a question; the targets hold, at the question, which token is the value."""
        self.sigmas(shift)
        self.check_length(length)
        pairs = torch.randn(prompts, length - 1, 2, self.dim, generator=rng)
        depth = torch.rand(prompts, generator=rng)
        if "depth" in shift:
            depth = torch.full((prompts,), shift["depth"] / 100)
        asked = (depth * (length - 2)).round().long()
        question = pairs[torch.arange(prompts), asked, 0].unsqueeze(1)
        targets = torch.zeros(prompts, self.tokens(length))
        targets[:, -1] = 2 * asked.float() + 1
        scored = torch.zeros(prompts, self.tokens(length), dtype=torch.bool)
        scored[:, -1] = True
        return Prompt(torch.cat((pairs.flatten(1, 2), question), 1), targets, scored)

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean squared error over the numbers of the value."""
        return self.errors(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The squared error of each prompt's one answer, (b 1)."""
        place = prompt.targets[:, -1:].long().unsqueeze(2).expand(-1, -1, self.dim)
        return (outputs[:, -1:] - prompt.tokens.gather(1, place)).square().mean(2)

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        return {"error": errors[:, 0]}

    def marks(self, prompt: Prompt) -> list[Mark]:
        """Vectors have no text; the value that is asked for is the needle."""
        t, needle = prompt.tokens.shape[1], int(prompt.targets[0, -1])
        roles = [("key", "value")[at % 2] for at in range(t)]
        roles[needle], roles[-1] = "needle", "query"
        return [Mark(role, 1 if role == "query" else at // 2 + 1, "") for at, role in enumerate(roles)]

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        """The first numbers of both vectors."""
        truth = prompt.tokens[0, int(prompt.targets[0, -1])]
        shown = [", ".join(plain(x) for x in vector[:3].tolist()) for vector in (outputs[0, t], truth)]
        return shown[0] + ", …" * (self.dim > 3), shown[1] + ", …" * (self.dim > 3)

    def references(self) -> dict[str, Predictor]:
        return {
            "zero": self._answer(lambda keys, values, question: torch.zeros_like(question)),
            "mean-value": self._answer(lambda keys, values, question: values.mean(1)),
            "most-recent": self._answer(lambda keys, values, question: values[:, -1]),
            "nearest-key": self._answer(_nearest),
        }

    def _answer(self, rule: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Predictor:
        """Let a normalizer on keys and values (b p w) and the question (b w) give the answer (b w)."""

        def predict(prompt: Prompt) -> Tensor:
            outputs = torch.zeros_like(prompt.tokens)
            outputs[:, -1] = rule(prompt.tokens[:, :-1:2], prompt.tokens[:, 1::2], prompt.tokens[:, -1])
            return outputs

        return predict


def _nearest(keys: Tensor, values: Tensor, question: Tensor) -> Tensor:
    near = (keys - question.unsqueeze(1)).square().sum(2).argmin(1)
    return values[torch.arange(len(values), device=values.device), near]

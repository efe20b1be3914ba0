"""Linear functions of a vector, to be inferred from examples: of any kind, sparse, noisy, or a few fixed ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from torch import Tensor

from icl_lab.parts.registry import require
from icl_lab.rescale import Rescale
from icl_lab.rng import stream
from icl_lab.tasks import estimators, registry
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Summary, Task, plain
from icl_lab.tasks.capabilities import Rescalable
from icl_lab.tasks.drawing import interleave
from icl_lab.tasks.wording import number_words

LARGEST = 1000  # numbers of an input
MOST_TASKS = 2**20  # as many as in the paper
NOISIEST = 100.0
PENALTY = 0.01  # of the lasso


@registry.add("regression")
@dataclass(frozen=True, kw_only=True)
class Regression(Rescalable):
    """Regression of y = w.x, the same w for all examples of a prompt.

    Formula: x ~ N(0, sigma_x^2 I), w ~ N(0, sigma_f^2 I), y = w.x + noise N(0, 1), ``dim`` numbers in x; squared error
    Paper: Garg et al. 2022, arXiv 2208.01066 (dim=20); Raventos et al. 2023, arXiv 2306.15063 (dim=8, noise=0.5)

    A prompt reads x_1 y_1 x_2 y_2 ..; a label is a token whose first number is y and whose others are 0. With
    ``sparse`` only so many numbers of w, drawn anew for each w, are not 0. With ``noise`` labels have a normal error of
    that standard deviation; what is wanted is the label with its error. With ``tasks`` w is one of so many that were
    drawn once and never change, and metrics with ``new-`` in front are those of functions drawn anew
    (``functions=new``). Training climbs from 6 to 21 examples, from 11 dimensions on from dim / 2 + 1 to
    2 dim + 1, which for 20 dimensions are the 11 to 41 of Garg et al. Their learned places are
    ``model.positions=learned`` with ``model.roles=shared``.

    Metrics are squared errors divided by the expected square of w.x in training, ``sparse`` or else ``dim``, so that
    answering 0 scores 1 without noise: the mean over the second half of the answers (``mse-late``; after dim examples
    the function is known), over all (``mse-all``), and the last (``mse-last``). ``nmse-late`` is divided by
    sigma_x^2 sigma_f^2 too.
    """

    answers: ClassVar[slice] = slice(None, None, 2)
    log_scale: ClassVar[bool] = True
    trivial: ClassVar[tuple[str, ...]] = ("zero",)
    summary: ClassVar[Summary] = Summary("sigma_f", "beyond")
    heat_map: ClassVar[tuple[str, str]] = ("sigma_x", "sigma_f")
    numeric: ClassVar[bool] = True
    rescales: ClassVar[tuple[Rescale, ...]] = ("labels", "inputs", "both")

    dim: int = 3
    tasks: int = 0
    noise: float = 0.0
    sparse: int = 0
    functions: Literal["trained", "new"] = "trained"

    def __post_init__(self) -> None:
        require(1 <= self.dim <= LARGEST, f"dim must be at least 1 and at most {LARGEST:,}", self.dim)
        bound = f"tasks must be 0 (drawn anew for each prompt) or up to {MOST_TASKS:,}"
        require(0 <= self.tasks <= MOST_TASKS, bound, self.tasks)
        require(0 <= self.noise <= NOISIEST, f"noise must be at least 0 and at most {NOISIEST:g}", f"{self.noise:g}")
        bound = f"sparse must be 0 (no weight is 0) or a number of weights below dim={self.dim}"
        require(0 <= self.sparse < self.dim, bound, self.sparse)
        if self.functions == "new":
            require(self.tasks > 0, "functions=new is for a number of tasks: without, all functions are new", "tasks=0")

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.dim

    @property
    def prefixes(self) -> bool:
        return True

    @property
    def suffixes(self) -> bool:
        return True

    @property
    def prefix(self) -> str:
        """Prefix of the names of metrics."""
        return "new-" if self.functions == "new" else ""

    @property
    def headline(self) -> str:  # type: ignore[override]
        return f"{self.prefix}mse-late"

    @property
    def beside(self) -> tuple[str, ...]:  # type: ignore[override]
        """References; of fixed functions, those on new ones too."""
        return ("mse-late", "new-mse-late") if self.tasks and not self.prefix else (self.headline,)

    @property
    def metric_labels(self) -> Mapping[str, str]:  # type: ignore[override]
        words = {
            "mse-late": "squared error, second half of the answers (0 scores 1)",
            "mse-all": "squared error, all answers (0 scores 1)",
            "mse-last": "squared error, last answer (0 scores 1)",
            "nmse-late": "squared error relative to that of answering 0, second half of the answers",
        }
        return words | {f"new-{name}": f"{label}, new functions" for name, label in words.items()}

    @property
    def axis_labels(self) -> Mapping[str, Label]:  # type: ignore[override]
        return {
            "sigma_x": Label("σ of inputs", "σ_x"),
            "sigma_f": Label("σ of functions", "σ_f"),
        } | ({"noise": Label("σ of the noise", "σ_e")} if self.noise else {})

    @property
    def training(self) -> dict[str, float]:
        return {"sigma_x": 1.0, "sigma_f": 1.0} | ({"noise": self.noise} if self.noise else {})

    @property
    def axes(self) -> Mapping[str, Axes]:  # type: ignore[override]
        """Noise is an axis where there is some: half, as, and twice as in training."""
        grids = {"full": (1, 2, 3, 5), "thin": (1, 2, 3), "tiny": (1, 3)}
        lengths = {"length": (self.one, 2 * self.one, 4 * self.one)}
        noise = {"noise": (self.noise / 2, self.noise, 2 * self.noise)} if self.noise else {}
        return {name: {"sigma_x": grid, "sigma_f": grid, **noise, **lengths} for name, grid in grids.items()}

    @property
    def usual(self) -> Mapping[str, str]:  # type: ignore[override]
        """6 to 21 examples, or up to twice dim; roles tagged, places rotary.

        With learned places models of preset nano learn far less of the same three dimensions.
        """
        return {
            "train.curriculum.start": str(1 + self.one // 2),
            "train.curriculum.stop": str(1 + 2 * self.one),
            "train.curriculum.rise": str(max(2, self.one // 10)),
            "model.positions": "rotary",
            "model.roles": "tagged",
        }

    @property
    def one(self) -> int:
        """The shortest length of the tests, half of the longest in training: 10, or dim."""
        return max(10, self.dim)

    @property
    def size(self) -> int:
        """The expected square of w.x in training: the weights that are not 0."""
        return self.sparse or self.dim

    @property
    def known(self) -> Tensor:
        """The fixed functions, (M d)."""
        return _known(self.tasks, self.dim, self.sparse)

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draws functions, inputs and noise; the shifts stretch one set of standard normal numbers."""
        sigma_x, sigma_f, *noise = self.sigmas(shift)
        if self.tasks and not self.prefix:
            w = self.known[torch.randint(self.tasks, (prompts,), generator=rng)]
        else:
            w = _weights(rng, prompts, self.dim, self.sparse)
        x = sigma_x * torch.randn(prompts, length, self.dim, generator=rng)
        y = sigma_f * (x @ w.unsqueeze(2)).squeeze(2)
        if noise:
            y = y + noise[0] * torch.randn(prompts, length, generator=rng)
        labels = torch.zeros_like(x)
        labels[..., 0] = y
        after_x = torch.arange(2 * length) % 2 == 0
        tokens = torch.stack((x, labels), 2).flatten(1, 2)
        return Prompt(tokens, y.repeat_interleave(2, 1), after_x.expand(prompts, -1))

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean squared error over all answers, divided as the metrics are."""
        return self.errors(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        return (outputs[:, self.answers, 0] - prompt.targets[:, self.answers]).square() / self.size

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        sigma_x, sigma_f, *_ = self.sigmas(shift)
        late = errors[:, errors.shape[1] // 2 :].mean(1)
        found = {
            "mse-late": late,
            "mse-all": errors.mean(1),
            "mse-last": errors[:, -1],
            "nmse-late": late / (sigma_x * sigma_f) ** 2,
        }
        return {f"{self.prefix}{name}": values for name, values in found.items()}

    def suites(self) -> dict[str, Task]:
        """Fixed functions get a second set, of functions that training never met."""
        return {"": self, "new-": replace(self, functions="new")} if self.tasks and not self.prefix else {"": self}

    def references(self) -> dict[str, Predictor]:
        """Reference predictors of Garg et al., with ridge at the noise of training, the Bayes answer to w ~ N(0, I).

        Where functions are fixed, the Bayes answer is that of ``discrete-mmse``; where they are sparse, ``lasso`` is
        the usual one.
        """
        found = {
            "zero": _answers(lambda x, y: torch.zeros_like(y)),
            "averaging": _answers(estimators.averaging),
            "3-nn": _answers(lambda x, y: estimators.nearest(torch.cdist(x, x), y, 3)),
            "ridge": _answers(lambda x, y: estimators.ridge(x, y, self.noise**2)),
        }
        if self.sparse:
            found["lasso"] = _answers(lambda x, y: estimators.lasso(x, y, PENALTY))
        if self.tasks:
            found["discrete-mmse"] = _answers(lambda x, y: estimators.discrete(x, y, self.known, self.noise))
        return found

    def marks(self, prompt: Prompt) -> list[Mark]:
        """First three numbers of an input."""
        found = []
        for t, token in enumerate(prompt.tokens[0].tolist()):
            shown = token[:1] if t % 2 else token[:3]
            more = ", …" if len(shown) < self.dim and t % 2 == 0 else ""
            value = token[0] if t % 2 or self.dim == 1 else None
            found.append(Mark("xy"[t % 2], t // 2 + 1, ", ".join(map(plain, shown)) + more, value))
        return found

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        return number_words(outputs, prompt, t)


def _weights(rng: torch.Generator, count: int, dim: int, sparse: int) -> Tensor:
    """Standard normal weights (count d); where ``sparse`` is not 0, all but so many of each are 0."""
    w = torch.randn(count, dim, generator=rng)
    return w * (torch.rand(count, dim, generator=rng).argsort(1).argsort(1) < sparse) if sparse else w


@lru_cache(maxsize=8)
def _known(tasks: int, dim: int, sparse: int) -> Tensor:
    """The fixed functions (M d), the same in every run. Kept, and not to be written to."""
    return _weights(stream(0, "regression", "tasks"), tasks, dim, sparse)


def _answers(rule: Callable[[Tensor, Tensor], Tensor]) -> Predictor:
    """Lets a predictor of the examples, (b L d) and (b L) -> (b L), answer a prompt, in double precision on the CPU."""

    def predict(prompt: Prompt) -> Tensor:
        numbers = prompt.tokens.double().cpu()
        x = numbers[:, ::2]
        y = torch.zeros_like(x[..., 0])
        y[:, : numbers.shape[1] // 2] = numbers[:, 1::2, 0]  # a prompt may end with a question
        answers = rule(x, y)
        return interleave(answers, torch.zeros_like(answers))[:, : numbers.shape[1]].unsqueeze(2).to(prompt.tokens)

    return predict

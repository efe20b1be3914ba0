"""Functions of a vector, to be inferred from examples: linear, sparse, noisy, a few fixed ones, or of other classes."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.base.rescale import Rescale
from icl_lab.base.rng import stream
from icl_lab.tasks import estimators, functions, registry, shifts
from icl_lab.tasks.base import Axes, Label, Mark, Predictor, Prompt, Summary, Task, plain
from icl_lab.tasks.capabilities import Rescalable
from icl_lab.tasks.drawing import interleave
from icl_lab.tasks.wording import number_words

LARGEST = 1000  # numbers of an input
MOST_TASKS = 2**20  # as in the paper
NOISIEST = 100.0
PENALTY = 0.01  # of the lasso
WIDEST = 10_000  # hidden units
DEEPEST = 12  # questions of a tree
SQUARES: Mapping[str, int] = {"tree": 0, "classification": 0, "quadratic": 2}  # y grows as this power of x; else as x

Shift = Literal["none", "skewed", "quadrants", "opposite", "orthogonal", "overlap", "subspace", "noise", "all"]


@registry.add("regression")
@dataclass(frozen=True, kw_only=True)
class Regression(Rescalable):
    """Regression of y = w.x, the same w for all examples of a prompt; or of another class of functions.

    Formula: x ~ N(0, sigma_x^2 I), w ~ N(0, sigma_f^2 I), y = w.x + noise N(0, 1), ``dim`` numbers in x; squared error
    Paper: Garg et al. 2022, arXiv 2208.01066 (dim=20); Raventos et al. 2023, arXiv 2306.15063 (dim=8, noise=0.5)

    A prompt reads x_1 y_1 x_2 y_2 ..; a label is a token whose first number is y and whose others are 0. With
    ``sparse=s`` only s numbers of w, drawn anew for each w, are not 0. With ``noise`` labels have a normal error of
    that standard deviation; the target is the label with its error. With ``tasks=m`` w is one of m weights that were
    drawn once and never change, and metrics with ``new-`` in front are those of functions drawn anew
    (``functions=new``). Training climbs from 6 to 21 examples, from 11 dimensions on from dim / 2 + 1 to 2 dim + 1,
    which for 20 dimensions are the 11 to 41 of Garg et al. Their learned places are ``model.positions=learned`` with
    ``model.roles=shared``.

    ``function`` is another class of Garg et al., times sigma_f: ``quadratic`` w.x^2 / sqrt(3), the squares number by
    number; ``relu`` sqrt(2 / hidden) v.max(0, W x) with ``hidden`` units, all weights N(0, 1); ``tree`` of ``depth``
    questions whether a number of x drawn evenly is positive, leaves N(0, 1); ``classification`` the sign of w.x, where
    the model answers with a logit and is scored by its error rate. ``trees`` adds a regression tree of scikit-learn to
    the references (``greedy``), or boosted ones too (``boosted``), fitted anew for every answer: seconds, or minutes.

    ``shift`` adds test prompts of another distribution (Section 4 there); training stays as it is, unless
    ``shifted=always``, and so do analyses. Metrics have its name in front; that of a single shift is the headline. x is
    ``skewed`` (covariance of a random eigenbasis, eigenvalues as 1 / i^2, trace dim) or of a random ``subspace`` of dim
    / 2; or the last input alone is another: the signs of examples are fixed, one for each number, and the last input
    has any (``quadrants``) or the opposite ones (``opposite``), it is ``orthogonal`` to all examples, of which there
    are dim - 1 at most, or one of them (``overlap``), and one answer per prompt is scored. ``noise`` N(0, 1) is added
    to the labels, which then shrink to their size without it, in expectation: the published code shrinks each batch to
    it. ``all`` tests under every one.

    ``law`` is that of the noise: ``student`` with 3 degrees of freedom, or ``laplace``, both of the same standard
    deviation (after Cao et al. 2026, arXiv 2603.18564, of which only the abstract could be read: laws are ours).
    ``layout=separate`` has x and y in separate channels, as Raventos et al. do: tokens of dim + 1 numbers, (0, x) and
    (y, 0 .. 0). ``dims=growing`` is the curriculum of Garg et al. for inputs: in training prompts of L examples all but
    (L - 1) / 2 numbers of x are 0, which for 20 dimensions are 5 at first and 20 at last; with ``sparse`` the weights
    that are not 0 are among those in use, as in the published code (those of fixed functions stay).

    Metrics are squared errors divided by the expected square of a value in training, ``sparse`` or else ``dim`` (1 of a
    tree), so that answering 0 scores 1 without noise: the mean over the second half of the answers (``mse-late``; after
    dim examples a linear function is known), over all (``mse-all``), and the last (``mse-last``). ``nmse-late`` is
    divided by sigma_x^2 sigma_f^2 too (sigma_x^4 of quadratic functions, no sigma_x of trees). Of classes they are
    error rates: ``error-late``, ``error-all`` and ``error-last``.
    """

    heat_map: ClassVar[tuple[str, str]] = ("sigma_x", "sigma_f")
    summary: ClassVar[Summary] = Summary("sigma_f", "beyond")
    rescales: ClassVar[tuple[Rescale, ...]] = ("labels", "inputs", "both")
    equivariant: ClassVar[str] = "3-nn"

    dim: int = 3
    tasks: int = 0
    noise: float = 0.0
    sparse: int = 0
    functions: Literal["trained", "new"] = "trained"
    function: Literal["linear", "quadratic", "relu", "tree", "classification"] = "linear"
    hidden: int = 100
    depth: int = 4
    trees: Literal["none", "greedy", "boosted"] = "none"
    shift: Shift = "none"
    shifted: Literal["tests", "always"] = "tests"
    law: Literal["normal", "student", "laplace"] = "normal"
    layout: Literal["shared", "separate"] = "shared"
    dims: Literal["all", "growing"] = "all"

    def __post_init__(self) -> None:
        require(1 <= self.dim <= LARGEST, f"dim must be at least 1 and at most {LARGEST:,}", self.dim)
        bound = f"tasks must be 0 (drawn anew for each prompt) or up to {MOST_TASKS:,}"
        require(0 <= self.tasks <= MOST_TASKS, bound, self.tasks)
        require(0 <= self.noise <= NOISIEST, f"noise must be at least 0 and at most {NOISIEST:g}", f"{self.noise:g}")
        bound = f"sparse must be 0 (no weight is 0) or a number of weights below dim={self.dim}"
        require(0 <= self.sparse < self.dim, bound, self.sparse)
        if self.functions == "new":
            require(self.tasks > 0, "functions=new is for a number of tasks: without, all functions are new", "tasks=0")
        require(1 <= self.hidden <= WIDEST, f"hidden must be at least 1 and at most {WIDEST:,}", self.hidden)
        require(1 <= self.depth <= DEEPEST, f"depth must be at least 1 and at most {DEEPEST}", self.depth)
        for name, value, usual, of in (("hidden", self.hidden, 100, "relu"), ("depth", self.depth, 4, "tree")):
            require(value == usual or self.function == of, f"{name} is for function={of}", f"function={self.function}")
        others = "function=linear alone has sparse weights and a number of tasks"
        require(self.function == "linear" or not (self.sparse or self.tasks), others, f"function={self.function}")
        require(not (self.rates and self.noise), "classes have no noise", f"noise={self.noise:g}")
        require(self.noise > 0 or self.law == "normal", f"law={self.law} is one of noise", "noise=0")
        if self.shifted == "always":
            require(self.shift not in ("none", "all"), "shifted=always is for one shift", f"shift={self.shift}")
        least = 2 if self.shift in ("subspace", "orthogonal") else 1
        require(self.dim >= least, f"shift={self.shift} needs dim of 2 or more", self.dim)
        require(not (self.rates and self.shift == "noise"), "classes have no noise", "shift=noise")
        if self.trees != "none":
            require(self.function == "tree", "trees are references of function=tree", f"function={self.function}")
            if importlib.util.find_spec("sklearn") is None:
                raise BadValue(f"trees={self.trees} are fitted by scikit-learn: pip install 'icl_lab[sklearn]'.")

    @property
    def of_tests(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("trees",) if self.under else ("trees", "shift", "shifted")

    @property
    def rates(self) -> bool:
        """True if answers are classes, and errors rates."""
        return self.function == "classification"

    @property
    def worst(self) -> float:  # type: ignore[override]
        return 1.0 if self.rates else torch.inf

    @property
    def log_scale(self) -> bool:  # type: ignore[override]
        return not self.rates

    @property
    def numeric(self) -> bool:  # type: ignore[override]
        return not self.rates

    @property
    def under(self) -> str:
        """The shift of what ``sample`` draws; empty where there is none."""
        return self.shift if self.shifted == "always" else ""

    @property
    def asks_once(self) -> bool:
        """True if the last input alone is asked for."""
        return self.under in shifts.QUESTIONS

    @property
    def answers(self) -> slice:  # type: ignore[override]
        return slice(-2, -1) if self.asks_once else slice(None, None, 2)

    @property
    def trivial(self) -> tuple[str, ...]:  # type: ignore[override]
        """Answering 0, but for inputs orthogonal to all examples, on which examples carry no information."""
        return () if self.shift == "orthogonal" else ("zero",)

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.dim + self.padding

    @property
    def padding(self) -> int:  # type: ignore[override]
        return int(self.layout == "separate")

    @property
    def prefixes(self) -> bool:  # type: ignore[override]
        return not self.asks_once

    suffixes = prefixes

    @property
    def prefix(self) -> str:
        """Prefix of the names of metrics."""
        return ("new-" if self.functions == "new" else "") + (f"{self.under}-" if self.under else "")

    @property
    def own(self) -> str:
        """The metric that is shown first of what ``sample`` draws."""
        return f"{self.prefix}{'error' if self.rates else 'mse'}-{'last' if self.asks_once else 'late'}"

    @property
    def headline(self) -> str:  # type: ignore[override]
        """Metric of the one shift that there is, else of prompts as in training."""
        shifted = self._shifted()
        return (shifted[0] if len(shifted) == 1 else self).own

    @property
    def beside(self) -> tuple[str, ...]:  # type: ignore[override]
        """References on every test set: new functions where some are fixed, and every shift."""
        return tuple(suite.own for suite in self._suites())

    @property
    def metric_labels(self) -> Mapping[str, str]:  # type: ignore[override]
        words = {
            "mse-late": "squared error, second half of the answers (0 scores 1)",
            "mse-all": "squared error, all answers (0 scores 1)",
            "mse-last": "squared error, last answer (0 scores 1)",
            "nmse-late": "squared error relative to that of answering 0, second half of the answers",
            "error-late": "error rate, second half of the answers",
            "error-all": "error rate, all answers",
            "error-last": "error rate, last answer",
        }
        sets = {"new": "new functions"} | {shift: f"shift {shift}" for shift in get_args(Shift)}
        return words | {f"{key}-{name}": f"{label}, {of}" for key, of in sets.items() for name, label in words.items()}

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
        """The expected square of a value in training, of w.x the weights that are not 0."""
        return 1 if self.function in ("tree", "classification") else self.sparse or self.dim

    def spread(self, sigma_x: float, sigma_f: float) -> float:
        """Return the root mean square of values without noise, in units of that of training."""
        return 1.0 if self.rates else sigma_f * sigma_x ** SQUARES.get(self.function, 1)

    def tokens(self, length: int) -> int:
        """No more than dim - 1 examples have an input that is orthogonal to all of them."""
        return self.roles * (min(length, self.dim) if self.under == "orthogonal" else length)

    @property
    def known(self) -> Tensor:
        """The fixed functions, (M d)."""
        return _known(self.tasks, self.dim, self.sparse)

    def sample(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Draw functions, inputs and noise; the axes stretch one set of standard normal numbers."""
        return self._draw(rng, prompts, length, self.dim, shift)

    def practice(self, rng: torch.Generator, prompts: int, length: int, **shift: float) -> Prompt:
        """Prompts of ``sample``, but for ``dims=growing`` with all but the first numbers of an input at 0."""
        used = max(1, (length - 1) // 2) if self.dims == "growing" else self.dim
        return self._draw(rng, prompts, length, used, shift)

    def _draw(self, rng: torch.Generator, prompts: int, length: int, used: int, shift: Mapping[str, float]) -> Prompt:
        sigma_x, sigma_f, *noise = self.sigmas(shift)
        length = self.tokens(length) // self.roles
        function = self._function(rng, prompts, used)
        x = torch.randn(prompts, length, self.dim, generator=rng)
        if self.under:
            x = shifts.inputs(rng, x, self.under)
        x[..., used:] = 0
        x = sigma_x * x
        y = function(x) if self.rates else sigma_f * function(x)
        if noise:
            y = y + noise[0] * _noise(rng, (prompts, length), self.law)
        if self.under == "noise":
            square = self.size * self.spread(sigma_x, sigma_f) ** 2 + sum(noise) ** 2
            y = (y + torch.randn(prompts, length, generator=rng)) * (square / (square + 1)) ** 0.5
        labels = torch.zeros(prompts, length, self.width)
        labels[..., 0] = y
        tokens = torch.stack((F.pad(x, (self.width - self.dim, 0)), labels), 2).flatten(1, 2)
        scored = torch.zeros(prompts, 2 * length, dtype=torch.bool)
        scored[:, self.answers] = True
        return Prompt(tokens, y.repeat_interleave(2, 1), scored)

    def _function(self, rng: torch.Generator, prompts: int, used: int) -> Callable[[Tensor], Tensor]:
        """A function for each prompt, inputs (b L d) of which the first ``used`` numbers count -> values (b L)."""
        if self.function == "relu":
            inner = torch.randn(prompts, self.dim, self.hidden, generator=rng)
            outer = torch.randn(prompts, self.hidden, generator=rng)
            return lambda x: functions.network(x, inner, outer)
        if self.function == "tree":
            nodes = (prompts, 2 ** (self.depth + 1) - 1)
            numbers, leaves = torch.randint(self.dim, nodes, generator=rng), torch.randn(nodes, generator=rng)
            return lambda x: functions.tree(x, numbers, leaves)
        if self.tasks and self.functions == "trained":
            w = self.known[torch.randint(self.tasks, (prompts,), generator=rng)]
        else:
            w = _weights(rng, prompts, self.dim, self.sparse, used)
        values = {"linear": functions.linear, "quadratic": functions.quadratic, "classification": functions.classes}
        return lambda x: values[self.function](x, w)

    def loss(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        """The mean squared error over all answers, divided as the metrics are; of classes the cross-entropy in nats."""
        if self.rates:
            wanted = (prompt.targets[:, self.answers] > 0).to(outputs.dtype)
            return F.binary_cross_entropy_with_logits(outputs[:, self.answers, 0], wanted)
        return self.errors(outputs, prompt).mean()

    def errors(self, outputs: Tensor, prompt: Prompt) -> Tensor:
        answers, wanted = outputs[:, self.answers, 0], prompt.targets[:, self.answers]
        if self.rates:
            return ((answers > 0) != (wanted > 0)).to(outputs.dtype)
        return (answers - wanted).square() / self.size

    def views(self, errors: Tensor, prompt: Prompt, **shift: float) -> dict[str, Tensor]:
        sigma_x, sigma_f, *_ = self.sigmas(shift)
        if self.asks_once:
            return {self.own: errors[:, 0]}
        late = errors[:, errors.shape[1] // 2 :].mean(1)
        kind = "error" if self.rates else "mse"
        found = {f"{kind}-late": late, f"{kind}-all": errors.mean(1), f"{kind}-last": errors[:, -1]}
        if not self.rates:
            found["nmse-late"] = late / self.spread(sigma_x, sigma_f) ** 2
        return {f"{self.prefix}{name}": values for name, values in found.items()}

    def suites(self) -> dict[str, Task]:
        """Fixed functions get a second set, of functions not seen in training, and every shift a further one."""
        found: dict[str, Task] = {suite.prefix: suite for suite in self._suites()[1:]}
        return {"": self, **found}

    @property
    def balanced(self) -> Task:
        """The last test set without a shift: what analyses look at, who score every answer."""
        return self._suites()[-1 - len(self._shifted())]

    def _suites(self) -> "list[Regression]":
        new = [replace(self, functions="new")] if self.tasks and not self.prefix else []
        return [self, *new, *self._shifted()]

    def _shifted(self) -> "list[Regression]":
        """The tasks that draw test prompts under a shift; of every one those that the task can have."""
        if self.under or self.shift == "none":
            return []
        hindered = {"noise"} if self.rates else {"subspace", "orthogonal"} if self.dim == 1 else set()
        names = [name for name in get_args(Shift)[1:-1] if name not in hindered]
        return [replace(self, shift=name, shifted="always") for name in names if self.shift in (name, "all")]

    def references(self) -> dict[str, Predictor]:
        """Reference predictors of Garg et al., with ridge at the noise of training, the Bayes answer to w ~ N(0, I).

        Where functions are fixed, the Bayes answer is that of ``discrete-mmse``, whatever the law of noise; where they
        are quadratic and noise is normal, that of ``ridge-squares``, ridge on the squares of inputs; where they are
        sparse, ``lasso`` is the usual one, and where noise has heavy tails, ``heavy-tailed``, the likeliest weights.
        All take noise for that of training: none is Bayes under ``shift=noise``.
        """
        found: dict[str, Rule] = {
            "zero": lambda x, y: torch.zeros_like(y),
            "averaging": estimators.averaging,
            "3-nn": lambda x, y: estimators.nearest(torch.cdist(x, x), y, 3),
            "ridge": lambda x, y: estimators.ridge(x, y, self.noise**2),
        }
        if self.sparse:
            found["lasso"] = lambda x, y: estimators.lasso(x, y, PENALTY)
        if self.tasks:
            found["discrete-mmse"] = lambda x, y: estimators.discrete(x, y, self.known, self.noise, self.law)
        if self.law != "normal":
            found["heavy-tailed"] = lambda x, y: estimators.heavy_tailed(x, y, self.law, self.noise)
        if self.function == "quadratic":
            found["ridge-squares"] = lambda x, y: estimators.ridge(x.square() / 3**0.5, y, self.noise**2)
        if self.trees != "none":
            found["greedy-tree"] = lambda x, y: estimators.trees(x, y, boosted=False)
        if self.trees == "boosted":
            found["boosted-trees"] = lambda x, y: estimators.trees(x, y, boosted=True)
        return {name: self._answers(rule) for name, rule in found.items()}

    def _answers(self, rule: "Rule") -> Predictor:
        """Let a predictor of the examples answer a prompt, in double precision on the CPU."""

        def predict(prompt: Prompt) -> Tensor:
            numbers = prompt.tokens.double().cpu()
            x = numbers[:, ::2, self.width - self.dim :]
            y = torch.zeros_like(x[..., 0])
            y[:, : numbers.shape[1] // 2] = numbers[:, 1::2, 0]  # a prompt may end with a question
            answers = rule(x, y)
            return interleave(answers, torch.zeros_like(answers))[:, : numbers.shape[1]].unsqueeze(2).to(prompt.tokens)

        return predict

    def marks(self, prompt: Prompt) -> list[Mark]:
        """First three numbers of an input."""
        found, first = [], self.width - self.dim
        for t, token in enumerate(prompt.tokens[0].tolist()):
            shown = token[:1] if t % 2 else token[first : first + 3]
            more = ", …" if len(shown) < self.dim and t % 2 == 0 else ""
            value = shown[0] if t % 2 or self.dim == 1 else None
            found.append(Mark("xy"[t % 2], t // 2 + 1, ", ".join(map(plain, shown)) + more, value))
        return found

    def words(self, outputs: Tensor, prompt: Prompt, t: int) -> tuple[str, str]:
        return number_words(outputs, prompt, t)


Rule = Callable[[Tensor, Tensor], Tensor]  # inputs (b L d), labels (b L) -> answers (b L)


def _weights(rng: torch.Generator, count: int, dim: int, sparse: int, used: int) -> Tensor:
    """Standard normal weights (count d); where ``sparse`` is not 0, all but ``sparse`` of the first ``used`` are 0."""
    w = torch.randn(count, dim, generator=rng)
    if not sparse:
        return w
    order = torch.rand(count, dim, generator=rng)
    order[:, used:] = torch.inf
    return w * (order.argsort(1).argsort(1) < sparse) * order.isfinite()


@lru_cache(maxsize=8)
def _known(tasks: int, dim: int, sparse: int) -> Tensor:
    """The fixed functions (M d), the same in every run. Kept, and not to be written to."""
    return _weights(stream(0, "regression", "tasks"), tasks, dim, sparse, dim)


def _noise(rng: torch.Generator, shape: tuple[int, int], law: str) -> Tensor:
    """Noise of variance 1: normal numbers, each times a random size where tails are heavy."""
    z = torch.randn(shape, generator=rng)
    if law == "student":
        z /= torch.randn(*shape, estimators.FREEDOM, generator=rng).norm(dim=2) / (estimators.FREEDOM - 2) ** 0.5
    elif law == "laplace":
        z *= torch.empty(shape).exponential_(generator=rng).sqrt()
    return z

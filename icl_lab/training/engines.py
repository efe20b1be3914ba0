"""How one step of training is executed: as it is written, with compiled arithmetic, or recorded whole and replayed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Literal, cast

import torch
from torch import Tensor
from torch.optim import Adam

from icl_lab.errors import BadValue
from icl_lab.model.gpt2 import GPT2
from icl_lab.normalizers.base import causal, veil
from icl_lab.rng import stream
from icl_lab.tasks.base import Prompt, Task

Name = Literal["eager", "compiled", "graph"]
Precision = Literal["float32", "bf16"]
Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Job = Callable[[], Tensor]
Recorder = Callable[[Job], tuple[Callable[[], object], Tensor]]

BACKEND = "inductor"  # of torch.compile
WARM = 3  # runs of a job before it is recorded: libraries choose their kernels and take their work space


@dataclass(frozen=True)
class Work:
    """What is to be trained, and the numbers of the recipe that a step needs, the rate apart.

    ``batch`` and ``longest`` are the prompts of a step and the examples of the longest of them.
    """

    model: GPT2
    task: Task
    adam: Adam
    clip: float
    precision: Precision
    batch: int
    longest: int


class Eager:
    """A step as it is written: the loss, its gradients, their bound, Adam."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.loss = loss_of(work.model, work.task, work.precision)

    def step(self, prompt: Prompt, where: Tensor, rate: float) -> Tensor:
        """Does one step on prompts whose tokens stand at ``where`` (t); returns the loss.

        The device is not synchronised.
        """
        for group in self.work.adam.param_groups:
            group["lr"] = rate
        return self.whole(prompt, causal(len(where), where.device), where)

    def whole(self, prompt: Prompt, visible: Tensor, where: Tensor) -> Tensor:
        """The step, of tensors alone."""
        adam = self.work.adam
        loss = self.loss(prompt.tokens, prompt.targets, prompt.scored, visible, where)
        adam.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        if self.work.clip:
            torch.nn.utils.clip_grad_norm_(adam.param_groups[0]["params"], self.work.clip)
        adam.step()
        return loss.detach()


class Compiled(Eager):
    """The loss and its gradients as code made by ``torch.compile``, once for each length of the prompts.

    Code for a length knows nothing of the lengths before it, so a training that is taken up again runs the same code
    and ends with the same bits. Code for all lengths at once is made in the time of one, but what it is hangs on the
    length it was made at.

    The longest prompts are compiled here, before the first step: raises ``BadValue`` where the rule, the position code
    or the task cannot be, or nothing can.
    """

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.plain, self.loss = self.loss, self._compiled
        self.made: dict[int, Loss] = {}
        device = next(work.model.parameters()).device
        prompt = work.task.sample(stream(0, "compile"), work.batch, work.longest).to(device)
        where = work.model.places(prompt.tokens.shape[1], stream(0, "compile"), device)
        try:
            loss = self.loss(prompt.tokens, prompt.targets, prompt.scored, causal(len(where), device), where)
            torch.autograd.grad(loss, work.adam.param_groups[0]["params"], allow_unused=True)
        except RuntimeError as error:
            raise BadValue(f"train.engine=compiled is not possible here: {told(work.model, error)}") from error

    def _compiled(self, tokens: Tensor, targets: Tensor, scored: Tensor, visible: Tensor, where: Tensor) -> Tensor:
        length = len(where)
        if length not in self.made:
            code = own_code(self.plain)
            self.made[length] = torch.compile(code, backend=BACKEND, fullgraph=True, dynamic=False)
        return self.made[length](tokens, targets, scored, visible, where)


@dataclass(frozen=True)
class Recording:
    """A step on prompts of one length: where it reads, how it is repeated, where its loss comes to lie.

    ``held`` is memory that it reads and that caches would give away.
    """

    inputs: tuple[Tensor, ...]
    replay: Callable[[], object]
    loss: Tensor
    held: tuple[Tensor, ...]


class Graph(Eager):
    """The whole step, recorded once for each length as a CUDA graph, and replayed: one launch in place of hundreds.

    A graph reads and writes fixed places: prompts are copied to where it reads them, the rate is a tensor, and the
    parameters and the moments of Adam stay where they are. ``record`` does a job a few times, records it, and returns
    what repeats it and the job's result, which every repetition writes anew.

    Raises ``BadValue`` at the first step where the rule cannot be recorded: one that looks at its numbers on the way.
    """

    def __init__(self, work: Work, record: Recorder) -> None:
        super().__init__(work)
        self.record = record
        self.rate = torch.zeros((), device=next(work.model.parameters()).device)
        for group in work.adam.param_groups:
            group["lr"], group["capturable"] = self.rate, True
        self.recordings: dict[int, Recording] = {}

    def step(self, prompt: Prompt, where: Tensor, rate: float) -> Tensor:
        """As the eager step, by the recording of this length, which is made where it is met first."""
        self.rate.fill_(rate)
        inputs = (prompt.tokens, prompt.targets, prompt.scored, where)
        if len(where) not in self.recordings:
            self.recordings[len(where)] = self._recording(*(part.clone() for part in inputs))
        recording = self.recordings[len(where)]
        for fixed, new in zip(recording.inputs, inputs, strict=True):
            fixed.copy_(new)
        recording.replay()
        return recording.loss.clone()

    def _recording(self, *inputs: Tensor) -> Recording:
        *parts, where = inputs
        visible = causal(len(where), where.device)
        with unmoved(self.work.adam):
            try:
                replay, loss = self.record(partial(self.whole, Prompt(*parts), visible, where))
            except RuntimeError as error:
                raise BadValue(f"train.engine=graph is not possible: {told(self.work.model, error)}") from error
        return Recording(inputs, replay, loss, (visible, veil(visible, torch.float32)))


def check(name: Name, device: torch.device) -> None:
    """Raises ``BadValue`` where the device is not one for the engine."""
    if name == "graph" and device.type != "cuda":
        raise BadValue(f"train.engine=graph records CUDA graphs, and the device is {device}; take eager or compiled.")


def build(name: Name, work: Work) -> Eager:
    """Returns the engine of that name; raises ``BadValue`` where it cannot do this work."""
    check(name, next(work.model.parameters()).device)
    if name == "graph":
        return Graph(work, cuda_recorder())
    return Compiled(work) if name == "compiled" else Eager(work)


def loss_of(model: GPT2, task: Task, precision: Precision) -> Loss:
    """The loss as a function of tensors alone: tokens (b t w), targets (b t), scored (b t), visible (t t), where (t).

    With ``bf16`` the products inside the blocks are taken in half precision; outputs and loss stay in single.
    """

    def loss(tokens: Tensor, targets: Tensor, scored: Tensor, visible: Tensor, where: Tensor) -> Tensor:
        # A weight is used once in a step: a cache of narrowed ones saves nothing, and a recording must not read one.
        half = precision == "bf16"
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            outputs = model.think(tokens, visible, where, answers=task.answers)
        return task.loss(outputs, Prompt(tokens, targets, scored))

    return loss


def own_code(loss: Loss) -> Loss:
    """Returns the function with code of its own: torch counts compilations by code, and gives up after eight."""
    made = cast(FunctionType, loss)
    copy = FunctionType(made.__code__.replace(), made.__globals__, made.__name__, made.__defaults__, made.__closure__)
    return cast(Loss, copy)


@contextmanager
def unmoved(adam: Adam) -> Iterator[None]:
    """Whatever steps are done inside: afterwards parameters and moments are as before, in the memory they have now."""
    parameters = adam.param_groups[0]["params"]
    before = [(p.detach().clone(), {name: x.clone() for name, x in adam.state[p].items()}) for p in parameters]
    yield
    with torch.no_grad():
        for p, (value, moments) in zip(parameters, before, strict=True):
            p.copy_(value)
            for name, now in adam.state[p].items():
                now.copy_(moments.get(name, torch.zeros_like(now)))


def cuda_recorder() -> Recorder:
    """Records jobs as CUDA graphs, which work in one memory, one after another."""
    pool = torch.cuda.graph_pool_handle()

    def record(job: Job) -> tuple[Callable[[], object], Tensor]:
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), warnings.catch_warnings():
            # Of Adam, that here it runs without a recording; it is about to.
            warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
            for _ in range(WARM):
                job()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            loss = job()
        return graph.replay, loss

    return record


def told(model: GPT2, error: RuntimeError) -> str:
    """What of a complaint of torch fits into one line."""
    cause = getattr(error, "inner_exception", error)  # a backend's own complaint is wrapped in that of the compiler
    line = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    return f"{model.attn}, positions {model.spec.positions}: {line.rstrip('.')}. train.engine=eager takes every rule."

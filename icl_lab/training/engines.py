"""Engines of the training step: eager, or recorded as a CUDA graph and replayed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from icl_lab.base.errors import BadValue
from icl_lab.model.gpt2 import GPT2
from icl_lab.normalizers.base import additive_mask
from icl_lab.tasks.base import Prompt, Task
from icl_lab.training.optimizers import Optimizer
from icl_lab.training.recipe import Engine, Precision

Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Job = Callable[[], Tensor]
Recorder = Callable[[Job], tuple[Callable[[], object], Tensor]]

WARM = 3  # runs of a job before it is recorded: libraries choose their kernels and take their work space


@dataclass(frozen=True)
class Work:
    """Model, task and optimizer of a training, with the fields of the recipe that a step needs, the rate apart.

    ``batch`` and ``longest`` are the prompts of a step and the examples of the longest of them.
    """

    model: GPT2
    task: Task
    optim: Optimizer
    clip: float
    precision: Precision
    batch: int
    longest: int


@contextmanager
def subnormals_flushed() -> Iterator[None]:
    """Take numbers below 1.2e-38 as 0 on a CPU for a while, in this thread and in those that it starts meanwhile.

    Sharp attention makes such numbers, and processors do arithmetic with them up to a hundred times as slowly.
    """
    before = torch.tensor(1e-40).mul(1).item() == 0  # torch sets the mode but does not tell it
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


class Eager:
    """A step as it is written: the loss, its gradients, their bound, the optimizer."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.loss = loss_of(work.model, work.task, work.precision)

    def step(self, prompt: Prompt, where: Tensor, rate: float) -> Tensor:
        """Take one step on prompts whose tokens have positions ``where`` (t); return the loss.

        The device is not synchronised.
        """
        self.work.optim.set_rate(rate)
        loss = self.whole(prompt, self.work.model.visible(len(where), where.device), where)
        self.work.optim.update_ema()
        return loss

    def whole(self, prompt: Prompt, visible: Tensor, where: Tensor) -> Tensor:
        """The step, of tensors alone."""
        optim = self.work.optim
        loss = self.loss(prompt.tokens, prompt.targets, prompt.scored, visible, where)
        optim.zero_grad()
        torch.autograd.backward(loss)
        if self.work.clip:
            torch.nn.utils.clip_grad_norm_(optim.params, self.work.clip)
        optim.step()
        return loss.detach()


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
    """The whole step, recorded as a CUDA graph once for each number and length of prompts, and replayed.

    One launch replaces hundreds.

    A graph reads and writes fixed places: prompts are copied to where it reads them, the rate is a tensor, and the
    parameters and the moments of the optimizers stay where they are. ``record`` does a job a few times, records it,
    and returns what repeats it and the job's result, which every repetition writes anew.

    Raises ``BadValue`` at the first step where the normalizer cannot be recorded: one that looks at its numbers on the
    way.
    """

    def __init__(self, work: Work, record: Recorder) -> None:
        super().__init__(work)
        self.record = record
        self.rate = torch.zeros((), device=next(work.model.parameters()).device)
        work.optim.set_rate(self.rate)
        for group in work.optim.adam.param_groups:
            group["capturable"] = True
        self.recordings: dict[tuple[int, int], Recording] = {}

    def step(self, prompt: Prompt, where: Tensor, rate: float) -> Tensor:
        """Eager step by replaying the graph of this length, which is recorded at its first use."""
        self.rate.fill_(rate)
        inputs = (prompt.tokens, prompt.targets, prompt.scored, where)
        shape = (len(prompt.tokens), len(where))
        if shape not in self.recordings:
            self.recordings[shape] = self._recording(*(part.clone() for part in inputs))
        recording = self.recordings[shape]
        for fixed, new in zip(recording.inputs, inputs, strict=True):
            fixed.copy_(new)
        recording.replay()
        self.work.optim.update_ema()
        return recording.loss.clone()

    def _recording(self, *inputs: Tensor) -> Recording:
        *parts, where = inputs
        visible = self.work.model.visible(len(where), where.device)
        with unmoved(self.work.optim):
            try:
                replay, loss = self.record(partial(self.whole, Prompt(*parts), visible, where))
            except RuntimeError as error:
                raise BadValue(f"train.engine=graph is not possible: {unsupported(self.work.model, error)}") from error
        return Recording(inputs, replay, loss, (visible, additive_mask(visible, torch.float32)))


def check(name: Engine, device: torch.device) -> None:
    """Raise ``BadValue`` where the device is not one for the engine."""
    if name == "compiled":
        raise BadValue("train.engine=compiled is read in older runs and trains no more; take eager, or graph on CUDA.")
    if name == "graph" and device.type != "cuda":
        raise BadValue(f"train.engine=graph records CUDA graphs, and the device is {device}; take eager.")


def build(name: Engine, work: Work) -> Eager:
    """Return the engine of that name; raises ``BadValue`` where it cannot do this work."""
    check(name, next(work.model.parameters()).device)
    if name == "graph":
        return Graph(work, cuda_recorder())
    return Eager(work)


def loss_of(model: GPT2, task: Task, precision: Precision) -> Loss:
    """The loss as a function of tensors alone: tokens (b t w), targets (b t), scored (b t), visible (t t), where (t).

    With ``bf16`` the products inside the blocks are taken in half precision (on a CPU without those of attention);
    outputs and loss stay in single.
    """

    def loss(tokens: Tensor, targets: Tensor, scored: Tensor, visible: Tensor, where: Tensor) -> Tensor:
        # A weight is used once in a step: a cache of narrowed ones saves nothing, and a recording must not read one.
        half = precision == "bf16"
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            outputs = model.forward_tensors(tokens, visible, where, answers=task.answers)
        return task.loss(outputs, Prompt(tokens, targets, scored))

    return loss


@contextmanager
def unmoved(optim: Optimizer) -> Iterator[None]:
    """Whatever steps are done inside: afterwards parameters and moments are as before, in the memory they have now."""
    parameters = [(p, p.detach().clone()) for p in optim.params]
    states = [
        (of.state, p, {name: x.clone() for name, x in of.state.get(p, {}).items()})
        for of in (optim.adam, optim.muon)
        if of is not None
        for group in of.param_groups
        for p in group["params"]
    ]
    yield
    with torch.no_grad():
        for p, value in parameters:
            p.copy_(value)
        for state, p, before in states:
            for name, now in state.get(p, {}).items():
                now.copy_(before.get(name, torch.zeros_like(now)))


def cuda_recorder() -> Recorder:
    """Record jobs as CUDA graphs, which work in one memory, one after another."""
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


def unsupported(model: GPT2, error: RuntimeError) -> str:
    """One line of an error message of torch."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    why = line.rstrip(".")
    return f"{model.attn}, positions {model.spec.positions}: {why}. train.engine=eager takes every normalizer."

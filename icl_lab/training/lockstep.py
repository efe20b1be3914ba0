"""Several seeds trained in lock-step as one ensemble (torch.func: model ensembling).

Seeds that resume at different steps are aligned first; one whose loss is not finite is dropped and the others go on.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import torch

from icl_lab.errors import Diverged, Stopped
from icl_lab.model.gpt2 import GPT2
from icl_lab.tasks.base import Task
from icl_lab.training import loop as training
from icl_lab.training.ensemble import Stack, advance, optimizer
from icl_lab.training.loop import ROW, Progress
from icl_lab.training.optimizers import alone, together
from icl_lab.training.recipe import TrainSpec


@dataclass
class StackedSeed:
    """One seed's training: its model, its progress, what publishes a checkpoint, and why it failed if it did."""

    seed: int
    model: GPT2
    progress: Progress
    keep: Callable[[Progress], object]
    failed: str = ""


def train(
    members: Sequence[StackedSeed],
    task: Task,
    spec: TrainSpec,
    *,
    stopping: Callable[[], bool] = lambda: False,
    tick: Callable[[int, float], object] = lambda step, loss: None,
) -> None:
    """Trains the members in place to the last step, each as ``train.train`` would alone, up to rounding.

    Members that resume at an earlier step are trained alone until they reach the next member's step, and from there
    together with it, so that the number of steps is that of the member with most steps left. A member whose loss is not
    finite is dropped, with the reason in ``failed``; the others go on.

    Raises ``Stopped`` when ``stopping()`` turns true, after a checkpoint of every member.
    """
    for begin, end in pairwise(sorted({member.progress.step for member in members} | {spec.steps})):
        Ensemble([member for member in members if member.progress.step == begin], task, spec).train(end, stopping, tick)


class Ensemble:
    """Members at one step, trained together; their models and optimizers are updated when they are unstacked."""

    def __init__(self, members: Sequence[StackedSeed], task: Task, spec: TrainSpec) -> None:
        self.members, self.task, self.spec = list(members), task, spec
        self._stack()

    def train(self, end: int, stopping: Callable[[], bool], tick: Callable[[int, float], object]) -> None:
        """Trains up to step ``end``; raises ``Stopped``."""
        kept = time.monotonic()
        for step in range(self.members[0].progress.step, end):
            if self.spec.switch_to and step == self.spec.switch_step:
                self._swap_rule()
            seeds = [member.seed for member in self.members]
            self.losses.append(advance(self.stack, self.optim, self.spec, seeds, step))
            done, stop = step + 1, stopping()
            over = done % ROW == 0 or done == self.spec.steps
            keep = done < self.spec.steps and (stop or time.monotonic() - kept > training.CHECKPOINT_SECONDS)
            if over or keep or done in (end, self.spec.switch_step):
                self._read(done, over)
                if not self.members:
                    return
            if over:
                tick(done, fmean(member.progress.history[-1]["loss"] for member in self.members))
            if done == self.spec.steps:
                self.optim.load_ema()
            if keep or done == end:
                self._unstack()
            if keep:
                for member in self.members:
                    member.keep(member.progress)
                kept = time.monotonic()
                if stop:
                    raise Stopped(f"stopped at step {done} of {self.spec.steps}; the same command goes on from there.")

    def _stack(self) -> None:
        """Stacks the members' parameters, optimizer states and pending losses."""
        models, progress = [member.model for member in self.members], [member.progress for member in self.members]
        self.stack = Stack(models, self.task)
        self.optim = optimizer(self.stack, self.spec)
        together(self.optim, [stand.optimizer for stand in progress])
        pending = zip(*(stand.pending for stand in progress), strict=True)
        self.losses = [torch.tensor(losses, device=next(models[0].parameters()).device) for losses in pending]

    def _unstack(self) -> None:
        """Copies each member's parameters and optimizer state out of the stack."""
        self.stack.unload([member.model for member in self.members])
        for k, member in enumerate(self.members):
            member.progress.optimizer = alone(self.optim, k)

    def _read(self, done: int, over: bool) -> None:
        """Reads the losses up to step ``done``, where a row of the history may be ``over``, into each progress.

        A member with a loss that is not finite is dropped. The members of a stack are independent, so that the others
        are not affected.
        """
        if over:  # a row says what the normalizers have learned
            self.stack.unload([member.model for member in self.members])
        for losses, member in zip(torch.stack(self.losses).cpu().unbind(1), self.members, strict=True):
            try:
                pending = training.read(list(losses), done, member.model.attn)
            except Diverged as error:
                member.failed = str(error)
                continue
            if over:
                member.progress.history.append(
                    training.row(member.model, self.task, self.spec, member.seed, done, pending)
                )
            member.progress.step, member.progress.pending = done, [] if over else pending
        if any(member.failed for member in self.members):
            self._unstack()
            self.members = [member for member in self.members if not member.failed]
            if self.members:
                self._stack()
        elif over:
            self.losses = []

    def _swap_rule(self) -> None:
        """Puts the other normalizer into every model; Adam's state of all other parameters is kept."""
        self._unstack()
        for k, member in enumerate(self.members):
            before = training.optimizer(member.model, self.spec)
            before.load_state_dict(alone(self.optim, k))
            member.model.swap_rule(self.spec.switch_to)
            member.progress.optimizer = training.optimizer(member.model, self.spec, before).state_dict()
        self._stack()

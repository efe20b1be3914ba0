"""Trainings that go on together: who stands where, who meets whom, and who is left behind."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import torch

from icl_lab.errors import RunFailed, Stopped
from icl_lab.model.gpt2 import GPT2
from icl_lab.tasks.base import Task
from icl_lab.training import loop as training
from icl_lab.training.ensemble import Stack, advance, single_adam, stacked_adam
from icl_lab.training.loop import ROW, Progress, TrainSpec


@dataclass
class Member:
    """One seed's training: its model, where it stands, who keeps that, and why it was left behind if it was."""

    seed: int
    model: GPT2
    progress: Progress
    keep: Callable[[Progress], object]
    failed: str = ""


def train(
    members: Sequence[Member],
    task: Task,
    spec: TrainSpec,
    *,
    stopping: Callable[[], bool] = lambda: False,
    tick: Callable[[int, float], object] = lambda step, loss: None,
) -> None:
    """Trains the members in place to the last step, each as ``train.train`` would alone, up to rounding.

    Who stands further back goes alone until the next is met, and then with it: so there are as many steps in all as the
    hindmost has left, where groups that never meet would add up theirs. A member whose loss is not finite is left
    behind and says why in ``failed``; the others go on without it.

    Raises ``Stopped`` when ``stopping()`` turns true; all have been kept then.
    """
    for begin, end in pairwise(sorted({member.progress.step for member in members} | {spec.steps})):
        Crew([member for member in members if member.progress.step == begin], task, spec).train(end, stopping, tick)


class Crew:
    """Members that stand at one step and go on together; their own models and progress are behind until they land."""

    def __init__(self, members: Sequence[Member], task: Task, spec: TrainSpec) -> None:
        self.members, self.task, self.spec = list(members), task, spec
        self._board()

    def train(self, end: int, stopping: Callable[[], bool], tick: Callable[[int, float], object]) -> None:
        """Trains up to step ``end``; raises ``Stopped``."""
        kept = time.monotonic()
        for step in range(self.members[0].progress.step, end):
            if self.spec.switch_to and step == self.spec.switch_step:
                self._swap_rule()
            seeds = [member.seed for member in self.members]
            self.losses.append(advance(self.stack, self.adam, self.spec, seeds, step))
            done, stop = step + 1, stopping()
            over = done % ROW == 0 or done == self.spec.steps
            keep = done < self.spec.steps and (stop or time.monotonic() - kept > training.CHECKPOINT_SECONDS)
            if over or keep or done in (end, self.spec.switch_step):
                self._read(done, over)
                if not self.members:
                    return
            if over:
                tick(done, fmean(member.progress.history[-1]["loss"] for member in self.members))
            if keep or done == end:
                self._land()
            if keep:
                for member in self.members:
                    member.keep(member.progress)
                kept = time.monotonic()
                if stop:
                    raise Stopped(f"stopped at step {done} of {self.spec.steps}; the same command goes on from there.")

    def _board(self) -> None:
        """Stacks what the members have."""
        models, progress = [member.model for member in self.members], [member.progress for member in self.members]
        self.stack = Stack(models, self.task)
        self.adam = stacked_adam(self.stack, [stand.optimizer for stand in progress])
        pending = zip(*(stand.pending for stand in progress), strict=True)
        self.losses = [torch.tensor(losses, device=next(models[0].parameters()).device) for losses in pending]

    def _land(self) -> None:
        """Gives the members what is theirs of the stack."""
        self.stack.unload([member.model for member in self.members])
        for k, member in enumerate(self.members):
            member.progress.optimizer = single_adam(self.adam, k)

    def _read(self, done: int, over: bool) -> None:
        """Reads the losses up to step ``done``, where a row of the history may be ``over``, into each progress.

        Who has one that is not finite goes no further. The rows of a stack do not touch one another: what is wrong with
        one of them has reached none of the rest.
        """
        if over:  # a row says what the rules have learned
            self.stack.unload([member.model for member in self.members])
        for losses, member in zip(torch.stack(self.losses).cpu().unbind(1), self.members, strict=True):
            try:
                pending = training.read(list(losses), done)
            except RunFailed as error:
                member.failed = str(error)
                continue
            if over:
                member.progress.history.append(training.row(member.model, self.spec, done, pending))
            member.progress.step, member.progress.pending = done, [] if over else pending
        if any(member.failed for member in self.members):
            self._land()
            self.members = [member for member in self.members if not member.failed]
            if self.members:
                self._board()
        elif over:
            self.losses = []

    def _swap_rule(self) -> None:
        """Puts the other rule into every model; what Adam knows of the other numbers is taken along."""
        self._land()
        for k, member in enumerate(self.members):
            adam = training.optimizer(member.model)
            adam.load_state_dict(single_adam(self.adam, k))
            member.model.swap_rule(self.spec.switch_to)
            member.progress.optimizer = training.optimizer(member.model, adam).state_dict()
        self._board()

"""The seeds of a specification trained as one stack: from locks and checkpoints to trained models on disk."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from icl_lab import machine, normalizers, tasks
from icl_lab import train as training
from icl_lab.errors import BadValue, RunFailed, Stopped
from icl_lab.model import GPT2
from icl_lab.normalizers.base import Normalizer
from icl_lab.spec import RunSpec
from icl_lab.stacked import Stack, advance, single_adam, stacked_adam
from icl_lab.store import Run
from icl_lab.streams import stream
from icl_lab.sweep import Lab
from icl_lab.train import ROW, Progress


@dataclass
class Member:
    """A run in a stack: its model, where it stands, and why it was left behind if it was."""

    run: Run
    model: GPT2
    progress: Progress
    failed: str = ""


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Returns the trainings that are missing, by specification and in the order of their seeds; of one alone none.

    Raises ``BadValue`` where a rule cannot be stacked.
    """
    missing: dict[Path, dict[int, Run]] = {}
    for run in runs:
        if not (run.finished or run.trained):
            missing.setdefault(run.folder.parent, {})[run.seed] = run
    found = [[seeds[seed] for seed in sorted(seeds)] for seeds in missing.values() if len(seeds) > 1]
    for first, *_ in found:
        _check(first.spec)
    return found


def train_together(runs: Sequence[Run], lab: Lab) -> dict[Path, str]:
    """Trains the seeds of one specification together; returns why runs failed, by their folder.

    The runs are held for this process all the while, taken in the order of ``runs``: where that is always the same, of
    two processes that want several one waits for the other, and never each for the other.
    """
    with ExitStack() as held:
        for run in runs:
            held.enter_context(run.alone(lab.say, lab.stopping))
        members = [member for run in runs if (member := _member(run, lab)) is not None]
        if len(members) < 2:  # other processes have done the rest
            return {}
        began, starts = time.monotonic(), [member.progress.step for member in members]
        spec = runs[0].spec
        # Who stands further back goes alone until the next is met, and then with it: so there are as many steps in all
        # as the hindmost has left, where groups that never meet would add up theirs.
        for begin, end in pairwise(sorted({*starts, spec.train.steps})):
            Crew([member for member in members if member.progress.step == begin], spec, lab).train(end)
        env = machine.environment(lab.device, lab.command)
        env |= {"seconds": round(time.monotonic() - began, 1), "stacked": len(members)}
        for member, start in zip(members, starts, strict=True):
            if not member.failed:
                pace = {"steps_timed": spec.train.steps - start}
                member.run.keep_model(member.model, member.progress.history, env | pace)
        return {member.run.folder: member.failed for member in members if member.failed}


class Crew:
    """Members that stand at one step and go on together; their own models and progress are behind until they land."""

    def __init__(self, members: Sequence[Member], spec: RunSpec, lab: Lab) -> None:
        self.members, self.spec, self.lab = list(members), spec.train, lab
        self.task = tasks.build(spec.task)
        self._board()

    def train(self, end: int) -> None:
        """Trains up to step ``end``, as ``train.train`` does one model; who fails is left behind, with the reason.

        Raises ``Stopped`` when the laboratory is asked to stop, with checkpoints of all.
        """
        kept = time.monotonic()
        for step in range(self.members[0].progress.step, end):
            if self.spec.switch_to and step == self.spec.switch_step:
                self._swap_rule(step)
            self.losses.append(advance(self.stack, self.adam, self.spec, self._seeds, step))
            done, stop = step + 1, self.lab.stopping()
            keep = done < self.spec.steps and (stop or time.monotonic() - kept > training.CHECKPOINT_SECONDS)
            if done % ROW == 0 or keep or done == end:
                self._read(done)
                if not self.members:
                    return
            if keep or done == end:
                self._land()
            if keep:
                for member in self.members:
                    member.run.keep(member.model, member.progress)
                kept = time.monotonic()
            if keep and stop:
                raise Stopped(f"stopped at step {done} of {self.spec.steps}; the same command goes on from there.")

    @property
    def _seeds(self) -> list[int]:
        return [member.run.seed for member in self.members]

    def _board(self) -> None:
        """Stacks what the members have."""
        models, progress = [member.model for member in self.members], [member.progress for member in self.members]
        self.stack = Stack(models, self.task)
        self.adam = stacked_adam(self.stack, [stand.optimizer for stand in progress])
        device = self.lab.device
        self.losses = [torch.tensor(row, device=device) for row in zip(*(stand.pending for stand in progress), strict=True)]

    def _land(self) -> None:
        """Gives the members what is theirs of the stack."""
        self.stack.unload([member.model for member in self.members])
        for k, member in enumerate(self.members):
            member.progress.optimizer = single_adam(self.adam, k)

    def _read(self, done: int) -> None:
        """Reads the losses up to step ``done`` into each progress; a loss that is not finite costs the stack its member.

        Rows do not touch one another, so what is wrong with one of them has reached none of the rest.
        """
        self.stack.unload([member.model for member in self.members])
        over = done % ROW == 0 or done == self.spec.steps
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
        if over and self.members:
            mean = fmean(member.progress.history[-1]["loss"] for member in self.members)
            self.lab.tick("train", done, self.spec.steps, f"mean loss {mean:.4g}")

    def _swap_rule(self, step: int) -> None:
        """Puts the other rule into every model; what Adam knows of the other numbers is taken along."""
        if self.losses:
            self._read(step)
        self._land()
        for member in self.members:
            adam = training.optimizer(member.model)
            adam.load_state_dict(member.progress.optimizer or {})
            member.model.swap_rule(self.spec.switch_to)
            member.progress.optimizer = training.optimizer(member.model, adam).state_dict()
        self._board()


def _member(run: Run, lab: Lab) -> Member | None:
    """Returns a run as far as it is trained by now; None where nothing is left to train."""
    task = tasks.build(run.spec.task)
    run.begin()
    if not run.trained:
        run.adopt(lab.say)
    if run.trained:
        return None
    model = GPT2(run.spec.model, run.spec.reading(task), run.spec.attn, stream(run.seed, "init"))
    progress = run.resume(model, lambda text: lab.say(f"seed {run.seed}: {text}"))
    return Member(run, model.to(lab.device).train(), progress)


def _check(spec: RunSpec) -> None:
    """Raises ``BadValue`` for a rule that cannot be stacked."""
    site = {"heads": spec.model.heads, "head_dim": spec.model.width // spec.model.heads}
    tokens = spec.reading(tasks.build(spec.task)).train_tokens
    for attn in filter(None, (spec.attn, spec.train.switch_to)):
        parts = normalizers.build(attn, **site, train_tokens=tokens).modules()
        if not all(part.stackable for part in parts if isinstance(part, Normalizer)):
            raise BadValue(f"'{attn}' cannot be stacked; train its seeds side by side: --jobs in the place of --stack.")

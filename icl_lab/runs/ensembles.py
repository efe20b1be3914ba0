"""The seeds of a specification trained as one stack: from locks and checkpoints to trained models on disk."""

import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from torch.func import vmap

from icl_lab import normalizers, tasks
from icl_lab.errors import BadValue, Diverged
from icl_lab.normalizers.base import Normalizer
from icl_lab.rng import stream
from icl_lab.runs import environment, reuse, status
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Prompt, Task
from icl_lab.training import lockstep
from icl_lab.training.lockstep import StackedSeed


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Returns the trainings that are missing, by specification and in the order of their seeds; of one alone none.

    Raises ``BadValue`` where a normalizer cannot be stacked.
    """
    missing: dict[Path, dict[int, Run]] = {}
    for run in runs:
        if not (run.finished or run.trained or run.diverged):
            missing.setdefault(run.folder.parent, {})[run.seed] = run
    found = [[seeds[seed] for seed in sorted(seeds)] for seeds in missing.values() if len(seeds) > 1]
    for first, *_ in found:
        _check(first.spec)
    return found


def train_together(runs: Sequence[Run], lab: Lab) -> None:
    """Trains the seeds of one specification together; of one that diverges no model is kept, but that it did.

    The runs are held for this process all the while, taken in the order of ``runs``: where that is always the same, of
    two processes that want several one waits for the other, and never each for the other.
    """
    with ExitStack() as held:
        for run in runs:
            held.enter_context(run.locked(lab.say, lab.stopping))
        members = [(run, member) for run in runs if (member := _member(run, lab)) is not None]
        if len(members) < 2:  # other processes have done the rest
            return
        spec, began = runs[0].spec, time.monotonic()
        starts = [member.progress.step for _, member in members]
        lab.tick("train", min(starts), spec.train.steps, "")
        reports = [held.enter_context(status.report_status(run.folder)) for run, _ in members]
        for report, start in zip(reports, starts, strict=True):
            report("train", start, spec.train.steps)

        def tick(step: int, loss: float) -> None:
            for report, (run, member) in zip(reports, members, strict=True):
                if member.progress.step == step:  # those that are trained together now
                    report("train", step, spec.train.steps)
                    lab.tracked.rows(run, member.progress.history)
            lab.tick("train", step, spec.train.steps, f"mean loss {loss:.4g}")

        lockstep.train(
            [member for _, member in members], tasks.build(spec.task), spec.train, stopping=lab.stopping, tick=tick
        )
        env = environment.of_run(spec, lab.device, lab.command)
        env |= {"seconds": round(time.monotonic() - began, 1), "stacked": len(members)}
        for (run, member), start in zip(members, starts, strict=True):
            if member.failed:
                run.keep_divergence(Diverged(member.failed, member.progress.history), env)
            else:
                run.keep_model(member.model, member.progress.history, env | {"steps_timed": spec.train.steps - start})


def _member(run: Run, lab: Lab) -> StackedSeed | None:
    """Returns a run as far as it is trained by now; None where nothing is left to train."""
    task = tasks.build(run.spec.task)
    run.begin()
    if not run.trained:
        reuse.weights(run, lab.say)
    if run.trained:
        return None
    model = run.spec.untrained(task, run.seed)
    progress = run.resume(model, lambda text: lab.say(f"seed {run.seed}: {text}"))
    return StackedSeed(run.seed, model.to(lab.device).train(), progress, lambda progress: run.keep(model, progress))


def _check(spec: RunSpec) -> None:
    """Raises ``BadValue`` for a normalizer or a loss that cannot be stacked, and for other engines than ``eager``."""
    if (spec.train.engine, spec.train.precision) != ("eager", "float32"):
        told = f"train.engine={spec.train.engine}, train.precision={spec.train.precision}"
        raise BadValue(f"a stack is trained eagerly in float32, got {told}; leave one or the other.")
    if spec.train.scaling != "fixed":
        raise BadValue(
            f"a stack has no rates for parts of a matrix, got train.scaling={spec.train.scaling}; take --jobs."
        )
    site = {"heads": spec.model.heads, "head_dim": spec.model.width // spec.model.heads}
    task = tasks.build(spec.task)
    _check_loss(task, spec)
    tokens = spec.reading(task).train_tokens
    for attn in filter(None, (spec.attn, spec.train.switch_to)):
        parts = normalizers.build(attn, **site, train_tokens=tokens).modules()
        if not all(part.stackable for part in parts if isinstance(part, Normalizer)):
            raise BadValue(f"'{attn}' cannot be stacked; train its seeds side by side: --jobs in the place of --stack.")


def _check_loss(task: Task, spec: RunSpec) -> None:
    """Raises ``BadValue`` where the loss of a task cannot be mapped over seeds, tried on two with two prompts each."""
    prompts = [
        task.sample(stream(seed, "check"), 2, spec.train.curriculum.start, **spec.train.shift) for seed in (0, 1)
    ]
    parts = [torch.stack([getattr(prompt, part) for prompt in prompts]) for part in ("tokens", "targets", "scored")]
    outputs = torch.zeros(*parts[1].shape, task.outputs, dtype=parts[1].dtype)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of vmap, that an operation is slow
            vmap(lambda outputs, *parts: task.loss(outputs, Prompt(*parts)))(outputs, *parts)
    except RuntimeError as error:
        raise BadValue(
            f"the loss of {task.name} cannot be stacked (write it with Prompt.mean, not with a boolean index); train "
            f"its seeds side by side: --jobs in the place of --stack. torch says: {str(error).strip().splitlines()[0]}"
        ) from None

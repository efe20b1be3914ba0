"""The pass: task, prompt, model with its normalizer, training, shifted test, grid. Read this file first."""

import math
import time

import torch

from icl_lab import tasks
from icl_lab.base.errors import Diverged
from icl_lab.base.grid import Grid
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs import environment, provenance, reuse, status
from icl_lab.runs.floor import exact_within_bound
from icl_lab.runs.measure import Subject, measure
from icl_lab.runs.run import MADE_BY, Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task
from icl_lab.training.loop import train


def sweep(spec: RunSpec, seed: int, lab: Lab, swap: str = "") -> Grid:
    """Train once where every sigma is 1, then measures everywhere else. What is finished is read, not repeated.

    ``swap`` names another normalizer to be measured in the trained model, its parameters at their start.
    """
    run = lab.store.run(spec, seed, swap)
    if run.finished:
        return run.grid()
    with run.locked(lab.say, lab.stopping):
        if run.finished:  # by the process that we waited for
            return run.grid()
        task, measured_by = tasks.build(spec.task), provenance.now(spec, swap, "measuring")
        try:
            subjects = {run.name: subject(_load_or_train(run, lab), task, lab.device)}
        except Diverged:  # without a model it answers nothing, and every cell says so
            subjects = {run.name: Subject(lambda prompt: torch.full((*prompt.targets.shape, task.outputs), math.nan))}
        subjects |= {f"reference:{name}": Subject(predict) for name, predict in task.references().items()}
        with status.report_status(run.folder) as report:

            def tested(done: int, total: int) -> None:
                report("test", done, total)
                lab.tested(done, total)

            measured = measure(subjects, task, spec.test, tested)
        shifts = [axis for axis in spec.test.axes if axis != "length"]
        grid = Grid.of(measured.cells, [*shifts, "length"], **run.labels)
        positions = Grid.of(measured.positions, [*shifts, "index"], **run.labels)
        run.finish(grid, positions, measured.errors, measured_by.fields())
        return grid


def trained(run: Run, lab: Lab) -> GPT2:
    """Return the run's model: loaded if it is there, else trained from its last checkpoint or from the start."""
    spec, task = run.spec, tasks.build(run.spec.task)
    model = spec.untrained(task, run.seed).to(lab.device)
    run.begin()
    if not run.trained:
        reuse.weights(run, lab.say)
    if run.trained:
        if spec.train.switch_to:
            model.swap_rule(spec.train.switch_to)
        run.load_model(model)
        return model.eval()
    made_by, began = {MADE_BY: provenance.now(spec).fields()}, time.monotonic()
    progress = run.resume(model, lab.say, lambda stored, path: provenance.of_stored(stored, spec, path))
    lab.tick("train", progress.step, spec.train.steps, "")  # long before the first row of the history
    try:
        with status.report_status(run.folder) as report:
            report("train", progress.step, spec.train.steps)

            def tick(step: int, loss: float) -> None:
                report("train", step, spec.train.steps)
                lab.tick("train", step, spec.train.steps, f"loss {loss:.4g}")
                lab.tracked.rows(run, progress.history)

            keep = lambda state: run.keep(model, state, made_by[MADE_BY])  # noqa: E731
            history = train(model, task, spec.train, run.seed, progress, keep=keep, stopping=lab.stopping, tick=tick)
    except Diverged as reason:
        run.keep_divergence(reason, environment.of_run(spec, lab.device, lab.command) | made_by)
        raise
    pace = {"seconds": round(time.monotonic() - began, 1), "steps_timed": spec.train.steps - progress.step}
    run.keep_model(model, history, environment.of_run(spec, lab.device, lab.command) | pace | made_by)
    return model.eval()


def load_or_train(run: Run, lab: Lab) -> GPT2:
    """Return the run's model as it is tested, trained where missing; another process on the run is waited for."""
    with run.locked(lab.say, lab.stopping):
        return _load_or_train(run, lab)


def _load_or_train(run: Run, lab: Lab) -> GPT2:
    """The model with the normalizer and the position code that replace the trained ones; the run is held already."""
    model = trained(run, lab)
    if run.swap:
        model.swap_rule(run.swap)
    test = run.spec.test
    if test.positions:
        model.swap_positions(test.positions)
    if test.rescale != "none":
        model.rescaling = tasks.rescaling(run.spec.task, test.rescale, test.rescale_from)
    return model


def subject(model: GPT2, task: Task, device: torch.device) -> Subject:
    """Wrap a model as something to be measured; one pass serves all lengths where it is prefix-consistent."""
    predict = lambda prompt: model(prompt.tokens.to(device), answers=task.answers)  # noqa: E731
    ask = model.answer_queries if model.queries_apart else None
    return Subject(predict, model.prefix_consistent, model.bytes_a_prompt, exact_within_bound(model, task), ask)

"""Prompts of a task at an address, and what one of its references scores on them."""

from icl_lab import tasks
from icl_lab.base.rng import stream


def draw(choice, prompts=64, length=12, at="test", **shift):
    task = tasks.build(choice)
    return task, task.sample(stream(0, at), prompts, length, **shift)


def score(task, prompt, reference, **shift):
    """The mean of each view of a reference's errors."""
    errors = task.errors(task.references()[reference](prompt), prompt)
    return {name: values.nanmean(0).mean().item() for name, values in task.views(errors, prompt, **shift).items()}

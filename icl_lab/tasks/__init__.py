"""In-context tasks: what draws prompts and knows what a right answer is. A file is found by being there."""

from dataclasses import replace

from icl_lab.errors import BadValue
from icl_lab.registry import Registry
from icl_lab.tasks.base import Task

registry = Registry("task", __name__)


def names() -> list[str]:
    """Returns the names of all tasks."""
    return registry.names()


def build(choice: str) -> Task:
    """Builds a task from text such as ``every:balance=half``. Raises ``LabError`` when a part of it is not known."""
    task = registry.build(choice)
    if not isinstance(task, Task):
        raise BadValue(f"task '{choice}': its class must be a Task of icl_lab.tasks.base.")
    return task


def usual_for(analysis: str) -> str:
    """Returns the task that an analysis is asked about where none is named; empty where no task declares it."""
    return next((name for name in names() if analysis in getattr(registry.part(name), "usual_for", ())), "")


def canonical(choice: str) -> str:
    """Returns the one spelling of a choice; raises ``LabError`` if there is none."""
    return str(registry.canonical(choice))


def pinned(choice: str) -> str:
    """Returns the one spelling of a choice that names what it reads: ``text:file=a.txt,sha=0123456789ab``.

    Raises ``LabError`` as ``canonical`` does, and where a file cannot be read.
    """
    chosen, pins = registry.canonical(choice), build(choice).pins()
    return canonical(str(replace(chosen, options=tuple({**pins, **dict(chosen.options)}.items()))))

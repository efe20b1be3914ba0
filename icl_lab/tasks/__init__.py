"""In-context tasks: what draws prompts and knows what a right answer is. A file is found by being there."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, cast

from icl_lab.base.errors import BadValue
from icl_lab.base.registry import Choice, Registry
from icl_lab.base.rescale import FIRST, Rescale, Rescaling
from icl_lab.tasks.base import Task
from icl_lab.tasks.capabilities import Capability, ReadsFiles, Rescalable

registry = Registry("task", __name__)

C = TypeVar("C", bound=Capability)


def names() -> list[str]:
    """Return the names of all tasks."""
    return registry.names()


def build(choice: str) -> Task:
    """Build a task from text such as ``every:balance=half``. Raises ``LabError`` when a part of it is not known."""
    task = registry.build(choice)
    if not isinstance(task, Task):
        raise BadValue(f"task '{choice}': its class must be a Task of icl_lab.tasks.base.")
    return task


def having(capability: type[Capability]) -> list[str]:
    """Return the names of the tasks that have a capability."""
    return [name for name in names() if issubclass(registry.part(name), capability)]


def bidirectional() -> list[str]:
    """Return the names of the tasks whose models may see both sides of a token (``model.mask=full``)."""
    return [name for name in names() if cast(type[Task], registry.part(name)).bidirectional]


def require(task: Task, capability: type[C]) -> C:
    """Return the task as one that has a capability; raises ``BadValue`` with those that have it where it has not."""
    if isinstance(task, capability):
        return task
    there = ", ".join(having(capability)) or "none"
    raise BadValue(f"{task.name} has no {capability.offers}; tasks that have: {there}.")


def canonical(choice: str) -> str:
    """Return the one spelling of a choice; raises ``LabError`` if there is none."""
    return str(registry.canonical(choice))


def pinned(choice: str) -> str:
    """Return a choice with the hashes of the files that it reads: ``text:file=a.txt,sha=0123456789ab``.

    Raises ``LabError`` as ``canonical`` does, and where a file cannot be read.
    """
    chosen, task = registry.canonical(choice), build(choice)
    given = dict(chosen.options)
    if not isinstance(task, ReadsFiles) or task.pin in given:
        return str(chosen)
    return canonical(str(replace(chosen, options=tuple({**task.pins(), **given}.items()))))


def trained_as(choice: str) -> str:
    """Return a choice without the options that change no training; as it is where its task is not known here."""
    chosen = Choice.parse(choice)
    if chosen.name not in names():
        return choice
    apart = build(choice).of_tests
    return str(replace(chosen, options=tuple((key, value) for key, value in chosen.options if key not in apart)))


def reads(choice: str) -> Mapping[str, str]:
    """Return the SHA-256 of each file that a task reads besides its options, by name; empty for most tasks."""
    task = build(choice)
    return task.reads() if isinstance(task, ReadsFiles) else {}


def rescaling(choice: str, part: Rescale, first: int = FIRST) -> Rescaling:
    """Return the rescaling of a part of a task's prompts; raises ``BadValue`` where it has none of this part."""
    return require(build(choice), Rescalable).rescaling(part, first)

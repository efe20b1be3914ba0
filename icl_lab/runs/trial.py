"""A task and a normalizer tried on a few prompts before training: a fault in their files is found at once."""

import inspect
import traceback
from pathlib import Path

from torch import Tensor

from icl_lab import tasks
from icl_lab.base.errors import BadValue, LabError, first_line
from icl_lab.base.rng import stream
from icl_lab.runs import environment
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Task

PROMPTS = 3  # unlike any number of tokens, classes or outputs that is usual


def check_parts(spec: RunSpec) -> None:
    """Raise ``BadValue`` with file and line where the parts of a run could be neither trained nor tested.

    An untrained model reads a few prompts of the shortest tested length: loss and gradient, and the views of each test
    set.
    """
    task = tasks.build(spec.task)
    try:
        model = spec.untrained(task, 0)
        views = dict[str, Tensor]()
        for suite in task.suites().values():
            prompt = suite.sample(stream(0, "trial"), PROMPTS, spec.test.lengths[0])
            outputs = model(prompt.tokens, answers=suite.answers)
            suite.loss(outputs, prompt).backward()  # type: ignore[no-untyped-call]
            found = suite.views(suite.errors(outputs.detach(), prompt), prompt)
            views |= found | suite.confidence(outputs.detach(), prompt)
    except LabError:
        raise
    except Exception as error:
        raise BadValue(f"{_place(error, spec)}: {type(error).__name__}: {first_line(error)}.") from error
    for name, values in views.items():
        if values.ndim not in (1, 2) or len(values) != PROMPTS:
            shape = tuple(values.shape)
            raise BadValue(f"{_declared(task, 'views')}: {name} is {shape} for {PROMPTS} prompts, not (b) or (b g).")
    if missing := {task.headline, *task.beside, *task.medians} - views.keys():
        there = ", ".join(sorted(views))
        raise BadValue(
            f"{_declared(task, 'headline')}: no view is called {', '.join(sorted(missing))}; there: {there}."
        )


def _place(error: Exception, spec: RunSpec) -> str:
    """File and line of a fault: the innermost in a file of a part, or else the innermost of all."""
    parts = {inspect.getsourcefile(registry.part(name)) for registry, name in environment.parts(spec)}
    frames = traceback.extract_tb(error.__traceback__)
    frame = [*frames[-1:], *(frame for frame in frames if frame.filename in parts)][-1]
    return f"{_short(frame.filename)}:{frame.lineno}"


def _declared(task: Task, name: str) -> str:
    """File and line at which the class of a task says something; its first line where a base class does."""
    lines, first = inspect.getsourcelines(type(task))
    starts = (f"{name} =", f"{name}:", f"def {name}(")
    within = next((number for number, line in enumerate(lines) if line.strip().startswith(starts)), 0)
    return f"{_short(inspect.getsourcefile(type(task)) or '')}:{first + within}"


def _short(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)

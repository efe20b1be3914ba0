"""icl_lab: which attention normalizer generalises, where, and by how much?

From Python and notebooks (``docs/python.md``)::

    import icl_lab as icl
    run = icl.sweep("linear", "ssa", preset="smoke")
    study = icl.compare("linear", ["softmax", "ssa"], preset="smoke", seeds=3)

The public interface is ``__all__``, and each analysis as a function of its name (``icl.boundary(run)``). Everything
else may change with any version.

Letters mean axes, everywhere the same:

    b  prompts of a batch      t  tokens of a prompt (rows as well as keys)
    h  attention heads         d  width of a head, or of the model where no head is in sight
    w  width of a token        c  channels of an answer
    n  visible keys of a row   L  examples of a prompt (its length; an interleaved prompt has t = 2L tokens)

sigma is always a standard deviation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from icl_lab.base.version import PACKAGE, VERSION

if TYPE_CHECKING:
    from icl_lab.api import analyse as analyse
    from icl_lab.api import analysis as analysis
    from icl_lab.api import attention as attention
    from icl_lab.api import cells as cells
    from icl_lab.api import compare as compare
    from icl_lab.api import experiment as experiment
    from icl_lab.api import export as export
    from icl_lab.api import find as find
    from icl_lab.api import grid as grid
    from icl_lab.api import import_parts as import_parts
    from icl_lab.api import list_analyses as list_analyses
    from icl_lab.api import list_presets as list_presets
    from icl_lab.api import list_rules as list_rules
    from icl_lab.api import list_runs as list_runs
    from icl_lab.api import list_tasks as list_tasks
    from icl_lab.api import load as load
    from icl_lab.api import paper_report as paper_report
    from icl_lab.api import rates as rates
    from icl_lab.api import rule as rule
    from icl_lab.api import sweep as sweep
    from icl_lab.api import task as task
    from icl_lab.api.answer import Answer as Answer
    from icl_lab.api.answer import ExperimentReport as ExperimentReport
    from icl_lab.api.run import Run as Run
    from icl_lab.api.run import Runs as Runs
    from icl_lab.api.study import Study as Study
    from icl_lab.base.errors import LabError as LabError
    from icl_lab.base.grid import Grid as Grid
    from icl_lab.execute.where import Where as Where

__version__ = VERSION

# Where each public name is defined: imported when it is asked for, so that ``import icl_lab`` stays quick.
_PLACES = {
    "LabError": "base.errors",
    "Grid": "base.grid",
    "Where": "execute.where",
    **dict.fromkeys(("Answer", "ExperimentReport"), "api.answer"),
    **dict.fromkeys(("Run", "Runs"), "api.run"),
    "Study": "api.study",
    **dict.fromkeys(
        (
            *("sweep", "compare", "grid", "rates", "analyse", "attention", "experiment", "paper_report"),
            *("find", "load"),
            *("list_tasks", "list_rules", "list_analyses", "list_presets", "list_runs", "cells"),
            *("rule", "task", "analysis", "import_parts", "export"),
        ),
        "api",
    ),
}
# Families of parts, with the registries and the base classes of plugins.
_FAMILIES = ("normalizers", "tasks", "analyses")

__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        part = getattr(import_module(f"icl_lab.{_PLACES[name]}"), name)
        globals()[name] = part
        return part
    if name in _FAMILIES:
        return import_module(f"icl_lab.{name}")
    # Modules are imported as such; other names may be analyses, for which everything has to be loaded.
    if not (name.startswith("_") or (PACKAGE / name).exists() or (PACKAGE / f"{name}.py").exists()):
        from icl_lab.analyses import registry

        if (question := name.replace("_", "-")) in registry.names():
            from icl_lab import api

            return api.question(question)
    raise AttributeError(f"module 'icl_lab' has no attribute '{name}'")


def __dir__() -> list[str]:
    from icl_lab.analyses import registry

    return sorted({*globals(), *__all__, *_FAMILIES, *(name.replace("-", "_") for name in registry.names())})

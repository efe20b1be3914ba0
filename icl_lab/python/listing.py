"""Lists of parts, presets and runs as tables, and parts of one's own."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from icl_lab.errors import BadValue
from icl_lab.python.session import RESULTS, Folder, Here

if TYPE_CHECKING:
    import pandas as pd

    from icl_lab.registry import Registry

Part = TypeVar("Part", bound=type)


def list_tasks() -> "pd.DataFrame":
    """Returns the tasks: what each is, its formula and its source."""
    from icl_lab import tasks

    return _entries(tasks.registry)


def list_rules() -> "pd.DataFrame":
    """Returns the rules that stand in the place of softmax, then the wrappers around a rule (``ssa+reweight``).

    >>> import icl_lab as icl
    >>> icl.list_rules().loc["softmax", "formula"]
    'w_j = exp(z_j) / sum_i exp(z_i)'
    """
    from icl_lab import normalizers

    return _entries(normalizers.registry, normalizers.wrappers)


def list_analyses() -> "pd.DataFrame":
    """Returns the questions to trained models; each is a function of this package, and a command."""
    from icl_lab import analyses

    return _entries(analyses.registry)[["about", "options"]]


def list_presets() -> "pd.DataFrame":
    """Returns the sizes that a run comes in."""
    from icl_lab.grid import frame_of
    from icl_lab.runs.presets import PRESETS

    rows = [
        {"name": name, "layers": p.model.layers, "heads": p.model.heads, "width": p.model.width}
        | {"steps": p.train.steps, "batch": p.train.batch, "purpose": p.purpose}
        for name, p in PRESETS.items()
    ]
    return frame_of(rows).set_index("name")


def list_runs(results: Folder = RESULTS) -> "pd.DataFrame":
    """Returns the runs of a results folder and of the repository's evidence: names as ``icl.find`` takes them."""
    from icl_lab.grid import frame_of

    lab = Here(results, "cpu").lab("")
    rows = [
        {"name": run.spec.name, "seed": run.seed}
        | {"finished": run.finished, "weights": run.trained, "evidence": run.copied}
        for run in lab.store.runs(lab.say)
    ]
    return frame_of(rows, columns=("name", "seed", "finished", "weights", "evidence"))


def rule(name: str) -> Callable[[Part], Part]:
    """Announces a rule of one's own, as ``icl_lab.normalizers.registry.add`` does; a cell may be executed again."""
    from icl_lab import normalizers

    return normalizers.registry.add(name)


def task(name: str) -> Callable[[Part], Part]:
    """Announces a task of one's own, as ``icl_lab.tasks.registry.add`` does; a cell may be executed again."""
    from icl_lab import tasks

    return tasks.registry.add(name)


def analysis(name: str) -> Callable[[Part], Part]:
    """Announces an analysis of one's own, as ``icl_lab.analyses.registry.add`` does."""
    from icl_lab import analyses

    return analyses.registry.add(name)


def export(table: "pd.DataFrame", kind: str = "latex", to: Folder | None = None) -> str:
    """Returns a table as ``latex`` (with the rules of booktabs), ``markdown`` or ``csv``, or writes it to a file.

    ``parquet`` is no text and wants a file. Raises ``LabError`` on another kind.

    >>> import icl_lab as icl, pandas
    >>> print(icl.export(pandas.DataFrame({"rule": ["ssa"], "error": [0.5]}), "markdown"), end="")
    | rule | error |
    | --- | --- |
    | ssa | 0.5 |
    """
    from icl_lab import tables
    from icl_lab.files import write

    data = tables.encode(table, kind)
    if to is not None:
        write(Path(to), data)
        return str(to)
    if kind == "parquet":
        raise BadValue("Parquet is no text: name a file, icl.export(table, 'parquet', 'table.parquet').")
    return data.decode()


def import_parts(given: str) -> list[str]:
    """Imports the parts of a module, or of a ``.py`` file or folder by its path, as ``--import``; returns their names.

    Runs its code. Raises ``BadValue`` where it cannot be imported, and where it registers nothing.
    """
    from icl_lab import analyses, normalizers, outside, tasks

    source = outside.load(given)
    registries = (normalizers.registry, normalizers.wrappers, tasks.registry, analyses.registry)
    return [name for registry in registries for name in registry.brought(source)]


def _entries(*registries: "Registry") -> "pd.DataFrame":
    from icl_lab.grid import frame_of

    rows: list[dict[str, Any]] = [
        {"name": entry.name, "about": entry.line, "options": ", ".join(registry.options(entry.name))}
        | {"formula": entry.formula, "paper": entry.paper}
        for registry in registries
        for entry in registry.entries()
    ]
    return frame_of(rows).set_index("name")

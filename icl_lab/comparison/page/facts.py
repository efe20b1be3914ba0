"""Facts on the runs behind a comparison: set-up, formulas of their normalizers, training."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icl_lab import normalizers
from icl_lab.comparison.study import PairedGrids
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec


@dataclass(frozen=True)
class Facts:
    """One run: its specification, where it was trained, and the rows of its history (none where not kept)."""

    spec: RunSpec
    swap: str
    env: Mapping[str, Any]
    history: Sequence[Mapping[str, float]]


def facts_of(groups: Mapping[str, Sequence[Run]]) -> dict[str, list[Facts]]:
    """Read what the page says of finished runs, one group of seeds a name."""

    def of_run(run: Run) -> Facts:
        history = run.history() if (run.folder / "history.csv").exists() else ()
        return Facts(run.spec, run.swap, run.env(), history)

    return {name: list(map(of_run, runs)) for name, runs in groups.items()}


def setup(study: PairedGrids, spec: RunSpec, facts: Mapping[str, Sequence[Facts]]) -> list[tuple[str, str]]:
    """Return the set-up as (what, value); of fields in which the compared runs differ it says so."""
    every = [fact for group in facts.values() for fact in group]
    specs = [fact.spec for fact in every] or [spec]

    def field(show: Any) -> str:
        values = list(dict.fromkeys(str(show(each)) for each in specs))
        return values[0] if len(values) == 1 else "differs: " + "; ".join(values[:4]) + " ..." * (len(values) > 4)

    # In the order of the task: a stored specification is sorted by name.
    axes = {axis: spec.test.axes[axis] for axis in study.training if axis in spec.test.axes and axis != "length"}
    shifts = ", ".join(f"{axis} {_range(values)}" for axis, values in axes.items())
    rows = [
        ("task", spec.task),
        ("model", field(_model)),
        ("training", field(lambda s: f"{s.train.steps:,} steps of {s.train.batch} prompts")),
        ("learning rate", field(lambda s: f"{s.train.rate:g}, {s.train.schedule}, {s.train.warmup} warm-up steps")),
        ("training prompts", field(lambda s: f"{s.train.curriculum.start} to {s.train.curriculum.stop} examples")),
        ("test prompts", field(lambda s: _prompts(s, study))),
        ("test lengths", ", ".join(map(str, spec.test.lengths)) + " examples"),
        ("test shifts", shifts or "none"),
        ("preset", spec.preset),
        ("training seeds", ", ".join(str(grid.values("seed")[0]) for grid in study.grids[study.baseline])),
    ]
    for what, key in (("trained at commit", "commit"), ("machine", "machine"), ("device", "device")):
        if values := list(dict.fromkeys(str(fact.env[key]) for fact in every if key in fact.env)):
            rows.append((what, ", ".join(values[:4]) + (f" and {len(values) - 4} more" if len(values) > 4 else "")))
    return rows


def formulas(study: PairedGrids, facts: Mapping[str, Sequence[Facts]]) -> list[tuple[str, str, str]]:
    """Return (name, description, formula) of every normalizer and wrapper in the study, each once, without options."""
    chosen = [rule for group in facts.values() for fact in group for rule in (fact.spec.attn, fact.swap) if rule]
    entries = {
        entry.name: entry for registry in (normalizers.registry, normalizers.wrappers) for entry in registry.entries()
    }
    parts = [re.split(r"[:]", part)[0] for rule in chosen or list(study.grids) for part in re.split(r"\+|->", rule)]
    names = [name for name in dict.fromkeys(parts) if name in entries]
    return [(name, entries[name].line, entries[name].formula) for name in names]


def _model(spec: RunSpec) -> str:
    model = spec.model
    parts = [f"{model.layers} layers, {model.heads} heads, width {model.width}", f"positions {model.positions}"]
    parts += [word for off, word in ((not model.mlp, "no MLP"), (not model.attention, "no attention")) if off]
    parts += [word for on, word in ((not model.norm, "no norm"), (model.qk_norm, "norm of q and k")) if on]
    return ", ".join([*parts, *([model.block] if model.block != "gpt2" else [])])


def _prompts(spec: RunSpec, study: PairedGrids) -> str:
    if spec.test.draws == "paper":
        return "the published evaluation set"
    return f"{study.count(study.cells()[0]):,} in a cell, the same for every model"


def _range(values: Sequence[float]) -> str:
    """``1 to 10`` of many values, all of few."""
    known = sorted(values)
    return f"{known[0]:g} to {known[-1]:g}" if len(known) > 5 else ", ".join(f"{value:g}" for value in known)

"""Specifications as the site shows them: settings, seeds and the state of each, and the data of its page.

A test with another normalizer in a trained model is a separate specification. Damage is a sentence and hides nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icl_lab.base.errors import LabError, RunFailed
from icl_lab.base.grid import Grid
from icl_lab.base.option_values import in_words
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.extras.site import numbers
from icl_lab.extras.site.names import address, encoded
from icl_lab.extras.site.shown_task import ShownTask
from icl_lab.figures.base import short
from icl_lab.figures.styles import styles
from icl_lab.runs import provenance
from icl_lab.runs.cells import swaps
from icl_lab.runs.command import differences, repeats
from icl_lab.runs.run import Run
from icl_lab.runs.store import Store
from icl_lab.runs.summary import attention_words, bound_words

DASHES = {"-": [], "--": [7, 4], ":": [2, 3], "-.": [8, 3, 2, 3]}

Grids = dict[tuple[str, str], Grid]  # headlines of runs, by key and the normalizer put in: read once for all pages
Numbers = dict[str, Any]  # data of a page's scripts, as JSON


@dataclass(frozen=True)
class Seed:
    """One training seed: where it stands, what made it, and its error in training conditions."""

    seed: int
    state: str
    damage: str = ""
    notes: tuple[str, ...] = ()
    error: float | None = None
    env: Mapping[str, Any] = field(default_factory=dict)
    bound: str = ""  # of its answers, in words

    @property
    def date(self) -> str:
        """The day on which it was finished."""
        return str(self.env.get("finished", ""))[:10]

    @property
    def error_text(self) -> str:
        """The error in training conditions in two digits; empty where it is not known."""
        return "" if self.error is None else "∞" if self.error == float("inf") else short(self.error)


@dataclass(frozen=True)
class Specification:
    """All seeds of one specification, tested with its own normalizer or with another (``swap``)."""

    task: str
    name: str
    preset: str
    spec: str
    swap: str
    folder: str
    differs: str  # the fields in which it is not its preset
    again: str  # the command that makes its first seed, or reads it where it is there
    fields: tuple[tuple[str, str], ...]
    seeds: tuple[Seed, ...]
    metric: str = ""
    learned: tuple[Any, ...] = ()
    drawn: tuple[str, ...] = ()  # of its page: "map" of the grid, "history"
    data: str = ""  # of both, as JSON

    @property
    def id(self) -> str:
        """The name of its page and of its data."""
        return address(f"{self.folder}/{self.swap}" if self.swap else self.folder)

    @property
    def normalizer(self) -> str:
        """The normalizer without its options, to filter by."""
        return re.split(r"[:+]|->", self.name)[0]

    @property
    def date(self) -> str:
        """The day on which its last seed was finished."""
        return max(seed.date for seed in self.seeds)

    @property
    def notes(self) -> list[str]:
        """Remarks on its seeds, each once."""
        return list(dict.fromkeys(note for seed in self.seeds for note in seed.notes))

    @property
    def errors(self) -> str:
        """The errors in training conditions of its seeds, least to greatest."""
        known = sorted((seed for seed in self.seeds if seed.error is not None), key=lambda seed: seed.error or 0.0)
        return " to ".join(dict.fromkeys(each.error_text for each in (known[0], known[-1]))) if known else ""


def every(store: Store, tick: Tick = silent, grids: Grids | None = None) -> tuple[list[Specification], list[str]]:
    """Return the specifications of a store, and messages on folders that cannot be read at all.

    The grids that are read on the way are added to ``grids``.
    """
    grids = {} if grids is None else grids
    damages: list[str] = []
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in store.runs(damages.append):
        groups.setdefault((run.key.rpartition("/")[0], ""), []).append(run)
        for normalizer in swaps(run):
            groups.setdefault((run.key.rpartition("/")[0], normalizer), []).append(run.swapped(normalizer))
    made = [_read(runs, grids) for runs in counted(list(groups.values()), "reading runs", tick)]
    return made, damages


def _read(runs: Sequence[Run], grids: Grids) -> Specification:
    """One specification from its runs, one per seed."""
    first, read = runs[0], [_seed(run, grids) for run in runs]
    shown = [(seed, grid, subject, history) for seed, grid, subject, history in read if grid]
    histories = [(seed.seed, history) for seed, _, _, history in read if history]
    # Of a normalizer that is not here, or does not fit the preset as it is, nobody can say.
    differs = " ".join(each for each in differences(first.spec) if not each.startswith("("))
    label = " ".join(filter(None, (f"{first.name}, {first.spec.task}, {first.spec.preset}", differs)))
    data: Numbers = {"look": _look(first.name), "label": label}
    if shown:
        data |= numbers.together({seed.seed: grid for seed, grid, _, _ in shown})
        data["task"] = shown[0][2].script_data({axis["name"]: axis["values"] for axis in data["axes"]})
    if histories:
        data["history"] = {str(seed): numbers.training(history) for seed, history in histories}
        steps = [each.pop("step") for each in data["history"].values()]
        data["steps"] = steps[:1] if all(each == steps[0] for each in steps) else steps
    subject = shown[0][2] if shown else None
    return Specification(
        task=first.spec.task,
        name=first.name,
        preset=first.spec.preset,
        spec=first.spec.hash,
        swap=first.swap,
        folder=first.key.rpartition("/")[0],
        differs=differs,
        again=repeats(first),
        fields=tuple(_flat(first.spec.whole())),
        seeds=tuple(seed for seed, *_ in read),
        metric=subject.metric_words.get(subject.headline, subject.headline) if subject else "",
        learned=tuple(numbers.learned(histories[0][1])) if histories else (),
        drawn=("map",) * bool(shown) + ("history",) * bool(histories),
        data=encoded(data),
    )


def _seed(run: Run, grids: Grids) -> tuple[Seed, Numbers, Any, list[dict[str, float]]]:
    """A seed with the arrays of its grid, its task and its history; what cannot be read makes it a damaged one."""
    env: dict[str, Any] = {}
    history: list[dict[str, float]] = []
    try:
        history, env = (run.history(), run.env()) if run.recorded else ([], {})
        why, made = run.diverged, f"made with other code ({found})" if (found := provenance.of(run)) else ""
        begun = "trained, not tested" if run.trained else f"at step {run.checkpoint_step:,} of {run.spec.train.steps:,}"
        state = "diverged" if why else "evidence" if run.copied else "finished" if run.finished else begun
        if not run.finished:
            return Seed(run.seed, state, notes=tuple(filter(None, (why, made))), env=env), {}, None, history
        if not len((grid := run.grid()).frame):
            raise RunFailed(f"{run.place / 'grid.csv'} has no row.")
        subject = ShownTask.of(run.spec, grid)
        grids[run.key, run.swap] = grid.of_model(subject.headline)
        arrays = numbers.arrays(grid, subject)
        notes = tuple(filter(None, (why, made, subject.missing, subject.left_out)))
        error = None if subject.left_out else numbers.in_training(arrays, subject)
        last = "; ".join(filter(None, (bound_words(run, history), attention_words(history))))
        return Seed(run.seed, state, "", notes, error, env, last), arrays, subject, history
    except LabError as reason:
        return Seed(run.seed, "damaged", str(reason), env=env), {}, None, history


def _flat(fields: Mapping[str, Any], path: str = "") -> list[tuple[str, str]]:
    found = []
    for name, value in fields.items():
        found += _flat(value, f"{path}{name}.") if isinstance(value, dict) else [(f"{path}{name}", in_words(value))]
    return found


def _look(name: str) -> dict[str, Any]:
    """The colour and the dashes of a normalizer, those of every figure."""
    style = styles([name])[name]
    dash = DASHES[style.dash] if isinstance(style.dash, str) else list(style.dash[1])
    return {"color": style.color, "dash": dash}

"""One run as the site shows it: what it is, where it stands, what made it, and its numbers; damage is a sentence."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from icl_lab.errors import LabError, RunFailed
from icl_lab.figures.base import short
from icl_lab.figures.styles import styles
from icl_lab.option_values import in_words
from icl_lab.runs import manifest
from icl_lab.runs.changes import differences
from icl_lab.runs.command import repeats
from icl_lab.runs.estimate import standing
from icl_lab.runs.floor import bound_words
from icl_lab.runs.run import Run
from icl_lab.runs.store import Store
from icl_lab.site import numbers
from icl_lab.site.names import address
from icl_lab.site.subject import Subject

DASHES = {"-": [], "--": [7, 4], ":": [2, 3], "-.": [8, 3, 2, 3]}


@dataclass(frozen=True)
class Card:
    """A run, or its test with another rule; of a damaged one what can still be told, and why it is damaged."""

    key: str
    kind: str = "run"
    name: str = ""
    task: str = ""
    preset: str = ""
    spec: str = ""
    seed: int = 0
    swap: str = ""
    differs: str = ""  # the fields in which it is not its preset
    again: str = ""  # the command that makes it, or reads it where it is there
    state: str = "finished"
    damage: str = ""
    date: str = ""
    at_home: str = ""  # the headline in training conditions
    metric: str = ""
    picture: str = ""
    notes: tuple[str, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    env: dict[str, Any] = field(default_factory=dict)
    sums: tuple[tuple[str, int, str], ...] = ()
    learned: tuple[Any, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name of its page and of its data."""
        return address(f"{self.key}/{self.swap}" if self.swap else self.key)

    @property
    def rule(self) -> str:
        """The rule without its options, to filter by."""
        return re.split(r"[:+]|->", self.name)[0]

    @cached_property
    def test(self) -> Sequence[tuple[str, str]]:
        """The fields of its test: runs with the same can be compared."""
        return [(name, value) for name, value in self.fields if name.startswith("test.")]

    @property
    def group(self) -> tuple[str, str, str, str]:
        """What all seeds of a specification have in common."""
        return self.task, self.name, self.spec, self.swap


def every(store: Store) -> Iterator[Card]:
    """Yields a card for each run of a store and for each of its tests with another rule; damaged ones too."""
    damages: list[str] = []
    for run in store.runs(damages.append):
        yield read(run)
        for rule in swaps(run):
            yield read(run.swapped(rule))
    for why in damages:
        yield Card(key=why, name="a folder of runs", state="damaged", damage=why)


def swaps(run: Run) -> list[str]:
    """Returns the rules that were put in the place of a run's own when it was tested again."""
    if run.kept is not None:
        grids = [name for name in run.kept.names if name.startswith("swap-") and name.endswith("/grid.csv")]
        return sorted({_tested(run.kept.read(name)) for name in grids} - {""})
    places = sorted(run.folder.glob("swap-*/grid.csv"))
    found = set()
    for path in places:
        try:
            found.add(_tested(path.read_bytes()))
        except OSError:
            found.add("")
    return sorted(found - {""})


def _tested(grid: bytes) -> str:
    """The rule that stands in the second column of a grid after ``->``; empty where there is none."""
    rows = csv.reader(grid.decode(errors="replace").splitlines()[1:2])
    name = next((row[1] for row in rows if len(row) > 1), "")
    return name.partition("->")[2]


def read(run: Run) -> Card:
    """Returns the card of a run. What cannot be read makes it a damaged one."""
    card = Card(
        key=run.key,
        kind="swap" if run.swap else "run",
        name=run.name,
        task=run.spec.task,
        preset=run.spec.preset,
        spec=run.spec.hash,
        seed=run.seed,
        swap=run.swap,
        # Of a rule that is not here, or does not fit the preset as it is, nobody can say.
        differs=" ".join(field for field in differences(run.spec) if not field.startswith("(")),
        again=repeats(run),
        fields=tuple(_flat(run.spec.whole())),
    )
    try:
        card = _trained(card, run)
        return _measured(card, run) if run.finished else card
    except LabError as reason:
        return replace(card, state="damaged", damage=str(reason))


def _trained(card: Card, run: Run) -> Card:
    """The card with what is known of the training."""
    history = run.history() if run.recorded else []
    env = run.env() if run.recorded else {}
    begun = "trained, not tested" if run.trained else f"at step {standing(run):,} of {run.spec.train.steps:,}"
    why = run.diverged
    return replace(
        card,
        state="diverged" if why else "evidence" if run.kept is not None else "finished" if run.finished else begun,
        notes=tuple(filter(None, [why, bound_words(run) if run.finished else ""])),
        env=env,
        date=str(env.get("finished", ""))[:10],
        sums=tuple(_sums(run)),
        learned=tuple(numbers.learned(history)),
        data={"history": numbers.training(history)} if history else {},
    )


def _measured(card: Card, run: Run) -> Card:
    """The card with the numbers of the test."""
    grid = run.grid()
    if not len(grid.frame):
        raise RunFailed(f"{run.place / 'grid.csv'} has no row.")
    subject = Subject.of(run.spec, grid)
    told = numbers.arrays(grid, subject)
    return replace(
        card,
        at_home="" if subject.left_out else _at_home(told, subject),
        metric=subject.metric_words.get(subject.headline, subject.headline),
        picture=numbers.thumbnail(told, subject),
        notes=(*card.notes, *filter(None, [subject.missing, subject.left_out])),
        data=card.data | told | {"task": subject.told({axis["name"]: axis["values"] for axis in told["axes"]})},
    )


def _at_home(told: dict[str, Any], subject: Subject) -> str:
    at = subject.told({axis["name"]: axis["values"] for axis in told["axes"]})["at"]
    flat = 0
    for axis in told["axes"]:
        flat = flat * len(axis["values"]) + at[axis["name"]]
    part = told["values"][told["model"]].get(subject.headline, {"v": [None]})
    value = part["v"][flat] if flat < len(part["v"]) else None
    return "" if value is None else "∞" if value == "inf" else short(float(value))


def _sums(run: Run) -> Iterator[tuple[str, int, str]]:
    """The size and the checksum of each file of a run, as it was written."""
    if run.kept is not None:
        for name in sorted(run.kept.names):
            size, digest = run.kept.layer.stamp(run.kept.key, name)
            yield name, size, digest
        return
    for name, stamp in sorted((manifest.read(run.place) or {}).items()):
        yield name, stamp.size, stamp.sha256


def _flat(fields: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", in_words(value)


def look(name: str) -> dict[str, Any]:
    """Returns the colour and the dashes of a rule, those of every figure."""
    style = styles([name])[name]
    dash = DASHES[style.dash] if isinstance(style.dash, str) else list(style.dash[1])
    return {"color": style.color, "dash": dash}

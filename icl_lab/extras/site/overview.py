"""The list of everything on the first page: experiments, studies and specifications, a row each."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_lab.extras.site.claims import Claims
from icl_lab.extras.site.names import address
from icl_lab.extras.site.specifications import Specification
from icl_lab.extras.site.studies import StudyPage

COLUMNS = (
    ("name", "What"),
    ("task", "Task"),
    ("preset", "Preset"),
    ("seeds", "Seeds"),
    ("kind", "Kind"),
    ("number", "Error in training conditions"),
    ("date", "Date"),
)
FILTERS = (("kind", "Kind"), ("task", "Task"), ("normalizer", "Normalizer"), ("preset", "Preset"))

EXAMPLES = 3  # overlays that the page opens with

Row = Mapping[str, Any]


def rows(
    claims: Claims, studies: Sequence[StudyPage], specifications: Sequence[Specification], damages: Sequence[str]
) -> list[Row]:
    """Return a row for each experiment with claims, each study, each specification and each unreadable folder."""
    experiments = (
        _row(
            kind="experiment",
            name=entries[0].made.title,
            told=f"{len(entries)} judged claims",
            task=entries[0].made.task,
            preset=", ".join(dict.fromkeys(entry.found.preset for entry in entries)),
            more=f"{name} {entries[0].made.paper}",
            link=f"experiments/{address(name)}.html",
        )
        for name, entries in claims.by("experiment").items()
    )
    damaged = (_row(kind="run", name="a folder of runs", told=f"Damaged: {why}", damaged=True) for why in damages)
    return [*experiments, *map(_study, studies), *map(_specification, specifications), *damaged]


def examples(specifications: Sequence[Specification]) -> list[tuple[str, str]]:
    """Return words and address of a few overlays: softmax and another normalizer, most seeds first."""
    plain = [spec for spec in specifications if not (spec.differs or spec.swap)]
    found = dict[str, tuple[str, str]]()
    for spec in sorted(plain, key=lambda spec: -len(spec.seeds)):
        beside = [each for each in plain if (each.task, each.preset) == (spec.task, spec.preset)]
        softmax = next((each for each in beside if each.normalizer == "softmax"), None)
        if softmax is not None and softmax is not spec and spec.task not in found:
            words = f"softmax and {spec.normalizer} on {spec.task} at {spec.preset}"
            found[spec.task] = words, f"overlay.html#run={softmax.id}&run={spec.id}"
    return list(found.values())[:EXAMPLES]


def filters(listed: Sequence[Row]) -> list[tuple[str, str, list[str]]]:
    """Return what the list can be filtered by: (field, words, its values)."""
    return [(name, words, sorted({row[name] for row in listed} - {""})) for name, words in FILTERS]


def _row(**fields: Any) -> Row:
    names = ("kind", "name", "told", "task", "normalizer", "preset", "seeds", "number", "value", "date", "more", "link")
    return {**dict.fromkeys(names, ""), "damaged": False, **fields}


def _study(study: StudyPage) -> Row:
    members = study.record.runs if study.record is not None else []
    tasks, presets = ({getattr(each, name) for each in members} for name in ("task", "preset"))
    return _row(
        kind="study",
        name=study.title,
        told=f"Damaged: {study.damage}" if study.damage else study.finding,
        task=next(iter(tasks)) if len(tasks) == 1 else "",
        preset=next(iter(presets)) if len(presets) == 1 else "",
        seeds=str(study.seeds or ""),
        more=f"{study.place} {study.paper} {' '.join(sorted({each.attn for each in members} | tasks))}",
        link=f"studies/{study.id}.html",
        damaged=bool(study.damage),
    )


def _specification(spec: Specification) -> Row:
    states = dict.fromkeys(seed.state for seed in spec.seeds)
    damage = "; ".join(seed.damage for seed in spec.seeds if seed.damage)
    begun = ", ".join(state for state in states if state not in ("finished", "evidence", "damaged"))
    known = [seed.error for seed in spec.seeds if seed.error is not None]
    return _row(
        kind="test with another normalizer" if spec.swap else "run",
        name=spec.name,
        told=f"Damaged: {damage}" if damage else "; ".join(filter(None, [spec.differs, begun])),
        task=spec.task,
        normalizer=spec.normalizer,
        preset=spec.preset,
        seeds=str(len(spec.seeds)),
        number=f"{min(known):.4g}" if known else "",
        value=spec.errors,
        date=spec.date,
        more=spec.spec,
        link=f"runs/{spec.id}.html",
        damaged=bool(damage),
    )

"""What lists and links of the site hold: the rows of the overview, who is compared with whom, who is used where."""

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_lab import tasks
from icl_lab.site import findings
from icl_lab.site.cards import Card
from icl_lab.site.findings import Findings
from icl_lab.site.studies import Study

COLUMNS = (
    ("name", "What"),
    ("task", "Task"),
    ("preset", "Preset"),
    ("seed", "Seed"),
    ("kind", "Kind"),
    ("number", "In training conditions"),
    ("date", "Date"),
    ("state", "State"),
)
FILTERS = (("kind", "Kind"), ("task", "Task"), ("rule", "Rule"), ("preset", "Preset"))
LEAGUE = "league-"

Members = list[tuple[str, str, str, list[tuple[int, str]], list[Card]]]


def overview(
    results: Path,
    cards: Sequence[Card],
    studies: Sequence[Study],
    groups: Mapping[str, Members],
    found: Findings,
    there: Container[str],
) -> dict[str, Any]:
    """Returns what the first page shows; ``groups`` as by ``members``, ``there`` the files that there are."""
    dates = {
        study.id: max((card.date for *_, here in groups[study.id] for card in here), default="") for study in studies
    }
    listed = [
        *(_study(study, dates[study.id], f"small/{study.id}.png" in there) for study in studies),
        *map(_run, cards),
    ]
    return {
        "results": results,
        "first": next(iter(tasks.names()), "TASK"),
        "rows": listed,
        "columns": COLUMNS,
        "filters": [(name, label, sorted({row[name] for row in listed} - {""})) for name, label in FILTERS],
        "findings": found,
        "tones": [findings.tone(entry) for entry in found.first],
        "leagues": [
            (study, [part for part in study.sections if part.table.head and part.title.startswith("Mean rank")])
            for study in studies
            if study.place.startswith(LEAGUE)
        ],
    }


def _run(card: Card) -> dict[str, Any]:
    page = bool(card.name and card.task)
    return {
        "kind": "test with another rule" if card.kind == "swap" else card.kind,
        "name": card.name,
        "told": card.damage or "; ".join(card.notes),
        "task": card.task,
        "rule": card.rule,
        "preset": card.preset,
        "seed": card.seed if page else "",
        "date": card.date,
        "number": _number(card.at_home),
        "value": card.at_home,
        "metric": card.metric,
        "more": f"{card.key} {card.env.get('commit', '')}",
        "state": card.state,
        "link": f"runs/{card.id}.html" if page else "",
        "picture": card.picture,
        "image": "",
    }


def _number(text: str) -> str:
    """What a short number is ordered by."""
    plain = text.replace("−", "-").replace("∞", "inf")
    return f"{float(plain[:-1]) * 1000:g}" if plain.endswith("k") else plain and f"{float(plain):g}"


def _study(study: Study, date: str, small: bool) -> dict[str, Any]:
    members = study.record.runs if study.record is not None else []
    tested, presets = ({getattr(each, name) for each in members} for name in ("task", "preset"))
    seeds = len({each.seed for each in members})
    return {
        "kind": study.kind if study.kind == "experiment" else "study",
        "name": study.title,
        "told": study.damage or study.finding,
        "task": next(iter(tested)) if len(tested) == 1 else "",
        "rule": "",
        "preset": next(iter(presets)) if len(presets) == 1 else "",
        "seed": f"{seeds} seed{'s' * (seeds > 1)}" if seeds else "",
        "date": date,
        "number": "",
        "value": "",
        "metric": "",
        "more": f"{study.place} {study.paper} {' '.join(sorted({each.attn for each in members} | tested))}",
        "state": "damaged" if study.damage else "",
        "link": f"studies/{study.id}.html",
        "picture": "",
        "image": f"small/{study.id}.png" if small else "",
    }


def comparable(cards: Sequence[Card]) -> list[dict[str, Any]]:
    """Returns the runs that can be set beside others, as the page that does it reads them."""
    return [
        {
            "id": card.id,
            "task": card.task,
            "name": card.name,
            "preset": card.preset,
            "spec": card.spec,
            "seed": card.seed,
            "swap": card.swap,
            "group": "/".join(card.group),
            "differs": card.differs,
        }
        for card in cards
        if card.data.get("axes")
    ]


def rivals(card: Card, cards: Sequence[Card], most: int = 40) -> list[tuple[str, str, int]]:
    """Returns (rule, link, seeds) of each other specification of the same task and preset with the same test."""
    groups: dict[tuple[str, ...], list[Card]] = defaultdict(list)
    own = []
    for other in cards:
        if other.data.get("axes") and (other.task, other.preset) == (card.task, card.preset):
            if other.group == card.group:
                own.append(other)
            elif other.test == card.test:
                groups[other.group].append(other)
    made = []
    for members in groups.values():
        differs = f" ({members[0].differs})" if members[0].differs else ""
        made.append((f"{members[0].name}{differs}", f"../{beside([*own, *members], root='')}", len(members)))
    return made[:most] if own else []


def beside(cards: Sequence[Card], root: str = "../") -> str:
    """Returns the link that sets runs side by side; empty where fewer than two can be, or of several tasks."""
    shown = list(dict.fromkeys(card.id for card in cards if card.data.get("axes")))
    if len(shown) < 2 or len({card.task for card in cards}) > 1:
        return ""
    return f"{root}compare.html#runs={','.join(shown)}"


def members(studies: Sequence[Study], cards: Sequence[Card]) -> dict[str, Members]:
    """Returns, for each study by its id, the groups of its runs.

    Of a group: (label, task, preset, seeds with the links of their runs, the runs that are here).
    """
    known = {(card.task, card.name.partition("->")[0], card.spec, card.seed, card.swap): card for card in cards}
    return {study.id: _members(study, known) for study in studies}


def _members(study: Study, known: Mapping[tuple[str, str, str, int, str], Card]) -> Members:
    groups: dict[tuple[str, str, str], tuple[list[tuple[int, str]], list[Card]]] = {}
    for each in study.record.runs if study.record is not None else []:
        found = known.get((each.task, each.attn, each.spec, each.seed, each.swap))
        seeds, here = groups.setdefault((each.label, each.task, each.preset), ([], []))
        seeds.append((each.seed, f"../runs/{found.id}.html" if found else ""))
        here += [found] if found else []
    return [(*group, seeds, here) for group, (seeds, here) in groups.items()]


def used(studies: Sequence[Study], groups: Mapping[str, Members]) -> dict[str, list[Study]]:
    """Returns for each run, by its id, the studies that it is in."""
    found: dict[str, list[Study]] = defaultdict(list)
    for study in studies:
        for *_, here in groups[study.id]:
            for card in here:
                if study not in found[card.id]:
                    found[card.id].append(study)
    return found

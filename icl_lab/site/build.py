"""The whole site: every page and file by its path. Nothing is written here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from icl_lab.figures.thumbnail import thumbnail
from icl_lab.option_values import in_words
from icl_lab.papers.ledger import Entry
from icl_lab.papers.verdicts import Finding
from icl_lab.runs import environment
from icl_lab.runs.store import Store
from icl_lab.site import cards, findings, pages, rows, studies
from icl_lab.site.cards import Card
from icl_lab.site.findings import Findings
from icl_lab.site.names import script
from icl_lab.site.studies import MOST_ROWS, Study

Site = dict[str, bytes | Path]  # path in the site -> what is there, or the file that it is a copy of
PAGES = (("index.html", "Overview"), ("findings.html", "Findings"), ("compare.html", "Compare"))
WORDS = {
    "finished": "Trained and tested here.",
    "evidence": "Read from the repository's evidence.",
    "damaged": "Something of it is damaged.",
    "diverged": "Its training diverged: every cell counts as wrong.",
}


def judged(store: Store, files: Path) -> Findings:
    """What the claims came to; takes seconds where much is stored."""
    return findings.judged(store, files)


@dataclass(frozen=True)
class Stock:
    """What a site is made of."""

    results: Path
    cards: Sequence[Card]
    studies: Sequence[Study]
    findings: Findings

    @cached_property
    def told(self) -> Sequence[tuple[Entry, Study | None]]:
        """Every entry of the ledger with its study."""
        return [(entry, self.study_of(entry)) for entry in self.findings.all]

    def study_of(self, entry: Entry) -> Study | None:
        """Returns the study that a verdict is read from, or, where grids tell it, the largest that has them all."""
        own, found = [s for s in self.studies if s.asked == (entry.experiment, entry.preset)], entry.finding
        if found.study is not None:
            return next((study for study in own if study.place.endswith(f"/{found.study.name}")), None)
        told = set(found.runs)
        has_all = [s for s in own if s.record and told <= {(run.spec, run.swap, run.seed) for run in s.record.runs}]
        return max(has_all, key=lambda study: len(study.record.runs) if study.record else 0, default=None)

    @cached_property
    def _cards(self) -> Mapping[tuple[str, str, int], Card]:
        """The runs, as verdicts name them."""
        return {(card.spec, card.swap, card.seed): card for card in self.cards}

    def of_finding(self, finding: Finding) -> list[Card]:
        """Returns the runs that a verdict rests on."""
        return [self._cards[run] for run in finding.runs if run in self._cards]

    @classmethod
    def of(cls, store: Store, files: Path, judge: Callable[[Store, Path], Findings] | None = None) -> "Stock":
        """Reads a results folder and the evidence; ``files`` holds the experiments, ``judge`` their findings."""
        roots = {"own": store.root}
        if store.layer is not None:
            roots["evidence"] = store.layer.root.parent
        runs = list(cards.every(store))
        return cls(store.root, runs, list(studies.every(roots, files)), (judge or judged)(store, files))


def build(stock: Stock) -> Site:
    """Returns the site."""
    common = {
        "pages": PAGES,
        "origin": environment.origin(),
    }
    known = {card.id: card for card in stock.cards}

    def page_of(entry: Entry) -> str:
        study = stock.study_of(entry)
        return f"studies/{study.id}.html" if study is not None else rows.beside(stock.of_finding(entry.finding), "")

    groups = rows.members(stock.studies, stock.cards)
    site: Site = dict(_assets())
    site |= _thumbnails(stock.studies)
    site["index.html"] = pages.render(
        "index.html",
        root="",
        here="index.html",
        **rows.overview(stock.results, stock.cards, stock.studies, groups, stock.findings, set(site)),
        page_of=page_of,
        **common,
    )
    site["findings.html"] = pages.render(
        "findings.html",
        root="",
        here="findings.html",
        findings=stock.findings,
        verdicts=list(dict.fromkeys(entry.finding.verdict for entry in stock.findings.all)),
        tone=findings.tone,
        page_of=page_of,
        **common,
    )
    site["compare.html"] = pages.render("compare.html", root="", here="compare.html", **common)
    site["data/runs.js"] = script("runs", "runs", rows.comparable(stock.cards))
    used = rows.used(stock.studies, groups)
    for card in known.values():
        if card.data:
            site[f"data/{card.id}.js"] = script("run", card.id, card.data | {"look": cards.look(card.name)})
        if card.name and card.task:
            site[f"runs/{card.id}.html"] = _run(card, stock, used, common)
    for study in stock.studies:
        site[f"studies/{study.id}.html"] = _study(study, stock, groups[study.id], common)
        for file in study.files:
            site[f"files/{study.id}/{file.name}"] = file.source
    return site


def _run(card: Card, stock: Stock, used: Mapping[str, Sequence[Study]], common: Mapping[str, Any]) -> bytes:
    alike = [other for other in stock.cards if other.group == card.group and other.key != card.key and other.data]
    about = used.get(card.id, [])
    told = ("commit", "finished", "device", "machine", "seconds", "python", "threads")
    env = [(name, str(card.env[name])) for name in told if name in card.env]
    versions = card.env.get("versions")
    if isinstance(versions, dict):
        env.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return pages.render(
        "run.html",
        root="../",
        here="",
        card=card,
        state=WORDS.get(card.state, f"Not finished: {card.state}."),
        others=alike,
        rivals=rows.rivals(card, stock.cards),
        attention=[(s.title, f"../studies/{s.id}.html") for s in about if s.kind == "attention"],
        studies=[(s.title, f"../studies/{s.id}.html") for s in about if s.kind != "attention"],
        env=env,
        again=card.again,
        **common,
    )


def _study(study: Study, stock: Stock, members: rows.Members, common: Mapping[str, Any]) -> bytes:
    entries = [entry for entry, home in stock.told if home is study]
    beside = [other for other in stock.studies if other is not study and other.asked[0] == study.asked[0] != ""]
    record = study.record
    setup = [("kind", study.kind)]
    if record is not None:
        setup += [(name, value) for name, value in (("commit", record.commit), ("machine", record.machine)) if value]
        setup += [(name, in_words(value)) for name, value in record.options.items() if value not in ("", [], None)]
    return pages.render(
        "study.html",
        root="../",
        here="",
        study=study,
        entries=entries,
        beside=beside,
        tone=findings.tone,
        runs=[(label, task, preset, seeds) for label, task, preset, seeds, _ in members],
        compare=rows.beside([card for *_, cards in members for card in cards]),
        setup=setup,
        most=MOST_ROWS,
        **common,
    )


def _assets() -> Site:
    """Scripts, styles and libraries, as they lie in the package."""
    found: Site = {}
    for folder in ("assets", "vendor"):
        for file in sorted(package_files("icl_lab.site").joinpath(folder).iterdir(), key=lambda each: each.name):
            found[f"{folder}/{file.name}"] = file.read_bytes()
    return found


def _thumbnails(chosen: Sequence[Study]) -> Site:
    """A small picture for each study that has one."""
    found: Site = {}
    for study in chosen:
        first = next(iter(study.ends(".png")), None)
        small = thumbnail(first.source) if first is not None else None
        if small is not None:
            found[f"small/{study.id}.png"] = small
    return found

"""The whole site: every page and file by its path. Nothing is written here."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import files as package_files
from pathlib import Path

from icl_lab import tasks
from icl_lab.analyses.publish import sections
from icl_lab.base.option_values import in_words
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.base.version import PACKAGE
from icl_lab.claims import card, ledger
from icl_lab.extras.site import cards, claims, document, overview, pages, specifications, studies
from icl_lab.extras.site.cards import NONE, Cards
from icl_lab.extras.site.claims import ClaimEntry, Claims, Forest
from icl_lab.extras.site.names import address, encoded, script
from icl_lab.extras.site.specifications import Grids, Specification
from icl_lab.extras.site.studies import MOST_ROWS, StudyPage
from icl_lab.runs import environment
from icl_lab.runs.allocator import give_back
from icl_lab.runs.store import Store

Site = dict[str, bytes | Path]  # path in the site -> its bytes, or the file that it is a copy of
Render = Callable[..., bytes]
PAGES = {"index.html": "Overview", "findings.html": "Claims", "runs.html": "Runs", "overlay.html": "Overlay"}
DOCS = PACKAGE.parent / "docs"  # not there where only the package is installed
README = DOCS.with_name("README.md")
WORDS = {"finished": "trained and tested here", "evidence": "read from the repository's evidence"}
ENV = ("device", "threads", "seconds", "commit")  # keys of a run's environment that are shown


@dataclass(frozen=True)
class Stock:
    """Contents of a site."""

    results: Path
    specifications: Sequence[Specification]
    damages: Sequence[str]
    studies: Sequence[StudyPage]
    claims: Claims
    cards: Cards = NONE

    @classmethod
    def of(
        cls,
        store: Store,
        files: Path,
        tick: Tick = silent,
        judge: Callable[[Store, Path, Tick, Grids], Claims] | None = None,
        cards: Cards = NONE,
    ) -> "Stock":
        """Read a results folder and the evidence; ``files`` holds the experiments, ``judge`` reads their claims."""
        roots = {"own": store.root}
        if store.archive is not None:
            roots["evidence"] = store.archive.root.parent
        grids: Grids = {}
        specs, damages = specifications.every(store, tick, grids)
        give_back()
        study_pages = list(studies.every(roots, files))
        judged = (judge or claims.judged)(store, files, tick, grids)
        return cls(store.root, specs, damages, study_pages, judged, cards)

    @property
    def damaged(self) -> int:
        """Number of damaged runs and studies."""
        seeds = sum(bool(seed.damage) for spec in self.specifications for seed in spec.seeds)
        return seeds + sum(bool(study.damage) for study in self.studies) + len(self.damages)

    @property
    def runs(self) -> int:
        """Number of runs, those of other normalizers in trained models among them."""
        return sum(len(spec.seeds) for spec in self.specifications)

    @cached_property
    def by_hash(self) -> Mapping[tuple[str, str], Specification]:
        """The specifications as verdicts and studies name them: by hash and the normalizer put in."""
        return {(spec.spec, spec.swap): spec for spec in self.specifications}

    def claims_of(self, study: StudyPage) -> list[ClaimEntry]:
        """Return the claims that are read from a study."""
        name = study.place.rpartition("/")[2]
        entries = (entry for entry in self.claims.all if (entry.found.experiment, entry.found.preset) == study.asked)
        return [entry for entry in entries if entry.found.study == name]

    def used(self, spec: Specification) -> list[tuple[str, str]]:
        """Return (title, page) of the experiments and studies that a specification is in."""
        return self._used.get((spec.spec, spec.swap), [])

    @cached_property
    def _used(self) -> Mapping[tuple[str, str], list[tuple[str, str]]]:
        pages_of = defaultdict[tuple[str, str], dict[tuple[str, str], None]](dict)
        for entry in self.claims.all:
            for training in entry.trainings:
                pages_of[training][entry.made.title, f"experiments/{address(entry.found.experiment)}.html"] = None
        for study in self.studies:
            for run in study.record.runs if study.record else ():
                pages_of[run.spec, run.swap][study.title, f"studies/{study.id}.html"] = None
        return {key: list(pages) for key, pages in pages_of.items()}


def build(stock: Stock, tick: Tick = silent) -> Site:
    """Return the site."""
    opening, findings = readme_parts()
    texts = {to: (DOCS / of).read_text() for of, to in document.PAGES.items() if (DOCS / of).exists()}
    titles = {name: document.title(text) for name, text in texts.items()}
    pictures = [each for text in (opening, *texts.values()) for each in document.pictures(text)]
    shown = PAGES | {name: title.partition(":")[0] for name, title in titles.items()}
    page = partial(pages.render, pages=shown, preview=document.pictures(opening)[-1:], origin=environment.origin())
    listed = overview.rows(stock.claims, stock.studies, stock.specifications, stock.damages)
    site: Site = _assets() | {picture: DOCS / picture for picture in pictures}
    site["index.html"] = page(
        "index.html",
        "index.html",
        results=stock.results,
        first=next(iter(tasks.names()), "TASK"),
        rows=listed,
        claims=stock.claims,
        marks=ledger.MARKS,
        legend=card.LEGEND,
        cards=stock.cards,
        page_of=cards.page,
        texts=titles,
        opening=document.html(opening),
        findings=document.html(findings),
    )
    columns, filters = overview.COLUMNS, overview.filters(listed)
    site["runs.html"] = page("runs.html", "runs.html", rows=listed, columns=columns, filters=filters)
    verdicts = sorted({each.badge for each in stock.claims.all})
    site["findings.html"] = page("findings.html", "findings.html", claims=stock.claims, verdicts=verdicts)
    examples = overview.examples(stock.specifications)
    site["overlay.html"] = page("overlay.html", "overlay.html", examples=examples)
    for name, text in texts.items():
        site[name] = page("document.html", name, title=titles[name], text=document.html(text))
    for name, entries in stock.claims.by("experiment").items():
        site |= _experiment(name, entries, stock, page)
    for study in stock.studies:
        site |= _study(study, stock, page)
    for made in stock.cards.cards:
        path, asked = cards.page(made), stock.cards.questions
        site[path] = page("card.html", path, card=made, parts=sections(made.lines()[1:]), questions=asked)
    for spec in counted(stock.specifications, "drawing pages", tick):
        site |= _specification(spec, stock, page)
    return site


def readme_parts() -> tuple[str, str]:
    """Return README's first sentence with its message and picture, and its findings; empty where there is no README."""
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    form = r"(?s)\n\n(.+?</picture>\n\n.+?\n\n).*?\n(## What was found\n.*?)\n\nIntervals hold"
    if not (found := re.search(form, text.replace("](docs/", "](").replace('"docs/', '"'))):
        return "", ""
    return f"\n{found[1]}", f"\n{found[2]}"


def _experiment(name: str, entries: Sequence[ClaimEntry], stock: Stock, page: Render) -> Site:
    compared = {each.preset: each for each in stock.claims.comparisons if each.experiment == name}
    drawn = [each for each in compared.values() if each.has_data]
    by_preset: dict[str, list[ClaimEntry]] = {}
    for entry in entries:
        by_preset.setdefault(entry.found.preset, []).append(entry)
    beside = [study for study in stock.studies if study.asked[0] == name]
    # The scale at which most claims are decided stands first.
    strongest = Counter(each.preset for each in ledger.strongest(entry.found for entry in entries))
    scales = sorted(by_preset.items(), key=lambda each: -strongest[each[0]])
    path = f"experiments/{address(name)}.html"
    site: Site = {f"data/{each.id}.js": script("comparison", each.id, encoded(each.data)) for each in drawn}
    site[path] = page(
        "experiment.html",
        path,
        name=name,
        made=entries[0].made,
        forests=Forest.each(entries),
        scales=[(preset, here, compared.get(preset)) for preset, here in scales],
        known=stock.by_hash,
        study_of={study.place.rpartition("/")[2]: study for study in beside},
        beside=beside,
        drawn=drawn,
    )
    return site


def _specification(spec: Specification, stock: Stock, page: Render) -> Site:
    site: Site = {}
    if spec.drawn:
        site[f"data/{spec.id}.js"] = script("run", spec.id, spec.data)
    env = [name for name in ENV if any(name in seed.env for seed in spec.seeds)]
    path = f"runs/{spec.id}.html"
    site[path] = page("specification.html", path, spec=spec, words=WORDS, used=stock.used(spec), env=env)
    return site


def _study(study: StudyPage, stock: Stock, page: Render) -> Site:
    beside = [other for other in stock.studies if other is not study and other.asked[0] == study.asked[0] != ""]
    record, groups = study.record, dict[tuple[str, str, str, str, str], list[int]]()
    for run in record.runs if record else ():
        groups.setdefault((run.label, run.task, run.preset, run.spec, run.swap), []).append(run.seed)
    here = [each for each in stock.claims.all if each.found.experiment == study.asked[0]]
    setup = [("kind", study.kind)]
    if record is not None:
        setup += [(name, value) for name, value in (("commit", record.commit), ("machine", record.machine)) if value]
        setup += [(name, in_words(value)) for name, value in record.options.items() if value not in ("", [], None)]
    path = f"studies/{study.id}.html"
    site: Site = {f"files/{study.id}/{each.name}": each.source for each in study.files}
    site[path] = page(
        "study.html",
        path,
        study=study,
        entries=stock.claims_of(study),
        beside=beside,
        experiment=next((each.page.partition("#")[0] for each in here), ""),
        groups=groups,
        known=stock.by_hash,
        setup=setup,
        most=MOST_ROWS,
    )
    return site


def _assets() -> Site:
    """Scripts, styles and libraries, as in the package."""
    assets: Site = {}
    for folder in ("assets", "vendor"):
        for file in sorted(package_files("icl_lab.extras.site").joinpath(folder).iterdir(), key=lambda path: path.name):
            assets[f"{folder}/{file.name}"] = file.read_bytes()
    return assets

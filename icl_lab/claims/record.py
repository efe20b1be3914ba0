"""All claims at all scales: read from ``results/claims.csv`` where nothing has changed, else judged and written there.

One row per claim and scale at which its experiment has runs, each with the checksum of its runs, studies and file.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from icl_lab.base.errors import RunFailed
from icl_lab.base.files import sha256, write
from icl_lab.base.progress import Tick, counted, silent
from icl_lab.claims import ledger, registration
from icl_lab.claims.files import names
from icl_lab.claims.ledger import Finding
from icl_lab.comparison import blocks
from icl_lab.comparison.verdict import State
from icl_lab.runs import study_folder
from icl_lab.runs.evidence.archive import INDEX, OWN, Archive
from icl_lab.runs.presets import PRESETS

if TYPE_CHECKING:
    from icl_lab.runs.store import Store

RUNS = "runs"  # of a results folder


def basis(files: Path, store: "Store") -> str:
    """SHA-256, shortened, of all that the record is judged from: experiment files, the evidence, its studies.

    Empty where the evidence is not all, since the results folder has its own runs or studies.
    """
    return "" if store.archive is None or _own_places(store) else _basis(files, store.archive)


def _basis(files: Path, archive: Archive) -> str:
    results = archive.root.parent
    paths = [*sorted(files.glob("*.toml")), files / registration.NAME, archive.root / INDEX]
    sums = {path.name: sha256(path.read_bytes()) if path.exists() else "" for path in paths}
    studies = {place: study_folder.read(place) for place in sorted(results.glob("experiments/*/"))}
    sums |= {place.name: study.numbers for place, study in studies.items() if study is not None}
    return sha256(json.dumps([ledger.VERSION, sums]).encode())[:16]


def _in_repository(store: "Store") -> bool:
    return store.archive is not None and store.root == store.archive.root.parent


def _own_places(store: "Store") -> list[Path]:
    """Folders of own runs and own studies that there are."""
    return [place for name in (RUNS, f"{OWN}/experiments") if (place := store.root / name).exists()]


def _has_own(name: str, task: str, store: "Store", preset: str) -> bool:
    """True if the results folder has runs of the experiment's task at a preset, or a study of the experiment."""
    places = [f"{RUNS}/{task.partition(':')[0]}*/*/{preset}-*", f"{OWN}/experiments/{name}-{preset}*"]
    if not _in_repository(store):
        places.append(f"experiments/{name}-{preset}*")
    return any(next(store.root.glob(place), None) is not None for place in places)


def unchanged(files: Path, store: "Store", presets: Iterable[str]) -> list[Finding] | None:
    """Return the record's findings at the presets at which there are runs; None where it may not be read as it is.

    That is where experiments or evidence have changed since, or the results folder has a run or a study.
    """
    if _own_places(store) or not _current(files, store):
        return None
    there = [preset for preset in presets if store.has(preset)]
    return [each for (_, preset), kept in ledger.stored(store).items() if preset in there for each in kept]


def _current(files: Path, store: "Store") -> bool:
    return store.archive is not None and ledger.recorded_basis(store) == _basis(files, store.archive)


def everything(
    files: Path, store: "Store", presets: Iterable[str], tick: Tick = silent
) -> tuple[list[Finding], dict[str, list[str]]]:
    """Return the findings on all claims at the presets at which there are runs, and remarks by experiment.

    Those on experiments of which the results folder has no run and no study are the record's, where neither the
    experiments nor the evidence have changed since; others are judged now.
    """
    presets = list(presets)
    if (kept := unchanged(files, store, presets)) is not None:
        return kept, {}
    from icl_lab.claims import cost, experiment, judge  # and all analyses, not needed where nothing has changed

    recorded, current = ledger.stored(store), _current(files, store)
    there, found, remarks = [preset for preset in presets if store.has(preset)], list[Finding](), dict[str, list[str]]()
    costs = {preset: cost.Costs(store, preset) for preset in there}
    for name in counted(names(files), "judging claims", tick, str):
        task = experiment.read(name, files).task
        for preset in there:
            if current and not _has_own(name, task, store, preset):
                found += recorded.get((name, preset), [])
                continue
            notes, judged = judge.recorded(name, files, store, preset, recorded, costs[preset])
            found += judged
            remarks.setdefault(name, []).extend(f"  {preset}: {note}" for note in notes)
    return with_runs(found), remarks


def with_runs(findings: Iterable[Finding]) -> list[Finding]:
    """Return those on each experiment at the presets at which a claim of it has runs; at the first if at none."""
    every = list(findings)
    run = {(each.experiment, each.preset) for each in every if each.state is not State.NOT_RUN}
    begun, first = {name for name, _ in run}, {each.experiment: each.preset for each in reversed(every)}
    run |= {(name, preset) for name, preset in first.items() if name not in begun}
    return [each for each in every if (each.experiment, each.preset) in run]


def written(files: Path, store: "Store", presets: Iterable[str] = PRESETS, tick: Tick = silent) -> dict[str, str]:
    """Judge all claims at all scales at which there are runs, and return the record's files; trains nothing.

    Registration, which verdicts depend on, is written first, in a whole clone. The correlation of seeds within a block
    is measured on the same claims, and enters their intervals. Raises ``RunFailed`` where nothing is stored, and where
    own runs or studies would be mixed into the evidence.
    """
    if _in_repository(store) and (own := _own_places(store)):
        raise RunFailed(
            f"{own[0]} is your own: the record is of the evidence alone. Take what is there into the evidence "
            "(evidence add, evidence add-studies), or move it away."
        )
    here = [preset for preset in presets if store.has(preset)]
    if here and registration.complete(files):
        write(files / registration.NAME, registration.table(files).encode())
    found = _judged_at(here, files, store, 0.0, tick)
    if not found:
        raise RunFailed(f"no run of an experiment is stored in {store.root} or in the evidence: nothing to record.")
    samples = [(each.gaps, each.blocks) for each in found if each.blocks]
    correlation = blocks.correlation(samples)
    if correlation > 0:  # NaN where no claim has several blocks
        found = _judged_at(here, files, store, correlation, tick)
    text = ledger.encode(with_runs(ledger.rated(found)))
    several = sum(len(set(seeds)) > 1 for _, seeds in samples)
    made = ledger.basis_text(basis(files, store), several, correlation, text)
    return {ledger.NAME: text, ledger.BASIS: made}


def _judged_at(presets: Sequence[str], files: Path, store: "Store", correlation: float, tick: Tick) -> list[Finding]:
    """All claims at each preset, with what they were judged from; those about variants that do not fit are left out."""
    from icl_lab.claims import cost, experiment, judge

    found, every = list[Finding](), [experiment.load(name, files) for name in names(files)]
    for preset in counted(presets, "judging claims", tick, str):
        costs = cost.Costs(store, preset)
        for whole in every:
            sides, _ = judge.fitted(whole, store, preset)
            basis = judge.checksum(sides) if sides.experiment.claims else ""
            found += [replace(each, judged_from=basis) for each in judge.findings(sides, costs, correlation)]
    return found

"""``results/claims.csv``: every number that a verdict of the repository rests on, so that only what changed is judged.

One row a claim and scale at which its experiment has runs: the columns of ``ledger.table_csv``, verdict and effect in
words, the specifications of its models, and the checksum of what it was judged from.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from icl_lab.comparison import blocks
from icl_lab.comparison.verdict import State
from icl_lab.errors import RunFailed
from icl_lab.evidence.archive import INDEX, OWN, Archive
from icl_lab.files import sha256
from icl_lab.papers import claims, cost, folders, ledger, registration
from icl_lab.papers import experiment as experiments
from icl_lab.papers.finished import Finished
from icl_lab.papers.ledger import JudgedClaim, Row
from icl_lab.papers.schema import Experiment
from icl_lab.progress import Tick, counted, silent
from icl_lab.runs import study_folder
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store

NAME = claims.RECORD
RUNS = "runs"  # of a results folder
VERSION = 3  # raised when claims are judged otherwise than before from the same numbers
JUDGED_FROM = "judged_from"

Recorded = Mapping[tuple[str, str], Sequence[Row]]  # by experiment and preset


def checksum(name: str, experiment: Experiment, store: Store, preset: str) -> str:
    """SHA-256, shortened, of what an experiment's claims are judged from: its file, finished runs and studies."""
    finished = Finished(experiment, store, preset)
    registered = sorted((claim, time.isoformat()) for claim, time in experiment.registered.items())
    parts: list[object] = [VERSION, experiment.sha256, registered, claims.seed_correlation(store)]
    for variant in experiment.variants:
        spec = finished.specs[variant.name]
        for seed in sorted(store.seeds(spec)):
            # Whether a model has learned its task is read from the test with its own normalizer.
            runs = (store.run(spec, seed, variant.tested_with), finished.tested_by(variant.name, seed))
            parts += [[each.key, each.swap, each.checksums()] for each in runs if each.finished]
    if experiment.question() is not None:
        studies = (study_folder.read(place) for place in folders.of(name, store, preset))
        parts += [study.numbers for study in studies if study is not None]
    ordered = json.dumps(sorted(parts, key=json.dumps))
    return sha256(ordered.encode())[:16]


def stored(store: Store) -> dict[tuple[str, str], list[Row]]:
    """Returns the rows of the repository's record by experiment and preset; nothing where there is none.

    Raises ``RunFailed`` where the file is no such record.
    """
    path = None if store.archive is None else store.archive.root.parent / NAME
    if path is None or not path.exists():
        return {}
    claims.recorded_basis(store)  # which checks the seal
    found = dict[tuple[str, str], list[Row]]()
    try:
        for row in csv.DictReader(io.StringIO(path.read_text())):
            found.setdefault((row["experiment"], row["preset"]), []).append(row)
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise RunFailed(f"{path} cannot be read: {error}; take it from the repository again.") from error
    return found


def basis(files: Path, store: Store) -> str:
    """SHA-256, shortened, of all that the record is judged from: experiment files, the evidence, its studies.

    Empty where the evidence is not all, since the results folder has runs or studies of its own.
    """
    return "" if store.archive is None or _own_places(store) else _basis(files, store.archive)


def _basis(files: Path, archive: Archive) -> str:
    results = archive.root.parent
    paths = [*sorted(files.glob("*.toml")), files / registration.NAME, archive.root / INDEX]
    sums = {path.name: sha256(path.read_bytes()) if path.exists() else "" for path in paths}
    studies = {place: study_folder.read(place) for place in sorted(results.glob("experiments/*/"))}
    sums |= {place.name: study.numbers for place, study in studies.items() if study is not None}
    return sha256(json.dumps([VERSION, sums]).encode())[:16]


def _beside_evidence(store: Store) -> bool:
    return store.archive is not None and store.root == store.archive.root.parent


def _own_places(store: Store) -> list[Path]:
    """Folders of own runs and own studies that there are."""
    return [place for name in (RUNS, f"{OWN}/experiments") if (place := store.root / name).exists()]


def _has_own(name: str, task: str, store: Store, preset: str) -> bool:
    """True if the results folder has runs of the experiment's task at a preset, or a study of the experiment."""
    places = [f"{RUNS}/{task.partition(':')[0]}*/*/{preset}-*", f"{OWN}/experiments/{name}-{preset}*"]
    if not _beside_evidence(store):
        places.append(f"experiments/{name}-{preset}*")
    return any(next(store.root.glob(place), None) is not None for place in places)


def current(name: str, experiment: Experiment, store: Store, preset: str, rows: Sequence[Row]) -> bool:
    """True where the rows of an experiment at a scale are about its present claims, judged from what is there now."""
    if [row["claim"] for row in rows] != [claim.statement for claim in experiment.claims]:
        return False
    sums = {row[JUDGED_FROM] for row in rows}
    return sums == {checksum(name, experiment, store, preset)}


def everything(
    files: Path, store: Store, presets: Iterable[str], tick: Tick = silent
) -> tuple[list[Row], dict[str, list[str]]]:
    """Returns the verdicts on all claims at the presets at which there are runs, and remarks by experiment.

    The record is read as it is for experiments of which the results folder has no run and no study of its own, as long
    as neither the experiments nor the evidence have changed since.
    """
    recorded, known = stored(store), claims.recorded_basis(store)
    there, found, remarks = [preset for preset in presets if store.has(preset)], list[Row](), dict[str, list[str]]()
    unchanged = store.archive is not None and known == _basis(files, store.archive)
    if unchanged and not _own_places(store):
        return [row for (_, preset), rows in recorded.items() if preset in there for row in rows], {}
    costs = {preset: cost.Costs(store, preset) for preset in there}
    for name in counted(experiments.names(files), "judging claims", tick, str):
        task = experiments.load(name, files).task
        for preset in there:
            if unchanged and not _has_own(name, task, store, preset):
                found += recorded.get((name, preset), [])
                continue
            _, notes, judged_rows = rows(name, files, store, preset, recorded, costs[preset])
            found += judged_rows
            remarks.setdefault(name, []).extend(f"  {preset}: {note}" for note in notes)
    return with_runs(found), remarks


def with_runs(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows of each experiment at the presets at which a claim of it has runs; at the first if at none."""
    table = list(rows)
    run = {(row["experiment"], row["preset"]) for row in table if row["state"] != State.NOT_RUN}
    begun, first = {name for name, _ in run}, {row["experiment"]: row["preset"] for row in reversed(table)}
    run |= {(name, preset) for name, preset in first.items() if name not in begun}
    return [row for row in table if (row["experiment"], row["preset"]) in run]


def rows(
    name: str, files: Path, store: Store, preset: str, recorded: Recorded, costs: cost.Costs
) -> tuple[Experiment, list[str], Sequence[Row]]:
    """Returns an experiment as it fits a preset, remarks, and its verdicts: the record's, or judged now."""
    made, left_out = experiments.fitting(experiments.load(name, files), preset)
    known = recorded.get((name, preset), [])
    if known and current(name, made, store, preset, known):
        return made, [*left_out, *claims.remarks(name, made, store, preset)], known
    made, left_out, found = claims.stored(name, files, store, preset, costs)
    return made, left_out, judged(ledger.of(name, made, preset, found))


def judged(entries: Iterable[JudgedClaim]) -> list[dict[str, str]]:
    """Returns entries as rows of the record, without the checksum of what they were judged from."""
    judged_entries = list(entries)
    rows = list(csv.DictReader(io.StringIO(ledger.table_csv(judged_entries))))
    for row, entry in zip(rows, judged_entries, strict=True):
        specs = " ".join(f"{spec}->{swap}" if swap else spec for spec, swap in entry.finding.about)
        row |= {"verdict": entry.finding.verdict_words, "words": entry.finding.words, "specs": specs}
    return rows


def written(files: Path, store: Store, presets: Iterable[str] = PRESETS, tick: Tick = silent) -> dict[str, str]:
    """Judges all claims at all scales at which there are runs, and returns the record's files; trains nothing.

    The correlation of seeds within a block is measured on the same claims, and enters their intervals. Raises
    ``RunFailed`` where nothing is stored, and where own runs or studies beside the evidence would be mixed into it.
    """
    if _beside_evidence(store) and (own := _own_places(store)):
        raise RunFailed(
            f"{own[0]} is your own: the record is of the evidence alone. Take what is there into the evidence "
            "(evidence add, evidence add-studies), or move it away."
        )
    here = [preset for preset in presets if store.has(preset)]
    entries = _judged_at(here, files, store, 0.0, tick)
    if not entries:
        raise RunFailed(f"no run of an experiment is stored in {store.root} or in the evidence: nothing to record.")
    samples = [(each.finding.gaps, each.finding.blocks) for each in entries if each.finding.blocks]
    found = blocks.correlation(samples)
    if found > 0:  # NaN where no claim has several blocks
        entries = _judged_at(here, files, store, found, tick)
    entries = ledger.rated(entries)
    kept = with_runs(judged(entries))
    sums = _checksums(kept, files, store)
    table = [{**row, JUDGED_FROM: sums[row["experiment"], row["preset"]]} for row in kept]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    several = sum(len(set(names)) > 1 for _, names in samples)
    made = claims.basis_text(basis(files, store), several, found, text.getvalue())
    return {NAME: text.getvalue(), claims.BASIS: made}


def _judged_at(presets: Sequence[str], files: Path, store: Store, correlation: float, tick: Tick) -> list[JudgedClaim]:
    entries = list[JudgedClaim]()
    for preset in counted(presets, "judging claims", tick, str):
        entries += ledger.at(files, store, preset, correlation)
    return entries


def _checksums(rows: Iterable[Row], files: Path, store: Store) -> dict[tuple[str, str], str]:
    found = dict[tuple[str, str], str]()
    for name, preset in dict.fromkeys((row["experiment"], row["preset"]) for row in rows):
        made = experiments.fitting(experiments.load(name, files), preset)[0]
        found[name, preset] = checksum(name, made, store, preset)
    return found

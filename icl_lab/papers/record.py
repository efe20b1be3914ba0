"""``results/claims.csv``: every number that a verdict of the repository rests on, so that only what changed is judged.

One row a claim and scale: the columns of ``ledger.table_csv``, the verdict in words, the specifications of its models,
and the checksum of what it was judged from.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from icl_lab.errors import RunFailed
from icl_lab.papers import claims, cost, folders, ledger
from icl_lab.papers import experiment as experiments
from icl_lab.papers.finished import Finished
from icl_lab.papers.ledger import Entry
from icl_lab.papers.schema import Experiment
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store
from icl_lab.runs.study_folder import RECORD

NAME = "claims.csv"
VERSION = 1  # raised when claims are judged otherwise than before from the same numbers
JUDGED_FROM = "judged_from"

Row = Mapping[str, str]
Recorded = Mapping[tuple[str, str], Sequence[Row]]  # by experiment and preset


def checksum(name: str, experiment: Experiment, store: Store, preset: str) -> str:
    """SHA-256, shortened, of what an experiment's claims are judged from: its file, finished runs and studies."""
    finished = Finished(experiment, store, preset)
    parts: list[object] = [VERSION, experiment.sha256]
    for variant in experiment.variants:
        spec = finished.specs[variant.name]
        for seed in sorted(store.seeds(spec)):
            # Whether a model has learned its task is read from the test with its own normalizer.
            runs = (store.run(spec, seed, variant.tested_with), finished.tested_by(variant.name, seed))
            parts += [[each.key, each.swap, each.checksums()] for each in runs if each.finished]
    if experiment.question() is not None:
        studies = (place / RECORD for place in folders.of(name, store, preset))
        parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in studies if path.exists()]
    ordered = json.dumps(sorted(parts, key=json.dumps))
    return hashlib.sha256(ordered.encode()).hexdigest()[:16]


def stored(store: Store) -> dict[tuple[str, str], list[Row]]:
    """Returns the rows of the repository's record by experiment and preset; nothing where there is none.

    Raises ``RunFailed`` where the file is no such record.
    """
    path = None if store.archive is None else store.archive.root.parent / NAME
    if path is None or not path.exists():
        return {}
    found = dict[tuple[str, str], list[Row]]()
    try:
        for row in csv.DictReader(io.StringIO(path.read_text())):
            found.setdefault((row["experiment"], row["preset"]), []).append(row)
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise RunFailed(f"{path} cannot be read: {error}; take it from the repository again.") from error
    return found


def current(name: str, experiment: Experiment, store: Store, preset: str, rows: Sequence[Row]) -> bool:
    """True where the rows of an experiment at a scale are about its present claims, judged from what is there now."""
    if [row["claim"] for row in rows] != [claim.statement for claim in experiment.claims]:
        return False
    sums = {row[JUDGED_FROM] for row in rows}
    return sums == {checksum(name, experiment, store, preset)}


def text(name: str, experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Lines of ``claims.text``, from the record."""
    verdicts = ((row["verdict"], row["words"], row["outlook"]) for row in rows)
    return claims.lines(name, experiment, verdicts)


def rows(
    name: str, files: Path, store: Store, preset: str, recorded: Recorded, costs: cost.Costs
) -> tuple[Experiment, list[str], Sequence[Row]]:
    """Returns an experiment as it fits a preset, remarks, and its verdicts: the record's, or judged now."""
    made, left_out = experiments.fitting(experiments.load(name, files), preset)
    known = recorded.get((name, preset), [])
    if known and current(name, made, store, preset, known):
        return made, [*left_out, *claims.remarks(name, made, store, preset)], known
    made, left_out, found = claims.stored(name, files, store, preset, costs)
    entries = [Entry(experiment=name, paper=made.paper, preset=preset, finding=each) for each in found]
    return made, left_out, judged(entries)


def judged(entries: Iterable[Entry]) -> list[dict[str, str]]:
    """Returns entries as rows of the record, without the checksum of what they were judged from."""
    judged_entries = list(entries)
    rows = list(csv.DictReader(io.StringIO(ledger.table_csv(judged_entries))))
    for row, entry in zip(rows, judged_entries, strict=True):
        specs = " ".join(f"{spec}->{swap}" if swap else spec for spec, swap in entry.finding.about)
        row |= {"words": entry.finding.words, "specs": specs}
    return rows


def written(files: Path, store: Store, presets: Iterable[str] = PRESETS) -> str:
    """Judges all claims at all scales at which there are runs, and returns the record; trains nothing."""
    table = list[dict[str, str]]()
    for preset in presets:
        if store.has(preset):
            entries = ledger.at(files, store, preset)
            sums = _checksums(entries, files, store, preset)
            table += [row | {JUDGED_FROM: sums[row["experiment"]]} for row in judged(entries)]
    if not table:
        raise RunFailed(f"no run of an experiment is stored in {store.root} or in the evidence: nothing to record.")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def _checksums(entries: Iterable[Entry], files: Path, store: Store, preset: str) -> dict[str, str]:
    names = dict.fromkeys(entry.experiment for entry in entries)
    made = {name: experiments.fitting(experiments.load(name, files), preset)[0] for name in names}
    return {name: checksum(name, each, store, preset) for name, each in made.items()}

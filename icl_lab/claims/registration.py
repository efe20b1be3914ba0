"""Registration of claims: the commit since which a claim has its present sides, cells, metric and relation.

Seeds that were finished before a claim was registered may have suggested it, so that they do not judge it. Git knows
the commit; a shallow clone does not have it, so that ``icl-lab claims --record`` writes it into
``experiments/registered.csv``.
"""

import csv
import io
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from icl_lab.base import foreign
from icl_lab.base.errors import RunFailed
from icl_lab.base.files import sha256
from icl_lab.claims.schema import Claim

NAME = "registered.csv"
COLUMNS = ("experiment", "claim", "commit", "time")

Registered = Mapping[tuple[str, str], datetime]  # by experiment and by ``digest``


@dataclass(frozen=True)
class Version:
    """One committed version of an experiment file: the digests of the claims that it makes."""

    commit: str
    time: str
    digests: frozenset[str]


def digest(claim: Claim) -> str:
    """SHA-256, shortened, of what a claim is judged by: both sides with their cells, the relation, the metric."""
    return _digest(msgspec.to_builtins(claim))


def _digest(claim: Mapping[str, Any]) -> str:
    sides = [[claim[side]["of"], _cells(claim[side].get("cells", {}))] for side in ("left", "right")]
    text = msgspec.json.encode([*sides, claim["is"], claim.get("metric", "")])
    return sha256(text)[:12]


def _cells(cells: Mapping[str, Sequence[float]]) -> list[list[Any]]:
    return [[axis, [float(value) for value in values]] for axis, values in sorted(cells.items())]


def read(files: Path) -> Registered:
    """Return the times at which the claims of a folder of experiments were registered; nothing where it has no record.

    Raises ``RunFailed`` where the record cannot be read.
    """
    path = files / NAME
    return _read(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> Registered:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text())))
        return {(row["experiment"], row["claim"]): datetime.fromisoformat(row["time"]) for row in rows}
    except (OSError, UnicodeDecodeError, KeyError, ValueError, csv.Error) as error:
        raise RunFailed(f"{path} cannot be read: {error}; take it from the repository again.") from error


def complete(files: Path) -> bool:
    """Return True if git has the whole history of a folder of experiments."""
    try:
        return _git(files, "rev-parse", "--is-shallow-repository").strip() == "false"
    except RunFailed:
        return False


def table(files: Path) -> str:
    """Return the record as CSV, from the history of git: the oldest commit since which a file makes each claim.

    Raises ``RunFailed`` where the folder is in no repository of git, or in a shallow clone of one.
    """
    if not complete(files):
        raise RunFailed(f"{files}: only a whole clone of git knows when claims were registered: git fetch --unshallow.")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for path in sorted(files.glob("*.toml")):
        versions = list(history(path))
        made = tomllib.loads(foreign.shallow(foreign.read(path)))
        for claim in dict.fromkeys(_digest(claim) for claim in made.get("claims", [])):
            if since := registered_in(claim, versions):
                writer.writerow([path.stem, claim, since.commit, since.time])
    return text.getvalue()


def registered_in(claim: str, versions: Sequence[Version]) -> Version | None:
    """Return the oldest version, of versions newest first, since which each one makes the claim; None if none does."""
    since = None
    for version in versions:
        if claim not in version.digests:
            break
        since = version
    return since


def history(path: Path) -> Iterator[Version]:
    """Yield the committed versions of an experiment file, newest first."""
    log = _git(path.parent, "log", "--format=%H %cI", "--", path.name)
    for line in log.splitlines():
        commit, time = line.split()
        try:
            made = tomllib.loads(foreign.shallow(_git(path.parent, "show", f"{commit}:./{path.name}").encode()))
        except (RunFailed, ValueError):  # removed in this commit, or committed broken: it makes no claim
            made = {}
        try:
            digests = frozenset(_digest(claim) for claim in made.get("claims", []))
        except (KeyError, TypeError, AttributeError):  # of an older schema, which tells nothing of the present claims
            digests = frozenset()
        yield Version(commit[:12], time, digests)


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise RunFailed(f"git {words[0]} in {folder}: {reason.strip()}") from error
    return done.stdout

"""Registration of claims: the commit since which a claim is about its present models, cells, metric and margin.

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
from icl_lab.base.errors import LabError, RunFailed
from icl_lab.base.files import sha256

NAME = "registered.csv"
COLUMNS = ("experiment", "claim", "commit", "time")

Registered = Mapping[tuple[str, str], datetime]  # by experiment and by one of ``digests``


@dataclass(frozen=True)
class Version:
    """One committed version of an experiment file: the digests of the claims that it makes."""

    commit: str
    time: str
    digests: frozenset[str]


def digests(experiment: Mapping[str, Any]) -> list[str]:
    """SHA-256, shortened, of all that each claim of an experiment file is judged by.

    The treatment of both sides (normalizer, task and settings of their variants, draws, rates, the analysis with its
    options), their cells, the relation, the metric and the margin: a variant that keeps its name and is trained
    otherwise makes another claim. A reference is measured beside the baseline. Raises ``KeyError``, ``TypeError`` or
    ``AttributeError`` for a file of another schema.
    """
    variants = {variant["name"]: variant for variant in experiment["variants"]}
    usual = {"draws": "ours", "rates": "shared", "analysis": "compare", "options": {}}
    common = [experiment["task"], *(experiment.get(name, default) for name, default in usual.items())]

    def side(quantity: Mapping[str, Any]) -> list[Any]:
        variant = variants.get(quantity["of"].rpartition(":")[2]) or variants[experiment["baseline"]]
        settings = dict(text.split("=", 1) for text in (*experiment.get("set", ()), *variant.get("set", ())))
        rules = [_canonical(variant.get(name, "")) for name in ("attn", "swap")]
        cells = [[axis, [float(v) for v in values]] for axis, values in sorted(quantity.get("cells", {}).items())]
        return [quantity["of"], cells, *rules, variant.get("task", ""), sorted(settings.items())]

    texts = (  # TOML may write a margin of 2.0 as 2
        [
            side(claim["left"]),
            side(claim["right"]),
            claim["is"],
            claim.get("metric", ""),
            float(claim.get("margin") or 0),
        ]
        for claim in experiment.get("claims", ())
    )
    return [sha256(msgspec.json.encode([*text, *common]))[:12] for text in texts]


@lru_cache(maxsize=1024)
def _canonical(attn: str) -> str:
    """The one spelling of a normalizer; a name that is no longer known as it stands."""
    from icl_lab import normalizers  # and torch with it, which readers of the record do without

    try:
        return normalizers.canonical(attn) if attn else ""
    except LabError:
        return attn


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
        for claim in dict.fromkeys(digests(tomllib.loads(foreign.shallow(foreign.read(path))))):
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
            claims = frozenset(digests(made))
        # Removed in this commit, committed broken, or of an older schema: it makes none of the present claims.
        except (RunFailed, ValueError, KeyError, TypeError, AttributeError):
            claims = frozenset()
        yield Version(commit[:12], time, claims)


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise RunFailed(f"git {words[0]} in {folder}: {reason.strip()}") from error
    return done.stdout

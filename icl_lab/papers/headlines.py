"""Which claims the README shows: for each paper those that its title rests on, and our controls of them."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from icl_lab import markdown as md
from icl_lab.errors import UnknownName
from icl_lab.papers import claims
from icl_lab.papers.experiment import load, names
from icl_lab.papers.verdicts import Finding
from icl_lab.runs.store import Store

PRESET = "lite"  # the scale of the repository's runs

# Experiment -> statements of its claims, in the order in which they are shown.
HEADLINES: dict[str, tuple[str, ...]] = {
    "ssa-table1": (
        "SSA errs less than softmax in training conditions too",
        "SSA errs less than softmax far from training",
        "Far from training a softmax model is better than three nearest neighbours",
    ),
    "ssa-table5": ("SSA suffers less than softmax from a deviant input",),
    "saturation-linear": (
        "The changed attention causes the error: putting the calm attention back heals softmax in part",
    ),
    "ssa-table6": ("Two layers with four heads err as much as printed, at sigma 10",),
    "ssa-figure1": (
        "Softmax has boundary values: its answers to 9x and 10x stop below those of least squares",
        "SSA's answers reach further than softmax's before they stop",
    ),
    "ssa-figure9": ("Models that only attend have boundary values: their answers stop below those of least squares",),
    "ssmax-figure2": ("A logarithm of n explains the learned factor better than n itself",),
    "ssmax-figure6": ("SSMax finds more needles than softmax far beyond the training length",),
    "needle-positions": ("With the raised base SSMax finds more needles far out than softmax",),
    "lssa-reweight": ("Re-weighting softmax with p = 3, without training, finds more needles far out",),
    "poster-task3": ("SSMax finds more letters than softmax at eight times the training length",),
}


def chosen(files: Path, store: Store) -> Iterator[tuple[str, Finding]]:
    """Yields the headline claims with their verdicts, each after the name of its experiment.

    Raises ``UnknownName`` where an experiment no longer makes a claim that is named here.
    """
    for name, statements in HEADLINES.items():
        found = {finding.claim.statement: finding for finding in _judged(name, files, store)}
        for statement in statements:
            if statement not in found:
                raise UnknownName(f"claim of {name}", statement, found)
            yield name, found[statement]


def every(files: Path, store: Store) -> Iterator[tuple[str, Finding]]:
    """Yields all claims of all experiments with their verdicts, each after the name of its experiment."""
    for name in names(files):
        for finding in _judged(name, files, store):
            yield name, finding


def short_table(files: Path, store: Store) -> list[str]:
    """Returns the headline claims as lines of a Markdown table."""
    rows = [
        md.row([f"{finding.claim.statement} ([`{name}`](experiments/{name}.toml))", _here(finding), finding.verdict])
        for name, finding in chosen(files, store)
    ]
    return [*md.head(["claim", f"here, at `{PRESET}`", "verdict"]), *rows]


def full_table(files: Path, store: Store) -> list[str]:
    """Returns all claims as lines of a Markdown table, below how many have each verdict."""
    found = list(every(files, store))
    tally = Counter(finding.verdict for _, finding in found).most_common()
    rows = [
        md.row([f"`{name}`", claim.statement, claim.where, claim.published, _here(finding), finding.verdict])
        for name, finding in found
        for claim in [finding.claim]
    ]
    head = md.head(["experiment", "claim", "where", "published", f"here, at `{PRESET}`", "verdict"])
    count = f"{len(found)} claims: " + ", ".join(f"{number} {verdict}" for verdict, number in tally) + "."
    return [count, "", *head, *rows]


def _judged(name: str, files: Path, store: Store) -> list[Finding]:
    experiment = load(name, files)
    return claims.findings(experiment, store, PRESET, store.study(claims.folder(name, store, PRESET)))


def _here(finding: Finding) -> str:
    return finding.words or "—"

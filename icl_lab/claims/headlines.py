"""Claims that the findings open with: those that the papers' titles rest on, and our controls of them."""

from collections.abc import Iterable, Mapping, Sequence

from icl_lab.base.errors import UnknownName
from icl_lab.claims import ledger
from icl_lab.claims.ledger import Finding, strongest

# Experiment and statement of each, in the order in which they are shown.
HEADLINES: tuple[tuple[str, str], ...] = (
    ("ssa-table1", "SSA errs less than softmax far from training"),
    ("boundary-bound", "SSA's bound leaves the same error as softmax's: the floors are equal far from training"),
    ("ssmax-figure6", "SSMax finds more needles than softmax far beyond the training length"),
    (
        "positions-by-normalizer",
        "Beyond the training length softmax finds more needles with ALiBi than with rotary positions",
    ),
    ("text-lssa-table4", "LSSA has a lower loss than softmax at 2 to 8 training lengths"),
    ("poster-task3", "SSMax finds more letters than softmax at eight times the training length"),
    ("ssa-table1", "SSA errs less than softmax in training conditions too"),
    ("ssa-figure1", "Softmax has boundary values: its answers to 9x and 10x stop below those of least squares"),
    ("saturation-norm-in", "With a norm after the read-in a large query turns fewer of softmax's answers wrong"),
    ("lssa-reweight", "Re-weighting softmax with p = 3, without training, finds more needles far out"),
    ("text-recency", "Beyond the training length stick-breaking attention has a lower loss than softmax with ALiBi"),
)


def chosen(findings: Sequence[Finding]) -> list[Finding]:
    """Return the headline claims, each at the largest scale that decides it.

    Raises ``UnknownName`` where an experiment no longer makes a claim that is named here.
    """
    found = {(each.experiment, each.claim): each for each in strongest(findings)}
    for name, statement in HEADLINES:
        if (name, statement) not in found:
            raise UnknownName(f"claim of {name}", statement, [text for of, text in found if of == name])
    return [found[key] for key in HEADLINES]


def by_paper(findings: Iterable[Finding], papers: Mapping[str, str]) -> dict[str, list[Finding]]:
    """Group findings by the title of their paper, ours last; ``papers`` maps experiments to short names.

    Within a paper headlines come first and small scales last.
    """

    def order(found: Finding) -> tuple[bool, bool]:
        return (found.experiment, found.claim) not in HEADLINES, found.small

    groups = {title: list[Finding]() for title in ledger.TITLES.values()}
    for each in sorted(findings, key=order):
        groups[ledger.TITLES[papers.get(each.experiment, "")]].append(each)
    return {title: group for title, group in groups.items() if group}

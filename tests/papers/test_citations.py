"""Paragraphs are tied to the verdicts that they cite."""

import pytest

from icl_lab.comparison.verdict import Verdict
from icl_lab.papers import ledger
from icl_lab.papers.ledger import Entry
from icl_lab.papers.schema import Claim, Quantity
from icl_lab.papers.verdicts import Finding

SIDE = Quantity("a")
ENTRY = Entry(
    experiment="ssa-table1",
    paper="p",
    preset="lite",
    finding=Finding(
        claim=Claim(statement="SSA errs less", where="w", left=SIDE, is_="below", right=SIDE),
        verdict=Verdict.NO_DIFFERENCE,
    ),
)


@pytest.mark.parametrize(
    ("cited", "complaint"),
    [
        ("ssa-table1 | SSA errs less | lite | no difference", ""),
        ("ssa-table1 | SSA errs less | lite | supported", "is no difference at lite, and a paragraph cites it as supp"),
        ("ssa-table1 | SSA errs less | nano | no difference", "no claim 'SSA errs less' that was run at nano"),
        ("ssa-table1 | SSA errs more | lite | no difference", "no claim 'SSA errs more'"),
    ],
)
def test_a_verdict_that_changed_is_found(cited, complaint):
    found = list(ledger.stale_citations(f"It does not.\n<!-- cites {cited} -->\nMore words.", [ENTRY]))
    assert (len(found) == 1 and complaint in found[0]) if complaint else found == []

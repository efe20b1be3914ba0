"""Paragraphs are tied to the verdicts that they cite."""

import pytest

from icl_lab.claims import ledger
from icl_lab.claims.ledger import Finding
from icl_lab.comparison.verdict import Direction, EffectSize, State

NAMES = {"experiment": "ssa-table1", "preset": "lite", "claim": "SSA errs less", "relation": "below"}
FOUND = Finding(**NAMES, state=State.JUDGED, direction=Direction.BELOW, size=EffectSize.SMALLER)


@pytest.mark.parametrize(
    ("cited", "complaint"),
    [
        ("ssa-table1 | SSA errs less | lite | below; smaller than printed", ""),
        ("ssa-table1 | SSA errs less | lite | below", "'below; smaller than printed' at lite, and a paragraph cites"),
        ("ssa-table1 | SSA errs less | nano | below", "no claim 'SSA errs less' that was run at nano"),
        ("ssa-table1 | SSA errs more | lite | below", "no claim 'SSA errs more'"),
    ],
)
def test_a_verdict_that_changed_is_found(cited, complaint):
    found = list(ledger.stale_citations(f"It does not.\n<!-- cites {cited} -->\nMore words.", [FOUND]))
    assert (len(found) == 1 and complaint in found[0]) if complaint else found == []

"""Paragraphs that a person wrote about verdicts, tied to the verdicts: one that changed is found.

In Markdown a comment stands at the paragraph: ``<!-- cites ssa-table1 | SSA errs less ... | lite | supported -->``.
"""

import re
from collections.abc import Iterator, Sequence

from icl_lab.papers.ledger import Entry

CITES = re.compile(r"<!-- cites ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) -->")


def stale(text: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Yields a sentence for each verdict that a text cites and that is another one now, or does not exist."""
    verdicts = {(e.experiment, e.finding.claim.statement, e.preset): e.finding.verdict for e in entries}
    for name, statement, preset, cited in CITES.findall(text):
        now = verdicts.get((name, statement, preset))
        if now is None:
            yield f"{name} has no claim '{statement}' that was run at {preset}, which a paragraph cites"
        elif now != cited:
            yield f"{name}, '{statement}', is {now} at {preset}, and a paragraph cites it as {cited}"

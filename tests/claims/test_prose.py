"""Every interval in a sentence of README, findings and pages is that of a claim which its paragraph cites."""

import csv
import math
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = [f"docs/papers/{name}.md" for name in ("ssa", "ssmax", "lssa", "poster")]
PAGES = ["README.md", "results/findings.md", "docs/rates.md", "docs/extrapolation.md", "docs/boundary.md", *PAPERS]
TIMES = re.compile(r"\*\*Cost\.\*\*")  # a paragraph about times, which no claim holds
CITES = re.compile(r"<!-- cites ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|[^>]*-->")
INTERVAL = re.compile(r"\[(-?[\d.]+), (-?[\d.]+)\]")
RECORD = {
    (row["experiment"], row["claim"], row["preset"]): row
    for row in csv.DictReader((ROOT / "results" / "claims.csv").read_text().splitlines())
}


def paragraphs(text):
    """Blocks of prose with the comments that follow them; a list's points are blocks, tables and code are not."""
    text = re.sub(r"^```.*?^```|^\|.*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.split(r"\n\s*\n|\n(?=\* |\d+\. )", text)
    return [block for block in blocks if INTERVAL.search(block) and not TIMES.match(block)]


def intervals(row):
    """Ends that a sentence may print: of the ratio or difference, of its opposite, and as the other way round."""
    low, high = (float(row[end]) for end in ("low", "high"))
    if row["scale"] == "log-ratio":
        return [(math.exp(low), math.exp(high)), (math.exp(-high), math.exp(-low))]
    return [(low, high), (-high, -low)]


def held(low, high, rows):
    """True if an interval is that of a claim, rounded once to the digits that are printed."""
    printed = [(float(end), 0.5000001 * 10 ** -len(end.partition(".")[2])) for end in (low, high)]

    def fits(pair):
        return all(abs(end - wanted) <= half for end, (wanted, half) in zip(pair, printed, strict=True))

    return any(fits(pair) for row in rows for pair in intervals(row))


@pytest.mark.parametrize("page", PAGES)
def test_every_interval_of_a_paragraph_is_of_a_claim_it_cites(page):
    missing = []
    for block in paragraphs((ROOT / page).read_text()):
        rows = [RECORD[key] for key in CITES.findall(block) if key in RECORD and RECORD[key]["low"]]
        missing += [
            f"[{low}, {high}] in: {' '.join(block.split())[:90]}"
            for low, high in INTERVAL.findall(re.sub("<!--.*?-->", "", block, flags=re.DOTALL))
            if not held(low, high, rows)
        ]
    assert missing == []


def test_an_interval_is_rounded_once():
    row = {"low": "0.7848", "high": "0.9748", "scale": "difference"}
    assert held("0.78", "0.97", [row])
    assert held("-0.97", "-0.78", [row])
    assert not held("0.79", "0.98", [row])
    assert not held("0.78", "0.97", [])

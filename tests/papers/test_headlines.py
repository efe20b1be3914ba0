"""The claims that the findings open with."""

from pathlib import Path

import pytest

from icl_lab.comparison.verdict import Verdict
from icl_lab.errors import UnknownName
from icl_lab.papers import experiment, headlines
from icl_lab.papers.ledger import Entry
from icl_lab.papers.verdicts import Finding

FILES = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def entries():
    """Every claim, of which nothing was run."""
    return [
        Entry(experiment=name, paper=made.paper, preset="", finding=Finding(claim=claim, verdict=Verdict.NOT_RUN))
        for name in experiment.names(FILES)
        for made in [experiment.load(name, FILES)]
        for claim in made.claims
    ]


def test_headlines_are_claims_in_the_order_named(entries):
    shown = [(entry.experiment, entry.finding.claim.statement) for entry in headlines.chosen(entries)]
    assert shown == [(name, text) for name, texts in headlines.HEADLINES.items() for text in texts]
    assert len(headlines.table(entries, "experiments")) == len(shown) + 2


def test_a_headline_that_no_experiment_claims_is_named(entries, monkeypatch):
    monkeypatch.setattr(headlines, "HEADLINES", {"ssa-table5": ("SSA suffers more",)})
    with pytest.raises(UnknownName, match="SSA suffers more"):
        headlines.chosen(entries)


def test_every_paper_with_experiments_has_a_headline():
    papers = {
        name.split("-")[0] for name in experiment.names(FILES) if name.startswith(("ssa", "ssmax", "lssa", "poster"))
    }
    assert papers <= {name.split("-")[0] for name in headlines.HEADLINES}

"""The claims that the findings open with."""

from pathlib import Path

import pytest

from icl_lab.base.errors import UnknownName
from icl_lab.claims import experiment, headlines
from icl_lab.claims.ledger import Finding
from icl_lab.comparison.verdict import State

FILES = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def rows():
    """Every claim, of which nothing was run."""
    return [
        Finding(experiment=name, preset="lite", claim=claim.statement, relation=claim.is_, state=State.NOT_RUN)
        for name in experiment.names(FILES)
        for claim in experiment.load(name, FILES).claims
    ]


def test_headlines_are_claims_in_the_order_named(rows):
    shown = [(each.experiment, each.claim) for each in headlines.chosen(rows)]
    assert tuple(shown) == headlines.HEADLINES


def test_a_headline_that_no_experiment_claims_is_named(rows, monkeypatch):
    monkeypatch.setattr(headlines, "HEADLINES", (("ssa-table5", "SSA suffers more"),))
    with pytest.raises(UnknownName, match="SSA suffers more"):
        headlines.chosen(rows)


def test_every_paper_with_experiments_has_a_headline():
    papers = {name.split("-")[0] for name in experiment.names(FILES)} & {"ssa", "ssmax", "lssa", "poster"}
    assert papers <= {name.split("-")[0] for name, _ in headlines.HEADLINES}

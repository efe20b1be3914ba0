"""The claims that the README shows, and the table of all of them."""

from pathlib import Path

import pytest

from icl_lab.errors import UnknownName
from icl_lab.papers import experiment, headlines
from icl_lab.papers.verdicts import judge
from icl_lab.runs.store import Store

FILES = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def nothing(tmp_path):
    """A results folder in which nothing is stored."""
    return Store(tmp_path)


def test_headlines_are_claims_in_the_order_named(nothing):
    shown = [(name, finding.claim.statement) for name, finding in headlines.chosen(FILES, nothing)]
    assert shown == [(name, text) for name, texts in headlines.HEADLINES.items() for text in texts]


def test_a_headline_that_no_experiment_claims_is_named(nothing, monkeypatch):
    monkeypatch.setattr(headlines, "HEADLINES", {"ssa-table5": ("SSA suffers more",)})
    with pytest.raises(UnknownName, match="SSA suffers more"):
        list(headlines.chosen(FILES, nothing))


def test_every_paper_with_experiments_has_a_headline():
    papers = {
        name.split("-")[0] for name in experiment.names(FILES) if name.startswith(("ssa", "ssmax", "lssa", "poster"))
    }
    assert papers <= {name.split("-")[0] for name in headlines.HEADLINES}


@pytest.mark.slow
def test_without_results_nothing_was_run(nothing):
    count, _, head, _, *rows = headlines.full_table(FILES, nothing)
    claims = sum(len(experiment.load(name, FILES).claims) for name in experiment.names(FILES))
    assert count == f"{claims} claims: {claims} not run."
    assert len(rows) == claims
    assert all(row.endswith("| — | not run |") for row in rows)
    assert all(row.count(" | ") == head.count(" | ") for row in rows)


def test_one_seed_is_said_in_words(nothing, monkeypatch):
    one = experiment.load("ssa-table5", FILES).claims[2]
    finding = judge(one, [0], [2.0], [4.0], "log-ratio")
    monkeypatch.setattr(headlines, "_judged", lambda *_: [finding])
    monkeypatch.setattr(headlines, "HEADLINES", {"ssa-table5": (one.statement,)})
    (*_, row) = headlines.short_table(FILES, nothing)
    assert row.endswith(f"({'[`ssa-table5`](experiments/ssa-table5.toml)'}) | ratio 0.5, one seed | one seed |")

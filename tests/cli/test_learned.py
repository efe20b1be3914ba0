"""A model that has learned nothing is called so wherever its result stands."""

import pytest

from tests.cli.conftest import LINEAR

WORDS = "not learned: "


@pytest.mark.slow
@pytest.mark.usefixtures("quick_pictures")
def test_nothing_learned_is_said_by_every_command(run, compared, made, tmp_path):
    """By ``compare`` in its finding, table and page, by ``sweep``, ``list runs --long`` and ``publish``."""
    results = tmp_path / "results"
    assert "say nothing of the normalizer: softmax and ssa." in compared.out
    assert compared.out.count("| not learned |") == 2
    assert compared.err.count(WORDS) == 2
    assert (made / "report.html").read_text().count("<td>not learned</td>") == 2
    said, told = run.ok("sweep", "--attn", "softmax", *LINEAR)
    assert f"softmax: {WORDS}" in told
    assert "(zero, " in told
    assert "Words: sigma: a standard deviation" in said
    said, _ = run.ok("list", "runs", "--long", "--results", str(results))
    assert said.count(WORDS) == 6  # two seeds of both, and softmax tested with its labels rescaled too
    place = next(results.glob("runs/linear/ssa/*/seed-0"))
    run.ok("publish", str(place), "--to", str(tmp_path / "repository"), "--results", str(results))
    assert f"**{WORDS.capitalize()}error" in (tmp_path / "repository" / "README.md").read_text()

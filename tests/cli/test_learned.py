"""A model that has learned nothing is called so wherever its result stands."""

import pytest

pytestmark = pytest.mark.usefixtures("quick_pictures")

SMALL = [f"--set={each}" for each in ("train.steps=5", "train.batch=8", "model.width=16", "model.heads=2",
                                      "test.prompts=64", "test.axes.length=5,12", "test.axes.sigma_f=1,2")]  # fmt: skip
WORDS = "not learned: error"


@pytest.fixture
def trained(run):
    """Two normalizers after five steps, and what their comparison said."""
    return run("compare", "--task", "linear", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke", *SMALL)


@pytest.mark.slow
def test_nothing_learned_is_said_by_every_command(run, trained, tmp_path):
    """By ``compare`` in its finding, table and page, by ``sweep``, ``list runs --long`` and ``publish``."""
    results = tmp_path / "results"
    code, said, told = trained
    assert code == 0
    assert "say nothing of the normalizer: softmax and ssa." in said
    assert said.count("| not learned |") == 2
    assert told.count(WORDS) == 2
    (page,) = results.glob("*/report.html")
    assert page.read_text().count("<td>not learned</td>") == 2
    _, said, told = run("sweep", "--task", "linear", "--attn", "softmax", "--preset", "smoke", *SMALL)
    assert f"softmax: {WORDS}" in told
    assert "(zero, " in told
    assert "Words: sigma: a standard deviation" in said
    _, said, _ = run("list", "runs", "--long", "--results", str(results))
    assert said.count(WORDS) == 3  # softmax was tested with its labels rescaled too
    place = next(results.glob("runs/linear/ssa/*/seed-0"))
    run("publish", str(place), "--to", str(tmp_path / "repository"), "--results", str(results))
    assert "**Not learned: error" in (tmp_path / "repository" / "README.md").read_text()

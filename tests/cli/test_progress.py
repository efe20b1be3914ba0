"""Commands that may take long say how far they are, on standard error."""

import pytest

from icl_lab.execute import progress
from tests.claims.test_experiments import SMALL as EXPERIMENT

pytestmark = pytest.mark.usefixtures("quick_pictures")

SMALL = [f"--set={each}" for each in ("train.steps=5", "train.batch=8", "model.width=16", "model.heads=2",
                                      "test.prompts=64", "test.axes.length=5,12", "test.axes.sigma_f=1,2")]  # fmt: skip


@pytest.fixture
def results(run, tmp_path, monkeypatch):
    """A comparison of two runs; from here on every step of a bar is a line."""
    _, told = run.ok("compare", "--task", "linear", "--attn", "softmax", "--attn", "ssa", "--preset", "smoke",
                        "--name", "made", *SMALL)  # fmt: skip
    monkeypatch.setattr(progress, "SAID", 0.0)
    return tmp_path / "results"


@pytest.mark.slow
def test_every_command_that_reads_much_tells_how_far_it_is(run, results, tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "small.toml").write_text(EXPERIMENT)
    here = ["--results", str(results)]
    for words, stage in (
        (["list", "runs", "--long", *here], "reading runs: "),
        (["verify", str(results)], "checking runs: "),
        (["verify", str(results)], "checking studies: "),
        (["report", str(results / "made")], "writing the comparison: "),
        (["claims", *here, "--experiments", str(tmp_path / "experiments")], "judging claims: "),
    ):
        said, told = run.ok(*words)
        assert stage in told, words
        assert stage not in said

"""Commands that may take long say how far they are, on standard error."""

import pytest

from icl_lab.execute import progress
from tests.claims.test_experiments import SMALL as EXPERIMENT


@pytest.mark.slow
@pytest.mark.usefixtures("quick_pictures")
def test_every_command_that_reads_much_tells_how_far_it_is(run, made, tmp_path, monkeypatch):
    """Where every step of a bar is a line."""
    monkeypatch.setattr(progress, "SAID", 0.0)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "small.toml").write_text(EXPERIMENT)
    results = str(made.parent)
    for words, stage in (
        (["list", "runs", "--long", "--results", results], "reading runs: "),
        (["verify", results], "checking runs: "),
        (["verify", results], "checking studies: "),
        (["report", str(made)], "writing the comparison: "),
        (["claims", "--results", results, "--experiments", str(tmp_path / "experiments")], "judging claims: "),
    ):
        said, told = run.ok(*words)
        assert stage in told, words
        assert stage not in said

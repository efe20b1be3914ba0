"""Commands of analyses: made from fields, known without imports, refusing before anything is trained."""

import json

import pytest

from icl_lab import analyses
from icl_lab.cli.commands.analyses import command
from icl_lab.cli.imports import DeferredAnalysis
from icl_lab.cli.main import cli

pytestmark = pytest.mark.usefixtures("quick_pictures")

TINY = ("--preset", "smoke", "--set", "model.width=16 train.steps=30 train.batch=8 test.axes.length=5,12")


def test_every_analysis_has_a_command_and_no_other_has():
    deferred = [each for each in cli.commands.values() if isinstance(each, DeferredAnalysis)]
    assert sorted(each.name for each in deferred) == analyses.names()
    for each in deferred:
        assert each.get_short_help_str(200) == analyses.registry.part(each.name).__doc__.partition("\n")[0]


@pytest.mark.parametrize("name", [name for name in analyses.names() if analyses.registry.part(name).trains])
def test_what_all_share_is_an_option_of_each(name):
    options = {word for parameter in command(name).params for word in parameter.opts}
    shared = "--task --attn --seeds --run --preset --set --results --device --threads --jobs --shard --draws"
    assert {*shared.split(), "--name", "--force", "--dry-run"} <= options


@pytest.mark.slow
def test_an_analysis_writes_its_folder_and_says_what_to_open(run, tmp_path):
    words = ("deviant", "--task", "linear", "--attn", "softmax", "--factors", "1,10", "--prompts", "64", *TINY)
    out, err = run.ok(*words)
    (folder,) = (tmp_path / "results").glob("deviant-linear-smoke-*")
    assert f"wrote {folder}: deviant.csv, deviant.png" in out
    assert f"open {folder / 'report.html'}" in out
    assert "steps" in err.splitlines()[0]  # announced before the first step
    study = json.loads((folder / "study.json").read_text())
    assert study["options"] == {"factors": [1.0, 10.0], "position": [0], "prompts": 64}
    # The same question again: the same folder, nothing trained, the same bytes.
    before = (folder / "deviant.csv").read_bytes()
    assert "steps" not in run.ok(*words)[1]
    assert (folder / "deviant.csv").read_bytes() == before

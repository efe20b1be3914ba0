"""The analysis as a whole: what it lays out, what it refuses before training, and the files that it publishes."""

import pytest

from icl_lab.analyses import publish, runner
from icl_lab.analyses.attention import AttentionMaps
from icl_lab.base.errors import BadValue


@pytest.mark.slow
@pytest.mark.usefixtures("quick_pictures")
def test_published_folder_holds_page_numbers_and_figures(runs_of, lab):
    groups = runner.labels(runs_of("softmax", "ssa"))
    asked = runner.checked(AttentionMaps(prompt="1,-2,3,70", means=2), groups)
    study = publish.record("attention", asked, groups, "icl-lab attention --prompt 1,-2,3,70")
    assert study.options["prompt"] == "1,-2,3,70"
    assert set(study.options) == {"prompt", "function", "layers", "heads", "last", "means"}  # as before there were more
    assert publish.options(AttentionMaps(prompt="1,2", live=0))["live"] == 0
    folder = lab.store.root / "maps"
    text = publish.publish(study, asked, runner.ask(asked, groups, lab), groups, folder)
    names = {path.name for path in folder.iterdir()}
    assert names >= {"attention.html", "weights.csv", "answers.csv", "table.md", "study.json"}
    assert names >= {"attention.png", "attention.svg", "attention.pdf"}
    assert "Prompt 1,-2,3,70: typed." in text
    assert asked.read(folder) is None


@pytest.mark.slow
def test_folders_are_named_by_rules_seeds_and_prompt(tiny, lab):
    runs = [lab.store.run(tiny("every", "ssa", "train.steps=4"), seed) for seed in (0, 1)]
    groups = runner.labels(runs)
    asked = runner.checked(AttentionMaps(prompt="1,-2", live=0), groups)
    assert asked.tag == "ssa-ssa-seed-1-1,-2"
    name = publish.record("attention", asked, groups, "").usual_name(asked.tag)
    assert name.startswith("attention-every-smoke-ssa-ssa-seed-1-1,-2-")
    found = runner.ask(asked, groups, lab)
    assert [shown.name for shown in found.runs] == ["ssa seed 0", "ssa seed 1"]
    assert dict(found.runs[0].card)["weights (sha256)"] != dict(found.runs[1].card)["weights (sha256)"]


def test_two_shapes_of_one_rule_are_told_apart(see, runs_of, lab):
    runs = [*runs_of("ssa"), *runs_of("ssa", settings=["train.batch=4"])]
    found = runner.ask(AttentionMaps(prompt="1,-2", means=0, live=0), runner.labels(runs), lab)
    assert [shown.name for shown in found.runs] == [f"ssa smoke-{run.spec.hash} seed 0" for run in runs]


def test_two_runs_read_the_prompt_of_the_first(runs_of, lab):
    short = runs_of("softmax", settings=["train.curriculum.start=5", "train.curriculum.stop=9"])
    (long,) = runs_of("ssa")
    assert short[0].spec.train.longest < min(20, long.spec.train.longest)
    for runs in ([*short, long], [long, *short]):
        found = runner.ask(AttentionMaps(prompt="random", means=0, live=0), runner.labels(runs), lab)
        assert found.asked.length == min(20, runs[0].spec.train.longest)
        assert [len(shown.answers) for shown in found.runs] == [found.asked.length] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"means": 10**9}, "means must be at most 10,000, got 1,000,000,000"),
        ({"last": 0}, "last"),
        ({"heads": "9"}, "no head '9': heads are counted from 0 to 1"),
        ({"function": "1,0"}, "every has no function to choose"),
    ],
)
def test_bad_questions_are_refused_before_training(runs_of, lab, options, words):
    with pytest.raises(BadValue, match=words):
        runner.ask(AttentionMaps(**{"prompt": "1,-2", **options}), runner.labels(runs_of("softmax")), lab)
    assert not lab.store.root.exists()


def test_unsuitable_runs_are_refused_before_training(runs_of, lab):
    asked = AttentionMaps(prompt="1,-2")
    with pytest.raises(BadValue, match="attention takes at most 2 runs, got 3"):
        runner.ask(asked, runner.labels(runs_of("softmax", "ssa", "ssmax")), lab)
    with pytest.raises(BadValue, match="softmax is a model without attention: it has no maps"):
        runner.ask(asked, runner.labels(runs_of("softmax", settings=["model.attention=no"])), lab)
    (run,) = runs_of("softmax")
    with pytest.raises(BadValue, match="is there twice"):
        runner.ask(asked, {"softmax": [run, lab.store.run(run.spec, 0)]}, lab)
    assert not lab.store.root.exists()

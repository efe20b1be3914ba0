"""The same answers after more context: which are asked, after which tokens, and what is said of them."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.context import Context, answers
from icl_lab.base.errors import BadValue
from icl_lab.pipeline import load_or_train, subject, sweep
from icl_lab.runs.measure import Subject, TestSpec, draw, errors_of

SHORT = ["train.curriculum.start=16", "train.curriculum.stop=16", "train.steps=2", "test.axes.length=16,32"]


def test_a_quarter_of_the_shortest_answers_is_asked():
    assert answers(tasks.build("text"), 16) == 4
    assert answers(tasks.build("linear"), 10) == 2  # of ten answers, rounded down
    assert answers(tasks.build("text"), 2) == 1


def test_every_length_is_asked_for_the_same_answers():
    """A predictor that names the last byte read, but knows after the 20th byte of what it reads what comes."""
    task = tasks.build("text")
    prompt = draw(task.balanced, 32, TestSpec(prompts=8, axes={"length": [32.0]}), {})

    def knows(piece):
        said = torch.full((*piece.tokens.shape, 256), -20.0)
        said.scatter_(
            2, torch.where(torch.arange(piece.tokens.shape[1]) >= 20, piece.targets.long(), 0).unsqueeze(2), 20
        )
        return said

    short, long = (errors_of(task, Subject(knows), prompt.last(t))[:, -4:] for t in (16, 32))
    assert bool((long < 1e-6).all())
    assert bool((short > 1).any())  # none of the 16 is known
    assert prompt.last(16).targets[:, -4:].equal(prompt.targets[:, -4:])


@pytest.mark.slow
def test_after_the_whole_prompt_and_after_its_end_by_hand(tiny, lab):
    spec = tiny("text", "softmax", *SHORT, "test.axes.kept=100")
    groups = {"softmax": [lab.store.run(spec, 0)]}
    analysis = runner.checked(Context(prompts=64), groups)
    assert analysis.lengths == (16, 32)
    found = runner.ask(analysis, groups, lab)
    task = tasks.build("text").balanced
    model = subject(load_or_train(groups["softmax"][0], lab), task, lab.device)
    prompt = draw(task, 32, TestSpec(prompts=64, axes={"length": [32.0]}), {"kept": 100.0})
    whole = task.errors(model.predict(prompt), prompt)[:, 28:].mean().item()
    end = task.errors(model.predict(prompt.last(16)), prompt.last(16))[:, 12:].mean().item()
    assert analysis.value(found, "softmax", {}, "", 0) == pytest.approx(whole, rel=1e-5)
    assert analysis.value(found, "softmax", {"length": [16.0]}, "error", 0) == pytest.approx(end, rel=1e-5)
    both = analysis.value(found, "softmax", {"length": [16.0, 32.0]}, "", 0)
    assert both == pytest.approx((whole + end) / 2, rel=1e-5)
    bigram = [analysis.value(found, "reference:bigram", {"length": [length]}, "", 0) for length in (16.0, 32.0)]
    assert bigram[0] == pytest.approx(bigram[1], rel=1e-6)  # which reads one byte, whatever stands before
    assert analysis.finding(found).startswith("From 16 to 32 examples that are read the error of the same answers goes")
    assert "The last 4 answers" in analysis.table(found)[0]
    for cells, metric, complaint in (
        ({}, "loss", "no metric 'loss'"),
        ({"length": [64.0]}, "", "no cell has length=64"),
        ({"tokens": [16.0]}, "", "no column 'tokens'"),
    ):
        with pytest.raises(KeyError, match=complaint):
            analysis.value(found, "softmax", cells, metric, 0)


@pytest.mark.slow
def test_errors_over_decades_are_shown_as_logarithms(tiny, lab):
    spec = tiny("linear", "softmax", "train.curriculum.start=5", "train.curriculum.stop=6", "train.steps=2")
    groups = {"softmax": [lab.store.run(spec, 0)]}
    sweep(spec, 0, lab)
    analysis = runner.checked(Context(lengths=(12, 4, 12), prompts=64), groups)
    assert analysis.lengths == (4, 12)
    found = runner.ask(analysis, groups, lab)
    at = {length: found["context"].at(attn="softmax", length=length) for length in (4, 12)}
    assert analysis.value(found, "softmax", {"length": [4.0]}, "", 0) == pytest.approx(math.log(at[4]))
    assert "context" in analysis.figures(found, "title")
    cells = {"length": [4.0, 12.0]}
    for of in ("softmax", "reference:3-nn"):
        drawn, value = analysis.on_resamples(found, of, cells, "", 0), analysis.value(found, of, cells, "", 0)
        assert drawn[0] == pytest.approx(value, rel=1e-3)
        assert 0 < drawn[1:].std() < 1.5 * analysis.prompts_error(found, of, cells, "", 0)
    near = [found["context"].at(attn="reference:3-nn", length=length) for length in (4, 12)]
    assert near[1] < near[0]


def test_runs_at_other_lengths_are_asked_by_name(tiny, lab):
    runs = {
        rule: [lab.store.run(tiny("linear", rule, f"test.axes.length=5,{n}"), 0)]
        for rule, n in (("softmax", 12), ("ssa", 14))
    }
    with pytest.raises(BadValue, match=r"differ \(5, 12 and 5, 14\): name --lengths"):
        runner.checked(Context(), runs)

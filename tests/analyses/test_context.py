"""The same answers after more context, and the error at each place of a prompt: which are asked, and means by hand."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.context import Context, PerPosition, answer_positions, answers
from icl_lab.analyses.frame import StoredGrids
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.pipeline import load_or_train, subject, sweep
from icl_lab.runs.measure import Subject, TestSpec, draw, errors_of

SHORT = ["train.curriculum.start=16", "train.curriculum.stop=16", "train.steps=2", "test.axes.length=16,32"]
FIVE = ["train.curriculum.start=5", "train.curriculum.stop=6", "train.steps=2"]


def test_a_quarter_of_the_shortest_answers_is_asked():
    assert answers(tasks.build("text"), 16) == 4
    assert answers(tasks.build("linear"), 10) == 2  # of ten answers, rounded down
    assert answers(tasks.build("text"), 2) == 1


def test_every_length_is_asked_for_the_same_answers():
    """A predictor that names the byte 0, but knows after the 20th byte of what it reads what comes."""
    task = tasks.build("text")
    prompt = draw(task.balanced, 32, TestSpec(prompts=8, axes={"length": [32.0]}), {})

    def knows(piece):
        known = torch.where(torch.arange(piece.tokens.shape[1]) >= 20, piece.targets.long(), 0)
        return torch.full((*piece.tokens.shape, 256), -20.0).scatter(2, known.unsqueeze(2), 20)

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


@pytest.mark.slow
def test_errors_over_decades_are_shown_as_logarithms(tiny, lab):
    groups = {"softmax": [lab.store.run(tiny("linear", "softmax", *FIVE), 0)]}
    analysis = runner.checked(Context(lengths=(12, 4, 12), prompts=64), groups)
    assert analysis.lengths == (4, 12)
    found = runner.ask(analysis, groups, lab)
    at = {length: found["context"].at(attn="softmax", length=length) for length in (4, 12)}
    assert analysis.value(found, "softmax", {"length": [4.0]}, "", 0) == pytest.approx(math.log(at[4]))
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


def test_half_octaves_of_a_text():
    lies = answer_positions(tasks.build("text"), trained=8, length=32)
    found = {tokens: (chosen + 1).tolist() for tokens, chosen in lies.steps.items()}
    assert list(found) == [1, 2, 4, 5.65685, 8, 11.3137, 16, 22.6274, 32]
    assert found[4] == [3, 4]
    assert found[5.65685] == [5]
    assert found[11.3137] == [9, 10, 11]
    assert [place for chosen in found.values() for place in chosen] == list(range(1, 33))


def test_ends_are_means_over_the_last_quarters():
    lies = answer_positions(tasks.build("text"), trained=8, length=32)
    errors = torch.arange(1.0, 33.0).repeat(2, 1)
    ends = {metric: values.tolist() for metric, values in lies.ends(errors).items()}
    assert ends["within"] == [4.5, 4.5]  # 1 .. 8
    assert ends["beyond"] == [20.5, 20.5]  # 9 .. 32
    assert ends["end-of-training"] == [7.5, 7.5]  # 7, 8
    assert ends["end"] == [28.5, 28.5]  # 25 .. 32
    assert ends["rise"] == [21.0, 21.0]


def test_answers_that_nothing_tells_yet_are_left_out():
    """Of linear, which answers at every second token, those before index 3 count in no metric."""
    lies = answer_positions(tasks.build("linear"), trained=5, length=10)
    assert lies.tokens.tolist() == [7, 9, 11, 13, 15, 17, 19]
    assert lies.steps[8.0].tolist() == [3]
    errors = torch.cat((torch.full((1, 3), 1e6), torch.arange(1.0, 8.0).unsqueeze(0)), 1)
    assert lies.ends(errors)["within"].tolist() == [1.5]  # tokens 7 and 9


@pytest.mark.slow
def test_the_mean_over_all_places_is_the_cell_of_the_grid(tiny, lab):
    spec = tiny("text", "softmax", *SHORT, "test.axes.kept=100")
    groups = {"softmax": [lab.store.run(spec, 0)]}
    analysis = runner.checked(PerPosition(prompts=64), groups)
    found = runner.ask(analysis, groups, lab)
    grid = sweep(spec, 0, lab)
    within, beyond = (analysis.value(found, "softmax", {}, metric, 0) for metric in ("within", "beyond"))
    cell = grid.at(attn="softmax", length=32, kept=100, metric="nats")
    assert (within + beyond) / 2 == pytest.approx(cell, rel=1e-5)
    short = grid.at(attn="softmax", length=16, kept=100, metric="nats")
    assert within == pytest.approx(short, rel=1e-5)
    reference = grid.at(attn="reference:5-gram", length=16, kept=100, metric="nats")
    assert analysis.value(found, "reference:5-gram", {}, "within", 0) == pytest.approx(reference, rel=1e-5)
    assert math.isfinite(analysis.value(found, "softmax", {"tokens": [32.0]}, "error", 0))
    for of, metric in (("softmax", "within"), ("softmax", "rise"), ("reference:5-gram", "end")):
        drawn = analysis.on_resamples(found, of, {}, metric, 0)
        assert drawn[0] == pytest.approx(analysis.value(found, of, {}, metric, 0), rel=1e-4)
        told = found["ends"].where(attn=of, metric=metric).frame["stderr"].iloc[0]
        assert drawn[1:].std() == pytest.approx(told, rel=0.1)
    assert analysis.on_resamples(found, "softmax", {"tokens": [32.0]}, "error", 0) is None
    before = StoredGrids({name: found[name] for name in ("per-position", "ends")})
    assert analysis.on_resamples(before, "softmax", {}, "within", 0) is None
    rows = found["prompts"].frame
    later = StoredGrids({**found.grids, "prompts": Grid(rows[rows["attn"] != "softmax"])})  # another seed's were kept
    assert analysis.on_resamples(later, "softmax", {}, "within", 0) is None
    assert analysis.on_resamples(later, "reference:5-gram", {}, "within", 0) is not None
    with pytest.raises(KeyError, match="names its tokens"):
        analysis.value(found, "softmax", {}, "error", 0)


def test_errors_that_span_decades_are_logarithms(tiny, lab):
    groups = {"softmax": [lab.store.run(tiny("linear", "softmax", *FIVE), 0)]}
    analysis = runner.checked(PerPosition(prompts=64), groups)
    found = runner.ask(analysis, groups, lab)
    ends = found["ends"].where(attn="softmax", metric="beyond").frame.iloc[0]
    assert analysis.value(found, "softmax", {}, "", 0) == pytest.approx(math.log(ends["value"]))
    assert analysis.on_resamples(found, "softmax", {}, "", 0)[0] == pytest.approx(math.log(ends["value"]), rel=1e-4)
    assert analysis.prompts_error(found, "softmax", {}, "", 0) == pytest.approx(ends["stderr"] / ends["value"])
    with pytest.raises(KeyError, match="a ratio"):
        analysis.value(found, "softmax", {}, "rise", 0)
    assert "per-position" in analysis.figures(found, "title")
    assert "from" in analysis.finding(found)
    assert any("`reference:zero`" in line for line in analysis.table(found))

"""BatchAnswers become the metrics of trained models, on the prompts that these meet."""

import re

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.grid import Grid
from icl_lab.base.rng import stream
from icl_lab.extras.prompted import report
from icl_lab.extras.prompted.batch import Reply
from icl_lab.extras.prompted.study import PromptedOptions, PromptedStudy
from icl_lab.pipeline import sweep
from icl_lab.runs.measure import Subject, TestSpec, measure

NAME = "reference:prompted:m"
ONE = ["test.axes.sigma_x=1", "test.axes.sigma_f=1"]  # one cell


def study(task, **how):
    return PromptedStudy(PromptedOptions(task, "m", preset="smoke", **how))


def found(made, said):
    """What a study measures where each question is answered by ``said(question)``; None leaves one out."""
    told = {question.key: said(question) for question in made.questions()}
    return report.measured(made, {key: Reply(text, "m") for key, text in told.items() if text is not None})


def rows(measured, metric, name=NAME):
    return [row for row in measured.rows if row["attn"] == name and row["metric"] == metric]


def truth(made):
    """Return the right answer to each question as the task itself words it."""
    right = {}
    for cell in made.cells:
        prompts = list(made.drawn(cell).pieces(1))
        for question in made.questions_of(cell):
            right[question.key] = made.speech.right(prompts[question.prompt], question.token, repr)
    return lambda question: right[question.key]


@pytest.mark.parametrize(
    "task", ["every", "some:balance=half", "linear", "needle", "flip-flop", "recall", "mean-value"]
)
def test_prompts_are_those_that_trained_models_meet(task):
    made = study(task, prompts=70, shots=[made_length(task)])
    met = []

    def watch(prompt):
        met.append(prompt)
        return torch.zeros(*prompt.targets.shape, built.outputs)

    built = tasks.build(made.spec.task)
    test = TestSpec(prompts=128, axes=made.spec.test.axes)
    measure({"x": Subject(watch, one_pass=False)}, built, test)
    for cell in made.cells:
        ours = made.drawn(cell)
        assert len(ours.tokens) == 70
        same = [theirs for theirs in met if torch.equal(theirs.tokens[:70], ours.tokens)]
        assert same, cell
        assert torch.equal(same[0].targets[:70], ours.targets)


def made_length(task):
    return int(tasks.build(task).axes["tiny"]["length"][0])


def test_an_answer_is_asked_about_the_numbers_of_its_prompt():
    made = study("linear", shots=[10], prompts=3, form="plain")
    (cell, *_) = made.cells
    prompt = made.drawn(cell)
    for question in made.questions_of(cell):
        values = prompt.tokens[question.prompt, : question.token + 1, 0].tolist()
        numbers = [float(word) for word in re.findall(r"put: (\S+)", question.body["prompt"])]
        assert numbers == pytest.approx(values, abs=0.0051)
        assert question.body["prompt"].endswith("Output:")


@pytest.mark.parametrize("task", ["every", "linear", "needle", "flip-flop", "recall", "maximum", "mean-value"])
def test_right_answers_have_no_error(task):
    made = study(task, prompts=4)
    right = found(made, truth(made))
    headline = rows(right, made.task.headline)
    assert headline
    assert all(row["value"] == pytest.approx(0, abs=1e-9) for row in headline)
    assert right.count("unparsable") == right.count("unanswered") == 0
    assert all(row["value"] == 0 for row in rows(right, f"{made.prefix}unparsable"))


@pytest.mark.parametrize(("said", "kind"), [("I would rather not say", "unparsable"), (None, "unanswered")])
@pytest.mark.parametrize("task", ["every", "needle", "flip-flop", "recall", "maximum"])
def test_what_cannot_be_read_is_wrong_and_counted(task, said, kind):
    made = study(task, prompts=4)
    lost = found(made, lambda question: said)
    assert lost.count(kind) == len(lost.answers) > 0
    assert {row["value"] for row in rows(lost, made.task.headline)} == {1.0}
    assert {row["value"] for row in rows(lost, f"{made.prefix}{kind}")} == {1.0}
    assert {line["read"] for line in lost.answers} == {kind}


def test_a_number_that_cannot_be_read_counts_as_the_answer_zero():
    made = study("linear", prompts=8, every_answer=True, shots=[10], settings=ONE)
    lost = found(made, lambda question: "no idea")
    zero = rows(lost, "mse-code", "reference:zero")
    assert [row["value"] for row in rows(lost, "mse-code")] == pytest.approx([row["value"] for row in zero])


def test_a_number_beyond_what_outputs_hold_cannot_be_read():
    made = study("linear", prompts=2, shots=[10])
    assert found(made, lambda question: "1e300").count("unparsable") == len(made.questions())


def test_the_truth_has_the_decimals_of_the_prompt():
    made = study("linear", prompts=2, shots=[10], digits=[1], settings=ONE)
    answers = found(made, lambda question: "0").answers
    right = truth(made)
    pairs = zip(answers, made.questions(), strict=True)
    assert all(line["truth"] == f"{float(right(question)):.1f}" for line, question in pairs)


@pytest.mark.parametrize(("said", "kinds"), [("?", (0.25, 0.0)), (None, (0.0, 0.25))])
def test_one_of_four_unread_or_unanswered_is_a_quarter(said, kinds):
    made = study("maximum", prompts=4)
    lost = found(made, lambda question: said if question.prompt == 2 else truth(made)(question))
    assert {row["value"] for row in rows(lost, "last")} == {0.25}
    counted = [{row["value"] for row in rows(lost, kind)} for kind in ("unparsable", "unanswered")]
    assert counted == [{kinds[0]}, {kinds[1]} if said is None else set()]


@pytest.mark.slow
def test_references_are_those_of_a_sweep(tiny, lab):
    grid = sweep(tiny("linear"), 0, lab)
    made = study("linear", prompts=64, shots=[5, 12], settings=["test.axes.length=5,12", "test.axes.sigma_x=3"])
    ours = found(made, lambda question: None)
    for row in grid.frame.to_dict("records"):
        if row["attn"].startswith("reference:") and row["sigma_x"] == 3:
            told = rows(ours, row["metric"], row["attn"])
            (same,) = [each for each in told if all(each[axis] == row[axis] for axis in grid.axes)]
            assert (same["value"], same["count"]) == (row["value"], row["count"])


@pytest.mark.slow
def test_columns_are_those_of_a_sweep(tiny, lab):
    made = study("some", prompts=4)
    answered = found(made, lambda question: "True")
    ours = Grid.of(answered.rows, made.axes, task="some", preset="smoke", spec="x", seed=0)
    theirs = sweep(tiny("some"), 0, lab)
    assert list(ours.frame.columns) == list(theirs.frame.columns)
    assert (ours.frame.dtypes.astype(str) == theirs.frame.dtypes.astype(str)).all()
    assert set(ours.values("metric")) <= {*theirs.values("metric"), "balanced-unparsable"}
    assert Grid.read(ours.csv()).frame.equals(ours.frame)


def test_decimals_are_an_axis_where_there_are_several():
    made = study("every", prompts=2, digits=[1, 3])
    measured = found(made, lambda question: "True" if question.key.startswith("3_") else "?")
    grid = Grid.of(measured.rows, made.axes, task="every", preset="smoke", spec="x", seed=0)
    assert grid.axes == ["digits", "sigma", "length"]
    assert grid.where(attn=NAME, metric="balanced-unparsable", digits=1).frame["value"].tolist() == [1.0, 1.0]
    assert grid.where(attn=NAME, metric="balanced-unparsable", digits=3).frame["value"].tolist() == [0.0, 0.0]


@pytest.mark.slow
def test_a_table_over_shifts_is_at_the_longest_length():
    made = study("linear", prompts=2, shots=[20, 10], settings=["test.axes.sigma_x=1", "test.axes.sigma_f=1,2"])
    lines, _ = report.make_report(made, {question.key: Reply("0", "m") for question in made.questions()}, {}, "icl-lab")
    assert any(", length=20:" in line for line in lines)
    assert "|  | sigma_f=1 | sigma_f=2 |" in lines


def test_only_metrics_that_the_answers_settle_are_told():
    """One answer of a prompt says nothing of any answer of it, nor of its median."""

    def metrics(made):
        return {row["metric"] for row in found(made, lambda q: "0").rows if row["attn"] == NAME}

    assert metrics(study("linear", prompts=2, shots=[10])) == {"mse-code", "nmse-code", "unparsable"}
    everything = metrics(study("linear", prompts=2, shots=[10], every_answer=True))
    assert everything == {"mse-code", "mse-eq2", "mse-all", "median-code", "nmse-code", "unparsable"}
    assert metrics(study("every:balance=half", prompts=2)) == {"last", "balanced-last", "unparsable"}
    assert metrics(study("flip-flop", prompts=2)) == {"error", "unparsable"}
    assert {"error", "any", "balanced-error"} < metrics(study("flip-flop", prompts=2, every_answer=True))
    assert metrics(study("needle", prompts=2)) == {"exact", "first", "unparsable"}


@pytest.mark.slow
def test_an_answer_drawn_evenly_estimates_the_mean_over_all():
    """Answer 0 everywhere: the estimate differs from the truth by chance alone."""
    made = study("linear", prompts=512, shots=[40], settings=ONE)
    ours = found(made, lambda question: "0")
    (one,), (all_,) = rows(ours, "mse-code"), rows(ours, "mse-code", "reference:zero")
    assert abs(one["value"] - all_["value"]) < 4 * one["stderr"]
    indices = {line["token"] for line in ours.answers}
    assert min(indices) == 6  # index 3 is the first that counts
    assert len(indices) == 37


def test_a_shift_asks_the_same_answers():
    made = study("linear", prompts=8, shots=[10])
    by_cell = [[tokens for (tokens,) in made.asked(cell, made.drawn(cell))] for cell in made.cells]
    assert len({tuple(tokens) for tokens in by_cell}) == 1
    assert len(set(by_cell[0])) > 1


@pytest.mark.slow
def test_what_comes_after_the_stop_of_a_format_does_not_count():
    def unparsable(form):
        made = study("linear", prompts=2, shots=[10], form=form)
        return found(made, lambda question: "\n 3\nInput: 4").count("unparsable")

    assert (unparsable("plain"), unparsable("chat")) == (0, 18)


@pytest.mark.slow
def test_rounded_numbers_are_what_references_read_a_second_time():
    made = study("linear", prompts=64, digits=[0], shots=[10], settings=ONE)
    measured = found(made, lambda question: "0")
    (exact,), (rounded,) = (rows(measured, "mse-code", f"reference:least-squares{tag}") for tag in ("", " (rounded)"))
    assert exact["value"] < 1e-6 < rounded["value"]
    assert not rows(measured, "mse-code", "reference:zero (rounded)")
    assert not [row for row in found(study("flip-flop", prompts=2), lambda q: "0").rows if "(rounded)" in row["attn"]]


def test_lengths_that_would_be_other_prompts_are_refused():
    with pytest.raises(BadValue, match="more than the 40 examples"):
        study("linear", shots=[80])
    with pytest.raises(BadValue, match="above 3"):
        study("linear", shots=[3])
    study("needle", shots=[99])  # its prompts are drawn for each length
    with pytest.raises(BadValue, match="only the cells"):
        study("linear", settings=["train.steps=5"])


def test_the_address_of_draws_is_fixed():
    """The first number of the first prompt of a cell; another one would leave records without their prompts."""
    made = study("maximum", prompts=2, shots=[16])
    drawn = made.task.sample(stream(0, "test", 0), 64, 32).first(16).tokens[:2]
    assert torch.equal(made.drawn(made.cells[0]).tokens, drawn)

"""Measuring under shift: one pass against many, cells by hand, and prompts that everyone shares."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.base import published
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs import measure as measuring
from icl_lab.runs.measure import BLOCK, Errors, Subject, broken, draw, influences, judged, measure, shares, summary
from icl_lab.runs.measure import TestSpec as Spec
from icl_lab.runs.spec import resolve


def model_for(task, attn="ssmax"):
    reading = TokenSpec(task.width, task.outputs, task.roles, task.tokens(12))
    return GPT2(ModelSpec(layers=2, heads=2, width=16), reading, attn, stream(0, "init")).eval()


def cells(measured):
    numbers = ("value", "stderr", "count")
    return {tuple(row[key] for key in row if key not in numbers): row["value"] for row in measured.cells}


@pytest.mark.parametrize("attn", ["softmax", "ssmax", "ssa"])
@pytest.mark.parametrize("choice", ["linear", "every", "some:balance=half"])
def test_one_pass_gives_the_numbers_of_one_pass_a_length(choice, attn):
    task = tasks.build(choice)
    model = model_for(task, attn)
    axes = {axis: [1.0, 3.0] for axis in task.training} | {"length": [4.0, 7.0, 12.0]}
    spec = Spec(prompts=64, axes=axes)
    assert model.prefix_consistent
    subjects = [Subject(lambda prompt: model(prompt.tokens), one_pass) for one_pass in (True, False)]
    both = [cells(measure({"x": subject}, task, spec)) for subject in subjects]
    assert both[0].keys() == both[1].keys()
    assert len(both[0]) == len({key[-1] for key in both[0]}) * 2 ** len(task.training) * 3
    for key, value in both[0].items():
        assert value == pytest.approx(both[1][key], rel=1e-5, abs=1e-5), key


def test_prompts_of_one_context_are_answered_alike(monkeypatch):
    """Contexts and queries in pieces of any size, the last ones smaller; a model, and one that cannot."""
    task = tasks.build("linear")
    model, rng = model_for(task, "ssa"), stream(0, "alike")
    x = torch.cat((torch.randn(3, 1, 5, generator=rng).expand(-1, 7, -1), torch.randn(3, 7, 1, generator=rng)), 2)
    prompt, predict = task.on_line(x.flatten(0, 1), 2.0, 1.0), lambda prompt: model(prompt.tokens)
    plain = measuring.predict_at(Subject(predict), prompt, 10, 7)
    assert plain.shape == (21, 1)
    for queries, room in ((64, 100), (3, 2)):
        monkeypatch.setattr(measuring, "QUERIES", queries)
        asked = []

        def ask(context, queries, asked=asked):
            asked.append((len(context), queries.shape[1]))
            return model.answer_queries(context, queries)

        subject = Subject(predict, bytes_of=lambda t, room=room: measuring.MEMORY / room, answer_queries=ask)
        torch.testing.assert_close(measuring.predict_at(subject, prompt, 10, 7), plain, rtol=1e-4, atol=1e-5)
        assert asked == ([(3, 7)] if queries == 64 else [(2, 3), (2, 3), (2, 1), (1, 3), (1, 3), (1, 1)])


def test_lengths_ascend_however_they_are_written():
    assert Spec(1, {"length": [40.0, 10.0]}).lengths == [10, 40]


def test_cutting_batches_changes_nothing():
    task = tasks.build("linear")
    model = model_for(task)
    spec = Spec(prompts=128, axes={"sigma_x": [1.0], "sigma_f": [1.0], "length": [12.0]})
    whole = cells(measure({"x": Subject(lambda prompt: model(prompt.tokens))}, task, spec))
    sizes = []

    def predict(prompt):
        sizes.append(len(prompt.tokens))
        return model(prompt.tokens)

    small = cells(measure({"x": Subject(predict, bytes_of=lambda t: 256 * 2**20 / 5)}, task, spec))
    assert max(sizes) == 5
    assert sum(sizes) == 128
    assert whole == {key: pytest.approx(value, rel=1e-5) for key, value in small.items()}


def test_more_prompts_keep_the_first_ones():
    task = tasks.build("every:balance=half")
    sizes = [Spec(prompts=prompts, axes={"sigma": [1.0], "length": [10.0]}) for prompts in (BLOCK, 3 * BLOCK)]
    few, many = (draw(task, 10, spec, {"sigma": 1.0}) for spec in sizes)
    assert torch.equal(few.tokens, many.tokens[:BLOCK])


def test_positions_are_kept_at_the_greatest_length():
    task = tasks.build("linear")
    spec = Spec(prompts=64, axes={"sigma_x": [1.0, 2.0], "sigma_f": [3.0], "length": [4.0, 9.0]})
    references = task.references()
    measured = measure({name: Subject(references[name]) for name in ("zero", "3-nn")}, task, spec)
    assert {row["attn"] for row in measured.positions} == {"zero"}
    rows = [row for row in measured.positions if row["sigma_x"] == 2.0]
    assert [row["index"] for row in rows] == list(range(9))
    y = draw(task, 9, spec, {"sigma_x": 2.0, "sigma_f": 3.0}).targets[:, ::2].double()
    assert [row["value"] for row in rows] == pytest.approx(y.square().mean(0).tolist())
    wanted = {"attn": "zero", "sigma_x": 2.0, "length": 9, "metric": "mse-code"}
    code = next(row for row in measured.cells if wanted.items() <= row.items())
    assert code["value"] == pytest.approx(y[:, 3:].square().mean().item())
    assert code["stderr"] == pytest.approx(y[:, 3:].square().mean(1).std().item() / 8, rel=1e-3)


def test_shares_of_prompts_add_up_to_the_cells():
    nan = math.nan
    assert shares(torch.tensor([1.0, 2.0])).tolist() == [1, 2]
    # Three prompts, classes of 1 and 2: 3 / (2 * 1) and 3 / (2 * 2) of the error.
    assert shares(torch.tensor([[1.0, nan], [nan, 0.0], [nan, 1.0]])).tolist() == [1.5, 0, 0.75]
    # A prompt may count in both classes.
    assert shares(torch.tensor([[1.0, 0.5], [0.0, nan]])).tolist() == [1, 0]


def test_influences_vary_as_the_mean_over_classes_does():
    """By hand: classes of 1 and of 2 prompts, means 1 and 0.5; and a class whose prompts are alike moves nothing."""
    nan = math.nan
    assert influences(torch.tensor([1.0, 2.0])).tolist() == [1, 2]
    assert influences(torch.tensor([[1.0, nan], [nan, 0.0], [nan, 1.0]])).tolist() == [0.75, 0.375, 1.125]
    assert influences(torch.tensor([1.0, nan, 1.0])).tolist() == [1, 1, 1]
    drawn = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
    drawn[:30, 0], drawn[30:, 1] = nan, nan
    told = influences(drawn)
    cell = summary(drawn)
    assert told.mean().item() == pytest.approx(cell["value"], rel=1e-5)
    assert told.std().item() / 40**0.5 == pytest.approx(cell["stderr"], rel=0.05)
    assert shares(drawn).std().item() / 40**0.5 > 1.5 * cell["stderr"]


@pytest.mark.parametrize("choice", ["linear", "every", "some:balance=half"])
def test_each_prompt_is_kept_and_their_mean_is_the_cell(choice):
    task = tasks.build(choice)
    model = model_for(task)
    spec = Spec(prompts=64, axes={axis: [1.0, 3.0] for axis in task.training} | {"length": [4.0, 12.0]})
    measured = measure({"x": Subject(lambda prompt: model(prompt.tokens))}, task, spec)
    rows = [row for row in measured.cells if row["metric"] == task.headline]
    assert len(rows) == len(measured.errors.cells) == 2 * 2 ** len(task.training)
    read = Errors.decoded(measured.errors.encoded())
    assert read.axes == [*task.training, "length"]
    for row in rows:
        kept = read.at({axis: row[axis] for axis in read.axes})
        assert kept.shape == (64,)
        assert kept.mean().item() == pytest.approx(row["value"], rel=1e-5)


def test_references_stand_beside_a_model_where_they_are_shown():
    task = tasks.build("linear")
    spec = Spec(prompts=64, axes={"sigma_x": [1.0], "sigma_f": [1.0], "length": [5.0]})
    zero = Subject(task.references()["zero"])
    measured = measure({"model": zero, "reference:zero": zero}, task, spec)
    rows = [(row["attn"], row["metric"]) for row in measured.cells]
    assert {metric for name, metric in rows if name == "reference:zero"} == {"mse-code", "median-code"}
    every = {"mse-code", "mse-eq2", "mse-all", "median-code", "nmse-code"}
    assert {metric for name, metric in rows if name == "model"} == every


def test_summary_by_hand():
    plain = summary(torch.tensor([1.0, 2.0, 3.0, 6.0]))
    assert plain == pytest.approx({"value": 3.0, "stderr": math.sqrt((4 + 1 + 0 + 9) / 3 / 4), "count": 4}, rel=1e-3)
    nan = math.nan
    classes = summary(torch.tensor([[1.0, nan], [0.0, nan], [nan, 1.0]]))
    assert (classes["value"], classes["count"]) == (0.75, 3)
    assert math.isnan(classes["stderr"])  # one prompt in a class: no spread is known
    pairs = summary(torch.tensor([[1.0, nan], [3.0, nan], [nan, 0.0], [nan, 4.0]]))
    # the variance of a mean of two means: (2 / 2 + 8 / 2) / 4
    assert pairs == pytest.approx({"value": 2.0, "stderr": math.sqrt(5) / 2, "count": 4}, rel=1e-3)
    empty = summary(torch.tensor([[1.0, nan], [0.0, nan]]))
    assert math.isnan(empty["value"])
    middle = summary(torch.arange(1.0, 102.0), median=True)
    assert middle["value"] == 51
    assert middle["stderr"] == pytest.approx(5, abs=1)  # sqrt(101) / 2 places to either side


def test_the_standard_error_of_a_median_by_repeated_draws():
    draws = torch.randn(400, 256, generator=stream(0, "median"))
    medians = torch.tensor([summary(row, median=True)["value"] for row in draws])
    errors = torch.tensor([summary(row, median=True)["stderr"] for row in draws])
    assert errors.mean().item() == pytest.approx(medians.std().item(), rel=0.2)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"sigma": [-1.0], "length": [10.0]}, "sigma must be finite and > 0"),
        ({"sigma": [math.inf], "length": [10.0]}, "sigma must be finite and > 0"),
        ({"sigma": [1.0], "length": [0.0]}, "length must be whole numbers >= 1"),
        ({"sigma": [1.0], "length": [10.5]}, "length must be whole numbers >= 1"),
        ({"sigma": [], "length": [10.0]}, "sigma has no values"),
    ],
)
def test_bad_axes(axes, words):
    with pytest.raises(ValueError, match=words):
        Spec(prompts=64, axes=axes)


@pytest.mark.slow
def test_the_published_set_gives_its_published_scores():
    """Zero and 3-nearest-neighbours on the redrawn set, against figures computed apart from this code."""
    task = tasks.build("linear")
    spec = Spec(prompts=1, axes={"sigma_x": [1.0], "sigma_f": [1.0, 4.0, 10.0], "length": [40.0]}, draws="paper")
    names = {"zero": "zero", "3-nn": "knn3"}
    measured = measure({name: Subject(task.references()[name]) for name in names}, task, spec)
    table = published.load("ssa_reference_predictors")
    for row in measured.cells:
        if row["metric"] == "mse-code":
            expected = table.at("mse", predictor=names[row["attn"]], sigma=int(row["sigma_f"])).number
            assert row["value"] == pytest.approx(expected, rel=1e-4), row
            assert row["count"] == 6400
    assert not [row for row in measured.cells if row["metric"].startswith("median")], "prompts share their functions"


def test_the_published_set_keeps_an_error_for_each_function():
    """100 of them a cell, each the mean of its 64 prompts: answering 0 errs by the mean square of a x + b."""
    task = tasks.build("linear")
    spec = Spec(prompts=1, axes={"sigma_x": [1.0], "sigma_f": [1.0, 4.0], "length": [40.0]}, draws="paper")
    measured = measure({"zero": Subject(task.references()["zero"])}, task, spec)
    table = published.load("ssa_eval_functions").rows
    x = task.published(40, sigma_x=1.0, sigma_f=4.0).tokens[:64, ::2, 0].double()[:, 3:]
    for sigma in (1.0, 4.0):
        kept = measured.errors.at({"sigma_x": 1.0, "sigma_f": sigma, "length": 40.0})
        drawn = [(row["a"].number, row["b"].number) for row in table if row["sigma"].number == sigma]
        wanted = [(a * x + b).square().mean().item() for a, b in drawn]
        assert kept.tolist() == pytest.approx(wanted, rel=1e-4)
        assert len(kept) == 100
        row = next(r for r in measured.cells if r["metric"] == "mse-code" and r["sigma_f"] == sigma)
        assert kept.double().mean().item() == pytest.approx(row["value"], rel=1e-6)
    assert Errors.decoded(measured.errors.encoded()).cells.keys() == measured.errors.cells.keys()
    own = Errors(["length"])
    own.add({"length": 4}, torch.tensor([1.0, 3.0, 5.0, 7.0]), 2)
    assert own.at({"length": 4}).tolist() == [2.0, 6.0]


def test_the_published_set_has_no_balanced_suite():
    task = tasks.build("every")
    spec = Spec(prompts=1, axes={"sigma": [1.0, 30.0], "length": [10.0, 40.0]}, draws="paper")
    rules = {name: Subject(task.references()[name]) for name in ("always-false", "copy-previous")}
    found = {(row["attn"], row["value"]) for row in measure(rules, task, spec).cells if row["metric"] == "any"}
    # On this set no prompt is still true at index 3: answering False makes no error, copying the label 4 of 64.
    assert found == {("always-false", 0.0), ("copy-previous", 4 / 64)}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("choice", ["linear", "every", "needle", "needle-vectors"])
def test_answers_that_are_no_numbers_count_as_wrong(choice, bad):
    """The first 16 of 64 prompts have one bad answer, the last; the others are answered by the exact normalizer."""
    task = tasks.build(choice)
    exact = {"linear": "bayes", "needle-vectors": "nearest-key"}.get(choice, "exact-rule")
    length = float(min(task.axes["tiny"]["length"]))
    spec = Spec(prompts=64, axes={axis: [value] for axis, value in task.training.items()} | {"length": [length]})

    def predict(prompt):
        outputs = task.references()[exact](prompt).float().clone()
        outputs[:16, task.asking(int(length))] = bad
        return outputs

    rows = {row["metric"]: row for row in measure({"x": Subject(predict)}, task, spec).cells}
    plain = [name for name in rows if not name.startswith(("balanced-", "not-finite")) and name not in task.medians]
    for name in plain:
        partial = name in ("position",)  # one answer of those from index 3 on
        wanted = 16 / 64 / (1 if not partial else length - 3) if task.worst == 1 else math.inf
        wanted = math.inf if name == "cross-entropy" else wanted
        assert rows[name]["value"] == pytest.approx(wanted), name
        assert rows[name]["count"] == 64, name
    assert rows["not-finite"]["value"] == 0.25
    for name in task.medians:
        assert rows[name]["value"] < 1


def test_a_column_for_each_scored_token_is_what_errors_are():
    task = tasks.build("linear")
    prompt = task.sample(stream(0, "x"), 4, 5)
    outputs = torch.zeros(4, 10, 1)
    outputs[1, 1] = math.nan  # not scored
    assert not broken(outputs, prompt).any()
    assert torch.equal(judged(task, outputs, prompt), task.errors(outputs.nan_to_num(), prompt))
    outputs[2, 4] = math.nan
    assert judged(task, outputs, prompt)[2].tolist()[2] == math.inf
    assert judged(task, outputs, prompt).isinf().sum() == 1
    odd = type("Odd", (type(task),), {"errors": lambda self, outputs, prompt: outputs[:, :3, 0]})()
    with pytest.raises(ValueError, match="no column for each scored token"):
        judged(odd, outputs, prompt)


def test_a_curriculum_without_end_is_refused_at_once():
    with pytest.raises(BadValue, match="places of"):
        resolve("linear", "softmax", "smoke", ["train.curriculum.rise=100000", "train.curriculum.mixed=yes",
                                               "train.curriculum.stop=100000"])  # fmt: skip

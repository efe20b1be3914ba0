"""One number far from the others: what follows from it, which prompts count, and how long errors last."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import runner
from icl_lab.analyses.deviant import Deviant, mean, recovery
from icl_lab.analyses.findings import StoredGrids
from icl_lab.base.grid import Grid
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.tasks.base import Prompt


def test_label_follows_a_stretched_input_and_nothing_else():
    task = tasks.build("linear")
    # y = 2 x + 1
    x = torch.tensor([[0.5, -1.0, 3.0, 2.0]])
    tokens = torch.stack((x, 2 * x + 1), dim=2).reshape(1, 8, 1)
    targets = (2 * x + 1).repeat_interleave(2, dim=1)
    prompt = Prompt(tokens, targets, torch.tensor([[True, False] * 4]))
    moved = task.deviate(prompt, [1], 10.0)
    assert moved.tokens[0, :, 0].tolist() == pytest.approx([0.5, 2, -10, -19, 3, 7, 2, 5])
    assert moved.targets[0].tolist() == pytest.approx([2, 2, -19, -19, 7, 7, 5, 5])
    untouched = [0, 1, 4, 5, 6, 7]
    assert torch.equal(moved.tokens[:, untouched], prompt.tokens[:, untouched])
    assert torch.equal(moved.scored, prompt.scored)


def test_stretched_published_prompts_follow_their_functions():
    task = tasks.build("linear")
    prompt = task.published(40)
    moved = task.deviate(prompt, [0], 100.0)
    a, b = torch.randn(200, generator=torch.Generator().manual_seed(1)).view(2, 100, 1).expand(2, 100, 64).flatten(1)
    x = moved.tokens[:, 0, 0]
    torch.testing.assert_close(x, 100 * prompt.tokens[:, 0, 0])
    torch.testing.assert_close(moved.tokens[:, 1, 0], a * x + b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("choice", ["every", "some:balance=half"])
def test_stretched_number_keeps_its_sign_and_all_labels(choice):
    task = tasks.build(choice)
    prompt = draw(task, 8, TestSpec(prompts=64, axes={"length": [8.0]}), task.training)
    moved = task.deviate(prompt, [2, 5], 1000.0)
    assert torch.equal(moved.targets, prompt.targets)
    assert torch.equal(moved.tokens[:, [4, 10]], 1000 * prompt.tokens[:, [4, 10]])
    others = [i for i in range(16) if i not in (4, 10)]
    assert torch.equal(moved.tokens[:, others], prompt.tokens[:, others])


def test_flips_are_split_by_the_class_of_the_deviant():
    task = tasks.build("every:balance=half")
    # Final truths: true, false, false; the deviant (index 0) is positive, positive, negative.
    x = torch.tensor([[1.0, 2.0, 1.0, 1.0], [1.0, -2.0, 1.0, 1.0], [-1.0, 1.0, 1.0, 1.0]])
    prompt = task._prompt(x)
    before = torch.zeros(3, 4)
    after = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 0]])
    found = task.disturbed(before, after, prompt, [0])
    flips, nan = torch.tensor([[1.0, math.nan], [math.nan, 1.0], [math.nan, 0.0]]), math.nan
    torch.testing.assert_close(found["balanced-last"], flips, equal_nan=True)
    torch.testing.assert_close(found["flip-with"], torch.tensor([1.0, nan, 0.0]), equal_nan=True)
    torch.testing.assert_close(found["flip-against"], torch.tensor([nan, 1.0, nan]), equal_nan=True)


def test_recovery_by_hand():
    before = torch.tensor([9.0, 1.0, 1.0, 1.0, 1.0])
    assert recovery(before, torch.tensor([9.0, 2.0, 1.0, 1.0, 1.0]), 0) == 1  # within twice at once
    assert recovery(before, torch.tensor([9.0, 5.0, 2.1, 1.5, 1.0]), 0) == 3
    assert recovery(before, torch.tensor([9.0, 1.0, 1.0, 2.1, 1.0]), 0) == 4  # it must stay there
    assert math.isnan(recovery(before, torch.tensor([9.0, 1.0, 1.0, 1.0, 2.1]), 0))
    assert recovery(before, torch.tensor([99.0, 99.0, 99.0, 5.0, 1.0]), 2) == 2  # counted from the last deviant
    assert recovery(0 * before, torch.full((5,), 1e-9), 0) == 1  # rounding is not an error


def test_references_behave_as_they_must(tiny, untrained):
    trained = untrained(tiny("linear", "softmax", "test.axes.length=40"))
    found = Deviant(factors=(1.0, 100.0), prompts=256).measure(trained)
    mse = {(row["attn"], row["factor"]): row["value"] for row in found["deviant"] if row["metric"] == "mse"}
    y = trained.prompts(256).targets[:, ::2][:, 3:]
    zero = mse["reference:zero", 1]
    assert zero == mse["reference:zero", 100] == pytest.approx(y.square().mean().item())  # index 0 is not scored
    assert mse["reference:least-squares", 100] < 1e-6
    assert mse["reference:3-nn", 100] > 10 * mse["reference:3-nn", 1]  # the deviant is among the nearest early on
    rows = [row for row in found["positions"] if (row["attn"], row["factor"]) == ("reference:zero", 100)]
    assert [row["index"] for row in rows] == list(range(40))
    assert rows[0]["value"] > 100  # the deviant's own answer


def test_sign_of_the_largest_is_fooled_only_against_the_truth(tiny, untrained):
    trained = untrained(tiny("every", "softmax", "test.axes.length=20"))
    found = Deviant(factors=(1000.0,), prompts=512).measure(trained)
    rates = {row["metric"]: row["value"] for row in found["deviant"] if row["attn"] == "reference:sign-of-largest"}
    assert rates["flip-against"] > 0.1
    assert rates["flip-with"] < 0.05


def test_first_and_last_index_that_answers_follow_are_accepted(tiny):
    Deviant(position=(0, 10), factors=(0.5, 1.0)).check(tiny("linear"))


def test_each_index_and_factor_is_asked_once(lab, tiny):
    asked = Deviant(position=(3, 0, 3), factors=(10.0, 1.0, 10.0)).prepared([lab.store.run(tiny("linear"), 0)])
    assert (asked.position, asked.factors) == ((3, 0), (10.0, 1.0))


@pytest.mark.slow
def test_table_and_files_of_finished_runs(runs, lab):
    groups = runs("linear", "softmax", "ssa", seeds=2)
    analysis = Deviant(factors=(1.0, 100.0), prompts=64)
    found = runner.ask(analysis, groups, lab)
    text = "\n".join(analysis.table(found))
    assert "| printed (Table 5: 12L8AH, softmax) | 6.4e-05 | 2.20 |" in text
    assert "| `ssa` / `softmax` |" in text
    assert 0.5 < mean(found, "ssa", "mse", 1) / mean(found, "softmax", "mse", 1) < 2
    assert all(run.trained and not run.finished for runs in groups.values() for run in runs)
    cells = {"factor": [1.0, 100.0]}
    for of, seed in (("softmax", 1), ("ssa", 0), ("reference:3-nn", 1)):
        drawn, value = analysis.on_resamples(found, of, cells, "", seed), analysis.value(found, of, cells, "", seed)
        assert drawn[0] == pytest.approx(value, rel=1e-3)
        assert 0 < drawn[1:].std() < 1.5 * analysis.prompts_error(found, of, cells, "", seed)
    assert analysis.on_resamples(found, "softmax", cells, "recovery", 0) is None
    assert math.isnan(analysis.prompts_error(found, "softmax", cells, "recovery", 0))
    sentence = analysis.finding(found)
    assert sentence.startswith("With the number at index 0 multiplied by 100: mean squared error after the deviant ")
    assert " with ssa (undisturbed " in sentence


def test_prompts_of_the_first_seeds_are_kept(runs, lab):
    """Those of seeds 0 to 4 stand for all: a table of every prompt of 64 seeds would be read by nobody."""
    groups = runs("linear", "softmax", seeds=2)
    groups["softmax"][1:] = [lab.store.run(groups["softmax"][0].spec, 5)]
    analysis = Deviant(factors=(1.0, 100.0), prompts=16)
    found = runner.ask(analysis, groups, lab)
    assert analysis.on_resamples(found, "softmax", {"factor": [100.0]}, "", 0) is not None
    assert analysis.on_resamples(found, "softmax", {"factor": [100.0]}, "", 5) is None
    assert found["prompts"].values("seed") == [0]


def test_claims_are_means_of_logarithms_of_squared_errors():
    who = {"task": "linear", "preset": "lite", "spec": "0", "position": 0, "stderr": 0, "count": 9}
    rows = [
        {**who, "attn": attn, "seed": seed, "factor": factor, "metric": metric, "value": value * factor}
        for attn, seed, value in (("ssa", 0, 1.0), ("ssa", 1, 2.0), ("reference:zero", 0, 3.0))
        for factor in (1.0, 100.0)
        for metric in ("mse", "recovery")
    ]
    analysis, found = Deviant(), StoredGrids({"deviant": Grid.of(rows, ["position", "factor"])})
    cells = {"factor": [1.0, 100.0]}
    assert analysis.value(found, "ssa", cells, "", 0) == pytest.approx(math.log(10))
    assert analysis.value(found, "ssa", cells, "", 1) == pytest.approx(math.log(20))
    assert analysis.value(found, "reference:zero", cells, "mse", 1) == pytest.approx(math.log(30))
    with pytest.raises(KeyError, match="names its factor"):
        analysis.value(found, "ssa", {}, "", 0)

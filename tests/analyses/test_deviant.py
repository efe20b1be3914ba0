"""One number far from the others: what follows from it, who is counted, and how long it is felt."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses import deviants
from icl_lab.analyses.deviant import check, deviant, recovery
from icl_lab.errors import BadValue
from icl_lab.runs.measure import Subject, draw
from icl_lab.runs.measure import TestSpec as Spec
from icl_lab.tasks.base import Prompt


def spec(task, prompts=64, length=8.0):
    return Spec(prompts=prompts, axes={axis: [1.0] for axis in task.training} | {"length": [length]})


def test_a_stretched_input_takes_its_label_along_and_nothing_else():
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


def test_stretching_the_published_prompts_gives_their_functions():
    task = tasks.build("linear")
    prompt = task.published(40)
    moved = task.deviate(prompt, [0], 100.0)
    a, b = torch.randn(200, generator=torch.Generator().manual_seed(1)).view(2, 100, 1).expand(2, 100, 64).flatten(1)
    x = moved.tokens[:, 0, 0]
    assert torch.equal(x, 100 * prompt.tokens[:, 0, 0]) or torch.allclose(x, 100 * prompt.tokens[:, 0, 0])
    torch.testing.assert_close(moved.tokens[:, 1, 0], a * x + b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("choice", ["every", "some:balance=half"])
def test_a_stretched_number_keeps_its_sign_and_every_label(choice):
    task = tasks.build(choice)
    prompt = draw(task, 8, spec(task), task.training)
    moved = task.deviate(prompt, [2, 5], 1000.0)
    assert torch.equal(moved.targets, prompt.targets)
    assert torch.equal(moved.tokens[:, [4, 10]], 1000 * prompt.tokens[:, [4, 10]])
    others = [i for i in range(16) if i not in (4, 10)]
    assert torch.equal(moved.tokens[:, others], prompt.tokens[:, others])


def test_flips_are_split_by_what_the_deviant_says():
    task = tasks.build("every:balance=half")
    # Final truths: true, false, false; the deviant (index 0) is positive, positive, negative.
    x = torch.tensor([[1.0, 2.0, 1.0, 1.0], [1.0, -2.0, 1.0, 1.0], [-1.0, 1.0, 1.0, 1.0]])
    prompt = task._prompt(x)
    before = torch.zeros(3, 4)
    after = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 0]])
    found = task.disturbed(before, after, prompt, [0])
    nan = math.nan
    torch.testing.assert_close(found["flip-with"], torch.tensor([1.0, nan, 0.0]), equal_nan=True)
    torch.testing.assert_close(found["flip-against"], torch.tensor([nan, 1.0, nan]), equal_nan=True)
    torch.testing.assert_close(
        found["balanced-last"], torch.tensor([[1.0, nan], [nan, 1.0], [nan, 0.0]]), equal_nan=True
    )


def test_recovery_by_hand():
    before = torch.tensor([9.0, 1.0, 1.0, 1.0, 1.0])
    assert recovery(before, torch.tensor([9.0, 2.0, 1.0, 1.0, 1.0]), 0) == 1  # within twice at once
    assert recovery(before, torch.tensor([9.0, 5.0, 2.1, 1.5, 1.0]), 0) == 3
    assert recovery(before, torch.tensor([9.0, 1.0, 1.0, 2.1, 1.0]), 0) == 4  # it must stay there
    assert math.isnan(recovery(before, torch.tensor([9.0, 1.0, 1.0, 1.0, 2.1]), 0))
    assert recovery(before, torch.tensor([99.0, 99.0, 99.0, 5.0, 1.0]), 2) == 2  # counted from the last deviant
    assert recovery(0 * before, torch.full((5,), 1e-9), 0) == 1  # rounding is not an error


def test_the_first_factor_is_the_undisturbed_prompt_and_references_behave_as_they_must():
    task = tasks.build("linear")
    references = {name: Subject(rule) for name, rule in task.references().items()}
    found = deviant(references, task, spec(task, 256, 40.0), factors=[1, 100])
    mse = {(row["attn"], row["factor"]): row["value"] for row in found.cells if row["metric"] == "mse"}
    y = draw(task, 40, spec(task, 256, 40.0), task.training).targets[:, ::2][:, 3:]
    assert mse["zero", 1] == mse["zero", 100] == pytest.approx(y.square().mean().item())  # index 0 is not scored
    assert mse["least-squares", 100] < 1e-6
    assert mse["3-nn", 100] > 10 * mse["3-nn", 1]  # the deviant is among the nearest early on
    rows = [row for row in found.positions if (row["attn"], row["factor"]) == ("zero", 100)]
    assert [row["index"] for row in rows] == list(range(40))
    assert rows[0]["value"] > 100  # the deviant's own answer


def test_the_sign_of_the_largest_is_fooled_by_deviants_against_the_truth_only():
    task = tasks.build("every")
    references = {"sign-of-largest": Subject(task.references()["sign-of-largest"])}
    found = deviant(references, task, spec(task, 512, 20.0), factors=[1000])
    rates = {row["metric"]: row["value"] for row in found.cells}
    assert rates["flip-against"] > 0.1
    assert rates["flip-with"] < 0.05


def test_indices_and_tasks_that_make_no_sense():
    task = tasks.build("linear")
    for index in (-1, 7, 99):
        with pytest.raises(BadValue, match="index from 0 to 6"):
            check(task, 8, [index])
    check(task, 8, [0, 6])


def test_from_finished_runs_to_a_table(tiny, lab):
    groups = {attn: [lab.store.run(tiny("linear", attn), seed) for seed in (0, 1)] for attn in ("softmax", "ssa")}
    found = deviants.disturb(groups, lab, [0], [1, 100], 64)
    assert found.rules == ["softmax", "ssa"]
    assert (found.seeds, found.factors) == (2, [1, 100])
    assert len(found.values("softmax", "mse", 100)) == 2
    assert len(found.values("reference:zero", "mse", 100)) == 1
    text = deviants.markdown(found, "linear", "icl-lab deviant ...")
    assert "| printed (Table 5: 12L8AH, softmax) | 6.4e-05 | 2.20 |" in text
    assert "| `ssa` / `softmax` |" in text
    ratio = found.mean("ssa", "mse", 1) / found.mean("softmax", "mse", 1)
    assert 0.5 < ratio < 2
    assert all(run.trained and not run.finished for runs in groups.values() for run in runs)

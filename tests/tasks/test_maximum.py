"""The maximum and its counterpart, the mean: draws, closed forms, and answers by hand."""

from functools import partial

import pytest
import torch

from icl_lab import tasks
from icl_lab.tasks.base import Prompt
from tests.tasks import draws
from tests.tasks.draws import score

draw = partial(draws.draw, at="maximum")


def test_the_class_of_the_highest_priority_by_a_loop():
    task, prompt = draw("maximum:classes=4", length=20)
    assert prompt.tokens.shape == (64, 20, 5)
    for row, wanted in zip(prompt.tokens.tolist(), prompt.targets.tolist(), strict=True):
        best, kind = -1.0, None
        for (priority, *one_hot), truth in zip(row, wanted, strict=True):
            assert 0 <= priority < 1
            assert sorted(one_hot) == [0, 0, 0, 1]
            if priority > best:
                best, kind = priority, one_hot.index(1)
            assert truth == kind


def test_priorities_are_even_and_sigma_changes_no_answer():
    _, prompt = draw("maximum", prompts=2000)
    priority = prompt.tokens[..., 0]
    assert priority.mean().item() == pytest.approx(0.5, abs=0.01)
    assert priority.square().mean().item() == pytest.approx(1 / 3, abs=0.01)
    wide = draw("maximum", prompts=2000, sigma=4.0)[1]
    assert torch.equal(wide.targets, prompt.targets)
    assert torch.equal(wide.tokens[..., 0], 4 * priority)
    assert torch.equal(wide.tokens[..., 1:], prompt.tokens[..., 1:])
    shares = torch.bincount(prompt.targets[:, -1].long(), minlength=10) / 2000
    assert (shares - 0.1).abs().max() < 0.03


def test_what_references_score_in_maximum():
    """The last of n is the maximum once in n; another one has its class once in ten."""
    task, prompt = draw("maximum", prompts=20_000, length=8)
    assert score(task, prompt, "exact-rule") == {"last": 0, "all": 0}
    assert score(task, prompt, "chance")["last"] == pytest.approx(0.9, abs=0.01)
    assert score(task, prompt, "most-recent")["last"] == pytest.approx(0.9 * 7 / 8, abs=0.01)
    tokens = torch.tensor([[[0.3, 1, 0, 0], [0.9, 0, 1, 0], [0.4, 1, 0, 0]]])
    by_hand = Prompt(tokens, torch.tensor([[0.0, 1, 1]]), torch.ones(1, 3, dtype=torch.bool))
    three = tasks.build("maximum:classes=3")
    answers = {name: rule(by_hand).argmax(2)[0].tolist() for name, rule in three.references().items()}
    assert answers["exact-rule"] == [0, 1, 1]
    assert answers["most-recent"] == [0, 1, 0]
    assert answers["most-frequent"] == [0, 0, 0]
    assert three.confidence(torch.zeros(1, 3, 3), by_hand)["cross-entropy"].item() == pytest.approx(1.0986123)
    assert [mark.text for mark in three.marks(by_hand)] == ["c1 0.3", "c2 0.9", "c1 0.4"]


def test_the_mean_by_a_loop_and_its_references():
    task, prompt = draw("mean-value", length=9)
    for row, wanted in zip(prompt.tokens[..., 0].tolist(), prompt.targets.tolist(), strict=True):
        assert wanted == pytest.approx([sum(row[: i + 1]) / (i + 1) for i in range(9)], abs=1e-5)
    assert score(task, prompt, "exact-rule") == {"last": 0, "all": 0}
    for sigma in (1.0, 3.0):
        many = draw("mean-value", prompts=40_000, length=4, sigma=sigma)[1]
        assert score(task, many, "zero")["last"] == pytest.approx(1 + sigma**2 / 4, rel=0.04)
        # The last number lies sigma^2 (1 - 1 / n) from the mean that it is part of.
        assert score(task, many, "most-recent")["last"] == pytest.approx(sigma**2 * 3 / 4, rel=0.04)
    by_hand = Prompt(torch.tensor([[[1.0], [3.0], [2.0]]]), torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool))
    assert task.references()["greatest"](by_hand).flatten().tolist() == [1, 3, 3]
    assert task.references()["exact-rule"](by_hand).flatten().tolist() == [1, 2, 2]
    views = task.views(torch.tensor([[1.0, 3.0, 5.0]]), by_hand)
    assert {name: value.item() for name, value in views.items()} == {"last": 5, "all": 3}

"""The set complement: the even law of absent symbols, by hand."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.rng import stream


def draw(prompts=50, length=8, **shift):
    task = tasks.build("complement")
    return task, task.sample(stream(0, "complement"), prompts, length, **shift)


def test_symbols_come_once_and_the_next_is_one_that_has_not():
    task, prompt = draw()
    for tokens, wanted in zip(prompt.tokens.tolist(), prompt.targets.tolist(), strict=True):
        assert len(set(tokens)) == 8
        assert wanted[:-1] == tokens[1:]
        assert wanted[-1] not in tokens
    twice = task.sample(stream(0, "complement"), 50, 8, repeats=2)
    assert torch.equal(twice.tokens[:, ::2], prompt.tokens[:, :4])
    assert torch.equal(twice.tokens[:, 1::2], prompt.tokens[:, :4])
    assert torch.equal(twice.targets[:, :2], prompt.targets[:, :1].expand(-1, 2))


def test_divergences_by_hand():
    """After s of 32 symbols all alike are log(32 / (32 - s)) away, which leaves s / 32 to those that have come."""
    task, prompt = draw()
    uniform = task.references()["uniform"](prompt)
    errors = task.errors(uniform, prompt)
    assert errors[0].tolist() == pytest.approx([math.log(32 / (32 - s)) for s in range(1, 9)], rel=1e-4)
    assert task.confidence(uniform, prompt)["invalid"][0].item() == pytest.approx(8 / 32)
    views = task.views(errors, prompt)
    assert views["last"][0].item() == pytest.approx(math.log(4 / 3), rel=1e-4)
    assert views["all"][0].item() == pytest.approx(errors[0].mean().item())
    assert task.loss(uniform, prompt).item() == pytest.approx(errors.mean().item(), rel=1e-4)
    assert tasks.build("complement:labels=next").loss(uniform, prompt).item() == pytest.approx(math.log(32), rel=1e-5)


def test_only_the_even_law_of_absent_symbols_is_no_divergence():
    task, prompt = draw()
    exact = task.references()["exact-rule"](prompt)
    assert task.errors(exact, prompt).abs().max() < 1e-6
    assert task.confidence(exact, prompt)["invalid"].max() < 1e-6
    uneven = exact.clone()
    uneven.scatter_(2, prompt.targets.long().unsqueeze(2), 5.0)  # sure of the one that comes
    assert task.errors(uneven, prompt).min() > 1
    near = task.errors(task.references()["not-the-last"](prompt), prompt)
    assert near[:, 0].max() < 1e-6 < 0.01 < near[:, 1].min()

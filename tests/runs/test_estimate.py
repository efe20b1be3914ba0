"""How long a training takes counts only what is left of it; how long a test, its prompts and passes."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.runs import estimate
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.spec import resolve


def test_examples_are_those_of_the_steps_that_are_left():
    spec = resolve("linear", "softmax", "smoke").train
    whole = sum(spec.length_at(step) for step in range(spec.steps))
    assert estimate.examples(spec) == whole
    assert estimate.examples(spec, 200) == sum(spec.length_at(step) for step in range(200, 300))
    assert estimate.examples(spec, 300) == 0


@pytest.mark.slow
def test_examples_of_very_many_steps_are_counted_in_part():
    spec = PRESETS["paper"].train
    whole = sum(spec.length_at(step) for step in range(spec.steps))
    assert math.isclose(estimate.examples(spec), whole, rel_tol=1e-3)
    huge = resolve("linear", "softmax", "smoke", ["train.steps=1000000000"]).train
    assert estimate.examples(huge) > 1e9


def test_an_estimate_counts_the_examples_of_a_training(monkeypatch):
    spec = resolve("linear", "softmax", "smoke")
    monkeypatch.setattr(estimate.environment, "seconds", lambda step, device: (step(), 1.0)[1])
    seconds, _ = estimate.training_seconds(spec, torch.device("cpu"))
    assert seconds == estimate.examples(spec.train) / spec.train.longest


def test_the_estimate_of_a_test_counts_prompts_and_passes(monkeypatch):
    monkeypatch.setattr(estimate.environment, "seconds", lambda one, device: (one(), 1.0)[1])
    cells = ["test.prompts=64", "test.axes.sigma_x=1,2", "test.axes.sigma_f=1,2,4", "test.axes.length=10,30,40"]

    def seconds(attn="softmax", task="linear", more=cells):
        return estimate.test_seconds(resolve(task, attn, "smoke", more), torch.device("cpu"))

    monkeypatch.setattr(estimate, "FEW", 16 * 80**2)  # 40 examples are 80 tokens: 16 prompts at once
    assert seconds() == 6 * 64 / 16
    # One pass a length:
    assert seconds("cosformer:horizon=current") == 6 * 64 / 16 * (10 + 30 + 40) / 40
    monkeypatch.setattr(estimate, "FEW", 1)  # one prompt at the least
    assert seconds() == 6 * 64
    monkeypatch.setattr(estimate, "FEW", 10**9)  # no more prompts than the test has
    assert seconds() == 6


@pytest.mark.parametrize(("task", "prompts", "ours"), [("linear", 6400, 1), ("every", 64, 2)])
def test_the_estimate_of_a_published_test_counts_its_own_prompts(monkeypatch, task, prompts, ours):
    """100 functions on 64 prompts of linear; of a quantifier the published set alone, without a balanced one."""
    monkeypatch.setattr(estimate.environment, "seconds", lambda one, device: (one(), 1.0)[1])
    monkeypatch.setattr(estimate, "FEW", 1)  # a second a prompt
    cells = ["test.prompts=32", *(f"test.axes.{axis}=1" for axis in tasks.build(task).training)]
    cells += [f"test.axes.{[*tasks.build(task).training][-1]}=1,2,4", "test.axes.length=40"]
    published, drawn = (resolve(task, "softmax", "smoke", cells, draws) for draws in ("paper", "ours"))
    seconds = [estimate.test_seconds(spec, torch.device("cpu")) for spec in (published, drawn)]
    assert seconds == [3 * prompts, 3 * 32 * ours]
    ratio = estimate.test_operations(published) / estimate.test_operations(drawn)
    assert ratio == pytest.approx(prompts / (32 * ours))

"""The range of the numbers of training prompts."""

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.rng import stream


def test_training_range_follows_the_training_distribution():
    linear, every = tasks.build("linear"), tasks.build("every")
    x = torch.randn(100_000, generator=stream(0, "range"))
    assert (x.abs() < every.reach()["x"]).float().mean().item() == pytest.approx(0.99, abs=0.002)
    assert every.reach(sigma=10)["x"] == 10 * every.reach()["x"]
    prompt = linear.sample(stream(0, "range"), 100_000, 1)
    assert (prompt.tokens[:, 1].abs() < linear.reach()["y"]).float().mean().item() == pytest.approx(0.99, abs=0.002)
    assert set(linear.reach(sigma_x=3)) == {"x"}

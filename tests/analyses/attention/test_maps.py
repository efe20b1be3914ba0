"""Maps of a prompt and of means over prompts."""

import torch

from icl_lab import tasks
from icl_lab.analyses.attention.maps import attention_maps
from icl_lab.base.rng import stream
from icl_lab.normalizers.base import causal
from icl_lab.pipeline import load_or_train

CPU = torch.device("cpu")


def test_window_shows_the_same_numbers_as_the_whole(see):
    settings = ["model.layers=2"]
    whole = see("ssa", settings=settings).frames[0].maps[0]
    part = see("ssa", settings=settings, layers="1", heads="1", last=3).frames[0].maps[0]
    assert part.first == 4
    assert torch.equal(part.weights, whole.weights[1:, 1:, 4:])
    assert torch.equal(part.scores, whole.scores[1:, 1:, 4:])
    assert part.weights.shape == (1, 1, 3, 7)


def test_means_and_spread_are_those_of_single_prompts(runs_of, lab, monkeypatch):
    (run,) = runs_of("ssa")
    model, task = load_or_train(run, lab), tasks.build("every")
    prompt = task.sample(stream(0, "x"), 6, 5)
    monkeypatch.setattr("icl_lab.runs.measure.MEMORY", 2 * 4 * model.bytes_a_prompt(10))  # 4 prompts at once, then 2
    mean = attention_maps(model, prompt, [0], [0, 1], 10, CPU)
    single = [
        attention_maps(model, task.sample(stream(0, "x"), 6, 5).take(n + 1), [0], [0, 1], 10, CPU) for n in range(6)
    ]
    running = torch.stack([each.weights for each in single])  # the mean over the first n + 1
    each = torch.diff(
        torch.cat((torch.zeros_like(running[:1]), running * torch.arange(1, 7).view(-1, 1, 1, 1, 1))), dim=0
    )
    assert torch.allclose(mean.weights, each.mean(0), atol=1e-6)
    assert torch.allclose(mean.spread, each.std(0, correction=0), atol=1e-4)
    visible = causal(10)
    assert (mean.weights[..., ~visible] == 0).all()
    assert mean.outputs.shape == (6, 10, 1)
    assert (single[0].spread.abs() < 1e-3).all()

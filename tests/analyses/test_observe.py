"""The shared reading of attention: rows of a model, and statistics of weights of any sign."""

import math

import pytest
import torch

from icl_lab.analyses.attention_rows import attention_rows, entropy, head_rows, shares
from icl_lab.pipeline import subject
from icl_lab.runs.measure import TestSpec, draw


def test_entropy_and_shares_of_signed_weights():
    weights = torch.tensor([[0.5, -0.5, 0.0], [2.0, 0.0, 0.0]])
    assert shares(weights).tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    assert entropy(weights).tolist() == pytest.approx([math.log(2), 0.0])


def test_attention_rows_are_those_that_the_model_uses(tiny, untrained):
    trained = untrained(tiny("needle:alphabet=4,keys=2", "ssa", "test.axes.length=32,48", "test.axes.depth=50"))
    model, task, device = trained.model, trained.task, trained.lab.device
    prompt = draw(task, 32, TestSpec(prompts=64, axes={"length": [32.0]}), {})
    at = task.asking(32)
    (row, *_) = attention_rows(model, prompt, at, device)
    whole = {}
    model(prompt.tokens, watch=lambda layer, w, z: whole.update({layer: (w, z)}))
    n = len(row.weights)
    assert torch.allclose(row.weights[:, 0], whole[0][0][:n, :, at, : at + 1], atol=1e-6)
    assert torch.allclose(row.scores[:, 0], whole[0][1][:n, :, at, : at + 1], atol=1e-5)
    answered = subject(model, task, device).predict(prompt)[:n, task.answers]
    assert torch.allclose(row.outputs[:, task.answers], answered, atol=1e-5)


def test_rows_of_heads_hold_means_over_prompts():
    values = torch.tensor([[[1.0, 2.0]], [[3.0, 6.0]]])  # two prompts, one layer, two heads
    rows = head_rows({"largest": values}, {"length": 8})
    assert [(row["length"], row["layer"], row["head"], row["metric"], row["value"]) for row in rows] == [
        (8, 0, 0, "largest", 2.0),
        (8, 0, 1, "largest", 4.0),
    ]
    assert rows[1]["stderr"] == pytest.approx(2.0)  # sqrt(8 / 2)
    assert rows[1]["count"] == 2

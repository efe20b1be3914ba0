"""log-n grows with the length only beyond the training length."""

import math

import pytest
import torch

from icl_lab import normalizers
from icl_lab.normalizers.base import causal

TRAINED = 8


def weights(choice):
    rule = normalizers.build(choice, heads=1, head_dim=4, train_tokens=TRAINED)
    q, k = torch.randn(2, 1, 1, 20, 4, generator=torch.Generator().manual_seed(0))
    return q, k, rule.weights(q, k, causal(20))


def test_rows_within_the_training_length_are_those_of_softmax():
    plain, grown = weights("softmax")[2], weights("log-n")[2]
    torch.testing.assert_close(grown[..., :TRAINED, :], plain[..., :TRAINED, :])
    assert not torch.allclose(grown[..., TRAINED:, :], plain[..., TRAINED:, :])


@pytest.mark.parametrize("n", [9, 20])
def test_rows_beyond_it_are_sharper_by_the_ratio_of_logarithms(n):
    q, k, found = weights("log-n")
    scores = (q[0, 0, n - 1] @ k[0, 0, :n].T) / 2
    expected = (math.log(n) / math.log(TRAINED) * scores).softmax(-1)
    torch.testing.assert_close(found[0, 0, n - 1, :n], expected)

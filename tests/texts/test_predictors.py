"""N-gram models and compressors against arithmetic done by hand."""

import math
import random
import zlib

import pytest
import torch
from torch.nn import functional as F

from icl_lab.tasks.texts import compressors
from icl_lab.tasks.texts.ngrams import NGram


def spans(*texts):
    return tuple(torch.tensor(list(text.encode())) - 97 for text in texts)


def by_hand(texts, vocabulary, order, context, token):
    """The formula, one probability at a time: a context is a string, a token a letter."""
    if order == 0:
        return 1 / vocabulary
    h = context[len(context) - (order - 1) :] if order > 1 else ""
    shorter = by_hand(texts, vocabulary, order - 1, context, token)
    if len(context) < order - 1:
        return shorter
    follows = [t[i + len(h)] for t in texts for i in range(len(t) - len(h)) if t[i : i + len(h)] == h]
    if not follows:
        return shorter
    kinds = len(set(follows))
    return (follows.count(token) + kinds * shorter) / (len(follows) + kinds)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_are_those_of_the_formula(order):
    rng = random.Random(order)
    texts = ["".join(rng.choice("aabc") for _ in range(40)), "abcabd"]
    prompt = "abcdabca"
    p = NGram(spans(*texts), 5, order)(spans(prompt)[0].unsqueeze(0)).exp()[0]
    wanted = [
        [by_hand(texts, 5, order, prompt[: place + 1], letter) for letter in "abcde"] for place in range(len(prompt))
    ]
    torch.testing.assert_close(p, torch.tensor(wanted), rtol=1e-5, atol=1e-7)


def test_a_bigram_of_one_line():
    """In abab, b follows a twice and nothing else does: (2 + 1 P_1(b)) / 3, P_1(b) = (2 + 2/2) / 6 = 1/2."""
    p = NGram(spans("abab"), 2, 2)(torch.tensor([[0]])).exp()
    torch.testing.assert_close(p[0, 0], torch.tensor([1 / 6, 5 / 6]))


def test_no_context_reaches_over_the_end_of_a_span():
    assert NGram(spans("a", "b"), 2, 2)(torch.tensor([[0]])).exp()[0, 0].tolist() == [0.5, 0.5]


def test_compressors_charge_what_the_text_grows_by():
    text = b"the same again, the same again, the same again, and now something else: 0123456789 " * 4
    window = torch.tensor([list(text[:257])])
    outputs = compressors.logits(window, 256, compressors.deflate, bytes)
    nats = F.cross_entropy(outputs[0], window[0, 1:], reduction="none")
    for t in (1, 8, 64, 96, 128, 256):
        size = [len(compressors.deflate(text[: n + 1])) for n in range(t + 1)]
        assert nats[:t].sum().item() == pytest.approx(8 * math.log(2) * (max(size) - size[0]), abs=0.01), t
    assert compressors.deflate(text) == zlib.compress(text, 9, wbits=-15)
    assert len(compressors.lzma2(text)) < len(text)


def test_compressed_windows_are_cut_as_they_are_scored():
    window = torch.randint(97, 123, (2, 129), generator=torch.Generator().manual_seed(0))
    whole, part = (compressors.logits(window[:, : t + 1], 256, compressors.deflate, bytes) for t in (128, 100))
    assert torch.equal(whole[:, :100], part)

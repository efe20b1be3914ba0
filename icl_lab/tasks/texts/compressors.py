"""General compressors as predictors: by how many bytes the next tokens lengthen the compressed text."""

import lzma
import math
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

# The size is taken after each of the first tokens, then after every so many up to a second bound, then after more.
SINGLY, STRIDE, OFTEN, FARTHER = 64, 8, 256, 32
FAR = -1e4  # a logit that is as good as none, and finite
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**16}]

Compress = Callable[[bytes], bytes]


def deflate(text: bytes) -> bytes:
    """The stream of gzip without its header (RFC 1951), level 9."""
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    return made.compress(text) + made.flush()


# The stream of xz without its header.
lzma2: Compress = partial(lzma.compress, format=lzma.FORMAT_RAW, filters=FILTERS)


def places(t: int) -> list[int]:
    """Return after how many tokens the size is taken, 0 to ``t``.

    >>> places(66)[-3:], places(100)[-3:], places(320)[-3:]
    ([62, 63, 64], [80, 88, 96], [256, 288, 320])
    """
    often, farther = range(SINGLY + STRIDE, min(t, OFTEN) + 1, STRIDE), range(OFTEN + FARTHER, t + 1, FARTHER)
    return [*range(min(t, SINGLY) + 1), *often, *farther]


def logits(windows: Tensor, vocabulary: int, compress: Compress, bytes_of: Callable[[Sequence[int]], bytes]) -> Tensor:
    """Windows (b t+1) -> outputs (b t c) whose cross-entropy is what the next token adds to the compressed text.

    Formula: nats_i = 8 log 2 max(0, |C(x_0 .. x_i)| - max_{j < i} |C(x_0 .. x_j)|) where the size is taken, else 0

    Only the mean up to a token after which the size was taken (``places``) means something.
    """
    b, t = windows.shape[0], windows.shape[1] - 1
    nats = torch.zeros(b, t)
    for prompt, row in enumerate(windows.tolist()):
        size = [len(compress(bytes_of(row[: place + 1]))) for place in places(t)]
        greatest = torch.tensor(size).cummax(0).values.tolist()
        for place, (before, after) in zip(places(t)[1:], pairwise(greatest), strict=True):
            nats[prompt, place - 1] = 8 * math.log(2) * (after - before)
    # Of the wanted token p, of each other token (1 - p) / (c - 1): softmax gives that back.
    wanted = -nats
    others = (torch.log(-torch.expm1(wanted.double())) - math.log(vocabulary - 1)).float().clamp(min=FAR)
    outputs = others.unsqueeze(2).expand(b, t, vocabulary).clone()
    return outputs.scatter_(2, windows[:, 1:].long().unsqueeze(2), wanted.unsqueeze(2))

"""The n-gram model: how often a token followed the last few tokens in the training text."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icl_lab.tasks.texts.corpus import Corpus

Whole = NDArray[np.int64]
COUNTED = 20_000_000  # tokens of a text that are counted, from its start


@dataclass(frozen=True)
class Continuations:
    """Counts of the tokens after each context of one length in a text."""

    contexts: Whole  # ascending
    starts: Whole  # row r of ``tokens`` and ``counts`` is starts[r] to starts[r + 1]
    tokens: Whole
    counts: NDArray[np.float32]


class NGram:
    """Interpolated n-gram probabilities, Witten and Bell's.

    Formula: P_m(w|h) = (c(h w) + T(h) P_{m-1}(w|h')) / (c(h) + T(h)), P_0 = 1/V; h the m-1 tokens before, h' without
        its first, c how often it was counted, T(h) how many different tokens followed h
    Paper: Witten, Bell 1991, The zero-frequency problem (IEEE Transactions on Information Theory 37), method C

    A context that was never counted leaves the prediction to the shorter one. The first tokens of a window have shorter
    contexts: nothing before a window is known.
    """

    def __init__(self, spans: tuple[Tensor, ...], vocabulary: int, order: int) -> None:
        self.vocabulary, self.order = vocabulary, order
        rows = [span.numpy().astype(np.int64) for span in spans]
        self.tables = [self._count(rows, length) for length in range(order)]

    def __call__(self, tokens: Tensor) -> Tensor:
        """Tokens (b t) -> log P of the token after each, (b t V)."""
        b, t = tokens.shape
        read = tokens.cpu().numpy().astype(np.int64)
        p = np.full((b * t, self.vocabulary), 1 / self.vocabulary, dtype=np.float32)
        for length, table in enumerate(self.tables):
            if t < length or not len(table.contexts):
                continue
            # The context after token i is that token and those before it; row i of a prompt has i + 1 tokens.
            codes = self._codes(read, length)
            at = np.arange(b * t).reshape(b, t)[:, max(length - 1, 0) :].reshape(-1)
            row = np.searchsorted(table.contexts, codes.reshape(-1))
            row = np.minimum(row, len(table.contexts) - 1)
            met = table.contexts[row] == codes.reshape(-1)
            self._blend(p, at[met], row[met], table)
        return torch.from_numpy(np.log(p)).view(b, t, self.vocabulary).to(tokens.device)

    def _codes(self, rows: Whole, length: int) -> Whole:
        """Contexts of ``length`` tokens as one number each: rows (.. t) -> (.. t - length + 1), or (.. t) for none."""
        if length == 0:
            return np.zeros_like(rows)
        ends = rows.shape[-1] - length + 1
        codes = np.zeros((*rows.shape[:-1], ends), dtype=np.int64)
        for place in range(length):
            codes = codes * self.vocabulary + rows[..., place : place + ends]
        return codes

    def _count(self, rows: list[Whole], length: int) -> Continuations:
        """Count what follows each context of ``length`` tokens; no context reaches over the end of a span."""
        contexts, following, left = [], [], COUNTED
        for row in rows:
            row, left = row[:left], left - len(row[:left])
            if len(row) > length:
                contexts.append(self._codes(row[:-1], length) if length else np.zeros(len(row), dtype=np.int64))
                following.append(row[length:])
        if not contexts:
            none = np.zeros(0, dtype=np.int64)
            return Continuations(none, np.zeros(1, dtype=np.int64), none, none.astype(np.float32))
        codes, tokens = np.concatenate(contexts), np.concatenate(following)
        order = np.lexsort((tokens, codes))
        codes, tokens = codes[order], tokens[order]
        new = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (tokens[1:] != tokens[:-1])])
        counts = np.diff(np.r_[new, len(codes)]).astype(np.float32)
        codes, tokens = codes[new], tokens[new]
        first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        return Continuations(codes[first], np.r_[first, len(codes)], tokens, counts)

    def _blend(self, p: NDArray[np.float32], at: Whole, row: Whole, table: Continuations) -> None:
        """Mix the counts of rows of a table into the predictions ``at``, in place."""
        first, kinds = table.starts[row], table.starts[row + 1] - table.starts[row]
        where = np.repeat(at, kinds)
        # The entries of each row, one row after another: counted from 0 within the row.
        within = np.arange(kinds.sum()) - np.repeat(np.cumsum(kinds) - kinds, kinds)
        entry = np.repeat(first, kinds) + within
        sums = np.add.reduceat(table.counts, table.starts[:-1])[row]
        total = (sums + kinds).astype(np.float32)
        p[at] *= (kinds / total).astype(np.float32)[:, None]
        p[where, table.tokens[entry]] += table.counts[entry] / np.repeat(total, kinds)


@lru_cache(maxsize=8)
def ngram(corpus: Corpus, order: int) -> NGram:
    """Return the n-gram model of a text's training parts, counted once a process."""
    return NGram(corpus.training, corpus.vocabulary, order)

"""Attention of the heads of a language model as a text grows, and the size of its hidden states."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from icl_lab.analyses.attention_rows import head_rows, inverse_temperature, statistics
from icl_lab.analyses.findings import Row
from icl_lab.language.attention import watched
from icl_lab.language.loss import Tick
from icl_lab.language.model import LanguageModel, windows_of
from icl_lab.runs.measure import summary

SATURATED = 0.99  # a head whose largest weight is above this copies one token
METRICS = ("largest", "saturated", "entropy", "effective", "first", "itself", "previous", "temperature")


def octaves(tokens: int) -> list[int]:
    """Returns how many keys the tokens see at which heads are read: 4, 8, 16 .. and the last."""
    found = [2**power for power in range(2, tokens.bit_length()) if 2**power <= tokens]
    return sorted({*found, tokens})


@torch.no_grad()
def followed(
    language: LanguageModel, windows: Tensor, tick: Tick = lambda done, total: None
) -> tuple[list[Row], list[Row]]:
    """Reads windows (b t) of tokens; returns rows of every head at some tokens, and rows of what enters every layer.

    Heads, at tokens that see n keys (``keys``): their statistics as in the analysis ``heads``; ``saturated``, 1 where
    the largest weight is above 0.99; and the effective inverse ``temperature``. Layers: the Euclidean ``norm`` of the
    hidden states that enter, mean over all tokens but the first, and of the first token alone (``norm-first``).
    """
    heads: dict[tuple[int, str], list[Tensor]] = {}  # keys, metric -> one (l h) a window
    norms: dict[str, list[Tensor]] = {"norm": [], "norm-first": []}  # one (l) a window
    read = windows_of(windows, language.start)
    for done, ids in enumerate(torch.split(read, 1)):
        found: dict[tuple[int, str], list[Tensor]] = {}

        def see(layer: int, weights: Tensor, scores: Tensor, found: dict[Any, list[Tensor]] = found) -> None:
            for keys in octaves(weights.shape[-1]):
                row, raw = (x[0, :, keys - 1, :keys].float().cpu() for x in (weights, scores))
                for metric, values in _metrics(row, raw).items():
                    found.setdefault((keys, metric), []).append(values)

        with watched(language, see):
            made = language.model(
                input_ids=ids.to(language.device), use_cache=False, output_attentions=True, output_hidden_states=True
            )
        for where, layers in found.items():
            heads.setdefault(where, []).append(torch.stack(layers))
        sizes = torch.stack([state[0].float().norm(dim=-1).cpu() for state in made.hidden_states[:-1]])  # last: normed
        norms["norm"].append(sizes[:, 1:].mean(1))
        norms["norm-first"].append(sizes[:, 0])
        tick(done + 1, len(read))
    of_heads = [
        row for (keys, metric), each in heads.items() for row in head_rows({metric: torch.stack(each)}, {"keys": keys})
    ]
    return of_heads, _layer_rows(norms)


def _metrics(weights: Tensor, scores: Tensor) -> dict[str, Tensor]:
    """Weights and scores (h t) of one token's keys -> every metric (h)."""
    found = statistics(weights, roles=1) | {"temperature": inverse_temperature(weights, scores)}
    found["saturated"] = (found["largest"] > SATURATED).double()
    return {metric: found[metric] for metric in METRICS}


def _layer_rows(norms: dict[str, list[Tensor]]) -> list[Row]:
    found: Sequence[tuple[str, Tensor]] = [(metric, torch.stack(each)) for metric, each in norms.items()]
    return [
        {"layer": layer, "metric": metric} | summary(values[:, layer])
        for metric, values in found
        for layer in range(values.shape[1])
    ]

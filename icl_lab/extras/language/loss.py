"""The loss of a language model at each token of a text."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.extras.language.model import LanguageModel, windows_of
from icl_lab.runs.measure import MEMORY

Tick = Callable[[int, int], object]


@torch.no_grad()
def losses(language: LanguageModel, windows: Tensor, tick: Tick = lambda done, total: None) -> Tensor:
    """Windows (b t+1) of tokens -> the cross-entropy of each token but the first in nats, (b t).

    An answer that is not finite has an infinite loss.
    """
    found = []
    for piece in torch.split(windows, together(language, windows.shape[1])):
        read = windows_of(piece, language.start).to(language.device)
        logits = language.model(input_ids=read[:, :-1], use_cache=False).logits
        wanted = piece[:, 1:]
        own = logits[:, -wanted.shape[1] :].float().cpu()
        nats = F.cross_entropy(own.flatten(0, 1), wanted.flatten(), reduction="none").view(wanted.shape)
        found.append(nats.where(nats.isfinite(), torch.inf))
        tick(sum(map(len, found)), len(windows))
    return torch.cat(found)


def together(language: LanguageModel, t: int) -> int:
    """Number of texts of ``t`` tokens that fit into memory at once: scores of one layer, and logits."""
    config = language.model.config.get_text_config()
    heads, words = config.num_attention_heads, config.vocab_size
    return max(1, int(MEMORY / (4.0 * t * (4 * heads * t + 3 * words))))

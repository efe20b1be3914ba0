"""Attention maps of a language model that reads a text: the page of the analysis ``attention``, for two normalizers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icl_lab.analyses.attention.maps import THIS, Frame, Maps, Seen, ShownModel
from icl_lab.analyses.attention.prompt import CELLS, Asked, Window, chosen
from icl_lab.errors import BadValue
from icl_lab.language.model import LanguageModel
from icl_lab.normalizers.base import Normalizer, extra, scores, upcast
from icl_lab.tasks.base import Mark, Prompt, ScoredAnswer

MOST = 2  # models side by side on a page
See = Callable[[int, Tensor, Tensor], object]  # a layer from 0, its weights and scores (b h t t)


def asked(language: LanguageModel, text: str) -> Asked:
    """Reads a text as tokens; raises ``BadValue`` on fewer than two, or more than the model has places for."""
    ids = [*language.start, *language.ids(text)]
    if len(ids) < 2:
        raise BadValue(f"a prompt has at least two tokens, got {len(ids)}.")
    language.check_length(len(ids))
    tokens = torch.tensor([ids])
    wanted = torch.cat((tokens[:, 1:], tokens[:, :1]), 1).float()
    scored = torch.ones_like(tokens, dtype=torch.bool)
    scored[:, -1] = False
    return Asked(text, Prompt(tokens, wanted, scored), len(ids), "typed", {})


def window(language: LanguageModel, reads: Asked, layers: str, heads: str) -> Window:
    """Returns the layers and heads that are shown; raises ``BadValue`` on more cells than a page holds."""
    config = language.model.config.get_text_config()
    made = Window(
        chosen("layer", layers, config.num_hidden_layers), chosen("head", heads, config.num_attention_heads), None
    )
    if (cells := MOST * made.cells(reads.length)) > CELLS:
        raise BadValue(
            f"{cells:,} cells are more than the {CELLS:,} that a page holds; show fewer: --layers 0,1 or --heads 0,1, "
            "or a shorter prompt."
        )
    return made


@torch.no_grad()
def shown(language: LanguageModel, attn: str, reads: Asked, shows: Window) -> tuple[ShownModel, Maps]:
    """Lets the model read the text with the normalizer that stands in it; returns its answers and its maps."""
    ids = reads.prompt.tokens.to(language.device)
    caught: list[tuple[Tensor, Tensor]] = []
    with watched(language, lambda layer, *made: caught.append((made[0][0].float().cpu(), made[1][0].float().cpu()))):
        logits = language.model(input_ids=ids, use_cache=False, output_attentions=True).logits[0].float().cpu()
    weights, each = (torch.stack([caught[layer][part] for layer in shows.layers])[:, shows.heads] for part in (0, 1))
    nats = F.cross_entropy(logits[:-1], reads.prompt.tokens[0, 1:], reduction="none").tolist()
    said = [language.tokenizer.decode([token]) for token in logits.argmax(1).tolist()]
    true = [mark.text for mark in marks(language, reads)]
    answers = [ScoredAnswer(t, spelled(said[t]), true[t + 1], nats[t]) for t in range(reads.length - 1)]
    card = [("model", language.name), ("normalizer", attn)]
    made = ShownModel(attn, attn, 0, card, _learned(language), answers)
    return made, Maps(weights, torch.zeros_like(weights), each, torch.zeros(1, reads.length, 1))


def marks(language: LanguageModel, reads: Asked) -> list[Mark]:
    """The tokens as they are spelled."""
    ids = reads.prompt.tokens[0].tolist()
    return [Mark("x", t, spelled(language.tokenizer.decode([token]))) for t, token in enumerate(ids, 1)]


def spelled(text: str) -> str:
    """A token on one line, with blanks that can be seen; what cannot be printed as ``·``."""
    seen = text.replace(" ", "␣").replace("\n", "↵").replace("\ufffd", "·")
    return "".join(letter if letter.isprintable() else "·" for letter in seen) or "·"


def seen(
    language: LanguageModel, reads: Asked, shows: Window, found: Sequence[tuple[ShownModel, Maps]], command: str
) -> Seen:
    """Puts the maps of one or two normalizers side by side."""
    frame = Frame(THIS, 0.0, marks(language, reads), [maps for _, maps in found])
    return Seen(reads, shows, [each for each, _ in found], [frame], 0, [], command, language.name)


@contextmanager
def watched(language: LanguageModel, see: See) -> Iterator[None]:
    """``see`` is told the weights and scores of every layer's normalizer, in order, while the model reads.

    The model must be asked for ``output_attentions``: normalizers that scale the query make no weights otherwise.
    """
    rules: list[Any] = language.rules

    def watch(layer: int, rule: Normalizer) -> None:
        plain = rule.weights

        def weights(
            q: Tensor, k: Tensor, visible: Tensor, bias: Tensor | None = None, x: Tensor | None = None
        ) -> Tensor:
            made = plain(q, k, visible, **extra(rule, bias, x))
            see(layer, made, scores(upcast(q), upcast(k), bias))
            return made

        rule.weights = weights  # type: ignore[method-assign]

    for layer, rule in enumerate(rules):
        watch(layer, rule)
    try:
        yield
    finally:
        for rule in rules:
            del rule.weights


def _learned(language: LanguageModel) -> dict[tuple[str, int], list[float]]:
    """The numbers of each layer's normalizer, by name and layer; what all layers share is left out."""
    found = {}
    for layer, rule in enumerate(language.rules):
        for name in rule.learned:
            if name not in rule.shared:
                values: Tensor = getattr(rule, name)
                found[name, layer] = values.detach().reshape(-1).tolist()
    return found

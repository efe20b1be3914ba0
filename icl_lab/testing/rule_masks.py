"""The contract of a normalizer with masks as language models have them: one per prompt, and keys kept in a cache."""

import torch
from torch import Tensor

from icl_lab.base.errors import LabError
from icl_lab.normalizers.base import by_blocks, causal, extra, is_causal
from icl_lab.testing.base import close, hold
from icl_lab.testing.rule_inputs import HEADS, masks, qkv, stirred, with_tokens

LATE, FREE = 3, 2  # queries with cached keys, and places that the cache keeps free for keys to come
ROWS = 3  # of a block, which do not divide the tokens


def padded(t: int = 7) -> Tensor:
    """Causal masks of two prompts, (2 1 t t): the second begins with two tokens of padding."""
    visible = torch.ones(2, 1, t, t, dtype=torch.bool).tril()
    visible[1, :, :, :2] = False
    return visible


def each_prompt_may_have_a_mask(choice: str) -> None:
    """A mask (b 1 t t) gives each prompt its result alone under its own mask (t t)."""
    rule, (q, k, v) = stirred(choice), qkv()
    w, o = rule.weights(q, k, padded()), rule.attend(q, k, v, padded())
    hold(w.shape == (2, HEADS, 7, 7), f"under a mask (2 1 7 7) weights have the shape {tuple(w.shape)}")
    for prompt, visible in enumerate(padded()[:, 0]):
        q_1, k_1, v_1 = (x[prompt : prompt + 1] for x in (q, k, v))
        alone = rule.weights(q_1, k_1, visible), rule.attend(q_1, k_1, v_1, visible)
        close(w[prompt : prompt + 1], alone[0], "weights under a mask (b 1 t t) are not those under (t t).")
        close(o[prompt : prompt + 1], alone[1], "attend under a mask (b 1 t t) is not that under (t t).")


def a_cache_of_keys_changes_nothing(choice: str) -> None:
    """The last queries with all keys get their rows of the whole, for any content of the cache's free places.

    A normalizer that cannot have fewer queries than keys says so in a ``LabError``, and one that is not
    ``prefix_consistent`` promises nothing here.
    """
    rule, (q, k, v) = stirred(choice), qkv()
    if not rule.prefix_consistent:
        return
    w, o = rule.weights(q, k, padded())[:, :, -LATE:], rule.attend(q, k, v, padded())[:, :, -LATE:]
    free = torch.full((2, HEADS, FREE, q.shape[-1]), 7.0, dtype=q.dtype)
    visible = torch.nn.functional.pad(padded()[:, :, -LATE:], (0, FREE))
    late, keys, values = q[:, :, -LATE:], torch.cat([k, free], 2), torch.cat([v, free], 2)
    try:
        got = rule.weights(late, keys, visible)
    except LabError:
        return
    close(got[..., :-FREE], w, "beside keys of a cache a query gets other weights than in the whole.")
    hold((got[..., -FREE:] == 0).all(), "a free place of a cache has a weight other than 0")
    close(rule.attend(late, keys, values, visible), o, "beside keys of a cache attend gives something else.")


def padding_changes_nothing(choice: str) -> None:
    """Outputs for a prompt are invariant to padding before or after it, whatever the padding holds."""
    rule, (q, k, v) = stirred(choice), qkv(5)
    alone = rule.weights(q, k, causal(5)), rule.attend(q, k, v, causal(5))
    for where, at in (("before", slice(2, 7)), ("after", slice(0, 5))):
        visible = torch.zeros(2, 1, 7, 7, dtype=torch.bool)
        visible[:, :, at, at] = causal(5)
        q_7, k_7, v_7 = (torch.full((2, HEADS, 7, x.shape[-1]), 7.0, dtype=x.dtype) for x in (q, k, v))
        for whole, part in ((q_7, q), (k_7, k), (v_7, v)):
            whole[:, :, at] = part
        close(rule.weights(q_7, k_7, visible)[:, :, at, at], alone[0], f"padding {where} a prompt changes weights.")
        close(rule.attend(q_7, k_7, v_7, visible)[:, :, at], alone[1], f"padding {where} a prompt changes attend.")


def blocks_of_rows_are_the_whole_where_declared(choice: str) -> None:
    """If ``row_wise`` is declared, queries asked in blocks get the rows of the whole, up to rounding."""
    stirred_rule, (q, k, v) = stirred(choice), qkv()
    rule, x = with_tokens(stirred_rule, q)
    for name, visible in {**masks(), "a mask for each prompt": padded()}.items():
        if rule.fits_blocks(causal=is_causal(visible)):
            whole = rule.weights(q, k, visible, **extra(rule, None, x)) @ v
            blocks = by_blocks(rule, ROWS, q, k, v, visible, None, x)
            close(blocks, whole, f"row_wise is declared, and blocks of rows are not the whole (with {name}).")


MASKS = (
    each_prompt_may_have_a_mask,
    padding_changes_nothing,
    a_cache_of_keys_changes_nothing,
    blocks_of_rows_are_the_whole_where_declared,
)

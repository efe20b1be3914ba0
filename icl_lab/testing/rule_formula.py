"""The contract of a normalizer's weights and outputs: masks, declared traits, gradients, finite numbers."""

import torch
from torch import Tensor

from icl_lab.normalizers.base import causal, full
from icl_lab.testing.base import close, hold
from icl_lab.testing.rule_inputs import (
    HEADS,
    FromQueries,
    build,
    finished,
    gradients,
    hard_cases,
    masks,
    qkv,
    ragged,
    single,
    stirred,
    trait_cases,
)

SOFTMAX = {"softmax", "l1:phi=exp"}  # normalizers that are softmax by their definition


def hidden_keys_get_exactly_zero(choice: str) -> None:
    """Weights have the shape (b h t t) and are exactly 0 where a key is hidden."""
    q, k, _ = qkv()
    for name, visible in masks().items():
        w = stirred(choice).weights(q, k, visible)
        hold(w.shape == (2, HEADS, 7, 7), f"weights have the shape {tuple(w.shape)}, not {(2, HEADS, 7, 7)}")
        hold((w[..., ~visible] == 0).all(), f"a hidden key has a weight other than 0 (with {name})")


def hidden_tokens_have_no_influence(choice: str) -> None:
    """The output of a row has no gradient in the key or value of a hidden token, nor in another row's query."""
    rule = stirred(choice)
    for name in ("the causal mask", "a mask with holes"):
        visible = masks()[name]
        for row in (0, 3, 4):
            q, k, v = (x.requires_grad_() for x in qkv())
            hidden = ~visible[row]
            others = hidden & (torch.arange(7) != row)  # a row's own query is not hidden from it
            o = rule.attend(q, k, v, visible)[:, :, row].square().sum()
            for what, x, unseen in zip(("query", "key", "value"), (q, k, v), (others, hidden, hidden), strict=True):
                (grad,) = torch.autograd.grad(o, x, retain_graph=True, allow_unused=True)
                hold(
                    grad is None or bool((grad[:, :, unseen] == 0).all()),
                    f"row {row} depends on the {what} of a token that is hidden from it (with {name})",
                )


def hiding_is_deleting(choice: str) -> None:
    """A shorter prompt gets the first rows of a longer one, if and only if ``prefix_consistent`` is declared."""
    rule, (q, k, v) = stirred(choice), qkv(9)
    long = rule.weights(q, k, causal(9)), rule.attend(q, k, v, causal(9))
    same = []
    for t in range(1, 9):
        q_t, k_t, v_t = (x[:, :, :t] for x in (q, k, v))
        short = rule.weights(q_t, k_t, causal(t)), rule.attend(q_t, k_t, v_t, causal(t))
        same.append(torch.allclose(long[0][:, :, :t, :t], short[0], atol=1e-10))
        same.append(torch.allclose(long[1][:, :, :t], short[1], atol=1e-10))
    # A normalizer that reads the length of the prompt has to say so, and then has to do so.
    if rule.prefix_consistent:
        hold(all(same), "prefix_consistent is declared, and a row changes when the prompt goes on")
    else:
        hold(not all(same), "prefix_consistent is declared False, and no row changes when the prompt goes on")


def hiding_is_deleting_anywhere(choice: str) -> None:
    """A hidden token changes nothing; nor does its presence, unless the normalizer reads positions or length."""
    rule, (q, k, _), visible = stirred(choice), qkv(), ragged(7)
    w = rule.weights(q, k, visible)
    other = torch.Generator().manual_seed(0)
    for row in range(7):
        unseen = ~visible[row] & (torch.arange(7) != row)
        other_q, other_k = (
            torch.where(unseen.view(-1, 1), torch.randn(x.shape, generator=other, dtype=x.dtype), x) for x in (q, k)
        )
        other_k[:, :, row] = k[:, :, row] if visible[row, row] else 7.0
        same = rule.weights(other_q, other_k, visible)[:, :, row]
        close(same, w[:, :, row], f"row {row} changes with what a hidden token is.")
        if rule.prefix_consistent and not rule.ordered:
            kept = visible[row].clone()
            kept[row] = True
            at = int(kept[:row].sum())
            alone = rule.weights(q[:, :, kept], k[:, :, kept], visible[kept][:, kept])
            close(alone[:, :, at], w[:, :, row][..., kept], f"row {row} changes when hidden tokens are taken out.")


def large_hidden_tokens_have_no_influence(choice: str) -> None:
    """In single precision, rows before keys and values of 1e18 are those before ordinary ones, up to rounding."""
    rule, (q, k, v) = single(choice), (x.float() for x in qkv())
    if rule.prefix_consistent:
        large = (torch.cat((x[:, :, :5], 1e18 * x[:, :, 5:].sign()), 2) for x in (k, v))
        (w, o), (got, out) = (
            (rule.weights(q, keys, causal(7)), rule.attend(q, keys, values, causal(7)))
            for keys, values in ((k, v), tuple(large))
        )
        same = (
            torch.allclose(got[:, :, :5], w[:, :, :5], atol=1e-5),
            torch.allclose(out[:, :, :5], o[:, :, :5], atol=1e-4),
        )
        hold(all(same), "a row changes with a hidden key or value of 1e18, of which all scores are finite")


def rows_sum_to_one_where_declared_and_only_there(choice: str) -> None:
    """The weights of every row sum to 1, if and only if ``sums_to_one`` is declared."""
    rule = stirred(choice)
    found = any(bool(((rule.weights(*case).sum(-1) - 1).abs() > 1e-9).any()) for case in trait_cases())
    declared = "sums_to_one is declared, and a row does not sum to 1"
    hold(found is not rule.sums_to_one, declared if found else "sums_to_one is declared False, and every row sums to 1")


def weights_are_not_negative_where_declared_and_only_there(choice: str) -> None:
    """No weight is negative, if and only if ``non_negative`` is declared."""
    rule = stirred(choice)
    found = any(bool((rule.weights(*case) < 0).any()) for case in trait_cases())
    declared = "non_negative is declared, and a weight is negative"
    hold(
        found is not rule.non_negative,
        declared if found else "non_negative is declared False, and no weight is negative",
    )


def keys_may_change_places_where_declared_and_only_there(choice: str) -> None:
    """Keys in another order get the same weights in that order, if and only if ``ordered`` is not declared."""
    rule, (q, k, _) = stirred(choice), qkv()
    order, visible = torch.tensor([3, 0, 6, 1, 5, 4, 2]), torch.ones(7, 7, dtype=torch.bool)
    if isinstance(rule, FromQueries):  # a token moves with its key
        moved, w = rule.weights(q[:, :, order], k[:, :, order], visible), rule.weights(q, k, visible)[:, :, order]
    else:
        moved, w = rule.weights(q, k[:, :, order], visible), rule.weights(q, k, visible)
    same = torch.allclose(moved, w[..., order], atol=1e-10)
    words = "ordered is declared, and the order of keys" if same else "ordered is not declared, and the order of keys"
    hold(same is not rule.ordered, f"{words} {'does not matter' if same else 'matters'}")


def both_sides_count_alike_unless_one_sided(choice: str) -> None:
    """A prompt read backwards under the full mask gets its weights backwards, if and only if not ``one_sided``."""
    rule, (q, k, _) = stirred(choice), qkv()
    w, backwards = rule.weights(q, k, full(7)), rule.weights(q.flip(2), k.flip(2), full(7))
    same = torch.allclose(backwards, w.flip(2, 3), atol=1e-10)
    words = "later keys count as earlier ones do" if same else "later keys do not count as earlier ones do"
    hold(same is not rule.one_sided, f"one_sided is {'' if rule.one_sided else 'not '}declared, and {words}")


def hard_scores_stay_finite(choice: str) -> None:
    """In single precision, weights, output and gradients are finite for huge, tiny, equal and zero scores."""
    rule = single(choice)
    for name, tensors in hard_cases().items():
        t = tensors[0].shape[2]
        for visible in (causal(t), torch.eye(t, dtype=torch.bool), torch.ones(t, t, dtype=torch.bool)):
            o, grads = gradients(rule, tensors, visible)
            hold(o.isfinite().all(), f"the output is not finite: {name}")
            hold(rule.weights(tensors[0], tensors[1], visible).isfinite().all(), f"a weight is not finite: {name}")
            bad = ", ".join(what for what, grad in grads.items() if not grad.isfinite().all())
            hold(not bad, f"the gradient of {bad} is not finite: {name}")


def a_row_that_sees_nothing_gets_zeros(choice: str) -> None:
    """A row without visible keys has weights and output 0, and finite gradients."""
    rule, tensors, visible = stirred(choice), qkv(), ragged(7)
    w = rule.weights(tensors[0], tensors[1], visible)
    hold((w[:, :, 2] == 0).all(), "a row that sees nothing has weights other than 0")
    for mask in (visible, torch.zeros_like(visible)):
        o, grads = gradients(rule, tensors, mask)
        hold((o[:, :, ~mask.any(-1)] == 0).all(), "a row that sees nothing has an output other than 0")
        hold(all(grad.isfinite().all() for grad in grads.values()), "beside a row that sees nothing a gradient is NaN")


def gradients_are_those_of_the_formula(choice: str) -> None:
    """Gradients of weights and output agree with finite differences, in q, k, v and every learned parameter."""
    rule = stirred(choice)
    learned = [p for p in rule.parameters() if p.requires_grad]
    for name, visible in (("the causal mask", causal(4)), ("a mask with holes", ragged(4))):
        tensors = [x.requires_grad_() for x in qkv(4, b=1)]

        # gradcheck moves the parameters in place, so the normalizer need not be handed them.
        def both(q: Tensor, k: Tensor, v: Tensor, *_: Tensor, seen: Tensor = visible) -> tuple[Tensor, Tensor]:
            return rule.attend(q, k, v, seen), rule.weights(q, k, seen) + 0 * q.sum()

        # Fast: one random direction in place of every entry.
        right = torch.autograd.gradcheck(both, (*tensors, *learned), atol=1e-6, fast_mode=True, raise_exception=False)
        hold(right, f"a gradient is not that of the weights or the output (with {name})")


def attend_is_weights_times_values(choice: str) -> None:
    """``attend`` returns ``weights @ v`` (``output`` of it, where ``finishes``), whatever shorter road it takes."""
    rule, (q, k, v) = stirred(choice), qkv()
    for name, visible in masks().items():
        got, sums = rule.attend(q, k, v, visible), rule.weights(q, k, visible) @ v
        what = "output(weights @ v)" if rule.finishes else "weights @ v"
        close(got, finished(rule, q, sums), f"attend is not {what} (with {name}).", rtol=1e-9, atol=1e-11)
        plain = torch.allclose(got, sums, rtol=1e-9, atol=1e-11)
        hold(not (plain and rule.finishes), "finishes is declared, and attend is weights @ v")
        hold(plain or rule.finishes, "finishes is not declared, and output changes weights @ v")


def asked_twice_it_gives_the_same(choice: str) -> None:
    """Weights depend on nothing but queries, keys and the mask."""
    rule, (q, k, _) = stirred(choice), qkv()
    first = rule.weights(q, k, causal(7))
    other_q, other_k, _ = qkv(5, seed=1)
    rule.weights(other_q, other_k, causal(5))
    hold(
        torch.equal(first, rule.weights(q, k, causal(7))), "the same queries and keys get other weights the second time"
    )


def the_normalizer_is_in_the_path(choice: str) -> None:
    """Weights and output both differ from softmax's, but for the normalizers that are softmax by definition."""
    rule, softmax, (q, k, v) = stirred(choice), build("softmax"), qkv(9, gain=0.7)
    same_weights = torch.allclose(rule.weights(q, k, causal(9)), softmax.weights(q, k, causal(9)))
    same_output = torch.allclose(rule.attend(q, k, v, causal(9)), softmax.attend(q, k, v, causal(9)))
    inside = choice.partition("+gated")[0]  # which leaves the weights as they are
    hold(same_weights is (inside in SOFTMAX), f"its weights are {'' if same_weights else 'not '}those of softmax")
    hold(same_output is (choice in SOFTMAX), f"its output is {'' if same_output else 'not '}that of softmax")


FORMULA = (
    hidden_keys_get_exactly_zero,
    hidden_tokens_have_no_influence,
    a_row_that_sees_nothing_gets_zeros,
    hiding_is_deleting,
    hiding_is_deleting_anywhere,
    large_hidden_tokens_have_no_influence,
    rows_sum_to_one_where_declared_and_only_there,
    weights_are_not_negative_where_declared_and_only_there,
    keys_may_change_places_where_declared_and_only_there,
    both_sides_count_alike_unless_one_sided,
    attend_is_weights_times_values,
    asked_twice_it_gives_the_same,
    gradients_are_those_of_the_formula,
    hard_scores_stay_finite,
    the_normalizer_is_in_the_path,
)

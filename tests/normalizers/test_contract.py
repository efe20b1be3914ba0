"""The contract of a normalizer, over every rule there is: a new file is covered by being there."""

import inspect
import itertools
import math
import typing
from collections.abc import Iterator
from types import UnionType

import pytest
import torch
from torch import Tensor

from icl_lab import normalizers
from icl_lab.errors import BadValue, LabError
from icl_lab.normalizers.base import Normalizer, causal, is_causal

HEADS, WIDTH, TRAINED = 4, 4, 5
MORE = [
    "ssa:n=2,learn=no",
    "sink:s=0,learn=no",
    "entmax:alpha=1.3",
    "entmax:alpha=2",
    "cosformer:horizon=3",
    "ssmax:s=0.43",
    "softmax+reweight:p=1",
    "softmax+reweight:p=15",
    "lssa+reweight:p=15",
    "ssa+reweight:p=3",
    "stick-breaking+reweight",
]
SOFTMAX = {"softmax", "l1:phi=exp"}  # rules that are softmax by their definition


def options(annotation: typing.Any) -> list[str]:
    """All values of the finite kinds of an option."""
    if typing.get_origin(annotation) in (UnionType, typing.Union):
        return [value for kind in typing.get_args(annotation) for value in options(kind)]
    if typing.get_origin(annotation) is typing.Literal:
        return [str(value) for value in typing.get_args(annotation)]
    return ["yes", "no"] if annotation is bool else []


def choices() -> Iterator[str]:
    """Every rule with its defaults, and with every combination of the options that are lists of names or yes and no."""
    for name in normalizers.names():
        finite = {
            key: values for key, p in normalizers.registry.options(name).items() if (values := options(p.annotation))
        }
        for picked in itertools.product(*(["", *values] for values in finite.values())):
            given = [f"{key}={value}" for key, value in zip(finite, picked, strict=True) if value]
            choice = name + (":" + ",".join(given) if given else "")
            try:
                build(choice)
            except BadValue:
                continue
            if not is_default(name, given):
                yield choice


def is_default(name: str, given: list[str]) -> bool:
    """Whether an option is given that has this value anyway."""
    spellings = {True: "yes", False: "no"}
    defaults = {key: p.default for key, p in normalizers.registry.options(name).items()}
    return any(f"{key}={spellings.get(v, v) if isinstance(v, bool) else v}" in given for key, v in defaults.items())


def build(choice: str) -> Normalizer:
    rule = normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=TRAINED)
    return rule.double()


def stirred(choice: str) -> Normalizer:
    """A rule whose parameters have left their starting values, each its own way."""
    rule = build(choice)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in rule.parameters():
            parameter += 0.2 * (torch.rand(parameter.shape, generator=generator, dtype=torch.float64) + 0.1)
    return rule


def qkv(t: int = 7, *, b: int = 2, width: int = WIDTH, seed: int = 0, gain: float = 1.5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, b, HEADS, t, width, generator=generator, dtype=torch.float64)
    return [q * gain, k, v]


def ragged(t: int, *, diagonal: bool = False) -> Tensor:
    """A mask that is not causal; its third row sees nothing, or every row itself."""
    visible = torch.rand(t, t, generator=torch.Generator().manual_seed(3)) < 0.6
    visible[2] = False
    return visible | torch.eye(t, dtype=torch.bool) if diagonal else visible


def scored(z: Tensor, width: int = WIDTH) -> list[Tensor]:
    """q, k, v with the scores z (t), the same in every row and head."""
    q = torch.zeros(1, HEADS, len(z), width, dtype=z.dtype)
    k, v = torch.zeros_like(q), qkv(len(z), b=1, width=width)[2].to(z.dtype)
    # The other channels carry no score, but keep the norms of q and k from 0.
    q[..., 0], k[..., 0], q[..., 1], k[..., 2] = math.sqrt(width), z, 1.0, 1.0
    return [q, k, v]


def hard_cases() -> dict[str, list[Tensor]]:
    generator = torch.Generator().manual_seed(11)
    t = 9
    wild = torch.randn(t, generator=generator).sort().values * 5e3
    outlier = torch.zeros(t)
    outlier[4] = 1e4
    usual = [x.float() for x in qkv(t)]
    return {
        "scores up to 1e4": scored(wild.clamp(-1e4, 1e4)),
        "scores up to 1e4, falling": scored(-wild.clamp(-1e4, 1e4)),
        "queries and keys of 100": [usual[0] * 100, usual[1] * 100, usual[2]],
        "all equal": scored(torch.full((t,), 1.0)),
        "all equal and huge": scored(torch.full((t,), 1e4)),
        "all zero": scored(torch.zeros(t)),
        "all negative": scored(-torch.linspace(1, 40, t)),
        "all negative, where gelu and mish underflow": scored(-torch.linspace(80, 110, t)),
        "all hugely negative": scored(torch.full((t,), -1e4)),
        "one huge outlier": scored(outlier),
        "tiny scores": scored(torch.linspace(-1e-20, 1e-20, t)),
        "zero queries": [usual[0] * 0, usual[1], usual[2]],
        "zero keys": [usual[0], usual[1] * 0, usual[2]],
        "zero queries and keys": [usual[0] * 0, usual[1] * 0, usual[2]],
        "one token": [x[:, :, :1] for x in usual],
    }


WRAPPED = [f"{rule}+{wrapper}" for wrapper in normalizers.wrappers.names() for rule in ("softmax", "lssa")]
ALL = [*choices(), *WRAPPED, *MORE]
every = pytest.mark.parametrize("choice", ALL)


def gradients(rule: Normalizer, tensors: list[Tensor], visible: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """attend's output, and the gradients of one number made of it; a tensor that is not read has none."""
    tensors = [x.clone().requires_grad_() for x in tensors]
    o = rule.attend(*tensors, visible)
    generator = torch.Generator().manual_seed(1)
    mixed = (o * torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o.dtype)).sum()
    named = dict(zip("qkv", tensors, strict=True)) | {n: p for n, p in rule.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(mixed, list(named.values()), allow_unused=True)
    return o, {name: grad for name, grad in zip(named, found, strict=True) if grad is not None}


def test_every_rule_and_every_option_is_tried() -> None:
    assert {choice.partition(":")[0] for choice in ALL} >= set(normalizers.names())
    assert {"sigmoid:bias=visible,l1=yes", "l1:phi=mish", "ssa:per=layer", "cosformer:horizon=current"} <= set(ALL)
    assert len(ALL) == len(set(ALL))


def test_the_causal_mask_is_known_by_identity() -> None:
    assert is_causal(causal(6))
    assert is_causal(causal(6, torch.device("cpu")))
    assert not is_causal(causal(6).clone())
    with torch.inference_mode():
        made = causal(4321)  # a size nobody else asks for: it is made here
    assert not made.is_inference()


@every
@pytest.mark.parametrize("visible", [causal(7), causal(7).clone(), ragged(7)], ids=["causal", "copy", "ragged"])
def test_hidden_keys_get_exactly_zero(choice: str, visible: Tensor) -> None:
    q, k, _ = qkv()
    w = stirred(choice).weights(q, k, visible)
    assert w.shape == (2, HEADS, 7, 7)
    assert (w[..., ~visible] == 0).all()


@every
@pytest.mark.parametrize("visible", [causal(7), ragged(7)], ids=["causal", "ragged"])
def test_hidden_tokens_have_no_influence(choice: str, visible: Tensor) -> None:
    rule = stirred(choice)
    for row in (0, 3, 4):
        q, k, v = (x.requires_grad_() for x in qkv())
        hidden = ~visible[row]
        others = hidden & (torch.arange(7) != row)  # a row's own query is not hidden from it
        o = rule.attend(q, k, v, visible)[:, :, row].square().sum()
        for x, unseen in zip((q, k, v), (others, hidden, hidden), strict=True):
            (grad,) = torch.autograd.grad(o, x, retain_graph=True, allow_unused=True)
            assert grad is None or (grad[:, :, unseen] == 0).all()


@every
def test_hiding_is_deleting(choice: str) -> None:
    rule, (q, k, v) = stirred(choice), qkv(9)
    long = rule.weights(q, k, causal(9)), rule.attend(q, k, v, causal(9))
    same = []
    for t in range(1, 9):
        q_t, k_t, v_t = (x[:, :, :t] for x in (q, k, v))
        short = rule.weights(q_t, k_t, causal(t)), rule.attend(q_t, k_t, v_t, causal(t))
        same.append(torch.allclose(long[0][:, :, :t, :t], short[0], atol=1e-10))
        same.append(torch.allclose(long[1][:, :, :t], short[1], atol=1e-10))
    # A rule that reads the length of the prompt has to say so, and then has to do so.
    assert all(same) if rule.prefix_consistent else not all(same)


@every
def test_hiding_is_deleting_anywhere(choice: str) -> None:
    rule, (q, k, _), visible = stirred(choice), qkv(), ragged(7)
    w = rule.weights(q, k, visible)
    torch.manual_seed(0)
    for row in range(7):
        # What a hidden token is does not matter, ...
        unseen = ~visible[row] & (torch.arange(7) != row)
        other_q, other_k = (torch.where(unseen.view(-1, 1), torch.randn_like(x), x) for x in (q, k))
        other_k[:, :, row] = k[:, :, row] if visible[row, row] else 7.0
        torch.testing.assert_close(rule.weights(other_q, other_k, visible)[:, :, row], w[:, :, row])
        # ... nor that it is, unless the rule reads positions or the length.
        if rule.prefix_consistent and not rule.ordered:
            kept = visible[row].clone()
            kept[row] = True
            at = int(kept[:row].sum())
            alone = rule.weights(q[:, :, kept], k[:, :, kept], visible[kept][:, kept])
            torch.testing.assert_close(alone[:, :, at], w[:, :, row][..., kept])


def trait_cases() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for visible in (causal(8), ragged(8, diagonal=True)):
        for gain in (0.3, 1.5, 6.0, 0.0):
            q, k, _ = qkv(8, gain=gain)
            yield q, k, visible
    for z in (-3.0, 3.0):
        q, k, _ = scored(torch.linspace(z, 2 * z, 8, dtype=torch.float64))
        yield q, k, causal(8)
    # Beyond the horizon of cosformer.
    q, k, _ = qkv(520, b=1)
    yield q, k, causal(520)


@every
def test_rows_sum_to_one_where_promised_and_only_there(choice: str) -> None:
    rule = stirred(choice)
    found = (bool(((rule.weights(*case).sum(-1) - 1).abs() > 1e-9).any()) for case in trait_cases())
    assert any(found) is not rule.sums_to_one


@every
def test_weights_are_not_negative_where_promised_and_only_there(choice: str) -> None:
    rule = stirred(choice)
    found = (bool((rule.weights(*case) < 0).any()) for case in trait_cases())
    assert any(found) is not rule.non_negative


@every
def test_keys_may_change_places_where_promised_and_only_there(choice: str) -> None:
    rule, (q, k, _) = stirred(choice), qkv()
    order, visible = torch.tensor([3, 0, 6, 1, 5, 4, 2]), torch.ones(7, 7, dtype=torch.bool)
    w, moved = rule.weights(q, k, visible), rule.weights(q, k[:, :, order], visible)
    assert torch.allclose(moved, w[..., order], atol=1e-10) is not rule.ordered


@every
def test_hard_scores_stay_finite(choice: str) -> None:
    rule = normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=TRAINED)
    for name, tensors in hard_cases().items():
        t = tensors[0].shape[2]
        for visible in (causal(t), torch.eye(t, dtype=torch.bool), torch.ones(t, t, dtype=torch.bool)):
            o, grads = gradients(rule, tensors, visible)
            assert o.isfinite().all(), name
            assert rule.weights(tensors[0], tensors[1], visible).isfinite().all(), name
            assert all(grad.isfinite().all() for grad in grads.values()), f"{name}: {grads}"


@pytest.mark.parametrize("choice", ["softmax+reweight:p=15", "lssa+reweight:p=15"])
def test_rows_of_1024_keys_stay_finite_under_a_high_power(choice: str) -> None:
    rule = normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=1024)
    peak = torch.zeros(1024)
    peak[0] = 50.0
    for tensors in ([x.float() for x in qkv(1024, b=1)], scored(peak), scored(torch.ones(1024))):
        o, grads = gradients(rule, tensors, causal(1024))
        assert o.isfinite().all()
        assert all(grad.isfinite().all() for grad in grads.values())
        sums = rule.weights(tensors[0], tensors[1], causal(1024)).sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-4, rtol=0)


@every
def test_a_row_that_sees_nothing_gets_zeros(choice: str) -> None:
    rule, tensors, visible = stirred(choice), qkv(), ragged(7)
    assert (rule.weights(tensors[0], tensors[1], visible)[:, :, 2] == 0).all()
    o, grads = gradients(rule, tensors, visible)
    assert (o[:, :, 2] == 0).all()
    assert all(grad.isfinite().all() for grad in grads.values())
    o, grads = gradients(rule, tensors, torch.zeros_like(visible))
    assert (o == 0).all()
    assert all(grad.isfinite().all() for grad in grads.values())


@every
@pytest.mark.parametrize("visible", [causal(4), ragged(4)], ids=["causal", "ragged"])
def test_gradients_are_those_of_the_formula(choice: str, visible: Tensor) -> None:
    rule = stirred(choice)
    tensors = [x.requires_grad_() for x in qkv(4, b=1, width=2)]
    learned = [p for p in rule.parameters() if p.requires_grad]

    # gradcheck moves the parameters in place, so the rule need not be handed them.
    def both(q: Tensor, k: Tensor, v: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return rule.attend(q, k, v, visible), rule.weights(q, k, visible) + 0 * q.sum()

    # Fast: one random direction in place of every entry.
    assert torch.autograd.gradcheck(both, (*tensors, *learned), atol=1e-6, fast_mode=True)


@every
@pytest.mark.parametrize("visible", [causal(7), causal(7).clone(), ragged(7)], ids=["causal", "copy", "ragged"])
def test_attend_is_weights_times_values(choice: str, visible: Tensor) -> None:
    rule, (q, k, v) = stirred(choice), qkv()
    torch.testing.assert_close(rule.attend(q, k, v, visible), rule.weights(q, k, visible) @ v, rtol=1e-9, atol=1e-11)


@every
def test_half_precision_differs_by_three_percent_at_most(choice: str) -> None:
    rule = normalizers.build(choice, heads=HEADS, head_dim=WIDTH, train_tokens=TRAINED)
    half = [x.bfloat16() for x in qkv(12)]
    single = [x.float() for x in half]
    for got, wanted in (
        (rule.weights(*half[:2], causal(12)), rule.weights(*single[:2], causal(12))),
        (rule.attend(*half, causal(12)), rule.attend(*single, causal(12))),
    ):
        assert got.dtype is torch.bfloat16
        assert (got - wanted).abs().max() <= 0.03 * wanted.abs().max()


@every
def test_the_rule_is_in_the_path(choice: str) -> None:
    rule, softmax, (q, k, v) = stirred(choice), build("softmax"), qkv(9, gain=0.7)
    same_weights = torch.allclose(rule.weights(q, k, causal(9)), softmax.weights(q, k, causal(9)))
    same_output = torch.allclose(rule.attend(q, k, v, causal(9)), softmax.attend(q, k, v, causal(9)))
    assert same_weights is same_output is (choice in SOFTMAX)


@every
def test_parameters_are_named_have_one_entry_a_head_and_learn(choice: str) -> None:
    rule = build(choice)
    learned = [p for p in rule.parameters() if p.requires_grad]
    for part in rule.modules():
        if isinstance(part, Normalizer):
            assert all(isinstance(getattr(part, name), Tensor) for name in part.learned)
            assert set(part.shared) <= set(part.learned)
            for name, parameter in part.named_parameters(recurse=False):
                entries = TRAINED if name in part.shared else (1 if "per=layer" in choice else HEADS)
                assert parameter.shape == (entries,)
    assert bool(learned) is (
        any(rule.learned for rule in rule.modules() if isinstance(rule, Normalizer)) and "learn=no" not in choice
    )
    _, grads = gradients(rule, qkv(8), causal(8))
    for name, parameter in rule.named_parameters():
        if parameter.requires_grad:
            assert grads[name].isfinite().all()
            assert (grads[name] != 0).any()
            if name not in rule.shared:
                assert (grads[name] != 0).all()


@every
def test_it_says_what_it_is(choice: str) -> None:
    name = choice.partition(":")[0].partition("+")[0]
    entry = next(entry for entry in normalizers.registry.entries() if entry.name == name)
    assert entry.line.endswith(".")
    assert entry.formula.startswith("w")
    assert entry.paper
    assert (
        inspect.signature(type(build(name)).__init__).parameters["site"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    )


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ("entmax:alpha=1", "softmax"),
        ("entmax:alpha=0.5", "alpha must be > 1, got 0.5"),
        ("cosformer:horizon=0", "horizon must be >= 1"),
        ("cosformer:horizon=long", "horizon must be a whole number or current"),
        ("scale-invariant:tau=0", "tau must be > 0"),
        ("softmax+reweight:p=0", "p must be >= 1"),
        ("sigmoid+reweight", "needs rows that sum to 1"),
        ("relu:divide=l1+reweight:p=3", "needs rows that sum to 1"),
        ("sa-softmax:variant=4", "variant must be 0, 1, 2, 3"),
        ("l1:phi=silu", "phi must be relu"),
    ],
)
def test_what_cannot_be_is_refused_with_its_bound(choice: str, says: str) -> None:
    with pytest.raises(LabError, match=says):
        build(choice)


@pytest.mark.parametrize(("choice", "heads", "parts"), [("four-functions", 6, 4), ("soft-avg", 3, 2)])
def test_mixtures_refuse_heads_they_cannot_divide(choice: str, heads: int, parts: int) -> None:
    with pytest.raises(LabError, match=f"multiple of {parts}, got {heads}"):
        normalizers.build(choice, heads=heads, head_dim=WIDTH, train_tokens=TRAINED)


def test_layers_share_what_a_rule_declares_shared_and_nothing_else() -> None:
    layers = normalizers.build_layers("ssmax-free+reweight:p=3", layers=3, heads=2, head_dim=4, train_tokens=6)
    names = [name for name, _ in layers.named_parameters()]
    assert sum(name.endswith("rule.p") for name in names) == 1
    assert sum(name.endswith("rule.s") for name in names) == 3

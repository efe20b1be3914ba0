"""Every normalizer against arithmetic written out here, by plain numbers or by the packages of its authors."""

import math
import statistics
from collections.abc import Callable

import entmax
import numpy as np
import pytest
import torch
from torch import Tensor

from icl_lab import normalizers
from icl_lab.base.errors import BadValue
from icl_lab.normalizers import sparse
from icl_lab.normalizers.base import Normalizer, ScaledQuery, causal, softplus_inverse
from icl_lab.testing import rule_inputs

HEADS, WIDTH, TRAINED = 4, 2, 3
Z = [0.5, -1.0, 2.0, 0.25, 1.25]  # the scores of a row that sees five keys
FALLING = [-0.5, -1.0, -2.0, -0.25, -1.25]
N = len(Z)
Row = list[float]


def build(choice: str, heads: int = HEADS) -> Normalizer:
    return normalizers.build(choice, heads=heads, head_dim=WIDTH, train_tokens=TRAINED).double()


def qk(z: Row, heads: int = HEADS) -> tuple[Tensor, Tensor]:
    """q and k whose scores q.k / sqrt(d) in every row are z."""
    q = torch.zeros(1, heads, len(z), WIDTH, dtype=torch.float64)
    k = torch.zeros_like(q)
    q[..., 0], k[..., 0] = math.sqrt(WIDTH), torch.tensor(z, dtype=torch.float64)
    return q, k


def last_row(rule: Normalizer, z: Row, head: int = 0) -> Row:
    row: Row = rule.weights(*qk(z), causal(len(z)))[0, head, -1].tolist()
    return row


def over_sum(parts: Row) -> Row:
    """Each part over the sum of all absolute values."""
    total = math.fsum(abs(part) for part in parts)
    return [part / total for part in parts]


def soft(z: Row) -> Row:
    return over_sum([math.exp(x) for x in z])


def root(z: Row, alpha: float) -> Row:
    """alpha-entmax by halving the interval in which tau must lie."""
    z = [(alpha - 1) * x for x in z]
    low, high = max(z) - 1, max(z)
    for _ in range(200):
        tau = (low + high) / 2
        total = sum(max(x - tau, 0) ** (1 / (alpha - 1)) for x in z)
        low, high = (tau, high) if total > 1 else (low, tau)
    return [max(x - low, 0) ** (1 / (alpha - 1)) for x in z]


def sig(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def splus(x: float) -> float:
    return math.log(1 + math.exp(x))


def sharpened(z: Row) -> Row:
    p = soft(z)
    h = -sum(x * math.log(x) for x in p)
    return soft([x * max(1, -0.037 * h**4 + 0.481 * h**3 - 2.3 * h**2 + 4.917 * h - 1.791) for x in z])


def adjusted(z: Row, low: float, high: float) -> Row:
    return [p * (x - low) / (high - low) for p, x in zip(soft(z), z, strict=True)]


def broken(z: Row) -> Row:
    """Stick-breaking of the last row: its own key stands last and takes part only by the remainder."""
    left, taken = 1.0, []
    for x in reversed(z[:-1]):
        taken.append(left * sig(x))
        left *= 1 - sig(x)
    return [*reversed(taken), left]


def kept(shares: Row, p: int) -> Row:
    return over_sum([max(len(shares) * a - 1, 0) ** p for a in shares])


def octaves(z: Row, tau: float) -> Row:
    t = [len(z) - 1 - j for j in range(len(z))]
    parts = [
        math.exp(math.sqrt(1 + 2 * math.log(1 + t_j / tau)) * x) * (1 + t_j / tau) ** -2
        for x, t_j in zip(z, t, strict=True)
    ]
    return over_sum(parts)


def signed_power(z: Row, n: float) -> Row:
    return over_sum([(1 + x) ** n if x >= 0 else 1 / (1 - x) ** n for x in z])


# choice: the last row's weights from its scores. Powers and quotients as they are printed, no logarithms to be safe.
BY_HAND: dict[str, Callable[[Row], Row]] = {
    "softmax": soft,
    "temperature": lambda z: soft([x / 5 for x in z]),
    "temperature:tau=2": lambda z: soft([x / 2 for x in z]),
    "ssmax": lambda z: over_sum([len(z) ** x for x in z]),
    "ssmax:learn=no": lambda z: over_sum([len(z) ** x for x in z]),
    "ssmax:s=0.43": lambda z: over_sum([len(z) ** (0.43 * x) for x in z]),
    "ssmax:bias=yes": lambda z: over_sum([len(z) ** x for x in z]),
    # The mean of log 1, log 2, log 3 is log(6) / 3.
    "ssmax:s=swap": lambda z: over_sum([len(z) ** (3 / math.log(6) * x) for x in z]),
    "ssmax-free": soft,
    "ssa": lambda z: signed_power(z, 1.5),
    "ssa:n=2,learn=no": lambda z: signed_power(z, 2),
    "sparsemax": lambda z: root(z, 2),
    "entmax": lambda z: root(z, 1.5),
    "entmax:alpha=1.3": lambda z: root(z, 1.3),
    "entmax:alpha=1.3,learn=yes": lambda z: root(z, 1.3),
    "sa-softmax": lambda z: adjusted(z, min(0, *z), max(0, *z)),
    "sa-softmax:variant=2": lambda z: adjusted(z, min(z), max(z)),
    "sa-softmax:variant=1": lambda z: adjusted(z, min(z), 1 + min(z)),
    "sa-softmax:variant=0": lambda z: adjusted(z, 0, 1),
    "sigmoid": lambda z: [sig(x) for x in z],
    "sigmoid:bias=train": lambda z: [1 / (1 + TRAINED * math.exp(-x)) for x in z],
    "sigmoid:bias=visible": lambda z: [1 / (1 + len(z) * math.exp(-x)) for x in z],
    "sigmoid:l1=yes": lambda z: over_sum([sig(x) for x in z]),
    "sigmoid:bias=train,l1=yes": lambda z: over_sum([1 / (1 + TRAINED * math.exp(-x)) for x in z]),
    "sigmoid:bias=visible,l1=yes": lambda z: over_sum([1 / (1 + len(z) * math.exp(-x)) for x in z]),
    "relu": lambda z: [max(x, 0) / TRAINED for x in z],
    "relu:divide=visible": lambda z: [max(x, 0) / len(z) for x in z],
    "relu:divide=root": lambda z: [max(x, 0) / math.sqrt(len(z) / 2) for x in z],
    "relu:divide=l1": lambda z: over_sum([max(x, 0) for x in z]) if max(z) > 0 else [0.0] * len(z),
    "l1": lambda z: over_sum([max(x, 0) for x in z]) if max(z) > 0 else [0.0] * len(z),
    "l1:phi=relu2": lambda z: over_sum([max(x, 0) ** 2 for x in z]) if max(z) > 0 else [0.0] * len(z),
    "l1:phi=relu6": lambda z: over_sum([min(max(x, 0), 6) for x in z]) if max(z) > 0 else [0.0] * len(z),
    "l1:phi=gelu": lambda z: over_sum([x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in z]),
    "l1:phi=sigmoid": lambda z: over_sum([sig(x) for x in z]),
    "l1:phi=softplus": lambda z: over_sum([splus(x) for x in z]),
    "l1:phi=mish": lambda z: over_sum([x * math.tanh(splus(x)) for x in z]),
    "l1:phi=exp": soft,
    "l1:phi=tanh": lambda z: over_sum([math.tanh(x) for x in z]),
    "l1:phi=square": lambda z: over_sum([x * x for x in z]),
    "l1:phi=expressive": lambda z: over_sum([x * x / (1 + x * x) for x in z]),
    "raw": lambda z: z,
    "raw:l1=yes": over_sum,
    "exp": lambda z: [math.exp(x) for x in z],
    "inverse": lambda z: [-p for p in soft(z)],
    "recentred": lambda z: [p - 1 / len(z) for p in soft(z)],
    "recentred:l1=yes": lambda z: over_sum([p - 1 / len(z) for p in soft(z)]),
    "softmax+reweight:p=3": lambda z: kept(soft(z), 3),
    "softmax+reweight:p=1": lambda z: kept(soft(z), 1),
    "ssa+reweight:p=15": lambda z: kept(signed_power(z, 1.5), 15),
    "average": lambda z: [1 / len(z)] * len(z),
    "soft-avg": soft,
    "four-functions": lambda z: over_sum([math.tanh(x) for x in z]),
    "log-n": lambda z: soft([x * math.log(len(z)) / math.log(TRAINED) for x in z]),
    "log-n:power=2": lambda z: soft([x * (math.log(len(z)) / math.log(TRAINED)) ** 2 for x in z]),
    "log-n:power=0.5": lambda z: soft([x * math.sqrt(math.log(len(z)) / math.log(TRAINED)) for x in z]),
    "p-softmax": lambda z: [math.exp(x) / math.sqrt(sum(math.exp(x) ** 2 for x in z)) for x in z],
    "p-softmax:p=0.5": lambda z: [math.exp(x) / sum(math.sqrt(math.exp(x)) for x in z) ** 2 for x in z],
    "top-k:k=2": lambda z: over_sum([math.exp(x) * (x >= sorted(z)[-2]) for x in z]),
    "top-k": soft,
    "standardized": lambda z: soft([x / min(statistics.pstdev(z), 1) for x in z]),
    "standardized:gamma=100": lambda z: soft([x / statistics.pstdev(z) for x in z]),
    "adaptive-temperature": sharpened,
    "scale-invariant": lambda z: octaves(z, 10),
    "scale-invariant:tau=2": lambda z: octaves(z, 2),
    "stick-breaking": broken,
    "stick-breaking:remainder=none": lambda z: [*broken(z)[:-1], 0.0],
    "sink": lambda z: [math.exp(x) / (1 + sum(map(math.exp, z))) for x in z],
    "sink:s=1.5": lambda z: [math.exp(x) / (math.exp(1.5) + sum(map(math.exp, z))) for x in z],
    "softpick": lambda z: [max(math.exp(x) - 1, 0) / sum(abs(math.exp(y) - 1) for y in z) for x in z],
    "elastic": lambda z: [max(p - 1 / len(z), 0) for p in soft(z)],
    "elastic:tau=-0.5": lambda z: [max(p - 0.5 / len(z), 0) for p in soft(z)],
    "elastic:bias=2": lambda z: [max(p - 1 / len(z), 0) for p in soft(z)],  # the bias starts at 0
    "ssa:learn=b,n=1": lambda z: signed_power(z, 1),
    "ssa:b=e": lambda z: over_sum([(1 + math.e * abs(x)) ** math.copysign(1.5, x) for x in z]),
    # Five keys fill the three tokens of a training prompt once, and a length of two twice.
    "llama4": lambda z: soft([x * (1 + 0.1 * math.log(2)) for x in z]),
    "llama4:beta=0.5,length=2": lambda z: soft([x * (1 + 0.5 * math.log(3)) for x in z]),
    "selective": lambda z: soft([x - (len(z) - 2 - j) * max(x, 0) * (0 < j < len(z) - 1) for j, x in enumerate(z)]),
    "selective:first=no": lambda z: soft([x - (len(z) - 2 - j) * max(x, 0) * (j < 4) for j, x in enumerate(z)]),
    # beta of the first of four heads is 0.1 + 0.9 / 8, and gamma is 0.
    "asentmax": lambda z: root([(1 + 0.1 + 0.9 / 8) * x for x in z], 1.5),
}
# Normalizers that read more of q and k than their product, or more than q and k: the last three in
# test_reading_rules.py.
BY_VECTORS = {"cosformer", "sima", "lssa", "qassmax", "differential", "forget", "threshold"}


def test_no_rule_is_without_values_of_its_own() -> None:
    there = {choice.partition(":")[0].partition("+")[0] for choice in BY_HAND} | BY_VECTORS
    missing, gone = sorted(set(normalizers.names()) - there), sorted(there - set(normalizers.names()))
    lines = "".join(f'\n    "{name}": lambda z: ...,' for name in missing)
    assert not missing, (
        f"write into BY_HAND, with the weights of the last row from its scores z by plain numbers:{lines}"
    )
    assert not gone, f"no normalizer is called {', '.join(gone)} any more: take the rows out of BY_HAND or BY_VECTORS"


@pytest.mark.parametrize("z", [Z, FALLING], ids=["mixed", "negative"])
@pytest.mark.parametrize("choice", BY_HAND)
def test_a_row_by_hand(choice: str, z: Row) -> None:
    # Parameters are held in single precision, so what starts at 0.43 is 0.43 to eight digits.
    assert last_row(build(choice), z) == pytest.approx(BY_HAND[choice](z), rel=1e-6, abs=1e-9)


WIDE = np.linspace(-1, 1, 40)
SHARE = np.exp(WIDE) / np.exp(WIDE).sum()
SHARPER = np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], -(SHARE * np.log(SHARE)).sum())  # 2.4 by numpy
FLAT = np.linspace(0, 0.1, 400).tolist()  # an entropy beyond 5.94 nats, where nothing is sharpened
EVEN = [1.02, 1.015, 1.01, 0.98, 0.975]
EDGES: list[tuple[str, Row, Row]] = [
    ("top-k:k=2", [1.0, 3.0, 1.0, 0.0], over_sum([math.e, math.e**3, math.e, 0])),  # a tie with the last is kept
    ("top-k:k=2", [1.0, 3.0, 1.0 - 1e-12, 0.0], over_sum([math.e, math.e**3, 0, 0])),  # no tie: it is smaller
    ("exp", [1.0, 25.0], [math.e, math.exp(20)]),
    # softplus(-800) is exp(-800), which no double holds: the weights are those of softmax, not 0/0.
    ("l1:phi=softplus", [-800.0, -801.0], soft([0.0, -1.0])),
    ("l1:phi=sigmoid", [-800.0, -801.0], soft([0.0, -1.0])),
    ("l1:phi=softplus", [-29.9, -30.1], soft([0.2, 0.0])),
    # 5a - 1 is 0.02, 0.015, 0.01: to the power of 15 less than any constant one would dare to add to the sum.
    (
        "softmax+reweight:p=15",
        [math.log(share / 5) for share in EVEN],
        over_sum([max(share - 1, 0) ** 15 for share in EVEN]),
    ),
    ("softmax+reweight:p=15", [1.0] * 5, [0.2] * 5),
    ("recentred:l1=yes", [1.0] * 5, [0.0] * 5),
    ("adaptive-temperature", WIDE.tolist(), soft((SHARPER * WIDE).tolist())),
    ("adaptive-temperature", FLAT, soft(FLAT)),
    # exp(-50) beside a sink of 1 is as good as nothing; a constant 1 beside exp(0) would take a half.
    ("sink", [-50.0, -51.0], [math.exp(-50), math.exp(-51)]),
    ("sink", [800.0, 801.0], soft([0.0, 1.0])),
    ("softpick", [800.0, 801.0, -5.0], [*soft([0.0, 1.0]), 0.0]),
    ("softpick", [1e-9, 3e-9, -4e-9], [1 / 8, 3 / 8, 0]),
    ("softpick", FALLING, [0.0] * N),
]


@pytest.mark.parametrize(("choice", "z", "wanted"), EDGES)
def test_rows_where_a_careless_formula_fails(choice: str, z: Row, wanted: Row) -> None:
    assert last_row(build(choice), z) == pytest.approx(wanted, rel=1e-6, abs=1e-30)


def test_nearly_even_scores_are_not_blown_up() -> None:
    assert last_row(build("standardized"), [3.0, 3.0 + 1e-9, 3.0]) == pytest.approx([1 / 3] * 3, abs=1e-5)
    q, k = (x.float() for x in qk([1.0] * 5))
    assert build("softmax+reweight").weights(q, k, causal(5))[0, 0, -1].tolist() == pytest.approx([0.2] * 5)


TAU, SINKS = [-1.0, 0.0, 0.5, -2.0], [0.0, 1.0, -2.0, 3.0]
NEAR = [[(3 * head + distance) / 4 for distance in range(3)] for head in range(HEADS)]
# choice, numbers as if learned, and the last row of each head
BY_HEAD: list[tuple[str, dict[str, list[float] | list[Row]], list[Row]]] = [
    ("ssmax:bias=yes", {"b": [0.3] * 4}, [soft([x * (math.log(N) + 0.3) for x in Z])] * 4),
    (
        "asentmax",
        {"gamma": [0.8] * 4},
        [root([x * (1 + b * math.log(N + 1) ** 0.8) for x in Z], 1.5) for b in (0.2125, 0.4375, 0.6625, 0.8875)],
    ),
    ("sink", {"s": SINKS}, [[math.exp(x) / (math.exp(s) + sum(map(math.exp, Z))) for x in Z] for s in SINKS]),
    ("elastic", {"tau": TAU}, [[max(p + tau / N, 0) for p in soft(Z)] for tau in TAU]),
    (
        "elastic:tau=-0.5,bias=3",
        {"bias": NEAR},
        [[max(p - 0.5 / N, 0) for p in soft([x + [*near, 0, 0][N - 1 - j] for j, x in enumerate(Z)])] for near in NEAR],
    ),
    (
        "four-functions",
        {},
        [over_sum(part) for part in ([math.tanh(x) for x in Z], [1.0] * N, [max(x, 0) for x in Z], [x * x for x in Z])],
    ),
    ("soft-avg", {}, [soft(Z), soft(Z), [1 / N] * N, [1 / N] * N]),
]


@pytest.mark.parametrize(("choice", "learned", "rows"), BY_HEAD)
def test_rows_of_heads_by_their_own_numbers(choice: str, learned: dict[str, Row], rows: list[Row]) -> None:
    rule = build(choice)
    for name, value in learned.items():
        getattr(rule, name).data = torch.tensor(value, dtype=torch.float64)
    for head, row in enumerate(rows):
        assert last_row(rule, Z, head) == pytest.approx(row, rel=1e-6)


def test_the_first_rows_by_hand() -> None:
    q, k = qk([1.0, 3.0, -2.0])
    for choice, row in (("ssmax", 0), ("recentred", 2), ("recentred:l1=yes", 2)):
        w = build(choice).weights(q, k, causal(3))[0, 0]
        z = [1.0, 3.0, -2.0][: row + 1]
        assert w[row, : row + 1].tolist() == pytest.approx(soft(z))
    assert build("elastic").weights(q, k, causal(3))[0, 0, 0, 0] == 0
    assert build("sa-softmax").weights(*qk([1.0]), causal(1))[0, 0, 0, 0] == 1
    assert build("sa-softmax").weights(*qk([-1.0]), causal(1))[0, 0, 0, 0] == 0
    assert build("stick-breaking").weights(q, k, causal(3))[0, 0, 0, 0] == 1


@pytest.mark.parametrize(("beyond", "p"), [("fit", 0.5 + 2 * math.log(5)), ("clamp", 0.5 + 2 * math.log(3))])
def test_a_free_factor_goes_on_by_its_law_or_stays(beyond: str, p: float) -> None:
    rule = build(f"ssmax-free:beyond={beyond}")
    rule.p.data = 0.5 + 2 * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).log()
    rule.s.data.fill_(0.7)
    rule.b.data.fill_(-0.2)
    assert last_row(rule, Z) == pytest.approx(soft([x * (0.7 * p - 0.2) for x in Z]))
    inside = rule.weights(*qk(Z), causal(N))[0, 0, 1, :2].tolist()
    assert inside == pytest.approx(soft([x * (0.7 * (0.5 + 2 * math.log(2)) - 0.2) for x in Z[:2]]))


def test_the_law_of_a_free_factor_is_the_least_squares_line() -> None:
    rule = normalizers.build("ssmax-free", heads=1, head_dim=WIDTH, train_tokens=4).double()
    rule.p.data = torch.tensor([0.3, 1.0, 0.8, 1.4], dtype=torch.float64)
    slope, level = np.polyfit(np.log([1, 2, 3, 4]), [0.3, 1.0, 0.8, 1.4], 1)
    w = rule.weights(*qk(Z, heads=1), causal(N))[0, 0, -1].tolist()
    assert w == pytest.approx(soft([x * (level + slope * math.log(5)) for x in Z]))
    alone = normalizers.build("ssmax-free", heads=1, head_dim=WIDTH, train_tokens=1).double()  # which has no slope
    assert alone.weights(*qk(Z, heads=1), causal(N))[0, 0, -1].tolist() == pytest.approx(soft(Z))


@pytest.mark.parametrize("visible", [causal(4), causal(4).clone()], ids=["fast mask", "general mask"])
def test_ssa_has_its_slope_where_all_scores_are_zero(visible: Tensor) -> None:
    rule = build("ssa:n=2,b=0.5")
    q, k = qk([0.0] * 4)
    q, k = q.requires_grad_(), (k + 1.0).requires_grad_()
    q.data.zero_()
    w = rule.weights(q, k, visible)
    (grad,) = torch.autograd.grad(w[0, 0, 3, 0], k, retain_graph=True)
    assert grad.isfinite().all()
    # With q = 0 all weights are 1/4; dw_0/dz_j = (n b)(1/4 - 1/16) for j = 0 and -(n b)/16 else; dz_j/dq = k_j/sqrt(d).
    k.data[0, 0, 0] += 1.0
    (grad,) = torch.autograd.grad(rule.weights(q, k, visible)[0, 0, 3, 0], q)
    slope = 2 * 0.5 * (2 * 3 / 16 - 3 / 16) / math.sqrt(WIDTH)
    assert grad[0, 0, 3].tolist() == pytest.approx([slope] * WIDTH, rel=1e-6)
    learned = torch.autograd.grad(rule.weights(q, k, visible).square().sum(), [rule.raw_n, rule.raw_b])
    assert all(grad.isfinite().all() for grad in learned)


@pytest.mark.parametrize(
    ("learn", "wanted"), [("yes", (True, True)), ("no", (False, False)), ("n", (True, False)), ("b", (False, True))]
)
def test_ssa_learns_what_it_is_told_to(learn: str, wanted: tuple[bool, bool]) -> None:
    rule = build(f"ssa:learn={learn}")
    assert (rule.raw_n.requires_grad, rule.raw_b.requires_grad) == wanted
    assert normalizers.canonical(f"ssa:learn={learn}") == f"ssa:learn={learn}"


def test_ssa_keeps_its_bounds_wherever_training_goes() -> None:
    rule = build("ssa")
    for raw in (-50.0, 0.0, 50.0):
        rule.raw_n.data.fill_(raw)
        rule.raw_b.data.fill_(raw)
        assert (rule.n >= 1).all()
        assert (rule.b > 0).all()


def test_ssa_in_exponential_form_is_that_of_the_public_code() -> None:
    """n = e^r, b = e^s: starts e^0.4 and e as r = 0.4 and s = 1, and n falls below 1 where r falls below 0."""
    rule = build("ssa:n=1.4918247,b=e,per=layer,form=exp")
    assert (rule.raw_n.tolist(), rule.raw_b.tolist()) == (pytest.approx([0.4]), pytest.approx([1.0]))
    assert (rule.n.tolist(), rule.b.tolist()) == (pytest.approx([math.exp(0.4)]), pytest.approx([math.e]))
    rule.raw_n.data.fill_(-1.0)
    assert rule.n.tolist() == pytest.approx([math.exp(-1)])
    assert build("ssa:n=0.5,form=exp").n.tolist() == pytest.approx([0.5] * HEADS)
    with pytest.raises(BadValue, match="n must be >= 1"):
        build("ssa:n=0.5")
    with pytest.raises(BadValue, match="n must be > 0"):
        build("ssa:n=0,form=exp")
    same = build("ssa:n=1.7,b=0.3"), build("ssa:n=1.7,b=0.3,form=exp")
    q, k = qk([0.3, -1.0, 2.0])
    visible = torch.ones(3, 3, dtype=torch.bool).tril()
    assert torch.allclose(*(rule.weights(q, k, visible) for rule in same), atol=1e-6)


@pytest.mark.parametrize(("choice", "of"), [("sparsemax", entmax.sparsemax), ("entmax", entmax.entmax15)])
def test_sparse_rules_are_their_packages(choice: str, of: Callable[..., Tensor]) -> None:
    z = torch.randn(9, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 2
    assert last_row(build(choice), z.tolist()) == pytest.approx(of(z, dim=-1).tolist(), abs=1e-12)
    assert 0.0 in last_row(build(choice), z.tolist())


def vectors(t: int = 6) -> tuple[Tensor, Tensor, list[Row], list[Row]]:
    q, k = torch.randn(2, 1, 1, t, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return q, k, q[0, 0].tolist(), k[0, 0].tolist()


def dot(x: Row, y: Row) -> float:
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize(("horizon", "m"), [("512", 512), ("current", 6), ("2", 2)])
def test_cosformer_by_hand(horizon: str, m: int) -> None:
    q, k, q_rows, k_rows = vectors()
    w = build(f"cosformer:horizon={horizon}").weights(q, k, causal(6))[0, 0].tolist()
    relu = [[max(x, 0) for x in row] for row in q_rows], [[max(x, 0) for x in row] for row in k_rows]
    for i in range(6):
        a = [dot(relu[0][i], relu[1][j]) * math.cos(math.pi / 2 * (i - j) / m) for j in range(i + 1)]
        assert w[i][: i + 1] == pytest.approx(over_sum(a) if any(a) else a)


def test_cosformer_beyond_its_horizon_keeps_its_scale() -> None:
    # One of the two keys stands at twice the horizon, where the cosine is -1: the plain sum would be 0.
    q = torch.ones(1, 1, 3, 1, dtype=torch.float64)
    k = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64).view(1, 1, 3, 1)
    w = build("cosformer:horizon=1").weights(q, k, causal(3))[0, 0, 2].tolist()
    assert w == pytest.approx([-0.5, 0, 0.5])


def test_sima_by_hand_and_as_published_in_its_last_row() -> None:
    q, k, q_rows, k_rows = vectors()
    w = build("sima").weights(q, k, causal(6))[0, 0]
    for i in range(6):
        norms = [
            math.fsum(abs(q_rows[t][c]) for t in range(i + 1)) * math.fsum(abs(k_rows[t][c]) for t in range(i + 1))
            for c in range(3)
        ]
        for j in range(i + 1):
            assert w[i, j].item() == pytest.approx(sum(q_rows[i][c] * k_rows[j][c] / norms[c] for c in range(3)))
    normalize = torch.nn.functional.normalize
    published = normalize(q, p=1, dim=-2) @ normalize(k, p=1, dim=-2).transpose(-1, -2)
    torch.testing.assert_close(w[-1], published[0, 0, -1])
    # The first row is a sum of signs.
    signs = sum(math.copysign(1, a * b) for a, b in zip(q_rows[0], k_rows[0], strict=True))
    assert w[0, 0].item() == pytest.approx(signs)


def test_sima_along_features_by_hand() -> None:
    q, k, q_rows, k_rows = vectors()
    w = build("sima:axis=feature").weights(q, k, causal(6))[0, 0]
    for i in range(6):
        for j in range(i + 1):
            wanted = dot(q_rows[i], k_rows[j]) / sum(map(abs, q_rows[i])) / sum(map(abs, k_rows[j]))
            assert w[i, j].item() == pytest.approx(wanted)


def test_lssa_by_hand() -> None:
    q, k, q_rows, k_rows = vectors()
    rule, again = build("lssa"), build("lssa+reweight:p=15")
    w, y = (r.weights(q, k, causal(6))[0, 0].tolist() for r in (rule, again))
    for i in range(6):
        cosines = [dot(q_rows[i], k_rows[j]) / math.hypot(*q_rows[i]) / math.hypot(*k_rows[j]) for j in range(i + 1)]
        row = over_sum([splus(math.log(3) * math.log(i + 1) * c) for c in cosines])
        assert w[i][: i + 1] == pytest.approx(row)
        o = 0 if i < 3 else 1
        assert y[i][: i + 1] == pytest.approx(over_sum([max((i + 1) * a - o, 0) ** 15 for a in row]), rel=1e-8)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_threshold_differential_attention_by_hand(p: int) -> None:
    """The channels of q and k are 1 and 2 of one half, 0 and 3 of none: a width of 4, halves of 2."""
    q, k = torch.randn(2, 1, 1, 6, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    rule = normalizers.build(f"threshold:p={p}", heads=1, head_dim=4, train_tokens=6).double()
    rule.beta.data.fill_(0.3)
    rule.lam.data.fill_(0.7)
    alone = normalizers.build(f"threshold:p={p},differential=no", heads=1, head_dim=4, train_tokens=6).double()
    w, whole = (each.weights(q, k, causal(6))[0, 0].tolist() for each in (rule, alone))

    def passed(i: int, j: int, channels: slice, beta: float) -> float:
        x, y = q[0, 0, i, channels].tolist(), k[0, 0, j, channels].tolist()
        cosine = dot(x, y) / math.hypot(*x) / math.hypot(*y)
        return float(max(cosine - beta * math.sqrt(2 * math.log(i + 1) / len(x)), 0) ** p)

    for i in range(6):
        even, odd = ([passed(i, j, slice(half, 4, 2), 0.3) for j in range(i + 1)] for half in (0, 1))
        assert w[i][: i + 1] == pytest.approx([a - 0.7 * b for a, b in zip(even, odd, strict=True)], abs=1e-9)
        assert whole[i][: i + 1] == pytest.approx([passed(i, j, slice(0, 4), 0.5) for j in range(i + 1)], abs=1e-9)
    for lam, clipped in ((-3.0, 0.0), (3.0, 1.0)):
        rule.lam.data.fill_(lam)
        beyond = rule.weights(q, k, causal(6))
        rule.lam.data.fill_(clipped)
        assert torch.equal(beyond, rule.weights(q, k, causal(6)))


@pytest.mark.parametrize(("lam", "out"), [(-3.0, 1), (3.0, -1)])
def test_a_clipped_share_comes_back(lam: float, out: int) -> None:
    """Beyond a bound its slope is 0 only towards further out."""
    q, k = torch.randn(2, 1, 1, 6, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    rule = normalizers.build("threshold", heads=1, head_dim=4, train_tokens=6).double()
    rule.lam.data.fill_(lam)
    for direction in (1, -1):  # of the slope of the loss by lam
        loss = -direction * rule.weights(q, k, causal(6)).sum()
        (slope,) = torch.autograd.grad(loss, rule.lam)
        assert (slope.item() == 0) == (direction == out)


def test_a_learned_alpha_has_the_slope_of_its_package() -> None:
    rule = build("entmax:alpha=1.4,learn=yes")
    z = torch.randn(1, HEADS, 1, 9, generator=torch.Generator().manual_seed(6), dtype=torch.float64) * 2
    wanted = torch.arange(9, dtype=torch.float64)
    theirs = torch.full((1, HEADS, 1, 1), 1.4, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad((entmax.entmax_bisect(z, theirs, dim=-1, n_iter=100) * wanted).sum(), theirs)
    ours = torch.full((HEADS,), 1.4, dtype=torch.float64, requires_grad=True)
    w = sparse.entmax_of_heads(z, torch.ones(1, 9, dtype=torch.bool), ours)
    torch.testing.assert_close(
        torch.autograd.grad((w * wanted).sum(), ours)[0], slope.view(HEADS), rtol=1e-6, atol=1e-9
    )
    assert 0.0 in w[0, 0, 0].tolist()
    rule.raw.data = torch.tensor([-50.0, -1.0, 1.0, 50.0], dtype=torch.float64)
    assert rule.alpha.tolist() == pytest.approx([1.01, 1.01 + 0.99 * sig(-1), 1.01 + 0.99 * sig(1), 2.0])
    for head, alpha in enumerate(rule.alpha.tolist()):
        assert last_row(rule, Z, head) == pytest.approx(root(Z, alpha), rel=1e-6, abs=1e-9)


@pytest.mark.slow
def test_a_learned_alpha_has_second_derivatives() -> None:
    z = torch.randn(1, 2, 3, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64).requires_grad_()
    alpha = torch.tensor([1.2, 1.7], dtype=torch.float64, requires_grad=True)
    visible = torch.ones(3, 5, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda z, a: sparse.entmax_of_heads(z, visible, a), (z, alpha))
    assert torch.autograd.gradgradcheck(lambda z, a: sparse.entmax_of_heads(z, visible, a), (z, alpha), atol=1e-4)


def test_heads_talk_by_their_matrix() -> None:
    rule = build("temperature:tau=2+talking-heads")
    rule.m.data = torch.tensor([[0.0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 1, -1], [0, 0, 0, 1]], dtype=torch.float64)
    z = torch.randn(HEADS, N, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    q, k = qk(Z)
    k[0, :, :, 0] = z
    w = rule.weights(q, k, causal(N))[0, :, -1]
    own = [soft([x / 2 for x in row]) for row in z.tolist()]
    wanted = [[2 * x for x in own[1]], own[0], [a - b for a, b in zip(own[2], own[3], strict=True)], own[3]]
    torch.testing.assert_close(w, torch.tensor(wanted, dtype=torch.float64))


def test_re_weighting_has_no_threshold_in_its_first_three_rows() -> None:
    # Softmax of these scores is 1; 2/3, 1/3; 4/7, 2/7, 1/7; 1/2, 1/4, 1/8, 1/8. Three rows are squared as they are; in
    # the fourth only 1/2 is above the uniform share.
    q, k = qk([math.log(share) for share in (8, 4, 2, 2)])
    w = build("softmax+reweight:p=2").weights(q, k, causal(4))[0, 0].tolist()
    assert w[0] == pytest.approx([1, 0, 0, 0])
    assert w[1] == pytest.approx([4 / 5, 1 / 5, 0, 0])
    assert w[2] == pytest.approx([16 / 21, 4 / 21, 1 / 21, 0])
    assert w[3] == pytest.approx([1, 0, 0, 0])


def test_log_n_is_softmax_within_the_training_length() -> None:
    w = build("log-n").weights(*qk(Z), causal(N))[0, 0]
    for n in range(1, TRAINED + 1):
        assert w[n - 1, :n].tolist() == pytest.approx(soft(Z[:n]))
    assert (
        normalizers.build("log-n", heads=1, head_dim=2, train_tokens=1)
        .weights(*qk(Z, heads=1), causal(N))
        .isfinite()
        .all()
    )


def test_llama4_and_ministral3_take_their_step_one_key_apart() -> None:
    for choice, full in (("llama4", 1 + 0.1 * math.log(2)), ("llama4:variant=ministral3", 1)):
        w = build(choice).weights(*qk(Z), causal(N))[0, 0]
        for n, c in ((TRAINED - 1, 1), (TRAINED, full), (TRAINED + 1, 1 + 0.1 * math.log(2))):
            assert w[n - 1, :n].tolist() == pytest.approx(soft([x * c for x in Z[:n]]))


@pytest.mark.parametrize(
    ("choice", "starts"),
    [
        ("ssmax", {"s": [1.0] * 4}),
        ("ssmax:s=0.43", {"s": [0.43] * 4}),
        ("ssmax:s=swap", {"s": [3 / math.log(6)] * 4}),
        ("ssmax:bias=yes", {"s": [1.0] * 4, "b": [0.0] * 4}),
        ("ssmax-free", {"p": [1.0] * 3, "s": [1.0] * 4, "b": [0.0] * 4}),
        ("ssa", {"n": [1.5] * 4, "b": [1.0] * 4}),
        ("ssa:per=layer", {"n": [1.5], "b": [1.0]}),
        ("ssa:n=3,b=0.8", {"n": [3.0] * 4, "b": [0.8] * 4}),
        ("ssa:n=1.4918247,b=e,per=layer", {"n": [math.exp(0.4)], "b": [math.e]}),
        ("forget", {"b": [0.0] * 4}),
        ("sink", {"s": [0.0] * 4}),
        ("elastic", {"tau": [-1.0] * 4}),
        ("asentmax", {"beta": [0.2125, 0.4375, 0.6625, 0.8875], "gamma": [0.0] * 4}),
    ],
)
def test_where_parameters_start(choice: str, starts: dict[str, Row]) -> None:
    rule = build(choice)
    assert set(rule.learned) == set(starts)
    for name, start in starts.items():
        assert getattr(rule, name).tolist() == pytest.approx(start, rel=1e-6)


@pytest.mark.parametrize("start", [1e-6, 0.1, 1.5, 29.9, 30.1, 1000.0])
def test_a_positive_parameter_starts_where_it_is_asked_to(start: float) -> None:
    x = softplus_inverse(start)
    assert max(x, 0) + math.log1p(math.exp(-abs(x))) == pytest.approx(start, rel=1e-9)


@pytest.mark.parametrize("p", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("size", [1e4, 1e8])
def test_an_even_row_of_p_softmax_has_p_norm_one_at_any_size(p, size):
    rule = normalizers.build(f"p-softmax:p={p:g}", heads=1, head_dim=WIDTH, train_tokens=TRAINED)
    q, k = (x.float() for x in qk([size] * N, heads=1))
    assert rule.weights(q, k, causal(N))[0, 0, -1].tolist() == pytest.approx([N ** (-1 / p)] * N, rel=1e-6)


FACTORS = {"qassmax", "asentmax", "differential"}  # which round large scores by a factor on the query, as ScaledQuery


@pytest.mark.parametrize("choice", ["standardized:gamma=100", *normalizers.registry.names()])
def test_where_differences_alone_count_large_scores_keep_them(choice):
    """In single precision, at scores of 1e8 that it holds exactly."""
    wide, rule = rule_inputs.build(choice), rule_inputs.single(choice)
    steps = [0.0] * N if isinstance(rule, ScaledQuery) or choice in FACTORS else [8.0, 0.0, 16.0, 8.0, 8.0]

    def weights(rule, z):
        with torch.no_grad():
            return rule.weights(*rule_inputs.scored(z)[:2], causal(N)).double()

    differences = torch.allclose(*(weights(wide, torch.tensor(Z).double() + size) for size in (0, 3)), atol=1e-9)
    given, wanted = weights(rule, torch.tensor(steps) + 1e8), weights(wide, torch.tensor(steps).double())
    assert not differences or torch.allclose(given, wanted, rtol=1e-4, atol=1e-6)

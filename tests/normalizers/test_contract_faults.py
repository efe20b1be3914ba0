"""The contract of a normalizer finds what is wrong: each faulty normalizer fails the check about its fault."""

import pytest
import torch
from torch import nn

from icl_lab import normalizers
from icl_lab.normalizers.base import (
    Normalizer,
    ScaledQuery,
    Scored,
    WarpedScore,
    causal,
    count,
    scores,
    softmax,
    upcast,
)
from icl_lab.testing.verdicts import called, verdicts

SHARED = nn.Parameter(torch.ones(4))


class Square(WarpedScore):
    """Softmax of scores times a constant.

    Formula: w = softmax(c z)
    Paper: yours, 2026
    """

    def __init__(self, site, *, c: float = 2.0):
        super().__init__()
        self.c, self.site = c, site

    def warp(self, z, n):
        return self.c * z


class Learned(ScaledQuery):
    learned = ("s",)

    def __init__(self, site):
        super().__init__()
        self.s = nn.Parameter(torch.full((site.heads,), 2.0))

    def scale(self, n):
        return self.s.unsqueeze(-1) * n.log1p()


class SharedPerToken(Learned):
    """A factor for each number of keys.

    Formula: w = softmax(p_n z)
    Paper: yours, 2026
    """

    learned = ("p",)
    shared = ("p",)

    def __init__(self, site):
        super().__init__(site)
        del self.s
        self.p = nn.Parameter(torch.full((site.train_tokens,), 2.0))

    def scale(self, n):
        return self.p[n.long().clamp(max=len(self.p)) - 1]


class ReadsTokens(Normalizer):
    """A score more for keys whose token is large.

    Formula: w = softmax(2 z + W x)
    Paper: yours, 2026
    """

    maps = {"w": "width"}  # noqa: RUF012
    reads_tokens = "weights"

    def __init__(self, site):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-0.5, 0.5, site.heads * site.token_width).view(site.heads, -1))

    def attend(self, q, k, v, visible, bias=None, x=None):
        return self.weights(q, k, visible, bias, x) @ v

    def weights(self, q, k, visible, bias=None, x=None):
        large = (upcast(self.tokens(x, k)) @ self.w.T).transpose(1, 2).unsqueeze(-2)
        return softmax(2 * scores(upcast(q), upcast(k), bias) + large, visible).to(q.dtype)


class Rows(Scored):
    """A base whose weights follow from scores, keys and the mask alone."""

    def __init__(self, site):
        super().__init__()


class Abstract(WarpedScore):
    def __init__(self, site):
        super().__init__()


class NoNormalizer:
    def __init__(self, site):
        pass


def starting(base, make, name="s"):
    """A constructor that puts another parameter in the place of the base's."""

    def construct(self, site):
        base.__init__(self, site)
        setattr(self, name, make(site))

    return {"__init__": construct}


def peak_of_all(self, q, k, visible):
    z = 2 * scores(q, k)
    mass = (z - z.amax(-1, keepdim=True)).exp() * visible
    return mass / mass.sum(-1, keepdim=True).clamp(min=1e-30)


def by_place(self, q, k, visible):
    """n as the place of the row, which is the number of keys it sees only without holes."""
    n = torch.arange(2, q.shape[-2] + 2, dtype=q.dtype)
    return softmax(scores(q, k) * n.log().unsqueeze(-1), visible)


def rows_from_shape(self, q, k, visible):
    """Softmax that fades with the distance of the rows and columns of the matrix."""
    rows, keys = torch.arange(q.shape[-2]), torch.arange(k.shape[-2])
    return softmax(2 * scores(q, k) - (rows.unsqueeze(-1) - keys).abs() ** 0.5, visible)


def negative(self, q, k, visible):
    return 2 * softmax(scores(q, k), visible) - visible / count(visible).unsqueeze(-1) * visible.any(-1, keepdim=True)


def stale(self, site):
    SharedPerToken.__init__(self, site)
    self.kept = [self.p]  # the tensor that build_layers replaces


PARAMETERS = "parameters are named have one entry a head and learn"
FAULTS = {  # the class below the fault, its attributes, and the check that it fails
    "another mask": (
        Square,
        {"weights": lambda self, q, k, visible: softmax(2 * scores(q, k), causal(q.shape[-2]))},
        "hidden keys get exactly zero",
    ),
    "mask before warp": (
        Square,
        {"weights": lambda self, q, k, visible: (2 * scores(q, k) * visible).softmax(-1)},
        "hidden keys get exactly zero",
    ),
    "n of the matrix": (
        Square,
        {"weights": lambda self, q, k, mask: softmax(scores(q, k) * (1 + torch.tensor(1.0 * q.shape[-2]).log()), mask)},
        "hiding is deleting",
    ),
    "by place": (Square, {"weights": by_place}, "hiding is deleting anywhere"),
    "peak of all": (Square, {"weights": peak_of_all}, "large hidden tokens have no influence"),
    "one mask for all": (
        Square,
        {"weights": lambda self, q, k, mask: softmax(2 * scores(q, k), mask.view(-1, *mask.shape[-2:])[0])},
        "each prompt may have a mask",
    ),
    "rows from shape": (Square, {"weights": rows_from_shape, "ordered": True}, "a cache of keys changes nothing"),
    "not normal": (
        Rows,
        {"rows": lambda self, q, k, visible: 0.9 * softmax(scores(q, k), visible)},
        "rows sum to one where declared and only there",
    ),
    "sums after all": (Square, {"sums_to_one": False}, "rows sum to one where declared and only there"),
    "negative": (Rows, {"rows": negative}, "weights are not negative where declared and only there"),
    "consistent after all": (Square, {"prefix_consistent": False}, "hiding is deleting"),
    "other attend": (
        Square,
        {"attend": lambda self, q, k, v, visible: softmax(scores(q, k), visible) @ v},
        "attend is weights times values",
    ),
    "detached": (Square, {"warp": lambda self, z, n: z + z.detach()}, "gradients are those of the formula"),
    "random": (
        Square,
        {"warp": lambda self, z, n: 2 * z + 1e-3 * torch.rand_like(z)},
        "asked twice it gives the same",
    ),
    "overflow": (Square, {"warp": lambda self, z, n: z.exp().log() * 2}, "hard scores stay finite"),
    "softmax itself": (Square, {"warp": lambda self, z, n: z}, "the normalizer is in the path"),
    "random start": (
        Learned,
        starting(Learned, lambda site: nn.Parameter(1 + torch.rand(site.heads))),
        "two builds start alike",
    ),
    "nameless": (Learned, {"learned": ()}, PARAMETERS),
    "one for all": (Learned, starting(Learned, lambda site: nn.Parameter(torch.ones(1))), PARAMETERS),
    "global": (Learned, starting(Learned, lambda site: SHARED), "layers share what is declared and nothing else"),
    "shared of undeclared shape": (
        SharedPerToken,
        {
            **starting(SharedPerToken, lambda site: nn.Parameter(torch.full((site.heads,), 2.0)), "p"),
            "scale": lambda self, n: self.p.unsqueeze(-1) * n.log1p(),
        },
        PARAMETERS,
    ),
    "stale shared": (
        SharedPerToken,
        {"__init__": stale, "scale": lambda self, n: self.kept[0][n.long().clamp(max=5) - 1]},
        "layers share what is declared and nothing else",
    ),
    "shared and not learned": (SharedPerToken, {"learned": ()}, PARAMETERS),
    "reads hidden tokens": (
        ReadsTokens,
        {
            "weights": lambda self, q, k, visible, bias=None, x=None: ReadsTokens.weights(
                self, q, k, visible, bias, x - x.mean(1, keepdim=True) ** 2
            )
        },
        "hidden tokens have no influence",
    ),
    "shaped and nameless": (ReadsTokens, {"maps": ()}, PARAMETERS),
    "map without use": (
        ReadsTokens,
        {
            "weights": lambda self, q, k, visible, bias=None, x=None: ReadsTokens.weights(
                self, q, k, visible, bias, x * 0
            )
        },
        PARAMETERS,
    ),
    "map of nothing": (Square, {"maps": {"w": "width"}}, PARAMETERS),
    "map that does not say what it reads": (ReadsTokens, {"maps": ("w",)}, PARAMETERS),
    "finishes unsaid": (
        Square,
        {
            "output": lambda self, o: 2 * o,
            "attend": lambda self, q, k, v, visible: 2 * Square.attend(self, q, k, v, visible),
        },
        "attend is weights times values",
    ),
    "finishes in attend alone": (
        Square,
        {"finishes": True, "attend": lambda self, q, k, v, visible: 2 * Square.attend(self, q, k, v, visible)},
        "attend is weights times values",
    ),
    "finishes nothing": (Square, {"finishes": True}, "attend is weights times values"),
    "undocumented": (Square, {"__doc__": "A normalizer without marks"}, "it says what it is"),
    "abstract": (Abstract, {}, "hidden keys get exactly zero"),
    "no normalizer": (NoNormalizer, {}, "hidden keys get exactly zero"),
}


@pytest.fixture
def checked(own_parts):
    """Registers a class for one test, and yields the checks that it fails with their sentences, one after another."""

    def check(part):
        part.__doc__ = part.__doc__ or Square.__doc__
        normalizers.registry.add("mine")(part)
        return ((check, why) for check, why in verdicts(called("mine")) if why)

    return check


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_rule_fails_the_check_about_its_fault(checked, name):
    base, parts, check = FAULTS[name]
    said = next((sentence for failed, sentence in checked(type("Faulty", (base,), parts)) if failed == check), "")
    assert said.startswith("mine: ")
    assert "\n" not in said
    if name == "global":
        assert said == "mine: the parameter s is not declared shared and is in two layers"


@pytest.mark.parametrize("part", [Square, Learned, SharedPerToken, ReadsTokens], ids=lambda part: part.__name__)
def test_a_sound_rule_fails_nothing(checked, part):
    assert dict(checked(part)) == {}

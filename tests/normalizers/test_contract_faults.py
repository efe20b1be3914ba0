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


class WrongMask(Square):
    def weights(self, q, k, visible):
        return softmax(2 * scores(q, k), causal(q.shape[-2]))


class MaskBeforeWarp(Square):
    def weights(self, q, k, visible):
        return (2 * scores(q, k) * visible).softmax(-1)


class WrongN(Square):
    def weights(self, q, k, visible):
        return softmax(scores(q, k) * (1 + torch.tensor(float(q.shape[-2])).log()), visible)


class ByPlace(Square):
    """n as the place of the row, which is the number of keys it sees only without holes.

    Formula: w = softmax(z log n)
    Paper: yours, 2026
    """

    def weights(self, q, k, visible):
        n = torch.arange(2, q.shape[-2] + 2, dtype=q.dtype)
        return softmax(scores(q, k) * n.log().unsqueeze(-1), visible)


class PeakOfAll(Square):
    def weights(self, q, k, visible):
        z = 2 * scores(q, k)
        mass = (z - z.amax(-1, keepdim=True)).exp() * visible
        return mass / mass.sum(-1, keepdim=True).clamp(min=1e-30)


class OneMaskForAll(Square):
    def weights(self, q, k, visible):
        return softmax(2 * scores(q, k), visible.view(-1, *visible.shape[-2:])[0])


class RowsFromShape(Square):
    """Softmax that fades with the distance of the rows and columns of the matrix.

    Formula: w = softmax(2 z - (i - j))
    Paper: yours, 2026
    """

    ordered = True

    def weights(self, q, k, visible):
        rows, keys = torch.arange(q.shape[-2]), torch.arange(k.shape[-2])
        return softmax(2 * scores(q, k) - (rows.unsqueeze(-1) - keys).abs() ** 0.5, visible)


class NotNormal(Scored):
    def __init__(self, site):
        super().__init__()

    def rows(self, q, k, visible):
        return 0.9 * softmax(scores(q, k), visible)


class SumsAfterAll(Square):
    sums_to_one = False


class Negative(NotNormal):
    def rows(self, q, k, visible):
        w = 2 * softmax(scores(q, k), visible)
        return w - visible / count(visible).unsqueeze(-1) * visible.any(-1, keepdim=True)


class ConsistentAfterAll(Square):
    prefix_consistent = False


class OtherAttend(Square):
    def attend(self, q, k, v, visible):
        return softmax(scores(q, k), visible) @ v


class Detached(Square):
    def warp(self, z, n):
        return z + z.detach()


class Random(Square):
    def warp(self, z, n):
        return 2 * z + 1e-3 * torch.rand_like(z)


class Overflow(Square):
    def warp(self, z, n):
        return z.exp().log() * 2


class IsSoftmax(Square):
    def warp(self, z, n):
        return z


class Learned(ScaledQuery):
    learned = ("s",)

    def __init__(self, site):
        super().__init__()
        self.s = nn.Parameter(torch.full((site.heads,), 2.0))

    def scale(self, n):
        return self.s.unsqueeze(-1) * n.log1p()


class RandomStart(Learned):
    def __init__(self, site):
        super().__init__(site)
        self.s = nn.Parameter(1 + torch.rand(site.heads))


class Nameless(Learned):
    learned = ()


class OneForAll(Learned):
    def __init__(self, site):
        super().__init__(site)
        self.s = nn.Parameter(torch.ones(1))


class GlobalParameter(Learned):
    def __init__(self, site):
        super().__init__(site)
        self.s = SHARED


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


class SharedUndeclaredShape(SharedPerToken):
    def __init__(self, site):
        super().__init__(site)
        self.p = nn.Parameter(torch.full((site.heads,), 2.0))

    def scale(self, n):
        return self.p.unsqueeze(-1) * n.log1p()


class StaleShared(SharedPerToken):
    def __init__(self, site):
        super().__init__(site)
        self.kept = [self.p]  # the tensor that build_layers replaces

    def scale(self, n):
        return self.kept[0][n.long().clamp(max=5) - 1]


class SharedNotLearned(SharedPerToken):
    learned = ()


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


class ReadsHiddenTokens(ReadsTokens):
    def weights(self, q, k, visible, bias=None, x=None):
        return super().weights(q, k, visible, bias, x - x.mean(1, keepdim=True) ** 2)


class ShapedNameless(ReadsTokens):
    maps = ()


class MapWithoutUse(ReadsTokens):
    def weights(self, q, k, visible, bias=None, x=None):
        return super().weights(q, k, visible, bias, x * 0)


class MapOfNothing(Square):
    maps = {"w": "width"}  # noqa: RUF012


class MapThatDoesNotSayWhatItReads(ReadsTokens):
    maps = ("w",)


class FinishesUnsaid(Square):
    def output(self, o):
        return 2 * o

    def attend(self, q, k, v, visible):
        return self.output(super().attend(q, k, v, visible))


class FinishesAloneInAttend(FinishesUnsaid):
    finishes = True

    def output(self, o):
        return o

    def attend(self, q, k, v, visible):
        return 2 * super().attend(q, k, v, visible)


class FinishesNothing(Square):
    finishes = True


class Undocumented(Square):
    """A normalizer without marks"""


class Abstract(WarpedScore):
    def __init__(self, site):
        super().__init__()


class NoNormalizer:
    """A class of another kind.

    Formula: w = 1
    Paper: yours, 2026
    """

    def __init__(self, site):
        pass


FAULTS = {
    WrongMask: "hidden keys get exactly zero",
    MaskBeforeWarp: "hidden keys get exactly zero",
    WrongN: "hiding is deleting",
    ByPlace: "hiding is deleting anywhere",
    PeakOfAll: "large hidden tokens have no influence",
    OneMaskForAll: "each prompt may have a mask",
    RowsFromShape: "a cache of keys changes nothing",
    NotNormal: "rows sum to one where declared and only there",
    SumsAfterAll: "rows sum to one where declared and only there",
    Negative: "weights are not negative where declared and only there",
    ConsistentAfterAll: "hiding is deleting",
    OtherAttend: "attend is weights times values",
    Detached: "gradients are those of the formula",
    Random: "asked twice it gives the same",
    Overflow: "hard scores stay finite",
    IsSoftmax: "the normalizer is in the path",
    RandomStart: "two builds start alike",
    Nameless: "parameters are named have one entry a head and learn",
    OneForAll: "parameters are named have one entry a head and learn",
    GlobalParameter: "layers share what is declared and nothing else",
    SharedUndeclaredShape: "parameters are named have one entry a head and learn",
    StaleShared: "layers share what is declared and nothing else",
    SharedNotLearned: "parameters are named have one entry a head and learn",
    ReadsHiddenTokens: "hidden tokens have no influence",
    ShapedNameless: "parameters are named have one entry a head and learn",
    MapWithoutUse: "parameters are named have one entry a head and learn",
    MapOfNothing: "parameters are named have one entry a head and learn",
    MapThatDoesNotSayWhatItReads: "parameters are named have one entry a head and learn",
    FinishesUnsaid: "attend is weights times values",
    FinishesAloneInAttend: "attend is weights times values",
    FinishesNothing: "attend is weights times values",
    Undocumented: "it says what it is",
    Abstract: "hidden keys get exactly zero",
    NoNormalizer: "hidden keys get exactly zero",
}


@pytest.fixture
def checked(own_parts):
    """Registers a class for one test, and returns the checks that it fails with their sentences."""

    def check(part):
        part.__doc__ = part.__doc__ or Square.__doc__
        normalizers.registry.add("mine")(part)
        return {check: why for check, why in verdicts(called("mine")) if why}

    return check


@pytest.mark.slow
@pytest.mark.parametrize("part", FAULTS, ids=lambda part: part.__name__)
def test_a_faulty_rule_fails_the_check_about_its_fault(checked, part):
    failed = checked(part)
    assert FAULTS[part] in failed
    assert all(sentence.startswith("mine: ") and "\n" not in sentence for sentence in failed.values())


@pytest.mark.slow
def test_a_parameter_in_two_layers_is_told_as_what_it_is(checked):
    sentence = checked(GlobalParameter)["layers share what is declared and nothing else"]
    assert sentence == "mine: the parameter s is not declared shared and is in two layers"


@pytest.mark.parametrize("part", [Square, Learned, SharedPerToken, ReadsTokens], ids=lambda part: part.__name__)
def test_a_sound_rule_fails_nothing(checked, part):
    assert checked(part) == {}

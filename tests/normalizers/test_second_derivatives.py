"""Second derivatives: right by every way that torch has, or refused by torch itself."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.normalizers.base import causal
from icl_lab.normalizers.ssa import Power
from icl_lab.testing.rule_inputs import qkv, stirred
from tests.cases import representatives
from tests.normalizers.test_contract import ALL

# torch's own forward derivatives begin with a call of what it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def twice(f, x, along):
    """The Hessian of f at x times a direction, by a second backward pass."""
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad(first, x, along)[0]


def forward_over_backward(f, x, along):
    """The same, by dual numbers under a backward pass that builds no graph."""
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), along)
        (first,) = torch.autograd.grad(f(dual), dual)
        return forward_ad.unpack_dual(first).tangent


WAYS = {
    "grad of grad": twice,
    "dual numbers": forward_over_backward,
    "jvp of grad": lambda f, x, along: torch.func.jvp(torch.func.grad(f), (x,), (along,))[1],
    "vjp of grad": lambda f, x, along: torch.func.vjp(torch.func.grad(f), x)[1](along)[0],
    "hessian": lambda f, x, along: torch.tensordot(torch.func.hessian(f)(x), along, x.ndim),
    "functional.hvp": lambda f, x, along: torch.autograd.functional.hvp(f, x, along)[1],
}


def differences(f, x, along, step=1e-6):
    """The change of the gradient along a direction."""

    def gradient(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(f(x), x)[0]

    return (gradient(x + step * along) - gradient(x - step * along)) / (2 * step)


@pytest.mark.parametrize("choice", ["ssa", "ssa:per=layer", "entmax", "entmax:alpha=3", "sparsemax", "asentmax"])
@pytest.mark.parametrize("way", WAYS)
def test_second_derivatives_of_functions_with_own_slopes(way, choice):
    rule = stirred(choice)
    q, k, v = qkv(4, b=1)

    def loss(q):
        return (rule.attend(q, k, v, causal(4)) * v).sum() + rule.weights(q, k, causal(4)).square().sum()

    found = WAYS[way](loss, q, v)
    torch.testing.assert_close(found, differences(loss, q, v), rtol=1e-5, atol=1e-7)


def test_the_second_derivatives_of_ssa_where_a_score_is_zero():
    """By closed form: dg / dz dn = b and dg / dz db = n at z = 0."""
    z = torch.zeros(1, 1, 1, dtype=torch.float64, requires_grad=True)
    n, b = (torch.full_like(z, value, requires_grad=True) for value in (1.7, 0.6))
    (slope,) = torch.autograd.grad(Power.apply(z, n, b)[0].sum(), z, create_graph=True)
    assert [grad.item() for grad in torch.autograd.grad(slope.sum(), (n, b))] == pytest.approx([0.6, 1.7])


@pytest.mark.parametrize("choice", representatives(ALL))
@pytest.mark.slow
def test_second_derivatives_are_those_of_the_formula(choice):
    """In q, k, v and every parameter; under torch's plain kernel, for it knows none of a fused one."""
    rule = stirred(choice)
    tensors = [x.requires_grad_() for x in qkv(3, b=1)]
    learned = [p for p in rule.parameters() if p.requires_grad]

    def both(q, k, v, *_):
        return rule.attend(q, k, v, causal(3)) + 0 * q.sum(), rule.weights(q, k, causal(3)) + 0 * q.sum()

    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(both, (*tensors, *learned), atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("choice", ["ssa", "entmax", "entmax:alpha=3"])
def test_forward_over_forward_is_refused(choice):
    """torch would take the inner derivative for a constant."""
    rule = stirred(choice)
    q, k, _ = qkv(3, b=1)
    with pytest.raises(BadValue, match="jvp of jvp"):
        torch.func.jacfwd(torch.func.jacfwd(lambda q: rule.weights(q, k, causal(3)).square().sum()))(q)


def test_a_fused_kernel_refuses_a_second_derivative():
    rule = stirred("softmax")
    q, k, v = qkv(3, b=1)
    for way in ("grad of grad", "jvp of grad", "hessian"):
        with pytest.raises((RuntimeError, NotImplementedError), match="scaled_dot_product"):
            WAYS[way](lambda q: rule.attend(q, k, v, causal(3)).square().sum(), q, v)


@pytest.mark.parametrize("mlp", [True, False])
@pytest.mark.parametrize("attn", ["softmax", "ssa", "entmax"])
def test_hessian_vector_products_of_whole_models(attn, mlp):
    spec = ModelSpec(layers=2, heads=2, width=8, mlp=mlp)
    model = GPT2(spec, TokenSpec(width=1, outputs=1, roles=2, train_tokens=8), attn, stream(0, "hvp")).double()
    rng = stream(1, "hvp")
    with torch.no_grad():  # scores that are not all near 0
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=rng, dtype=p.dtype))
    tokens, wanted = torch.randn(2, 2, 6, 1, generator=rng, dtype=torch.float64)
    names, values = zip(*model.named_parameters(), strict=True)
    sizes = [p.numel() for p in values]
    flat = torch.cat([p.detach().flatten() for p in values])
    along = torch.randn(flat.shape, generator=rng, dtype=torch.float64)

    def loss(flat):
        parts = [part.view_as(p) for part, p in zip(flat.split(sizes), values, strict=True)]
        out = torch.func.functional_call(model, dict(zip(names, parts, strict=True)), (tokens,))
        return (out - wanted).square().mean()

    with sdpa_kernel(SDPBackend.MATH):
        change = differences(loss, flat, along)
        for way in ("grad of grad", "jvp of grad", "functional.hvp"):
            torch.testing.assert_close(WAYS[way](loss, flat, along), change, rtol=1e-5, atol=1e-5)

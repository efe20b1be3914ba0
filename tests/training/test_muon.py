"""Muon: the digits of torch's, as far as bfloat16 has any, and nothing read that a recorded step could not read."""

import pytest
import torch
from torch import nn

from icl_lab.training import muon
from icl_lab.training.muon import Muon, orthogonal

JORDAN = (3.4445, -4.7750, 2.0315)
SHAPES = [(64, 192), (192, 64), (64, 64), (64, 64), (7, 30), (1, 5)]


@pytest.fixture(params=[False, True], ids=["float32", "bfloat16"])
def amx(request, monkeypatch):
    """Products of a processor without and with instructions for bfloat16."""
    monkeypatch.setattr(muon, "has_amx", lambda: request.param)
    return request.param


def matrices(shapes):
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape)) for shape in shapes]


def both(shapes, decay=0.1, rate=0.5):
    """The same matrices under our step and under torch's."""
    ours, theirs = matrices(shapes), matrices(shapes)
    mine, torchs = Muon(ours, decay), torch.optim.Muon(theirs, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    for group in mine.param_groups + torchs.param_groups:
        group["lr"] = rate
    return ours, theirs, mine, torchs


def test_steps_equal_torch_up_to_rounding_edges(amx):
    ours, theirs, mine, torchs = both(SHAPES)
    apart = []
    for _ in range(5):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        before = [p.detach().clone() for p in ours]
        mine.step()
        torchs.step()
        for p, q, was in zip(ours, theirs, before, strict=True):
            apart.append(torch.linalg.norm(p - q) / torch.linalg.norm(q - was))
            with torch.no_grad():
                q.copy_(p)
    assert sum(apart) / len(apart) < 0.006  # bfloat16 itself is 0.014 from what float32 gives
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.state[p]["momentum_buffer"], torchs.state[q]["momentum_buffer"])


def test_nearly_every_entry_is_the_same_digits(amx):
    given = torch.randn(8, 64, 192)
    ours = orthogonal(given, JORDAN, 1)
    theirs = torch.stack([torch.optim._muon._zeropower_via_newtonschulz(g, JORDAN, 1, 1e-7) for g in given])
    assert (ours == theirs).double().mean() > 0.995
    assert ours.dtype == torch.float32


def test_products_are_of_the_type_that_the_processor_multiplies(amx, monkeypatch):
    seen, plain = set(), torch.baddbmm
    monkeypatch.setattr(torch, "baddbmm", lambda x, *rest, **more: seen.add(x.dtype) or plain(x, *rest, **more))
    orthogonal(torch.randn(1, 4, 6), JORDAN, 1)
    assert seen == {torch.bfloat16 if amx else torch.float32}


def test_newton_schulz_on_singular_values_by_hand():
    given = torch.diag(torch.tensor([3.0, 4.0])).unsqueeze(0)  # divided by its norm of 5: 0.6 and 0.8
    a, b, c = JORDAN
    by_hand = torch.tensor([a * s + b * s**3 + c * s**5 for s in (0.6, 0.8)])
    torch.testing.assert_close(orthogonal(given, JORDAN, 1)[0].diagonal(), by_hand, rtol=0.01, atol=0)


@pytest.mark.parametrize("shape", [(3, 16, 40), (3, 40, 16)])
def test_singular_values_come_near_one_whichever_side_is_longer(shape):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape), JORDAN, 5))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_a_matrix_without_gradient_stays_where_it_is():
    ours, _, mine, _ = both([(4, 6), (4, 6)])
    still = ours[1].detach().clone()
    ours[0].grad = torch.randn(4, 6)
    mine.step()
    assert torch.equal(ours[1], still)
    assert ours[1] not in mine.state


def test_a_gradient_of_zero_only_decays():
    ours, _, mine, _ = both([(4, 6)], decay=0.1, rate=0.5)
    was = ours[0].detach().clone()
    ours[0].grad = torch.zeros(4, 6)
    mine.step()
    torch.testing.assert_close(ours[0].detach(), was * 0.95)


def test_what_torch_kept_goes_on_here():
    ours, theirs, mine, torchs = both([(8, 5)])
    for p in (ours[0], theirs[0]):
        p.grad = torch.ones(8, 5)
    torchs.step()
    mine.load_state_dict(torchs.state_dict())
    with torch.no_grad():
        ours[0].copy_(theirs[0])
    mine.step()
    torchs.step()
    torch.testing.assert_close(ours[0], theirs[0], rtol=0.01, atol=0.01)
    buffers = (each.state[p]["momentum_buffer"] for each, (p,) in ((mine, ours), (torchs, theirs)))
    torch.testing.assert_close(*buffers, rtol=0, atol=0)


def test_a_tensor_as_rate_is_the_same_and_can_be_filled_anew(amx):
    ours, others = matrices(SHAPES), matrices(SHAPES)
    number, tensor = Muon(ours, 0.1), Muon(others, 0.1)
    filled = torch.zeros(())
    tensor.param_groups[0]["lr"] = filled
    for rate in (0.5, 0.125):
        number.param_groups[0]["lr"] = rate
        filled.fill_(rate)
        for p, q in zip(ours, others, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        number.step()
        tensor.step()
    for p, q in zip(ours, others, strict=True):
        torch.testing.assert_close(p, q)


def test_on_a_gpu_products_are_bfloat16_and_no_number_is_read(monkeypatch):
    """A device without memory stands in: what reads a number there fails, as it does while a step is recorded."""
    seen, plain = set(), torch.baddbmm
    monkeypatch.setattr(torch, "baddbmm", lambda x, *rest, **more: seen.add(x.dtype) or plain(x, *rest, **more))
    monkeypatch.setattr(muon, "has_amx", lambda: False)
    given = [nn.Parameter(torch.empty(shape, device="meta")) for shape in SHAPES]
    for p in given:
        p.grad = torch.empty_like(p)
    mine = Muon(given, 0.1)
    mine.param_groups[0]["lr"] = torch.zeros((), device="meta")
    mine.step()
    assert seen == {torch.bfloat16}

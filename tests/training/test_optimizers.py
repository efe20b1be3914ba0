"""Optimizers: what they move and by how much, against arithmetic by hand and torch's own."""

import math

import pytest
import torch

from icl_lab.base.errors import LabError
from icl_lab.base.rng import stream
from icl_lab.training.loop import Progress, optimizer, prepare, train
from icl_lab.training.recipe import TrainSpec
from tests.training.small import numbers, setup

STILL = ["train.steps=1", "train.schedule=constant", "train.warmup=0", "train.clip=0"]


def one_step(spec):
    """The numbers before and after the first step, and the gradients of it."""
    model, task = setup(spec)
    before = numbers(model)
    prompt = task.sample(stream(0, "train", 0), spec.train.batch, spec.train.length_at(0))
    task.loss(model(prompt.tokens), prompt).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    train(model, task, spec.train, 0, Progress(), keep=lambda progress: None)
    return before, numbers(model), gradients


def test_matrices_are_named_without_normalizer_parameters(tiny):
    model, _ = setup(tiny("linear", "ssa", "model.layers=2"))
    parts = ("attention.qkv", "attention.project", "mlp.widen", "mlp.project")
    assert model.matrices() == [f"blocks.{layer}.{part}.weight" for layer in (0, 1) for part in parts]
    gated, _ = setup(tiny("linear", "cosformer", "model.mlp=no"))
    assert all(dict(gated.named_parameters())[name].ndim == 2 for name in gated.matrices())


@pytest.mark.parametrize("recipe", ["muon", "adam"])
def test_muon_orthogonalises_matrices_and_adam_the_rest(tiny, recipe):
    """Singular values of a move are 0.2 sqrt(max(m, n)) rate times 0.7 to 1.2, which five Newton-Schulz steps leave."""
    spec = tiny("linear", "softmax", *STILL, f"train.optimizer={recipe}", "train.muon_rate=0.01", "train.rate=0.001")
    before, after, gradients = one_step(spec)
    matrices = setup(spec)[0].matrices() if recipe == "muon" else ()
    for name, gradient in gradients.items():
        moved = after[name] - before[name]
        if name in matrices:
            u, size, v = torch.linalg.svd(gradient, full_matrices=False)
            clear = size > 0.05 * size[0]
            reached = torch.einsum("mr,mn,rn->r", u, moved, v)[clear] / (-0.2 * math.sqrt(max(moved.shape)) * 0.01)
            assert reached.min() > 0.6, name
            assert reached.max() < 1.25, name
        else:
            clear = gradient.abs() > 1e-5
            assert torch.allclose(moved[clear], -0.001 * gradient[clear].sign(), rtol=2e-2, atol=1e-6), name


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_decay_shrinks_the_matrices_of_the_blocks_alone(tiny, name):
    """Apart from the gradient: the same step with decay 0.5 ends rate * 0.5 * theta nearer to 0."""
    settings = [*STILL, f"train.optimizer={name}", "train.rate=0.01", "train.muon_rate=0.02"]
    before, plain, _ = one_step(tiny("linear", "softmax", *settings))
    _, shrunk, _ = one_step(tiny("linear", "softmax", *settings, "train.decay=0.5"))
    matrices = setup(tiny())[0].matrices()
    rate = 0.01 if name == "adamw" else 0.02
    for key, value in plain.items():
        expected = value - rate * 0.5 * before[key] if key in matrices else value
        torch.testing.assert_close(shrunk[key], expected, rtol=0, atol=1e-6)
    with pytest.raises(LabError, match="optimizer=adam knows no decay"):
        tiny("linear", "softmax", "train.decay=0.1")


AVERAGES = {0.2: (0.2, 0.2, 0.2), 0.3: (3 / 12, 0.3, 0.3), 0.9: (3 / 12, 4 / 13, 5 / 14)}


@pytest.mark.parametrize("ema", AVERAGES)
def test_the_tested_parameters_are_the_moving_average(tiny, ema):
    """The average starts at the parameters after step 1; its weight is (1 + t) / (10 + t), at most ema."""
    spec = tiny("linear", "softmax", "train.steps=4", f"train.ema={ema}")
    plain, task = setup(tiny("linear", "softmax", "train.steps=4"))
    seen = []
    engine = prepare(plain, task, optimizer(plain, spec.train), spec.train)
    start = numbers(plain)
    for step in range(4):
        prompt = task.sample(stream(0, "train", step), spec.train.batch, spec.train.length_at(step))
        engine.step(prompt, torch.arange(prompt.tokens.shape[1]), spec.train.rate_at(step))
        seen.append(numbers(plain))
    # The average begins at what the first step left.
    mean = seen[0]
    for past, now in zip(AVERAGES[ema], seen[1:], strict=True):
        mean = {name: past * mean[name] + (1 - past) * now[name] for name in mean}
    averaged, task = setup(spec)
    train(averaged, task, spec.train, 0, Progress(), keep=lambda progress: None)
    for name, value in numbers(averaged).items():
        torch.testing.assert_close(value, mean[name], rtol=0, atol=1e-6)
    assert not torch.equal(averaged.read_in.weight, plain.read_in.weight)
    assert not torch.equal(start["read_in.weight"], plain.read_in.weight)


def test_before_the_first_step_the_average_is_the_parameters(tiny):
    """Nothing is averaged; what the first step leaves is a_1 itself, though the ramp would keep 2 / 11 of a past."""
    spec = tiny("linear", "softmax", "train.steps=4", "train.ema=0.9")
    model, task = setup(spec)
    optim = optimizer(model, spec.train)
    start = numbers(model)
    optim.load_ema()
    assert all(torch.equal(value, start[name]) for name, value in numbers(model).items())
    engine = prepare(model, task, optim, spec.train)
    engine.step(task.sample(stream(0), 4, 5), torch.arange(10), 0.001)
    after = numbers(model)
    optim.load_ema()
    assert all(torch.equal(value, after[name]) for name, value in numbers(model).items())
    assert not torch.equal(after["read_in.weight"], start["read_in.weight"])
    assert optim.ema_steps == 1


def test_a_switch_of_normalizers_goes_on_with_the_average(tiny):
    """Both the average and the steps that it has seen: one that began anew would forget all before the switch."""
    spec = tiny("linear", "softmax", "train.steps=4", "train.ema=0.9")
    model, task = setup(spec)
    before = optimizer(model, spec.train)
    engine = prepare(model, task, before, spec.train)
    for step in range(3):
        engine.step(task.sample(stream(0, step), 4, 5), torch.arange(10), 0.001)
    after = optimizer(model, spec.train)
    after.take_over(before)
    assert after.ema_steps == 3
    assert all(torch.equal(a, b) for a, b in zip(after.average, before.average, strict=True))


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_a_switch_keeps_the_moments_of_parts_of_parameters(tiny, kind):
    settings = [f"train.optimizer={kind}", "train.scaling=mup"]
    spec = tiny("linear", "softmax", *settings)
    model, task = setup(spec)
    before = optimizer(model, spec.train)
    engine = prepare(model, task, before, spec.train)
    engine.step(task.sample(stream(0), 4, 5), torch.arange(10), 0.001)
    after = optimizer(model, spec.train)
    after.take_over(before)
    ours, theirs = (each.adam if kind == "adam" else each.muon for each in (after, before))
    assert len(after.views) == len(before.views) >= 6  # queries, keys and values of each layer
    for (mine, *_), (old, *_) in zip(after.views, before.views, strict=True):
        known = ours.state[mine] if mine in ours.state else after.adam.state[mine]
        was = theirs.state[old] if old in theirs.state else before.adam.state[old]
        assert known.keys() == was.keys() != set()
        assert all(torch.equal(known[name], was[name]) for name in was)


def test_a_loaded_average_leaves_the_one_it_came_from(tiny):
    spec = tiny("linear", "softmax", "train.ema=0.2")
    first, other = (optimizer(setup(spec)[0], spec.train) for _ in range(2))
    first.update_ema()
    before = [mean.clone() for mean in first.average]
    other.load_state_dict(first.state_dict())
    for p in other.params:
        p.data += 1
    other.update_ema()
    assert all(torch.equal(mean, was) for mean, was in zip(first.average, before, strict=True))
    assert all(torch.allclose(mean, was + 0.8) for mean, was in zip(other.average, before, strict=True))


def test_a_state_that_was_kept_before_there_was_muon_is_read(tiny):
    """It was that of Adam alone."""
    spec = tiny("linear", "softmax", "train.steps=2")
    model, task = setup(spec)
    optim = optimizer(model, spec.train)
    engine = prepare(model, task, optim, spec.train)
    engine.step(task.sample(stream(0), 4, 5), torch.arange(10), 0.001)
    other = optimizer(model, spec.train)
    other.load_state_dict(optim.adam.state_dict())
    for p in optim.params:
        assert torch.equal(other.adam.state[p]["exp_avg"], optim.adam.state[p]["exp_avg"])


def test_schedules_by_hand():
    cosine = TrainSpec(steps=1000, rate=1e-3, warmup=99)
    assert [cosine.rate_at(step) for step in (0, 99)] == pytest.approx([1e-5, 1e-3])
    assert cosine.rate_at(549) == pytest.approx(1e-3 * (0.01 + 0.99 / 2), rel=0.01)
    assert cosine.rate_at(999) == pytest.approx(1e-5, rel=0.02)
    constant = TrainSpec(steps=1000, rate=1e-4, schedule="constant", warmup=0)
    assert {constant.rate_at(step) for step in range(1000)} == {1e-4}
    spec = TrainSpec(steps=1000, rate=1e-3, warmup=99, schedule="constant", switch_step=500, switch_to="ssmax")
    assert [spec.rate_at(step) for step in (499, 500, 599, 999)] == pytest.approx([1e-3, 1e-5, 1e-3, 1e-3])  # anew
    linear = TrainSpec(steps=1000, rate=1.0, schedule="linear", warmup=0)
    assert [linear.rate_at(step) for step in (0, 250, 999)] == pytest.approx([1, 0.75, 0.001])
    stable = TrainSpec(steps=1000, rate=1.0, schedule="wsd", warmup=9, cooldown=0.5)
    assert [stable.rate_at(step) for step in (0, 9, 499, 500, 750, 999)] == pytest.approx([0.1, 1, 1, 1, 0.5, 0.002])


def test_growing_batches_are_what_is_drawn(tiny):
    growing = TrainSpec(steps=90, batch=8, doublings=2)
    assert [growing.batch_at(step) for step in (0, 29, 30, 59, 60, 89)] == [8, 8, 16, 16, 32, 32]
    assert {TrainSpec(steps=90, batch=8).batch_at(step) for step in range(90)} == {8}
    spec = tiny("linear", "softmax", "train.steps=4", "train.doublings=1", "train.batch=4")
    model, task = setup(spec)
    seen = []

    class Spy(type(task)):
        def sample(self, rng, prompts, length, **shift):
            seen.append(prompts)
            return super().sample(rng, prompts, length, **shift)

    train(model, Spy(), spec.train, 0, Progress(), keep=lambda progress: None)
    assert seen == [4, 4, 8, 8, 8]  # once more for the row of the history

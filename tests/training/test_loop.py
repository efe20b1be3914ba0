"""Training: exact resumption, honest failure, and models that learn."""

import math

import pytest
import torch

from icl_lab import normalizers
from icl_lab.base.errors import LabError, RunFailed
from icl_lab.base.rng import stream
from icl_lab.pipeline import sweep
from icl_lab.training.curriculum import Staircase
from icl_lab.training.loop import Progress, attention_statistics, train
from icl_lab.training.recipe import TrainSpec
from tests.cases import few, representatives
from tests.training.small import numbers, resumed, same, setup, trained

SWITCH = ["train.switch_step=4", "train.switch_to=ssmax:s=swap"]
RECIPES = {
    "softmax": (),
    "ssa": ("train.steps=60",),
    "ssmax:bias=yes": (),
    "places": ("model.positions=rotary:random=200",),
    "half precision": ("train.precision=bf16",),
    "muon": ("train.optimizer=muon", "train.decay=0.1", "train.ema=0.9", "train.doublings=2", "train.schedule=wsd"),
    "adamw": ("train.optimizer=adamw", "train.decay=0.1", "train.schedule=linear"),
    "a switch": ("train.optimizer=muon", "train.ema=0.9", *SWITCH),
    "a switch of parts": ("train.optimizer=muon", "train.scaling=mup", *SWITCH),
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_stopped_and_resumed_equals_uninterrupted_bit_for_bit(tiny, recipe):
    attn = recipe if recipe.startswith("ss") else "softmax"
    spec = tiny("linear", attn, "train.steps=12", *RECIPES[recipe])
    (whole, history), (again, resumed_history) = trained(spec), resumed(spec, 1, 2, 6, spec.train.steps - 1)
    assert same(whole, again)
    assert history == resumed_history
    assert [row["step"] for row in history] == ([50, 60] if recipe == "ssa" else [12])


def test_seeds_differ_and_rules_share_prompts(tiny):
    (one, task), (other, _) = setup(tiny(), 0), setup(tiny(), 1)
    assert not same(one, other)
    seen = []

    class Spy(type(task)):
        def sample(self, *given, **shift):
            seen.append(super().sample(*given, **shift))
            return seen[-1]

    for attn in ("softmax", "ssa"):
        model, _ = setup(tiny("linear", attn))
        train(model, Spy(), tiny("linear", attn, "train.steps=3").train, 0, Progress(), keep=lambda progress: None)
    assert len(seen) == 8  # three steps each, the last drawn once more for the row of the history
    tokens = [prompt.tokens for prompt in seen]
    assert all(torch.equal(a, b) for a, b in zip(tokens[:4], tokens[4:], strict=True))
    assert torch.equal(tokens[2], tokens[3])
    assert not torch.equal(tokens[0][:, :5], tokens[1][:, :5])


@pytest.mark.parametrize("attn", ["softmax", "ssa", "sigmoid:bias=train"])
def test_statistics_of_attention_by_hand(tiny, attn):
    spec = tiny("linear", attn, "model.layers=2", "model.width=8", "model.heads=2")
    model, task = setup(spec)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight.mul_(50)
    tokens = task.sample(stream(0, "train", 5), 10, 6).tokens
    found, trace = attention_statistics(model, tokens), model.trace(tokens[:8])
    assert list(found) == ["score.0", "entropy.0", "score.1", "entropy.1"]
    for layer in (0, 1):
        z, w = trace[f"layers.{layer}.scores"], trace[f"layers.{layer}.weights"]
        scores, entropies = [], []
        for query in range(12):
            scores.append(z[:, :, query, : query + 1].max().item())
            p = w[:, :, query, : query + 1].double().abs()
            p = p / p.sum(-1, keepdim=True)
            entropies.append(-(p * p.clamp(min=1e-300).log()).sum(-1).mean().item())
        assert found[f"score.{layer}"] == pytest.approx(max(scores), rel=2**-8)
        assert found[f"entropy.{layer}"] == pytest.approx(sum(entropies) / 12, rel=2**-8, abs=1e-6)
    assert attention_statistics(setup(tiny("linear", attn, "model.attention=no"))[0], tokens) == {}


def test_statistics_see_only_visible_keys_and_change_no_weight(tiny):
    model, task = setup(tiny("linear", "softmax", "model.layers=1"))
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.zero_()
    before, kept = numbers(model), []
    model.norm.register_forward_hook(lambda *_: kept.append(torch.is_grad_enabled()))
    found = attention_statistics(model, task.sample(stream(0, "train", 0), 4, 3).tokens)
    assert not any(kept)
    uniform = sum(math.log(n) for n in range(1, 7)) / 6  # all scores are 0: each query attends alike to what it sees
    assert found == {"score.0": 0, "entropy.0": pytest.approx(uniform, rel=2**-8)}
    assert all(torch.equal(value, before[name]) for name, value in numbers(model).items())


def test_a_share_of_the_steps_is_rounded_to_the_nearest():
    climb = Staircase(start=1, stop=9, rise=1, run=0.29)  # 0.29 * 100 is 28.999999999999996
    assert [climb.at(step, steps=100) for step in (28, 29)] == [1, 2]


def test_a_mixture_has_all_lengths_alike():
    climb = Staircase(start=16, stop=64, rise=16, run=0.1, mixed=True)
    lengths = [climb.at(step, 1000) for step in range(1000)]
    assert max(lengths[:100]) == 16
    assert max(lengths[100:200]) == 32
    late = lengths[300:]
    assert (min(late), max(late)) == (16, 64)
    counts = [late.count(length) for length in range(16, 65)]
    assert max(counts) - min(counts) <= 3  # 700 / 49 = 14 each
    assert TrainSpec(steps=1000, curriculum=climb).longest == 64
    assert TrainSpec(steps=1000, curriculum=Staircase(start=3, stop=64, rise=2, run=0.1)).longest == 21


def test_random_places_belong_to_the_step(tiny):
    spec = tiny("linear", "softmax", "model.positions=rotary:random=200", "train.steps=6")
    spied, task = setup(spec)
    seen, where = [], spied.positions.where
    spied.positions.where = lambda *asked: seen.append(where(*asked)) or seen[-1]
    train(spied, task, spec.train, 0, Progress(), keep=lambda progress: None)
    assert len({tuple(places.tolist()) for places in seen}) == 6  # afresh at each step
    plain, _ = trained(tiny("linear", "softmax", "model.positions=rotary", "train.steps=6"))
    assert not same(spied, plain)


@pytest.mark.parametrize(("bad", "at"), [(math.inf, 7), (math.nan, 33)])
def test_a_bad_loss_stops_and_nothing_is_kept_after_it(tiny, monkeypatch, bad, at):
    spec = tiny("linear", "softmax", "train.steps=400")
    model, task = setup(spec)
    monkeypatch.setattr("icl_lab.training.loop.CHECKPOINT_SECONDS", 0)

    class Poisoned(type(task)):
        def loss(self, outputs, prompt):
            steps.append(0)
            return super().loss(outputs, prompt) * (bad if len(steps) == at else 1)

    steps, kept = [], []
    with pytest.raises(RunFailed, match=rf"the loss is {bad} at step {at};"):
        train(model, Poisoned(), spec.train, 0, Progress(), keep=lambda progress: kept.append(progress.step))
    assert kept == list(range(1, at))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "trivial"),
    few(2, [("linear", "zero"), ("every:balance=half", "always-false"), ("some:balance=half", "always-true")]),
)
def test_a_tiny_model_beats_the_trivial_predictor(tiny, choice, trivial):
    small = "train.steps=250 train.batch=32 train.rate=0.01 train.curriculum.start=8 train.curriculum.stop=8"
    spec = tiny(choice, "softmax", *small.split())
    model, task = setup(spec)
    train(model, task, spec.train, 0, Progress(), keep=lambda progress: None)
    prompt = task.sample(stream(9, "other"), 512, 8)
    with torch.no_grad():
        ours = task.errors(model(prompt.tokens), prompt).mean().item()
    theirs = task.errors(task.references()[trivial](prompt), prompt).mean().item()
    assert ours < 0.8 * theirs


@pytest.mark.slow
def test_a_switched_training_continues_from_its_weights(tiny):
    spec = tiny("linear", "softmax", "train.switch_step=20", "train.switch_to=ssmax:s=swap")
    model, task = setup(spec)
    rules = []

    class Spy(type(task)):
        def loss(self, outputs, prompt):
            rules.append(model.attn)
            return super().loss(outputs, prompt)

    train(model, Spy(), spec.train, 0, Progress(), keep=lambda progress: None)
    assert rules == ["softmax"] * 20 + ["ssmax:s=swap"] * 40
    start = 1 / torch.arange(1, spec.reading(task).train_tokens + 1).float().log().mean()
    s = model.blocks[0].attention.rule.s
    assert s.requires_grad
    assert not torch.allclose(s, start.expand(2), atol=1e-6), "s is learned from the switch on"
    assert torch.allclose(s, start.expand(2), atol=0.3)


def test_a_switched_training_takes_the_moments_of_adam_along(tiny):
    """Switching to the normalizer that is there already, without a warm-up, changes nothing."""
    still = ["train.steps=12", "train.schedule=constant", "train.warmup=0"]
    switch = ["train.switch_step=6", "train.switch_to=softmax"]
    assert same(*(trained(tiny("linear", "softmax", *still, *more))[0] for more in ([], switch)))


@pytest.mark.parametrize(
    "settings", [["train.switch_step=20"], ["train.switch_to=ssa"], ["train.switch_step=60", "train.switch_to=ssa"]]
)
def test_a_switch_needs_a_step_and_a_rule(tiny, settings):
    with pytest.raises(LabError, match="switch"):
        tiny("linear", "softmax", *settings)


WRAPPED = ("lssa+reweight:p=3", "ssa+gated", "elastic:bias=3")


# That a loss reaches every number of a normalizer is daily in its contract.
@pytest.mark.parametrize("attn", [*representatives(normalizers.names()), *WRAPPED])
def test_every_rule_trains_and_its_parameters_move(tiny, attn):
    spec = tiny("linear", attn, "train.steps=12", "model.heads=4")
    model, task = setup(spec)
    before = numbers(model)
    history = train(model, task, spec.train, 0, Progress(), keep=lambda progress: None)
    assert math.isfinite(history[-1]["loss"])
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    learned = {name for name, p in model.named_parameters() if ".rule." in name and p.requires_grad}
    assert learned <= moved
    assert {"read_in.weight", "blocks.0.attention.qkv.weight", "read_out.weight"} <= moved


@pytest.mark.slow
def test_learned_numbers_stand_in_the_history(tiny, lab):
    spec = tiny("linear", "softmax", "train.switch_step=52", "train.switch_to=ssmax:bias=yes")
    sweep(spec, 0, lab)
    before, after = lab.store.run(spec, 0).history()
    assert set(before) == {"step", "loss", "length", "rate", "bound", "score.0", "entropy.0"}
    assert set(after) - set(before) == {"s 0.0", "s 0.1", "b 0.0", "b 0.1"}
    assert after["s 0.0"] != 1
    assert abs(after["s 0.0"] - 1) < 0.5

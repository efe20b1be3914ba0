"""The needle: where it stands, what is asked, and what those score who do not read it."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from icl_lab.base.errors import BadValue
from icl_lab.pipeline import sweep
from icl_lab.runs.spec import resolve
from tests.tasks import draws
from tests.tasks.draws import score

draw = partial(draws.draw, at="needle", length=40)

HARD = "needle:distractors=bindings"
CHOICES = ["needle", "needle:answer=3", HARD, f"{HARD},answer=2,keys=4,alphabet=5"]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_prompt_holds_its_needle_once_and_asks_for_it(choice):
    task, prompt = draw(choice)
    ids, m, a = prompt.tokens.argmax(2), task.answer, task.alphabet
    assert torch.equal(prompt.tokens, F.one_hot(ids, task.width).float())
    assert prompt.tokens.shape == (64, 40, a + task.keys + 1)
    assert (ids[:, -m - 1] == a + task.keys).all()  # the mark of the question
    assert (ids == a + task.keys).sum() == 64
    for row, wanted in zip(ids.tolist(), prompt.targets[:, -m:].long().tolist(), strict=True):
        key, body = row[-m], row[: -m - 1]
        assert a <= key < a + task.keys
        assert body.count(key) == 1
        at = body.index(key)
        assert body[at + 1 : at + 1 + m] == wanted
        assert row[-m + 1 :] == wanted[:-1] or m == 1  # what is read before the next symbol
    assert prompt.scored.sum(1).tolist() == [m] * 64
    assert prompt.scored[:, -m:].all()


@pytest.mark.parametrize("choice", CHOICES)
def test_depth_moves_the_needle_and_draws_nothing_anew(choice):
    where, targets = {}, draw(choice)[1].targets
    for depth in (1, 50, 100):
        task, prompt = draw(choice, depth=depth)
        ids = prompt.tokens.argmax(2)
        body = ids[:, : -task.answer - 1]
        where[depth] = (body == ids[:, -task.answer].unsqueeze(1)).float().argmax(1)
        assert len(where[depth].unique()) == 1
        assert torch.equal(prompt.targets, targets)
    last = 40 - task.answer - 1 - 1 - task.answer
    assert where[1].max() <= (task.answer + 1 if "bindings" in choice else 0)
    assert where[100].min() == last
    assert abs(where[50][0].item() - last / 2) <= (task.answer + 1) / 2 + 1


def test_training_draws_every_depth():
    task, prompt = draw("needle", prompts=4000)
    ids = prompt.tokens.argmax(2)
    start = (ids[:, :-2] == ids[:, -1:]).float().argmax(1)
    assert start.min() == 0
    assert start.max() == 36
    assert start.float().mean().item() == pytest.approx(18, abs=0.6)


def test_bindings_are_pairs_of_other_keys():
    task, prompt = draw("needle:distractors=bindings", length=41)
    ids = prompt.tokens.argmax(2)
    body = ids[:, :-2]
    keys = (body >= task.alphabet) & (body < task.alphabet + task.keys)
    assert torch.equal(keys, (torch.arange(39) % 2 == 1).expand(64, -1))  # a lone symbol first, then pairs
    asked = ids[:, -1:]
    assert ((body == asked).sum(1) == 1).all()
    assert len(body[keys].unique()) == task.keys


@pytest.mark.parametrize("choice", CHOICES)
def test_references_score_what_they_must(choice):
    task, prompt = draw(choice, prompts=4000)
    assert score(task, prompt, "exact-rule") == {"exact": 0, "first": 0}
    chance = score(task, prompt, "chance")
    assert chance["first"] == pytest.approx(1 - 1 / task.alphabet, abs=0.03)
    assert chance["exact"] >= chance["first"]
    assert score(task, prompt, "most-frequent")["first"] < chance["first"] + 0.02
    near = draw(choice, prompts=4000, depth=100)[1]
    if task.answer == 1:
        assert score(task, near, "most-recent")["exact"] == 0  # the value is the last symbol before the question
    for name, reference in task.references().items():
        hidden = type(prompt)(prompt.tokens, torch.zeros_like(prompt.targets), prompt.scored)
        assert torch.equal(reference(prompt), reference(hidden)), name


def test_loss_by_hand_and_no_gradient_elsewhere():
    task, prompt = draw("needle:answer=2,alphabet=4", prompts=8)
    outputs = torch.zeros(8, 40, 4, requires_grad=True)
    loss = task.loss(outputs, prompt)
    assert loss.item() == pytest.approx(1.3862944)  # log 4
    loss.backward()
    assert outputs.grad[:, -2:].abs().min() > 0
    assert outputs.grad[:, :-2].abs().max() == 0
    wrong = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    views = task.views(wrong, prompt)
    assert views["exact"].tolist() == [1, 1, 0]
    assert views["first"].tolist() == [0, 1, 0]
    outputs = torch.zeros(8, 40, 4)
    outputs[0, -2, prompt.targets[0, -2].long()] = 1.0986123  # log 3: the right symbol has 3 of 6 parts
    entropy = task.confidence(outputs, prompt)["cross-entropy"]
    assert entropy.tolist() == pytest.approx([(0.6931472 + 1.3862944) / 2, *[1.3862944] * 7])
    assert task.loss(outputs, prompt).item() == pytest.approx(entropy.mean().item())


def test_with_one_key_the_question_names_none():
    """The poster's layout: noise, k, value, noise, q."""
    task, prompt = draw("needle:keys=1", prompts=500)
    ids = prompt.tokens.argmax(2)
    assert (ids[:, -1] == 25).all()
    assert ((ids == 24).sum(1) == 1).all()
    assert (ids[:, :-1] < 25).all()
    after = ids.gather(1, (ids == 24).float().argmax(1, keepdim=True) + 1)
    assert torch.equal(after[:, 0], prompt.targets[:, -1].long())
    assert score(task, prompt, "exact-rule") == {"exact": 0, "first": 0}


def test_own_usual_training_and_the_user_above_it():
    spec = resolve("needle", "ssmax", "smoke")
    assert (spec.train.curriculum.start, spec.train.curriculum.stop) == (16, 64)
    assert spec.train.curriculum.mixed
    assert spec.model.positions == "rotary"
    assert spec.train.shift == {}
    mine = resolve("needle", "ssmax", "smoke", ["train.curriculum.stop=128", "model.positions=none"])
    assert (mine.train.curriculum.start, mine.train.curriculum.stop, mine.model.positions) == (16, 128, "none")
    assert resolve("needle:answer=7", "ssmax").train.curriculum.start == 24
    assert resolve("linear", "ssmax", "smoke").train.curriculum.stop == 41


@pytest.mark.slow
def test_a_sweep_over_length_and_depth(lab):
    small = "train.steps=20 train.batch=4 model.width=16 model.heads=2 test.prompts=64 test.axes.length=64,96"
    grid = sweep(resolve("needle:alphabet=4,keys=2", "ssmax", "smoke", small.split()), 0, lab)
    assert grid.axes == ["depth", "length"]
    assert grid.values("depth") == [10, 50, 90]
    assert grid.at(attn="reference:exact-rule", metric="exact", depth=10, length=96) == 0
    assert 0 < grid.at(attn="ssmax", metric="exact", depth=50, length=64) <= 1


def test_vectors_ask_for_the_value_beside_their_key():
    task, prompt = draw("needle-vectors:dim=3", prompts=500, length=10)
    assert prompt.tokens.shape == (500, 19, 3)
    place = prompt.targets[:, -1].long()
    rows = torch.arange(500)
    assert torch.equal(prompt.tokens[rows, place - 1], prompt.tokens[:, -1])  # the key before it is the question
    assert (place % 2 == 1).all()
    assert (place.min(), place.max()) == (1, 17)
    error = {name: task.errors(rule(prompt), prompt).mean().item() for name, rule in task.references().items()}
    assert error["nearest-key"] == 0
    assert error["zero"] == pytest.approx(1, abs=0.1)
    assert error["mean-value"] == pytest.approx(1 - 1 / 9, abs=0.1)  # the wanted value is a ninth of the mean
    assert error["most-recent"] == pytest.approx(2 * 15.5 / 16, abs=0.2)  # 2, and 0 where it is the last: half a step
    near, far = (draw("needle-vectors:dim=3", length=10, depth=depth)[1].targets[:, -1] for depth in (100, 1))
    assert (near == 17).all()
    assert (far == 1).all()
    outputs = torch.zeros(500, 19, 3)
    wanted = prompt.tokens[rows, place]
    assert task.loss(outputs, prompt).item() == pytest.approx(wanted.square().mean().item(), rel=1e-5)
    with pytest.raises(BadValue, match="a length of 3 or more"):
        draw("needle-vectors", length=2)

"""Recall: what stands where, with which probability, and what references score."""

import math
from functools import partial

import pytest
import torch

from icl_lab import tasks
from icl_lab.tasks.base import Prompt
from tests.tasks import draws
from tests.tasks.draws import score

draw = partial(draws.draw, at="symbols", length=64)

CHOICES = ["recall", "recall:law=zoology", "recall:updates=2,symbols=40", "recall:power=1,symbols=64"]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_prompt_of_recall_by_its_rules(choice):
    """Row by row in plain Python: pairs first, each key asked once at an even place, its last value wanted."""
    task, prompt = draw(choice)
    pairs, half = int(task.training["pairs"]), task.symbols // 2
    start = 2 * (pairs + task.updates)
    for row, wanted, asked in zip(prompt.tokens.tolist(), prompt.targets.tolist(), prompt.scored.tolist(), strict=True):
        keys, values = row[:start:2], row[1:start:2]
        assert len(set(keys)) == pairs
        assert len(keys) - len(set(keys)) == task.updates
        assert max(keys.count(key) for key in keys) == (2 if task.updates else 1)
        assert all(1 <= key < half for key in keys)
        assert len(set(values)) == len(values)
        assert all(half <= value < task.symbols for value in values)
        bound = dict(zip(keys, values, strict=True))  # a later binding takes the place of an earlier one
        places = [t for t, here in enumerate(asked) if here]
        assert all(t >= start and t % 2 == 0 for t in places)
        assert sorted(row[t] for t in places) == sorted(bound)
        assert all(wanted[t] + half == bound[row[t]] for t in places)
        rest = [row[t] for t in range(start, len(row)) if not asked[t]]
        assert not set(rest) & set(bound)


def test_gaps_follow_the_power_law():
    """The share of each gap, against all orders in which four can be drawn without repetition, counted out."""
    for power in (0.01, 1.0):
        task, prompt = draw(f"recall:power={power}", prompts=40_000, length=28)
        key = prompt.tokens[:, :1]
        place = ((prompt.tokens == key) & prompt.scored).float().argmax(1)
        gaps = (place - 8) // 2 + 1
        shares = torch.bincount(gaps, minlength=11)[1:] / len(gaps)
        expected = turns_of([gap ** (power - 1) for gap in range(1, 11)], 4).mean(0)
        assert (shares - expected).abs().max() < 4 * math.sqrt(0.25 / len(gaps))


def test_the_first_pair_is_asked_soonest_under_zoologys_law():
    """Mean gap of each pair by its place, against the turns of draws without repetition, counted out."""
    turns = (turns_of([gap**-0.99 for gap in range(1, 11)], 4) @ torch.arange(1.0, 11).double()).tolist()
    for law, wanted in (("zoology", turns), ("even", [sum(turns) / 4] * 4)):
        _, prompt = draw(f"recall:law={law}", prompts=40_000, length=28)
        for pair, mean in enumerate(wanted):
            asked = (prompt.tokens == prompt.tokens[:, 2 * pair : 2 * pair + 1]) & prompt.scored
            gaps = (asked.float().argmax(1) - 8) // 2 + 1
            assert gaps.double().mean().item() == pytest.approx(mean, abs=4 * 3 / math.sqrt(len(gaps))), (law, pair)
    assert turns == sorted(turns)
    assert turns[3] - turns[0] > 1


def test_the_law_of_recall_moves_places_alone():
    """Keys, values and places asked are the same draws; without the option nothing has changed."""
    (_, even), (_, zoology) = draw("recall"), draw("recall:law=zoology")
    assert torch.equal(even.scored, zoology.scored)
    assert torch.equal(even.tokens[:, 8:][even.scored[:, 8:]], zoology.tokens[:, 8:][zoology.scored[:, 8:]])
    assert not torch.equal(even.tokens[:, :8], zoology.tokens[:, :8])


def turns_of(weights, draws):
    """The probability of each weight to be drawn in each turn, without repetition, by the chances of all orders."""
    found = torch.zeros(draws, len(weights), dtype=torch.float64)

    def go(left, chance, turn):
        total = sum(weights[i] for i in left)
        for i in left:
            own = chance * weights[i] / total
            found[turn, i] += own
            if turn + 1 < draws:
                go(left - {i}, own, turn + 1)

    go(frozenset(range(len(weights))), 1.0, 0)
    return found


def test_the_rest_is_even_over_the_symbols_that_are_no_key():
    task, prompt = draw("recall:symbols=16", prompts=20_000, length=24)
    rest = prompt.tokens[:, 8:][~prompt.scored[:, 8:]]
    counts = torch.bincount(rest, minlength=16) / len(rest)
    # 12 symbols are no key: 0 and the values always, each of 7 keys in 3 of 7 prompts.
    assert (counts[[0, *range(8, 16)]] - 1 / 12).abs().max() < 0.004
    assert (counts[1:8] - 3 / 7 / 12).abs().max() < 0.004


def test_what_references_score_in_recall():
    task, prompt = draw("recall:updates=2", prompts=1000)
    assert score(task, prompt, "exact-rule") == {"error": 0, "any": 0, "balanced-error": 0}
    first = score(task, prompt, "first-binding")
    # Two of four keys are bound twice, and their first value is wrong.
    assert first == pytest.approx({"error": 0.5, "any": 1, "balanced-error": 0.5})
    assert score(task, prompt, "chance")["error"] == pytest.approx(1 - 1 / 10, abs=0.02)
    assert score(task, prompt, "most-recent")["error"] > 0.8
    more = draw("recall:updates=2", prompts=200, length=128, pairs=8)[1]
    first = score(task, more, "first-binding", pairs=8)
    assert first["error"] == pytest.approx(2 / 8)
    assert first["balanced-error"] == pytest.approx(0.5)
    plain, prompt = draw("recall", prompts=500)
    assert score(plain, prompt, "first-binding") == {"error": 0, "any": 0}
    for name, reference in task.references().items():
        hidden = Prompt(more.tokens, torch.zeros_like(more.targets), more.scored)
        assert torch.equal(reference(more), reference(hidden)), name


def test_recall_by_hand():
    task = tasks.build("recall:symbols=8,updates=1")
    tokens = torch.tensor([[1, 5, 3, 4, 2, 6, 1, 7, 1, 2, 0, 4, 3, 6, 2, 2]])
    scored = torch.zeros(1, 16, dtype=torch.bool)
    scored[0, [8, 12, 14]] = True
    targets = torch.zeros(1, 16)
    targets[0, [8, 12, 14]] = torch.tensor([3.0, 0.0, 2.0])
    prompt = Prompt(tokens, targets, scored)
    at = [8, 12, 14]
    answers = {name: rule(prompt).argmax(2)[0, at].tolist() for name, rule in task.references().items()}
    assert answers["exact-rule"] == [3, 0, 0]  # after 14 key 2 was last followed by 0, which is no value: here a filler
    assert answers["first-binding"] == [1, 0, 2]
    assert answers["most-recent"] == [3, 0, 2]
    for name in ("exact-rule", "first-binding"):  # at 10 stands a symbol that was not there before
        assert task.references()[name](prompt)[0, 10].abs().max() == 0
    assert [mark.text for mark in task.marks(prompt)][:5] == ["K1", "v2", "K3", "v1", "K2"]
    assert task.words(torch.eye(4)[torch.tensor([[3] * 16])], prompt, 8) == ("v4", "v4")
    errors = torch.full((1, 16), torch.nan)
    errors[0, at] = torch.tensor([1.0, 0.0, 1.0])
    views = task.views(errors, prompt, pairs=3.0)
    assert views["balanced-error"].tolist() == [[1.0, 0.5]]  # key 1 is bound twice; keys 3 and 2 once
    assert views["error"].item() == pytest.approx(2 / 3)
    outputs = torch.zeros(1, 16, 4)
    assert task.confidence(outputs, prompt)["cross-entropy"].item() == pytest.approx(math.log(4))
    assert task.loss(outputs, prompt).item() == pytest.approx(math.log(4))

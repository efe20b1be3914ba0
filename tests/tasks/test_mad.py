"""Tasks of MAD: prompts by hand, what is right, and what their axes do."""

from functools import partial

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.tasks.base import Prompt
from tests.tasks import draws

draw = partial(draws.draw, at="mad", prompts=500, length=24)


def error(task, prompt, reference):
    return task.errors(task.references()[reference](prompt), prompt).nanmean().item()


def typed(task, tokens, targets):
    """One prompt; None where nothing is wanted."""
    wanted = torch.tensor([[0.0 if each is None else float(each) for each in targets]])
    return Prompt(torch.tensor([tokens]), wanted, torch.tensor([[each is not None for each in targets]]))


BY_HAND = [
    # s2 . s1 . . copy . . ; symbols 0 and 1, blank 2, copy 3
    ("selective-copy:symbols=4", [1, 2, 2, 0, 3, 2, 2], [None] * 5 + [1, 0]),
    # keys of tokens 0 to 2, values of 3 to 5, filler 6, question 7: k1 -> v2, k1 k2 -> v3 v1
    ("fuzzy-recall:symbols=8", [6, 0, 4, 0, 1, 5, 3, 7, 0, 1, 5], [None] * 9 + [2, 0]),
    ("fuzzy-recall:symbols=8", [0, 1, 5, 3, 0, 4, 7, 0], [None] * 7 + [1]),
]


@pytest.mark.parametrize(("choice", "tokens", "targets"), BY_HAND)
def test_the_exact_rule_answers_prompts_by_hand(choice, tokens, targets):
    task = tasks.build(choice)
    prompt = typed(task, tokens, targets)
    answers = task.references()["exact-rule"](prompt).argmax(2)
    assert torch.equal(answers[prompt.scored], prompt.targets[prompt.scored].long())
    wrong = {name: values.item() for name, values in task.views(task.errors(-task.references()["exact-rule"](prompt),
             prompt), prompt).items()}  # fmt: skip
    assert wrong == {"error": 1, "any": 1}


@pytest.mark.parametrize("choice", ["selective-copy", "fuzzy-recall", "memorization", "compression"])
@pytest.mark.slow
def test_the_exact_rule_is_right_and_chance_is_chance(choice):
    task, prompt = draw(choice, prompts=4000)
    assert error(task, prompt, "exact-rule") == 0
    kinds = task.kinds if choice == "compression" else task.outputs
    assert error(task, prompt, "chance") == pytest.approx(1 - 1 / kinds, abs=0.01)


def test_blanks_stand_before_symbols_drawn_evenly():
    task, prompt = draw("selective-copy", prompts=4000, length=21)
    body, blank = prompt.tokens[:, :16], task.symbols - 2
    assert (prompt.tokens[:, 16] == blank + 1).all()  # the sign to copy
    assert (prompt.tokens[:, 17:] == blank).all()
    assert ((body != blank).sum(1) == 4).all()
    assert (body[:, -1] != blank).all()  # the last symbol is next to the sign
    first = (body != blank).int().argmax(1).double()  # 12 blanks, a quarter of them before the first symbol
    assert first.mean().item() == pytest.approx(3, abs=0.1)
    more = task.sample(stream(0, "mad"), 4000, 21, copied=8)
    assert torch.equal(more.targets[:, -8:-4], prompt.targets[:, -4:])


def test_a_key_that_comes_again_has_its_first_value():
    """Three symbols of each kind in keys of one token: keys come again and again."""
    task, prompt = draw("fuzzy-recall:symbols=8", prompts=300, length=48, key_tokens=1)
    for row in prompt.tokens.tolist():
        groups, known = [], {}
        for token in row[: row.index(7)]:
            if token < 3:
                groups.append((token, []))
            elif token < 6:
                groups[-1][1].append(token)
        for key, value in groups:
            assert known.setdefault(key, value) == value
            assert len(set(value)) == len(value) in (1, 2, 3)
        assert row[row.index(7) + 1] in known
        assert row.index(7) >= 48 - 4
    # Any pair that fits may be asked for, the first of a prompt too.
    long = task.sample(stream(0, "mad"), 300, 48).tokens.tolist()
    firsts = [row[next(t for t, token in enumerate(row) if token < 3)] == row[row.index(7) + 1] for row in long]
    assert 0.2 < sum(firsts) / 300 < 0.6


def test_every_pair_of_fuzzy_recall_is_asked_for_alike():
    """The last one too: keys of three of 49 tokens come once. Fillers and places are those that the docstring names."""
    task, prompt = draw("fuzzy-recall:symbols=100", prompts=3000, length=48, key_tokens=3)
    n, asked, counts = task.outputs, [], []
    for row in prompt.tokens.tolist():
        shown, key = row[: row.index(2 * n + 1)], row[row.index(2 * n + 1) + 1 :][:3]
        starts = [i for i in range(1, len(shown)) if shown[i] < n <= shown[i - 1]]  # after a value, or a filler
        starts = starts if shown[0] == 2 * n else [0, *starts]
        asked.append(next(j for j, i in enumerate(starts) if shown[i : i + 3] == key))
        counts.append(len(starts))
    found = torch.tensor(asked).double(), torch.tensor(counts).double()
    for wanted in (0, 1):  # the first pair, and the last
        share = (found[0] == wanted * (found[1] - 1)).double().mean().item()
        assert share == pytest.approx((1 / found[1]).mean().item(), abs=0.02)
    fillers = (prompt.tokens == 2 * n).sum(1).double().mean().item()
    assert fillers == pytest.approx(3.0, abs=0.1)


def test_groups_have_one_to_three_tokens_in_training():
    """A cell has keys of one size."""
    task, prompt = draw("fuzzy-recall", prompts=3000, length=48)
    after = [row[row.index(15) + 1 :] for row in prompt.tokens.tolist()]
    sizes = torch.tensor([sum(token < 7 for token in row) for row in after])
    assert [(sizes == size).double().mean().item() for size in (1, 2, 3)] == pytest.approx([1 / 3] * 3, abs=0.04)
    values = prompt.scored.sum(1)
    assert [(values == size).double().mean().item() for size in (1, 2, 3)] == pytest.approx([1 / 3] * 3, abs=0.04)
    shifted = draw("fuzzy-recall", prompts=100, length=48, key_tokens=2)[1].tokens.tolist()
    assert {sum(token < 7 for token in row[row.index(15) + 1 :]) for row in shifted} == {2}


def test_all_symbols_are_read_from_the_last_token():
    task = tasks.build("compression:symbols=5,places=7")
    prompt = typed(task, [2, 0, 3, 4], [None, None, None, 0])
    outputs = torch.zeros(1, 4, 28)
    for place, symbol in enumerate([2, 1, 3]):  # the second is wrong
        outputs[0, -1, 4 * place + symbol] = 5
    errors = task.errors(outputs, prompt)
    assert errors.tolist() == [[pytest.approx(1 / 3)]]
    assert task.views(errors, prompt)["any"].item() == 1
    right, wrong = -torch.tensor([5.0, 0, 0, 0]).log_softmax(0)[:2]
    assert task.loss(outputs, prompt).item() == pytest.approx(((2 * right + wrong) / 3).item(), rel=1e-5)
    few = task.sample(stream(0, "x"), 200, 8, distinct=2).tokens[:, :-1]
    assert set(few.unique().tolist()) == {0, 1}


def test_values_of_keys_never_change_and_differ():
    task, prompt = draw("memorization:symbols=21", prompts=400)
    told = dict(zip(prompt.tokens[:, ::2].flatten().tolist(), prompt.targets[:, 1::2].flatten().tolist(), strict=True))
    assert sorted(told) == sorted(told.values()) == list(range(10))
    again = task.sample(stream(1, "other"), 50, 24, named=30)
    keys = again.tokens[:, ::2]
    assert set(keys.unique().tolist()) == {0, 1, 2}
    assert again.targets[:, 1::2].flatten().tolist() == [told[key] for key in keys.flatten().tolist()]


@pytest.mark.parametrize(
    ("choice", "length", "shift", "complaint"),
    [
        ("selective-copy", 8, {}, "4 symbols and their copies need 9 tokens, got 8"),
        ("selective-copy", 20, {"copied": 1.5}, "copied must be a whole number of 1 or more, got 1.5"),
        ("compression", 33, {}, "places=31 hold prompts of up to 32, got 33"),
        ("compression", 8, {"distinct": 16}, "distinct must be a whole number from 1 to 15, got 16"),
        ("fuzzy-recall", 11, {}, "fuzzy-recall needs a length of 12 or more, got 11"),
        ("fuzzy-recall", 24, {"key_tokens": 4}, "key_tokens must be a whole number from 1 to 3, got 4"),
        ("memorization", 8, {"named": 101}, "named is a percentage, at most 100, got 101"),
        ("complement", 32, {}, "symbols=32 leave none after so many tokens, got 32"),
        ("complement", 8, {"repeats": 0.5}, "repeats must be a whole number of 1 or more, got 0.5"),
    ],
)
def test_prompts_that_cannot_be_drawn_are_refused(choice, length, shift, complaint):
    with pytest.raises(BadValue, match=complaint):
        tasks.build(choice).check_length(length, **shift)

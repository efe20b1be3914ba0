"""Flip-flop: what stands where, with which probability, and what references score."""

import math
from functools import partial

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.tasks.base import Prompt
from tests.tasks import draws
from tests.tasks.draws import score

draw = partial(draws.draw, at="symbols", length=64)


def test_a_prompt_of_flip_flop_by_its_rules():
    """In plain Python: instructions and bits in turn, w first, r last, and after r the bit that was written last."""
    task, prompt = draw("flip-flop", prompts=200, length=30)
    assert not prompt.scored[:, 1::2].any()
    for row, wanted, asked in zip(prompt.tokens.tolist(), prompt.targets.tolist(), prompt.scored.tolist(), strict=True):
        memory = None
        assert (row[0], row[-2]) == (0, 1)
        for instruction, bit, truth, here in zip(row[::2], row[1::2], wanted[::2], asked[::2], strict=True):
            assert instruction in (0, 1, 2)
            assert bit in (3, 4)
            assert here == (instruction == 1)
            if instruction == 0:
                memory = bit
            if instruction == 1:
                assert bit == memory
                assert truth == memory - 3


@pytest.mark.parametrize("ignored", [10.0, 80.0, 98.0])
def test_instructions_have_their_shares(ignored):
    _, prompt = draw("flip-flop", prompts=4000, length=40, ignored=ignored)
    inner = prompt.tokens[:, 2:-2:2]
    shares = torch.bincount(inner.flatten(), minlength=3) / inner.numel()
    p = ignored / 100
    assert (shares - torch.tensor([(1 - p) / 2, (1 - p) / 2, p])).abs().max() < 4 * math.sqrt(0.25 / inner.numel())
    coins = prompt.tokens[:, 3:-2:2][inner != 1]
    assert (coins == 4).float().mean().item() == pytest.approx(0.5, abs=0.01)


def test_fewer_ignored_keep_the_reads_and_writes_that_were_there():
    many, few = (draw("flip-flop", ignored=ignored)[1].tokens[:, ::2] for ignored in (98.0, 10.0))
    heeded = many != 2
    assert torch.equal(many[heeded], few[heeded])


def test_what_references_score_in_flip_flop():
    task, prompt = draw("flip-flop", prompts=4000, length=64)
    assert score(task, prompt, "exact-rule") == {"error": 0, "any": 0, "balanced-error": 0}
    assert score(task, prompt, "copy-previous")["balanced-error"] == pytest.approx(0.5)
    assert score(task, prompt, "always-zero")["error"] == pytest.approx(0.5, abs=0.02)
    read = prompt.scored & (torch.arange(128) > 0)
    wrong = task.errors(task.references()["copy-previous"](prompt), prompt)[read].mean().item()
    assert wrong == pytest.approx(0.8 / 2, abs=0.02)  # after an ignored instruction the bit before is a coin


def test_flip_flop_by_hand():
    task = tasks.build("flip-flop")
    tokens = torch.tensor([[0, 4, 2, 3, 1, 4, 0, 3, 1, 3]])  # w 1 i 0 r 1 w 0 r 0
    targets = torch.tensor([[1.0, 1, 0, 0, 1, 1, 0, 0, 0, 0]])
    scored = torch.zeros(1, 10, dtype=torch.bool)
    scored[0, [4, 8]] = True
    prompt = Prompt(tokens, targets, scored)
    at = {name: rule(prompt).argmax(2)[0, [4, 8]].tolist() for name, rule in task.references().items()}
    assert at == {"always-zero": [0, 0], "copy-previous": [0, 0], "exact-rule": [1, 0]}
    views = task.views(prompt.blank(torch.tensor([[9.0, 9, 9, 9, 1, 9, 9, 9, 0, 9]])), prompt)
    assert views["error"].item() == 0.5
    assert views["any"].item() == 1
    assert views["balanced-error"].tolist() == [[0, 1]]  # at 8 the bit before is right, at 4 it is not
    assert " ".join(mark.text for mark in task.marks(prompt)) == "w 1 i 0 r 1 w 0 r 0"
    with pytest.raises(BadValue, match="a length of 2 or more"):
        draw("flip-flop", length=1)

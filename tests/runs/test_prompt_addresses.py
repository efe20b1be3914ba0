"""Stored grids and new ones meet the same test prompts: a few of their numbers are pinned."""

import pytest

from icl_lab import tasks
from icl_lab.runs.measure import BLOCK, draw
from icl_lab.runs.measure import TestSpec as Spec

# The first numbers of the first prompt of block 0, and of block 1. A change of these numbers means that every stored
# grid was measured on other prompts than a new one, so that comparisons with it are no longer paired.
NUMBERS = {
    ("linear", 10): ([-1.648219, -2.861269, -0.206994, 0.295158, 1.442132, 3.906911], [-0.314281, 0.694135]),
    ("every", 10): ([2.190101, 1.0, 2.447018, 1.0, -0.595004, -1.0], [-0.700401, -1.0]),
    ("some:balance=half", 10): ([-0.396011, -1.0, -1.746318, -1.0, -1.010272, -1.0], [-0.61541, -1.0]),
    ("needle-vectors", 8): ([1.297561, -1.026665, 0.064295, -1.039448], [-0.439534, -0.3911]),
}
SYMBOLS = ([0, 3, 13, 16, 21, 2, 21, 7, 14, 15, 22, 12], [4, 7, 5, 19, 4, 0, 5, 0, 17, 13, 7, 7])


def prompts(choice, length):
    task = tasks.build(choice)
    return draw(task, length, Spec(prompts=2 * BLOCK, axes={"length": [float(length)]}), task.training)


@pytest.mark.parametrize(("choice", "length"), list(NUMBERS))
def test_test_prompts_of_numbers_are_those_of_stored_grids(choice, length):
    tokens = prompts(choice, length).tokens
    for at, expected in zip((0, BLOCK), NUMBERS[choice, length], strict=True):
        assert tokens[at].flatten()[: len(expected)].tolist() == pytest.approx(expected, rel=1e-5)


def test_test_prompts_of_symbols_are_those_of_stored_grids():
    tokens = prompts("needle", 32).tokens.argmax(2)
    assert (tokens[0, :12].tolist(), tokens[BLOCK, :12].tolist()) == SYMBOLS

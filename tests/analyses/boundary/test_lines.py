"""Lines, and what is known of a task for them."""

import math

import pytest
import torch

from icl_lab import tasks
from icl_lab.analyses.boundary.curves import Line, lines, spread
from icl_lab.base.errors import BadValue


def test_lines_are_written_as_functions():
    assert [str(Line(*each)) for each in ((1,), (9,), (-1, 2), (10, -3))] == ["x", "9x", "-x + 2", "10x - 3"]
    assert lines([1, 1, 3], [0], [1]) == [Line(1), Line(3)]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (([0.0], [0], [1]), "a slope must not be 0"),
        (([1.0], [math.inf], [1]), "intercepts must be finite, got inf"),
        (([math.nan], [0], [1]), "slopes must be finite, got nan"),
        (([1.0], [0], [0.0]), "scales of the inputs must be > 0"),
        (([1.0], [0], []), "scales must be at least one number, got none"),
        (([], [0], [1]), "slopes must be at least one number, got none"),
    ],
)
def test_bad_lines_are_refused(bad, words):
    with pytest.raises(BadValue, match=words):
        lines(*bad)


def test_labels_of_a_prompt_lie_on_the_line(tiny):
    x = torch.tensor([[0.5, -1.0, 3.0]])
    prompt = tasks.build("linear").on_line(x, 2.0, 1.0)
    assert prompt.tokens[0, :, 0].tolist() == [0.5, 2, -1, -1, 3, 7]
    with pytest.raises(BadValue, match="has no prompts of y = a x"):
        spread(tiny("every"))


def test_spread_follows_the_training_distribution(tiny):
    wider = tiny("linear", "softmax", "train.shift.sigma_f=10")
    assert spread(wider) == pytest.approx(10 * spread(tiny("linear")))
    assert spread(tiny("linear")) == pytest.approx(math.sqrt(2))
    prompt = tasks.build("linear").sample(torch.Generator().manual_seed(1), 200_000, 1)
    assert prompt.targets.square().mean().sqrt().item() == pytest.approx(spread(tiny("linear")), rel=0.01)

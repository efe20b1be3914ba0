"""The trigger: draws, closed forms, and answers by hand."""

from functools import partial

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import BadValue
from icl_lab.tasks.base import Prompt
from tests.tasks import draws
from tests.tasks.draws import score

draw = partial(draws.draw, at="maximum")


def test_a_prompt_with_a_trigger_by_a_loop():
    task, prompt = draw("trigger", prompts=300, length=9)
    places = set()
    for row, wanted in zip(prompt.tokens.tolist(), prompt.targets.tolist(), strict=True):
        assert [first for first, _, _ in row] == [1, *[0] * 8]
        (tau,) = (t for t, (_, here, _) in enumerate(row) if here == 1)
        assert sum(here for _, here, _ in row) == 1
        assert row[0][2] == 0
        places.add(tau)
        assert wanted[tau] == pytest.approx(sum(u for _, _, u in row[1:tau]) / (tau - 1), abs=1e-5)
        assert all(truth == 0 for t, truth in enumerate(wanted) if t != tau)
    assert places == {2, 3, 4, 5, 6, 7}
    u = draw("trigger", prompts=5000)[1].tokens[:, 1:, 2]
    assert u.std().item() == pytest.approx(1, abs=0.02)


def test_depth_moves_the_trigger_and_draws_nothing_anew():
    shallow, deep = (draw("trigger", length=20, depth=depth)[1] for depth in (10.0, 90.0))
    assert torch.equal(shallow.tokens[..., 2], deep.tokens[..., 2])
    assert (shallow.tokens[..., 1].argmax(1) == 3).all()  # 2 + 10 % of 17 places
    assert (deep.tokens[..., 1].argmax(1) == 17).all()
    assert (draw("trigger", length=20, depth=100.0)[1].tokens[..., 1].argmax(1) == 18).all()
    with pytest.raises(BadValue, match="a length of 4 or more"):
        draw("trigger", length=3)


def test_what_references_score_in_trigger():
    task, prompt = draw("trigger", prompts=20_000, length=12)
    assert score(task, prompt, "exact-rule") == {"balanced-error": 0, "at-trigger": 0, "elsewhere": 0}
    zero = score(task, prompt, "zero")
    assert zero == pytest.approx({"balanced-error": 0.5, "at-trigger": 1, "elsewhere": 0}, rel=0.04)
    mean = score(task, prompt, "always-mean")
    assert mean["at-trigger"] == 0
    assert mean["elsewhere"] > 0.1


def test_errors_and_loss_of_trigger_by_hand():
    task = tasks.build("trigger")
    tokens = torch.tensor([[[1.0, 0, 0], [0, 0, 2], [0, 0, 4], [0, 1, 7], [0, 0, 5]]])
    prompt = Prompt(tokens, torch.tensor([[0.0, 0, 0, 3, 0]]), torch.ones(1, 5, dtype=torch.bool))
    assert task.references()["exact-rule"](prompt).flatten().tolist() == [0, 0, 0, 3, 0]
    outputs = torch.tensor([[[1.0], [0], [0], [1], [-1]]])
    errors = task.errors(outputs, prompt)
    assert errors.tolist() == [[1, 0, 0, 8, 1]]  # (3 - 1)^2, two numbers averaged
    views = {name: value.item() for name, value in task.views(errors, prompt).items()}
    assert views == {"at-trigger": 8, "elsewhere": 0.5, "balanced-error": 4.25}
    assert task.loss(outputs, prompt).item() == 4.25
    assert [mark.role for mark in task.marks(prompt)] == ["first", "u", "u", "trigger", "u"]

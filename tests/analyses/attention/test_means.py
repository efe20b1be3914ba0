"""The means over prompts beside one prompt: along which axes, and how many a page holds."""

import torch

from icl_lab import tasks
from icl_lab.analyses.attention import maps, prompt
from icl_lab.base.errors import BadValue


def test_means_beyond_the_room_of_a_page_are_left_out(see, monkeypatch):
    monkeypatch.setattr(maps, "CELLS", 3000)
    found = see("softmax", means=2)
    assert {frame.axis for frame in found.frames} == {"prompt", "sigma"}  # the long ones are too much
    monkeypatch.setattr(maps, "CELLS", 100)
    found = see("softmax", means=2)
    assert [frame.axis for frame in found.frames] == ["prompt"]
    assert "left out" in found.notes[-1]


def test_means_lie_along_sigma_and_length(see):
    found = see("softmax", "ssa", means=3)
    places = [(frame.axis, frame.value) for frame in found.frames]
    assert places[0] == ("prompt", 0)
    assert [value for axis, value in places if axis == "sigma"] == [1, 3, 10, 30]
    assert [value for axis, value in places if axis == "length"] == [10, 20, 40]
    for frame in found.frames[1:]:
        length = 4 if frame.axis == "sigma" else int(frame.value)
        assert len(frame.marks) == 2 * length - 1
        assert [each.weights.shape[2:] for each in frame.maps] == [(2 * length - 1,) * 2] * 2
        assert all(mark.text == "" and mark.value is None for mark in frame.marks)
        assert torch.allclose(frame.maps[1].weights.sum(-1), torch.tensor(1.0), atol=1e-5)
    training, wide = (next(f for f in found.frames if (f.axis, f.value) == ("sigma", s)) for s in (1, 30))
    assert not torch.allclose(training.maps[0].weights, wide.maps[0].weights)


def test_means_that_one_run_cannot_read_are_left_out(runs_of, monkeypatch):
    softmax, ssa = runs_of("softmax", "ssa")
    asked = prompt.read("1,-2", softmax.spec)

    def lengths(*runs):
        plans = maps.planned(runs, asked, prompt.choose(runs, asked))
        return [plan.length for plan in plans if plan.axis == "length"]

    def fits(spec, task, length):
        if spec == ssa.spec and length > 20:
            raise BadValue("the prompt is too long.")

    monkeypatch.setattr(maps, "fits", fits)
    assert lengths(softmax) == [10, 20, 40]
    assert lengths(softmax, ssa) == [10, 20]


def test_two_runs_halve_the_room_for_means(runs_of, monkeypatch):
    softmax, ssa = runs_of("softmax", "ssa")
    asked = prompt.read("1,-2", softmax.spec)
    own = prompt.choose([softmax], asked)
    plans = maps.planned([softmax], asked, own)
    task = tasks.build("every")
    need = own.cells(3) + sum(own.cells(maps.tokens_asked(task, plan.length)) for plan in plans)
    monkeypatch.setattr(maps, "CELLS", need + own.cells(3))
    assert maps.planned([softmax], asked, own) == plans
    both = maps.planned([softmax, ssa], asked, own)
    assert {plan.axis for plan in both} == {"sigma"}
    monkeypatch.setattr(maps, "CELLS", 2 * need)
    assert maps.planned([softmax, ssa], asked, own) == plans

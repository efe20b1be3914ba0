"""Maps of a prompt and of means over prompts: along which axes, and how many a page holds."""

import torch

from icl_lab import tasks
from icl_lab.analyses.attention import maps, prompt
from icl_lab.analyses.attention.maps import attention_maps
from icl_lab.base.errors import BadValue
from icl_lab.base.rng import stream
from icl_lab.normalizers.base import causal
from icl_lab.pipeline import load_or_train

CPU = torch.device("cpu")


def test_window_shows_the_same_numbers_as_the_whole(see):
    settings = ["model.layers=2"]
    whole = see("ssa", settings=settings).frames[0].maps[0]
    part = see("ssa", settings=settings, layers="1", heads="1", last=3).frames[0].maps[0]
    assert part.first == 4
    assert torch.equal(part.weights, whole.weights[1:, 1:, 4:])
    assert torch.equal(part.scores, whole.scores[1:, 1:, 4:])
    assert part.weights.shape == (1, 1, 3, 7)


def test_means_and_spread_are_those_of_single_prompts(runs_of, lab, monkeypatch):
    (run,) = runs_of("ssa")
    model, task = load_or_train(run, lab), tasks.build("every")
    prompt = task.sample(stream(0, "x"), 6, 5)
    monkeypatch.setattr("icl_lab.runs.measure.MEMORY", 2 * 4 * model.bytes_a_prompt(10))  # 4 prompts at once, then 2
    mean = attention_maps(model, prompt, [0], [0, 1], 10, CPU)
    single = [attention_maps(model, one, [0], [0, 1], 10, CPU) for one in prompt.pieces(1)]
    each = torch.stack([alone.weights for alone in single])
    assert torch.allclose(mean.weights, each.mean(0), atol=1e-6)
    assert torch.allclose(mean.spread, each.std(0, correction=0), atol=1e-4)
    visible = causal(10)
    assert (mean.weights[..., ~visible] == 0).all()
    assert mean.outputs.shape == (6, 10, 1)
    assert (single[0].spread.abs() < 1e-3).all()


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

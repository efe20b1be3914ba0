"""Small trainings, whole and in several processes, whose bits tests compare."""

import copy
from functools import partial

import pytest
import torch

from icl_lab import tasks
from icl_lab.base.errors import Stopped
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2
from icl_lab.training.loop import Progress, train


def setup(spec, seed=0):
    task = tasks.build(spec.task)
    return GPT2(spec.model, spec.reading(task), spec.attn, stream(seed, "init")), task


def numbers(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    """Whether two models have the same bits."""
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def trained(spec):
    """A model and its history."""
    model, task = setup(spec)
    return model, train(model, task, spec.train, 0, Progress(), keep=lambda progress: None)


def resumed(spec, *stops):
    """As ``trained``, but stopped after so many steps and taken up by models that know only what was kept."""
    progress, (model, task) = Progress(), setup(spec)
    for stop in stops:
        kept, given = [], (model, task, spec.train, 0, progress)
        stopping = partial(next, iter([False] * (stop - progress.step - 1)), True)
        with pytest.raises(Stopped, match=f"step {stop} of {spec.train.steps}"):
            train(*given, keep=lambda now, kept=kept: kept.append(copy.deepcopy(now)), stopping=stopping)
        progress, before, (model, task) = kept[-1], model, setup(spec)
        assert progress.step == stop
        if model.attn != before.attn:
            model.swap_rule(before.attn)
        model.load_state_dict(numbers(before))
    return model, train(model, task, spec.train, 0, progress, keep=lambda progress: None)

"""What the tests of analyses share: trained runs, and a model at its start as an analysis meets it."""

import pytest

from icl_lab.runs.store import Store


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Runs that tests of analyses share: each is trained once, and nobody changes it."""
    return Store(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def runs(tiny, store):
    """Return groups of runs by normalizer, each trained for five steps; settings change all of them."""

    def build(task, *attns, seeds=1, settings=()):
        specs = {attn: tiny(task, attn, "train.steps=5", *settings) for attn in attns}
        return {attn: [store.run(spec, seed) for seed in range(seeds)] for attn, spec in specs.items()}

    return build


@pytest.fixture
def untrained(lab):
    """Return what an analysis is handed of a run, the model with its first weights: nothing is trained."""
    from icl_lab import tasks
    from icl_lab.analyses.frame import TrainedModel
    from icl_lab.base.rng import stream
    from icl_lab.model.gpt2 import GPT2

    def build(spec, first=True):
        task = tasks.build(spec.task)
        model = GPT2(spec.model, spec.reading(task), spec.attn, stream(0, "init")).eval()
        return TrainedModel(
            spec.attn, lab.store.run(spec, 0), lambda: model, task, lab, first, lambda done, total: None
        )

    return build

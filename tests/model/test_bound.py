"""The bound that the final norm and the read-out set on every answer, whatever the normalizer."""

import math
from pathlib import Path

import pytest
import torch

from icl_lab import normalizers, pipeline, tasks
from icl_lab.base.rescale import PairRescaling
from icl_lab.base.rng import stream
from icl_lab.model.bound import answer_bound
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.runs.evidence.archive import Archive
from icl_lab.runs.floor import exact_within_bound
from icl_lab.runs.measure import draw
from icl_lab.runs.run import Run
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from icl_lab.runs.summary import bound_words
from tests.cases import representatives

RESULTS = Path(__file__).parents[2] / "results"
NORMS = ["layer", "rms"]


def build(attn="softmax", outputs=1, **spec):
    """A model whose last norm and read-out are not at their start."""
    reading = TokenSpec(width=1, outputs=outputs, roles=2, train_tokens=24)
    model = GPT2(ModelSpec(**{"layers": 1, "heads": 4, "width": 16, **spec}), reading, attn, stream(0, "init"))
    rng = stream(1, "last")
    with torch.no_grad():
        for p in (*model.norm.parameters(), *model.read_out.parameters()):
            p.copy_(torch.randn(p.shape, generator=rng))
    return model.eval()


def test_the_bound_by_hand():
    """Width 4, g w = (3, -1, -1, -1): mean 0, length sqrt(12), so C = 2 sqrt(12); c = w.beta + b0 = 1.5 + 2."""
    last = {
        "norm.weight": torch.tensor([1.0, 1.0, 0.5, 2.0]),
        "norm.bias": torch.tensor([0.5, 0.0, 0.0, 0.0]),
        "read_out.weight": torch.tensor([[3.0, -1.0, -2.0, -0.5]]),
        "read_out.bias": torch.tensor([2.0]),
    }
    centre, bound = answer_bound(last, "layer")
    assert (float(centre), float(bound)) == pytest.approx((3.5, 2 * math.sqrt(12)))
    last["norm.weight"] = torch.tensor([1.0, 1.0, 0.5, 4.0])  # g w = (3, -1, -1, -2), length sqrt(15)
    centre, bound = answer_bound(last, "rms")
    assert (float(centre), float(bound)) == pytest.approx((2.0, 2 * math.sqrt(15)))
    centre, bound = answer_bound(last, "none")
    assert (float(centre), float(bound)) == (2.0, math.inf)


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.slow
def test_the_bound_is_the_greatest_answer_of_any_residual_stream(kind):
    """Gradient ascent on what the last norm reads comes to C and not beyond."""
    model = build(final_norm=kind, outputs=3)
    centre, bound = model.answer_bound()
    for sign in (1, -1):
        x = torch.randn(3, 16, generator=stream(0, "x"), requires_grad=True)
        climb = torch.optim.Adam([x], lr=0.3)
        for _ in range(1500):
            climb.zero_grad()
            answers = model.read_out(model.norm(x)).diagonal()
            (-sign * answers.sum()).backward()
            climb.step()
        reached = sign * (answers.detach() - centre)
        assert (reached <= bound * (1 + 1e-5)).all()
        assert (reached >= bound * 0.999).all()


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("attn", representatives(normalizers.names()))
def test_no_prompt_exceeds_the_bound(attn, kind):
    model = build(attn, final_norm=kind)
    centre, bound = model.answer_bound()
    prompts = torch.randn(8, 20, 1, generator=stream(0, "prompts"))
    with torch.no_grad():
        for scale in (1, 1e3, 1e6):
            assert ((model(prompts * scale) - centre).abs() <= bound * (1 + 1e-5)).all()


def test_a_norm_that_is_the_blocks_own_is_no_other_model():
    assert ModelSpec(final_norm="layer") == ModelSpec()
    assert ModelSpec(final_norm="rms", block="llama") == ModelSpec(block="llama")
    assert ModelSpec(final_norm="none", norm=False) == ModelSpec(norm=False)
    assert ModelSpec(final_norm="rms") != ModelSpec()


@pytest.mark.parametrize(("kind", "wanted"), [("layer", 32), ("rms", 16), ("none", 0)])
def test_the_final_norm_is_the_one_that_was_asked_for(kind, wanted):
    model = build(final_norm=kind)
    assert sum(p.numel() for p in model.norm.parameters()) == wanted
    assert sum(p.numel() for p in model.blocks[0].before_mlp.parameters()) == 32


@pytest.mark.slow
def test_history_has_the_bound_and_grids_the_error_at_it(lab, tiny):
    """The floor is the error of exact answers at the bound."""
    free, spec = (tiny("linear", "softmax", f"model.final_norm={final}") for final in ("none", "layer"))
    assert "floor" not in pipeline.sweep(free, 0, lab).values("metric")
    assert not any("bound" in row for row in lab.store.run(free, 0).history())
    assert float(lab.store.run(free, 0).answer_bound()[1]) == math.inf
    assert "floor" not in pipeline.sweep(tiny("every", "softmax"), 0, lab).values("metric")
    grid, run, task = pipeline.sweep(spec, 0, lab), lab.store.run(spec, 0), tasks.build("linear")
    centre, bound = run.answer_bound()
    assert [row["bound"] for row in run.history()][1] == float(bound)
    assert len(run.history()) == 2
    for sigma in (1.0, 10.0):
        prompt = draw(task, 12, spec.test, {"sigma_x": 1.0, "sigma_f": sigma})
        y = prompt.targets[:, ::2]
        wanted = (y.clamp(centre - bound, centre + bound) - y)[:, 3:].square().mean()
        cell = {"sigma_x": 1, "sigma_f": sigma, "length": 12, "attn": "softmax"}
        assert grid.at(metric="floor", **cell) == pytest.approx(float(wanted), rel=1e-5)
        assert grid.at(metric="floor", **cell) < grid.at(metric="mse-code", **cell)


@pytest.mark.slow
@pytest.mark.parametrize(("ema", "kept"), [(0, True), (0.9, False)])
def test_without_parameters_the_bound_is_the_last_one_logged(lab, tiny, ema, kept, monkeypatch):
    """A moving average is another model than that of the last step."""
    run = lab.store.run(tiny("linear", "softmax", f"train.ema={ema}"), 0)
    assert run.bound() is None
    pipeline.sweep(run.spec, 0, lab)
    own = run.bound()
    assert own == float(run.answer_bound()[1])
    (run.folder / "model.safetensors").unlink()
    assert run.answer_bound() is None
    assert run.bound() == (own if kept else None)
    told = f"outputs bounded by C up to {own:.4g} (logged at the last step)" if kept else "bound on answers not kept"
    assert bound_words(run) == told
    shorter = run.history()[:-1]
    monkeypatch.setattr(Run, "history", lambda run: shorter)
    assert run.bound() is None  # a training that diverged logs no last step


@pytest.mark.slow
def test_a_trained_model_reaches_its_bound():
    """The stored softmax model of preset lite."""
    run = Store(RESULTS / "none", Archive(RESULTS / "evidence")).run(resolve("linear", "softmax", "lite"), 0)
    trained = run.spec.untrained(tasks.build("linear"), 0)
    run.load_model(trained)
    centre, bound = trained.eval().answer_bound()
    prompt = tasks.build("linear").sample(stream(0, "far"), 512, 40, sigma_f=1000.0)
    with torch.no_grad():
        reached = (trained(prompt.tokens) - centre).abs().max()
    assert 0.97 * bound < reached <= bound * (1 + 1e-5)


def test_a_bound_of_divided_labels_is_multiplied_back(monkeypatch):
    """Labels of size 10 and a bound of 2 by hand: answers reach 20 once the size is known, and 2 before."""
    task = tasks.build("linear")
    tokens = TokenSpec(task.width, task.outputs, task.roles, 12, rescaling=PairRescaling("labels"))
    model = GPT2(ModelSpec(layers=1, heads=1, width=8, read_in="scaled"), tokens, "softmax", stream(0, "test"))
    monkeypatch.setattr(GPT2, "answer_bound", lambda model: (torch.zeros(1), torch.full((1,), 2.0)))
    prompt = task.prompt_of([0.0, 1.0, 1.0, 1.5, 3.0], a=10.0, b=0.0)
    y = [10 * x for x in (0.0, 1.0, 1.0, 1.5, 3.0)]
    size = math.sqrt((y[0] ** 2 + y[1] ** 2 + y[2] ** 2) / 3)
    found = exact_within_bound(model, task)(prompt)[0, ::2, 0].tolist()
    assert found == pytest.approx([0.0, 2.0, 2.0, min(15.0, 2 * size), min(30.0, 2 * size)])

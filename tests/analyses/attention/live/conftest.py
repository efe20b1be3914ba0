"""Models with their first weights, and the script of the page that computes them, under Node."""

import json
import shutil
import subprocess
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
import torch

from icl_lab.analyses.attention import live
from icl_lab.analyses.attention.live import export, payload
from icl_lab.base.rng import stream
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec

COMPUTES = {"live": 500_000, "offer": "ssmax average"}  # each normalizer takes a second
DRIVER = """
const text = numbers => [...numbers].map(String);
const one = (model, asked, tokens) => {
  try {
    const off = asked.off ?? [], patch = (asked.patch ?? []).map(each => each && Float64Array.from(each));
    const { layers, outputs } = engine.forward(model, tokens, {
      choice: asked.choice ?? "",
      off: (l, h) => off.some(each => each[0] === l && each[1] === h),
      patch: (l, h) => patch[l * model.spec.heads + h] ?? null,
    });
    return { layers: layers.map(each => [text(each.weights), text(each.scores)]), outputs: text(outputs) };
  } catch (error) { if (error instanceof engine.Refused) return { refused: error.message }; throw error; }
};
const asked = JSON.parse(require("fs").readFileSync(0, "utf8")), model = engine.model(asked.model, asked.graphs);
console.log(JSON.stringify(asked.prompts.map(tokens => one(model, asked, tokens))));
"""
GRAPHS = """
const tensor = ([shape, data]) => engine.make(shape, Float64Array.from(data));
const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(asked.map(({ graph, inputs }) => {
  const opened = engine.opened(graph.nodes, graph);
  const text = ({ shape, data }) => [shape, [...data].map(String)];
  return inputs.map(each => engine.run(opened, each.map(tensor)).map(text));
})));
"""


@pytest.fixture(scope="package", autouse=True)
def _traced_once():
    """Modules that differ in their tensors alone are traced once for all tests: a graph reads these beside it."""
    trace, known = export.trace, []

    def once(part, asked, example, limit=None):
        what = [(name, vars(type(each)).copy(), export._constants(each)) for name, each in part.named_modules()]
        what += [(name, tensor.shape) for name, tensor in part.state_dict().items()]
        what += [asked, limit, *(given.shape for given in example(1))]
        if not any(other == what for other, _ in known):
            known.append((what, trace(part, asked, example, limit)))
        return next(program for other, program in known if other == what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "trace", once)
        yield


@pytest.fixture
def see(see):
    """As elsewhere, of pages that compute."""
    return partial(see, **COMPUTES)


@pytest.fixture(scope="session")
def look(look):
    """As elsewhere, of pages that compute."""
    return partial(look, **COMPUTES)


@pytest.fixture(scope="session")
def node():
    """Runs a script with the engine of the page before it; what it is asked and what it says are JSON."""
    binary = shutil.which("node") or pytest.skip("no node on this machine")

    def call(asked, script=DRIVER):
        ran = subprocess.run(
            [binary, "-e", f"{live.engine()}\n{script}"], input=json.dumps(asked), capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return call


@pytest.fixture(scope="session")
def build():
    """Return a model with random weights, larger than a start so that heads have something to say."""

    def call(rule="softmax", *, seed=0, sharp=4.0, reading=None, **spec):
        shape = ModelSpec(**{"layers": 2, "heads": 4, "width": 32, **spec})
        model = GPT2(shape, reading or TokenSpec(1, 1, 2, 12), rule, stream(seed, "init")).eval()
        rng = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, part in model.named_parameters():
                if part.ndim > 1 and ".rule." not in name:
                    part.add_(torch.randn(part.shape, generator=rng) * sharp / part.shape[-1] ** 0.5 / 2)
                elif ".rule." not in name:
                    part.add_(torch.randn(part.shape, generator=rng) * 0.1)
                else:  # away from its start, as if it had learned
                    part.add_(torch.randn(part.shape, generator=rng) * 0.2)
        return model

    return call


@pytest.fixture(scope="session")
def compute(node):
    """Computes prompts (tokens in a list each) in the script: weights and scores (l h t t), outputs (t c)."""

    def call(model, prompts, swaps=(), **asked):
        graphs = []
        packed = payload.packed(live.export_model(model, swaps), graphs)
        answers = node({"model": packed, "graphs": graphs, "prompts": prompts, **asked})
        return [each if "refused" in each else _one(each, model) for each in answers]

    return call


@pytest.fixture(scope="session")
def run_graphs(node):
    """Runs graphs on inputs (a list of tuples of tensors for each) in the script: their first outputs."""

    def call(graphs, inputs):
        asked = [
            {"graph": asdict(graph), "inputs": [[[list(x.shape), x.flatten().tolist()] for x in each] for each in some]}
            for graph, some in zip(graphs, inputs, strict=True)
        ]
        return [[np.array(data, float).reshape(shape) for ((shape, data), *_) in some] for some in node(asked, GRAPHS)]

    return call


def _one(found, model):
    heads = model.spec.heads
    outputs = np.array(found["outputs"], float).reshape(-1, model.reading.outputs)
    t = len(outputs)
    whole = np.zeros((2, len(found["layers"]), heads, t, t))
    for layer, parts in enumerate(found["layers"]):
        for which, part in enumerate(parts):
            whole[which, layer][:, np.tri(t, dtype=bool)] = np.array(part, float).reshape(heads, -1)
    return {"weights": whole[0], "scores": whole[1], "outputs": outputs}


@pytest.fixture(scope="session")
def true():
    """What torch computes of one prompt, in the same form; ``watch`` as a model takes it."""

    @torch.no_grad()
    def call(model, tokens, watch=None):
        seen = {}

        def see(layer, weights, scores):
            seen[layer] = (weights[0], scores[0].tril())
            return watch(layer, weights, scores) if watch else None

        read = torch.tensor(tokens)
        read = read.view(1, -1) if model.reading.vocabulary else read.float().view(1, -1, model.reading.width)
        dtype = next(model.parameters()).dtype
        outputs = model(read if model.reading.vocabulary else read.to(dtype), see)[0]
        weights, scores = (torch.stack([seen[layer][part] for layer in sorted(seen)]).numpy() for part in (0, 1))
        return {"weights": weights, "scores": scores, "outputs": outputs.numpy()}

    return call


@pytest.fixture(scope="session")
def apart():
    """The largest difference of two results, as a share of what is compared: by part."""

    def call(found, wanted):
        shares = {}
        for part in ("weights", "scores", "outputs"):
            assert np.isfinite(found[part]).all()
            shares[part] = float(abs(found[part] - wanted[part]).max() / max(abs(wanted[part]).max(), 1e-30))
        return shares

    return call

"""Scaling of starts and rates with width and depth: ``fixed``, or the maximal update parametrization (muP).

Sources: Yang et al. 2022, arXiv 2203.03466 (muP); Yang, Simon, Bernstein 2023, arXiv 2310.17813 (spectral condition);
Dey et al. 2025, arXiv 2505.01618 (CompleteP, for the depth). A multiplier of a parameter in the forward pass is the
same as that factor on its start and on its rate, where the optimizer's step does not depend on the size of the gradient
(Adam, Muon). So nothing here changes the forward pass: a trained model is its weights alone.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import nn

from icl_lab.base.errors import BadValue
from icl_lab.model.gpt2 import GPT2, ModelSpec
from icl_lab.normalizers.base import Normalizer
from icl_lab.training.recipe import TrainSpec

WIDTH, HEAD, LAYERS = 64, 16, 2  # of the model for which the presets' rates were found: there mup keeps them
LEAST_WIDTH = 8
WHOLE = slice(None)


class ScaledRows(NamedTuple):
    """Rows of a parameter, along its first dimension, with a factor on their start and on their rate.

    ``rate`` multiplies the rate of Adam. For Muon it multiplies 0.2 sqrt(max(m, n)), the step of an (m n) matrix.
    """

    rows: slice = WHOLE
    start: float = 1.0
    rate: float = 1.0


def parts(model: GPT2, recipe: TrainSpec) -> Mapping[str, Sequence[ScaledRows]]:
    """Return, by parameter name, the parts whose factors are not 1: of the read-out, and under mup of all weights.

    mup, for width d, head size h, relative to the base (d 64, h 16, 2 layers):

    * Muon's step of an (m n) matrix is 0.2 sqrt(64) sqrt(m / n); queries, keys and values are separate matrices.
    * Adam's rate of weights with d or 4 d inputs, the read-out's too, is multiplied by 64 / d.
    * Matrices of normalizers by their inputs, which ``maps`` declares (``_reads``).
    * Weights of blocks start with standard deviation 1 / sqrt(inputs), those of the read-out with 1 / d. Projections
      to the residual stream keep their factor 1 / sqrt(2 layers).
    * Scores are q.k sqrt(16) / h in place of q.k / sqrt(h): the factor sqrt(16 / h) is that of the queries.
    * ``mup:depth=yes`` also multiplies what a block adds by 2 / layers, in place of that 1 / sqrt(2 layers).
    """
    found: dict[str, list[ScaledRows]] = {}
    if recipe.scaling != "fixed":
        d, factor, matrices = model.spec.width, _score_factor(model), set(model.matrices())
        for path, module in model.named_modules():
            if isinstance(module, nn.Linear) and f"{path}.weight" in matrices:
                found |= {f"{path}.{name}": made for name, made in _linear(model, recipe, path, module).items()}
            if path.endswith("norm_q") and isinstance(module, nn.RMSNorm):
                found[f"{path}.weight"] = [ScaledRows(start=factor, rate=factor)]
            if isinstance(module, Normalizer):
                found |= {f"{path}.{name}": [scaled] for name, scaled in _reads(model, module).items()}
        found["read_out.weight"] = [ScaledRows(start=math.sqrt(3 / d), rate=WIDTH / d)]  # uniform: 1/sqrt(3 d)
    if recipe.read_out_rate != 1:
        for name in ("read_out.weight", "read_out.bias"):
            found[name] = [
                ScaledRows(part.rows, part.start, part.rate * recipe.read_out_rate)
                for part in found.get(name, [ScaledRows()])
            ]
    return found


def _linear(model: GPT2, recipe: TrainSpec, path: str, module: nn.Linear) -> dict[str, list[ScaledRows]]:
    """Parts of the weight and the bias of a linear map inside a block under mup."""
    d, layers, inputs = model.spec.width, model.spec.layers, module.in_features
    start, branch = 1 / math.sqrt(inputs) / 0.02, 1.0
    if path.endswith("project") and recipe.scaling == "mup:depth=yes":
        branch = LAYERS / layers
        start *= math.sqrt(layers / LAYERS)
    thirds = [slice(k * d, (k + 1) * d) for k in range(3)] if path.endswith("qkv") else [WHOLE]
    weights, biases = [], []
    for rows in thirds:
        outputs = d if len(thirds) > 1 else module.out_features
        own = branch * (_score_factor(model) if len(thirds) > 1 and rows.start == 0 and not model.spec.qk_norm else 1)
        muon = math.sqrt(WIDTH / max(outputs, inputs)) * math.sqrt(outputs / inputs)
        step = muon if recipe.optimizer == "muon" else WIDTH / d
        weights.append(ScaledRows(rows, start * own, step * own))
        biases.append(ScaledRows(rows, 1.0, own))
    return {"weight": weights} | ({"bias": biases} if module.bias is not None else {})


def _reads(model: GPT2, rule: Normalizer) -> dict[str, ScaledRows]:
    """Parts of the matrices of a normalizer, by their inputs: d numbers, n heads, or the h channels of a head.

    * ``width``: starts at one standard deviation at every width, here times sqrt(64 / d); rate 64 / d.
    * ``heads``: starts as 1 / sqrt(n) itself; rate 4 / n.
    * ``query``: starts as 1 / sqrt(h) itself, and the queries that it reads have the factor s = sqrt(16 / h), which
      both start and rate undo: 1 / s and s^2 / s.
    * ``channels``: one of two vectors of which the product counts: s and s, as in a score.
    * ``own``: numbers that no width changes.
    """
    if not isinstance(rule.maps, Mapping):
        if rule.maps:
            names = ", ".join(rule.maps)
            raise BadValue(f"train.scaling=mup: {rule.title} does not say what {names} read (maps, a mapping).")
        return {}
    s, wide = _score_factor(model), WIDTH / model.spec.width
    factors = {
        "width": ScaledRows(start=math.sqrt(wide), rate=wide),
        "heads": ScaledRows(rate=WIDTH / HEAD / model.spec.heads),
        "query": ScaledRows(start=1 / s, rate=s),
        "channels": ScaledRows(start=s, rate=s),
    }
    return {name: factors[reads] for name, reads in rule.maps.items() if reads != "own"}


def _score_factor(model: GPT2) -> float:
    return math.sqrt(HEAD * model.spec.heads / model.spec.width)


@torch.no_grad()
def scale_start(model: GPT2, recipe: TrainSpec) -> None:
    """Multiply the start of each part by its factor, in place; with ``scaling=fixed`` nothing changes."""
    if recipe.scaling == "fixed":
        return
    parameters = dict(model.named_parameters())
    for name, of in parts(model, recipe).items():
        for part in of:
            cast(torch.Tensor, parameters[name])[part.rows].mul_(part.start)


def check(model: ModelSpec, recipe: TrainSpec) -> None:
    """Raise ``BadValue`` where mup has no meaning for the shape of a model."""
    if recipe.scaling == "fixed":
        return
    head = model.width // model.heads
    if model.width < LEAST_WIDTH:
        raise BadValue(
            f"train.scaling={recipe.scaling} needs a model.width of at least {LEAST_WIDTH}, got {model.width}."
        )
    if head % HEAD and HEAD % head:
        raise BadValue(
            f"train.scaling={recipe.scaling} takes heads whose size divides {HEAD} or is a multiple of it, got "
            f"{model.width} / {model.heads} = {head}."
        )

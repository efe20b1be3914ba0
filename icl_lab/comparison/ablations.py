"""Ablations: one part of the model left out at a time."""

from icl_lab.base.errors import BadValue
from icl_lab.runs.spec import RunSpec, resolve

WHOLE = "whole"


def ablations(spec: RunSpec, settings: tuple[str, ...] = ()) -> dict[str, RunSpec]:
    """Return the specification as it is, and with one part less; names say which part is left or removed.

    An MLP alone sees one token at a time, so it cannot learn in context: it should fail. Attention alone is said to be
    comparable to the whole (arXiv 2508.14685, Table 6, rows 2Al32AH and 12Al8AH).

    Raises ``BadValue`` where a part is off already.
    """
    if not (spec.model.mlp and spec.model.attention and spec.model.norm):
        raise BadValue("an ablation starts from a whole model: leave model.mlp, model.attention and model.norm on.")
    less = {
        WHOLE: "",
        "attention only": "model.mlp=no",
        "MLP only": "model.attention=no",
        "no norm": "model.norm=no",
        "norm of q and k": "model.qk_norm=yes",
    }
    if spec.model.layers > 1:
        less["one layer less"] = f"model.layers={spec.model.layers - 1}"
    if spec.model.heads > 1:
        less["one head"] = "model.heads=1"
    return {
        name: resolve(spec.task, spec.attn, spec.preset, [*settings, *([change] if change else [])], spec.test.draws)
        for name, change in less.items()
    }

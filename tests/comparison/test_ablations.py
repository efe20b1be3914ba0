"""Ablations: the whole model, and models that lack one part each."""

import pytest

from icl_lab.base.errors import BadValue
from icl_lab.comparison.ablations import ablations
from icl_lab.runs.spec import resolve


def test_each_ablation_leaves_out_one_part(tiny):
    whole = resolve("linear", "ssa", "lite", ["train.steps=7"])
    made = ablations(whole, ("train.steps=7",))
    assert made["whole"] == whole
    assert len({spec.hash for spec in made.values()}) == len(made) == 7
    assert all(spec.train.steps == 7 for spec in made.values())
    assert not made["attention only"].model.mlp
    assert made["one layer less"].model.layers == 1
    assert set(ablations(tiny("linear"))) >= {"whole", "MLP only", "one head"}
    assert "one layer less" not in ablations(tiny("linear"))  # it has but one
    with pytest.raises(BadValue, match="whole model"):
        ablations(tiny("linear", "softmax", "model.mlp=no"))

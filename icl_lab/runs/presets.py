"""The sizes a run comes in: one table."""

from dataclasses import dataclass
from typing import Any

from icl_lab.base.errors import UnknownName
from icl_lab.model.spec import ModelSpec
from icl_lab.training.curriculum import Staircase
from icl_lab.training.recipe import TrainSpec


@dataclass(frozen=True)
class Preset:
    """A model, a training, and how thin the shift grid is (a key of ``Task.axes``), with prompts in each cell."""

    purpose: str
    model: ModelSpec
    train: TrainSpec
    grid: str = "thin"
    prompts: int = 1024


SMALL = ModelSpec(layers=2, heads=4, width=64)  # row 2L4AH of the paper's Table 6

# The published recipe: Adam at a constant 1e-4, no warm-up, no clipping (arXiv 2508.14685 and its code).
PAPER = TrainSpec(steps=500_000, batch=64, rate=1e-4, schedule="constant", warmup=0, clip=0.0, curriculum=Staircase())


def muon(steps: int, **fields: Any) -> TrainSpec:
    """Muon for the matrices of the blocks, Adam for the rest: tuned on separate prompts, never on the test grid.

    The measurements are in docs/presets.md.
    """
    climb = Staircase(run=0.03)
    recipe = {"batch": 32, "rate": 5e-3, "muon_rate": 5e-3, "warmup": 100, "curriculum": climb}
    return TrainSpec(steps=steps, optimizer="muon", **{**recipe, **fields})


PRESETS = {
    "smoke": Preset(
        "first contact and tests: seconds",
        ModelSpec(layers=1, heads=2, width=32),
        TrainSpec(steps=300, batch=32, rate=3e-3, warmup=20, curriculum=Staircase(run=0.01)),
        grid="tiny",
        prompts=64,
    ),
    "nano": Preset("many seeds: at most a minute a run on one core", SMALL, muon(1200), prompts=256),
    "lite": Preset(
        "laptops: at most five minutes on two cores",
        SMALL,
        TrainSpec(steps=6000, batch=32, rate=2e-3, warmup=100, curriculum=Staircase(run=0.03)),
        prompts=256,
    ),
    "lite2": Preset("the model and the steps of lite, trained by Muon", SMALL, muon(6000), prompts=256),
    "deep": Preset(
        "a night on two cores: in training conditions as good as the paper's models",
        ModelSpec(layers=4, heads=4, width=64),
        muon(40_000, batch=64),
    ),
    "deep2": Preset(
        "the model of deep in half an hour a run: several seeds in an evening",
        ModelSpec(layers=4, heads=4, width=64),
        muon(16_000),
    ),
    "wide4": Preset(
        "the paper's width and heads in a third of its depth, by the recipe of deep2: two hours a run on two cores",
        ModelSpec(layers=4, heads=8, width=256),
        muon(16_000),
    ),
    "paper2": Preset(
        "the paper's 12L8AH by the recipe of deep2, in bfloat16: four hours a run on two cores that have AMX",
        ModelSpec(layers=12, heads=8, width=256),
        muon(16_000, precision="bf16"),
    ),
    "small": Preset(
        "row 3L4AH of the paper's Table 6, by the published recipe: hours",
        ModelSpec(layers=3, heads=4, width=64),
        PAPER,
        grid="full",
        prompts=6400,
    ),
    "paper": Preset(
        "the paper's 12L8AH, 9.6M working parameters: a GPU",
        ModelSpec(layers=12, heads=8, width=256),
        PAPER,
        grid="full",
        prompts=6400,
    ),
}


def named(name: str) -> Preset:
    """Return the preset of that name; raises ``UnknownName`` with those that there are."""
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    return PRESETS[name]

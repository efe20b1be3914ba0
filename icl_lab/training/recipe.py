"""Training recipe: fields, bounds, learning rate and batch size of each step."""

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from icl_lab.base.option_values import GREATEST
from icl_lab.training.curriculum import Staircase

STEPS = 10**9
Steps = Annotated[int, Meta(ge=0, le=STEPS)]
Rate = Annotated[float, Meta(gt=0, le=1)]
OptimizerName = Literal["adam", "adamw", "muon"]
Schedule = Literal["constant", "cosine", "linear", "wsd"]
Engine = Literal["eager", "compiled", "graph"]
Precision = Literal["float32", "bf16"]
Scaling = Literal["fixed", "mup", "mup:depth=yes"]


class TrainSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Training recipe: an optimizer, a rate that rises for ``warmup`` steps, then stays or falls.

    ``optimizer=muon`` moves the matrices of the blocks by Muon at ``muon_rate`` and all else by Adam at ``rate``; both
    follow the same schedule. ``decay`` shrinks these matrices at each step by the rate times it (not with ``adam``).
    ``schedule=cosine`` ends at 1 % of ``rate``; ``linear`` falls to 0; ``wsd`` (warm-up, stable, decay: arXiv
    2404.06395) stays, and falls to 0 over the last share ``cooldown`` of the steps. With ``ema`` the running mean of
    the numbers is tested in their place, its past weighing so much at each step (0: none). The batch starts at
    ``batch`` prompts and doubles ``doublings`` times, at equal distances.

    ``clip`` bounds the norm of the gradient (0: no bound). From ``switch_step`` on (0: never) the normalizer
    ``switch_to`` replaces the first one, its parameters at their start, and the rate rises anew: variant f of arXiv
    2501.19399. ``shift`` holds the standard deviations (axes of the task's shift grid) of the training prompts that are
    not 1: a wider training law.

    ``engine`` says how a step is executed: ``eager`` as it is written; ``graph`` recorded whole for each length and
    replayed, on CUDA only; ``compiled`` is for older runs alone. ``precision=bf16`` takes the products inside the
    blocks in half precision, in training and not in tests; on a CPU those of attention stay in single precision.
    Engines differ by rounding, but training amplifies rounding, so both are part of what a run is.

    ``read_out_rate`` multiplies Adam's rate of the read-out. ``scaling=mup`` changes starts and rates with the width,
    so that rates found at width 64 carry over, ``mup:depth=yes`` also with the number of layers
    (``training/scaling.py``).
    """

    steps: Annotated[int, Meta(ge=1, le=STEPS)] = 6000
    batch: Annotated[int, Meta(ge=1, le=1_000_000)] = 64
    rate: Rate = 1e-3
    schedule: Schedule = "cosine"
    warmup: Steps = 100
    clip: Annotated[float, Meta(ge=0)] = 1.0
    curriculum: Staircase = Staircase()
    switch_step: Steps = 0
    switch_to: str = ""
    shift: dict[str, float] = {}
    engine: Engine = "eager"
    precision: Precision = "float32"
    optimizer: OptimizerName = "adam"
    muon_rate: Rate = 0.01
    decay: Annotated[float, Meta(ge=0)] = 0.0
    cooldown: Annotated[float, Meta(gt=0, le=1)] = 0.2
    ema: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    doublings: Annotated[int, Meta(ge=0, le=20)] = 0
    read_out_rate: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    scaling: Scaling = "fixed"

    def __post_init__(self) -> None:
        if self.decay and self.optimizer == "adam":
            raise ValueError("optimizer=adam knows no decay; take adamw or muon, or decay=0")
        if bool(self.switch_step) != bool(self.switch_to):
            raise ValueError("switch_step and switch_to go together")
        for axis, sigma in self.shift.items():
            if not 0 <= sigma < math.inf:
                raise ValueError(f"shift.{axis} must be finite and > 0, or 0 where training has none, got {sigma:g}")
            if sigma > GREATEST:
                raise ValueError(f"shift.{axis} must be at most {GREATEST:g}, got {sigma:g}")
        if self.switch_step >= self.steps:
            raise ValueError(f"switch_step must be < steps, got {self.switch_step} of {self.steps}")

    def rate_at(self, step: int) -> float:
        """The learning rate of ``step`` (from 0)."""
        since = step - self.switch_step if step >= self.switch_step else step
        rise = min(1.0, (since + 1) / (self.warmup + 1))
        share = max(0, step - self.warmup) / max(1, self.steps - self.warmup)
        falls = {
            "constant": 1.0,
            "cosine": 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * share)),
            "linear": 1 - share,
            "wsd": min(1.0, (self.steps - step) / (self.cooldown * self.steps)),
        }
        return self.rate * rise * falls[self.schedule]

    def batch_at(self, step: int) -> int:
        """The prompts of ``step`` (from 0)."""
        return self.batch << step * (self.doublings + 1) // self.steps

    def length_at(self, step: int) -> int:
        """The examples in the prompts of ``step`` (from 0)."""
        return self.curriculum.at(step, self.steps)

    @property
    def longest(self) -> int:
        """The examples in the longest prompts that the curriculum reaches."""
        return self.curriculum.height(self.steps - 1, self.steps)

"""Attention maps of one or two models, on a prompt and as means over prompts, and their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icl_lab.analyses.attention.live import Exported
from icl_lab.analyses.attention.maps import Maps
from icl_lab.analyses.attention.prompt import Asked
from icl_lab.analyses.attention.window import Window
from icl_lab.runs.run import Run
from icl_lab.tasks.base import Mark, ScoredAnswer

THIS = "prompt"  # the frame of the prompt itself; the others are called after the axis along which they lie


@dataclass(frozen=True)
class Reading:
    """Maps of one model on the prompt, its answers, and the roles and maps of each mean."""

    maps: Maps
    answers: list[ScoredAnswer]
    means: list[tuple[list[Mark], Maps]]
    learned: dict[tuple[str, int], list[float]]  # the numbers of a layer's rule, by name and layer
    live: Exported | str = ""  # the model, for a page that computes; or why there is none


@dataclass(frozen=True)
class Frame:
    """Tokens in words and the maps of each run; of one prompt, or the mean over prompts at a value of an axis."""

    axis: str
    value: float
    marks: list[Mark]
    maps: list[Maps]


@dataclass(frozen=True)
class Shown:
    """A model: its name on the page, its rule and seed, what the page's foot says of it, what its rule learned.

    And its answers to the prompt.
    """

    name: str
    attn: str
    seed: int
    card: list[tuple[str, str]]
    learned: dict[tuple[str, int], list[float]]
    answers: list[ScoredAnswer]


@dataclass(frozen=True)
class Seen:
    """One or two models on one prompt, in the frames that the window allows; ``means`` prompts a mean.

    ``subject`` is what the title names: a task, a text. ``axes`` says what the axes of the frames are called, ``reach``
    how large the numbers of training are, by role. ``live`` is what the page computes with, if it does.
    """

    asked: Asked
    window: Window
    runs: list[Shown]
    frames: list[Frame]
    means: int
    notes: list[str] = field(default_factory=list)
    command: str = ""  # what the user typed
    subject: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    reach: Mapping[str, float] = field(default_factory=dict)
    live: dict[str, Any] | None = None


def names(runs: Sequence[Run]) -> list[str]:
    """Returns the rules; where two runs share one, with what tells them apart."""
    found = [run.name for run in runs]
    if len(set(found)) < len(runs):
        found = [f"{run.name} seed {run.seed}" for run in runs]
    if len(set(found)) < len(runs):
        found = [f"{run.name} {run.spec.preset}-{run.spec.hash} seed {run.seed}" for run in runs]
    return found

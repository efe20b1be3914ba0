"""Rows of numbers, and times that are taken in turns.

A busy machine is slow now and then, for everybody alike. So what is compared runs in turns, A B A B ..., and only the
quotients of neighbours are believed: their median, and their range.
"""

import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import icl_lab
from icl_lab import tasks
from icl_lab.errors import RunFailed
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec
from icl_lab.rng import stream
from icl_lab.runs.environment import seconds
from icl_lab.training.curriculum import Staircase
from icl_lab.training.loop import advance, optimizer, prepare
from icl_lab.training.recipe import Engine, Precision, TrainSpec

HOME = Path(icl_lab.__file__).parent.parent  # the folder that holds the package


@dataclass(frozen=True)
class Measurement:
    """One number: ``ratio`` of a case to what it is held against, in words of ``unit``, from ``count`` pairs.

    ``low`` and ``high`` are the ends of its range, ``seconds`` the median time of the case itself; each is NaN where
    there is none. ``bound`` is ``>=`` where the number is only a lower bound.
    """

    part: str
    case: str
    against: str
    ratio: float
    unit: str
    low: float = math.nan
    high: float = math.nan
    seconds: float = math.nan
    count: int = 1
    bound: str = ""
    note: str = ""
    device: str = "cpu"


@dataclass(frozen=True)
class Bench:
    """Settings of the parts: device, number of timed pairs, longest training, reporting."""

    device: torch.device
    pairs: int = 3
    minutes: float = 0.5  # of training, for each recipe and task
    setup: bool = False  # whether to install the laboratory afresh, which downloads
    say: Callable[[str], object] = lambda text: None
    tick: Callable[[str, int, int, str], object] = lambda part, done, total, note: None

    def row(
        self, part: str, case: str, against: str, ratio: float, unit: str, **more: float | int | str
    ) -> Measurement:
        """Returns a row of this device."""
        return Measurement(part, case, against, ratio, unit, device=self.device.type, **more)  # type: ignore[arg-type]

    def quotient(
        self, part: str, case: str, against: str, unit: str, over: Sequence[float], under: Sequence[float], **more: str
    ) -> Measurement:
        """Returns the row of the quotients ``over`` / ``under``, pair by pair; ``under`` are the case's own seconds."""
        median, low, high = spread([a / b for a, b in zip(over, under, strict=True)])
        own = statistics.median(under)
        return self.row(part, case, against, median, unit, low=low, high=high, seconds=own, count=len(under), **more)


class Steps:
    """Our own training, step after step, at one length.

    Raises ``BadValue`` where the engine cannot do it here.
    """

    def __init__(
        self,
        model: ModelSpec,
        attn: str,
        batch: int,
        pairs: int,
        device: torch.device,
        engine: Engine = "eager",
        precision: Precision = "float32",
    ) -> None:
        self.task = tasks.build("linear")
        length = Staircase(start=pairs, stop=pairs)
        self.spec = TrainSpec(batch=batch, rate=1e-4, curriculum=length, engine=engine, precision=precision)
        self.reading = TokenSpec(self.task.width, self.task.outputs, self.task.roles, self.task.tokens(pairs))
        self.model = GPT2(model, self.reading, attn, stream(0, "init")).to(device).train()
        self.optim = optimizer(self.model, self.spec)
        self.engine = prepare(self.model, self.task, self.optim, self.spec)
        self.step = 0

    def __call__(self) -> torch.Tensor:
        """Does the next step and returns its loss."""
        self.step += 1
        return advance(self.engine, self.spec, 0, self.step - 1)

    def times(self, steps: int) -> Callable[[], object]:
        """Returns a job of several steps."""
        return lambda: [self() for _ in range(steps)]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median, the least and the greatest.

    >>> spread([3.0, 1.0, 2.0])
    (2.0, 1.0, 3.0)
    """
    return statistics.median(values), min(values), max(values)


def alternate(
    jobs: Sequence[Callable[[], object]],
    pairs: int,
    device: torch.device,
    *,
    warm: bool = True,
) -> list[list[float]]:
    """Does the jobs in turns, A B A B ..., and returns the seconds of each, a list a job.

    With ``warm`` each is done once before, which does not count: the first time pays for what is built once.
    """
    for job in jobs if warm else ():
        job()
    rounds = [[seconds(job, device) for job in jobs] for _ in range(pairs)]
    return [list(times) for times in zip(*rounds, strict=True)]


def allocated(job: Callable[[], object], device: torch.device) -> int:
    """Returns the bytes that the job takes of a GPU at its height, above what there was before; never below 1."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    job()
    return max(1, torch.cuda.max_memory_allocated(device) - before)


def child(*words: str) -> str:
    """Runs Python on ``words`` in a process of its own that finds this very package; returns its standard output.

    Raises ``RunFailed`` with the last line of its complaint.
    """
    path = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
        raise RunFailed(f"python {' '.join(words)} failed with exit code {done.returncode}: {complaint}")
    return done.stdout

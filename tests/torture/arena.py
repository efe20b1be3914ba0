"""A small study that faults are done to, and what it is when nothing is done to it."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from icl_lab import tasks
from icl_lab.comparison.gather import described, gather, publish
from icl_lab.errors import LabError
from icl_lab.pipeline import sweep
from icl_lab.runs.run import MEASURED, SPEC, Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import resolve
from icl_lab.runs.store import Store
from icl_lab.training import loop

SMALL = ["train.steps=40", "train.batch=8", "model.width=8", "model.heads=2", "test.prompts=32"]
TWO = 2  # values of each axis that are tested
# The same in every run of the same specification and seed; env.json holds times and manifest.json its checksum.
BITS = (SPEC, "history.csv", "model.safetensors", *MEASURED)
RULES = ("softmax", "ssa")
OFTEN = 0.005  # seconds between checkpoints, so that faults meet them


@dataclass(frozen=True)
class Arena:
    """A results folder with a finished study of two normalizers, and the checksums of what is in it."""

    root: Path

    @property
    def whole(self) -> Path:
        """The results folder that nothing is done to; faults are done to copies."""
        return self.root / "whole"

    @classmethod
    def build(cls, root: Path) -> "Arena":
        """Trains, tests and compares two normalizers, one of them also with the other swapped in."""
        arena = cls(root)
        lab = arena.lab(arena.whole)
        runs = arena.runs(arena.whole)
        for run in runs:
            sweep(run.spec, run.seed, lab)
        sweep(runs[0].spec, 0, lab, runs[1].spec.attn)
        groups = {run.spec.attn: [run] for run in runs}
        made = described(groups, runs[0].spec.attn, "icl-lab torture")
        publish(gather(groups, runs[0].spec.attn), groups, arena.whole / "study", made)
        return arena

    def lab(self, results: Path, stopping: Callable[[], bool] = lambda: False) -> Lab:
        """Returns a laboratory that says nothing."""
        return Lab(Store(results), torch.device("cpu"), lambda text: None, stopping=stopping)

    def runs(self, results: Path) -> list[Run]:
        """Returns the two runs of the study, finished or not."""
        # A task whose errors span decades: of rates, few different bits could be told.
        task = next(name for name in tasks.names() if tasks.build(name).log_scale)
        axes = resolve(task, RULES[0], "smoke").test.axes
        tested = [f"test.axes.{axis}={','.join(f'{v:g}' for v in values[:TWO])}" for axis, values in axes.items()]
        specs = (resolve(task, attn, "smoke", [*SMALL, *tested]) for attn in RULES)
        return [Store(results).run(spec, 0) for spec in specs]

    def copy(self) -> Path:
        """Returns a results folder with all that is in the whole one."""
        place = Path(tempfile.mkdtemp(dir=self.root))
        shutil.copytree(self.whole, place, dirs_exist_ok=True)
        return place

    def empty(self) -> Path:
        """Returns a results folder with nothing in it."""
        return Path(tempfile.mkdtemp(dir=self.root))

    def differing(self, run: Run) -> list[str]:
        """Returns the files of a finished run that are not, to the last bit, those of the one nothing was done to."""
        known = self.whole / run.folder.relative_to(run.folder.parents[4])
        names = [name for name in BITS if (known / name).exists()]
        return [name for name in names if _sum(run.folder / name) != _sum(known / name)]


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"


def apart(job: Callable[[], object]) -> int:
    """Does a job in a process of its own and returns its number; it ends with 0, or 1 after a complaint.

    The process shares what is loaded with this one, so that it costs no time to begin.
    """
    number = os.fork()
    if number:
        return number
    code = 3
    try:
        torch.set_num_threads(1)
        loop.CHECKPOINT_SECONDS = OFTEN
        job()
        code = 0
    except LabError:
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(number: int) -> int:
    """Waits for a process; returns its exit code, or minus the number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])

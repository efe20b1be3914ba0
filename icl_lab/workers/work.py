"""What a worker does: one run, in the results folder that it shares with its driver, or in scratch and sent back."""

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from icl_lab import outside
from icl_lab.errors import LabError, Stopped
from icl_lab.evidence.layer import Layer
from icl_lab.pipeline import sweep, trained
from icl_lab.runs import environment
from icl_lab.runs.run import Run
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store
from icl_lab.workers import identity, imports
from icl_lab.workers.line import Line
from icl_lab.workers.mirror import Mirror
from icl_lab.workers.protocol import Message

Do = Callable[[Run, Lab, bool], object]


def private() -> tuple[int, int]:
    """Takes the process's standard input and output for the protocol alone, as two file descriptors.

    From then on what prints goes to standard error, and what reads finds nothing.
    """
    source, sink, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, sink


def serve(line: Line, asked: Callable[[], bool], say: Callable[[str], object], do: Do) -> None:
    """Says hello, takes orders, does them, and says how that ended; ``asked()`` tells of signals.

    ``do`` finishes a run in a shared folder, pictures and all. Raises what the run raises.
    """
    try:
        line.say(hello=identity.hello())
        orders, files = line.orders()
        line.listen(float(orders["silence"]) if orders.get("remote") else math.inf)
        stopping = lambda: asked() or line.stopped.is_set()  # noqa: E731
        if orders.get("remote"):
            with tempfile.TemporaryDirectory(prefix="icl-lab-") as scratch:
                _far(orders, files, Path(scratch), line, stopping, say)
        else:
            outside.obey(orders["imports"])
            run, lab = _prepared(orders, Path(orders["results"]), stopping, say)
            do(run, replace(lab, tick=_tick(line, run)), orders["tested"])
    except Stopped as error:
        line.end("stopped", str(error))
        raise
    except LabError as error:
        line.end("failed", str(error))
        raise
    except Exception as error:
        line.end("failed", f"{type(error).__name__}: {error}")
        raise
    line.end("done")


def finish(run: Run, lab: Lab, tested: bool) -> bool:
    """Makes sure that a run is finished, or only trained unless ``tested``; returns whether it was."""
    if not tested:
        already = run.trained
        with run.locked(lab.say, lab.stopping):
            trained(run, lab)
        return already
    already = run.finished
    sweep(run.spec, run.seed, lab, run.swap)
    return already


def _prepared(
    orders: Mapping[str, Any], root: Path, stopping: Callable[[], bool], say: Callable[[str], object]
) -> tuple[Run, Lab]:
    """The run that is ordered, and the laboratory that it is done in."""
    torch.set_num_threads(orders["threads"])
    store = Store(root, Layer.find() if orders["evidence"] else None)
    device = environment.device(_device(orders["device"], orders.get("slot", 0)))
    if device.type == "cuda" and 0 < orders.get("share", 1) < 1:
        torch.cuda.set_per_process_memory_fraction(orders["share"], device)
    run = store.run(msgspec.convert(orders["spec"], RunSpec), orders["seed"], orders["swap"])
    return run, Lab(store, device, say, stopping=stopping, command=orders["command"])


def _device(name: str, slot: int) -> str:
    """The device of the worker in a slot of its place: where there are several GPUs and none is named, each in turn."""
    count = torch.cuda.device_count()
    return f"cuda:{slot % count}" if name in ("auto", "cuda") and count > 1 else name


def _tick(line: Line, run: Run) -> Callable[[str, int, int, str], object]:
    """Tells the step of the training, the last one while it is tested."""
    return lambda stage, done, total, note: line.say(step=done if stage == "train" else run.spec.train.steps)


def _far(
    orders: Mapping[str, Any],
    files: Sequence[Message],
    scratch: Path,
    line: Line,
    stopping: Callable[[], bool],
    say: Callable[[str], object],
) -> None:
    """Does a run in a folder that nobody else sees, and sends what it makes."""
    parts = [message for message in files if "import" in message.told]
    outside.obey(imports.unpack(orders["imports"], parts, scratch / "imports"))
    run, lab = _prepared(orders, scratch / "results", stopping, say)
    mirror = Mirror(run.folder, line, [message for message in files if "import" not in message.told])
    tick = _tick(line, run)

    def between() -> bool:
        """Between two steps the checkpoint is whole, and nobody writes it."""
        mirror.checkpoint()
        return stopping()

    def stage(name: str, done: int, total: int, note: str) -> None:
        tick(name, done, total, note)
        if name != "train":  # trained: from here on the model is safe with the driver
            mirror.send()

    try:
        finish(run, replace(lab, stopping=between, tick=stage), orders["tested"])
    finally:
        mirror.send()

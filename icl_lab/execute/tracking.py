"""Experiment trackers: each row of a history as it is trained, then the grid, the figures and the headline numbers.

A training seed of a specification is one run of the tracker, named as its folder, and goes on in it: what the tracker
holds already is not logged again. No result depends on it; a tracker that fails is named once and left alone.
"""

import json
import os
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from contextvars import Context
from dataclasses import dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from icl_lab import tasks
from icl_lab.base import foreign, learned
from icl_lab.base.errors import BadValue, UnknownName, brief
from icl_lab.base.files import publish
from icl_lab.base.grid import Grid
from icl_lab.runs import summary
from icl_lab.runs.run import Run
from icl_lab.runs.session import Untracked

FOLDER = "tracked"  # below the results: what trackers keep on this machine
LONGEST = 128  # letters of a name, which ends in hash and seed
LOSS = "train/loss"
GROUPS = {"bound": "model", "score": "attention", "entropy": "attention"}  # of columns of a history; others: train
Content = Mapping[str, float | Grid | Path | str]  # numbers, tables, pictures and texts by their names


@dataclass
class Tracker(ABC):
    """A run of a tracker, opened when there is something to log; ``held`` is the last step of each name in it."""

    folder: Path  # for local files
    project: str
    name: str
    config: Mapping[str, Any]
    run: Any = None

    def __post_init__(self) -> None:
        self.group = self.name.rpartition("-seed-")[0] or "studies"
        self.held = self.last_steps()

    def log(self, content: Content, step: int) -> None:
        self.run = self.run or self.open()
        self.write(content, step)
        self.held |= dict.fromkeys(content, step)

    @abstractmethod
    def last_steps(self) -> dict[str, int]:
        """Ask for the last step of each name that is there."""

    @abstractmethod
    def open(self) -> Any:
        """Begin the run, or go on in it."""

    @abstractmethod
    def write(self, content: Content, step: int) -> None:
        """Hand over content."""

    def finish(self) -> None:
        self.run.finish()


class TensorBoard(Tracker):
    """Event files: ``tensorboard --logdir results/tracked/tensorboard``."""

    def last_steps(self) -> dict[str, int]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self.place = self.folder / "tensorboard" / self.project / self.name
        self.place.mkdir(parents=True, exist_ok=True)
        events = EventAccumulator(str(self.place)).Reload()
        return {name: events.Scalars(name)[-1].step for name in events.Tags()["scalars"]}

    def open(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(self.place))
        if not self.held:
            writer.add_text("specification", f"```\n{json.dumps(self.config, indent=1)}\n```")
        return writer

    def write(self, content: Content, step: int) -> None:
        from matplotlib.image import imread

        for name, value in content.items():
            if isinstance(value, Path):
                self.run.add_image(name, imread(value), step, dataformats="HWC")
            elif isinstance(value, Grid):
                self.run.add_text(name, f"```\n{value.csv()}\n```", step)
            elif isinstance(value, str):
                self.run.add_text(name, value, step)
            else:
                self.run.add_scalar(name, value, step)
        self.run.flush()

    def finish(self) -> None:
        self.run.close()


class WandB(Tracker):
    """Weights & Biases; offline it cannot list its runs, so a file records them."""

    module = "wandb"

    def last_steps(self) -> dict[str, int]:
        self.note = self.folder / "noted" / self.module / self.project / f"{self.name}.json"
        with suppress(OSError, ValueError, TypeError):
            return dict(json.loads(foreign.shallow(foreign.read(self.note, foreign.MOST_TEXT))))
        return {}

    def open(self) -> Any:
        place = Path(os.environ.get("WANDB_DIR") or self.folder)
        place.mkdir(parents=True, exist_ok=True)
        return self.begin(id=self.name, dir=str(place), reinit="create_new", settings={"console": "off"})

    def log(self, content: Content, step: int) -> None:
        super().log(content, step)
        publish(self.note, json.dumps(self.held).encode())

    def begin(self, **own: Any) -> Any:
        about = {"project": self.project, "name": self.name, "group": self.group, "config": dict(self.config)}
        return import_module(self.module).init(**about, resume="allow", **own)

    def write(self, content: Content, step: int) -> None:
        kinds, shown = import_module(self.module), dict[str, Any](content)
        for name, value in content.items():
            if isinstance(value, Path):
                shown[name] = kinds.Image(str(value))
            elif isinstance(value, Grid):
                shown[name] = kinds.Table(dataframe=value.frame)
            elif isinstance(value, str):
                shown[name] = self.text(value)
        self.send(shown, step)

    def text(self, text: str) -> Any:
        return import_module(self.module).Html(f"<pre>{escape(text)}</pre>")

    def send(self, shown: dict[str, Any], step: int) -> None:
        # A step that is over takes nothing more: what follows the last row comes after it.
        self.run.log(shown, step=step if LOSS in shown else None, commit=True)


class Trackio(WandB):
    """A project of trackio, ``trackio show``: in its database on this machine unless the environment names a server."""

    module = "trackio"

    def last_steps(self) -> dict[str, int]:
        from trackio.sqlite_storage import SQLiteStorage

        noted = super().last_steps()
        if os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL"):
            return noted
        SQLiteStorage.init_db(self.project)  # raises where trackio itself would lose rows and go on
        last = SQLiteStorage.get_max_step_for_run(self.project, self.name)
        return dict.fromkeys(SQLiteStorage.get_all_metrics_for_run(self.project, self.name), last or 0)

    def open(self) -> Any:
        # In a separate context: trackio ends the run that was begun before in the same one.
        return Context().run(self.begin, embed=False, auto_log_cpu=False, auto_log_gpu=False)

    def send(self, shown: dict[str, Any], step: int) -> None:
        self.run.log(shown, step=step)

    def text(self, text: str) -> Any:
        return import_module(self.module).Markdown(text)


KINDS: dict[str, type[Tracker]] = {"trackio": Trackio, "wandb": WandB, "tensorboard": TensorBoard}


def check_tracker(asked: str) -> None:
    """Raise ``UnknownName`` or ``BadValue`` where ``NAME[:PROJECT]`` is unknown or not installed."""
    name, colon, project = asked.partition(":")
    if asked and name not in KINDS:
        raise UnknownName("tracker", name, KINDS)
    if colon and not re.fullmatch(r"\w[\w. -]{0,63}", project):
        raise BadValue(f"a project of {name} is 1 to 64 letters, digits, spaces and ._-, got {project!r}.")
    if asked and find_spec(name) is None:
        raise BadValue(f"{name} is not installed: pip install {name}")


class Tracking(Untracked):
    """The tracker of a session, ``NAME[:PROJECT]``, or none; its local files are in ``tracked`` below the results."""

    def __init__(self, asked: str, results: Path, say: Callable[[str], object]) -> None:
        self.asked, self._folder, self._say = asked, results / FOLDER, say
        self._open, self._failed = dict[str, Tracker](), set[str]()

    def rows(self, run: Run, history: Sequence[Mapping[str, float]]) -> None:
        self._tell(lambda tracker: _add(tracker, history), _name(run), run.spec.whole())

    def finished(self, run: Run) -> None:
        if self.asked and not run.copied:
            with run.locked(self._say):  # of two commands that wanted it one is first
                self._tell(lambda tracker: _end(tracker, run), _name(run), run.spec.whole())
                self._finish(_name(run))

    def study(self, folder: Path, text: str) -> None:
        name = _key(folder.name)[-LONGEST:]
        self._tell(lambda tracker: tracker.log({"summary": text, **_pictures(folder)}, 0), name)
        self._finish(name)

    def close(self) -> None:
        for name in list(self._open):
            self._finish(name)

    def _tell(self, words: Callable[[Tracker], object], name: str, config: Mapping[str, Any] = {}) -> None:
        if not self.asked or name in self._failed:
            return
        try:
            # Standard output is for data, and the warnings of a tracker are not about the run.
            with redirect_stdout(sys.stderr), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if name not in self._open:
                    kind, _, project = self.asked.partition(":")
                    self._open[name] = KINDS[kind](self._folder, project or "icl-lab", name, config)
                words(self._open[name])
        except Exception as error:
            told, *_ = str(error).strip().splitlines() or [""]
            if not self._failed:
                self._say(brief(f"--track {self.asked} fails: {type(error).__name__}: {told}; runs go on.", 300))
            self._failed.add(name)

    def _finish(self, name: str) -> None:
        if name in self._open and self._open[name].run is not None:
            self._tell(lambda tracker: tracker.finish(), name)
        self._open.pop(name, None)


def _add(tracker: Tracker, history: Sequence[Mapping[str, float]]) -> None:
    """Log the rows that a tracker has not; a training that goes on from a checkpoint makes some of them again."""
    for row in history:
        if (step := int(row["step"])) > tracker.held.get(LOSS, 0):
            named = dict(learned.places(row))
            numbers = {_grouped(name, named.get(name)): value for name, value in row.items() if name != "step"}
            tracker.log(numbers, step)


def _grouped(column: str, place: learned.Place | None) -> str:
    """Name of a column of a history in a tracker, which puts the charts of one group side by side.

    >>> [_grouped(column, None) for column in ("loss", "bound", "score.0")]
    ['train/loss', 'model/bound', 'attention/score/0']
    >>> _grouped("n 0.1", learned.Place("n", 0, 1))
    'learned/n/0.1'
    """
    if place is not None:
        return _key(f"learned/{place.name}/{place.layer}.{place.head}")
    name = column.replace(".", "/")
    return _key(f"{GROUPS.get(name.partition('/')[0], 'train')}/{name}")


def _end(tracker: Tracker, run: Run) -> None:
    """Log the rest of a run: rows and, where it is tested, grid, pictures and headline in training conditions."""
    step, test = run.spec.train.steps, run.below("test/")
    _add(tracker, run.history() if run.recorded else ())
    if not run.finished and (pictures := _pictures(run.folder)):
        tracker.log(pictures, step)
    elif run.finished and _key(f"{test}model") not in tracker.held:
        home = summary.errors_in_distribution([run.grid()], tasks.build(run.spec.task), run.spec)
        names = {name: name.removeprefix(summary.REFERENCE) for name in home} | {run.name: "model"}
        numbers = {_key(f"{test}{names[name]}"): value for name, value in home.items()}
        tracker.log({_key(run.below("grid")): run.grid(), **_pictures(run.place, run.below("")), **numbers}, step)


def _name(run: Run) -> str:
    return _key(run.key).replace("/", "-")[-LONGEST:]


def _key(name: str) -> str:
    """Name in letters, digits and signs that every tracker takes."""
    return re.sub(r"[^\w./ -]+", "-", name)


def _pictures(folder: Path, before: str = "") -> dict[str, Path]:
    return {_key(f"{before}{path.stem}"): path for path in sorted(folder.glob("*.png"))}

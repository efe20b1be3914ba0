"""One training seed of one normalizer on one task, as Python and notebooks see it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import pandas as pd
from matplotlib.figure import Figure

from icl_lab import tasks
from icl_lab.api import show
from icl_lab.base.errors import LabError, RunFailed, UnknownName, UnknownOption
from icl_lab.base.grid import Grid, frame_of
from icl_lab.base.learned import places
from icl_lab.execute.announce import title
from icl_lab.execute.arguments import checked, whole
from icl_lab.execute.draw import heat_map as draw_heat_map
from icl_lab.execute.draw import history_figures
from icl_lab.figures import paper
from icl_lab.model.gpt2 import GPT2
from icl_lab.pipeline import load_or_train
from icl_lab.runs import summary
from icl_lab.runs.command import repeats
from icl_lab.runs.measure import TestSpec, draw
from icl_lab.runs.run import Run as Stored
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.tasks.base import Prompt, Task


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """A run: a normalizer trained on a task from one seed, and tested over every shift.

    ``stored`` is its place in the results folder, the same that the command line uses.
    """

    stored: Stored
    lab: Lab = field(repr=False)

    @property
    def task(self) -> str:
        """The task, options included."""
        return self.stored.spec.task

    @property
    def attn(self) -> str:
        """Normalizer, options included; ``one->other`` where another one stood in the model when it was tested."""
        return self.stored.name

    @property
    def preset(self) -> str:
        """The preset that its sizes came from."""
        return self.stored.spec.preset

    @property
    def seed(self) -> int:
        """The training seed."""
        return self.stored.seed

    @property
    def spec(self) -> RunSpec:
        """The specification, to the last field."""
        return self.stored.spec

    @property
    def hash(self) -> str:
        """Eight hexadecimal digits that name the specification."""
        return self.stored.spec.hash

    @property
    def folder(self) -> Path:
        """The folder of the measurements."""
        return self.stored.place

    @property
    def command(self) -> str:
        """Command that makes this run (and the seeds before it) again."""
        return repeats(self.stored, self.lab.store.root)

    @property
    def env(self) -> dict[str, Any]:
        """Environment of the run: versions, device, threads, commit, time."""
        return self.stored.env()

    @cached_property
    def grid(self) -> Grid:
        """The measured cells: ``grid.frame`` is a pandas table, ``grid.to_xarray()`` has an axis a dimension."""
        return self.stored.grid()

    @checked
    def table(self, metric: str = "", models: bool = False) -> pd.DataFrame:
        """Return a metric with a row per cell of the test grid and a column per predictor: the model, and references.

        Without a ``metric`` it is the task's headline; with ``models`` the references are left out. Raises
        ``UnknownName`` with the metrics that there are.
        """
        return wide([self.grid], metric or self._task.headline, models)

    @cached_property
    def history(self) -> pd.DataFrame:
        """The rows of the training: step, loss, length, rate, and the numbers that the normalizer learned."""
        return frame_of(self.stored.history())

    @cached_property
    def learned(self) -> pd.DataFrame:
        """The numbers that the normalizer has learned at the end of training: a row for each name, layer and head."""
        last = self.stored.history()[-1]
        rows = [place._asdict() | {"value": last[key]} for key, place in places(last)]
        return frame_of(rows, columns=("name", "layer", "head", "value"))

    @cached_property
    def model(self) -> GPT2:
        """The trained model, a torch module on the run's device: tokens (b t w), or (b t) whole numbers -> (b t c).

        With ``swap`` it has the other normalizer. Raises ``RunFailed`` where no weights are kept.
        """
        if self.stored.diverged:
            raise RunFailed(f"{self._title}: the training diverged, there is no model ({self.stored.diverged})")
        if not self.stored.trained:
            raise RunFailed(
                f"{self._title}: its weights are not kept, only what was measured; icl.sweep(..., "
                f"where=icl.Where(evidence=False)) trains it here: {self.command}"
            )
        return load_or_train(self.stored, self.lab)

    @checked
    def prompts(self, count: int = 64, length: int | None = None, **shift: float) -> Prompt:
        """Draw test prompts, the same in every call: in training conditions except for the axes named.

        >>> import tempfile, icl_lab as icl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     where = icl.Where(results=folder, progress=False)
        ...     run = icl.sweep("linear", "ssa", "smoke", {"train.steps": 5}, where=where)
        ...     prompt = run.prompts(8, length=10, sigma_f=3)
        ...     run.model(prompt.tokens).shape
        torch.Size([8, 20, 1])
        """
        cell = summary.training_cell(self._task, self.spec)
        for axis in shift:
            if axis not in cell:
                raise UnknownOption(f"The task '{self.task}'", axis, cell)
        cell |= shift
        usual = int(cell.pop("length"))
        examples = usual if length is None else whole(length, "length", 1)
        self._task.check_length(examples, **cell)
        test = TestSpec(
            prompts=whole(count, "count", 1), axes={"length": [float(examples)]}, draws=self.spec.test.draws
        )
        return draw(self._task, examples, test, cell).take(count)

    @property
    def error(self) -> float:
        """The task's headline error in training conditions, the mean over its facets.

        Where the grid leaves them out, that of the nearest cell to them.
        """
        return self._in_distribution[self.attn]

    @property
    def figures(self) -> list[str]:
        """The names that ``figure`` takes."""
        return ["heat-map", "learning-curve", "learned"]

    @checked
    def figure(self, name: str = "heat-map", style: str = "screen", columns: int = 0) -> Figure:
        """Draw the run: ``heat-map``, ``learning-curve``, or ``learned`` where the normalizer learns numbers.

        ``style="paper"`` draws for print (see ``icl_lab.figures.paper``), over 1 or 2 ``columns``.
        """
        if name not in self.figures:
            raise UnknownName("figure of a run", name, self.figures)
        if name == "heat-map":
            return paper.styled(draw_heat_map(self.grid, self.spec), style, columns)
        drawn = history_figures(self.stored)
        if name not in drawn:
            raise LabError(f"{self.spec.attn} learns no numbers of its own.")
        return paper.styled(drawn[name], style, columns)

    @checked
    def heat_map(self, style: str = "screen", columns: int = 0) -> Figure:
        """Draw the headline error over the task's two main axes, as the command line does."""
        return self.figure("heat-map", style, columns)

    def __repr__(self) -> str:
        state = f"error {self.error:.3g} in training conditions" if self.stored.finished else "not finished"
        return f"<run {self._title}: {state}; {self.folder}>"

    def __str__(self) -> str:
        return summary.brief(self.grid, self._task, self.spec)

    def _repr_html_(self) -> str:
        if not self.stored.finished:
            return show.paragraph(repr(self))
        rows = [[name, f"{value:.3g}"] for name, value in self._in_distribution.items()]
        head = show.paragraph(f"{self._title} ({self.folder})")
        return (
            f'<div style="max-width:48em">{head}{show.picture(self.heat_map(), f"Heat map of {self._title}")}'
            f"{show.table([f'error {self._home}', ''], rows)}</div>"
        )

    @property
    def _title(self) -> str:
        return title(self.stored)

    @cached_property
    def _task(self) -> Task:
        return tasks.build(self.task)

    @cached_property
    def _in_distribution(self) -> Mapping[str, float]:
        return summary.errors_in_distribution([self.grid], self._task, self.spec)

    @cached_property
    def _home(self) -> str:
        return summary.home(self.grid, self._task, self.spec)


class Runs(Sequence[Run]):
    """The training seeds of one normalizer: a sequence of runs."""

    @checked
    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = list(runs)

    @overload
    def __getitem__(self, place: int) -> Run: ...
    @overload
    def __getitem__(self, place: slice) -> "Runs": ...
    def __getitem__(self, place: int | slice) -> "Run | Runs":
        return Runs(self._runs[place]) if isinstance(place, slice) else self._runs[place]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @cached_property
    def grid(self) -> Grid:
        """All cells of all seeds under one another."""
        return Grid.join([run.grid for run in self._runs])

    @checked
    def table(self, metric: str = "", models: bool = False) -> pd.DataFrame:
        """Return the mean over the seeds of a metric, a row per cell and a column per predictor (``Run.table``)."""
        return wide([run.grid for run in self._runs], metric or tasks.build(self._runs[0].task).headline, models)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._runs)) or "<no runs>"

    def _repr_html_(self) -> str:
        rows = [[f"{run.attn}, seed {run.seed}", f"{run.error:.3g}", str(run.folder)] for run in self._runs]
        return show.table(["run", "error in training conditions", "folder"], rows)


def wide(grids: Sequence[Grid], metric: str, models: bool) -> pd.DataFrame:
    """Return the mean of a metric over grids, cells down and predictors across; ``UnknownName`` if there is no such."""
    frame = pd.concat([grid.frame for grid in grids])
    if metric not in set(frame["metric"]):
        raise UnknownName("metric of the grid", metric, list(dict.fromkeys(frame["metric"])))
    frame = frame[frame["metric"] == metric]
    if models:
        frame = frame[~frame["attn"].str.startswith(summary.REFERENCE)]
    order = list(dict.fromkeys(frame["attn"]))
    return frame.pivot_table(index=grids[0].axes, columns="attn", values="value", aggfunc="mean")[order]

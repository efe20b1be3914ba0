"""An answer of an analysis, and a study of an experiment, as Python and notebooks see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from icl_lab.analyses.frame import AnyAnalysis
from icl_lab.analyses.publish import written
from icl_lab.api import show
from icl_lab.base.errors import UnknownName
from icl_lab.base.grid import Grid, frame_of
from icl_lab.claims.card import Card
from icl_lab.execute.arguments import checked
from icl_lab.execute.study import Made
from icl_lab.figures import paper


@dataclass(frozen=True, repr=False, eq=False)
class Answer(show.Written):
    """Result of an analysis, and the folder that it was written to."""

    question: str
    analysis: AnyAnalysis
    made: Made
    title: str

    @property
    def found(self) -> Any:
        """Result in the analysis' own form; most have labelled grids (``grids``)."""
        return self.made.found

    @property
    def grids(self) -> Mapping[str, Grid]:
        """The labelled grids by name, where the analysis has such; each has ``frame`` and ``to_xarray()``."""
        return dict(getattr(self.found, "grids", {}))

    @property
    def finding(self) -> str:
        """Summary in one sentence; empty where the analysis has none."""
        return self.analysis.finding(self.found)

    @property
    def figures(self) -> list[str]:
        """The names that ``figure`` takes."""
        return list(self._drawn())

    @checked
    def figure(self, name: str = "", style: str = "screen", columns: int = 0) -> Figure:
        """Draw a figure, the first one unless it is named.

        ``style="paper"`` draws for print (see ``icl_lab.figures.paper``), over 1 or 2 ``columns``. Raises
        ``UnknownName`` with those there are.
        """
        drawn = self._drawn()
        chosen = name or next(iter(drawn))
        if chosen not in drawn:
            raise UnknownName(f"figure of {self.question}", name, drawn)
        return paper.styled(drawn[chosen], style, columns)

    @checked
    def page(self) -> show.Page:
        """Return the page of the answer, which shows itself in a notebook."""
        name = next(name for name in (f"{self.question}.html", "report.html") if name in self.made.files)
        return show.Page(self.folder / name)

    def __repr__(self) -> str:
        return f"<{self.question}: {self.finding or self.title}; {self.folder}>"

    def _repr_html_(self) -> str:
        if f"{self.question}.html" in self.made.files:  # a page says more than its tables
            return self.page()._repr_html_()
        return _text_of(self.made.text, self.folder)

    def _drawn(self) -> Mapping[str, Figure]:
        return self.analysis.figures(self.found, self.title)


@dataclass(frozen=True, repr=False, eq=False)
class ExperimentReport(show.Written):
    """Our numbers and the printed ones of a table or figure, and their folder."""

    name: str
    made: Made

    @property
    def files(self) -> list[str]:
        """Names of the files in the folder."""
        return list(written(self.folder))

    def __repr__(self) -> str:
        return f"<experiment {self.name}; {self.folder}>"

    def _repr_html_(self) -> str:
        return _text_of(self.made.text, self.folder)


@dataclass(frozen=True, repr=False, eq=False)
class Judgement:
    """A normalizer against others on the questions of the suite: verdicts, costs and facts."""

    card: Card

    @checked
    def table(self) -> pd.DataFrame:
        """Return a row per question and baseline: verdict, values, effect with interval, seeds, note."""
        return frame_of(self.card.rows())

    def __str__(self) -> str:
        return "\n".join(self.card.lines())

    def __repr__(self) -> str:
        return f"<{self.card.rule}: {' '.join(map(self.card.sentence, self.card.answers))}>"

    def _repr_html_(self) -> str:
        return show.of_markdown(str(self))


def _text_of(text: str, folder: Path) -> str:
    return show.of_markdown(text.rpartition("Made by ")[0] or text) + show.paragraph(str(folder))

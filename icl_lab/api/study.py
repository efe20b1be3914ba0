"""A comparison, as Python and notebooks see it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

import pandas as pd
from matplotlib.figure import Figure

from icl_lab.api import show
from icl_lab.api.run import Run, Runs
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.base.grid import frame_of
from icl_lab.comparison import page
from icl_lab.comparison import study as numbers
from icl_lab.comparison.page import Picture, words
from icl_lab.comparison.page.tables import summaries
from icl_lab.execute import study
from icl_lab.execute.arguments import checked
from icl_lab.execute.plan import RunPlan
from icl_lab.execute.study import Made
from icl_lab.execute.where import Where
from icl_lab.figures import paper
from icl_lab.runs.store import by_rule


def spread_words(values: Sequence[float]) -> str:
    """Return mean and standard deviation, this in two digits: "0.310 ± 0.042"; of a single value that value.

    >>> spread_words([1.0, 1.2]), spread_words([150.0, 210.0]), spread_words([0.5])
    ('1.10 ± 0.14', '180 ± 42', '0.5')
    """
    deviation = stdev(values) if len(values) > 1 else 0.0
    if not 0.0 < deviation < math.inf:
        return f"{words.mean(values):.3g}"
    digits = max(0, 1 - math.floor(math.log10(deviation)))
    return f"{words.mean(values):.{digits}f} ± {deviation:.{digits}f}"


@dataclass(frozen=True, repr=False, eq=False)
class Study(show.Written):
    """Normalizers against a baseline, paired over training seeds, and the folder that it was written to."""

    made: Made
    members: Sequence[Run]

    @classmethod
    def of(cls, plan: RunPlan, baseline: str, where: Where) -> "Study":
        """Compare the normalizers of a plan with one of them, and train missing runs.

        Raises ``LabError`` with the line that the command line prints.
        """
        line = plan.command("compare", where, baseline="" if baseline == "softmax" else baseline, name=where.name)
        with where.session(line) as lab:
            runs = plan.runs(lab.store)
            written = study.compare(runs, lab, baseline, where, own=plan.rates == "own")
        return cls(written, [Run(run, lab) for run in runs])

    @property
    def runs(self) -> Runs:
        """The runs that are compared."""
        return Runs(self.members)

    @property
    def numbers(self) -> numbers.PairedGrids:
        """The comparison as it is computed: values, effects and families of p values (``icl_lab.comparison.study``)."""
        compared: numbers.PairedGrids = self.made.found
        return compared

    @property
    def verdict(self) -> str:
        """Finding in a sentence or two, as the terminal and the page have it."""
        return words.finding(self.numbers)

    @property
    def rates(self) -> str:
        """Learning rates in words: shared by all normalizers, different, or each the best of its curve."""
        return self.numbers.rates

    @checked
    def table(self, spread: bool = False) -> pd.DataFrame:
        """Means over seeds along the shift, and the declared summary: normalizers by it, then the references.

        With ``spread`` means are text with the standard deviation over seeds behind them, as papers print them, other
        numbers have two digits, and the summary is left out:
        ``icl.export(study.table(spread=True), caption="...", label="tab:far")``.
        """
        study, rows = self.numbers, []
        axis = words.along(study)
        line = {words.cell_words(study, cell[axis]): cell for cell in study.line(axis)}
        for rule, summary in summaries(study).items():
            seeds = {name: study.values(rule, cell) for name, cell in line.items()}
            means = {name: spread_words(each) if spread else words.mean(each) for name, each in seeds.items()}
            rows.append({"rule": rule, **means, "summary": summary})
        for behind, values in study.behind(list(line.values())).items():
            shown = [f"{value:.2g}" for value in values] if spread else values
            rows.append({"rule": behind, **dict(zip(line, shown, strict=True))})
        return frame_of(rows, columns=("rule", *line, *["summary"] * (not spread))).set_index("rule")

    @checked
    def effects(self) -> pd.DataFrame:
        """Every normalizer against the baseline in every cell and by the summary: the rows of ``comparison.csv``.

        Columns: attn, baseline, the axes (NaN: the summary), metric, scale, seeds; effect (mean over seeds of the
        difference, or of the logarithm of the ratio where scale is log-ratio: e^effect below 1 is less error), low and
        high (its 95 % interval, test prompts included where known), iqm (interquartile mean), wins (share of seeds with
        less error); p_widened belongs to the interval, p_holm is it corrected over ``family`` comparisons, p_t and
        p_flip are of the seeds alone (t test, exact sign flips).
        """
        return frame_of(numbers.compare(self.numbers))

    @checked
    def at(self, **cell: float) -> pd.DataFrame:
        """Compare in one cell of the test grid, other axes as in training: attn, error, effect, low, high (95 %).

        ``study.at(length=80)``. The effect is the ratio to the baseline, or the difference of rates; NaN of the
        baseline, and where either has not learned (``numbers.not_learned``). Facets are averaged. Raises ``BadValue``
        with the tested values where there is no such cell.
        """
        study, rows = self.numbers, []
        where = study.task.pinned(study.training) | cell
        if not any(where.items() <= near.items() for near in study.cells()):
            tested = {axis: sorted({near[axis] for near in study.cells()}) for axis in study.training}
            said = "; ".join(f"{axis} {', '.join(f'{v:g}' for v in values)}" for axis, values in tested.items())
            wanted = ", ".join(f"{axis}={value:g}" for axis, value in cell.items())
            raise BadValue(f"no cell of the test grid has {wanted}; tested: {said}.")
        for name in study.grids:
            compared = name != study.baseline and not study.not_learned.keys() & {name, study.baseline}
            numbers_of = study.versus(name, study.baseline, where).shown if compared else (math.nan,) * 3
            error = fmean(study.values(name, where))
            rows.append({"attn": name, "error": error, **dict(zip(("effect", "low", "high"), numbers_of, strict=True))})
        return frame_of(rows)

    @property
    def figures(self) -> list[str]:
        """The names that ``figure`` takes."""
        return list(self._pictures)

    @checked
    def figure(self, name: str, style: str = "screen", columns: int = 0) -> Figure:
        """Draw a figure of the page, such as ``forest``, ``curves``, ``ratios`` or ``maps``.

        ``style="paper"`` draws for print (see ``icl_lab.figures.paper``), over 1 or 2 ``columns``. Raises
        ``UnknownName`` with those there are.
        """
        if name not in self._pictures:
            raise UnknownName("figure of the comparison", name, self._pictures)
        return paper.drawn(self._pictures[name].draw, style, columns)

    def __repr__(self) -> str:
        rules = ", ".join(self.numbers.grids)
        return f"<comparison of {rules}, {self.numbers.seeds} seeds: {self.verdict}; {self.folder}>"

    def _repr_html_(self) -> str:
        table = self.table()
        rows = [[str(rule), *(f"{value:.3g}" if value == value else "" for value in row)]
                for rule, row in zip(table.index, table.to_numpy(), strict=True)]  # fmt: skip
        return (
            show.paragraph(self.verdict)
            + show.table(["rule", *map(str, table.columns)], rows)
            + show.paragraph(f"{self.folder / 'report.html'}")
        )

    @cached_property
    def _pictures(self) -> dict[str, Picture]:
        return page.pictures(self.numbers, page.facts_of(by_rule([run.stored for run in self.members])))

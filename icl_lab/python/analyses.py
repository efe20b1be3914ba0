"""Questions to trained models from Python: each analysis by its name, with its own options."""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_lab.errors import BadValue, RunFailed
from icl_lab.python import command, show
from icl_lab.python.run import Run
from icl_lab.python.session import RESULTS, Folder, Here, finisher, interruptible, whole, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl_lab.analyses.frame import AnyAnalysis
    from icl_lab.grid import Grid
    from icl_lab.launch.study import Made
    from icl_lab.runs.run import Run as Stored
    from icl_lab.runs.session import Lab

Asked = Run | Sequence[Run]


@dataclass(frozen=True, repr=False, eq=False)
class Answer:
    """Result of an analysis, and the folder that it was written to."""

    question: str
    analysis: "AnyAnalysis"
    made: "Made"
    title: str

    @property
    def folder(self) -> Path:
        """The folder with the numbers, tables, figures and pages."""
        return self.made.folder

    @property
    def found(self) -> Any:
        """Result in the analysis' own form; most have labelled grids (``grids``)."""
        return self.made.found

    @property
    def grids(self) -> "Mapping[str, Grid]":
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

    def figure(self, name: str = "", style: str = "screen", columns: int = 0) -> "Figure":
        """Draws a figure, the first one unless it is named.

        ``style="paper"`` draws for print (see ``icl_lab.figures.paper``), over 1 or 2 ``columns``. Raises
        ``UnknownName`` with those there are.
        """
        from icl_lab.errors import UnknownName
        from icl_lab.figures import paper

        drawn = self._drawn()
        chosen = name or next(iter(drawn))
        if chosen not in drawn:
            raise UnknownName(f"figure of {self.question}", name, drawn)
        return paper.styled(drawn[chosen], style, columns)

    def page(self) -> show.Page:
        """Returns the page of the answer, which shows itself in a notebook."""
        name = next(name for name in (f"{self.question}.html", "report.html") if name in self.made.files)
        return show.Page(self.folder / name)

    def __repr__(self) -> str:
        return f"<{self.question}: {self.finding or self.title}; {self.folder}>"

    def __str__(self) -> str:
        return self.made.text

    def _repr_html_(self) -> str:
        if f"{self.question}.html" in self.made.files:  # a page of its own says more than its tables
            return self.page()._repr_html_()
        text = self.made.text.rpartition("Made by ")[0]
        return show.of_markdown(text) + show.paragraph(str(self.folder))

    def _drawn(self) -> "Mapping[str, Figure]":
        return self.analysis.figures(self.found, self.title)


def analyse(
    question: str,
    runs: Asked | Sequence[str] | str,
    *,
    name: str = "",
    force: bool = False,
    jobs: int = 1,
    seeds: int = 1,
    results: Folder | None = None,
    progress: bool = True,
    **options: Any,
) -> Answer:
    """Asks trained models the question of an analysis, as the command of that name does; trains what is missing.

    ``options`` are the analysis' own. One that asks rules without a model (``theory``) takes the rules' names in the
    place of runs, and ``seeds``. The answer is written to ``results``, or beside the runs.

    Raises ``LabError`` with the line that the command line prints.

    >>> import tempfile, icl_lab as icl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     answer = icl.analyse("theory", ["softmax", "ssa"], rows=20, keys=(8,), results=folder, progress=False)
    ...     sorted(answer.grids), answer.figures
    (['fading', 'rows'], ['theory'])
    """
    from icl_lab.analyses import frame, page
    from icl_lab.launch import study
    from icl_lab.launch.order import Order

    analysis = frame.build(question, {key: _option(question, key, value) for key, value in options.items()})
    stored, here = _asked(question, analysis, runs, seeds, results, progress)
    more: dict[str, str | bool] = {"name": name, "force": force}
    line = command.asks(question, analysis, stored, here.results, **more)
    order = Order(jobs=whole(jobs, "jobs", 1, 1024))
    with interruptible(here.lab(line)) as lab:
        made = study.analyse(question, analysis, stored, lab, finisher(lab, order), name=name, force=force)
    if made is None:
        raise RunFailed("the runs of the analysis are not all finished.")
    return Answer(question, made.asked, made, page.titled(analysis, stored[0].spec))


def attention(
    run: Asked,
    prompt: "Sequence[float] | str",
    *,
    function: Sequence[float] | str = "",
    name: str = "",
    force: bool = False,
    progress: bool = True,
    **options: Any,
) -> Answer:
    """Shows what every head of one or two models attends to in a prompt: a page that shows itself in a notebook.

    ``prompt`` holds numbers, or text such as ``random:sigma=10,length=20,seed=1``; ``function`` the function behind
    typed numbers, and ``options`` the rest of those of ``icl-lab attention``.

    >>> import tempfile, icl_lab as icl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = icl.sweep("linear", "ssa", "smoke", {"train.steps": 5}, results=folder, progress=False)
    ...     shown = icl.attention(run, [1, -2, 3, 70], means=0, progress=False)
    ...     shown._repr_html_()[:7], shown.page().path.name
    ('<iframe', 'attention.html')
    """
    return analyse(
        "attention", run, prompt=prompt, function=function, name=name, force=force, progress=progress, **options
    )


def question(name: str) -> Callable[..., Answer]:
    """Returns the function of an analysis, ``icl.boundary`` for the analysis ``boundary``, with its documentation."""
    from icl_lab.analyses import registry

    part: Any = registry.part(name)

    def ask(runs: Asked | Sequence[str] | str = (), **options: Any) -> Answer:
        return analyse(name, runs, **options)

    fields = "\n".join(f"    {field.name}: {field.metadata.get('help', '')}" for field in dataclasses.fields(part))
    ask.__name__ = ask.__qualname__ = name.replace("-", "_")
    ask.__doc__ = f"{part.__doc__}\n\nOptions:\n{fields}\n\nThe rest is that of ``icl.analyse``."
    return ask


def _asked(
    question: str, analysis: "AnyAnalysis", runs: object, seeds: int, results: Folder | None, progress: bool
) -> "tuple[list[Stored], Here]":
    """The stored runs that are asked, and where the answer goes."""
    if not analysis.trains:
        return _rules(analysis, runs, seeds, results, progress)
    several = list(runs) if isinstance(runs, Sequence) else [runs]
    known = [each for each in several if isinstance(each, Run)]
    if not known or len(known) < len(several):
        raise BadValue(f"{question} is asked of runs, such as icl.sweep returns, got {runs!r}.")
    lab: Lab = known[0].lab
    here = Here(
        lab.store.root if results is None else results,
        str(lab.device),
        evidence=None if lab.store.archive is not None else False,
        allow_large=lab.allow_large,
        progress=progress,
    )
    return [each.stored for each in known], here


def _rules(
    analysis: "AnyAnalysis", rules: Any, seeds: int, results: Folder | None, progress: bool
) -> "tuple[list[Stored], Here]":
    """Runs that stand for a rule and a draw: of which task and size says nothing."""
    from icl_lab import tasks
    from icl_lab.launch.wanted import placed, specified

    here = Here(RESULTS if results is None else results, "cpu", evidence=False, progress=progress)
    chosen = words(rules if rules else list(analysis.usual_rules), "rules")
    specs, tests = specified(tasks.names()[0], chosen, "smoke", (), "ours", Path(here.results))
    return placed(specs, tests, range(whole(seeds, "seeds", 1)), here.lab("").store), here


def _option(question: str, name: str, value: Any) -> Any:
    """An option as a file would hold it: numbers in the place of a text are the text that lists them."""
    from icl_lab.analyses import options, registry

    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    hint = typing.get_type_hints(registry.part(question)).get(name)
    if options.kind_of(hint) == (str, False):
        return ",".join(f"{number:.12g}" for number in value)
    return list(value)

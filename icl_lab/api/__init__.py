"""Functions of the laboratory; notebooks call them as ``icl.sweep``, and the command line calls the same ones."""

import dataclasses
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import pandas as pd

from icl_lab import analyses, normalizers, tasks
from icl_lab.api.run import Run, Runs
from icl_lab.base import outside, tables
from icl_lab.base.errors import BadValue
from icl_lab.base.files import write
from icl_lab.base.grid import frame_of, stacked
from icl_lab.base.registry import Registry
from icl_lab.execute import complete
from icl_lab.execute.announce import changed
from icl_lab.execute.arguments import Folder, Settings, checked, grid_of, rules_of, settings_of, whole
from icl_lab.execute.plan import RunPlan, stored
from icl_lab.execute.where import HERE, SEEDS, Where
from icl_lab.model.gpt2 import GPT2
from icl_lab.runs import command, presets, provenance
from icl_lab.runs.cells import grids
from icl_lab.runs.evidence.archive import own_studies
from icl_lab.runs.manifest import SPEC
from icl_lab.runs.run import Run as StoredRun
from icl_lab.runs.run import opened
from icl_lab.runs.session import Lab
from icl_lab.runs.store import Store

if TYPE_CHECKING:  # imported where they are made: a sweep needs no studies
    from icl_lab.api.answer import Answer, ExperimentReport, Judgement
    from icl_lab.api.study import Study

Part = TypeVar("Part", bound=type)
Asked = Run | Sequence[Run]


@overload
def sweep(
    task: str, attn: str, preset: str = ..., settings: Settings = ..., *, seeds: None = None, swap: str = ...,
    where: Where = ...,
) -> Run: ...  # fmt: skip
@overload
def sweep(
    task: str, attn: str | Sequence[str], preset: str = ..., settings: Settings = ..., *, seeds: int | Sequence[int],
    swap: str = ..., where: Where = ...,
) -> Runs: ...  # fmt: skip
@checked
def sweep(
    task: str,
    attn: str | Sequence[str],
    preset: str = "lite",
    settings: Settings = (),
    *,
    seeds: int | Sequence[int] | None = None,
    swap: str = "",
    where: Where = HERE,
) -> Run | Runs:
    """Train a normalizer on a task and test it over every shift: ``icl-lab sweep``, in the same results folder.

    Finished runs are read, and interrupted ones continue from their checkpoints. ``settings`` are those of ``--set``,
    as texts or as a mapping, and ``draws``: ``"paper"`` for the published test set. ``seeds=3`` asks for the training
    seeds 0 to 2 and returns them all, ``seeds=[4]`` for that one; several normalizers are returned under one another.
    ``swap`` tests the trained model with another normalizer in it. Ctrl-C keeps a checkpoint, and raises
    ``KeyboardInterrupt``.

    Raises ``LabError`` with the line that the command line prints.

    >>> import tempfile, icl_lab as icl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     where = icl.Where(results=folder, progress=False)
    ...     run = icl.sweep("linear", "ssa", "smoke", {"train.steps": 5}, where=where)
    ...     run.grid.axes, run.hash, len(run.history)
    (['sigma_x', 'sigma_f', 'length'], '0a79b5e8', 1)
    """
    plan = RunPlan(task, rules_of(attn), preset, settings_of(settings), _seeds(seeds), swap)
    runs, lab = complete.sweep(plan, where)
    shown = Runs([Run(run, lab) for run in runs if run.swap or not swap])
    return shown[0] if seeds is None and isinstance(attn, str) else shown


@checked
def compare(
    task: str,
    attns: str | Sequence[str],
    preset: str = "lite",
    settings: Settings = (),
    *,
    seeds: int = 3,
    baseline: str = "softmax",
    where: Where = HERE,
) -> "Study":
    """Compare normalizers, paired over training seeds, and train missing runs: ``icl-lab compare``.

    The setting ``{"rates": "own"}`` takes for each normalizer the best rates of its stored curve (``icl.rates``).

    Raises ``LabError`` with the line that the command line prints.

    >>> import tempfile, icl_lab as icl
    >>> small = {"train.steps": 5, "test.axes.sigma_x": 1, "test.axes.sigma_f": [1, 2], "test.axes.length": [5, 12]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     where = icl.Where(results=folder, progress=False)
    ...     study = icl.compare("linear", ["softmax", "ssa"], "smoke", small, seeds=2, where=where)
    ...     list(study.table().index)[:2], sorted(study.figures)[:2]
    (['softmax', 'ssa'], ['curves', 'forest'])
    """
    from icl_lab.api.study import Study

    return Study.of(RunPlan(task, rules_of(attns), preset, settings_of(settings), _seeds(seeds)), baseline, where)


@checked
def grid(
    task: str,
    attns: str | Sequence[str],
    preset: str = "lite",
    settings: Settings = (),
    *,
    seeds: int = 1,
    baseline: str = "",
    where: Where = HERE,
) -> pd.DataFrame:
    """Train and test every combination of settings: a setting whose value is a list has several, as ``--grid``.

    Columns: those settings, attn, seeds, summary, error (in training conditions, the mean over seeds), errors (one per
    seed), and, where a ``baseline`` is named, the effect of each other normalizer against it with the same settings:
    ``in_training`` and ``beyond`` (the summary that the task declares), each with ``_low`` and ``_high`` (95 %).

    Raises ``LabError`` with the line that the command line prints.
    """
    from icl_lab.execute import grids

    changes, lists = grid_of(settings)
    if not lists:
        raise BadValue("a grid needs a setting with a list of values, such as {'train.rate': [0.001, 0.002]}.")
    plan = RunPlan(task, rules_of(attns), preset, changes, _seeds(seeds), grid=lists)
    verb, more = ("compare", {"baseline": baseline}) if baseline else ("sweep", {})
    with where.session(plan.command(verb, where, name=where.name, **more)) as lab:
        return frame_of(grids.measure(plan, lab, where, baseline).found)


@checked
def rates(
    task: str,
    attns: str | Sequence[str],
    preset: str = "lite",
    settings: Settings = (),
    *,
    seeds: int = 2,
    factors: Sequence[float] | None = None,
    where: Where = HERE,
) -> pd.DataFrame:
    """Find the best learning rates of each normalizer, as ``icl-lab rates``; trains missing runs.

    ``factors`` multiply the recipe's rates, by default 1/4 to 8. One row per normalizer: ``best`` (a factor; NaN
    without a bracket), ``rate``, ``muon_rate``, ``low`` and ``high`` (the factors of the bracket), ``error`` at the
    best, ``sensitivity``.

    Raises ``LabError`` with the line that the command line prints.
    """
    from icl_lab.comparison.rates import rows
    from icl_lab.execute import rates as curves

    plan = curves.RatesPlan(task, rules_of(attns), preset, settings_of(settings), seeds)
    if factors is not None:
        plan = dataclasses.replace(plan, factors=factors)
    with where.session() as lab:
        study = curves.measure(plan, lab, where)
    return frame_of(rows(study.found))


@checked
def analyse(
    question: str, runs: Asked | Sequence[str] | str = (), *, seeds: int = 1, where: Where = HERE, **options: object
) -> "Answer":
    """Ask trained models the question of an analysis, as the command of that name does, and train missing runs.

    ``options`` are the analysis' own. One that asks normalizers without a model (``theory``) takes their names instead
    of runs, and ``seeds``. The answer is written to the folder of the runs unless ``where`` names a results folder.

    Raises ``LabError`` with the line that the command line prints.

    >>> import tempfile, icl_lab as icl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     where = icl.Where(results=folder, progress=False)
    ...     answer = icl.analyse("theory", ["softmax", "ssa"], where=where, rows=20, keys=(8,))
    ...     sorted(answer.grids), answer.figures
    (['fading', 'rows'], ['theory'])
    """
    from icl_lab.analyses import frame, publish
    from icl_lab.api.answer import Answer
    from icl_lab.execute import study
    from icl_lab.execute.question import command_of, option

    analysis = frame.build(question, {name: option(question, name, value) for name, value in options.items()})
    if analysis.trains:
        lab = _lab_of(question, runs)
        where, members = where.of_runs(lab), [each.stored for each in _runs(runs)]
    else:  # of which task and size a run is, that stands for a normalizer and a draw, says nothing
        where = dataclasses.replace(where, device="cpu", evidence=False)
        chosen = typing.cast(Sequence[str], runs or analysis.usual_rules)
        plan = RunPlan(tasks.names()[0], rules_of(chosen), "smoke", seeds=_seeds(seeds))
        members = plan.runs(where.store())
    with where.session(command_of(question, analysis, members, where)) as lab:
        answered = study.analyse(question, analysis, members, lab, where)
    return Answer(question, answered.asked, answered, publish.titled(analysis, members[0].spec))


@checked
def attention(
    run: Asked,
    prompt: Sequence[float] | str,
    *,
    function: Sequence[float] | str = "",
    where: Where = HERE,
    **options: object,
) -> "Answer":
    """Show what every head of one or two models attends to in a prompt: a page that shows itself in a notebook.

    ``prompt`` holds numbers, or text such as ``random:sigma=10,length=20,seed=1``; ``function`` the function behind
    typed numbers, and ``options`` the rest of those of ``icl-lab attention``.

    >>> import tempfile, icl_lab as icl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     quiet = icl.Where(results=folder, progress=False)
    ...     run = icl.sweep("linear", "ssa", "smoke", {"train.steps": 5}, where=quiet)
    ...     shown = icl.attention(run, [1, -2, 3, 70], means=0, live=0, where=quiet)
    ...     shown._repr_html_()[:7], shown.page().path.name
    ('<iframe', 'attention.html')
    """
    return analyse("attention", run, seeds=1, where=where, prompt=prompt, function=function, **options)


@checked
def experiment(
    name: str,
    preset: str = "lite",
    settings: Settings = (),
    *,
    seeds: int = 1,
    variants: Sequence[str] = (),
    overlay: bool = False,
    where: Where = HERE,
) -> "ExperimentReport":
    """Do a published table or figure again: train missing runs, and compare ours with the printed numbers.

    ``variants`` are those to run besides the baseline, by default all; ``overlay`` shows rows of doubtful columns a
    second time, moved, and says so. The files of experiments are in ``where.experiments``.
    """
    from icl_lab.api.answer import ExperimentReport
    from icl_lab.claims import study as experiment_study
    from icl_lab.execute.experiment import carry_out, chosen

    changes, number = tuple(settings_of(settings)), whole(seeds, "seeds", 1, SEEDS)
    fitting, left_out = chosen(name, preset, changes, variants, Path(where.experiments))
    said: dict[str, object] = {
        "preset": preset,
        "set": changes,
        "seeds": "" if number == 1 else number,
        "variant": list(variants),
        "experiments": "" if str(where.experiments) == "experiments" else where.experiments,
        "overlay": overlay,
        "force": where.force,
        "retrain": where.retrain,
    }
    line = command.joined("experiment", [name, *command.options(said)], where.root)
    with where.session(line) as lab:
        for text in left_out:
            lab.say(text)
        order = experiment_study.Order(Path(name).stem, preset, changes, overlay)
        # In a checkout the repository's studies are those of the folder.
        anew = where.force or where.retrain or where.evidence is False
        return ExperimentReport(name, carry_out(fitting, order, number, lab, where, anew=anew))


@checked
def judge(
    rule: str,
    *,
    seeds: int = 3,
    against: str | Sequence[str] = "softmax",
    only: str | Sequence[str] = (),
    rates: Literal["shared", "own"] = "shared",
    where: Where = HERE,
) -> "Judgement":
    """Judge a normalizer on the questions of the suite (docs/judge.md): train missing runs, return its card.

    ``against`` names baselines, ``only`` questions, or how their names begin; ``rates="own"`` takes the best of stored
    learning-rate curves.

    Raises ``LabError`` with the line that the command line prints.
    """
    from icl_lab.api.answer import Judgement
    from icl_lab.execute import judge as trials

    questions = [only] if isinstance(only, str) else only
    asked = trials.Trial(rule, rules_of(against), whole(seeds, "seeds", 1, SEEDS), questions, rates)
    with where.session() as lab:
        return Judgement(trials.judge(asked, lab, where))


@checked
def paper_report(paper: str, *, to: Folder | None = None, where: Where = HERE) -> Path:
    """Write one paper's claims as Markdown and LaTeX with a figure, and return the path of the Markdown.

    ``paper`` is ssa, ssmax, lssa or poster; ``to`` a folder, by default ``paper-NAME`` among the results' own studies.
    """
    from icl_lab.claims import experiment as experiments
    from icl_lab.claims import paper_report as paper_reports

    files = experiments.place(Path(where.experiments))
    folder = own_studies(where.root) / f"paper-{paper}" if to is None else Path(to)
    for name, content in paper_reports.written(paper, files, where.store(), where.reporter.tick).items():
        write(folder / name, content)
    return folder / "report.md"


def question(name: str) -> "Callable[..., Answer]":
    """Return the function of an analysis, ``icl.boundary`` for the analysis ``boundary``, with its documentation."""
    part: Any = analyses.registry.part(name)

    def ask(
        runs: Asked | Sequence[str] | str = (), *, seeds: int = 1, where: Where = HERE, **options: object
    ) -> "Answer":
        return analyse(name, runs, seeds=seeds, where=where, **options)

    fields = "\n".join(f"    {field.name}: {field.metadata.get('help', '')}" for field in dataclasses.fields(part))
    ask.__name__ = ask.__qualname__ = name.replace("-", "_")
    ask.__doc__ = f"{part.__doc__}\n\nOptions:\n{fields}\n\nThe rest is that of ``icl.analyse``."
    return checked(ask)


@checked
def find(name: Folder, seed: int | None = None, *, where: Where = HERE) -> Run:
    """Return a stored run by its name: ``linear/ssa/lite``, or ``linear/ssa/lite-0123abcd`` for other settings.

    It is looked for in the results folder and in the repository's evidence, by default seed 0. ``name`` may also be the
    folder of a run, such as ``icl-lab publish`` writes, which has its seed. Warns where the code of the run's parts is
    another one now. Raises ``UnknownName`` with the stored names.
    """
    return _found(name, seed, where)


@checked
def load(name: Folder, seed: int | None = None, *, where: Where = HERE) -> GPT2:
    """Return a trained model by the name or the folder of its run (see ``find``), as a torch module.

    Raises ``UnknownName`` for an unknown run, and ``RunFailed`` where its weights are not kept.
    """
    return _found(name, seed, where).model


@checked
def list_tasks() -> pd.DataFrame:
    """Return the tasks: description, formula and source of each."""
    return _entries(tasks.registry)


@checked
def list_rules() -> pd.DataFrame:
    """Return the normalizers that replace softmax, then the wrappers around one (``ssa+reweight``).

    >>> import icl_lab as icl
    >>> icl.list_rules().loc["softmax", "formula"]
    'w_j = exp(z_j) / sum_i exp(z_i)'
    """
    return _entries(normalizers.registry, normalizers.wrappers)


@checked
def list_analyses() -> pd.DataFrame:
    """Return the questions to trained models; each is a function of this package, and a command."""
    return _entries(analyses.registry)[["about", "options"]]


@checked
def list_presets() -> pd.DataFrame:
    """Return the sizes that a run comes in."""
    rows = [
        {"name": name, "layers": p.model.layers, "heads": p.model.heads, "width": p.model.width}
        | {"steps": p.train.steps, "batch": p.train.batch, "purpose": p.purpose}
        for name, p in presets.PRESETS.items()
    ]
    return frame_of(rows).set_index("name")


@checked
def list_runs(*, where: Where = HERE) -> pd.DataFrame:
    """Return the runs of a results folder and of the repository's evidence: names as ``icl.find`` takes them.

    ``code``: "same", "changed: ..." where the code of a run is another one now, "unknown" where it was not recorded.
    """
    rows = [
        {"name": run.spec.name, "seed": run.seed}
        | {"finished": run.finished, "weights": run.trained, "evidence": run.copied, "code": provenance.word(run)}
        for run in where.store().runs(where.reporter.say)
    ]
    return frame_of(rows, columns=("name", "seed", "finished", "weights", "evidence", "code"))


@checked
def cells(task: str = "", attn: str = "", preset: str = "", *, where: Where = HERE) -> pd.DataFrame:
    """Return every cell of every finished run, the user's and the repository's, in one table: ``icl-lab export --all``.

    Of a ``task``, of a normalizer and of a ``preset`` alone where they are named: all of them take minutes.

    Columns: task, attn (``one->other`` where another normalizer was tested), preset, spec, seed, model_settings,
    train_settings and test_settings (those that differ from the preset, else empty), all axes (NaN where a task has
    none of the name), metric, value, stderr, count, evidence, code. A mean over runs that differ in settings is one of
    different models: filter on them, or group by them. Warns of each run whose parts have other code now.
    """
    if preset:
        presets.named(preset)
    names = (tasks.pinned(task) if task else "", normalizers.canonical(attn) if attn else "", preset)

    def wanted(run: StoredRun) -> bool:
        labels = (run.spec.task, run.spec.attn, run.spec.preset)
        return all(name in ("", label) for name, label in zip(names, labels, strict=True))

    table = stacked(grids(where.store(), where.reporter.say, where.reporter.tick, wanted))
    for run in Store(where.root).runs(lambda reason: None):  # the evidence names its commits
        for line in changed(run, where.root) if run.finished and wanted(run) else ():
            where.reporter.last(line)
    return table


@checked
def rule(name: str) -> Callable[[Part], Part]:
    """Register a normalizer from outside, as ``icl_lab.normalizers.registry.add``; a cell may be executed again."""
    return normalizers.registry.add(name)


@checked
def task(name: str) -> Callable[[Part], Part]:
    """Register a task from outside, as ``icl_lab.tasks.registry.add`` does; a cell may be executed again."""
    return tasks.registry.add(name)


@checked
def analysis(name: str) -> Callable[[Part], Part]:
    """Register an analysis from outside, as ``icl_lab.analyses.registry.add`` does."""
    return analyses.registry.add(name)


@checked
def export(
    table: pd.DataFrame, kind: str = "latex", to: Folder | None = None, *, caption: str = "", label: str = ""
) -> str:
    """Return a table as ``latex`` (booktabs, siunitx), ``markdown`` or ``csv``, or write it to a file.

    With a ``caption`` or a ``label`` LaTeX's table is a float. ``parquet`` is binary and needs a file. Raises
    ``LabError`` on another kind.

    >>> import icl_lab as icl, pandas
    >>> print(icl.export(pandas.DataFrame({"normalizer": ["ssa"], "error": [0.5]}), "markdown"), end="")
    | normalizer | error |
    | --- | --- |
    | ssa | 0.5 |
    """
    data = tables.encode(table, kind, caption, label)
    if to is not None:
        write(Path(to), data)
        return str(to)
    if kind == "parquet":
        raise BadValue("Parquet is no text: name a file, icl.export(table, 'parquet', 'table.parquet').")
    return data.decode()


@checked
def import_parts(given: str) -> list[str]:
    """Import the parts of a module, or of a ``.py`` file or folder by its path, as ``--import``; return their names.

    Runs its code. Raises ``BadValue`` where it cannot be imported, and where it registers nothing.
    """
    source = outside.load(given)
    registries = (normalizers.registry, normalizers.wrappers, tasks.registry, analyses.registry)
    return [name for registry in registries for name in registry.brought(source)]


def _found(name: Folder, seed: int | None, where: Where) -> Run:
    folder, number = Path(name).absolute(), None if seed is None else whole(seed, "seed", 0)
    with where.session() as lab:
        if (folder / SPEC).is_file():
            run = opened(folder)
            if number not in (None, run.seed):
                raise BadValue(f"{name} holds the run of seed {run.seed}, not of {number}.")
        else:
            task, attn, size, *_ = [*str(name).strip("/").rsplit("/", 2), "", ""]
            path = not isinstance(name, str) or (Path(name).is_absolute() and folder.is_dir())
            if path or not (task and attn and size):
                form = "of the form TASK/RULE/PRESET, such as linear/ssa/lite"
                raise BadValue(f"'{name}' is not {form}, and no folder of a run, which holds a {SPEC}.")
            run = stored(task, attn, size, number or 0, lab)
        for line in changed(run, where.root):
            where.reporter.last(line)
        return Run(run, lab)


def _seeds(seeds: int | Sequence[int] | None) -> list[int]:
    if seeds is None:
        return [0]
    if isinstance(seeds, Sequence):
        return [whole(seed, "seed", 0) for seed in seeds] or _seeds(0)
    return list(range(whole(seeds, "seeds", 1, SEEDS)))


def _runs(runs: object) -> list[Run]:
    return [run for run in (runs if isinstance(runs, Sequence) else [runs]) if isinstance(run, Run)]


def _lab_of(question: str, runs: Asked | Sequence[str] | str) -> Lab:
    own = _runs(runs)
    if not own or (isinstance(runs, Sequence) and len(own) < len(runs)):
        raise BadValue(f"{question} is asked of runs, such as icl.sweep returns, got {runs!r}.")
    return own[0].lab


def _entries(*registries: Registry) -> pd.DataFrame:
    rows: list[dict[str, Any]] = [
        {"name": entry.name, "about": entry.line, "options": ", ".join(registry.options(entry.name))}
        | {"formula": entry.formula, "paper": entry.paper}
        for registry in registries
        for entry in registry.entries()
    ]
    return frame_of(rows).set_index("name")

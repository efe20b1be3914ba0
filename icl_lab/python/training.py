"""Train and test, compare, find what is stored: what the commands of these names do, from Python."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, overload

from icl_lab.errors import BadValue, RunFailed, UnknownName
from icl_lab.python.run import Run, Runs
from icl_lab.python.session import RESULTS, Folder, Here, complete, finisher, interruptible, settings_of, whole, words
from icl_lab.python.study import Study

if TYPE_CHECKING:
    from icl_lab.model.gpt2 import GPT2
    from icl_lab.runs.run import Run as Stored
    from icl_lab.runs.session import Lab

Settings = Sequence[str] | Mapping[str, object]
SEEDS = 10_000


@overload
def sweep(
    task: str,
    attn: str,
    preset: str = "lite",
    settings: Settings = (),
    *,
    seed: int = 0,
    seeds: None = None,
    swap: str = "",
    draws: str = "ours",
    jobs: int = 1,
    force: bool = False,
    results: Folder = RESULTS,
    device: str = "auto",
    threads: int | None = None,
    evidence: bool | None = None,
    allow_large: bool = False,
    progress: bool = True,
) -> Run: ...
@overload
def sweep(
    task: str,
    attn: str,
    preset: str = "lite",
    settings: Settings = (),
    *,
    seeds: int,
    swap: str = "",
    draws: str = "ours",
    jobs: int = 1,
    force: bool = False,
    results: Folder = RESULTS,
    device: str = "auto",
    threads: int | None = None,
    evidence: bool | None = None,
    allow_large: bool = False,
    progress: bool = True,
) -> Runs: ...
def sweep(
    task: str,
    attn: str,
    preset: str = "lite",
    settings: Settings = (),
    *,
    seed: int = 0,
    seeds: int | None = None,
    swap: str = "",
    draws: str = "ours",
    jobs: int = 1,
    force: bool = False,
    results: Folder = RESULTS,
    device: str = "auto",
    threads: int | None = None,
    evidence: bool | None = None,
    allow_large: bool = False,
    progress: bool = True,
) -> Run | Runs:
    """Trains a rule on a task and tests it over every shift: ``icl-lab sweep``, in the same results folder.

    What is finished is read, and what was interrupted goes on from its checkpoint. ``settings`` are those of ``--set``,
    as texts or as a mapping; ``seeds=3`` asks for the training seeds 0 to 2 and returns them all, ``seed`` for one.
    ``swap`` tests the trained model with another rule in it. Ctrl-C keeps a checkpoint, and raises
    ``KeyboardInterrupt``.

    Raises ``LabError`` with the line that the command line prints.

    >>> import tempfile, icl_lab as icl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = icl.sweep("linear", "ssa", "smoke", {"train.steps": 5}, results=folder, progress=False)
    ...     run.grid.axes, run.hash, len(run.history)
    (['sigma_x', 'sigma_f', 'length'], '0a79b5e8', 1)
    """
    from icl_lab.launch.order import Order
    from icl_lab.launch.wanted import placed, specified
    from icl_lab.runs import command

    if not isinstance(attn, str):
        raise BadValue(f"attn is one rule, got {attn!r}; icl.compare takes several.")
    chosen = [whole(seed, "seed", 0)] if seeds is None else list(range(whole(seeds, "seeds", 1, SEEDS)))
    typed = settings_of(settings)
    here = Here(results, device, threads, evidence, allow_large, progress)
    specs, rules = specified(task, [attn], preset, typed, draws, Path(results), swap)
    said: dict[str, str | bool] = {"swap": swap, "draws": "" if draws == "ours" else draws, "force": force}
    line = command.trains("sweep", task, [attn], preset, typed, max(chosen) + 1, results, **said)
    with interruptible(here.lab(line)) as lab:
        runs = placed(specs, rules, chosen, lab.store)
        complete(runs, lab, Order(jobs=whole(jobs, "jobs", 1, 1024), force=force))
    shown = Runs([Run(run, lab) for run in runs if run.swap or not swap])
    return shown[0] if seeds is None else shown


def compare(
    task: str,
    attns: Sequence[str],
    preset: str = "lite",
    settings: Settings = (),
    *,
    seeds: int = 3,
    baseline: str = "softmax",
    beside: Sequence[Folder] = (),
    draws: str = "ours",
    name: str = "",
    jobs: int = 1,
    force: bool = False,
    results: Folder = RESULTS,
    device: str = "auto",
    threads: int | None = None,
    evidence: bool | None = None,
    allow_large: bool = False,
    progress: bool = True,
) -> Study:
    """Compares rules, paired over training seeds, and trains what is missing: ``icl-lab compare``.

    ``beside`` are folders of ``icl-lab prompted``, whose models become lines of the table and of the curves.

    Raises ``LabError`` with the line that the command line prints.

    >>> import tempfile, icl_lab as icl
    >>> small = {"train.steps": 5, "test.axes.sigma_x": 1, "test.axes.sigma_f": [1, 2], "test.axes.length": [5, 12]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     study = icl.compare(
    ...         "linear", ["softmax", "ssa"], "smoke", small, seeds=2, results=folder, progress=False
    ...     )
    ...     list(study.table().index)[:2], sorted(study.figures)[:2]
    (['softmax', 'ssa'], ['curves', 'forest'])
    """
    from icl_lab.launch import study
    from icl_lab.launch.order import Order
    from icl_lab.launch.wanted import placed, specified
    from icl_lab.runs import command

    rules, typed = words(attns, "attns"), settings_of(settings)
    here = Here(results, device, threads, evidence, allow_large, progress)
    specs, tests = specified(task, rules, preset, typed, draws, Path(results))
    places = [Path(folder) for folder in ([beside] if isinstance(beside, str | PathLike) else beside)]
    said: dict[str, str | bool | list[str]] = {
        "baseline": "" if baseline == "softmax" else baseline,
        "draws": "" if draws == "ours" else draws,
    }
    said |= {"beside": list(map(str, places)), "name": name, "force": force}
    line = command.trains("compare", task, rules, preset, typed, whole(seeds, "seeds", 1, SEEDS), results, **said)
    order = Order(jobs=whole(jobs, "jobs", 1, 1024), force=force)
    with interruptible(here.lab(line)) as lab:
        runs = placed(specs, tests, range(seeds), lab.store)
        made = study.compare(runs, lab, baseline, finisher(lab, order), name=name, force=force, beside=places)
    if made is None:  # of an order without shards and rehearsals all runs are finished
        raise RunFailed("the runs of the comparison are not all finished.")
    return Study(made, [Run(run, lab) for run in runs])


def find(name: str, seed: int = 0, *, results: Folder = RESULTS, device: str = "auto") -> Run:
    """Returns a stored run by its name: ``linear/ssa/lite``, or ``linear/ssa/lite-0123abcd`` for other settings.

    It is looked for in the results folder and in the repository's evidence. Raises ``UnknownName`` with what is there.
    """
    lab = Here(results, device, progress=False).lab("")
    task, attn, size, *_ = [*name.strip("/").rsplit("/", 2), "", ""]
    if not (task and attn and size):
        raise BadValue(f"'{name}' is not of the form TASK/RULE/PRESET, such as linear/ssa/lite.")
    return Run(_stored(task, attn, size, whole(seed, "seed", 0), lab), lab)


def load(name: str, seed: int = 0, *, results: Folder = RESULTS, device: str = "auto") -> "GPT2":
    """Returns a trained model by the name of its run (see ``find``), as a torch module.

    Raises ``UnknownName`` where there is no such run, and ``RunFailed`` where its weights are not kept.
    """
    return find(name, seed, results=results, device=device).model


def _stored(task: str, attn: str, size: str, seed: int, lab: "Lab") -> "Stored":
    """The run of that name; where it names no hash, that of the preset as it is, or the only other one there is."""
    from icl_lab import normalizers, tasks
    from icl_lab.runs import presets
    from icl_lab.runs.spec import resolve

    preset, _, digits = size.partition("-")
    presets.named(preset)
    asked = (tasks.pinned(task), normalizers.canonical(attn), preset, seed)
    there = [
        run for run in lab.store.runs(lab.say) if (run.spec.task, run.spec.attn, run.spec.preset, run.seed) == asked
    ]
    chosen = digits or resolve(task, attn, preset).hash
    found = [run for run in there if run.spec.hash == chosen] or ([] if digits or len(there) > 1 else there)
    if not found:
        known = {run.spec.name for run in lab.store.runs(lab.say)}
        same = {each for each in known if each.startswith(f"{asked[0]}/{asked[1]}/")}
        near = same or {each for each in known if each.startswith(f"{asked[0]}/")} or known
        raise UnknownName("stored run", f"{task}/{attn}/{size}, seed {seed}", near)
    return found[0]

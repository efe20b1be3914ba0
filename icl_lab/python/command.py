"""What one would type on the command line for the same."""

import dataclasses
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from icl_lab.python.session import RESULTS, Folder

if TYPE_CHECKING:
    from icl_lab.analyses.frame import Analysis
    from icl_lab.runs.run import Run


def trains(
    verb: str,
    task: str,
    attns: Sequence[str],
    preset: str,
    settings: Sequence[str],
    seeds: int,
    results: Folder,
    **more: str | bool,
) -> str:
    """Returns the command that trains: ``icl-lab sweep --task linear --attn ssa --preset smoke``."""
    words = ["--task", task, *(word for attn in attns for word in ("--attn", attn)), "--preset", preset]
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--seeds", str(seeds)] if seeds > 1 else []
    return _joined(verb, [*words, *_options(more), *_place(results)])


def repeats(run: "Run", results: Folder) -> str:
    """Returns the command that makes a run again, whatever made it."""
    from icl_lab.runs.changes import differences

    spec = run.spec
    more = {"swap": run.swap, "draws": spec.test.draws if spec.test.draws != "ours" else ""}
    return trains("sweep", spec.task, [spec.attn], spec.preset, differences(spec), run.seed + 1, results, **more)


def asks(question: str, analysis: "Analysis", runs: Sequence["Run"], results: Folder, **more: str | bool) -> str:
    """Returns the command that asks models, or rules without one, the question of an analysis."""
    words: list[str] = []
    if analysis.trains:
        words += [word for run in runs for word in ("--run", str(run.folder))]
    else:
        words += [word for rule in dict.fromkeys(run.spec.attn for run in runs) for word in ("--attn", rule)]
        seeds = len({run.seed for run in runs})
        words += ["--seeds", str(seeds)] if seeds > 1 else []
    for field in dataclasses.fields(analysis):  # type: ignore[arg-type]
        value = getattr(analysis, field.name)
        if value == field.default:
            continue
        if value is False:  # of an option that is on unless one says otherwise
            words.append(f"--no-{field.name.replace('_', '-')}")
        else:
            told = ",".join(f"{each:.12g}" for each in value) if isinstance(value, tuple) else value
            words += _options({field.name: told})
    return _joined(question, [*words, *_options(more), *_place(results)])


def _options(values: dict[str, Any]) -> list[str]:
    words = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] if value else []
        elif value not in ("", None):
            text = str(value)
            words += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return words


def _place(results: Folder) -> list[str]:
    return [] if str(results) == RESULTS else ["--results", str(results)]


def _joined(name: str, words: Sequence[str]) -> str:
    return shlex.join(["icl-lab", name, *words])

"""Command line of a call from Python."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from icl_lab.python.session import Folder

if TYPE_CHECKING:
    from icl_lab.analyses.frame import AnyAnalysis
    from icl_lab.runs.run import Run


def asks(question: str, analysis: "AnyAnalysis", runs: Sequence["Run"], results: Folder, **more: str | bool) -> str:
    """Returns the command that asks models, or rules without one, the question of an analysis."""
    from icl_lab.runs import command

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
            words += command.options({field.name: told})
    return command.joined(question, [*words, *command.options(more)], results)

"""A call of an analysis: its options as a file would hold them, and the command line that does the same."""

import dataclasses
import typing
from collections.abc import Sequence

from icl_lab.analyses import frame, registry
from icl_lab.analyses.frame import AnyAnalysis
from icl_lab.execute.where import Where
from icl_lab.runs import command
from icl_lab.runs.run import Run


def option(question: str, name: str, value: object) -> object:
    """Return an option as a file would hold it: numbers in the place of a text are the text that lists them."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    hint = typing.get_type_hints(registry.part(question)).get(name)
    if frame.kind_of(hint) == (str, False):
        return ",".join(f"{number:.12g}" for number in value)
    return list(value)


def command_of(question: str, analysis: AnyAnalysis, runs: Sequence[Run], where: Where) -> str:
    """Return the command that asks models, or normalizers without one, the question of an analysis."""
    words: list[str] = []
    if analysis.trains:
        words += [word for run in runs for word in ("--run", str(run.folder))]
    else:
        words += [word for attn in dict.fromkeys(run.spec.attn for run in runs) for word in ("--attn", attn)]
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
    more = command.options({"name": where.name, "force": where.force, "retrain": where.retrain})
    return command.joined(question, [*words, *more], where.root)

"""Command line that trains a run, and the settings in which a run is not its preset."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from icl_lab.base.errors import LabError
from icl_lab.base.grid import SETTINGS
from icl_lab.base.option_values import write
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec, preset_spec

RESULTS = "results"  # the folder of a command that names none
Folder = str | PathLike[str]


def trains(
    verb: str,
    task: str,
    attns: Sequence[str],
    preset: str,
    settings: Sequence[str],
    seeds: int,
    results: Folder = RESULTS,
    **more: str | bool | Sequence[str],
) -> str:
    """Return the command that trains: ``icl-lab sweep --task linear --attn ssa --preset smoke``."""
    words = ["--task", task, *(["--attn", " ".join(attns)] if attns else []), "--preset", preset]
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--seeds", str(seeds)] if seeds > 1 else []
    return joined(verb, [*words, *options(more)], results)


def repeats(run: Run, results: Folder = RESULTS, *, anew: bool = False) -> str:
    """Return the command that makes a run again (and the seeds before it), whatever made it.

    With ``anew`` it trains this run alone, though it is there.
    """
    spec, seeds = run.spec, 1 if anew else run.seed + 1
    more: dict[str, str | bool] = {"swap": run.swap, "draws": spec.test.draws if spec.test.draws != "ours" else ""}
    more |= {"seed": str(run.seed), "retrain": True} if anew else {}
    # Of a part that is not here nobody can say what differs.
    settings = [field for field in differences(spec) if not field.startswith("(")]
    return trains("sweep", spec.task, [spec.attn], spec.preset, settings, seeds, results, **more)


def differences(spec: RunSpec) -> list[str]:
    """Return the fields in which a run is not its preset, as ``--set`` takes them."""
    try:
        usual = preset_spec(spec.task, spec.attn, spec.preset, spec.test.draws)
    except LabError as reason:  # a part that is not here
        return [f"({reason})"]
    return list(different(spec.whole(), usual.whole()))


def settings(spec: RunSpec) -> dict[str, str]:
    """Return the settings that differ from the preset, by the columns ``SETTINGS`` of a table; else empty texts.

    Two specifications with the same task, normalizer and preset differ in one of them. Those of an unknown task or
    preset are identified by their hash.
    """
    try:
        usual = preset_spec(spec.task, "softmax", spec.preset).whole()  # no normalizer changes a preset
    except LabError:
        return dict.fromkeys(SETTINGS, f"(unknown, {spec.hash})")
    parts = spec.whole()
    return {
        column: " ".join(different(parts[group], usual[group], f"{group}."))
        for column, group in zip(SETTINGS, ("model", "train", "test"), strict=True)
    }


def options(values: Mapping[str, Any]) -> list[str]:
    """Return the words of options by name: of a flag its name alone, of one that is not given nothing.

    >>> options({"force": True, "name": "", "variant": ["a", "b"]})
    ['--force', '--variant', 'a', '--variant', 'b']
    """
    words: list[str] = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] if value else []
        elif isinstance(value, list | tuple):
            words += [word for each in value for word in options({name: each})]
        elif value not in ("", None):
            text = str(value)
            words += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return words


def joined(verb: str, words: Sequence[str], results: Folder = RESULTS) -> str:
    """Return a command as a shell takes it."""
    place = [] if str(results) == RESULTS else ["--results", str(results)]
    return shlex.join(["icl-lab", verb, *words, *place])


def different(ours: Mapping[str, Any], usual: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the fields whose values are not the usual ones, as ``--set`` takes them."""
    for name, value in ours.items():
        if isinstance(value, dict) and name != "shift":
            yield from different(value, usual.get(name, {}), f"{path}{name}.")
        elif value != usual.get(name):
            yield f"{path}{name}={write(value)}"

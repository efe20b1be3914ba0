"""Runs of several training seeds, grouped by their normalizer."""

from collections.abc import Sequence

from icl_lab.runs.run import Run


def by_rule(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Groups runs by their normalizer, in order of appearance."""
    names = dict.fromkeys(run.name for run in runs)
    return {name: [run for run in runs if run.name == name] for name in names}

"""Entry of ``list experiments``: title, cost at each preset, and what is finished."""

from icl_lab.errors import BadValue
from icl_lab.papers.schema import Experiment
from icl_lab.runs import size
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.store import Store


def card(name: str, experiment: Experiment, store: Store) -> list[str]:
    """The lines of one experiment for ``list``: what it is, its cost at each preset, and what is finished."""
    lines, question = [name, f"    {experiment.title}", f"    {experiment.paper}"], experiment.question()
    if question is not None and not question.trains:
        return [*lines, "    trains nothing: rules are asked without a model"]
    for preset in PRESETS:
        try:
            finished, count, operations = state(experiment, store, preset)
        except BadValue as reason:  # not every variant fits every size
            lines.append(f"    {preset:6} not at this size: {reason}")
            continue
        lines.append(f"    {preset:6} {finished} of {count} runs finished, {operations:.0e} operations a seed of all")
    return lines


def state(experiment: Experiment, store: Store, preset: str) -> tuple[int, int, float]:
    """Returns how many variants have a finished run, how many there are, and the operations of one seed of all."""
    finished, operations = 0, 0.0
    for variant in experiment.variants:
        spec = experiment.spec(variant, preset)
        finished += store.run(spec, 0, variant.tested_with).finished
        operations += size.trained(spec) + size.tested(spec)
    return finished, len(experiment.variants), operations

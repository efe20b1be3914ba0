"""Difference of a specification from its preset, as ``--set`` would be typed."""

from collections.abc import Iterator
from typing import Any

from icl_lab.errors import LabError
from icl_lab.option_values import write
from icl_lab.runs.spec import RunSpec, resolve


def differences(spec: RunSpec) -> list[str]:
    """Returns the fields in which a run is not its preset, as ``--set`` takes them."""
    try:
        usual = resolve(spec.task, spec.attn, spec.preset, draws=spec.test.draws)
    except LabError as reason:  # a rule that does not fit the preset as it is
        return [f"({reason})"]
    return list(_different(spec.whole(), usual.whole()))


def _different(ours: dict[str, Any], usual: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, value in ours.items():
        if isinstance(value, dict) and name != "shift":
            yield from _different(value, usual.get(name, {}), f"{path}{name}.")
        elif value != usual.get(name):
            yield f"{path}{name}={write(value)}"

"""From names to runs: every one resolved and checked before the first begins."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from icl_lab.errors import UnknownName

if TYPE_CHECKING:
    from icl_lab.runs.run import Run
    from icl_lab.runs.spec import RunSpec
    from icl_lab.runs.store import Store


def specified(
    task: str,
    attns: Sequence[str],
    preset: str,
    settings: Sequence[str],
    draws: str,
    results: Path,
    swap: str = "",
) -> tuple[list["RunSpec"], list[str]]:
    """Returns the specification of each rule, once, and the tests of each model: with its own rule, and with ``swap``.

    Raises ``LabError`` on what is not known or does not fit; it names the import of a run in ``results`` that had it.
    """
    from icl_lab.runs import environment
    from icl_lab.runs.spec import check_swap, resolve

    try:
        # The other rule must fit the model as well, and is called by its one spelling.
        rules = ["", resolve(task, swap, preset, settings, draws).attn] if swap else [""]
        specs = {spec.hash: spec for spec in (resolve(task, attn, preset, settings, draws) for attn in attns)}
    except UnknownName as error:
        raise environment.explain_missing(error, results) from None
    for spec in specs.values():
        check_swap(spec, swap)
    return list(specs.values()), rules


def placed(specs: Iterable["RunSpec"], rules: Sequence[str], seeds: Sequence[int], store: "Store") -> list["Run"]:
    """Returns the runs of these specifications in a store, there or not."""
    return [store.run(spec, seed, rule) for spec in specs for seed in seeds for rule in rules]

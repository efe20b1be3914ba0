"""From the words of a command to finished runs: what the commands that train have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from icl_lab.cli.board import Board
from icl_lab.cli.options import catch_signals, typed
from icl_lab.cli.output import out
from icl_lab.cli.progress import Bar, say
from icl_lab.errors import BadValue
from icl_lab.launch import complete as launching
from icl_lab.launch import order
from icl_lab.launch.complete import tell_evidence
from icl_lab.launch.wanted import placed, specified

if TYPE_CHECKING:
    from icl_lab.runs.run import Run
    from icl_lab.runs.session import Lab


def resolve_runs(
    task: str,
    attns: Sequence[str],
    seeds: int,
    preset: str,
    settings: Sequence[str],
    draws: str,
    results: Path,
    device: str,
    threads: int | None,
    swap: str = "",
    evidence: bool | None = None,
    allow_large: bool = False,
) -> tuple[list["Run"], "Lab"]:
    """Resolves and checks every run before the first begins; with ``swap`` also its test with that rule."""
    specs, rules = specified(task, attns, preset, settings, draws, results, swap)
    lab = laboratory(results, device, threads, evidence, allow_large)
    return placed(specs, rules, range(seeds), lab.store), lab


def models(
    places: Sequence[Path], task: str, attns: Sequence[str], seeds: int, draws: str = "ours", **where: Any
) -> tuple[list["Run"], "Lab"]:
    """Returns the runs in these folders, or else those of a task and its rules, trained or not.

    Raises ``UnknownName`` where a folder holds no run, and ``UsageError`` where nothing is named.
    """
    if not places:
        if not (task and attns):
            raise click.UsageError("name the models: --task and --attn, or --run with the folder of a run.")
        runs, lab = resolve_runs(task, attns, seeds, draws=draws, **where)
    else:
        names = ("results", "device", "threads", "evidence", "allow_large")
        lab = laboratory(**{name: where[name] for name in names if name in where})
        runs = [lab.store.at(place) for place in places]
    tell_evidence([run for run in runs if run.trained], say)
    return runs, lab


def laboratory(
    results: Path, device: str, threads: int | None, evidence: bool | None = None, allow_large: bool = False
) -> "Lab":
    """Returns the laboratory that a command works in, its progress on standard error.

    The repository's runs stand in for those that the folder lacks, unless ``evidence`` is False.
    """
    import torch

    from icl_lab.evidence.archive import Archive
    from icl_lab.runs import environment
    from icl_lab.runs.session import Lab
    from icl_lab.runs.store import Store

    if threads is not None:
        torch.set_num_threads(threads)
    here = environment.device(device)
    archive = None if evidence is False else Archive.find()
    return Lab(Store(results, archive), here, say, Bar(), catch_signals(), typed(), allow_large)


@dataclass(frozen=True)
class Order(order.Order):
    """An order as it was typed: what does not go together is said with the usage of the command."""

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except BadValue as error:
            raise click.UsageError(str(error)) from None


def complete(
    runs: Sequence["Run"],
    lab: "Lab",
    order: Order,
    *,
    after: Callable[["Run", bool], object] = lambda run, already: None,
    tested: bool = True,
) -> bool:
    """Finishes the runs of this shard as ``icl_lab.launch.complete`` does, seen on this terminal."""
    return launching.complete(runs, lab, order, board=Board, out=out, after=after, tested=tested)

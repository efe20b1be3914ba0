"""The experiments of a folder: read by their names and checked, and the part of one that is asked for."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from icl_lab import tasks
from icl_lab.base.errors import BadValue, LabError, UnknownName
from icl_lab.base.registry import require
from icl_lab.claims import printed, registration
from icl_lab.claims.files import decoded, path_of
from icl_lab.claims.files import names as names
from icl_lab.claims.files import place as place
from icl_lab.claims.schema import PRINTED, Claim, Experiment, Quantity
from icl_lab.runs import estimate
from icl_lab.runs.presets import PRESETS
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Store

if TYPE_CHECKING:
    from icl_lab.analyses.frame import AnyAnalysis

MOST = 10_000  # cells of one quantity: whole test grids have some hundreds


def fitting(
    made: Experiment, preset: str, settings: Sequence[str] = (), curves: Store | None = None
) -> tuple[Experiment, list[str]]:
    """Return the experiment without the variants that do not fit a preset, and why each does not.

    Claims about them are left out with them. Raises ``BadValue`` where the baseline does not fit. With a store of
    ``curves`` variants whose own rates it lacks are left out too: all, where the baseline is one of them.
    """
    reasons = {}
    for variant in made.variants:
        try:
            spec = made.spec(variant, preset, settings)
        except BadValue as reason:
            if variant.name == made.baseline:
                raise
            reasons[variant.name] = str(reason)
            continue
        if curves is not None:
            try:
                _at_rates(made, spec, curves)
            except BadValue as reason:
                reasons[variant.name] = str(reason)
    left_out = {each.name for each in made.variants} if made.baseline in reasons else reasons.keys()
    return _without(made, left_out), [f"left out at {preset}: {name} ({reason})" for name, reason in reasons.items()]


def specs(made: Experiment, store: Store, preset: str, settings: Sequence[str] = ()) -> dict[str, RunSpec]:
    """Return the specification of each variant, at its own rates where the experiment asks for them.

    Raises ``BadValue`` with the command that makes a learning-rate curve, where it is not stored.
    """
    found = {variant.name: made.spec(variant, preset, settings) for variant in made.variants}
    return {name: _at_rates(made, spec, store) for name, spec in found.items()}


def _at_rates(made: Experiment, spec: RunSpec, store: Store) -> RunSpec:
    if made.rates == "shared":
        return spec
    from icl_lab.comparison import rates  # takes long, and few experiments need a curve

    return rates.own([spec], store)[0]


def only(made: Experiment, wanted: Collection[str]) -> Experiment:
    """Return the experiment with these variants and its baseline, and without the claims about the others.

    Raises ``UnknownName`` for an unknown variant.
    """
    names = [variant.name for variant in made.variants]
    for name in wanted:
        if name not in names:
            raise UnknownName("variant", name, names)
    return _without(made, set(names) - {*wanted, made.baseline})


def _without(made: Experiment, names: Collection[str]) -> Experiment:
    """The experiment without variants of these names, and without the claims about them."""
    remaining = [variant for variant in made.variants if variant.name not in names]
    of = [{side.of.removeprefix(PRINTED) for side in (claim.left, claim.right)} for claim in made.claims]
    claims = [claim for claim, sides in zip(made.claims, of, strict=True) if sides.isdisjoint(names)]
    return msgspec.structs.replace(made, variants=remaining, claims=claims)


def read(name: str, folder: Path) -> Experiment:
    """Read an experiment by its name in ``folder``, or by the path of a file, without a look at its parts.

    Raises ``UnknownName`` with what exists, and ``BadValue`` with the field where a file is wrong.
    """
    path, (made, data) = path_of(name, folder), decoded(name, folder, Experiment)
    times = registration.read(path.parent)
    if any(experiment == path.stem for experiment, _ in times):
        digests = zip(made.claims, registration.digests(msgspec.to_builtins(made)), strict=True)
        known = {claim.statement: times[path.stem, digest] for claim, digest in digests if (path.stem, digest) in times}
        made = msgspec.structs.replace(made, registered=known)
    return msgspec.structs.replace(made, name=path.stem, sha256=hashlib.sha256(data).hexdigest())


def load(name: str, folder: Path) -> Experiment:
    """Read an experiment and check it: its analysis, the variants, axes and printed numbers that its claims name.

    Raises ``UnknownName`` with what exists, and ``BadValue`` with the field where a file is wrong.
    """
    path, made = path_of(name, folder), read(name, folder)
    names_of = [variant.name for variant in made.variants]
    try:
        question = made.question()
    except LabError as error:
        raise BadValue(f"{path}: {error}") from None
    known = names_of if question is None else list(question.subjects(names_of))  # what a claim may be about
    require(len(set(names_of)) == len(names_of), f"{path}: each variant has a name of its own", names_of)
    for variant in made.variants:
        same = not variant.task or type(tasks.build(variant.task)) is type(tasks.build(made.task))
        require(same, f"{path}: {variant.name}: task is {made.task} with other options", variant.task)
    axes = _axes(made.task, question)
    for claim in made.claims:
        for preset in claim.suggested_by:
            if preset not in PRESETS:
                raise UnknownName(f"preset of {path.name}", preset, PRESETS)
        for side in (claim.left, claim.right):
            _check_cells(side.cells, axes, f"{path.name}: {claim.statement}")
            if question is None and side.of.startswith(PRINTED):
                printed.numbers(made, side)  # a number that is not printed is said here
            elif side.of not in known and not side.of.startswith("reference:"):
                raise UnknownName(f"variant of {path.name}", side.of, known)
            elif question is None and side.of.startswith("reference:") and side.constant is None:
                _beside(made, claim, side, path.name)
    if made.baseline not in names_of:
        raise UnknownName(f"variant of {path.name}", made.baseline, names_of)
    return made


def _beside(experiment: Experiment, claim: Claim, side: Quantity, file: str) -> None:
    """Raise ``BadValue`` where grids lack a reference in the metric of a claim: it could never be judged.

    With the papers' draws references have every metric.
    """
    task = tasks.build(experiment.task)
    stored, metric = task.metrics_of_references, claim.metric or task.headline
    if experiment.draws == "ours" and metric not in stored:
        raise BadValue(f"{file}: {claim.statement}: grids hold '{side.of}' in {', '.join(stored)}, not in {metric}.")


def _axes(task: str, analysis: "AnyAnalysis | None") -> set[str]:
    """Return the axes of the numbers that claims are about: of the test grid, or of what an analysis measures."""
    shifts = set(tasks.build(task).axes["full"])
    if analysis is None:
        return shifts
    from icl_lab.analyses.frame import SHIFTS

    named = {axis for grid in analysis.grids.values() for axis in grid}
    return named - {SHIFTS} | (shifts if SHIFTS in named else set())


def _check_cells(cells: Mapping[str, Sequence[float]], known: set[str], where: str) -> None:
    """Raise ``UnknownName`` on an axis that is none of ``known``, ``BadValue`` unless values are finite, each once."""
    for axis, values in cells.items():
        if axis not in known:
            raise UnknownName("axis", axis, known, f"({where})")
        if not values or not all(map(math.isfinite, values)):
            raise BadValue(f"{where}: the values of {axis} are one or more finite numbers, got {values}.")
        if len(set(values)) < len(values):
            raise BadValue(f"{where}: each value of {axis} is named once, got {values}.")
    if (count := math.prod(map(len, cells.values()))) > MOST:
        raise BadValue(f"{where}: {count:,} cells are more than the {MOST:,} that a claim may be about.")


def card(name: str, experiment: Experiment, store: Store) -> list[str]:
    """The lines of one experiment for ``list``: what it is, its cost at each preset, and what is finished."""
    lines, question = [name, f"    {experiment.title}", f"    {experiment.paper}"], experiment.question()
    if question is not None and not question.trains:
        return [*lines, "    trains nothing: normalizers are asked without a model"]
    for preset in PRESETS:
        try:
            finished, count, operations = state(experiment, store, preset)
        except BadValue as reason:  # not every variant fits every size
            lines.append(f"    {preset:6} not at this size: {reason}")
            continue
        lines.append(f"    {preset:6} {finished} of {count} runs finished, {operations:.0e} operations a seed of all")
    return lines


def state(experiment: Experiment, store: Store, preset: str) -> tuple[int, int, float]:
    """Return how many variants have a finished run, how many there are, and the operations of one seed of all."""
    finished, operations = 0, 0.0
    found = specs(experiment, store, preset)
    for variant in experiment.variants:
        spec = found[variant.name]
        finished += store.run(spec, 0, variant.tested_with).finished
        operations += estimate.training_operations(spec) + estimate.test_operations(spec)
    return finished, len(experiment.variants), operations

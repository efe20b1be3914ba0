"""A published table or figure as a file: which runs, which analysis, what was claimed, and what was printed."""

import hashlib
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

import icl_lab
from icl_lab import analyses, normalizers, tasks
from icl_lab.analyses import frame
from icl_lab.comparison.sequential import Relation
from icl_lab.errors import BadValue, LabError, UnknownName
from icl_lab.papers import cells, printed
from icl_lab.papers.printed import Printed
from icl_lab.registry import require
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec, check_swap, resolve

# In a wheel they lie inside the package (see pyproject.toml), in the repository beside it.
SHIPPED = [place / "experiments" for place in Path(icl_lab.__file__).parents[:2]]
COMPARE = "compare"  # the grids of finished runs, without a further analysis
PROMPTED = "prompted:"  # before the name of a language model that was asked by its prompts
BYTES = 1_000_000  # of a file
# What pictures take for mathematics, tables for code or a new cell, is no part of a name.
Name = Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[^`$\\|<>\x00-\x1f\x7f]+$")]
Settings = Annotated[list[str], Meta(max_length=100)]
Cells = dict[str, list[float]]  # an axis -> its values; every combination is a cell, other axes as in training


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row: a normalizer, and fields that differ from the preset. ``printed`` names its row in the printed table.

    With ``swap`` that rule stands in the trained model when it is tested. ``printed_where`` names further labels of the
    printed row, which stand above those of the table.
    """

    name: Name
    attn: str
    set: Settings = []
    swap: str = ""
    printed: str = ""
    printed_where: dict[str, str] = {}


class Quantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The error of a variant (or ``reference:...``) over cells: the mean, or the mean logarithm for ratios.

    ``printed:NAME`` is what the paper prints for that variant; its cells name the printed axis and no other.
    ``prompted:MODEL`` is a language model that was asked by ``icl-lab prompted``, the same beside every seed.
    """

    of: str
    cells: Cells = {}


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence that says that one quantity is below another, above it, equal to it, or not below or above it.

    ``margin`` is the difference (a ratio above 1 where ratios are compared) that counts as none, with its reason in
    ``because``. A model that has not learned its task is not judged far from training, unless ``ungated`` says why.
    """

    statement: str
    where: str
    left: Quantity
    is_: Relation = msgspec.field(name="is")
    right: Quantity
    published: str = ""
    scale: str = ""
    metric: str = ""  # the analysis' own, unless named
    margin: float | None = None
    because: str = ""
    ungated: str = ""

    def __post_init__(self) -> None:
        if self.margin is not None and not (0 < self.margin < math.inf):
            raise ValueError(f"margin must be finite and > 0, got {self.margin:g}")
        if (self.margin is None) != (not self.because):
            raise ValueError("margin and because (its reason) go together")


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one file says.

    ``analysis`` names what the claims are read from: ``compare`` for the grids of the runs themselves, or an analysis
    of ``icl_lab.analyses``, whose own options stand under ``[options]``.
    """

    title: str
    paper: str
    task: str
    baseline: str
    variants: Annotated[list[Variant], Meta(max_length=200)]
    claims: Annotated[list[Claim], Meta(max_length=500)]
    conditions: str
    analysis: str = COMPARE
    options: dict[str, Any] = {}
    draws: Literal["ours", "paper"] = "ours"
    set: Settings = []
    printed: Printed | None = None
    sha256: str = ""  # of the file, as it was read

    def spec(self, variant: Variant, preset: str, settings: Sequence[str] = ()) -> RunSpec:
        """Resolves a variant; ``settings`` come last, so that a user's wish stands above the file."""
        if variant.swap:
            normalizers.canonical(variant.swap)  # a wrong name is said before anything is trained
        made = resolve(self.task, variant.attn, preset, [*self.set, *variant.set, *settings], self.draws)
        check_swap(made, variant.swap)
        return made

    def question(self) -> frame.Analysis | None:
        """Returns the analysis with the options of the file; None where the grids of the runs are compared.

        Raises ``LabError`` on an analysis or an option that does not exist, and on a value of the wrong kind.
        """
        if self.analysis == COMPARE:
            if self.options:
                raise BadValue(f"'{COMPARE}' takes no options, got {', '.join(self.options)}.")
            return None
        if self.analysis not in analyses.names():
            raise UnknownName("analysis", self.analysis, [COMPARE, *analyses.names()])
        return frame.build(self.analysis, self.options)

    @property
    def tested(self) -> bool:
        """Whether its runs have to be tested as well as trained."""
        question = self.question()
        return question is None or question.reads_grids

    def lacking(self, runs: Sequence[Run]) -> list[Run]:
        """Returns those of its runs that have to be finished first; those that are finished may be among them."""
        question = self.question()
        return list(runs) if question is None else question.lacking(runs)

    def variant(self, name: str) -> Variant | None:
        """Returns the variant of that name, or None for a reference predictor."""
        return next((variant for variant in self.variants if variant.name == name), None)


def place(folder: Path) -> Path:
    """Returns the folder of experiments: the one asked for, or, where it is not there, those that came with icl_lab.

    In the repository that is ``experiments``; installed elsewhere the files lie inside the package.
    """
    if folder != Path("experiments") or folder.is_dir():
        return folder
    return next((place for place in SHIPPED if place.is_dir()), folder)


def fitting(made: Experiment, preset: str, settings: Sequence[str] = ()) -> tuple[Experiment, list[str]]:
    """Returns the experiment without the variants that do not fit a preset, and why each does not.

    Claims about them are left out with them. Raises ``BadValue`` where the baseline does not fit.
    """
    reasons = {}
    for variant in made.variants:
        try:
            made.spec(variant, preset, settings)
        except BadValue as reason:
            if variant.name == made.baseline:
                raise
            reasons[variant.name] = str(reason)
    return _without(made, reasons), [f"left out at {preset}: {name} ({reason})" for name, reason in reasons.items()]


def only(made: Experiment, wanted: Collection[str]) -> Experiment:
    """Returns the experiment with these variants and its baseline, and without the claims about the others.

    Raises ``UnknownName`` for what is no variant.
    """
    names = [variant.name for variant in made.variants]
    for name in wanted:
        if name not in names:
            raise UnknownName("variant", name, names)
    return _without(made, set(names) - {*wanted, made.baseline})


def _without(made: Experiment, names: Collection[str]) -> Experiment:
    """The experiment without variants of these names, and without the claims about them."""
    kept = [variant for variant in made.variants if variant.name not in names]
    of = [{side.of.removeprefix(printed.PREFIX) for side in (claim.left, claim.right)} for claim in made.claims]
    claims = [claim for claim, sides in zip(made.claims, of, strict=True) if sides.isdisjoint(names)]
    return msgspec.structs.replace(made, variants=kept, claims=claims)


def names(folder: Path) -> list[str]:
    """Returns the names of the experiments in a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load(name: str, folder: Path) -> Experiment:
    """Reads an experiment by its name in ``folder``, or by the path of its own file.

    Raises ``UnknownName`` with what exists, and ``BadValue`` with the field where a file is wrong.
    """
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    try:
        if not path.is_file():
            raise UnknownName("experiment", name, names(folder))
        require(path.stat().st_size <= BYTES, f"{path}: an experiment has at most {BYTES:,} bytes", path.stat().st_size)
        data = path.read_bytes()
        made = msgspec.toml.decode(data, type=Experiment)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"{path}: {error}.") from None
    except RecursionError:
        raise BadValue(f"{path}: brackets are nested too deeply to be read.") from None
    except OSError as error:
        raise BadValue(f"{path}: {error.strerror or error}.") from None
    names_of = [variant.name for variant in made.variants]
    try:
        question = made.question()
    except LabError as error:
        raise BadValue(f"{path}: {error}") from None
    known = names_of if question is None else list(question.subjects(names_of))  # what a claim may be about
    require(len(set(names_of)) == len(names_of), f"{path}: each variant has a name of its own", names_of)
    axes = cells.axes(made.task, question)
    for claim in made.claims:
        for side in (claim.left, claim.right):
            cells.check(side.cells, axes, f"{path.name}: {claim.statement}")
            if question is None and side.of.startswith(printed.PREFIX):
                printed.numbers(made, side)  # a number that is not printed is said here
            elif question is None and side.of.startswith(PROMPTED):
                continue  # whether there is such a study is known where the claim is judged
            elif side.of not in known and not side.of.startswith("reference:"):
                raise UnknownName(f"variant of {path.name}", side.of, known)
            elif question is None and side.of.startswith("reference:"):
                _beside(made, claim, side, path.name)
    if made.baseline not in names_of:
        raise UnknownName(f"variant of {path.name}", made.baseline, names_of)
    return msgspec.structs.replace(made, sha256=hashlib.sha256(data).hexdigest())


def _beside(experiment: Experiment, claim: Claim, side: Quantity, file: str) -> None:
    """Raises ``BadValue`` where grids hold no number of a reference in the metric of a claim: it could never be judged.

    With the papers' draws references stand in every metric.
    """
    task = tasks.build(experiment.task)
    stored, metric = task.metrics_of_references, claim.metric or task.headline
    if experiment.draws == "ours" and metric not in stored:
        raise BadValue(f"{file}: {claim.statement}: grids hold '{side.of}' in {', '.join(stored)}, not in {metric}.")

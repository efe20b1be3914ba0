"""Schema of an experiment file: runs, analysis, claims, and where they were printed."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from icl_lab import analyses, normalizers
from icl_lab.base.errors import BadValue, UnknownName
from icl_lab.comparison.verdict import Relation
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec, check_swap, resolve

if TYPE_CHECKING:
    from icl_lab.analyses.frame import AnyAnalysis

COMPARE = "compare"  # the grids of finished runs, without a further analysis
PRINTED = "printed:"  # before the name of a variant: its printed row
# What pictures take for mathematics, tables for code or a new cell, is no part of a name.
Name = Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[^`$\\|<>\x00-\x1f\x7f]+$")]
Settings = Annotated[list[str], Meta(max_length=100)]
Cells = dict[str, list[float]]  # an axis -> its values; every combination is a cell, other axes as in training


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row: a normalizer, and fields that differ from the preset. ``printed`` names its row in the printed table.

    ``task`` is the experiment's task with other options, where it is not the experiment's own. With ``swap`` that
    normalizer stands in the trained model when it is tested. ``printed_where`` names further labels of the printed row,
    which stand above those of the table.
    """

    name: Name
    attn: str
    set: Settings = []
    task: str = ""
    swap: str = ""
    printed: str = ""
    printed_where: dict[str, str] = {}

    @property
    def tested_with(self) -> str:
        """The normalizer put into the trained model for its test, by its one spelling; empty for its own."""
        return normalizers.canonical(self.swap) if self.swap else ""


class Quantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The error of a variant (or ``reference:...``) over cells: the mean, or the mean logarithm for ratios.

    ``printed:NAME`` is what the paper prints for that variant; its cells name the printed axis and no other.
    ``reference:0.25`` is that number.
    """

    of: str
    cells: Cells = {}

    @property
    def constant(self) -> float | None:
        """The number that it names; None for any other subject."""
        kind, _, text = self.of.partition(":")
        try:
            return float(text) if kind == "reference" else None
        except ValueError:
            return None


class PrintedEffect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Printed effect of a claim, left against right on the claim's cells: a ratio or a difference, and its source."""

    source: str
    ratio: float | None = None
    difference: float | None = None

    def __post_init__(self) -> None:
        if (self.ratio is None) == (self.difference is None):
            raise ValueError("a printed effect is either a ratio or a difference")
        if self.ratio is not None and not 0 < self.ratio < math.inf:
            raise ValueError(f"a printed ratio must be finite and > 0, got {self.ratio:g}")


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence that says that one quantity is below another, above it, equal to it, or not below or above it.

    ``printed`` is the effect that a paper prints for it, where its experiment's printed rows lack it
    (``claims/printed.py``). ``margin`` is the difference (a ratio above 1 where ratios are compared) that counts as
    none, with its reason in ``because``. A model that has not learned its task is not judged far from training, unless
    ``ungated`` says why. ``suggested_by`` names, for a preset, training seeds whose results led to the claim: others
    judge it there, since what was picked for being seen in some results is seen in them too often.
    """

    statement: str
    where: str
    left: Quantity
    is_: Relation = msgspec.field(name="is")
    right: Quantity
    published: str = ""
    printed: PrintedEffect | None = None
    scale: str = ""
    metric: str = ""  # the analysis' own, unless named
    margin: float | None = None
    because: str = ""
    ungated: str = ""
    suggested_by: dict[str, Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]] = {}

    def __post_init__(self) -> None:
        if self.margin is not None and not (0 < self.margin < math.inf):
            raise ValueError(f"margin must be finite and > 0, got {self.margin:g}")
        if (self.margin is None) != (not self.because):
            raise ValueError("margin and because (its reason) go together")


class Printed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Source of the printed numbers: a table of ``icl_lab.base.published``, and which of its columns mean what.

    ``shifted`` names rows whose column is in doubt, with the axis values that are to be added for the other reading.
    ``where`` names further labels of all rows. A value of the axis here is ``times`` the number in ``column``; without
    a column all printed numbers belong to the value ``at``. Where several of them belong to one cell, their mean stands
    there. ``errors``: they are accuracies, and one minus them is shown.
    """

    table: str
    row: str
    axis: str
    value: str
    column: str = ""
    at: float = math.nan
    times: float = 1.0
    where: dict[str, str] = {}
    shifted: dict[str, float] = {}
    errors: bool = False

    def __post_init__(self) -> None:
        if bool(self.column) != math.isnan(self.at):
            raise ValueError("printed numbers have either a column or the value at which they all stand")


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of one experiment file.

    ``analysis`` names what the claims are read from: ``compare`` for the grids of the runs themselves, or an analysis
    of ``icl_lab.analyses``, whose own options stand under ``[options]``. With ``rates = "own"`` each variant is trained
    at the best rates of its stored learning-rate curve (``comparison/rates.py``).
    """

    title: str
    paper: str
    task: str
    baseline: str
    variants: Annotated[list[Variant], Meta(max_length=200)]
    claims: Annotated[list[Claim], Meta(max_length=500)]
    conditions: str
    analysis: str = COMPARE
    options: dict[str, object] = {}
    draws: Literal["ours", "paper"] = "ours"
    rates: Literal["shared", "own"] = "shared"
    set: Settings = []
    printed: Printed | None = None
    name: str = ""  # of the file, without its ending
    sha256: str = ""  # of the file, as it was read
    registered: dict[str, datetime] = {}  # when claims were registered, by statement, as the folder's record says

    def spec(self, variant: Variant, preset: str, settings: Sequence[str] = ()) -> RunSpec:
        """Resolve a variant at the rates of its preset; ``settings`` come last: a user's wish stands above the file."""
        if variant.swap:
            normalizers.canonical(variant.swap)  # a wrong name is said before anything is trained
        made = resolve(
            variant.task or self.task, variant.attn, preset, [*self.set, *variant.set, *settings], self.draws
        )
        check_swap(made, variant.swap)
        return made

    def question(self) -> "AnyAnalysis | None":
        """Return the analysis with the options of the file; None where the grids of the runs are compared.

        Raises ``LabError`` on an analysis or an option that does not exist, and on a value of the wrong kind.
        """
        if self.analysis == COMPARE:
            if self.options:
                raise BadValue(f"'{COMPARE}' takes no options, got {', '.join(self.options)}.")
            return None
        from icl_lab.analyses import frame  # which takes long, and what is stored can be shown without it

        if self.analysis not in analyses.names():
            raise UnknownName("analysis", self.analysis, [COMPARE, *analyses.names()])
        return frame.build(self.analysis, self.options)

    @property
    def read_from_tests(self) -> bool:
        """True if its claims are read from the tests of its runs, so that a model alone does not do."""
        question = self.question()
        return question is None or question.reads_grids

    @property
    def tested(self) -> bool:
        """True if its runs are tested as well as trained: for its claims, or to know whether they have learned."""
        question = self.question()
        learned = question is not None and question.trains and not all(claim.ungated for claim in self.claims)
        return self.read_from_tests or learned

    def lacking(self, runs: Sequence[Run]) -> list[Run]:
        """Return those of its runs that have to be finished first; those that are finished may be among them."""
        question = self.question()
        return list(runs) if question is None else question.lacking(runs)

    def variant(self, name: str) -> Variant | None:
        """Return the variant of that name, or None for a reference predictor."""
        return next((variant for variant in self.variants if variant.name == name), None)

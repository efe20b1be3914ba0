"""One number of the prompt grows: do heads saturate, and is their attention what spoils the answers?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, ClassVar, Self

from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.frame import Analysis, Found, Row, Trained, option
from icl_lab.analyses.saturation.attention import disturb, saturation_point
from icl_lab.analyses.saturation.patching import ALL, patch
from icl_lab.analyses.stretch import FACTORS, check_factors, factors_of, with_undisturbed
from icl_lab.comparison.statistics import paired
from icl_lab.errors import BadValue
from icl_lab.figures import heads as pictures
from icl_lab.figures.base import short
from icl_lab.registry import require
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.runs.summary import training_cell

NOTHING = "reference:nothing"  # of claims: that something is more than nothing
RECOVERED = "recovered by undisturbed attention"
WORDS = {
    "largest": "largest weight",
    "effective": "effective keys",
    "distance": "distance to the undisturbed weights",
    "deviant": "weight on the deviant",
    "theory": "weight by the rule's formula",
}


@registry.add("saturation")
@dataclass(frozen=True, kw_only=True)
class Saturation(Analysis):
    """Let one number grow: do heads saturate, and does their attention spoil the answers?

    Per head, at the token that is asked last: its largest weight, how many keys it effectively attends to, how far its
    weights are from those of the undisturbed prompt, and its weight on the deviant example, beside the weight that the
    rule's formula gives to one key so far above n - 1 equal ones. Activation patching then puts the attention of the
    undisturbed prompt back, head by head, and measures the share of the added error that this recovers.
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {
        "heads": ("layer", "head", "factor"),
        "errors": ("factor",),
        "patches": ("layer", "head", "factor"),
    }
    title: ClassVar[str] = "one number growing"

    position: int = option(0, "Index of the number.", least=0)
    factors: tuple[float, ...] = option(FACTORS, "What it is multiplied by; 1 is always among them.")
    prompts: int = option(128, "Test prompts.", least=2)

    @property
    def tag(self) -> str:
        """The place of the number, where it is not the first."""
        return f"at-{self.position}" if self.position else ""

    def check(self, spec: RunSpec) -> None:
        """Raises ``BadValue`` where nothing can be stretched, nothing attends, or no answer follows."""
        check_factors(self.factors)
        require(set(self.factors) - {1.0} != set(), "a number grows by factors other than 1", "none")
        task = tasks.build(spec.task)
        if not task.deviants:
            raise BadValue(f"{spec.task} has no number to be stretched; take linear, every or some.")
        if not spec.model.attention:
            raise BadValue("a model without attention has no heads to saturate.")
        length = int(training_cell(task, spec)["length"])
        if not 0 <= self.position < length - 1:
            raise BadValue(f"the growing number stands at an index from 0 to {length - 2}, got {self.position}.")

    def prepared(self, runs: Sequence[Run]) -> Self:
        """Returns the analysis with its factors in order, and 1 among them."""
        return replace(self, factors=with_undisturbed(self.factors))

    def measure(self, trained: Trained) -> Mapping[str, Sequence[Row]]:
        """Lets the number grow, then patches the undisturbed attention in at each factor but 1."""
        suite, undisturbed = trained.task.balanced, trained.prompts(self.prompts)
        steps, device = 2 * len(self.factors), trained.lab.device
        heads, errors = disturb(
            trained.model,
            suite,
            undisturbed,
            self.position,
            self.factors,
            device,
            lambda done: trained.tick(done, steps),
        )
        patches: list[Row] = []
        for done, factor in enumerate(self.factors):
            if factor != 1:
                patches += patch(trained.model, suite, undisturbed, self.position, factor, device)[2]
            trained.tick(len(self.factors) + done + 1, steps)
        return {"heads": heads, "errors": errors, "patches": patches}

    def table(self, found: Found) -> list[str]:
        """Errors, what heads do (medians), the share that patching recovers, and how many heads saturate."""
        factors = found["heads"].values("factor")
        across = [f"x{factor:g}" for factor in factors]
        metric = error_metric(found)
        text = md.head([f"error ({metric})", *across])
        for rule in found.rules:
            rows = found["errors"].where(attn=rule, metric=metric)
            text.append(md.row([f"`{rule}`", *(short(_mean(rows, factor)) for factor in factors)]))
        for metric, words in WORDS.items():
            text += ["", *md.head([f"{words}, median over heads", *across])]
            for rule in found.rules:
                lines = curves(found, rule, metric)
                cells = [short(median([line[place][1] for line in lines])) for place in range(len(factors))]
                text.append(md.row([f"`{rule}`", *cells]))
        text += ["", *md.head(["share of the added error that patching all heads recovers", *across])]
        for rule in found.rules:
            shares = ["" if factor == 1 else _interval(recovered(found, rule, factor)) for factor in factors]
            text.append(md.row([f"`{rule}`", *shares]))
        head = "heads that saturate (largest weight from below 0.5 to above 0.9)"
        text += ["", *md.head(["rule", head, "first at"])]
        for rule in found.rules:
            known, heads = saturating(found, rule)
            first = f"x{min(known):g}" if known else "none in range"
            text.append(md.row([f"`{rule}`", f"{len(known)} of {heads}", first]))
        return [
            *text,
            "",
            "The weight by the rule's formula is that of one key whose score is as far above n - 1 equal scores as the "
            "deviant's is above the mean of the others.",
        ]

    def figures(self, found: Found, title: str) -> Mapping[str, Figure]:
        """What heads do over the factor, the error beside it, and what patching recovers."""
        panels: dict[str, dict[str, Any]] = {
            words: {rule: curves(found, rule, metric) for rule in found.rules} for metric, words in WORDS.items()
        }
        metric = error_metric(found)
        panels[f"error ({metric})"] = {
            rule: found["errors"].where(attn=rule, metric=metric).lines("factor", "seed") for rule in found.rules
        }
        panels[RECOVERED] = {
            rule: found["patches"].where(attn=rule, layer=ALL, head=ALL).lines("factor", "seed") for rule in found.rules
        }
        drawn = pictures.curves(
            panels,
            title=title,
            across="factor of the growing number",
            scales={WORDS["effective"]: "xy", "error (mse)": "xy"},
            limits={RECOVERED: (-2.0, 1.1)},
        )
        return {"saturation": drawn}

    def finding(self, found: Found) -> str:
        """How many heads saturate, and the share of the error that patching recovers at the greatest factor."""
        most = max(found["patches"].values("factor"))
        heads, shares = [], []
        for rule in found.rules:
            known, count = saturating(found, rule)
            heads.append(f"{len(known)} of {count} heads with {rule}")
            values = [value for value in recovered(found, rule, most) if not math.isnan(value)]
            shares.append(f"{fmean(values):.2f} with {rule}" if values else f"unknown with {rule} (no error was added)")
        top = max(found["heads"].values("factor"))
        return (
            f"Up to a factor of {top:g}, {md.listed(heads)} saturate. At a factor of {most:g}, the share of the added "
            f"error that patching in the undisturbed attention recovers is {md.listed(shares)}."
        )

    def value(self, found: Found, of: str, cells: Mapping[str, Sequence[float]], metric: str, seed: int) -> float:
        """The mean over the cells (they name the factors), and over heads where heads do it.

        Metrics are those of heads (``largest``, ``deviant``, ...), those of errors (``mse``, ``last``, ...), and
        ``recovered`` (the usual one): by patching all heads, unless cells name a layer and a head. The value of
        ``reference:nothing`` is 0. Raises ``KeyError`` where there was nothing to recover.
        """
        if of == NOTHING:
            return 0.0
        metric = metric or "recovered"
        errors = found.grids["errors"].values("metric") if "errors" in found.grids else []
        name = "patches" if metric == "recovered" else "errors" if metric in errors else "heads"
        if name not in found.grids:
            raise KeyError(f"'{metric}' stands in {name}.csv, which is not there")
        where: dict[str, Any] = {"layer": [ALL], "head": [ALL]} if name == "patches" else {}
        where |= {axis: list(values) for axis, values in cells.items()} | {"factor": factors_of(cells)}
        value = float(found[name].where(attn=of, seed=seed, metric=metric, **where).frame["value"].mean())
        if math.isnan(value):
            raise KeyError("the growing number changed no answer, so there is nothing to recover")
        return value


def error_metric(found: Found) -> str:
    """The error that is shown: the mean squared one after the deviant, or else that of the last answer."""
    return "mse" if "mse" in found["errors"].values("metric") else "last"


def curves(found: Found, rule: str, metric: str) -> list[list[tuple[float, float]]]:
    """For each head of each seed of a rule: (factor, value)."""
    return found["heads"].where(attn=rule, metric=metric).lines("factor", "seed", "layer", "head")


def saturating(found: Found, rule: str) -> tuple[list[float], int]:
    """The factors at which heads of a rule saturate, over all seeds, and the number of heads."""
    largest = [[point for point in line if point[0] >= 1] for line in curves(found, rule, "largest")]
    points = [saturation_point(*zip(*line, strict=True)) for line in largest]
    return [point for point in points if not math.isnan(point)], len(points)


def recovered(found: Found, rule: str, factor: float) -> list[float]:
    """The share of the added error that patching all heads recovers, one number a seed."""
    return list(found["patches"].where(attn=rule, factor=factor, layer=ALL, head=ALL).frame["value"])


def _mean(rows: Any, factor: float) -> float:
    return float(rows.where(factor=factor).frame["value"].mean())


def _interval(shares: Sequence[float]) -> str:
    """The mean share over seeds with Student's interval."""
    values = [value for value in shares if not math.isnan(value)]
    if not values:
        return "nothing to recover"
    mean = paired([0.0] * len(values), values, "difference")
    return f"{mean.effect:.2f}" if math.isnan(mean.low) else f"{mean.effect:.2f} [{mean.low:.2f}, {mean.high:.2f}]"

"""Which law of n a free-form factor has learned: log n, its root, n itself, or none.

After Section 2.1 of Nakanishi 2025, arXiv 2501.19399, where p of ``softmax((s p_n + b) z)`` came out close to
0.0283 log n + 0.394. The two numbers say little: p -> c p with s -> s / c is the same model, and so is p -> p + c with
b -> b - s c. What can be told is the shape, up to a factor and a shift.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self, cast

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from icl_lab import tasks
from icl_lab.analyses import registry
from icl_lab.analyses.frame import AnalysisOf, Cells, TrainedModel
from icl_lab.base import markdown as md
from icl_lab.base.errors import BadValue
from icl_lab.base.registry import require
from icl_lab.base.tables import csv_text
from icl_lab.figures import lines
from icl_lab.normalizers.ssmax_free import SSMaxFree
from icl_lab.runs.run import Run
from icl_lab.runs.spec import RunSpec

LEAST = 5  # values that a law can be fitted to
LAWS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "constant": np.zeros_like,
    "log n": np.log,
    "sqrt n": np.sqrt,
    "n": np.positive,
}


@dataclass(frozen=True)
class Fit:
    """p_n ~ slope g(n) + shift by least squares; its share of explained variance, and Akaike's criterion."""

    law: str
    slope: float
    shift: float
    explained: float
    aic: float

    def at(self, n: ArrayLike) -> np.ndarray:
        """Return the law at ``n``."""
        return self.shift + self.slope * LAWS[self.law](np.asarray(n, float))


def fits(p: ArrayLike, first: int = 1) -> list[Fit]:
    """Fit every law to p_n, n = first, first + 1, ...; the best by Akaike's criterion first.

    Formula: AIC = N log(RSS / N) + 2 k, with k = 3 (slope, shift, variance), or 2 for the constant

    Raises ``BadValue`` on fewer than five values.
    """
    y = np.asarray(p, float)
    require(len(y) >= LEAST, "a law is fitted to at least five values", len(y))
    n = np.arange(first, first + len(y), dtype=float)
    total = float(((y - y.mean()) ** 2).sum())
    made = []
    for law, grown in LAWS.items():
        grows = law != "constant"
        slope, shift = (float(value) for value in np.polyfit(grown(n), y, 1)) if grows else (0.0, float(y.mean()))
        rest = float(((y - slope * grown(n) - shift) ** 2).sum())
        # Nothing is known more exactly than its rounding: an exact fit is not infinitely better.
        floor = float(len(y) * (np.finfo(np.float32).eps * float(np.abs(y).max() + 1e-30)) ** 2)
        aic = len(y) * math.log(max(rest, floor) / len(y)) + 2 * (3 if grows else 2)
        made.append(Fit(law, slope, shift, 1 - rest / total if total > 0 else math.nan, aic))
    return sorted(made, key=lambda fit: fit.aic)


RULE = "ssmax-free"
FEWEST = 3  # n below this are left out: one visible key has weight 1 whatever p is, two hardly differ


@dataclass(frozen=True)
class LearnedFactor:
    """The p_n of one run, n from ``FEWEST`` to the training length, the laws fitted to it, and every head's s and b."""

    seed: int
    p: np.ndarray
    fits: list[Fit]  # the best first
    s: np.ndarray  # (layers h); empty where p was read from a file
    b: np.ndarray


@registry.add("law")
@dataclass(frozen=True, kw_only=True)
class Law(AnalysisOf[LearnedFactor, Sequence[LearnedFactor], Sequence[LearnedFactor]]):
    """Fit laws of n to the free-form factor that ssmax-free has learned.

    The laws are a constant, log n, the root of n, and n, each with a factor and a shift by least squares, compared by
    Akaike's criterion (AIC).
    """

    grids: ClassVar[Mapping[str, Sequence[str]]] = {"p": ("n",)}  # not in the form of a grid: seed, n, p
    title: ClassVar[str] = "the learned factor p_n"
    usual_rules: ClassVar[Sequence[str]] = (RULE,)

    def check(self, spec: RunSpec) -> None:
        rule = spec.train.switch_to or spec.attn
        if rule.split(":")[0] != RULE:
            raise BadValue(f"only {RULE} learns a factor for every n, got {rule}.")
        if not spec.model.attention:
            raise BadValue("a model without attention has no factor.")
        tokens, least = spec.reading(tasks.build(spec.task)).train_tokens, FEWEST - 1 + LEAST
        require(tokens >= least, f"a law needs training prompts of {least} tokens or more", tokens)

    def prepared(self, runs: Sequence[Run]) -> Self:
        for run in runs:
            if run.swap:
                raise BadValue(f"a normalizer that is swapped in after training has learned nothing, got {run.name}.")
        for seed, count in Counter(run.seed for run in runs).items():
            require(count == 1, "laws are fitted to one run of each seed", f"{count} of seed {seed}")
        return self

    def measure(self, trained: TrainedModel) -> LearnedFactor:
        """Read p, s and b from the model and fit the laws to p."""
        rules = [cast(SSMaxFree, rule) for rule in trained.model.rules]
        p = rules[0].p.detach().double().cpu().numpy()[FEWEST - 1 :]
        s, b = (np.array([getattr(rule, name).tolist() for rule in rules]) for name in ("s", "b"))
        return LearnedFactor(trained.run.seed, p, fits(p, FEWEST), s, b)

    def collect(self, answers: Sequence[tuple[TrainedModel, LearnedFactor]]) -> list[LearnedFactor]:
        """Return what each run has learned."""
        return [learned for _, learned in answers]

    def table(self, found: Sequence[LearnedFactor]) -> list[str]:
        """The fits of every seed, best first, and the numbers that each head learned."""
        text = [
            f"p_n of softmax((s p_n + b) z), n from {FEWEST} to {FEWEST + len(found[0].p) - 1}. Lower AIC is better; a "
            "difference below 2 decides nothing. A factor and a shift of p can be moved into s and b, so only the "
            "shape of a law means something.",
            "",
            *md.head(["seed", "law", "p_n", "explained", "AIC - best"]),
        ]
        for each in found:
            for fit in each.fits:
                law = f"{fit.shift:.3g}" if fit.law == "constant" else f"{fit.slope:.3g} {fit.law} + {fit.shift:.3g}"
                cells = [str(each.seed), fit.law, law, f"{fit.explained:.2f}", f"{fit.aic - each.fits[0].aic:.1f}"]
                text.append(md.row(cells))
        text += ["", "Printed (12 layers, 12 heads, 25,000 iterations): 0.0283 log n + 0.394.", ""]
        for each in found:
            for layer, (s, b) in enumerate(zip(each.s, each.b, strict=True)):
                heads = "; ".join(f"{x:.2f}, {y:.2f}" for x, y in zip(s, b, strict=True))
                text.append(f"* seed {each.seed}, layer {layer}: s, b of each head {heads}")
        return text

    def figures(self, found: Sequence[LearnedFactor], title: str) -> Mapping[str, Figure]:
        """p of every seed, and the laws fitted to the first."""
        n = np.arange(FEWEST, FEWEST + len(found[0].p))
        drawn = lines.laws(
            n.tolist(),
            {f"seed {each.seed}": each.p.tolist() for each in found},
            {fit.law: fit.at(n).tolist() for fit in found[0].fits},
            title=title,
        )
        return {"law": drawn}

    def finding(self, found: Sequence[LearnedFactor]) -> str:
        """The best law, in how many seeds, and by how much."""
        wins = Counter(each.fits[0].law for each in found)
        clear = sum(each.fits[1].aic - each.fits[0].aic >= 2 for each in found)
        best = md.listed(f"{law} in {count} of {len(found)} seeds" for law, count in wins.most_common())
        return f"The best law of the learned factor by AIC is {best}; it leads by 2 or more in {clear} of {len(found)}."

    def files(self, found: Sequence[LearnedFactor]) -> dict[str, str | bytes]:
        rows = [
            {"seed": each.seed, "n": n, "p": f"{value:.8g}"} for each in found for n, value in enumerate(each.p, FEWEST)
        ]
        return {"p.csv": csv_text(["seed", "n", "p"], rows)}

    def read(self, folder: Path) -> list[LearnedFactor] | None:
        """Read ``p.csv`` and fit the laws again; None where it is not there. The s and b of heads are not kept."""
        path = folder / "p.csv"
        if not path.exists():
            return None
        values: dict[int, list[float]] = {}
        for row in csv.DictReader(io.StringIO(path.read_text())):
            values.setdefault(int(row["seed"]), []).append(float(row["p"]))
        none = np.zeros((0, 0))
        return [LearnedFactor(seed, np.array(p), fits(p, FEWEST), none, none) for seed, p in values.items()]

    def again(self, folder: Path, specs: Mapping[str, RunSpec]) -> list[LearnedFactor] | None:
        return self.read(folder)

    def subjects(self, variants: Sequence[str]) -> Sequence[str]:
        return list(LAWS)

    def seeds(self, found: Sequence[LearnedFactor]) -> list[int]:
        return sorted(each.seed for each in found)

    def value(self, found: Sequence[LearnedFactor], of: str, cells: Cells, metric: str, seed: int) -> float:
        """Akaike's criterion ``aic`` (usual) of the law ``of``, or the share of variance that it has ``explained``."""
        if metric not in ("", "aic", "explained"):
            raise KeyError(f"a law has no metric '{metric}'; there are aic and explained")
        fit = next((fit for each in found if each.seed == seed for fit in each.fits if fit.law == of), None)
        if fit is None:
            raise KeyError(f"no law '{of}' of seed {seed}; there are {', '.join(LAWS)}")
        return fit.explained if metric == "explained" else fit.aic

"""The free-form factor of finished runs beside the laws that could have made it."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from matplotlib.figure import Figure

from icl_lab import markdown as md
from icl_lab.analyses.law import Fit, fits
from icl_lab.errors import BadValue
from icl_lab.figures import lines
from icl_lab.files import publish_folder as save
from icl_lab.normalizers.ssmax_free import SSMaxFree
from icl_lab.runs.session import Lab
from icl_lab.runs.spec import RunSpec
from icl_lab.runs.store import Run
from icl_lab.sweep import load_or_train

FEWEST = 3  # n below this are left out: one visible key has weight 1 whatever p is, two hardly differ


@dataclass(frozen=True)
class Learned:
    """The p_n of one run, n from ``FEWEST`` to the training length, the laws fitted to it, and every head's s and b."""

    seed: int
    p: np.ndarray
    fits: list[Fit]
    s: np.ndarray  # (layers h)
    b: np.ndarray


def check(spec: RunSpec) -> None:
    """Raises ``BadValue`` where the rule has no free-form factor."""
    if spec.attn.split(":")[0] != "ssmax-free":
        raise BadValue(f"only ssmax-free learns a factor for every n, got {spec.attn}.")


def learn(runs: Sequence[Run], lab: Lab) -> list[Learned]:
    """Reads p, s and b from the models of the runs, trained where missing, and fits the laws."""
    found = []
    for number, run in enumerate(runs):
        check(run.spec)
        model = load_or_train(run, lab)
        rules = [cast(SSMaxFree, rule) for rule in model.rules]
        p = rules[0].p.detach().double().cpu().numpy()[FEWEST - 1 :]
        s, b = (np.array([getattr(rule, name).tolist() for rule in rules]) for name in ("s", "b"))
        found.append(Learned(run.seed, p, fits(p, FEWEST), s, b))
        lab.tick("runs", number + 1, len(runs), run.name)
    return found


def markdown(found: Sequence[Learned], spec: RunSpec, command: str) -> str:
    """Returns the fits of every seed, best first, and what the heads made of the factor."""
    text = [
        f"Task {spec.task}, preset {spec.preset}: p_n of softmax((s p_n + b) z), n from {FEWEST} to "
        f"{FEWEST + len(found[0].p) - 1}. Lower AIC is better; a difference below 2 decides nothing. A factor and a "
        "shift of p can be moved into s and b, so only the shape of a law means something.",
        "",
        *md.head(["seed", "law", "p_n", "explained", "AIC - best"]),
    ]
    for each in found:
        for fit in each.fits:
            told = f"{fit.shift:.3g}" if fit.law == "constant" else f"{fit.slope:.3g} {fit.law} + {fit.shift:.3g}"
            cells = [str(each.seed), fit.law, told, f"{fit.explained:.2f}", f"{fit.aic - each.fits[0].aic:.1f}"]
            text.append(md.row(cells))
    text += ["", "Printed (12 layers, 12 heads, 25,000 iterations): 0.0283 log n + 0.394.", ""]
    for each in found:
        for layer, (s, b) in enumerate(zip(each.s, each.b, strict=True)):
            heads = "; ".join(f"{x:.2f}, {y:.2f}" for x, y in zip(s, b, strict=True))
            text.append(f"* seed {each.seed}, layer {layer}: s, b of each head {heads}")
    return "\n".join([*text, "", f"Made by `{command}`.", ""])


def publish(
    found: Sequence[Learned], spec: RunSpec, folder: Path, command: str, more: str = ""
) -> tuple[str, list[str]]:
    """Writes p, the fits and the figure; returns the table as text and the names of the files."""
    text, table = markdown(found, spec, command) + more, io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["seed", "n", "p"])
    writer.writerows(
        [each.seed, FEWEST + place, f"{value:.8g}"] for each in found for place, value in enumerate(each.p)
    )
    files = {"p.csv": table.getvalue(), "table.md": text}
    drawn = figure(found, f"{spec.task}, {spec.preset}: the learned factor p_n")
    return text, save(folder, files, {"law": drawn})


def figure(found: Sequence[Learned], title: str) -> Figure:
    """Draws p of every seed, and the laws fitted to the first."""
    n = np.arange(FEWEST, FEWEST + len(found[0].p))
    return lines.laws(
        n.tolist(),
        {f"seed {each.seed}": each.p.tolist() for each in found},
        {fit.law: fit.at(n).tolist() for fit in found[0].fits},
        title=title,
    )


def fitted(table: str) -> dict[int, list[Fit]]:
    """Reads what ``publish`` wrote to ``p.csv``: seed -> its fits."""
    found: dict[int, list[float]] = {}
    for row in csv.DictReader(io.StringIO(table)):
        found.setdefault(int(row["seed"]), []).append(float(row["p"]))
    return {seed: fits(p, FEWEST) for seed, p in found.items()}

"""A league as pictures: what its numbers are drawn from."""

from statistics import fmean

from matplotlib.figure import Figure

from icl_lab.comparison.league import PARTS, WORDS, League, Standing
from icl_lab.figures import league as pictures


def drawn(table: League, preset: str) -> dict[str, Figure]:
    """Return the skills as a matrix, and the mean ranks near training against those beyond where there are ranks."""
    means = {WORDS[part]: {cell: fmean(skill.values(part)) for cell, skill in table.skills.items()} for part in PARTS}
    beside = table.baseline in table.rules  # else the others have nothing to be compared with
    others = [cell for cell in table.skills if beside and cell[0] != table.baseline]
    unclear = {WORDS[part]: [cell for cell in others if not table.clear(*cell, part)] for part in PARTS}
    hatched = f"hatched: inconclusive against {table.baseline}; " if beside else ""
    title = f"Skill of normalizers on tasks, preset {preset} ({hatched}crossed: missing)"
    found = {"league": pictures.matrix(means, table.rules, table.tasks, title=title, unclear=unclear)}
    near, far = (table.standings(part) for part in PARTS)
    if near and far:
        spans = {rule: (_span(near[rule]), _span(far[rule])) for rule in table.whole}
        found["ranks"] = pictures.near_and_far(spans, title=f"Mean ranks over {len(table.tasks)} tasks")
    return found


def _span(standing: Standing) -> tuple[float, float, float]:
    return standing.mean, standing.low, standing.high

"""One number of a prompt multiplied by factors: what the analyses that disturb a prompt have in common."""

import math
from collections.abc import Iterable

from icl_lab.analyses.base import Cells
from icl_lab.parts.option_values import GREATEST
from icl_lab.parts.registry import require

FACTORS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


def check_factors(factors: Iterable[float]) -> None:
    """Raises ``BadValue`` on a factor that is no finite number above 0: 0 or a negative one would change a sign."""
    for factor in factors:
        require(0 < factor < math.inf, "a factor must be finite and > 0", f"{factor:g}")
        require(factor <= GREATEST, f"a factor must be at most {GREATEST:g}", f"{factor:g}")


def check_growth(factors: Iterable[float]) -> None:
    """Raises ``BadValue`` as ``check_factors``, and where no factor but 1 is named."""
    named = set(factors)
    check_factors(named)
    require(bool(named - {1.0}), "a number grows by factors other than 1", "none")


def with_undisturbed(factors: Iterable[float]) -> tuple[float, ...]:
    """Returns the factors in ascending order, each once, and 1 among them: the undisturbed prompt.

    >>> with_undisturbed((100, 10, 100))
    (1.0, 10.0, 100.0)
    """
    return tuple(sorted({1.0, *map(float, factors)}))


def factors_of(cells: Cells) -> list[float]:
    """Returns the factors in the cells of a claim; raises ``KeyError`` where it names none."""
    if "factor" not in cells:
        raise KeyError("a claim about a number that is multiplied names its factors: cells = { factor = [100] }")
    return list(cells["factor"])

"""Lines of a Markdown table."""

from collections.abc import Iterable


def row(cells: Iterable[str]) -> str:
    """Returns one line.

    >>> row(["`ssa`", "0.17"])
    '| `ssa` | 0.17 |'
    """
    return f"| {' | '.join(cells)} |"


def head(names: Iterable[str]) -> list[str]:
    """Returns the line of names and the rule under it.

    >>> head(["rule", "error"])
    ['| rule | error |', '| --- | --- |']
    """
    named = list(names)
    return [row(named), row(["---"] * len(named))]

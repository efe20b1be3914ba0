"""Lines of a Markdown table, and lists within a sentence."""

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


def listed(words: Iterable[str]) -> str:
    """Returns words as a list within a sentence.

    >>> listed(["softmax", "ssa", "ssmax"])
    'softmax, ssa and ssmax'
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last

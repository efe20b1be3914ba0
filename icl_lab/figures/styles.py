"""One style per normalizer: its colour, dash and marker are the same in every figure.

Normalizers of one family share a hue and differ in lightness. A normalizer with options, a swapped or re-weighted one,
and any name that begins with a normalizer's (a variant of an experiment) are shades of that normalizer, dashed; those
of softmax, whose black has no shades to tell apart, have other hues. A name that is not listed gets a look from its
hash. Only where two names of one figure would have colours that are hard to tell apart, or two variants of one
normalizer the same dash, does the later one in the alphabet move on.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.colors import to_hex, to_rgb

# Hues that stay apart without red-green vision (after Wong 2011 and Tol 2021), each with the normalizers that share it.
HUES: dict[str, tuple[str, ...]] = {
    "#000000": ("softmax",),
    "#0072b2": ("ssa",),
    "#009e73": ("lssa",),
    "#d55e00": ("ssmax", "ssmax-free", "log-n", "asentmax"),
    "#7a4f2a": ("temperature", "adaptive-temperature", "sink"),
    "#56b4e9": ("l1", "relu"),
    "#cc79a7": ("entmax", "sparsemax", "softpick", "elastic"),
    "#e69f00": ("sigmoid", "exp"),
    "#6a51a3": ("raw", "inverse", "recentred", "sima"),
    "#999933": ("sa-softmax",),
    "#117a8b": ("scale-invariant", "stick-breaking", "cosformer"),
    "#882255": ("average", "soft-avg", "four-functions"),
}
SHADES = (0.0, 0.4, -0.35, -0.62)  # of the normalizers of a family: the share of white, or of black below 0
VARIANTS = (0.3, -0.3, 0.5, -0.5, 0.15, 0.65)  # of what begins with a normalizer's name
SPARE = ("#332288", "#44aa99", "#aa4499", "#b8860b", "#6699cc", "#661100", "#5b8c2a", "#d6604d", "#4d4d4d", "#9970ab")
Dash = str | tuple[int, tuple[int, ...]]
DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")

ALIKE = 0.3  # colours that differ by less, the sum over red, green and blue of 0 to 1, are hard to tell apart in a line

KNOWN = {rule: (hue, shade) for hue, rules in HUES.items() for rule, shade in zip(rules, SHADES, strict=False)}


@dataclass(frozen=True)
class Style:
    """Style of a line: an RGB colour in hexadecimal digits, a line style and a marker."""

    color: str
    dash: Dash
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """The arguments of a line."""
        return {"color": self.color, "linestyle": self.dash}

    @property
    def dotted(self) -> dict[str, Any]:
        """The arguments of a line with its marker."""
        return {**self.line, "marker": self.marker}


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Return the look of each name, no two of them with the same colour, nor with one alike while there are others.

    Normalizers by their own name never move: no other name can have their colours. The order of ``names`` does not
    matter.
    Raises ``ValueError`` beyond the looks there are (some seventy).
    """
    unique = list(dict.fromkeys(map(str, names)))
    found: dict[str, Style] = {}
    taken, dashed = set[str](), set[tuple[str, Dash]]()
    # Normalizers first, then their shades; hues that depend on nothing but a name keep clear of both.
    for name in sorted(unique, key=lambda name: (name not in KNOWN, not _shaded(name), name)):
        color = _free(_colors(name), taken)
        if color is None:
            raise ValueError(f"{len(unique)} names are more than there are colours for")
        base, dashes = _base(name), _dashes(name)
        dash = next((each for each in dashes if (base, each) not in dashed), dashes[0])
        taken.add(color)
        dashed.add((base, dash))
        found[name] = Style(color, dash, MARKERS[_marker(name) % len(MARKERS)])
    return {name: found[name] for name in unique}


def _base(name: str) -> str:
    """Normalizer at the start of a name: ``ssa`` of ``ssa:n=2``, ``ssa->softmax``, ``ssa+reweight:p=3``, ``ssa, 1``."""
    match = re.match(r"[a-z0-9]+(?:-[a-z0-9]+)*", name)
    return match.group() if match else ""


def _free(colors: Sequence[str], taken: Collection[str]) -> str | None:
    """The first colour that is like none of the taken ones, else the first that is not taken; None without any."""
    there = [color for color in colors if color not in taken]
    clear = (color for color in there if all(_apart(color, other) >= ALIKE for other in taken))
    return next(clear, there[0] if there else None)


def _apart(one: str, other: str) -> float:
    return sum(abs(a - b) for a, b in zip(to_rgb(one), to_rgb(other), strict=True))


def _colors(name: str) -> list[str]:
    """The colours that a name may have, its own first."""
    base = _base(name)
    if name in KNOWN:
        return [mixed(*KNOWN[name])]
    if _shaded(name):
        hue, shade = KNOWN[base]
        start = _number(name) % len(VARIANTS)
        tries = (*VARIANTS[start:], *VARIANTS[:start])
        return [*(mixed(mixed(hue, shade), share) for share in tries), *_spare(name)]
    return _spare(name)


def _shaded(name: str) -> bool:
    return _base(name) in KNOWN and _base(name) != "softmax"


def _spare(name: str) -> list[str]:
    looks = [mixed(hue, shade) for shade in (0.0, 0.4, -0.35) for hue in SPARE]
    # Full hues first; where to begin depends on the name alone.
    start = _number(name) % len(SPARE)
    turned = [
        looks[at + (start + n) % len(SPARE)] for at in range(0, len(looks), len(SPARE)) for n in range(len(SPARE))
    ]
    return [*turned, *(mixed(hue, shade) for hue in SPARE for shade in (0.25, 0.55, -0.2, -0.5))]


def _dashes(name: str) -> Sequence[Dash]:
    """The dashes that a name may have, its preferred one first: normalizers are solid, variants of them are not."""
    if name in KNOWN or _base(name) not in KNOWN:
        return DASHES[:1]
    start = _number(name) % (len(DASHES) - 1)
    return [*DASHES[1 + start :], *DASHES[1 : 1 + start]]


def _marker(name: str) -> int:
    return list(KNOWN).index(name) if name in KNOWN else _number(name)


def _number(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)


def mixed(color: str, share: float) -> str:
    """Return a colour with a share of white, or of black where the share is below 0.

    >>> mixed("#000000", 0.5), mixed("#0072b2", 0.0)
    ('#808080', '#0072b2')
    """
    end = 1.0 if share > 0 else 0.0
    red, green, blue = ((1 - abs(share)) * part + abs(share) * end for part in to_rgb(color))
    return str(to_hex((red, green, blue)))

"""One look a normalizer: the same in every figure, whatever the set or the order, and never shared within one."""

import re
from itertools import combinations

import pytest
from matplotlib.colors import to_rgb

from icl_lab import normalizers
from icl_lab.analyses.profiles import families
from icl_lab.figures.styles import HUES, KNOWN, SPARE, _colors, styles

RULES = sorted(KNOWN)
NAMES = [
    *RULES,
    *families.rules(normalizers.names()),
    *("softmax->ssmax:s=swap", "lssa+reweight:p=3", "lssa+reweight:p=15", "softmax+reweight:p=3"),
    *("tau 10", "no norm", "attention only", "softmax, theta x50", "ssmax, theta x50"),
]


def distance(one, other):
    return sum(abs(a - b) for a, b in zip(to_rgb(one.color), to_rgb(other.color), strict=True))


@pytest.mark.exhaustive
def test_a_rule_looks_alike_beside_any_others():
    alone = {rule: styles([rule])[rule] for rule in RULES}
    assert styles(RULES) == styles(reversed(RULES)) == alone
    assert {rule: styles([*NAMES, rule])[rule] for rule in RULES} == alone


def test_the_four_rules_of_the_papers_are_fixed():
    found = styles(["softmax", "ssa", "ssmax", "lssa"])
    assert [look.color for look in found.values()] == ["#000000", "#0072b2", "#d55e00", "#009e73"]
    assert len({look.marker for look in found.values()}) == 4


def test_no_colour_stands_twice_in_a_figure():
    found = styles(NAMES)
    assert len(found) == len(set(NAMES))
    assert len({look.color for look in found.values()}) == len(found)


@pytest.mark.slow
def test_the_order_of_names_changes_nothing():
    assert styles(sorted(NAMES)) == styles(sorted(NAMES, reverse=True))


def test_a_name_with_a_suffix_is_a_dashed_shade_of_its_rule():
    for name in ("ssa:n=2", "ssa->softmax", "ssa+reweight:p=3", "ssa, seed 1"):
        look = styles([name])[name]
        assert look.dash != styles(["ssa"])["ssa"].dash
        red, green, blue = to_rgb(look.color)
        assert blue > green > red, "a shade of blue"


def test_variants_of_softmax_are_told_apart():
    """Shades of grey would not be; up to four variants of a normalizer have dashes of their own."""
    parts = ("no norm", "no norm but after the read-in", "norm of q and k", "attention only")
    found = styles(["softmax", *(f"softmax, {part}" for part in parts)])
    assert len({look.dash for look in found.values()}) == 5
    for one, other in combinations(found.values(), 2):
        assert distance(one, other) > 0.4


def test_variants_of_two_rules_are_told_apart_in_one_figure():
    """By their names alone shades of ssa would hardly differ, and a variant of softmax would be as blue."""
    depths = [f"{rule}, {layers} layers" for rule in ("softmax", "ssa") for layers in (2, 4, 6)]
    alone = [styles([name])[name] for name in depths]
    assert min(distance(one, other) for one, other in combinations(alone, 2)) < 0.25
    for shown in (depths, ["ssa", "ssmax", *depths]):
        assert min(distance(one, other) for one, other in combinations(styles(shown).values(), 2)) >= 0.3
    # What has a hue of its normalizer's is chosen before what takes any hue that is left.
    shades = styles(depths[3:])
    assert {name: styles(depths)[name].color for name in shades} == {name: s.color for name, s in shades.items()}


def test_a_name_that_only_starts_alike_is_no_variant():
    assert styles(["ssabc"])["ssabc"].color in SPARE
    assert styles(["ssa-two"])["ssa-two"].color in SPARE


def test_two_unknown_names_that_want_one_colour_get_two():
    names = [f"variant {number}" for number in range(40)]
    wanted = {name: styles([name])[name].color for name in names}
    one, other = next(pair for pair in combinations(names, 2) if wanted[pair[0]] == wanted[pair[1]])
    found = styles([other, one])
    assert found[one].color != found[other].color
    assert wanted[one] in (found[one].color, found[other].color)


def test_more_names_than_colours_are_refused():
    with pytest.raises(ValueError, match="more than there are colours"):
        styles([f"variant {number}" for number in range(500)])


def test_no_other_name_can_take_the_colour_of_a_rule():
    own = {styles([rule])[rule].color for rule in RULES}
    others = [*(f"{rule}:x={n}" for rule in RULES for n in range(8)), *(f"variant {n}" for n in range(30))]
    assert not own & {color for name in others for color in _colors(name)}


def test_every_listed_rule_exists():
    assert set(KNOWN) <= set(normalizers.names())
    assert sum(map(len, HUES.values())) == len(KNOWN)


def test_references_have_a_grey_that_no_rule_has():
    for color in {look.color for look in styles(NAMES).values()}:
        red, green, blue = to_rgb(color)
        grey = max(red, green, blue) - min(red, green, blue) < 0.02
        assert not grey or abs(red - 0.5) > 0.03, color
        assert re.fullmatch("#[0-9a-f]{6}", color)

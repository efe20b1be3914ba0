"""Registries: choices as text, their one spelling, and one clear line for what is wrong."""

from typing import Literal

import pytest

from icl_lab.base.errors import BadValue, NameTaken, UnknownName, UnknownOption
from icl_lab.base.registry import Choice, Registry


@pytest.fixture
def registry():
    parts = Registry("part", "icl_lab.tasks")

    @parts.add("lever")
    class Lever:
        """A lever.

        Formula: F l = G
          m
        Paper: Archimedes
        """

        def __init__(self, context: int, *, arm: float | Literal["short"] = 1.0, fixed: bool = False, teeth: int = 3):
            self.context, self.arm, self.fixed, self.teeth = context, arm, fixed, teeth
            if teeth < 1:
                raise BadValue(f"teeth must be >= 1, got {teeth}.")

    return parts


def test_options_are_read_by_the_types_of_the_constructor(registry):
    lever = registry.build("lever:arm=2.50,fixed=yes,teeth=4", 7)
    assert (lever.context, lever.arm, lever.fixed, lever.teeth) == (7, 2.5, True, 4)
    assert registry.build("lever:arm=short", 7).arm == "short"


def test_one_spelling(registry):
    assert str(registry.canonical("lever: fixed=no , arm=2.0")) == "lever:arm=2,fixed=no"
    assert str(Choice.parse("lever:arm=1e-3")) == "lever:arm=1e-3"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("levr", UnknownName, ["No part is called 'levr'", "Did you mean 'lever'?", "There are: lever."]),
        ("lever:amr=2", UnknownOption, ["takes no option 'amr'", "Did you mean 'arm'?", "arm, fixed, teeth"]),
        ("lever:arm=long", BadValue, ["a finite number or short", "'long'"]),
        ("lever:arm=inf", BadValue, ["a finite number"]),
        ("lever:arm=nan", BadValue, ["a finite number"]),
        ("lever:fixed=true", BadValue, ["yes or no"]),
        ("lever:teeth=1.5", BadValue, ["a whole number"]),
        ("lever:teeth=0", BadValue, ["part 'lever:teeth=0': teeth must be >= 1"]),
        ("lever:", BadValue, ["NAME:option=value"]),
        ("lever:arm", BadValue, ["NAME:option=value"]),
        ("lever:arm=1,arm=2", BadValue, ["'arm' twice"]),
        ("", BadValue, ["NAME"]),
    ],
)
def test_a_slip_is_answered_with_what_exists(registry, text, kind, words):
    with pytest.raises(kind) as caught:
        registry.build(text, 7)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_name_is_registered_once_and_both_places_are_named(registry):
    class Other:
        pass

    with pytest.raises(NameTaken, match=r"'lever' is registered twice: in .*test_registry\.py and in .*test_registry"):
        registry.add("lever")(Other)
    assert registry.part("lever") is not Other


@pytest.mark.parametrize("name", ["", "two words", "../up", "a:b", "a+b", "1st", "a,b", 7, None])
def test_a_name_is_letters_digits_and_hyphens(registry, name):
    with pytest.raises(BadValue, match="takes a name of letters"):
        registry.add(name)(type("Other", (), {}))


def test_only_a_class_is_a_part(registry):
    with pytest.raises(BadValue, match="above a class"):
        registry.add("other")(lambda: None)


def test_an_option_without_a_type_is_refused(registry):
    @registry.add("wheel")
    class Wheel:
        def __init__(self, *, spokes=3, radii: tuple[float, ...] = ()):
            self.spokes, self.radii = spokes, radii

    assert registry.build("wheel").spokes == 3
    for option in ("spokes", "radii"):
        with pytest.raises(BadValue, match=f"the type of its option {option} must be int, float"):
            registry.build(f"wheel:{option}=4")


def test_an_option_of_an_unknown_type_is_refused_in_one_line(registry):
    @registry.add("axle")
    class Axle:
        def __init__(self, *, length: "Inches" = 3):  # noqa: F821
            self.length = length

    with pytest.raises(BadValue, match="'Inches' is not defined"):
        registry.build("axle:length=4")


def test_cards_are_read_from_docstrings(registry):
    (entry,) = (entry for entry in registry.entries() if entry.name == "lever")
    assert (entry.line, entry.formula, entry.paper) == ("A lever.", "F l = G m", "Archimedes")

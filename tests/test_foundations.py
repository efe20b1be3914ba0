"""Names, streams, the curriculum and grids: what everything else stands on."""

import math
from typing import Literal

import pytest
import torch

from icl_lab.errors import BadValue, LabError, UnknownName, UnknownOption
from icl_lab.grid import Grid
from icl_lab.registry import Choice, Registry
from icl_lab.rng import stream
from icl_lab.training.curriculum import Staircase


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


def test_a_name_is_announced_once(registry):
    with pytest.raises(ValueError, match="two parts"):
        registry.add("lever")(object)


def test_cards_are_read_from_docstrings(registry):
    (entry,) = (entry for entry in registry.entries() if entry.name == "lever")
    assert (entry.line, entry.formula, entry.paper) == ("A lever.", "F l = G m", "Archimedes")


def test_an_address_repeats_and_two_differ():
    def draw(*address):
        return torch.rand(4, generator=stream(*address))

    assert torch.equal(draw(0, "train", 5), draw(0, "train", 5))
    others = [(0, "train", 6), (1, "train", 5), (0, "test", 5), (0, "train", "5"), (0, "train")]
    assert not any(torch.equal(draw(0, "train", 5), draw(*other)) for other in others)


def test_an_address_does_not_hang_on_what_was_drawn_before():
    first = torch.rand(3, generator=stream(0, "a"))
    torch.rand(100)
    assert torch.equal(first, torch.rand(3, generator=stream(0, "a")))


@pytest.mark.parametrize(
    ("climb", "steps", "table"),
    [
        (Staircase(), 500_000, {0: 11, 1999: 11, 2000: 13, 29_999: 39, 30_000: 41, 499_999: 41}),
        (Staircase(start=3, stop=40), 500_000, {0: 3, 2000: 5, 36_000: 39, 37_999: 39, 38_000: 40, 499_999: 40}),
        (Staircase(), 5000, {0: 11, 19: 11, 20: 13, 299: 39, 300: 41}),
        (Staircase(run=0.5, rise=10), 10, {0: 11, 4: 11, 5: 21, 9: 21}),
        (Staircase(rise=0), 100, {0: 11, 99: 11}),
        (Staircase(start=41), 3, {0: 41, 2: 41}),
    ],
)
def test_curriculum_table(climb, steps, table):
    assert {step: climb.at(step, steps) for step in table} == table


def test_a_curriculum_cannot_start_past_its_end():
    with pytest.raises(ValueError, match="start"):
        Staircase(start=50, stop=41)


def rows():
    for sigma in (1.0, 2.5):
        for length in (10.0, 40.0):
            for attn, value in (("ssa", sigma / 3), ("softmax", math.nan)):
                yield {
                    "attn": attn,
                    "sigma": sigma,
                    "length": length,
                    "metric": "mse",
                    "value": value,
                    "stderr": 0.1,
                    "count": 3,
                }


@pytest.fixture
def grid():
    return Grid.of(rows(), ["sigma", "length"], task="linear", preset="lite", spec="0123e567", seed=0)


def test_a_grid_survives_csv_to_the_last_bit(grid):
    again = Grid.read(grid.csv())
    assert again.frame.equals(grid.frame)
    assert again.csv() == grid.csv()
    assert again.axes == ["sigma", "length"]
    assert grid.csv().startswith(
        "task,attn,preset,spec,seed,sigma,length,metric,value,stderr,count\nlinear,ssa,lite,0123e567,0,1,10,mse,0.33333333333333"
    )


def test_a_hash_of_digits_stays_text():
    grid = Grid.of(rows(), ["sigma", "length"], task="linear", preset="lite", spec="00123450", seed=0)
    assert Grid.read(grid.csv()).frame["spec"].iloc[0] == "00123450"


def test_a_cell_is_found_by_its_labels_or_not_at_all(grid):
    assert grid.at(attn="ssa", sigma=2.5, length=40) == 2.5 / 3
    with pytest.raises(KeyError, match="2 cells"):
        grid.at(attn="ssa", sigma=2.5)
    with pytest.raises(KeyError, match=r"there are 1, 2\.5"):
        grid.at(attn="ssa", sigma=3)
    with pytest.raises(KeyError, match="no column 'sgima'"):
        grid.at(sgima=3)


def test_a_table_keeps_its_labels(grid):
    table = grid.where(attn="ssa").table("sigma", "length")
    assert list(table.index) == [1, 2.5]
    assert table.loc[2.5, 40] == 2.5 / 3
    with pytest.raises(KeyError, match="share"):
        grid.table("sigma", "length")


def test_what_is_no_grid_is_refused():
    with pytest.raises(ValueError, match="metric"):
        Grid.read("task,attn\nlinear,ssa\n")


def test_exit_codes_say_who_is_to_blame():
    assert LabError("x").exit_code == 2

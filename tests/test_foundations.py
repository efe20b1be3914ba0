"""Random streams, the curriculum and grids: what everything else stands on."""

import math
import os
from pathlib import Path

import pytest
import torch

from icl_lab.base import tables
from icl_lab.base.errors import LabError
from icl_lab.base.files import publish
from icl_lab.base.grid import Grid
from icl_lab.base.rng import stream
from icl_lab.training.curriculum import Staircase


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
                cell = {"attn": attn, "sigma": sigma, "length": length, "metric": "mse"}
                yield cell | {"value": value, "stderr": 0.1, "count": 3}


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


def test_floats_are_read_to_the_last_bit(tmp_path):
    """pandas before 3.1 does so only where it is told to."""
    values = [k / 7 for k in range(1000)]
    cells = [next(rows()) | {"length": k, "value": value} for k, value in enumerate(values)]
    made = Grid.of(cells, ["sigma", "length"], task="linear", preset="lite", spec="0123e567", seed=0)
    assert list(Grid.read(made.csv()).frame["value"]) == values
    (tmp_path / "a.csv").write_text(made.csv())
    assert list(tables.read(tmp_path / "a.csv")[0]["value"]) == values


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


def test_cells_of_a_model_are_without_references():
    own = [row for row in rows() if row["attn"] == "ssa"]
    beside = [row | {name: "reference:zero"} for row in own for name in ("attn", "metric")]
    who = {"task": "linear", "preset": "lite", "spec": "0123e567", "seed": 0}
    whole = Grid.of([*own, *beside], ["sigma", "length"], **who)
    assert whole.of_model("mse").frame.equals(Grid.of(own, ["sigma", "length"], **who).frame)
    assert len(whole.of_model("none").frame) == 0


def test_many_cells_are_found_as_one_is(grid):
    cells = [{"attn": "ssa", "sigma": sigma, "length": length} for sigma, length in ((2.5, 40), (1, 40), (2.5, 40))]
    assert grid.values_at(cells) == [grid.at(**cell) for cell in cells]
    assert grid.values_at([{"attn": "ssa", "sigma": 2.5}]) == list(grid.where(attn="ssa", sigma=2.5).frame["value"])
    with pytest.raises(KeyError, match=r"no cell has sigma=3; there are 1, 2\.5"):
        grid.values_at([cells[0], {**cells[0], "sigma": 3}])
    with pytest.raises(KeyError, match="no column 'sgima'"):
        grid.values_at([{"sgima": 3}])
    assert grid.values_at(cells, "stderr") == [float(grid.where(**cell).frame["stderr"].iloc[0]) for cell in cells]
    assert grid.values_at(cells) != grid.values_at(cells, "stderr")  # one is not remembered as the other


def test_the_error_of_a_mean_is_at_most_the_mean_of_the_errors():
    """By hand: 0.1 and 0.3 of values 1 and 2; of logarithms 0.1 / 1 and 0.3 / 2."""
    who = {"task": "linear", "attn": "ssa", "preset": "nano", "spec": "0", "seed": 0, "metric": "mse", "count": 9}
    rows = [{**who, "sigma": n, "value": value, "stderr": e} for n, (value, e) in enumerate(((1, 0.1), (2, 0.3)))]
    both = Grid.of(rows, ["sigma"])
    assert both.mean_error() == pytest.approx(0.2)
    assert both.mean_error(logarithm=True) == pytest.approx(0.125)
    assert math.isnan(Grid.of([*rows, {**rows[0], "stderr": None}], ["sigma"]).mean_error())


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


@pytest.mark.parametrize("column", ["task", "attn", "metric"])
def test_a_grid_with_a_row_of_nobody_is_none(column):
    """As the last line of a file that was cut short: no part of it may be taken for a cell."""
    head = "task,attn,preset,spec,seed,x,metric,value,stderr,count"
    cells = dict(zip(head.split(","), ["t", "a", "p", "s", "0", "1", "m", "1", "0", "1"], strict=True))
    rows = [",".join(each.values()) for each in (cells, {**cells, column: ""})]
    assert len(Grid.read("\n".join([head, rows[0]])).frame) == 1
    with pytest.raises(ValueError, match=f"a row without {column}"):
        Grid.read("\n".join([head, *rows]))


def test_a_published_file_is_on_the_disk_with_its_name(tmp_path, monkeypatch):
    """After a power cut the folder must know the new name, and not the content alone be safe."""
    synced = []
    fsync = os.fsync

    def noted(number):
        synced.append(Path(f"/proc/self/fd/{number}").resolve())
        fsync(number)

    monkeypatch.setattr(os, "fsync", noted)
    publish(tmp_path / "a.csv", b"1")
    assert (tmp_path / "a.csv").read_bytes() == b"1"
    assert synced[-1] == tmp_path.resolve()
    assert len(synced) == 2

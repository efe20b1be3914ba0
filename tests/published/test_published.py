"""The printed numbers are the printed numbers, each with a source, each doubt with a cell."""

import csv
from pathlib import Path

import numpy as np
import pytest

from icl_lab.base import published
from icl_lab.base.errors import BadValue, UnknownName, UnknownOption

FOLDER = Path(published.__file__).parent
NOTES = [(name, note) for name in published.names() for note in published.load(name).notes]


def test_every_table_has_one_source_and_every_source_a_table() -> None:
    stems = sorted(path.stem for path in FOLDER.rglob("*.csv") if path.parent != FOLDER)
    with (FOLDER / "sources.csv").open() as file:
        listed = sorted(line["file"] for line in csv.DictReader(file))
    assert stems == published.names() == listed
    for name in stems:
        table = published.load(name)
        assert all(vars(table.source).values()), name
        assert table.source.link.startswith("https://")


def test_every_note_is_of_a_known_table() -> None:
    with (FOLDER / "notes.csv").open() as file:
        assert {line["file"] for line in csv.DictReader(file)} <= set(published.names())


@pytest.mark.parametrize(
    ("name", "note"), NOTES, ids=lambda value: value if isinstance(value, str) else value.text[:25]
)
def test_a_doubt_selects_rows_that_exist_by_each_of_its_values(name: str, note: published.Note) -> None:
    table = published.load(name)
    assert note.text
    assert set(note.columns) <= set(table.columns)
    for label, values in note.where.items():
        found = {row[label].text for row in table.rows if note.covers(row)}
        assert found == set(values)
    assert any(note.covers(row) for row in table.rows)


# Typed from the papers' tables, not from the files.
CELLS = [
    ("ssa_table1", "mse", {"method": "SSA", "sigma": 1}, "4e-05"),
    ("ssa_table1", "mse", {"method": "SSA", "sigma": 3}, "1e-03"),
    ("ssa_table1", "mse", {"method": "SSA", "sigma": 10}, "8.50"),
    ("ssa_table1", "mse", {"method": "Softmax", "sigma": 3}, "6e-03"),
    ("ssa_table1", "mse", {"method": "Softmax", "sigma": 9}, "27.99"),
    ("ssa_table1", "mse", {"method": "Softmax", "sigma": 10}, "45.35"),
    ("ssa_table1", "mse", {"method": "tau=10", "sigma": 10}, "68.81"),
    ("ssa_table1", "mse", {"method": "SOFT/AVG", "sigma": 9}, "38.97"),
    ("ssa_table1", "mse", {"method": "Llama 3.3 70b", "sigma": 2}, "5.50"),
    ("ssa_table5", "squared_error", {"sigma": 100}, "2.20"),
    ("ssa_table6", "squared_error", {"model": "12L8AH", "sigma": 4}, "1.1"),
    ("ssa_table6", "squared_error", {"model": "12L8AH", "sigma": 10}, "73.5"),
    ("ssa_table6", "squared_error", {"model": "2Al32AH", "sigma": 1}, "1.17"),
    ("ssa_table6", "squared_error", {"model": "1L2AH", "sigma": 10}, "159.2"),
    ("ssa_table3", "accuracy", {"probe": "case-subjective_pron", "method": "SSA 2"}, "91.75"),
    ("lssa_table1", "val_loss", {"operation": "Softmax"}, "3.1911"),
    ("lssa_table3", "val_loss", {"activation": "Softplus"}, "3.1901"),
    ("lssa_table4", "val_loss", {"reweight": "p=15", "mechanism": "LSSAR", "length_printed": "8K"}, "3.3171"),
    ("poster_flops", "gflops_at_32k_printed", {"activation": "SSMax"}, "20.5"),
    ("poster_task3_retrieval", "n_correct", {"method": "Softmax", "context_length": 1024, "needle_depth": 0.5}, "47"),
    ("poster_task3_retrieval", "n_correct", {"method": "SSMax", "context_length": 1024, "needle_depth": 0.5}, "405"),
    ("ssmax_hparams", "value", {"parameter": "s_init_replacement"}, "0.168"),
]


@pytest.mark.parametrize(("name", "column", "labels", "printed"), CELLS)
def test_a_cell_is_what_the_paper_prints(name: str, column: str, labels: dict[str, object], printed: str) -> None:
    cell = published.load(name).at(column, **labels)
    assert cell.text == str(cell) == printed
    assert cell.number == float(printed)


def test_the_grids_are_whole() -> None:
    for name, label, methods in (("ssa_table1", "method", 14), ("ssa_table6", "model", 14)):
        table = published.load(name)
        rows = [(row[label].text, row["sigma"].number) for row in table.rows]
        assert len(set(rows)) == len(rows) == methods * 10
        assert {sigma for _, sigma in rows} == set(range(1, 11))
    functions, stream = published.load("ssa_eval_functions"), published.load("ssa_eval_x_stream")
    assert [(row["sigma"].number, row["j"].number) for row in functions.rows] == [
        (sigma, j) for sigma in range(1, 11) for j in range(100)
    ]
    assert [row["m"].number for row in stream.rows] == list(range(len(stream.rows)))
    assert len(stream.rows) >= 10 * 63 + 40


def test_what_was_recomputed_follows_from_what_was_printed() -> None:
    table = published.load("ssa_table2_4")
    for row in table.rows:
        if row["method"].text == "SSA":
            labels = {key: row[key].text for key in ("suite", "task", "shots")}
            before = table.at("score_table2", method="Softmax", **labels).number
            gain = 100 * (row["score_table2"].number / before - 1)
            assert row["gain_pct_recomputed"].number == pytest.approx(gain, abs=0.051)
            # A gain that is further off than a last digit carries a note.
            off = abs(row["gain_pct_printed"].number - gain) > 0.15
            own = [note for note in table.footnotes(row, "gain_pct_printed") if note.columns == ("gain_pct_printed",)]
            assert bool(own) == off, labels
    for row in published.load("poster_task3_retrieval").rows:
        assert row["accuracy"].number == row["n_correct"].number / row["n_samples"].number
    for row in published.load("poster_flops").rows:
        n = 32_000
        counts = {
            "Softmax": 3 * n * (n + 1) / 2 - n,
            "SSMax": 4 * n * (n + 1) / 2 - n,
            "Sigmoid": n * (n + 1),
            "SimA": n * (n + 1) / 2 - n,
        }
        assert row["gflops_recomputed_n32000"].number == pytest.approx(counts[row["activation"].text] / 1e9, abs=5e-5)
    initial = published.load("ssmax_hparams").at("value", parameter="s_init_replacement").number
    assert initial == pytest.approx(1 / np.log(np.arange(1, 1025)).mean(), abs=5e-4)


def test_footnotes_come_with_their_cell_only() -> None:
    table = published.load("ssa_table1")
    (softmax,), (tau,) = (table.where(method=method, sigma=10) for method in ("Softmax", "tau=10"))
    assert [note.text[:36] for note in table.footnotes(softmax, "mse")] == ["Very probably printed one column too"]
    assert table.footnotes(softmax, "parse") == ()
    assert table.footnotes(tau) == ()
    assert len(table.footnotes(table.where(method="SSA", sigma=7)[0], "mse")) == 2
    assert len(table.footnotes(table.where(method="SSA", sigma=6)[0], "mse")) == 1
    assert len(table.remarks) == 3


def test_text_is_kept_beside_the_number() -> None:
    cell = published.load("ssa_table6").at("squared_error", model="12L8AH", sigma="1")
    assert (cell.text, cell.number) == ("0.0", 0.0)
    assert published.load("ssa_table1").at("mse", method="Softmax", sigma=10.0).text == "45.35"
    formula = published.load("poster_flops").at("flops_formula", activation="Sigmoid")
    assert formula.text == "n(n+1)"
    assert np.isnan(formula.number)


def test_what_does_not_exist_is_named_with_what_does() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'ssa_table1'\? There are: lssa_table1, .*ssmax_hparams"):
        published.load("ssa_table11")
    table = published.load("ssa_table5")
    with pytest.raises(BadValue, match="has no row with sigma=5"):
        table.where(sigma=5)
    with pytest.raises(UnknownOption, match="takes: model, sigma, squared_error"):
        table.at("squared_error", sigmas=10)
    with pytest.raises(UnknownOption, match="takes: model, sigma, squared_error"):
        table.at("mse", sigma=10)
    with pytest.raises(BadValue, match="11 rows"):
        table.at("squared_error", model="12L8AH")


def test_the_readme_stands_alone() -> None:
    text = (FOLDER / "README.md").read_text()
    assert "shared/" not in text
    assert "](../" not in text

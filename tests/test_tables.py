"""Text from outside in tables: no terminal escapes, no formulas in CSV; numbers stay numbers."""

import csv
import io

import pandas as pd
import pytest

from icl_lab.base import markdown as md
from icl_lab.base.tables import chosen, csv_cell, csv_text, encode, in_latex

FORMULAS = ["=cmd()!A1", "=1+1", "@SUM(A1)", "+A1", "-A1", "-x", "-1+cmd|' /C calc'!A1", "\t=A1", "-0.3 =A1"]
PLAIN = ["-0.3", "+1e-05", "-inf", "-", "", "ssa", "a=b", "-0.3 (sd 0.1)", "-0.3 ± 0.1", "-1.2 [-2, 0.5]", "10%"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_marked_as_text(text):
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("cell", [*PLAIN, -0.3, -1, None, True])
def test_numbers_and_words_stay_as_they_are(cell):
    assert csv_cell(cell) is cell or csv_cell(cell) == cell


def test_csv_files_hold_no_formula_in_names_or_cells():
    lines = list(csv.reader(csv_text(["attn", "=x"], [{"attn": "=cmd()!A1", "=x": -0.3}]).splitlines()))
    assert lines == [["attn", "'=x"], ["'=cmd()!A1", "-0.3"]]
    exported = encode(pd.DataFrame({"attn": ["`=cmd()!A1`"], "=x": ["−0.3"]}), "csv").decode()
    assert list(csv.reader(exported.splitlines())) == lines


@pytest.mark.parametrize("make", [md.code, md.escaped, lambda text: md.row([text]), csv_cell])
def test_terminal_escapes_do_not_pass(make):
    assert "\x1b" not in make("a\x1b[31m\x9b\u202eb")
    assert "\ufffd" in make("a\x1b[31m\x9b\u202eb")


@pytest.mark.parametrize(("cell", "given"), [
    ("0.012 ± 7.0e-4", "0.012 +- 0.00070"), ("1.2e+06 ± 3e+04", "1200000 +- 30000"), ("-2.5e-05 ± 1", "-0.000025 +- 1"),
    ("0.50 ± 0.10", "0.50 +- 0.10"), ("7.0e-4", "7.0e-4"),
])  # fmt: skip
def test_an_exponent_is_not_shared_by_a_number_and_its_spread(cell, given):
    """siunitx reads 0.012 +- 7.0e-4 as (0.012 +- 7.0) x 10^-4."""
    assert rf"{given} \\" in encode(pd.DataFrame({"error": [cell]}), "latex").decode()


def test_columns_of_one_name_are_numbered_as_pandas_does():
    frame = pd.DataFrame([[1, 2, 3, 4]], columns=["a", "a", "b", "a"])
    pytest.importorskip("pyarrow")
    made = pd.read_parquet(io.BytesIO(encode(frame, "parquet")))
    assert list(made.columns) == ["a", "a.1", "b", "a.2"]
    assert list(pd.read_csv(io.StringIO(frame.to_csv(index=False))).columns) == list(made.columns)


def test_the_first_column_stands_once_though_it_is_named():
    frame = pd.DataFrame({"rule": ["ssa"], "error": [0.5], "note": ["x"]})
    assert list(chosen(frame, ["note", "rule"]).columns) == ["rule", "note"]


@pytest.mark.parametrize(("value", "text"), [
    (0.0099, "9.9e−3"), (0.994, "0.99"), (0.996, "1.0"), (9.94, "9.9"), (9.96, "10"), (-9.96, "-10"), (999.4, "999"),
    (999.6, "1.0k"), (0, "0"),
])  # fmt: skip
def test_short_numbers_are_rounded_before_their_form_is_chosen(value, text):
    assert md.short(value) == text


def test_cells_of_a_row_come_back_as_they_were():
    cells = ["a <b> | c", "`x|y`", "1 < 2", ""]
    assert md.cells(md.row(cells)) == cells


def test_a_backtick_that_nothing_closes_is_one_in_latex():
    assert in_latex("a` b_c") == r"a` b\_c"
    assert in_latex("`a_b` c") == r"\texttt{a\_b} c"

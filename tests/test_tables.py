"""Text from outside in tables: no terminal escapes, no formulas in CSV; numbers stay numbers."""

import csv

import pandas as pd
import pytest

from icl_lab.base import markdown as md
from icl_lab.base.tables import csv_cell, csv_text, encode

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

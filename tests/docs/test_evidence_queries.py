"""The printed queries of docs/evidence.md give the numbers of the claims, and average no two models."""

import csv
import json
import math
import re
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "evidence.md").read_text(), flags=re.DOTALL | re.MULTILINE
)


def printed(tool, monkeypatch):
    """What the block that imports a tool prints, as the object that it hands to ``print``."""
    pytest.importorskip(tool, reason=f"{tool} is not installed, and no part of the package needs it")
    (block,) = (block for block in BLOCKS if re.search(rf"^import {tool}\b", block, flags=re.MULTILINE))
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("ICL_LAB_EVIDENCE", str(ROOT / "results" / "evidence"))
    shown = []
    exec(block, {"print": shown.append})
    return shown[0]


def test_every_query_is_tried():
    assert [re.search(r"^import (\w+)", block, flags=re.MULTILINE)[1] for block in BLOCKS] == [
        "icl_lab", "polars", "duckdb", "pandas"
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_the_tables_of_python_and_polars_agree(monkeypatch):
    """Softmax of the preset lite in training conditions: 0.0069, the mean over 16 seeds of one specification."""
    found = printed("icl_lab", monkeypatch)
    assert found[1.0] == pytest.approx(0.0069, abs=5e-5)
    assert found.index.tolist() == list(range(1, 11))
    theirs = printed("polars", monkeypatch)
    assert dict(zip(theirs["sigma_f"], theirs["value"], strict=True)) == pytest.approx(found.to_dict(), rel=1e-12)
    assert set(theirs["attn"]) == {"softmax"}
    assert set(theirs["preset"]) == {"lite"}


def test_the_query_of_duckdb_is_the_first_claim_of_readme(monkeypatch):
    rows = {attn: (spec, error, seeds) for attn, spec, error, seeds in printed("duckdb", monkeypatch).fetchall()}
    with (ROOT / "results" / "claims.csv").open() as file:
        named = ("ssa-table1", "lite2", "SSA errs less than softmax far from training")
        rows_of = csv.DictReader(file)
        (claim,) = (row for row in rows_of if (row["experiment"], row["preset"], row["claim"]) == named)
    assert set(claim["specs"].split()) == {rows["softmax"][0], rows["ssa"][0]}
    assert rows["softmax"][2] == rows["ssa"][2] == len(claim["seeds"].split())
    assert math.log(rows["ssa"][1] / rows["softmax"][1]) == pytest.approx(float(claim["effect"]), rel=1e-9)
    assert f"{math.exp(float(claim['effect'])):.3f}" == "0.874"
    assert "0.87 times" in (ROOT / "README.md").read_text()


def test_a_count_is_one_of_a_specification(monkeypatch):
    assert printed("pandas", monkeypatch).index.names == ["preset", "attn", "spec"]


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["polars", "duckdb"])
def test_a_query_over_all_tasks_has_one_row_per_key_and_cell(tool, monkeypatch):
    """The head of the printed query, without its filter: twenty-one runs stand in two parts."""
    pytest.importorskip(tool, reason=f"{tool} is not installed, and no part of the package needs it")
    monkeypatch.chdir(ROOT)
    (block,) = (block for block in BLOCKS if re.search(rf"^import {tool}\b", block, flags=re.MULTILINE))
    columns = {name for path in ROOT.glob("results/evidence/*/cells.parquet") for name in pq.read_schema(path).names}
    cell = sorted(columns - {"value", "stderr", "count"})
    assert {"sigma_x", "length", "contrast", "translation"} < set(cell)
    if tool == "polars":
        names = {}
        exec(block.partition("print(")[0], names)
        rows = names["cells"].group_by(cell).len().filter(names["pl"].col("len") > 1).collect()
        keys = names["cells"].select("key").unique().collect()
    else:
        duckdb = pytest.importorskip("duckdb")
        source = re.search(r"from \(select.*?(?=\n    where)", block, flags=re.DOTALL)[0]
        rows = duckdb.sql(f"select {', '.join(cell)} {source} group by all having count(*) > 1").fetchall()
        keys = duckdb.sql(f"select distinct key {source}").fetchall()
    assert len(rows) == 0
    everything = {key for path in ROOT.glob("results/evidence/*/cells.parquet")
                  for key in pq.read_table(path, columns=["key"])["key"].unique().to_pylist()}  # fmt: skip
    assert len(keys) == len(everything) > 2000


@pytest.fixture(scope="module")
def stored():
    """Rows of each table in the parts that count, as its card says that they are put together."""
    evidence = ROOT / "results" / "evidence"
    counts = pd.read_csv(evidence / "current.csv").set_index("key")["part"]

    def read(table, *columns):
        parts = [pd.read_parquet(path, columns=[name for name in columns if name in pq.read_schema(path).names] or None)
                 .assign(part=path.parent.name) for path in evidence.glob(f"*/{table}.parquet")]  # fmt: skip
        rows = pd.concat([rows.astype({"key": str}) for rows in parts], ignore_index=True)
        return rows[rows["part"] == rows["key"].map(counts)]

    return read


def test_each_run_with_a_grid_has_cells(stored):
    """Whatever the axes of its task."""
    files = stored("runs", "key", "files").set_index("key")["files"].map(json.loads)
    with_grid = {key for key, names in files.items() if any(name.endswith("grid.csv") for name in names)}
    assert set(stored("cells", "key")["key"]) == with_grid
    assert len(with_grid) > 2700


def test_tables_join_by_key_swap_and_axes(stored):
    """As the card says it: what stands in a table of runs has its run, and errors of prompts have their cell."""
    assert "`replace(swap, ':', '-')`" in (ROOT / "results" / "evidence" / "README.md").read_text()
    runs = set(stored("runs", "key")["key"])
    for table in ("cells", "history", "errors", "bounds"):
        assert set(stored(table, "key")["key"]) <= runs, table
    paths = (ROOT / "results" / "evidence").glob("*/errors.parquet")
    names = {name for path in paths for name in pq.read_schema(path).names} - {"errors"}
    cells, errors = (stored(table, *names) for table in ("cells", "errors"))
    newest = errors["part"].str.extract(r"^(\d{4})-", expand=False).fillna("0000") > "0070"
    assert newest.any()
    for rows, both in ((errors[newest], False), (errors, True)):
        sides = [
            side.assign(swap=side["swap"].astype(str).str.replace(":", "-" if both else ":")) for side in (rows, cells)
        ]
        marked = sides[0].merge(sides[1].drop_duplicates(list(names)), on=list(names), how="left", indicator=True)
        assert (marked["_merge"] == "both").all()
    assert (errors["swap"].astype(str) != "").sum() > 600

"""Tables for elsewhere, read back from what was written."""

import io
import math
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import icl_lab as icl
from icl_lab.base import tables
from icl_lab.base.errors import LabError
from icl_lab.base.files import sha256
from icl_lab.runs import manifest
from icl_lab.runs.study_folder import StudyRecord

ROOT = Path(__file__).parents[2]
TABLE = """Means.

| rule | sigma_f 1 | sigma_f 2 | note |
| --- | --- | --- | --- |
| `ssa:n=2` | **5.5e−3** | 0.18 | 50 % & more |
| reference:zero | 2.1 | −8.5 |  |

| rule | seed |
| --- | --- |
| `a_b` | 0 |
"""


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "table.md").write_text(TABLE)
    (folder / "comparison.csv").write_text("attn,effect\nssa,0.25\nlssa,\n")
    (folder / "report.html").write_text("<p>")
    return folder


def test_latex_has_the_rules_of_booktabs(run, study):
    out, err = run.ok("export", str(study))
    rules = [line for line in out.splitlines() if "rule" in line and "\\" in line and "&" not in line]
    assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert r"\begin{tabular}{lSSl}" in out
    assert r"rule & {$\sigma_f = 1$} & {$\sigma_f = 2$} & note \\" in out
    assert r"\texttt{ssa:n=2} & \bfseries 5.5e-3 & 0.18 & 50 \% \& more \\" in out
    assert r"reference:zero & 2.1 & -8.5 &  \\" in out


def test_csv_and_parquet_hold_numbers(run, study, tmp_path):
    out, err = run.ok("export", str(study), "--to", "csv")
    frame = pd.read_csv(io.StringIO(out))
    assert list(frame["rule"]) == ["ssa:n=2", "reference:zero"]
    assert list(frame["sigma_f 1"]) == [0.0055, 2.1]
    assert list(frame["sigma_f 2"]) == [0.18, -8.5]
    target = tmp_path / "made" / "table.parquet"
    out, err = run.ok("export", str(study), "--to", "parquet", "--out", str(target))
    assert out == f"wrote {target}\n"
    back = pd.read_parquet(target)
    assert back["sigma_f 1"].dtype == float
    assert back["sigma_f 1"].equals(frame["sigma_f 1"])


def test_markdown_comes_back_as_it_was(run, study):
    out, _ = run.ok("export", str(study), "--to", "markdown")
    assert out in TABLE


def test_one_of_several(run, study):
    out, _ = run.ok("export", str(study), "--number", "2", "--to", "csv")
    assert out == "rule,seed\na_b,0\n"
    out, _ = run.ok("export", str(study), "--table", "comparison", "--to", "markdown")
    assert out.splitlines()[2:] == ["| ssa | 0.25 |", "| lssa |  |"]
    assert run("export", str(study / "comparison.csv"), "--to", "csv")[1] == "attn,effect\nssa,0.25\nlssa,\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--table", "comparisons"), "Did you mean 'comparison'? There are: comparison, table."),
        (("--number", "3"), "holds 2 tables, there is no number 3"),
        (("--to", "parquet"), "name a file with --out"),
    ],
)
def test_what_is_not_there(run, study, words, said):
    out, err = run.refused("export", str(study), *words)
    assert not out
    assert said in err


def test_a_damaged_or_missing_table_is_refused(run, study, tmp_path):
    files = {path.name: sha256(path.read_bytes()) for path in study.iterdir()}
    (study / "study.json").write_bytes(StudyRecord("compare", {}, [], files=files).json())
    (grid := tmp_path / "seed-0" / "grid.csv").parent.mkdir()
    grid.write_text("attn,value\nssa,0.25\n")
    manifest.note(grid.parent, {"grid.csv": grid.read_bytes()}, over=())
    for path, words in ((study / "table.md", []), (study / "comparison.csv", ["--table", "comparison"]), (grid, [])):
        whole = path.read_text()
        run.ok("export", str(path.parent), *words)
        path.write_text(whole.replace("0.25", "0.26").replace("0.18", "0.19"))
        out, err = run.failed("export", str(path.parent), *words)
        assert (out, f"{path} is damaged or edited" in err) == ("", True)
        path.write_text(whole)
    (study / "table.md").unlink()
    assert f"{study / 'table.md'} is missing" in run.failed("export", str(study))[1]
    run.ok("export", str(study), "--table", "comparison")


def test_numbers_that_are_none_and_columns_of_one_name(run, tmp_path):
    """As undamaged studies have them: numbers and nan in a column, two columns called "", versions, no numbers."""
    place = tmp_path / "study"
    place.mkdir()
    (place / "table.md").write_text("|  |  | v |\n| --- | --- | --- |\n| nan | 1 | 1.2.3 |\n| 0.5 | inf | 1.2.4 |\n")
    out, err = run.ok("export", str(place), "--to", "csv")
    assert out == ",,v\n,1.0,1.2.3\n0.5,inf,1.2.4\n"
    for kind in ("latex", "markdown"):
        assert "1.2.3" in run.ok("export", str(place), "--to", kind)[0]
    assert "{SSl}" in run("export", str(place))[1]
    _, err = run.ok("export", str(place), "--to", "parquet", "--out", str(tmp_path / "t.parquet"))
    back = pd.read_parquet(tmp_path / "t.parquet")
    assert list(back.columns) == ["", ".1", "v"]
    assert back[".1"].tolist() == [1.0, float("inf")]


@pytest.mark.parametrize("data", [b"| a |\n| --- |\n| 1 | 2 |\n", b"\xff\xfe"])
def test_a_table_that_is_none_is_one_line(run, tmp_path, data):
    for name in ("table.md", "numbers.csv.xz"):
        place = tmp_path / name.replace(".", "-")
        place.mkdir()
        (place / name).write_bytes(data)
        out, err = run.refused("export", str(place))
        assert not out
        assert err.startswith(f"icl-lab: {place / name} cannot be read as a table: ")
        assert len(err.splitlines()) == 1


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["csv", "latex", "markdown"])
def test_every_table_of_the_repository_is_exported(kind):
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {(ROOT / name).parent for name in listed.splitlines() if name.endswith((".md", ".csv", ".csv.xz"))}
    done = 0
    for folder in sorted(folder for folder in folders if "evidence" not in folder.parts):
        for path in tables.stored(folder).values() if any(folder.glob("*.csv*")) else ():
            for frame in tables.read(path):
                done += bool(tables.encode(frame.head(500), kind))
    assert done > 300


def test_packed_tables_are_read(tmp_path):
    frame = pd.DataFrame({"a": [1.5, 2.5]})
    frame.to_csv(tmp_path / "long.csv.xz", index=False)
    (found,) = tables.read(tables.stored(tmp_path)["long"])
    assert found.equals(frame)


def test_letters_that_latex_reads_as_commands():
    frame = pd.DataFrame({"a\\b": ["{x}_$y^2~z", "−1.2e−7", "1e+10", 0.5, None]})
    lines = tables.encode(frame, "latex").decode().splitlines()
    assert lines[3:4] + lines[5:10] == [
        r"a\textbackslash{}b \\",
        r"\{x\}\_\$y\textasciicircum{}2\textasciitilde{}z \\",
        r"$-1.2\times10^{-7}$ \\",
        r"$1\times10^{10}$ \\",
        r"0.5 \\",
        r" \\",
    ]


def test_a_caption_makes_a_float_with_spreads_over_seeds():
    frame = pd.DataFrame({"rule": ["ssa"], "far": ["0.50 ± 0.10"], "none": [math.inf]})
    text = tables.encode(frame, "latex", "50 % of it_", "tab:far").decode()
    for line in (r"\begin{table}[t]", r"\centering", r"\caption{50 \% of it\_}", r"\label{tab:far}", r"\end{table}"):
        assert line in text.splitlines()
    assert r"\begin{tabular}{lSS}" in text
    assert r"ssa & 0.50 +- 0.10 & {inf} \\" in text
    with pytest.raises(LabError, match="are for LaTeX, not for csv"):
        tables.encode(frame, "csv", label="tab:far")
    with pytest.raises(LabError, match="A label has letters"):
        tables.encode(frame, "latex", label="a b")


def test_names_of_rows_are_kept():
    frame = pd.DataFrame({"error": [0.5, 0.25]}, index=pd.Index(["softmax", "ssa"], name="normalizer"))
    assert icl.export(frame, "csv") == "normalizer,error\nsoftmax,0.5\nssa,0.25\n"
    assert r"ssa & 0.25 \\" in icl.export(frame, "latex")
    assert icl.export(frame.rename_axis(None), "markdown").splitlines()[0] == "|  | error |"
    levels = frame.set_index(pd.Index([1, 2], name="seed"), append=True)
    assert icl.export(levels, "csv").splitlines()[1] == "softmax,1,0.5"


def test_columns_and_rows_are_chosen_in_the_order_named(run, study):
    (study / "table.md").write_text(f"Summary: mean log error; clip B fits.\n\n{TABLE}")
    out, _ = run.ok("export", str(study), "--columns", "note, sigma_f 2", "--rows", "zero,ssa:n=2")
    lines = [line for line in out.splitlines() if line.endswith(r"\\")]
    assert lines == [
        r"rule & note & {$\sigma_f = 2$} \\",
        r"reference:zero &  & -8.5 \\",
        r"\texttt{ssa:n=2} & 50 \% \& more & 0.18 \\",
    ]
    assert out.startswith("% Summary: mean log error\n")
    for words, why in ((["--columns", "sigma_f 9"], "No column of the table is called 'sigma_f 9'"),
                       (["--rows", "zer"], "No row of the table is called 'zer'. Did you mean 'zero'?")):  # fmt: skip
        assert why in run.refused("export", str(study), *words)[1]

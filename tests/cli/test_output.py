"""Standard output: columns for a person, Markdown for a program, and work that goes on when nobody reads."""

import io
import os
import re
import subprocess
import sys

import click
import pytest

from icl_lab.cli import output

TABLE = """Errors:

| rule | error | note |
| --- | --- | --- |
| `a\\|b` | **0.5** | x |
| softmax | −12 |  |

more | text |"""


def test_a_table_becomes_columns_and_the_rest_stays():
    assert click.unstyle(output.rendered(TABLE, 80)).splitlines() == [
        "Errors:",
        "",
        "rule     error  note",
        "a|b        0.5  x",
        "softmax    −12",
        "",
        "more | text |",
    ]


def test_bold_is_all_that_a_table_is_dressed_in():
    shown = output.rendered(TABLE, 80)
    assert set(re.findall("\x1b\\[([0-9;]*)m", shown)) == {"1", "0"}
    assert "\x1b[1m  0.5\x1b[0m" in shown


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width):
    words = " ".join(["far from training"] * 9)
    table = f"| claim | ours |\n| --- | --- |\n| {words} | 0.874 [0.785, 0.975] |"
    lines = click.unstyle(output.rendered(table, width)).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.count("training") for line in lines) == 9


def test_strokes_that_are_no_table_stay():
    for text in ("| a | b |", "| a |\n| b |", "", "\n\n", "|x|\n"):
        assert output.rendered(text, 80) == text


def test_a_ragged_table_loses_no_cell():
    assert click.unstyle(output.rendered("| a |\n| --- |\n| 1 | 2 |", 80)).splitlines() == ["a", "1  2"]


@pytest.mark.parametrize("terminal", [True, False])
def test_markdown_stays_where_a_program_reads(monkeypatch, capsys, terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    output.out(TABLE)
    said = click.unstyle(capsys.readouterr().out)
    assert ("| --- |" in said) == (not terminal)
    assert ("rule     error" in said) == terminal


class Gone(io.StringIO):
    """A reader that has left."""

    def write(self, text):
        raise BrokenPipeError


def test_a_reader_that_has_left_ends_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Gone())
    output.out("one")
    output.out("two")
    assert sys.stdout.name == os.devnull
    sys.stdout.close()
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_head_does_not_end_the_runs_that_follow(tmp_path):
    small = ["--set", "train.steps=5", "--set", "test.axes.sigma_x=1", "--set", "test.axes.sigma_f=1", "--seeds", "3"]
    words = [sys.executable, "-m", "icl_lab", "sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke", *small]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*words, "--results", str(tmp_path)], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.returncode == 0, done.stderr
    assert "Broken" not in done.stderr
    assert len(list(tmp_path.rglob("grid.csv"))) == 3


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "there is too little memory: MemoryError"),
        (MemoryError("Unable to allocate 8 GiB\nfor an array"), "there is too little memory: Unable to allocate 8 GiB"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "there is too little memory: DefaultCPUAllocator"),
    ],
)
def test_too_little_memory_is_one_line(run, monkeypatch, error, told):
    from icl_lab.cli import main

    def full(*_, **__):
        raise error

    monkeypatch.setattr(main.cli, "main", full)
    code, _, err = run("list", "tasks")
    assert code == 1
    assert err.startswith(f"icl-lab: {told}")
    assert len(err.strip().splitlines()) == 1


def test_another_fault_of_the_program_is_not_hidden(run, monkeypatch):
    from icl_lab.cli import main

    def wrong(*_, **__):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(main.cli, "main", wrong)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        run("list", "tasks")


@pytest.mark.skipif(os.name != "posix", reason="a shell of POSIX")
@pytest.mark.parametrize(
    ("words", "code"), [("list normalizers >&-", 0), ("list normalizers >&- 2>&-", 0), ("list nothing >&- 2>&-", 2)]
)
def test_closed_streams_lose_what_is_said_and_nothing_else(tmp_path, words, code):
    command = f"{sys.executable} -m icl_lab {words}"
    left = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert (left.returncode, left.stdout, left.stderr) == (code, "", "")


@pytest.mark.slow
def test_a_terminal_of_ascii_gets_escapes(tmp_path):
    plain = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0", "LC_ALL": "C"}
    (tmp_path / "x.csv").write_text("name\n\u2713\n", encoding="utf-8")
    command = [sys.executable, "-m", "icl_lab", "export", "x.csv", "--to", "csv"]
    left = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=plain)
    assert (left.returncode, left.stdout, left.stderr) == (0, "name\n\\u2713\n", "")

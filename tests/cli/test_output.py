"""Standard output: columns for a person, Markdown for a program, and work that goes on when nobody reads."""

import contextlib
import io
import os
import re
import struct
import subprocess
import sys
from unittest.mock import Mock

import click
import pytest

from icl_lab.cli import main, output

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


@pytest.mark.exhaustive
def test_head_does_not_end_the_runs_that_follow(tmp_path):
    small = ["--set", "train.steps=5", "--set", "test.axes.sigma_x=1", "--set", "test.axes.sigma_f=1", "--seeds", "3"]
    words = [sys.executable, "-m", "icl_lab", "sweep", "--task", "linear", "--attn", "ssa", "--preset", "smoke", *small]
    read, write = os.pipe()
    os.close(read)
    words += ["--results", str(tmp_path)]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
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
    monkeypatch.setattr(main.cli, "main", Mock(side_effect=error))
    _, err = run.failed("list", "tasks")
    assert err.startswith(f"icl-lab: {told}")
    assert len(err.strip().splitlines()) == 1


def test_a_stop_is_said_beside_the_output(run, monkeypatch):
    monkeypatch.setattr(main.cli, "main", Mock(side_effect=KeyboardInterrupt))
    assert run("list", "tasks") == (130, "", "icl-lab: stopped.\n")


def test_another_fault_of_the_program_is_not_hidden(run, monkeypatch):
    monkeypatch.setattr(main.cli, "main", Mock(side_effect=RuntimeError("shapes do not fit")))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        run("list", "tasks")


@pytest.mark.skipif(os.name != "posix", reason="a shell of POSIX")
@pytest.mark.parametrize(("words", "code"), [("list >&-", 0), ("list >&- 2>&-", 0), ("list nothing >&- 2>&-", 2)])
def test_closed_streams_lose_what_is_said_and_nothing_else(tmp_path, words, code):
    command = f"{sys.executable} -m icl_lab {words}"
    left = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert (left.returncode, left.stdout, left.stderr) == (code, "", "")


def test_a_terminal_of_ascii_gets_escapes(run, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("name\n\u2713\n", encoding="utf-8")
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", terminal)
    run.ok("export", str(tmp_path / "x.csv"), "--to", "csv")
    terminal.flush()
    assert terminal.buffer.getvalue() == b"name\n\\u2713\n"


def on_terminal(columns, *words, cwd):
    """Return the exit code and the output of a command on a pseudo-terminal of so many columns."""
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    command = subprocess.Popen([sys.executable, *words], stdin=writer, stdout=writer, stderr=writer, cwd=cwd, env=plain)
    os.close(writer)
    pieces = []
    with contextlib.suppress(OSError):  # Linux: the other side is closed
        while piece := os.read(reader, 65536):
            pieces.append(piece)
    os.close(reader)
    return command.wait(), b"".join(pieces).decode().replace("\r\n", "\n")


PRINT = "import sys; from icl_lab.cli.output import out; out(open(sys.argv[1]).read(), 'in table.md')"
SIGMAS = "".join(f" sigma_f {sigma} |" for sigma in range(1, 11))
WIDE = f"| normalizer |{SIGMAS} summary | clip B (residual) |\n| --- |" + " --- |" * 12
for name, cell in {"`ssa`": "{}.25e−3", "reference:least-squares": "3.6e−{}"}.items():
    WIDE += f"\n| {name} |" + "".join(f" {cell.format(n)} |" for n in range(11, 21)) + " 3.03 | 5 (0.08) |"
CLAIMS = """| claim | ours | printed | verdict | scale, seeds |
| --- | --- | --- | --- | --- |
| SSA's bound leaves the same error as softmax's: their floors | 1.01 [0.789, 1.3] | — | within 1.33 | `deep2`, 5 |
| With labels rescaled softmax errs less | 0.000188 [0.000101, 0.000365] | 0.0637 | below, smaller | `lite2`, 12 |"""


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("table", [WIDE, CLAIMS], ids=["wide", "claims"])
def test_a_terminal_breaks_no_number_and_no_word(columns, table, tmp_path):
    (tmp_path / "text.md").write_text(table + "\n")
    code, shown = on_terminal(columns, "-c", PRINT, "text.md", cwd=tmp_path)
    lines = click.unstyle(shown).splitlines()
    assert code == 0, shown
    assert max(map(len, lines)) <= columns
    words = set(re.findall(r"\S+", re.sub(r"`|reference:", "", table)))
    more = [line for line in lines if line.endswith("in table.md")]
    shown_words = {word for line in lines if line not in more for word in line.split()}
    assert not shown_words - words
    lost = int(more[0].split()[0]) if more else 0
    heads = re.compile("sigma_f|summary|clip B")
    assert len(heads.findall(" ".join(lines))) + lost == len(heads.findall(table))
    if table == CLAIMS and columns > 60:
        assert "0.000188 [0.000101, 0.000365]" in shown  # an interval stays with its number
    assert table == WIDE or words - shown_words == {"|", "---"}  # nothing is lost of claims


def test_both_ends_and_the_middle_of_many_columns_stay():
    lines = click.unstyle(output.rendered(WIDE, 60, "in table.md")).splitlines()
    (row,) = (line for line in lines if line.startswith("ssa"))
    assert row.split() == ["ssa", "11.25e−3", "15.25e−3", "20.25e−3", "3.03"]
    assert lines[-1] == "8 more columns in table.md"
    assert lines[-2].startswith("least-squares ")
    whole = click.unstyle(output.rendered(WIDE, 140, "in table.md"))
    assert "more column" not in whole


def test_three_columns_alike_stay_before_one_beside_them():
    table = "| rule | note | sigma 1 | sigma 2 | sigma 4 |\n" + "| --- " * 5 + "|\n| ssa | remarkable | 1 | 2 | 3 |"
    lines = click.unstyle(output.rendered(table, 32, "in table.md")).splitlines()
    assert lines == ["rule  sigma 1  sigma 2  sigma 4", "ssa         1        2        3", "1 more column in table.md"]


def test_rows_of_a_list_hang_and_sentences_keep_their_margin():
    shown = output.rendered("  ssa  one two three four\n  one two three four five", 18, prose=True)
    assert shown.splitlines() == ["  ssa  one two", "      three four", "  one two three", "  four five"]


def test_room_goes_to_the_column_of_most_lines():
    """40 = 34 + 2 + 4: 20 words of two letters stand in two lines, 11 in the first."""
    table = f"| claim | ours |\n| --- | --- |\n| {' '.join(['ab'] * 20)} | c d |"
    lines = click.unstyle(output.rendered(table, 40)).splitlines()
    assert [line.split().count("ab") for line in lines] == [0, 11, 9]


BAR = """
from icl_lab.cli.output import out
from icl_lab.execute.progress import Bar
bar = Bar()
bar("writing", 0, 2, "")
out("the verdict")
bar("writing", 2, 2, "")
"""


def test_a_text_is_not_glued_to_a_progress_bar(tmp_path):
    code, shown = on_terminal(80, "-c", BAR, cwd=tmp_path)
    assert code == 0
    seen = [line.rpartition("\r")[2] for line in shown.split("\n")]  # what stands in a line once it is written
    assert "the verdict" in [click.unstyle(line).strip() for line in seen]

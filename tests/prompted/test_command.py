"""The command as a whole, against a server on loopback."""

import contextlib
import csv
import json
import os
import re
import signal
import sys
import time

import pytest

from icl_lab.grid import Grid
from icl_lab.markdown import short
from icl_lab.prompted import asking

from .conftest import KEY


@pytest.fixture
def folder(tmp_path):
    def find():
        (found,) = (path for path in (tmp_path / "results").iterdir() if path.name.startswith("prompted-"))
        return found

    return find


def without_openai(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "icl_lab.prompted.endpoint", raising=False)


def everything_written(root):
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_study_is_asked_measured_and_written(ask, stub, folder):
    code, said, complaint = ask()
    assert code == 0, complaint
    assert len(stub.requests) == 2 * 4  # two sigmas, four prompts
    names = {path.name for path in folder().iterdir()}
    assert {
        "grid.csv",
        "answers.csv",
        "record.jsonl",
        "table.md",
        "study.json",
        "report.html",
    } <= names
    grid = Grid.read(folder() / "grid.csv")
    assert {"prompted:stub", "reference:exact-rule"} <= set(grid.values("attn"))
    assert grid.values("task") == ["every"]
    assert said.splitlines()[-2].startswith(f"wrote {folder()}: grid.csv")
    assert said.splitlines()[-1].startswith("next: ")
    assert json.loads((folder() / "record.jsonl").read_text().splitlines()[0])["question"]["model"] == "stub"


@pytest.mark.slow
def test_an_answered_study_asks_nothing_and_needs_no_key(ask, stub, folder, monkeypatch):
    ask()
    before = (folder() / "grid.csv").read_bytes(), (folder() / "table.md").read_bytes()
    asked = len(stub.requests)
    monkeypatch.delenv("OPENAI_API_KEY")
    without_openai(monkeypatch)
    code, _, complaint = ask()
    assert code == 0, complaint
    assert len(stub.requests) == asked
    assert ((folder() / "grid.csv").read_bytes(), (folder() / "table.md").read_bytes()) == before


@pytest.mark.slow
def test_another_study_is_written_over_only_by_force(ask):
    assert ask("--name", "mine")[0] == 0
    code, _, complaint = ask("--name", "mine", "--prompts", "6")
    assert (code, "mine holds another study" in complaint) == (2, True)
    assert ask("--name", "mine", "--prompts", "6", "--force")[0] == 0


@pytest.mark.slow
def test_a_wider_study_asks_only_what_is_new(ask, stub, tmp_path):
    ask()
    code, _, complaint = ask("--prompts", "6")
    assert code == 0, complaint
    assert len(stub.requests) == 2 * 6
    assert len(list((tmp_path / "results" / "prompted").glob("*.jsonl"))) == 1
    code, _, _ = ask("--digits", "0,2")
    assert code == 0
    assert len(stub.requests) == 2 * 6 + 2 * 4


@pytest.mark.parametrize(
    "change", [["--temperature", "0.5"], ["--format", "plain"], ["--no-instruction"], ["--body", '{"top_p": 1}']]
)
@pytest.mark.slow
@pytest.mark.exhaustive
def test_another_question_has_another_record(ask, stub, tmp_path, change):
    stub.usual = lambda body: stub.say("True", kind="text" if "prompt" in body else "message")
    ask()
    code, _, complaint = ask(*change)
    assert code == 0, complaint
    assert len(stub.requests) == 2 * 8
    assert len(list((tmp_path / "results" / "prompted").glob("*.jsonl"))) == 2


@pytest.mark.slow
def test_answers_of_a_study_folder_serve_as_the_record(ask, stub, folder, tmp_path):
    ask()
    (record,) = (tmp_path / "results" / "prompted").glob("*.jsonl")
    asked, copy = len(stub.requests), (folder() / "record.jsonl").read_bytes()
    record.write_bytes(copy)
    code, _, complaint = ask()
    assert code == 0, complaint
    assert len(stub.requests) == asked


@pytest.mark.slow
def test_the_key_is_nowhere(ask, stub, tmp_path):
    steps = [
        lambda body: stub.say(f"True {KEY}"),
        stub.fail(500, message=f"key {KEY}"),
        stub.fail(400, message=f"key {KEY}"),
        lambda body: (200, {"Content-Type": "text/html"}, f"<p>{KEY}</p>".encode()),
        lambda body: stub.say("True", model=KEY),
    ]
    stub.script = list(steps)
    said = ask("--parallel", "1")
    stub.script = [stub.fail(401, message=f"Incorrect API key {KEY}")]
    said += ask("--parallel", "1", "--no-instruction")
    said += ask("--unanswered", "wrong")
    said += ask("--dry-run")
    assert stub.keys[0] == f"Bearer {KEY}"  # it was sent
    text = "".join(map(str, said))
    assert KEY not in text
    assert KEY[3:20] not in text
    written = everything_written(tmp_path)
    assert len(written) > 1000
    assert KEY.encode() not in written
    assert KEY[3:20].encode() not in written


@pytest.mark.parametrize("key", ["ключ12345678", "sk-secret\n0123456789", "sk-secret 0123456789"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(ask, stub, monkeypatch, tmp_path, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    code, said, complaint = ask()
    assert (code, said, stub.requests) == (2, "", [])
    assert complaint.endswith("icl-lab: the key in OPENAI_API_KEY has a blank, or a character that is not ASCII.\n")
    assert key[:9] not in complaint
    assert key[:9].encode() not in everything_written(tmp_path)


@pytest.mark.slow
def test_a_line_end_after_the_key_is_no_part_of_it(ask, stub, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    assert ask()[0] == 0
    assert set(stub.keys) == {f"Bearer {KEY}"}


def test_the_key_is_in_no_traceback(ask, stub, monkeypatch):
    import traceback

    from icl_lab.prompted import endpoint

    def broken(*words):
        raise ZeroDivisionError

    monkeypatch.setattr(endpoint, "plausible", broken)
    with pytest.raises(ZeroDivisionError) as caught:
        ask("--parallel", "1")
    lines = traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    ours = [line for line in lines if "/icl_lab/prompted/" in line or "/icl_lab/cli/commands/" in line]
    assert ours
    assert KEY not in "".join(ours)


@pytest.mark.slow
def test_failures_are_told_and_asked_again_next_time(ask, stub, tmp_path):
    stub.script = [stub.fail(400, message="too long"), lambda body: (200, {}, b"<html>")]
    code, _, complaint = ask("--parallel", "1")
    assert code == 1
    assert "no answer: the server answered 400: 'too long'" in complaint
    assert "6 of 8 questions are answered, and kept" in complaint
    assert not [path for path in (tmp_path / "results").iterdir() if path.name.startswith("prompted-")]
    code, _, complaint = ask()
    assert code == 0, complaint
    assert len(stub.requests) == 8 + 2


@pytest.mark.slow
def test_what_never_comes_can_be_counted_as_wrong(ask, stub, folder):
    stub.usual = lambda body: stub.say("True") if "1.01" not in str(body) else stub.fail(400)(body)
    code, said, complaint = ask("--unanswered", "wrong")
    assert code == 0, complaint
    metrics = Grid.read(folder() / "grid.csv").values("metric")
    assert "balanced-unanswered" in metrics
    assert "answers never came; they count as wrong" in said


@pytest.mark.slow
def test_the_budget_is_hard_and_what_was_answered_is_kept(ask, stub):
    stub.script = [stub.fail(500)] * 2
    code, _, complaint = ask("--max-requests", "5")
    assert code == 1
    assert len(stub.requests) == 5
    assert "the budget is spent: 3 of 8 questions are answered" in complaint
    code, _, _ = ask("--max-requests", "5")
    assert (code, len(stub.requests)) == (1, 5)
    code, _, _ = ask("--max-requests", "10")
    assert (code, len(stub.requests)) == (0, 10)


@pytest.mark.slow
def test_the_budget_has_a_bound_where_nothing_is_said(ask):
    code, said, _ = ask("--dry-run", "--prompts", "600")
    assert (code, "--max-requests 1,000 is less than that" in said) == (0, True)


def test_the_budget_of_tokens_is_hard(ask, stub):
    code, _, complaint = ask("--max-tokens", "1")
    assert (code, stub.requests) == (1, [])
    assert "the budget is spent" in complaint


@pytest.mark.slow
def test_busy_servers_are_waited_for(ask, stub):
    stub.script = [stub.fail(429, {"Retry-After": "0.05"}), stub.fail(503)]
    code, _, complaint = ask()
    assert code == 0, complaint
    assert "2 requests were made again after a passing failure." in complaint


def test_a_wrong_key_stops_at_once(ask, stub):
    stub.usual = stub.fail(401, message="wrong")
    code, _, complaint = ask("--parallel", "1")
    assert code == 1
    assert len(stub.requests) == 1
    assert complaint.strip().splitlines()[-1].startswith("icl-lab: the server answered 401: 'wrong': 0 of 8 questions")


def test_fail_fast(ask, stub):
    stub.script = [lambda body: (200, {}, b"<html>")]
    code, _, complaint = ask("--fail-fast", "--parallel", "1")
    assert (code, len(stub.requests)) == (1, 1)
    assert "(--fail-fast)" in complaint


@pytest.mark.slow
def test_another_model_is_told(ask, stub):
    stub.usual = lambda body: stub.say("True", model="other-7b")
    code, said, complaint = ask()
    assert code == 0
    assert complaint.count("the server answers as 'other-7b', asked for was 'stub'") == 1
    assert "Answered as `other-7b` (8)" in said


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_answered(ask, stub):
    def third(body):
        os.kill(os.getpid(), signal.SIGINT)
        return stub.say("True")

    stub.script = [lambda body: stub.say("True"), lambda body: stub.say("True"), third]
    code, _, complaint = ask("--parallel", "1")
    assert code == 130
    kept = int(re.search(r"(\d+) of 8 questions are answered, and kept", complaint)[1])
    assert 3 <= kept < 8
    code, _, _ = ask()
    assert (code, len(stub.requests)) == (0, 8)


@pytest.mark.slow
def test_sigterm_does_not_wait_for_a_slow_server(ask, stub, tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "GRACE", 0.1)

    def slow(handler):
        handler.send_response(200)
        handler.end_headers()
        os.kill(os.getpid(), signal.SIGTERM)
        with contextlib.suppress(OSError):
            for _ in range(300):
                handler.wfile.write(b" ")
                time.sleep(0.1)
        handler.close_connection = True

    stub.script = [lambda body: stub.say("True"), lambda body: slow]
    code, _, complaint = ask("--parallel", "1", "--timeout", "3600")
    assert code == 75
    assert "stopped: 1 of 8 questions are answered, and kept" in complaint
    (record,) = (tmp_path / "results" / "prompted").glob("*.jsonl")
    assert json.loads(record.read_text().splitlines()[-1])["failed"] == "no answer before the stop"


@pytest.mark.parametrize("usage", [(-(10**9), -(10**9)), (0, 0), (1, -5), (10**30, 1)])
@pytest.mark.slow
def test_a_miscounting_server_does_not_open_the_budget(ask, stub, usage):
    stub.usual = lambda body: stub.say("True", usage=usage)
    code, _, complaint = ask("--max-tokens", "1000", "--parallel", "1")
    assert code == 1
    assert "the budget is spent" in complaint
    assert 2 <= len(stub.requests) < 8


def test_an_unknown_model_stops_at_once(ask, stub):
    stub.usual = stub.fail(404, message="The model `stub` does not exist.")
    code, _, complaint = ask("--parallel", "1")
    assert (code, len(stub.requests)) == (1, 1)
    (line,) = (line for line in complaint.splitlines() if line.startswith("icl-lab: "))
    assert line.startswith("icl-lab: the server answered 404: 'The model `stub` does not exist.': 0 of 8")


@pytest.mark.slow
def test_server_text_is_published_without_keys_or_formulas(ask, stub, folder, tmp_path):
    bad = f"=cmd|' /C calc'!A1 {KEY} \x1b[31m\x9b2J\u202e"
    stub.usual = lambda body: stub.say(bad, model=bad, finish=bad)
    code, said, complaint = ask()
    assert code == 0, complaint
    written = everything_written(tmp_path) + (said + complaint).encode()
    assert KEY.encode() not in written
    for code_point in "\x1b\x9b\u202e":
        assert code_point.encode() not in written
        assert f"\\u{ord(code_point):04x}".encode() not in written
    rows = list(csv.DictReader((folder() / "answers.csv").read_text().splitlines()))
    assert {row["said"] for row in rows} == {"'=cmd|' /C calc'!A1 <key> \ufffd[31m\ufffd2J\ufffd"}


@pytest.mark.slow
def test_numbers_stay_numbers_in_the_table_of_answers(ask, stub, folder):
    stub.usual = lambda body: stub.say("-0.3")
    code, _, complaint = ask(task="linear")
    assert code == 0, complaint
    rows = list(csv.DictReader((folder() / "answers.csv").read_text().splitlines()))
    assert {row["said"] for row in rows} == {"-0.3"}


def test_a_dry_run_sends_and_writes_nothing_and_needs_no_openai(run, monkeypatch, tmp_path):
    without_openai(monkeypatch)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = ["--task", "linear", "--model", "x", "--shots", "10", "--prompts", "5", "--price", "1,2", "--dry-run"]
    code, said, complaint = run("prompted", *words, "--results", str(tmp_path / "none"))
    assert code == 0, complaint
    assert "150 questions" in said
    assert "[user]" in said
    assert re.search(r"about [\d,]+ tokens read and at most 2,400 written", said)
    assert "At 1 a million read and 2 written: about 0." in said
    assert "Nothing was sent" in said
    assert not (tmp_path / "none").exists()


def test_without_openai_one_line_says_what_to_install(ask, stub, monkeypatch):
    without_openai(monkeypatch)
    code, _, complaint = ask()
    assert code == 2
    assert "pip install 'icl_lab[llm]'" in complaint


def test_nobody_is_asked_unless_an_address_is_given(run, monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    code, _, complaint = run("prompted", "--task", "every", "--model", "x", "--results", str(tmp_path))
    assert code == 2
    assert "no server is named" in complaint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--task", "markov"], "has not been put into words; these have: every"),
        (["--base-url", "http://u:p@h/v1"], "holds a name, password or query"),
        (["--shots", "0"], "is not a list of whole numbers"),
        (["--shots", "10,x"], "is not a list of whole numbers"),
        (["--digits", "13"], "is not a list of whole numbers"),
        (["--price", "cheap"], "no price"),
        (["--price", "1,2,3"], "no price"),
        (["--price", "nan"], "no price"),
        (["--body", "[1]"], "no JSON object"),
        (["--body", '{"a": %s}' % ("[" * 9_000 + "]" * 9_000)], "no JSON object"),
        (["--body", '{"a": %s}' % ("9" * 5_000)], "no JSON object"),
        (["--set", "train.steps=3"], "only the cells can be set"),
        (["--name", "prompted"], "of its own and none of"),
    ],
)
@pytest.mark.slow
def test_refusals_are_one_line_and_ask_nobody(ask, stub, words, complaint):
    code, _, said = ask(*words)
    assert code == 2
    assert complaint in said
    assert stub.requests == []


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_table_averages_over_facets_but_its_axis(ask, stub, folder):
    stub.usual = lambda body: stub.say("abcdefgh"[len(stub.requests) % 8])
    code, said, complaint = ask("--shots", "16,24", "--prompts", "16", "--parallel", "1", task="needle")
    assert code == 0, complaint
    cells = Grid.read(folder() / "grid.csv").where(attn="prompted:stub", metric="exact", length=16).frame
    assert len(cells) > 1
    assert cells["stderr"].sum() > 0
    error = (cells["stderr"] ** 2).sum() ** 0.5 / len(cells)
    assert f"| `prompted:stub` | {short(cells['value'].mean())} ± {short(error)} |" in said
    assert "(exact), mean over depth:" in said
    _, said, _ = ask("--shots", "16", task="needle")
    assert "(exact), length=16:" in said

"""The command as a whole: requests are written, a stand-in answers them, answers are read and measured."""

import csv
import json
import random

import pytest

from icl_lab.base.grid import Grid
from icl_lab.base.markdown import short
from icl_lab.runs import study_folder
from icl_lab.runs.verify import everything

from .conftest import answered, completion, line

pytestmark = pytest.mark.slow

NAME = "reference:prompted:stub"


@pytest.fixture
def folder(tmp_path):
    def find():
        (found,) = (path for path in (tmp_path / "results").iterdir() if path.name.startswith("prompted-"))
        return found

    return find


def true_to_all_but(number):
    """BatchAnswers True, and False to the request of that number."""
    said = (completion("False" if place == number else "True") for place in range(99))
    return lambda body: next(said)


def test_from_requests_to_a_grid(prompted, asked, folder):
    said, complaint = prompted.ok("--read", asked(say=true_to_all_but(1)))
    assert said.splitlines()[-2].startswith(f"wrote {folder()}: grid.csv, answers.csv, answers.jsonl")
    grid = Grid.read(folder() / "grid.csv")
    assert {NAME, "reference:always-true", "reference:exact-rule"} <= set(grid.values("attn"))
    assert (grid.values("task"), grid.axes) == (["every"], ["sigma", "length"])
    # Of four prompts a cell, each of which is asked for its last answer: by hand from what was right.
    rows = list(csv.DictReader((folder() / "answers.csv").read_text().splitlines()))
    assert [row["said"] for row in rows] == ["True", "False", *["True"] * 6]
    for sigma in (1, 10):
        here = [row for row in rows if float(row["sigma"]) == sigma]
        missed = {truth: [row["said"] != truth for row in here if row["truth"] == truth] for truth in ("True", "False")}
        rate = sum(sum(each) / len(each) for each in missed.values() if each) / sum(map(bool, missed.values()))
        assert grid.at(attn=NAME, metric="balanced-last", sigma=sigma) == pytest.approx(rate)
        assert grid.at(attn=NAME, metric="balanced-unparsable", sigma=sigma) == 0
    (state,) = everything(folder())
    assert state.state == "whole"


def test_the_numbers_of_a_mean_by_hand(prompted, asked, folder):
    """Answer 1 to every question: the mean over prompts of (1 - y)^2, and its standard error."""
    answers = asked("--set", "test.axes.sigma_x=1", say=lambda body: completion("1"), task="linear")
    prompted.ok("--set", "test.axes.sigma_x=1", "--read", answers, "--digits", "2", task="linear")
    rows = list(csv.DictReader((folder() / "answers.csv").read_text().splitlines()))
    grid = Grid.read(folder() / "grid.csv").where(attn=NAME, metric="mse-code")
    for sigma in grid.values("sigma_f"):
        errors = [(1 - float(row["truth"])) ** 2 for row in rows if float(row["sigma_f"]) == sigma]
        mean = sum(errors) / 4
        stderr = (sum((each - mean) ** 2 for each in errors) / 3 / 4) ** 0.5
        # Truths are written with two decimals.
        assert grid.at(sigma_f=sigma) == pytest.approx(mean, rel=0.05)
        assert grid.where(sigma_f=sigma).frame["stderr"].item() == pytest.approx(stderr, rel=0.05)


def test_the_study_is_the_same_in_any_order(prompted, asked, folder):
    answers = asked()
    prompted.ok("--read", answers)
    before = {path.name: path.read_bytes() for path in folder().iterdir() if path.suffix in (".csv", ".jsonl")}
    lines = answers.read_text().splitlines()
    random.Random(0).shuffle(lines)
    answers.write_text("\n".join(lines))
    for again in (answers, folder() / "answers.jsonl"):  # what a study keeps can be read again
        prompted.ok("--read", again)
        assert {name: (folder() / name).read_bytes() for name in before} == before


def test_other_answers_are_another_study(prompted, asked, tmp_path):
    for said in ("True", "False"):
        prompted.ok("--read", asked(say=lambda body, said=said: completion(said)))
    made = [study_folder.read(path).options for path in (tmp_path / "results").glob("prompted-*")]
    assert [len({each[part] for each in made}) for part in ("answers", "requests")] == [2, 1]
    prompted.ok("--name", "mine", "--read", asked())
    code, _, complaint = prompted("--name", "mine", "--read", asked(say=lambda body: completion("False")))
    assert (code, "mine holds another study" in complaint) == (2, True)


def test_what_is_missing_is_said_and_written(prompted, asked, tmp_path):
    busy = {"status_code": 503, "body": {"error": {"message": "busy"}}}
    answers = asked(say=lambda body: busy if "-" in str(body) else completion("True"))
    lines = answers.read_text().splitlines()
    failed = sum("busy" in each for each in lines)
    assert 0 < failed < 8
    code, said, complaint = prompted("--read", answers)
    assert (code, said) == (1, "")
    assert f"{failed} x status 503: busy" in complaint
    assert f"{failed} of 8 questions have no answer: --write FILE beside --read" in complaint
    code, said, _ = prompted("--read", answers, "--write", tmp_path / "rest.jsonl")
    assert (code, said.startswith(f"wrote {tmp_path / 'rest.jsonl'}: {failed} of 8 requests")) == (0, True)
    more = tmp_path / "more.jsonl"
    more.write_text("\n".join(answered(tmp_path / "rest.jsonl", lambda body: completion("True"))))
    assert prompted("--read", answers)[0] == 1
    prompted.ok("--read", answers, "--read", more)


def test_what_never_comes_can_be_counted_as_wrong(prompted, asked, folder):
    answers = asked()
    answers.write_text(answers.read_text().splitlines()[0])
    said, complaint = prompted.ok("--read", answers, "--unanswered-wrong")
    assert "7 answers never came; they count as wrong" in said
    grid = Grid.read(folder() / "grid.csv")
    assert grid.at(attn=NAME, metric="balanced-unanswered", sigma=1) == 0.75
    assert grid.at(attn=NAME, metric="balanced-unanswered", sigma=10) == 1


def test_answers_of_another_study_are_refused_in_a_line(prompted, asked, tmp_path):
    stranger = tmp_path / "stranger.jsonl"
    stranger.write_text(line("request-1", completion("True")))
    refused = {
        "which is no question of these options": stranger,
        "was answered by 'stub-2026', asked for was 'stub'": asked(say=lambda _: completion("True", model="stub-2026")),
    }
    for complaint, answers in refused.items():
        code, said, told = prompted("--read", answers)
        assert (code, said) == (2, "")
        assert complaint in told.splitlines()[-1]
    assert "Answered as `stub-2026` (8)" in prompted.ok("--read", answers, "--served-as", "stub-2026")[0]
    assert not list((tmp_path / "results").glob("*/requests*"))


def test_text_of_an_answer_is_published_without_formulas(prompted, asked, folder):
    bad = "=cmd|' /C calc'!A1 \x1b[31m\x9b2J\u202e"
    said, complaint = prompted.ok("--read", asked(say=lambda body: completion(bad, finish=bad)))
    written = b"".join(path.read_bytes() for path in folder().iterdir()) + (said + complaint).encode()
    for code_point in "\x1b\x9b\u202e":
        assert code_point.encode() not in written
        assert f"\\u{ord(code_point):04x}".encode() not in written
    rows = list(csv.DictReader((folder() / "answers.csv").read_text().splitlines()))
    assert {row["said"] for row in rows} == {"'=cmd|' /C calc'!A1 \ufffd[31m\ufffd2J\ufffd"}


def test_numbers_stay_numbers_in_the_table_of_answers(prompted, asked, folder):
    prompted.ok("--read", asked(say=lambda body: completion("-0.3"), task="linear"), task="linear")
    rows = list(csv.DictReader((folder() / "answers.csv").read_text().splitlines()))
    assert {row["said"] for row in rows} == {"-0.3"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "give --write FILE for the requests, or --read FILE with the answers"),
        (["--task", "markov"], "has not been put into words; these have: every"),
        (["--shots", "0"], "is not a list of whole numbers"),
        (["--digits", "13"], "is not a list of whole numbers"),
        (["--body", "[1]"], "no JSON object"),
        (["--body", '{"a": %s}' % ("[" * 9_000 + "]" * 9_000)], "no JSON object"),
        (["--body", '{"a": %s}' % ("9" * 5_000)], "no JSON object"),
        (["--body", '{"messages": 3}'], "messages is made of the other options"),
        (["--set", "train.steps=3"], "only the cells can be set"),
        (["--read", "none.jsonl"], "'none.jsonl' does not exist"),
        (["--read", "/dev/null"], "cannot be read: it is a pipe or a device"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(prompted, tmp_path, words, complaint):
    write = [] if not words or "--read" in words else ["--write", tmp_path / "requests.jsonl"]
    code, _, said = prompted(*words, *write)
    assert code in (1, 2)
    assert complaint in said.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_requests_are_only_written(prompted, tmp_path):
    said, _ = prompted.ok("--write", tmp_path / "deep" / "requests.jsonl", "--answer-tokens", "3")
    assert "8 of 8 requests, about " in said
    assert "at most 24 written" in said
    (written,) = tmp_path.rglob("*.*")
    assert {json.loads(each)["body"]["max_tokens"] for each in written.read_text().splitlines()} == {3}


@pytest.mark.exhaustive
def test_a_table_averages_over_facets_but_its_axis(prompted, asked, folder):
    rng = random.Random(0)
    words = ["--shots", "16,24", "--prompts", "16"]
    answers = asked(*words, say=lambda body: completion(rng.choice("abcdefgh")), task="needle")
    told, complaint = prompted.ok(*words, "--read", answers, task="needle")
    cells = Grid.read(folder() / "grid.csv").where(attn=NAME, metric="exact", length=16).frame
    assert len(cells) > 1
    assert cells["stderr"].sum() > 0
    error = (cells["stderr"] ** 2).sum() ** 0.5 / len(cells)
    assert f"| `{NAME}` | {short(cells['value'].mean())} ± {short(error)} |" in told
    assert "(exact), mean over depth:" in told

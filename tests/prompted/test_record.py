"""The record of requests and answers: added to, never mixed, never torn."""

import json
import threading

import pytest

from icl_lab.errors import RunFailed
from icl_lab.prompted.question import PromptQuestion
from icl_lab.prompted.record import Record, Reply
from icl_lab.runs.verify import everything

IDENTITY = {"task": "some", "model": "m", "body": {}}


def question(prompt=0, words="x"):
    return PromptQuestion(f"axis=1|prompt={prompt}", prompt, 4, {"messages": [{"role": "user", "content": words}]})


def reply(asked, **how):
    return Reply(key=asked.key, sha=asked.sha, **({"said": "a", "read": 5, "wrote": 1} | how))


def test_what_is_answered_is_there_when_the_file_is_opened_again(tmp_path):
    path = tmp_path / "r.jsonl"
    with Record(path, IDENTITY).held() as record:
        record.add(reply(question(0)))
        record.add(reply(question(1), failed="no", said=""))
        record.add(reply(question(1), said="ä\n\u2028b", scores=[-1.5, -2.0]))
    again = Record(path, IDENTITY)
    assert again.answer(question(0)).said == "a"
    assert again.answer(question(1)).said == "ä\n\u2028b"
    assert again.answer(question(1)).scores == [-1.5, -2.0]
    assert again.answer(question(2)) is None
    assert (again.attempts, again.tokens) == (3, 18)


def test_a_failure_is_no_answer_and_counts_as_an_attempt(tmp_path):
    with Record(tmp_path / "r.jsonl", IDENTITY).held() as record:
        record.add(reply(question(), failed="the server answered 500", said=""))
    again = Record(tmp_path / "r.jsonl", IDENTITY)
    assert again.answer(question()) is None
    assert again.attempts == 1


def test_retries_count_as_attempts(tmp_path):
    with Record(tmp_path / "r.jsonl", IDENTITY).held() as record:
        record.add(reply(question(), retries=2))
    assert Record(tmp_path / "r.jsonl", IDENTITY).attempts == 3


@pytest.mark.parametrize("left", [1, 10, 60, -1])
def test_a_torn_last_line_is_dropped_and_the_file_goes_on(tmp_path, left):
    path = tmp_path / "r.jsonl"
    with Record(path, IDENTITY).held() as record:
        record.add(reply(question(0)))
        whole = len(path.read_bytes())
        record.add(reply(question(1)))
    data = path.read_bytes()
    path.write_bytes(data[: whole + left] if left > 0 else data[:-1])
    assert Record(path, IDENTITY).attempts == 1
    with Record(path, IDENTITY).held() as record:
        assert record.answer(question(1)) is None
        record.add(reply(question(1), said="b"))
    again = Record(path, IDENTITY)
    assert (again.answer(question(0)).said, again.answer(question(1)).said) == ("a", "b")
    assert [json.loads(line) for line in path.read_bytes().splitlines()][1]["said"] == "a"


def test_a_torn_first_line_is_written_anew(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"rec')
    with Record(path, IDENTITY).held() as record:
        record.add(reply(question()))
    assert Record(path, IDENTITY).answer(question()).said == "a"


def test_a_line_that_is_damaged_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "r.jsonl"
    with Record(path, IDENTITY).held() as record:
        record.add(reply(question(0)))
        record.add(reply(question(1)))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:20] + b"\n" + lines[2])
    with pytest.raises(RunFailed, match="line 2, is damaged"):
        Record(path, IDENTITY)


DEEP, MANY_DIGITS = "[" * 200_000 + "]" * 200_000, "9" * 5_000


@pytest.mark.parametrize("value", [DEEP, MANY_DIGITS], ids=["deep", "many digits"])
def test_deep_json_and_long_numbers_are_damage(tmp_path, value):
    path = tmp_path / "prompted" / "r.jsonl"
    with Record(path, IDENTITY).held():
        head = path.read_text()
    path.write_text(f'{head}{{"key": {value}}}\n')
    with pytest.raises(RunFailed, match="line 2, is damaged"):
        Record(path, IDENTITY)
    assert [found.state for found in everything(tmp_path)] == ["damaged"]
    path.write_text(f"{value}\n")
    with pytest.raises(RunFailed, match="no record of prompted questions"):
        Record(path, IDENTITY)


def test_a_digit_that_is_changed_is_found(tmp_path):
    path = tmp_path / "prompted" / "r.jsonl"
    with Record(path, IDENTITY).held() as record:
        record.add(reply(question(0), said="9.3"))
    assert [found.state for found in everything(tmp_path)] == ["whole"]
    path.write_text(path.read_text().replace("9.3", "39.5"))
    with pytest.raises(RunFailed, match="line 2, is damaged: its checksum is another"):
        Record(path, IDENTITY)
    (found,) = everything(tmp_path)
    assert found.state == "damaged"
    assert f"{path} is damaged or edited" in found.why


def test_a_record_from_before_there_were_checksums_is_read(tmp_path):
    path = tmp_path / "prompted" / "r.jsonl"
    with Record(path, IDENTITY).held() as record:
        record.add(reply(question(0)))
        path.write_bytes(record.lines({question(0).key}))
    assert Record(path, IDENTITY).answer(question(0)).said == "a"
    assert [found.state for found in everything(tmp_path)] == ["no manifest"]


@pytest.mark.parametrize("change", [{"task": "other"}, {"body": {"top_p": 1}}, {"new": 1}])
def test_the_record_of_another_question_is_refused(tmp_path, change):
    path = tmp_path / "r.jsonl"
    with Record(path, IDENTITY).held():
        pass
    with pytest.raises(RunFailed, match=f"another question .its {next(iter(change))}"):
        Record(path, IDENTITY | change)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    other = '{"record": "icl_lab prompted", "version": 1, "question": [1]}\n'
    kind = '{"record": "x", "version": 1, "question": {}}\n'
    for text in ("hello\n", "[]\n", '{"record": "x"}\n', other, kind):
        path.write_text(text)
        with pytest.raises(RunFailed, match="no record of prompted questions"):
            Record(path, IDENTITY)
        assert path.read_text() == text


def test_an_answer_to_other_words_is_never_taken(tmp_path):
    with Record(tmp_path / "r.jsonl", IDENTITY).held() as record:
        record.add(reply(question(words="x")))
        with pytest.raises(RunFailed, match="other words"):
            record.answer(question(words="y"))


def test_a_second_process_is_refused(tmp_path):
    path, found = tmp_path / "r.jsonl", []

    def second():
        try:
            with Record(path, IDENTITY).held():
                found.append("held")
        except RunFailed as error:
            found.append(str(error))

    with Record(path, IDENTITY).held():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert "another process is asking" in found[0]
    with Record(path, IDENTITY).held():  # and it is free again
        pass


def test_nothing_is_added_to_a_record_that_is_not_held(tmp_path):
    record = Record(tmp_path / "r.jsonl", IDENTITY)
    with pytest.raises(RuntimeError):
        record.add(reply(question()))


def test_the_folder_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFailed, match="cannot be"):
        Record(tmp_path / "file" / "r.jsonl", IDENTITY).held().__enter__()

"""Files of requests and answers: what is asked, and which answers are taken."""

import json
import re

import pytest

from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.extras.prompted.batch import Reply, kept, read, requests
from icl_lab.extras.prompted.question import PromptQuestion
from icl_lab.extras.prompted.study import PromptedOptions, PromptedStudy

from .conftest import completion, line


def question(number=0, words="x", **more):
    return PromptQuestion(f"2_1_10_p{number}_t4", number, 4, {"messages": [{"role": "user", "content": words}], **more})


ONE, TWO = question(0), question(1)


@pytest.fixture
def answers(tmp_path):
    """Read a file of these lines as answers of ``stub`` to two questions."""

    def call(*lines, models=("stub",), end="\n"):
        path = tmp_path / "a.jsonl"
        path.write_bytes(("\n".join(lines) + end).encode())
        return read([path], [ONE, TWO], models)

    return call


def study(**how):
    return PromptedStudy(PromptedOptions("linear", "org/m", preset="smoke", **{"prompts": 2, "shots": [10], **how}))


def test_requests_are_lines_of_the_batch_format():
    made = study(body={"top_p": 0.5, "temperature": None})
    data = requests(made.questions())
    lines = [json.loads(each) for each in data.splitlines()]
    assert len(lines) == 2 * len(made.cells)
    assert {(each["method"], each["url"]) for each in lines} == {("POST", "/v1/chat/completions")}
    body = lines[0]["body"]
    assert (body["model"], body["max_tokens"], body["top_p"], "temperature" in body) == ("org/m", 16, 0.5, False)
    assert [each["role"] for each in body["messages"][:3]] == ["system", "user", "assistant"]
    assert data == requests(study(body={"top_p": 0.5, "temperature": None}).questions())
    plain = json.loads(requests(study(form="plain").questions()).splitlines()[0])
    assert plain["url"] == "/v1/completions"
    assert plain["body"]["stop"] == ["\n"]


def test_each_request_has_a_short_name_of_its_own():
    keys = [each.key for each in study(every_answer=True, digits=[1, 12]).questions()]
    assert len(set(keys)) == len(keys)
    assert max(map(len, keys)) <= 64
    assert all(re.fullmatch(r"\d+_\d+_\d+_10_p[01]_t\d+_[0-9a-f]{16}", key) for key in keys)
    long = [PromptQuestion("9" * n, 0, 4, {}).key for n in (60, 61)]
    assert ([len(key) for key in long], long[0] != long[1]) == ([64, 64], True)
    cut = PromptQuestion(f"{'9' * 60}_p1_t4", 1, 4, {}).key
    assert re.fullmatch(r"9+_p1_t4_[0-9a-f]{16}", cut)  # prompt and token stay


def test_tokens_are_counted_of_texts_and_around_messages():
    """Two words and a number of four digits (two pieces), and four tokens around each of two messages."""
    body = {"messages": [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "1234"}]}
    assert PromptQuestion("a", 0, 0, body).about_tokens == 2 + 2 + 2 * 4
    assert PromptQuestion("a", 0, 0, {"prompt": "one two"}).about_tokens == 2


@pytest.mark.parametrize(
    "change", [{"form": "plain"}, {"temperature": 0.5}, {"answer_tokens": 9}, {"instruct": False}, {"body": {"n": 1}}]
)
def test_a_request_with_other_options_has_another_name(change):
    assert not {each.key for each in study().questions()} & {each.key for each in study(**change).questions()}


def test_answers_are_read_in_any_order_and_kept_in_one(answers):
    first, second = (line(each.key, completion(each.key[-1])) for each in (ONE, TWO))
    found = answers(second, "", first)
    assert found.replies == {each.key: Reply(each.key[-1], "stub", "stop") for each in (ONE, TWO)}
    assert kept(found.replies) == kept(answers(first, second).replies)
    assert answers(kept(found.replies).decode()).replies == found.replies


def test_of_several_choices_the_first_is_the_answer(answers):
    told = completion("1")
    told["body"]["choices"].append(completion("2", finish="length")["body"]["choices"][0])
    assert answers(line(ONE.key, told)).replies == {ONE.key: Reply("1", "stub", "stop")}


def test_texts_of_any_script_are_read_and_cleaned(answers):
    text = "ä\n\u2028\U0001f600\x1b[31m\u202e"
    raw = json.dumps(json.loads(line(ONE.key, completion(text, model="stub", kind="text"))), ensure_ascii=False)
    assert answers(raw).replies[ONE.key].said == "ä\n\ufffd\U0001f600\ufffd[31m\ufffd"


def test_what_failed_is_said_and_may_be_answered_later(answers):
    failures = {
        "status 500: busy": line(ONE.key, {"status_code": 500, "body": {"error": {"message": "busy"}}}),
        "no response: expired": line(ONE.key, None, {"code": "batch_expired", "message": "expired"}),
        "status 400: too long": line(ONE.key, {"status_code": 400, "body": None}, "too\n long"),
        "status 200: odd": line(ONE.key, completion("True"), {"error": {"message": "odd"}}),
        "an empty answer (finish_reason length)": line(ONE.key, completion("", finish="length")),
        "an empty answer (finish_reason not given)": line(ONE.key, {"status_code": 200, "body": {"choices": []}}),
    }
    for reason, failed in failures.items():
        assert answers(failed).failed == {ONE.key: reason}
        assert answers(failed).replies == {}
        for lines in ([failed, line(ONE.key, completion("1"))], [line(ONE.key, completion("1")), failed]):
            assert (list(answers(*lines).replies), answers(*lines).failed) == ([ONE.key], {})


def test_a_long_complaint_is_cut(answers):
    (reason,) = answers(line(ONE.key, {"status_code": 400, "body": {"error": {"message": "x" * 999}}})).failed.values()
    assert reason == f"status 400: {'x' * 160}..."


@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        "[]",
        "7",
        '{"response": null}',
        '{"custom_id": 3}',
        line(ONE.key, completion("True"))[:-20],
        line(ONE.key, {"body": {}}),
        line(ONE.key, {"status_code": 200, "body": None}),
        line(ONE.key, {"status_code": 200, "body": {"choices": [{"message": {"content": 3}}]}}),
        '{"custom_id": ' + "[" * 9000 + "]" * 9000 + "}",
    ],
)
def test_a_damaged_line_is_named_and_the_others_are_read(answers, damaged):
    found = answers(line(TWO.key, completion("True")), damaged, line(ONE.key, completion("False")))
    assert found.replies.keys() == {ONE.key, TWO.key}
    (said,) = found.damaged
    assert "a.jsonl, line 2: " in said
    assert "\n" not in said
    assert answers(damaged, end="").replies == {}


def test_numbers_that_are_no_json_do_not_damage_a_line(answers):
    whole = completion("True")
    whole["body"]["choices"][0]["logprobs"] = {"content": [{"logprob": -float("inf")}]}
    found = answers(line(ONE.key, whole))
    assert (found.replies[ONE.key].said, found.damaged) == ("True", [])


def test_answers_that_nobody_asked_for_are_refused(answers):
    good = line(ONE.key, completion("True"))
    refused = {
        "line 2, answers 'mine', which is no question of these options": [good, line("mine", completion("True"))],
        f"line 1, answers '{question(words='y').key}': the prompt was asked with another model": [
            line(question(words="y").key, completion("True"))
        ],
        f"line 3, is a second answer to {ONE.key}": [good, line(TWO.key, completion("True")), good],
        "line 1, was answered by 'other', asked for was 'stub'; with --served-as 'other'": [
            line(ONE.key, completion("True", model="other"))
        ],
    }
    for words, lines in refused.items():
        with pytest.raises(BadValue) as raised:
            answers(*lines)
        assert words in str(raised.value)
    assert answers(line(ONE.key, completion("True", model="other")), models=("stub", "other")).replies
    assert answers(line(ONE.key, completion("True", model=None))).replies


def test_several_files_are_read_as_one(tmp_path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, each in zip(paths, (ONE, TWO), strict=True):
        path.write_text(line(each.key, completion("True")))
    assert set(read(paths, [ONE, TWO], ["stub"]).replies) == {ONE.key, TWO.key}
    with pytest.raises(BadValue, match=r"a\.jsonl, line 1, is a second answer"):
        read([*paths, paths[0]], [ONE, TWO], ["stub"])


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(RunFailed, match="none cannot be read: No such file"):
        read([tmp_path / "none"], [ONE], ["stub"])

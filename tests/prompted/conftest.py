"""A stand-in for whoever answers a file of requests in the batch format of OpenAI's API."""

import json

import pytest


def completion(said, model="stub", finish="stop", kind="message"):
    """The response to a request that was answered."""
    choice = {"message": {"role": "assistant", "content": said}} if kind == "message" else {"text": said}
    usage = {"prompt_tokens": 150, "completion_tokens": 2}
    body = {"id": "x", "model": model, "choices": [{"index": 0, **choice, "finish_reason": finish}], "usage": usage}
    return {"status_code": 200, "request_id": "r", "body": body}


def line(custom_id, response=None, error=None):
    """A line of a file of answers."""
    return json.dumps({"id": "batch_req_1", "custom_id": custom_id, "response": response, "error": error})


def answered(requests, say):
    """The lines that answer a file of requests: ``say`` takes the body of a request and returns the response."""
    asked = [json.loads(each) for each in requests.read_text().splitlines()]
    return [line(each["custom_id"], say(each["body"])) for each in asked]


@pytest.fixture
def prompted(run, tmp_path, quick_pictures):
    """Runs ``icl-lab prompted`` with a small grid, and returns (code, stdout, stderr); ``ok`` leaves out the code."""

    def call(*words, task="every", results=tmp_path / "results"):
        small = ["--task", task, "--model", "stub", "--preset", "smoke", "--prompts", "4", "--shots", "10"]
        return run("prompted", *small, *map(str, words), "--results", str(results))

    def ok(*words, **how):
        code, out, err = call(*words, **how)
        assert code == 0, err
        return out, err

    call.ok = ok
    return call


@pytest.fixture
def asked(prompted, tmp_path):
    """Write requests by ``icl-lab prompted --write`` and a file of answers, and return that file."""

    def call(*words, say=lambda body: completion("True"), **how):
        prompted.ok(*words, "--write", tmp_path / "requests.jsonl", **how)
        answers = tmp_path / "answers.jsonl"
        answers.write_text("\n".join(answered(tmp_path / "requests.jsonl", say)) + "\n")
        return answers

    return call

"""Batch files in the format of OpenAI's API: requests, a JSON object a line, and the answers to them in any order.

Text of an answer is cleaned once, here: without control characters.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from icl_lab.base import foreign
from icl_lab.base.errors import BadValue, RunFailed
from icl_lab.base.markdown import printable
from icl_lab.extras.prompted.question import PromptQuestion

MOST = 2**30  # bytes of a file of answers
SHOWN = 160  # characters of a complaint that are shown
OK = 200  # status of a request that was answered


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None  # of a conversation
    text: str | None = None  # that completes another
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    model: str | None = None


class _Response(msgspec.Struct):
    status_code: int
    body: Any = None


class _Line(msgspec.Struct):
    """The part of an answer's line that is read; everything else in it is passed over."""

    custom_id: str
    response: _Response | None = None
    error: Any = None


@dataclass(frozen=True)
class Reply:
    """Answer to a question: its text, the model that gave it, and why it ended."""

    said: str
    model: str = ""
    finish: str = ""


@dataclass
class BatchAnswers:
    """Answers by the key of their question, the questions that failed with the reason of each, and damaged lines."""

    replies: dict[str, Reply] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)


def requests(questions: Iterable[PromptQuestion]) -> bytes:
    """Return the file of requests of these questions."""
    return b"".join(json.dumps(question.request).encode() + b"\n" for question in questions)


def kept(replies: Mapping[str, Reply]) -> bytes:
    """Return answers as the file that ``read`` takes, sorted by key: the same for the same answers in any order."""
    return b"".join(_line(key, replies[key]) for key in sorted(replies))


def read(paths: Sequence[Path], questions: Iterable[PromptQuestion], models: Collection[str]) -> BatchAnswers:
    """Read the answers to questions, given by one of these models, from files.

    A request that failed may stand there a second time, and so may one whose line is damaged. Raises ``RunFailed``
    where a file cannot be read, and ``BadValue`` where an answer is of another question or model, or a second one.
    """
    known = {question.key for question in questions}
    found = BatchAnswers()
    for path in paths:
        for number, line in _lines(path):
            where = f"{path}, line {number}"
            try:
                # Not msgspec's decoder: services write -Infinity, which is no JSON, into log-probabilities.
                read = msgspec.convert(json.loads(foreign.shallow(line)), _Line)
                reply = _reply(read)
            except ValueError as error:
                found.damaged.append(f"{where}: {printable(str(error))}")
                continue
            key = read.custom_id
            if key not in known:
                raise BadValue(f"{where}, answers {_unknown(key, known)}.")
            if isinstance(reply, str):
                found.failed[key] = reply
                continue
            if key in found.replies:
                raise BadValue(f"{where}, is a second answer to {key}.")
            if reply.model and reply.model not in models:
                raise BadValue(
                    f"{where}, was answered by '{reply.model}', asked for was {' or '.join(map(repr, models))}; with "
                    f"--served-as '{reply.model}' that name stands for the model."
                )
            found.replies[key] = reply
    found.failed = {key: why for key, why in found.failed.items() if key not in found.replies}
    return found


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not empty, each with its number."""
    try:
        data = foreign.read(path, MOST)
    except OSError as error:
        raise RunFailed(f"{path} cannot be read: {error.strerror or error}.") from error
    yield from ((number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip())


def _reply(line: _Line) -> Reply | str:
    """Return the answer of a line, or why there is none; raises ``ValueError`` where a completion is none."""
    response = line.response
    if line.error or response is None or response.status_code != OK:
        status = "no response" if response is None else f"status {response.status_code}"
        return f"{status}: {_glimpse(line.error or (response and response.body))}"
    made = msgspec.convert(response.body, _Completion)
    choice = made.choices[0] if made.choices else _Choice()
    said = printable((choice.message.content if choice.message else choice.text) or "")
    finish = _word(choice.finish_reason)
    if not said.strip():
        return f"an empty answer (finish_reason {finish or 'not given'})"
    return Reply(said, _word(made.model), finish)


def _glimpse(complaint: Any) -> str:
    """Return the message of an error, or all of it, in one short line."""
    inner = complaint.get("error", complaint) if isinstance(complaint, dict) else complaint
    told = inner.get("message", inner) if isinstance(inner, dict) else inner
    text = _word(told if isinstance(told, str) else json.dumps(told))
    return f"{text[:SHOWN]}..." if len(text) > SHOWN else text


def _word(text: str | None) -> str:
    return " ".join(printable(text or "").split())


def _unknown(key: str, known: Collection[str]) -> str:
    """Say what a key that names no question of a study may be."""
    shown = repr(printable(key[:SHOWN]))
    if key.rpartition("_")[0] in {each.rpartition("_")[0] for each in known}:
        return f"{shown}: the prompt was asked with another model, format, limit or wording than these options say"
    return f"{shown}, which is no question of these options"


def _line(key: str, reply: Reply) -> bytes:
    choice = {"message": {"content": reply.said}, "finish_reason": reply.finish}
    response = {"status_code": OK, "body": {"model": reply.model, "choices": [choice]}}
    line = {"custom_id": key, "response": response, "error": None}
    return json.dumps(line, sort_keys=True).encode() + b"\n"

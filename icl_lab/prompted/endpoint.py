"""An OpenAI-compatible server: one request, one answer, every way in which that fails in one line.

The client is the ``openai`` package, its own retries switched off: who asks again is said in ``asking``, where attempts
are counted. Nothing but the address that was given is contacted: no proxies of the environment, no redirects.
"""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from icl_lab.errors import BadValue
from icl_lab.prompted.budget import about_tokens, most_tokens
from icl_lab.prompted.engine import Failure
from icl_lab.prompted.question import Question
from icl_lab.prompted.record import Reply
from icl_lab.prompted.secret import Secret

PASSING = (408, 409, 425, 429)  # states of a server that pass; from 500 on they all may
HOPELESS = (401, 403, 404, 405, 407)  # no other question would fare better
SHOWN = 160  # characters of a complaint
NO_KEY = "none"  # sent where no key was given: servers of one's own need none


class Message(msgspec.Struct):
    """What an assistant said; None where it said nothing."""

    content: str | None = None


class Choice(msgspec.Struct):
    """One answer: a message of a conversation, or a text that goes on."""

    message: Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class Usage(msgspec.Struct):
    """The tokens that the server counted."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Completion(msgspec.Struct):
    """The part of a server's answer that is read; everything else in it is passed over."""

    choices: list[Choice]
    model: str = ""
    usage: Usage | None = None


class Endpoint:
    """Asks a model of a server for the answers to questions; safe for several threads."""

    def __init__(
        self,
        base_url: str,
        key: Secret | None,
        model: str,
        *,
        temperature: float = 0.0,
        answer_tokens: int = 16,
        body: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
        parallel: int = 4,
    ) -> None:
        try:
            import openai
        except ImportError:
            raise BadValue("servers are asked by the openai client: pip install 'icl_lab[llm]'.") from None
        self.model, self.parallel, self._openai = model, parallel, openai
        self._key, self._body = key or Secret(NO_KEY), dict(body or {})
        self._temperature, self._answer_tokens = temperature, answer_tokens
        http = openai.DefaultHttpxClient(trust_env=False, follow_redirects=False, timeout=timeout)
        self._client = openai.OpenAI(
            base_url=base_url, api_key=self._key.reveal(), http_client=http, timeout=timeout, max_retries=0
        )

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def request(self, question: Question) -> dict[str, Any]:
        """Returns what is sent for a question; fields of ``body`` replace ours, and None leaves one out."""
        sent, told = question.sent, dict[str, Any]()
        told["model"] = self.model
        if sent.completion:
            told["prompt"] = sent.completion
        else:
            told["messages"] = [{"role": role, "content": content} for role, content in sent.messages]
        told |= {"temperature": self._temperature, "max_tokens": question.wants * self._answer_tokens}
        if sent.stop:
            told["stop"] = list(sent.stop)
        if question.sample:
            told["seed"] = question.seed
        return {name: value for name, value in (told | self._body).items() if value is not None}

    def most_tokens(self, question: Question) -> int:
        """Returns a bound of the tokens that the question and its answer take."""
        asked = self.request(question)
        limits = [asked[name] for name in ("max_tokens", "max_completion_tokens") if isinstance(asked.get(name), int)]
        return most_tokens(question, max(limits, default=question.wants * self._answer_tokens))

    def ask(self, question: Question) -> Reply:
        """Answers a question; raises ``Failure`` with what is wrong."""
        began, asked = time.monotonic(), self.request(question)
        try:
            raw = self._send(asked)
        except self._openai.OpenAIError as error:
            raise self._failure(error) from None
        return self._reply(question, asked, raw, time.monotonic() - began)

    def _send(self, asked: dict[str, Any]) -> bytes:
        """Sends a request as it is and returns the body of the answer, whatever it holds."""
        path = "/completions" if "prompt" in asked else "/chat/completions"
        response = self._client.post(path, body=asked, cast_to=self._openai.HttpxBinaryResponseContent)
        return bytes(response.content)

    def _reply(self, question: Question, asked: dict[str, Any], raw: bytes, seconds: float) -> Reply:
        """Reads the body of an answer; raises ``Failure`` where it is none."""
        try:
            told = msgspec.json.decode(raw, type=Completion)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Failure(f"the server answered with {self._glimpse(raw)}, which is no completion") from None
        if not told.choices:
            raise Failure("the server answered with no choices")
        choice = told.choices[0]
        said = choice.message.content if choice.message else choice.text
        if choice.message is None and choice.text is None:
            raise Failure("the server answered with a choice that has neither a message nor a text")
        said, usage = said or "", told.usage
        counted = usage is not None and usage.prompt_tokens > 0
        read = (
            usage.prompt_tokens if usage and counted else about_tokens(question.sent.whole, len(question.sent.messages))
        )
        return Reply(
            key=question.key,
            sha=question.sha,
            said=self._key.hide(said),
            model=self._key.hide(told.model or ""),
            finish=choice.finish_reason or "",
            read=read,
            wrote=usage.completion_tokens if usage and counted else about_tokens(said),
            estimated=not counted,
            seconds=round(seconds, 3),
            sent=asked,
        )

    def _failure(self, error: Exception) -> Failure:
        """What the client raised, as a failure: passing or not, in one line, without the key."""
        openai = self._openai
        if isinstance(error, openai.APITimeoutError):
            return Failure("the server did not answer in time", again=True)
        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__ or error
            return Failure(f"the connection failed ({self._key.hide(str(cause) or type(cause).__name__)})", again=True)
        if isinstance(error, openai.APIStatusError):
            status, headers = error.status_code, error.response.headers
            said = f"the server answered {status}: {self._glimpse(error.response.content)}"
            if 300 <= status < 400:
                return Failure(
                    f"the server answered {status} and names another address, which is not asked", fatal=True
                )
            passing = status in PASSING or status >= 500
            return Failure(said, again=passing, wait=waiting(headers) if passing else None, fatal=status in HOPELESS)
        return Failure(f"the client failed ({self._key.hide(str(error))})")

    def _glimpse(self, raw: bytes) -> str:
        """The beginning of what a server sent, in one line: the message of an error where it is one."""
        text = raw.decode("utf-8", "replace")
        try:
            told = json.loads(text)
            inner = told["error"]
            text = str(inner["message"] if isinstance(inner, dict) else inner)
        except (ValueError, KeyError, TypeError):
            pass
        line = " ".join(self._key.hide(text).split())
        return (f"'{line[:SHOWN]}...'" if len(line) > SHOWN else f"'{line}'") if line else "nothing"


def waiting(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that ``Retry-After`` asks for: a number or a date; None where it says nothing that is known.

    >>> waiting({"retry-after": "2.5"}), waiting({}), waiting({"retry-after": "soon"})
    (2.5, None, None)
    """
    told = headers.get("retry-after", "")
    try:
        return max(0.0, min(float(told), 1e9))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(told)
    except (TypeError, ValueError):
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (then - datetime.now(UTC)).total_seconds())

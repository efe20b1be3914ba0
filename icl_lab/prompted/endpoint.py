"""An OpenAI-compatible server, asked through the ``openai`` client, whose own retries and time-outs are used.

Nothing but the address that was given is contacted: no proxies of the environment, no redirects. Text from a server is
cleaned once, here: without the key and without control characters.
"""

import json
import re
import time
from collections.abc import Mapping
from typing import Any, TypeGuard
from urllib.parse import urlsplit

import msgspec

from icl_lab.errors import BadValue
from icl_lab.markdown import printable
from icl_lab.prompted.asking import Failure
from icl_lab.prompted.question import PromptQuestion, about_tokens
from icl_lab.prompted.record import Reply

HOPELESS = (401, 403, 404, 405, 407)  # states in which no other question would fare better
REFUSED = (400, 422)  # a request that the server does not take, for its model or for itself
UNKNOWN_MODEL = re.compile(
    r"model_not_found|(unknown|invalid|no such) model|not a valid model|"
    r"\bmodel\b.{0,120}\b(not (be )?found|not exist|not (available|supported|loaded)|unknown)",
    re.I,
)
COMPLAINT = 10_000  # characters of an error in which the model is looked for
SHOWN = 160  # characters of a complaint that are shown
LARGEST = 4_000_000  # bytes of an answer, and tokens that one can have
RETRIES = "x-stainless-retry-count"  # header by which the client numbers its requests
NO_KEY = "none"  # sent where no key was given: servers of one's own need none
HIDDEN = "<key>"
LEAST = 8  # characters of a key; shorter ones, such as EMPTY, are placeholders of servers that need none


class Secret:
    """A key that is sent and never shown: printed it is ``<key>``.

    Raises ``BadValue`` on one that no header can carry: the HTTP library would repeat it in its complaint.
    """

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key.strip()
        if not re.fullmatch(r"[!-~]+", self._key):
            raise BadValue("the key in OPENAI_API_KEY has a blank, or a character that is not ASCII.")

    def reveal(self) -> str:
        """Returns the key, for the one place that sends it."""
        return self._key

    def hide(self, text: str) -> str:
        """Returns a text without the key, should a server have repeated it."""
        return text.replace(self._key, HIDDEN) if len(self._key) >= LEAST else text

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> str:
        raise TypeError("a key is not written to disk")


def address(url: str) -> str:
    """Returns the address of a server as it is kept in records; raises ``BadValue`` on one that is none.

    An address with a password or a query in it would put a secret into every record.
    """
    try:
        parts = urlsplit(url.strip())
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError as error:
        raise BadValue(f"the address of the server cannot be read: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadValue("the address of the server begins with http:// or https:// and names a host.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadValue("the address of the server holds a name, password or query; give the key as OPENAI_API_KEY.")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


class Message(msgspec.Struct):
    """Message of an assistant; its content is None where it said nothing."""

    content: str | None = None


class CompletionChoice(msgspec.Struct):
    """One answer: a message of a conversation, or a completed text."""

    message: Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class Usage(msgspec.Struct):
    """Tokens that the server counted."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Completion(msgspec.Struct):
    """The part of a server's answer that is read; everything else in it is passed over."""

    choices: list[CompletionChoice]
    model: str | None = None
    usage: Usage | None = None


class Endpoint:
    """Engine that asks a model of a server."""

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
            import httpx2
            import openai

            from icl_lab.prompted.transport import bounded_client
        except ImportError:
            raise BadValue("servers are asked by the openai client: pip install 'icl_lab[llm]'.") from None
        self.model, self.parallel, self._openai = model, parallel, openai
        self._key, self._body = key or Secret(NO_KEY), dict(body or {})
        self._temperature, self._answer_tokens = temperature, answer_tokens
        http = bounded_client(timeout, LARGEST, parallel)
        try:
            self._client = openai.AsyncOpenAI(
                base_url=base_url, api_key=self._key.reveal(), http_client=http, timeout=timeout
            )
        except httpx2.InvalidURL as error:
            raise BadValue(f"the address of the server cannot be read: {printable(str(error))}") from None

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def request(self, question: PromptQuestion) -> dict[str, Any]:
        """Returns the body of a request; fields of ``--body`` replace ours, and None leaves one out."""
        sent = question.sent
        asked = {"model": self.model, **sent.fields, "temperature": self._temperature}
        asked["max_tokens"] = question.count * self._answer_tokens
        if sent.stop:
            asked["stop"] = list(sent.stop)
        if question.sample:
            asked["seed"] = question.seed
        return {name: value for name, value in (asked | self._body).items() if value is not None}

    def most_tokens(self, question: PromptQuestion) -> int:
        """Returns an upper bound of the tokens of the question and its answer."""
        asked = self.request(question)
        limits = [asked[name] for name in ("max_tokens", "max_completion_tokens") if isinstance(asked.get(name), int)]
        return question.sent.most_tokens + max(limits, default=question.count * self._answer_tokens)

    async def ask(self, question: PromptQuestion, retries: int = 0) -> Reply:
        """Answers a question, with so many more requests where one fails; raises ``Failure``."""
        began, asked = time.monotonic(), self.request(question)
        path = "/completions" if "prompt" in asked else "/chat/completions"
        client = self._client.with_options(max_retries=retries)
        try:
            made = await client.post(path, body=asked, cast_to=self._openai.HttpxBinaryResponseContent)
        except self._openai.OpenAIError as error:
            raise self._failure(error, retries) from None
        seconds = round(time.monotonic() - began, 3)
        return self._reply(question, asked, made.content, seconds, repeated(made.response.request))

    def _reply(
        self, question: PromptQuestion, asked: dict[str, Any], raw: bytes, seconds: float, retries: int
    ) -> Reply:
        try:
            completion = msgspec.json.decode(raw, type=Completion)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            line = f"the server answered with {self._glimpse(raw)}, which is no completion"
            raise Failure(line, retries=retries) from None
        if not completion.choices:
            raise Failure("the server answered with no choices", retries=retries)
        choice = completion.choices[0]
        if choice.message is None and choice.text is None:
            raise Failure("the server answered with a choice that has neither a message nor a text", retries=retries)
        said = (choice.message.content if choice.message else choice.text) or ""
        read, wrote, estimated = question.sent.about_tokens, about_tokens(said), True
        usage = completion.usage or Usage()
        if plausible(usage.prompt_tokens, read) and plausible(usage.completion_tokens, wrote):
            read, wrote, estimated = usage.prompt_tokens, usage.completion_tokens, False
        return Reply(
            key=question.key,
            sha=question.sha,
            said=self._clean(said),
            model=" ".join(self._clean(completion.model or "").split()),
            finish=" ".join(self._clean(choice.finish_reason or "").split()),
            read=read,
            wrote=wrote,
            estimated=estimated,
            seconds=seconds,
            sent=asked,
            retries=retries,
        )

    def _failure(self, error: Exception, allowed: int) -> Failure:
        """The client's error as a failure in one line, without the key."""
        openai = self._openai
        retries = repeated(error.request) if isinstance(error, openai.APIError) else 0
        if isinstance(error, openai.APITimeoutError):
            return Failure("the server did not answer in time", retries=retries)
        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__ or error
            line = f"the connection failed ({self._clean(str(cause) or type(cause).__name__)})"
            return Failure(line, retries=retries)
        if not isinstance(error, openai.APIStatusError):
            return Failure(f"the client failed ({self._clean(str(error))})", retries=retries)
        status, line = error.status_code, self._glimpse(error.response.content)
        if 300 <= status < 400:
            return Failure(f"the server answered {status} and names another address, which is not asked", fatal=True)
        # Too many requests, and not asked again: the server wants to be left alone for longer than the client waits.
        left_alone = status == 429 and retries < allowed
        unknown = status in REFUSED and UNKNOWN_MODEL.search(error.response.text[:COMPLAINT]) is not None
        fatal = status in HOPELESS or left_alone or unknown
        return Failure(f"the server answered {status}: {line}", fatal=fatal, retries=retries)

    def _glimpse(self, raw: bytes) -> str:
        """The beginning of what a server sent, in one line: the message of an error where it is one."""
        text = raw.decode("utf-8", "replace")
        try:
            inner = json.loads(text)["error"]
            text = str(inner["message"] if isinstance(inner, dict) else inner)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # no error in the form of the protocol: the text itself is shown
        line = " ".join(self._clean(text).split())
        return (f"'{line[:SHOWN]}...'" if len(line) > SHOWN else f"'{line}'") if line else "nothing"

    def _clean(self, text: str) -> str:
        return printable(self._key.hide(text))


def plausible(counted: int | None, estimate: int) -> TypeGuard[int]:
    """True for a count of tokens that the budget can rely on, by our own estimate: tokenizers differ by half.

    >>> plausible(90, 100), plausible(-5, 100), plausible(1, 100), plausible(10**12, 100), plausible(None, 100)
    (True, False, False, False, False)
    """
    return counted is not None and estimate // 2 <= counted <= LARGEST


def repeated(request: Any) -> int:
    """Requests that the client had made for the same question before this one."""
    return int(request.headers.get(RETRIES, 0))

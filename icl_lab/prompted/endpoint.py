"""An OpenAI-compatible server, asked through the ``openai`` client, whose own retries and time-outs are used.

Nothing but the address that was given is contacted: no proxies of the environment, no redirects. Text from a server is
cleaned once, here: without the key and without control characters. Imported only where a server is asked.
"""

import asyncio
import json
import re
import time
from contextlib import suppress
from typing import Any, TypeGuard

import httpx2
import msgspec
import openai

from icl_lab.errors import BadValue
from icl_lab.markdown import printable
from icl_lab.prompted.asking import Failure
from icl_lab.prompted.question import PromptQuestion, about_tokens
from icl_lab.prompted.record import Reply
from icl_lab.prompted.study import PromptedOptions

HOPELESS = (401, 403, 404, 405, 407)  # states in which no other question would fare better
SHOWN = 160  # characters of a complaint that are shown
MOST_TOKENS = 4_000_000  # that one answer can have
LARGEST = 4_000_000  # bytes of an answer
RETRIES = "x-stainless-retry-count"  # header by which the client numbers its requests
NO_KEY = "none"  # sent where no key was given: servers of one's own need none
LEAST = 8  # characters of a key; shorter ones, such as EMPTY, are placeholders of servers that need none


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Transport that reads an answer whole, in ``seconds`` and up to ``LARGEST`` bytes.

    The time-out of the client is for each read: a server that sends a byte now and then would never run into it.
    Raises ``ReadTimeout``, or ``OpenAIError`` where it is of no use to ask again.
    """

    def __init__(self, seconds: float, connections: int) -> None:
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        super().__init__(trust_env=False, limits=limits)
        self._seconds = seconds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                response = await super().handle_async_request(request)
                try:
                    # A small packed answer can be gigabytes when it is unpacked.
                    if response.headers.get("content-encoding", "identity") != "identity":
                        raise openai.OpenAIError("the answer is compressed, which was not asked for")
                    async for part in response.aiter_raw():
                        body += part
                        if len(body) > LARGEST:
                            raise openai.OpenAIError(f"the answer has more than {LARGEST:,} bytes")
                finally:
                    await response.aclose()
        except TimeoutError:
            raise httpx2.ReadTimeout("the answer took too long", request=request) from None
        return httpx2.Response(response.status_code, headers=response.headers, content=bytes(body))


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None  # of a conversation
    text: str | None = None  # that completes another
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    """The part of a server's answer that is read; everything else in it is passed over."""

    choices: list[_Choice]
    model: str | None = None
    usage: _Usage | None = None


class Endpoint:
    """A model of a server; ``parallel`` is the number of questions under way at once.

    The key is neither stored nor shown. Raises ``BadValue`` on one that no header can carry: the HTTP library would
    repeat it in its complaint.
    """

    def __init__(self, options: PromptedOptions, key: str = "", timeout: float = 60.0, parallel: int = 4) -> None:
        if not re.fullmatch(r"[!-~]*", key.strip()):
            raise BadValue("the key in OPENAI_API_KEY has a blank, or a character that is not ASCII.")
        self._options, self.model, self.parallel = options, options.model, parallel
        http = httpx2.AsyncClient(
            transport=BoundedTransport(timeout, parallel),
            trust_env=False,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
        )
        settings: dict[str, Any] = {"api_key": key.strip() or NO_KEY, "http_client": http, "timeout": timeout}
        try:
            self._client = openai.AsyncOpenAI(base_url=options.server, **settings)
        except httpx2.InvalidURL as error:
            raise BadValue(f"the address of the server cannot be read: {printable(str(error))}") from None

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def request(self, question: PromptQuestion) -> dict[str, Any]:
        """Returns the body of a request; fields of ``--body`` replace ours, and None leaves one out."""
        options = self._options
        asked = {"model": self.model, **question.sent, "temperature": options.temperature}
        asked["max_tokens"] = options.answer_tokens
        return {name: value for name, value in (asked | dict(options.body)).items() if value is not None}

    def most_tokens(self, question: PromptQuestion) -> int:
        """Returns an upper bound of the tokens of the question and its answer."""
        asked = self.request(question)
        limits = [asked[name] for name in ("max_tokens", "max_completion_tokens") if isinstance(asked.get(name), int)]
        return question.most_tokens + max(limits, default=self._options.answer_tokens)

    async def ask(self, question: PromptQuestion, retries: int = 0) -> Reply:
        """Answers a question, with so many more requests where one fails; raises ``Failure``."""
        began, asked = time.monotonic(), self.request(question)
        path = "/completions" if "prompt" in asked else "/chat/completions"
        client = self._client.with_options(max_retries=retries)
        try:
            made = await client.post(path, body=asked, cast_to=openai.HttpxBinaryResponseContent)
        except openai.OpenAIError as error:
            raise self._failure(error, retries) from None
        retried = repeated(made.response.request)
        try:
            completion = msgspec.json.decode(made.content, type=_Completion)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            line = f"the server answered with {self._glimpse(made.content)}, which is no completion"
            raise Failure(line, retries=retried) from None
        choice = completion.choices[0] if completion.choices else _Choice()
        if choice.message is None and choice.text is None:
            raise Failure("the server answered with neither a message nor a text", retries=retried)
        said = (choice.message.content if choice.message else choice.text) or ""
        read, wrote, estimated = question.about_tokens, about_tokens(said), True
        usage = completion.usage or _Usage()
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
            seconds=round(time.monotonic() - began, 3),
            sent=asked,
            retries=retried,
        )

    def _failure(self, error: Exception, allowed: int) -> Failure:
        """The client's error as a failure in one line, without the key."""
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
        fatal = status in HOPELESS or (status == 429 and retries < allowed)
        return Failure(f"the server answered {status}: {line}", fatal=fatal, retries=retries)

    def _glimpse(self, raw: bytes) -> str:
        """The beginning of what a server sent, in one line: the message of an error where it is one."""
        text = raw.decode("utf-8", "replace")
        # Without an error in the form of the protocol the text itself is shown.
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            text = str(json.loads(text)["error"]["message"])
        line = " ".join(self._clean(text).split())
        return (f"'{line[:SHOWN]}...'" if len(line) > SHOWN else f"'{line}'") if line else "nothing"

    def _clean(self, text: str) -> str:
        key = self._client.api_key
        return printable(text.replace(key, "<key>") if len(key) >= LEAST else text)


def plausible(counted: int | None, estimate: int) -> TypeGuard[int]:
    """True for a count of tokens that the budget can rely on, by our own estimate: tokenizers differ by half.

    >>> plausible(90, 100), plausible(-5, 100), plausible(1, 100), plausible(10**12, 100), plausible(None, 100)
    (True, False, False, False, False)
    """
    return counted is not None and estimate // 2 <= counted <= MOST_TOKENS


def repeated(request: Any) -> int:
    """Requests that the client had made for the same question before this one."""
    return int(request.headers.get(RETRIES, 0))

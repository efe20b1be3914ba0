"""Client of a server that bounds a whole request, from its connection to the last byte, in time and in size.

The time-out of the HTTP library is for each read: a server that sends a byte now and then would never run into it.
"""

import asyncio

import httpx2
from openai import AsyncOpenAI, OpenAIError

from icl_lab.errors import BadValue
from icl_lab.markdown import printable

LARGEST = 4_000_000  # bytes of an answer


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Transport that reads an answer whole, in ``seconds`` and up to ``LARGEST`` bytes.

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
                        raise OpenAIError("the answer is compressed, which was not asked for")
                    async for part in response.aiter_raw():
                        body += part
                        if len(body) > LARGEST:
                            raise OpenAIError(f"the answer has more than {LARGEST:,} bytes")
                finally:
                    await response.aclose()
        except TimeoutError:
            raise httpx2.ReadTimeout("the answer took too long", request=request) from None
        return httpx2.Response(response.status_code, headers=response.headers, content=bytes(body))


def client_of(url: str, key: str, seconds: float, connections: int) -> AsyncOpenAI:
    """Returns a client that contacts nothing but ``url``: no proxies, no redirects."""
    http = httpx2.AsyncClient(
        transport=BoundedTransport(seconds, connections),
        trust_env=False,
        follow_redirects=False,
        timeout=seconds,
        headers={"Accept-Encoding": "identity"},
    )
    try:
        return AsyncOpenAI(base_url=url, api_key=key, http_client=http, timeout=seconds)
    except httpx2.InvalidURL as error:
        raise BadValue(f"the address of the server cannot be read: {printable(str(error))}") from None

"""HTTP client of a server, with bounds on a whole request: its connection, headers and body, in time and in size.

The time-out of the HTTP library is for each read: a server that sends a byte now and then would never run into it.
"""

import asyncio

import httpx2
from openai import OpenAIError


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Transport that reads an answer whole, in ``seconds`` and up to ``largest`` bytes."""

    def __init__(self, seconds: float, largest: int, connections: int) -> None:
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        super().__init__(trust_env=False, limits=limits)
        self._seconds, self._largest = seconds, largest

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request; raises ``ReadTimeout``, or ``OpenAIError`` where it is of no use to ask again."""
        try:
            async with asyncio.timeout(self._seconds):
                response = await super().handle_async_request(request)
                try:
                    body = await self._body(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise httpx2.ReadTimeout("the answer took too long", request=request) from None
        return httpx2.Response(response.status_code, headers=response.headers, content=body)

    async def _body(self, response: httpx2.Response) -> bytes:
        # A small packed answer can be gigabytes when it is unpacked.
        if response.headers.get("content-encoding", "identity") != "identity":
            raise OpenAIError("the answer is compressed, which was not asked for")
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > self._largest:
                raise OpenAIError(f"the answer has more than {self._largest:,} bytes")
        return bytes(body)


def bounded_client(seconds: float, largest: int, connections: int) -> httpx2.AsyncClient:
    """Returns a client that contacts nothing but the address of a request: no proxies, no redirects."""
    return httpx2.AsyncClient(
        transport=BoundedTransport(seconds, largest, connections),
        trust_env=False,
        follow_redirects=False,
        timeout=seconds,
        headers={"Accept-Encoding": "identity"},
    )

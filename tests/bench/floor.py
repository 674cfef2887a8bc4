"""The floors: bare Litestar pass-throughs that insert 2 KB and decode every event, on httpx over
aiohttp (FLOOR_CLIENT=aiohttp) or plain.

Nothing here is the gateway's: a floor must not move when the gateway gets faster. The transport
does what `httpx-aiohttp` does.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx
import msgspec
from litestar import Litestar, Request, Response, post
from litestar.response import Stream

URL = os.environ.get("FLOOR_UPSTREAM", "http://127.0.0.1:9/v1") + "/chat/completions"
SYSTEM = {
    "role": "system",
    "content": ("<memory_blocks>\n" + "The user likes concise answers. " * 64)[:2048],
}
HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-upstream"}
loads, dumps = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode


class Body(httpx.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._response.content.iter_chunked(1 << 14):
            yield part

    async def aclose(self) -> None:
        self._response.release()


class Transport(httpx.AsyncBaseTransport):
    session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.session is None:
            self.session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300)
            )
        timeout = request.extensions["timeout"]
        response = await self.session.request(
            request.method,
            str(request.url),
            headers=request.headers,
            data=request.content,
            allow_redirects=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(
                sock_connect=timeout["connect"], sock_read=timeout["read"], connect=timeout["pool"]
            ),
        )
        return httpx.Response(
            response.status,
            headers=list(response.raw_headers),
            stream=Body(response),
            request=request,
        )


limits = httpx.Limits(max_connections=None, max_keepalive_connections=1000, keepalive_expiry=30)
client = httpx.AsyncClient(
    transport=Transport() if os.environ.get("FLOOR_CLIENT") == "aiohttp" else None,
    limits=limits,
    timeout=60,
    trust_env=False,
)


async def streamed(body: bytes) -> AsyncIterator[bytes]:
    response = await client.send(
        client.build_request("POST", URL, content=body, headers=HEADERS), stream=True
    )
    rest = b""
    try:
        async for data in response.aiter_raw():
            whole, mark, rest = (rest + data).rpartition(b"\n\n")
            for event in whole.split(b"\n\n"):
                if event.startswith(b"data: {"):
                    loads(event[6:])
            if mark:
                yield whole + mark
    finally:
        await response.aclose()


@post("/v1/chat/completions", status_code=200)
async def chat(request: Request[Any, Any, Any]) -> Response[bytes] | Stream:
    body = loads(await request.body())
    body["messages"].insert(0, SYSTEM)
    if body.get("stream"):
        return Stream(streamed(dumps(body)), headers={"content-type": "text/event-stream"})
    response = await client.send(
        client.build_request("POST", URL, content=dumps(body), headers=HEADERS)
    )
    return Response(
        response.content, status_code=response.status_code, media_type="application/json"
    )


app = Litestar([chat], openapi_config=None, logging_config=None)

"""The floor: a bare Litestar pass-through on httpx over aiohttp, inserting 2 KB and decoding every event."""
from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
from litestar import Litestar, Request, Response, post
from litestar.response import Stream

from tests.bench.transport import AiohttpTransport

URL = os.environ.get("FLOOR_UPSTREAM", "http://127.0.0.1:9/v1") + "/chat/completions"
SYSTEM = {"role": "system", "content": ("<memory_blocks>\n" + "The user likes concise answers. " * 64)[:2048]}
HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-upstream"}
loads, dumps = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode


class Client:
    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    def get(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(transport=AiohttpTransport(), timeout=60)
        return self._client


client = Client()


async def streamed(body: bytes) -> AsyncIterator[bytes]:
    response = await client.get().send(client.get().build_request("POST", URL, content=body, headers=HEADERS), stream=True)
    rest = b""
    try:
        async for data in response.aiter_raw():
            data = rest + data
            cut = data.rfind(b"\n\n") + 2
            rest = data[cut:] if cut > 1 else data
            for event in data[: cut - 2].split(b"\n\n") if cut > 1 else ():
                if event.startswith(b"data: {"):
                    loads(event[6:])
            if cut > 1:
                yield data[:cut]
    finally:
        await response.aclose()


@post("/v1/chat/completions", status_code=200)
async def chat(request: Request[Any, Any, Any]) -> Response[bytes] | Stream:
    body = loads(await request.body())
    body["messages"].insert(0, SYSTEM)
    if body.get("stream"):
        return Stream(streamed(dumps(body)), headers={"content-type": "text/event-stream"})
    response = await client.get().post(URL, content=dumps(body), headers=HEADERS)
    return Response(response.content, media_type="application/json")


app = Litestar([chat], openapi_config=None, logging_config=None)

"""The floor of `tests.bench.floor` for Responses and Messages: a bare pass-through that inserts
2 KB and decodes every event.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

from litestar import Litestar, Request, Response, post
from litestar.response import Stream

from tests.bench.floor import HEADERS, SYSTEM, client, dumps, loads

URL = os.environ.get("FLOOR_UPSTREAM", "http://127.0.0.1:9/v1")


async def streamed(path: str, body: bytes) -> AsyncIterator[bytes]:
    request = client.build_request("POST", URL + path, content=body, headers=HEADERS)
    response = await client.send(request, stream=True)
    rest = b""
    try:
        async for data in response.aiter_raw():
            whole, mark, rest = (rest + data).rpartition(b"\n\n")
            for event in whole.split(b"\n\n"):
                _, found, text = event.partition(b"\ndata: ")
                if found:
                    loads(text)
            if mark:
                yield whole + mark
    finally:
        await response.aclose()


async def passed(
    path: str, member: str, request: Request[Any, Any, Any]
) -> Response[bytes] | Stream:
    body = loads(await request.body())
    body[member] = SYSTEM["content"]
    if body.get("stream"):
        return Stream(streamed(path, dumps(body)), headers={"content-type": "text/event-stream"})
    response = await client.send(
        client.build_request("POST", URL + path, content=dumps(body), headers=HEADERS)
    )
    return Response(
        response.content, status_code=response.status_code, media_type="application/json"
    )


@post("/v1/responses", status_code=200)
async def responses(request: Request[Any, Any, Any]) -> Response[bytes] | Stream:
    return await passed("/responses", "instructions", request)


@post("/v1/messages", status_code=200)
async def messages(request: Request[Any, Any, Any]) -> Response[bytes] | Stream:
    return await passed("/messages", "system", request)


app = Litestar([responses, messages], openapi_config=None, logging_config=None)

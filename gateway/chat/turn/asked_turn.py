"""Turns that begin inside the gateway: the path of a chat completion, without a connection.

Rights, limits, books and memory are those of a request to `/v1/chat/completions` of the principal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.chat.intake.called_agent import CalledAgent
from gateway.chat.intake.request import KnownCall, MemoryPath
from gateway.config.agents import PREFIX
from gateway.http.access_log import open_line, write_line
from gateway.http.asgi import Receive
from gateway.http.json_thread import run_heavy
from gateway.routing.inner_call import InnerAnswer, InnerCall
from gateway.state import HEADERS, REQUEST_ID, GatewayState
from gateway.wire.chat import encode
from memory import new_id

PATH = "/v1/chat/completions"
# Longer messages are encoded in a thread.
LIGHT_CHARACTERS = 1 << 16
# Answers a request with memory over ASGI.
Serve = Callable[..., Awaitable[None]]


async def collect_turn(
    serve: Serve, gateway: GatewayState, scope: Any, receive: Receive, call: InnerCall
) -> InnerAnswer:
    """Let an agent answer a message. scope, receive: of the request that it is done for."""
    body = {"model": PREFIX + call.agent.name, "messages": [{"role": "user", "content": call.text}]}
    is_light = len(call.text) <= LIGHT_CHARACTERS
    if is_light:
        raw_body = encode(body)
    else:
        raw_body = await run_heavy(encode, body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(raw_body)),
        (b"x-memory-conversation", quote(call.conversation, safe="").encode()),
    ]
    if call.project:
        headers.append((b"x-memory-project", quote(call.project, safe="").encode()))
    inner_scope = {name: value for name, value in scope.items() if name != HEADERS}
    inner_scope |= {
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": headers,
    }
    agent_call = CalledAgent(call.agent, True, call.chain)
    path = MemoryPath(known_call=KnownCall(call.principal, agent_call, call.user))
    answer = _CollectedAnswer()
    await serve(gateway, inner_scope, _receive_first(raw_body, receive), answer.send, path)
    return InnerAnswer(answer.status, answer.headers, b"".join(answer.parts))


async def run_ask(serve: Serve, gateway: GatewayState, call: InnerCall) -> InnerAnswer:
    """Let an agent answer another; cancelling this ends its turn as a client that leaves does."""
    scope = {"type": "http", "method": "POST", "path": PATH, REQUEST_ID: new_id("req")}

    async def serve_ask() -> InnerAnswer:
        line = open_line(scope, scope[REQUEST_ID])
        error = None
        try:
            answer = await collect_turn(serve, gateway, scope, _wait_for_ever, call)
            line.status = answer.status
        except BaseException as e:
            error = e
            raise
        finally:
            write_line(line, error)
        bill = line.record
        return msgspec.structs.replace(answer, cost_usd=None if bill is None else bill.cost)

    # In a task, so that its line of the access log is its own.
    return await asyncio.create_task(serve_ask())


async def _wait_for_ever() -> Any:
    await asyncio.Event().wait()


class _CollectedAnswer:
    """Takes the messages of an ASGI response."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []

    async def send(self, message: Mapping[str, Any]) -> None:
        """Take one message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.lower(): value for name, value in message["headers"]}
        else:
            self.parts.append(message.get("body", b""))


def _receive_first(raw_body: bytes, receive: Receive) -> Receive:
    """Return what receives a body, and then what the client itself sends: that it has left."""
    messages = [{"type": "http.request", "body": raw_body, "more_body": False}]

    async def receive_next() -> Any:
        if messages:
            return messages.pop()
        return await receive()

    return receive_next

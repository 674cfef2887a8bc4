"""The stand-in as a server: chat completions, Responses, Messages, embeddings, a list of models.

`GET /weather/{city}` is what a tool of the demo asks; its answer is invented, and says so.

Nothing is stored, so a response cannot be continued by its id. Any key and any model name is
accepted, but every answer says `"model": "mnemogate-demo"`, so that it is never mistaken for
another. `start()` serves from its own thread, for the demo and for tests.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any

import uvicorn

from gateway.apis.messages.messages_errors import error_body
from gateway.apis.translation.reply_stream import BridgedStream, whole_reply
from gateway.apis.translation.request_to_chat import MESSAGES, RESPONSES, carry
from gateway.demo_model.engine import MODEL, reply
from gateway.demo_model.responses import completion, embeddings, events, model, models
from gateway.demo_model.validation import check_chat, parse_body
from gateway.errors import (
    BadRequest,
    GatewayError,
    MethodNotAllowed,
    ResourceNotFound,
    UnknownModel,
)
from gateway.wire.losses import DROPPED, Losses

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
FORMATS = {"/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
WEATHER_PATH = "/weather/"
ALLOWED = {
    "/v1/chat/completions": "POST",
    "/v1/responses": "POST",
    "/v1/messages": "POST",
    "/v1/embeddings": "POST",
    "/v1/models": "GET",
}


def create_bundled(pace: float = 0.0) -> App:
    """Return the stand-in as an ASGI application.

    pace: seconds between two events of a stream.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        try:
            answer = _answer(scope["method"], path, await _body(receive))
        except GatewayError as e:
            anthropic = FORMATS.get(path) == MESSAGES
            await _whole(send, e.status, error_body(e, "") if anthropic else e.body())
            return
        if isinstance(answer, dict):
            await _whole(send, 200, json.dumps(answer).encode())
        else:
            await _stream(send, answer, pace)

    return app


def _answer(method: str, path: str, data: bytes) -> dict[str, Any] | Iterable[bytes]:
    """Return a JSON object, or the events of a stream. Raises GatewayError."""
    if method == "GET" and path.startswith(WEATHER_PATH):
        city = path.removeprefix(WEATHER_PATH)[:100]
        return {"weather": f"14 degrees and light rain in {city} (invented for the demo)"}
    model_name = path.removeprefix("/v1/models/")
    allowed_method = ALLOWED.get(path) if model_name == path else "GET"
    if allowed_method is None:
        raise ResourceNotFound(
            f"There is no {path!r} here. This stand-in serves: {', '.join(ALLOWED)}."
        )
    if method != allowed_method:
        raise MethodNotAllowed(f"{path!r} takes {allowed_method}, not {method}.")
    if path == "/v1/models":
        return models()
    if method == "GET":
        if model_name != MODEL:
            raise UnknownModel(
                f"There is no model {model_name!r} here, only {MODEL!r}.", param="model"
            )
        return model()
    body = parse_body(data)
    if path in FORMATS:
        return _answer_in_format(FORMATS[path], body)
    if path == "/v1/chat/completions":
        return _chat(body)
    return embeddings(body)


def _answer_in_format(name: str, body: dict[str, Any]) -> dict[str, Any] | Iterable[bytes]:
    """Return the answer to a request of another format, made as a chat completion."""
    if body.get("previous_response_id"):
        raise BadRequest(
            "This stand-in keeps no responses: send the whole input.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    chat_request, make_writer = carry(name, body, Losses(MODEL, DROPPED), "max_tokens")
    writer = make_writer(secrets.token_hex(16), int(time.time()))
    if chat_request.get("stream"):
        chat_request["stream_options"] = {"include_usage": True}
    answer = _chat(chat_request)
    if isinstance(answer, dict):
        translated: dict[str, Any] = json.loads(whole_reply(json.dumps(answer).encode(), writer))
        return translated
    return _translate(answer, BridgedStream(writer))


def _translate(parts: Iterable[bytes], stream: BridgedStream) -> Iterator[bytes]:
    for part in parts:
        yield stream.feed(part)
    yield stream.end()


def _chat(body: dict[str, Any]) -> dict[str, Any] | Iterable[bytes]:
    check_chat(body)
    ident = f"chatcmpl-{secrets.token_hex(12)}"
    created_at = int(time.time())
    try:
        message = reply(body, salt=ident)
    except RecursionError as e:
        raise BadRequest("The body is nested too deeply.") from e
    return (events if body.get("stream") else completion)(body, message, ident, created_at)


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _whole(send: Send, status: int, content: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _stream(send: Send, parts: Iterable[bytes], pace: float) -> None:
    headers = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(pace)
    await send({"type": "http.response.body", "body": b""})


class DemoServer:
    """A running stand-in.

    url: its base URL, ending in /v1. Use it as a context manager, or call stop().
    """

    def __init__(self, server: uvicorn.Server, sock: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        self._server = server
        self._sock = sock
        self._thread = threading.Thread(
            target=server.run, args=([sock],), name="mnemogate-demo-model", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop serving, abort running requests, and wait at most `timeout` seconds.

        A second call does nothing.
        """
        self._server.should_exit = True
        self._thread.join(timeout / 2)
        self._server.force_exit = True
        self._thread.join(timeout / 2)
        self._sock.close()

    def __enter__(self) -> DemoServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def start(port: int = 0, pace: float = 0.0) -> DemoServer:
    """Serve the stand-in on 127.0.0.1 from a thread; it is ready when this returns.

    port: 0 for any free one. pace: seconds between two events of a stream. Raises OSError if the
    port is in use.
    """
    sock = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(
        create_bundled(pace),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    return DemoServer(uvicorn.Server(config), sock)

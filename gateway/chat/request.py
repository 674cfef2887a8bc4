"""One chat request, read once: who calls, whose memory, which mode, what for.

Everything that a client can say in headers, path or body is looked at here and nowhere else, in
the order in which clients know the faults: credentials, body, mode, model, user, conversation,
agent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.auth.authenticator import Principal
from gateway.auth.user_resolver import header_text
from gateway.errors import BadRequest, Forbidden
from gateway.http.asgi import Receive
from gateway.http.json_thread import run_by_weight
from gateway.http.request_body import read_body
from gateway.http.request_weight import TooHeavy, read_routing_members
from gateway.routing.router import Route
from gateway.state import GatewayState, request_id
from gateway.usage.pricing import MAX_COUNT
from gateway.wire.chat import Json
from gateway.wire.chat_request import check_model, parse
from gateway.wire.headers import merge_headers
from gateway.wire.json_weight import is_light
from gateway.wire.model_field import model_for_certain

log = logging.getLogger("mnemogate")

MODES = ("full", "read", "write", "off")
CONVERSATION_CHARACTERS = AGENT_CHARACTERS = 256

Headers = Mapping[bytes, bytes]


class ChatRequest(msgspec.Struct, frozen=True):
    """A chat request as the gateway understands it.

    headers: by lower-case name, for what of them goes upstream. path_user: from `/u/{user}`. raw:
    the body's bytes, decompressed. started: by perf_counter. body: what the bytes say. mode: the
    one in force, "off" for a chat UI's own prompts too. user: None where nobody is named.
    conversation: the one that the client names. too_heavy: why memory cannot look at the request in
    time, "" where it can. agent, idempotency_key, is_retry (the client says that it tried before):
    empty where memory has no part.

    A Struct, since a dataclass of so many members takes six times as long to make.
    """

    id: str
    principal: Principal
    headers: Headers
    path_user: str | None
    raw: bytes
    started: float
    body: Json
    route: Route
    mode: str
    user: str | None
    conversation: str | None
    too_heavy: str
    agent: str
    idempotency_key: str
    is_retry: bool

    @property
    def uses_memory(self) -> bool:
        """Whether memory has a part in the answer."""
        return self.mode != "off" and not self.too_heavy

    @property
    def wants_stream(self) -> bool:
        """Whether the client asked for events."""
        return bool(self.body.get("stream"))

    @property
    def max_output(self) -> int | None:
        """The tokens that one choice may have, where the request says so."""
        for name in ("max_completion_tokens", "max_tokens"):
            value = self.body.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return min(
                    value, MAX_COUNT
                )  # what is sent on may be more: here it is reckoned with
        return None

    @property
    def total_output(self) -> int | None:
        """The tokens that all choices together may have, where the request says so."""
        most, several = self.max_output, self.body.get("n")
        if most and isinstance(several, int) and several > 1:
            return min(most * several, MAX_COUNT)
        return most

    @property
    def conversation_as_sent(self) -> bytes:
        """The conversation as the client spelt it, b"" where it named none."""
        return self.headers.get(b"x-memory-conversation", b"")


async def read_chat_request(
    gateway: GatewayState, scope: Any, receive: Receive, path_user: str | None
) -> ChatRequest:
    """Read a request off its connection.

    Raises GatewayError for whatever can be told without an upstream.
    """
    started, name = time.perf_counter(), request_id(scope)
    headers = merge_headers(scope["headers"])
    principal = gateway.keys.caller(headers)
    limit = int(gateway.settings.server.max_body_mib * 1024 * 1024)
    raw = await read_body(receive, headers, limit)
    mode = mode_of(headers)
    source = principal.tenant, principal.key, headers.get(b"x-memory-user"), path_user
    body, too_heavy = await _read_members(gateway, name, mode, raw, source)
    route = gateway.router.route(body["model"], principal)
    if principal.limited:  # it matters which model that is, so the body must name one alone
        await run_by_weight(raw, model_for_certain, raw, b"application/json")
    user = gateway.names.user(principal, headers, path_user, body)
    if mode != "off" and not too_heavy and gateway.background.matches(body["messages"]):
        mode = "off"
    conversation = None if mode == "off" else conversation_of(headers, principal, user)
    if too_heavy and (conversation or gateway.settings.memory.on_error == "fail"):
        raise _memory_needed(too_heavy)
    without = mode == "off" or too_heavy
    return ChatRequest(
        name,
        principal,
        headers,
        path_user,
        raw,
        started,
        body,
        route,
        mode,
        user,
        conversation,
        too_heavy,
        *(("", "", False) if without else (agent_of(headers), *retry_signals(headers))),
    )


def mode_of(headers: Headers) -> str:
    """Return the request's `X-Memory`. Raises BadRequest."""
    mode = headers.get(b"x-memory", b"full").decode("latin-1").strip().lower()
    if mode not in MODES:
        raise BadRequest(
            f"X-Memory is {mode[:40]!r}: use one of {', '.join(MODES)}.", param="x-memory"
        )
    return mode


def agent_of(headers: Headers) -> str:
    """Return the request's agent. Raises BadRequest."""
    agent = header_text(headers, b"x-memory-agent") or "default"
    if len(agent) > AGENT_CHARACTERS:
        raise BadRequest(
            f"X-Memory-Agent has {len(agent)} characters; at most {AGENT_CHARACTERS} are allowed.",
            param="x-memory-agent",
        )
    return agent


def conversation_of(headers: Headers, principal: Principal, user: str | None) -> str | None:
    """Return the conversation that the client names. Raises BadRequest, Forbidden."""
    name = header_text(headers, b"x-memory-conversation")
    if not name:
        return None
    if len(name) > CONVERSATION_CHARACTERS:
        raise BadRequest(
            f"X-Memory-Conversation has {len(name)} characters; at most "
            f"{CONVERSATION_CHARACTERS} are allowed.",
            param="x-memory-conversation",
        )
    if user is None and not principal.trusted:
        raise Forbidden("X-Memory-Conversation needs a named user or a trusted key.")
    return name


def retry_signals(headers: Headers) -> tuple[str, bool]:
    """Return the idempotency key, and whether the client says that it tried before.

    A key says so, and so does the count that OpenAI's SDKs send.
    """
    key = headers.get(b"idempotency-key", b"").decode("latin-1")
    count = headers.get(b"x-stainless-retry-count", b"0")
    return key, bool(key) or (count.isdigit() and bool(count.strip(b"0")))


def _memory_needed(too_heavy: str) -> BadRequest:
    return BadRequest(
        f"This request needs its memory, which cannot look at it in time: {too_heavy}. Send less."
    )


async def _read_members(
    gateway: GatewayState, name: str, mode: str, raw: bytes, source: object
) -> tuple[Json, str]:
    """Read the body as its mode needs it.

    The text says why memory stands aside, if it does. name: the request's. source: whose requests
    this one may share its beginning with. Raises BadRequest.
    """
    too_heavy = ""
    if mode != "off":
        try:
            return await gateway.prefixes.parse_async(source, raw), ""
        except TooHeavy as e:
            too_heavy = str(e)
            log.warning(
                "a request is too long for memory and goes without it (%s): %s", name, too_heavy
            )
    if is_light(raw):
        check_model(body := parse(raw))
        return body, too_heavy
    return await asyncio.to_thread(read_routing_members, raw), too_heavy

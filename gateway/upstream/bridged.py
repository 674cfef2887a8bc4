"""Responses and Messages at servers that do not speak them: sent as chat completions.

A server's formats come from `providers.<name>.wires`, or are tried: the first request of a format
is sent unchanged, and if the server has no such path it is sent again as a chat completion. The
result is remembered for an hour, since servers are upgraded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.apis.translation.chat_reply_parts import ReplyWriter
from gateway.apis.translation.messages_reply_to_chat import WholeAnswer
from gateway.apis.translation.reply_stream import BridgedStream, refusal, whole_reply
from gateway.apis.translation.request_to_chat import MESSAGES, RESPONSES
from gateway.apis.translation.sealed_compaction import (
    SummarySeal,
    holds_items,
    may_be_compacted,
    with_summaries,
)
from gateway.http.json_thread import look_for, run_by_weight, run_heavy
from gateway.http.paths import upstream_path
from gateway.upstream.base import (
    ANSWER_BYTES,
    ERROR_BYTES,
    Carriage,
    OnePiece,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)
from gateway.upstream.bridge_translation import (
    BridgeOptions,
    BridgeTranslator,
    Carrying,
    read_body,
    remove_marks,
)
from gateway.upstream.refused_references import send_items
from gateway.upstream.translated_body import translate_response
from gateway.wire.chat import Json, decode, encode
from gateway.wire.headers import with_body_idempotency_key
from gateway.wire.own_marks import BYTES
from gateway.wire.token_limits import TokenLimits, refused_member, rename_limit

FORMATS = {"/responses": RESPONSES, "/messages": MESSAGES}
# Paths that count a request's tokens: of which format, and what the answer says beside the number.
COUNTS: dict[str, tuple[str, Json]] = {
    "/responses/input_tokens": (RESPONSES, {"object": "response.input_tokens"}),
    "/messages/count_tokens": (MESSAGES, {}),
}
COMPACT = "/responses/compact"
CHAT = "chat"
CHAT_PATH = upstream_path("chat", "completions")
OMITTED_FROM = {**FORMATS, **{path: name for path, (name, _) in COUNTS.items()}, CHAT_PATH: CHAT}
KNOWN_SECONDS = 3600.0
NO_PATH = (404, 405, 501)
# What a 404 is about that is no path: by its code, and by its text without the paths in it, which
# servers list. llama.cpp says "File Not Found" of a path.
THINGS_OF_CODES = re.compile(r"model|deployment|response|item|conversation|resource", re.IGNORECASE)
PATHS_OF_CODES = re.compile(r"url|path|route|endpoint|method", re.IGNORECASE)
THINGS = re.compile(r"model|deployment|response with id|item with id|not persisted", re.IGNORECASE)
PATHS = re.compile(r"(?i)not found|not_found|endpoint|route|\burl\b|\bpath\b|method|cannot post")
PATH = re.compile(r"(?:\bhttps?:/)?(?<!\w)/[\w./{}:<>*-]+")

NO_COMPACTION = {
    "message": "This model's server cannot compact responses.",
    "type": "invalid_request_error",
    "code": "unknown_url",
}


class SpokenFormats:
    """The formats that a server speaks.

    declared: those that the settings name; where they name none, it is found out.
    """

    def __init__(self, declared: Collection[str] = ()) -> None:
        self._declared = frozenset(declared)
        self._answers_by_format: dict[str, tuple[bool, float]] = {}

    def speaks(self, name: str) -> bool | None:
        """Tell whether the server speaks a format; None where nobody knows."""
        if self._declared:
            return name in self._declared
        is_spoken, at = self._answers_by_format.get(name, (None, 0.0))
        if time.monotonic() - at < KNOWN_SECONDS:
            return is_spoken
        return None

    def lacks(self, name: str) -> bool:
        """Tell whether the server did not speak a format, as far as anybody knows."""
        if self._declared:
            return name not in self._declared
        return not self._answers_by_format.get(name, (True, 0.0))[0]

    def note(self, name: str, *, speaks: bool) -> None:
        """Remember whether the server speaks a format."""
        self._answers_by_format[name] = speaks, time.monotonic()


class BridgedUpstream:
    """A server, with the formats that it does not speak carried as chat completions."""

    def __init__(
        self,
        server: Upstream,
        formats: SpokenFormats,
        options: BridgeOptions,
        carrying: Carrying | None = None,
    ) -> None:
        self._server = server
        self._formats = formats
        self._options = options
        self._carrying = carrying or Carrying()
        self._limits = TokenLimits(options.limit)
        self._translator = BridgeTranslator(options, self._carrying, self._limits)
        # Nobody declares it, so it is found out.
        self._compacting = SpokenFormats()

    @property
    def bridges_responses(self) -> bool:
        """Whether responses are carried as chat completions, so that the server keeps none."""
        return self.bridges(RESPONSES)

    def bridges(self, name: str) -> bool:
        """Tell whether requests of a format are carried as chat completions, as far as is known."""
        return self._formats.lacks(name)

    def send(self, request: UpstreamRequest) -> Coroutine[Any, Any, UpstreamResponse]:
        """Send a request, see the port.

        Raises BadRequest, which names the member, for what cannot be carried.
        """
        if request.path == CHAT_PATH and not (request.own or self._options.omit.get(CHAT)):
            # As nearly all requests are.
            return self._server.send(request)
        return self._send_translated(request)

    async def _send_translated(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request that the server may not take as it is."""
        path = request.path.partition("?")[0]
        request = await self._open_summaries(path, request)
        omitted = self._options.omit.get(OMITTED_FROM.get(path, ""))
        if not omitted or request.method != "POST":
            return await self._send(path, request)
        body = request.body or b"{}"
        shortened = await run_by_weight(body, _without, body, omitted)
        if shortened is None:
            return await self._send(path, request)
        content, names = shortened
        # Another body than the one the client's Idempotency-Key stands for.
        headers = with_body_idempotency_key([*request.headers], content)
        incoming = await self._send(path, replace(request, content=content, headers=headers))
        beyond = incoming.carriage or Carriage("")
        incoming.carriage = beyond._replace(lost_members=(*names, *beyond.lost_members))
        return incoming

    async def _send(self, path: str, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request as the server takes it. path: without its query."""
        if path in COUNTS and request.method == "POST":
            return await self._count(*COUNTS[path], request)
        if path == COMPACT and request.method == "POST":
            return await self._compact(request)
        if request.own and path == CHAT_PATH:
            member = self._limits.member_of(request.model)
            own_body = rename_limit(request.body or b"{}", member)
            return await self._send_limited(replace(request, content=own_body))
        name = FORMATS.get(path)
        if name is None or request.method != "POST":
            return await self._server.send(request)
        is_spoken = self._formats.speaks(name)
        if is_spoken is not False:
            incoming = await self._send_natively(name, request)
            if is_spoken or incoming.status not in NO_PATH:
                if 200 <= incoming.status < 300:
                    self._formats.note(name, speaks=True)
                return incoming
            data = await incoming.read(ERROR_BYTES)
            await incoming.close()
            if not is_path_missing(incoming.status, data):
                return UpstreamResponse(incoming.status, incoming.headers, OnePiece(data))
        incoming = await self._carry(name, request)
        if is_spoken is None and incoming.status not in NO_PATH:
            self._formats.note(name, speaks=False)
        return incoming

    async def _open_summaries(self, path: str, request: UpstreamRequest) -> UpstreamRequest:
        """Return a request with what this gateway compacted as plain messages."""
        if request.method != "POST" or not holds_items(path):
            return request
        if not await look_for(request.content, BYTES):
            return request
        body = request.body or b"{}"
        if not may_be_compacted(path, body):
            return request
        seal = SummarySeal(self._carrying.secret, request.tenant)
        content = await run_heavy(_open_items, body, seal)
        if content is None:
            return request
        # Another body than the one the client's Idempotency-Key stands for.
        headers = with_body_idempotency_key([*request.headers], content)
        return replace(request, content=content, headers=headers)

    async def _compact(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a compaction to a server that may have the path, else answer as one without it."""
        if self._formats.speaks(RESPONSES) is False or self._compacting.speaks(COMPACT) is False:
            headers = [(b"content-type", b"application/json")]
            return UpstreamResponse(404, headers, OnePiece(encode({"error": NO_COMPACTION})))
        incoming = await self._send_natively(RESPONSES, request)
        if 200 <= incoming.status < 300:
            self._compacting.note(COMPACT, speaks=True)
        if incoming.status not in NO_PATH:
            return incoming
        data = await incoming.read(ERROR_BYTES)
        await incoming.close()
        if is_path_missing(incoming.status, data):
            self._compacting.note(COMPACT, speaks=False)
        return UpstreamResponse(incoming.status, incoming.headers, OnePiece(data))

    async def _send_natively(self, name: str, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request without reasoning that another server, or we, have marked."""
        send = partial(send_items, self._server) if name == RESPONSES else self._server.send
        if not await look_for(request.content, BYTES):
            return await send(request)
        body = request.body or b"{}"
        clean_request = await run_by_weight(body, remove_marks, body, name)
        if clean_request is None:
            return await send(request)
        content, names = clean_request
        headers = with_body_idempotency_key([*request.headers], content)
        incoming = await send(replace(request, content=content, headers=headers))
        beyond = incoming.carriage or Carriage("")
        incoming.carriage = beyond._replace(lost_members=(*names, *beyond.lost_members))
        return incoming

    async def _count(self, name: str, members: Json, request: UpstreamRequest) -> UpstreamResponse:
        """Count a request's tokens: the server does, or this estimates where it cannot."""
        if self._formats.speaks(name) is not False:
            incoming = await self._send_natively(name, request)
            if incoming.status not in NO_PATH:
                return incoming
            data = await incoming.read(ERROR_BYTES)
            await incoming.close()
            if not is_path_missing(incoming.status, data):
                return UpstreamResponse(incoming.status, incoming.headers, OnePiece(data))
        body = request.body or b"{}"
        count_body = {
            **members,
            "input_tokens": await run_by_weight(body, self._translator.estimate, body, name),
        }
        headers = [(b"content-type", b"application/json")]
        return UpstreamResponse(200, headers, OnePiece(encode(count_body)))

    async def _carry(self, name: str, request: UpstreamRequest) -> UpstreamResponse:
        client_body = request.body or b"{}"
        translate = self._translator.translate
        # What is sealed is far longer than it looks.
        if await look_for(client_body, BYTES):
            seals = partial(translate, holds_seals=True)
            carried_body = await run_heavy(seals, client_body, name, request)
        else:
            carried_body = await run_by_weight(client_body, translate, client_body, name, request)
        # Another body than the one the client's Idempotency-Key stands for.
        headers = with_body_idempotency_key([*request.headers], carried_body.content)
        headers = [(k, v) for k, v in headers if not k.startswith(b"anthropic-")]
        outgoing = replace(request, path=CHAT_PATH, content=carried_body.content, headers=headers)
        incoming = await self._send_limited(outgoing)
        out = _translated(incoming, carried_body.writer)
        # A server of a third format has lost more of it.
        beyond = incoming.carriage or Carriage(CHAT)
        out.carriage = beyond._replace(
            lost_members=(*carried_body.lost_members, *beyond.lost_members)
        )
        return out

    async def _send_limited(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a chat completion of ours, once more if its server names the limit otherwise."""
        incoming = await self._server.send(request)
        if incoming.status not in (400, 422):
            return incoming
        refusal = await incoming.read(ERROR_BYTES)
        await incoming.close()
        body = request.body or b"{}"
        if member := refused_member(incoming.status, body, refusal):
            content = await run_by_weight(body, rename_limit, body, member)
            headers = with_body_idempotency_key([*request.headers], content)
            second_answer = await self._server.send(
                replace(request, content=content, headers=headers)
            )
            if 200 <= second_answer.status < 300:
                self._limits.note(request.model, member)
                return second_answer
            await second_answer.close()
        refused_answer = UpstreamResponse(incoming.status, incoming.headers, OnePiece(refusal))
        refused_answer.carriage = incoming.carriage
        return refused_answer


def _open_items(client_body: bytes, seal: SummarySeal) -> bytes | None:
    """Return a body with our compaction items as messages; None where it has none."""
    body = read_body(client_body)
    opened_body = with_summaries(body, seal)
    if opened_body is body:
        return None
    return encode(opened_body)


def _without(client_body: bytes, omitted: Collection[str]) -> tuple[bytes, tuple[str, ...]] | None:
    """Return a body without some members, and those it had; None where it has none of them."""
    body = read_body(client_body)
    if not (names := tuple(name for name in body if name in omitted)):
        return None
    return encode({k: v for k, v in body.items() if k not in names}), names


def _translated(incoming: UpstreamResponse, writer: ReplyWriter) -> UpstreamResponse:
    status = incoming.status
    if 200 <= status < 300 and incoming.is_events:
        return translate_response(incoming, BridgedStream(writer))
    if 200 <= status < 300:
        whole_answer = WholeAnswer(lambda data: whole_reply(data, writer), ANSWER_BYTES)
        return translate_response(incoming, whole_answer)
    error_answer = WholeAnswer(lambda data: refusal(data, writer, status), ERROR_BYTES)
    out = translate_response(incoming, error_answer)
    headers = [(k, v) for k, v in out.headers if k.lower() != b"content-type"]
    out.headers = [*headers, (b"content-type", b"application/json")]
    return out


def is_path_missing(status: int, body: bytes) -> bool:
    """Tell whether a server has no such path, rather than no such model, response or item."""
    if status != 404:
        return True
    try:
        answer: Json = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    if isinstance(answer, dict):
        error = answer.get("error", answer)
    else:
        error = {}
    if not isinstance(error, dict):
        error = {"message": error}
    code = str(error.get("code") or "")
    if PATHS_OF_CODES.search(code):
        return True
    if THINGS_OF_CODES.search(code):
        return False
    text = " ".join(str(error.get(m) or "") for m in ("param", "message", "detail"))
    words = PATH.sub(" ", text)
    if not f"{code}{text}".strip():
        return True
    all_words = f"{code} {words}"
    return not THINGS.search(words) and (words != text or PATHS.search(all_words) is not None)

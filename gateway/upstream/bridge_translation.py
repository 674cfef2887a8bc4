"""A request of another format as the body of a chat completion, and what writes its answer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from gateway.apis.translation.chat_reply_parts import ReplyWriter
from gateway.apis.translation.member_seal import MemberSeal
from gateway.apis.translation.request_to_chat import (
    MESSAGES,
    RESPONSES,
    carry,
    message_of,
    takes_tokens,
)
from gateway.upstream.base import Content, UpstreamRequest
from gateway.upstream.carried_answers import CarriedAnswers
from gateway.wire.chat import Json, encode
from gateway.wire.chat_request import parse_readable
from gateway.wire.long_strings import CutText
from gateway.wire.losses import Losses
from gateway.wire.own_marks import ORPHANED, SEALED, without_marked
from gateway.wire.token_limits import TokenLimits
from memory import TokenCounter

# What led to a call of ours that is not put back.
HIDDEN_REASONING = "memory.reasoning"
SEALED_NAMES = {RESPONSES: "input.reasoning", MESSAGES: "messages.thinking"}


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """How a provider's requests are carried.

    provider: its name in the settings. drop: what they may lose. limit: the member for the most
    tokens of an answer. asks_usage: the usage of a stream is asked for. omit: by format, members
    that are never sent.
    """

    provider: str
    drop: Collection[str] = ()
    limit: str = "max_tokens"
    asks_usage: bool = True
    omit: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Carrying:
    """How what servers want back returns to them.

    secret: the server's, for what clients carry. answers: what no client carries.
    """

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    answers: CarriedAnswers = field(default_factory=CarriedAnswers)


class CarriedBody(NamedTuple):
    """A request as a chat completion's, and what writes its answer."""

    content: Content
    writer: ReplyWriter
    lost_members: tuple[str, ...]


class _AnsweredRequest(NamedTuple):
    """A request that was carried. account: tenant and provider. messages: as they were sent."""

    name: str
    body: Json
    account: bytes
    messages: list[Json]


class BridgeTranslator:
    """Translates requests for one provider."""

    def __init__(
        self, options: BridgeOptions, carrying: Carrying, limits: TokenLimits | None = None
    ) -> None:
        self._options = options
        self._carrying = carrying
        self._limits = limits or TokenLimits(options.limit)

    def estimate(self, client_body: bytes, name: str) -> int:
        """Return about how many tokens a request has, as it would be carried."""
        options = self._options
        losses = Losses(options.provider, options.drop)
        chat_request, _ = carry(name, read_body(client_body), losses, options.limit)
        counter = TokenCounter()
        return sum(map(counter.message, chat_request["messages"])) + counter.tools(
            chat_request.get("tools")
        )

    def translate(
        self, client_body: bytes, name: str, request: UpstreamRequest, *, holds_seals: bool = False
    ) -> CarriedBody:
        """Translate a request. holds_seals: something in it may have to be opened."""
        text = CutText(client_body, uncut=holds_seals)
        body = read_body(text.cut_text)
        options = self._options
        losses = Losses(options.provider, options.drop)
        if ORPHANED.encode() in client_body:
            losses.names[HIDDEN_REASONING] = None
        seal = MemberSeal(self._carrying.secret, request.tenant, options.provider)
        chat_request, make_writer = carry(
            name, body, losses, self._limits.member_of(request.model), seal
        )
        account = encode([request.tenant, options.provider])
        chat_request["messages"] = self._carrying.answers.restore(account, chat_request["messages"])
        if chat_request.get("stream") and options.asks_usage:
            chat_request["stream_options"] = {"include_usage": True}
        writer = make_writer(secrets.token_hex(16), int(time.time()))
        if request.masked or takes_tokens(name, body):
            writer.seal = seal
        answered_request = _AnsweredRequest(name, body, account, chat_request["messages"])
        writer.on_over = partial(self._keep, writer, answered_request)
        return CarriedBody(text.restore(encode(chat_request)), writer, tuple(losses.names))

    def _keep(self, writer: ReplyWriter, request: _AnsweredRequest) -> None:
        """Keep what the server said beside an answer with calls: it may want it back."""
        sealed = None
        if writer.calls:
            sealed = writer.carried.whole()
        if sealed is None:
            return
        losses = Losses(self._options.provider, self._options.drop)
        answer = message_of(request.name, request.body, writer.whole(), losses)
        if answer is not None:
            self._carrying.answers.keep(request.account, request.messages, answer, sealed)


def remove_marks(client_body: bytes, name: str) -> tuple[bytes, tuple[str, ...]] | None:
    """Return a body without marked reasoning, and what that is called; None where it has none."""
    body = read_body(client_body)
    unorphaned_body = without_marked(body, ORPHANED)
    clean_body = without_marked(unorphaned_body, SEALED)
    names = [HIDDEN_REASONING] if unorphaned_body is not body else []
    if clean_body is not unorphaned_body:
        names += [SEALED_NAMES[name]]
    if names:
        return (encode(clean_body), tuple(names))
    return None


def read_body(client_body: bytes) -> Json:
    """Return a client's body. Raises BadRequest."""
    return parse_readable(client_body, "what is carried to this model's server")

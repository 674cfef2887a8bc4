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
from gateway.errors import BadRequest
from gateway.upstream.base import Content, UpstreamRequest
from gateway.upstream.carried_answers import CarriedAnswers
from gateway.wire.chat import Json, encode
from gateway.wire.chat_request import parse
from gateway.wire.json_weight import UNREADABLE, is_readable
from gateway.wire.long_strings import CutText
from gateway.wire.losses import Losses
from gateway.wire.own_marks import ORPHANED, SEALED, without_marked
from gateway.wire.token_limits import TokenLimits
from memory import TokenCounter

HIDDEN_REASONING = "memory.reasoning"  # what led to a call of ours that is not put back
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
    lost: tuple[str, ...]


class _AnsweredRequest(NamedTuple):
    """A request that was carried. whose: tenant and provider. messages: as they were sent."""

    name: str
    body: Json
    whose: bytes
    messages: list[Json]


class BridgeTranslator:
    """Translates requests for one provider."""

    def __init__(
        self, options: BridgeOptions, carrying: Carrying, limits: TokenLimits | None = None
    ) -> None:
        self._options, self._carrying = options, carrying
        self._limits = limits or TokenLimits(options.limit)

    def estimate(self, original: bytes, name: str) -> int:
        """Return about how many tokens a request has, as it would be carried."""
        options = self._options
        losses = Losses(options.provider, options.drop)
        sent, _ = carry(name, read_body(original), losses, options.limit)
        counter = TokenCounter()
        return sum(map(counter.message, sent["messages"])) + counter.tools(sent.get("tools"))

    def translate(
        self, original: bytes, name: str, request: UpstreamRequest, *, holds_seals: bool = False
    ) -> CarriedBody:
        """Translate a request. holds_seals: something in it may have to be opened."""
        text = CutText(original, uncut=holds_seals)
        body, options = read_body(text.cut), self._options
        losses = Losses(options.provider, options.drop)
        if ORPHANED.encode() in original:
            losses.names[HIDDEN_REASONING] = None
        seal = MemberSeal(self._carrying.secret, request.tenant, options.provider)
        sent, make_writer = carry(name, body, losses, self._limits.member_of(request.model), seal)
        whose = encode([request.tenant, options.provider])
        sent["messages"] = self._carrying.answers.restore(whose, sent["messages"])
        if sent.get("stream") and options.asks_usage:
            sent["stream_options"] = {"include_usage": True}
        writer = make_writer(secrets.token_hex(16), int(time.time()))
        if request.masked or takes_tokens(name, body):
            writer.seal = seal
        kept = _AnsweredRequest(name, body, whose, sent["messages"])
        writer.on_over = partial(self._keep, writer, kept)
        return CarriedBody(text.restore(encode(sent)), writer, tuple(losses.names))

    def _keep(self, writer: ReplyWriter, request: _AnsweredRequest) -> None:
        """Keep what the server said beside an answer with calls: it may want it back."""
        sealed = writer.carried.whole() if writer.calls else None
        if sealed is None:
            return
        losses = Losses(self._options.provider, self._options.drop)
        answer = message_of(request.name, request.body, writer.whole(), losses)
        if answer is not None:
            self._carrying.answers.keep(request.whose, request.messages, answer, sealed)


def remove_marks(original: bytes, name: str) -> tuple[bytes, tuple[str, ...]] | None:
    """Return a body without marked reasoning, and what that is called; None where it has none."""
    body = read_body(original)
    known = without_marked(body, ORPHANED)
    cleaned = without_marked(known, SEALED)
    names = [HIDDEN_REASONING] if known is not body else []
    names += [SEALED_NAMES[name]] if cleaned is not known else []
    return (encode(cleaned), tuple(names)) if names else None


def read_body(original: bytes) -> Json:
    if not is_readable(original):
        raise BadRequest(
            f"The body has {UNREADABLE}: that is the limit of what is carried to this model's "
            "server. Send fewer."
        )
    return parse(original)

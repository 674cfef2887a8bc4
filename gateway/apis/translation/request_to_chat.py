"""Translates a request of another format into a chat completion's. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.apis.translation import messages_request_to_chat as messages_request
from gateway.apis.translation import responses_request_to_chat as responses_request
from gateway.apis.translation.chat_reply_parts import ReplyWriter
from gateway.apis.translation.member_seal import MemberSeal
from gateway.apis.translation.messages_reply_from_chat import MessagesReply
from gateway.apis.translation.responses_reply_from_chat import ResponsesReply
from gateway.wire.chat import Json
from gateway.wire.losses import Losses

RESPONSES = "responses"
MESSAGES = "messages"
ENCRYPTED = "reasoning.encrypted_content"
UNSEALED = ("thinking", "redacted_thinking", "reasoning")


class CarriedRequest(NamedTuple):
    """A request as a chat completion's.

    writer: makes the writer of its answer in the client's format, from an unguessable id and the
    seconds since the epoch.
    """

    body: Json
    writer: Callable[[str, int], ReplyWriter]


def carry(
    name: str, body: Json, losses: Losses, limit: str, seal: MemberSeal | None = None
) -> CarriedRequest:
    """Return a request of another format as a chat completion's. Raises BadRequest.

    limit: the server's name for the maximum of output tokens. seal: opens what earlier answers
    carried.
    """
    if name == RESPONSES:
        chat_body, tools = responses_request.chat_request(body, losses, limit, seal)
        return CarriedRequest(
            chat_body, lambda ident, created_at: ResponsesReply(body, tools, ident, created_at)
        )
    chat_body, _ = messages_request.chat_request(body, losses, limit, seal)
    thinks = takes_tokens(name, body)
    return CarriedRequest(
        chat_body, lambda ident, _: MessagesReply(body.get("model"), ident, thinks=thinks)
    )


def takes_tokens(name: str, body: Json) -> bool:
    """Tell whether a client asked for the reasoning in which tokens are carried."""
    if name == RESPONSES:
        include = body.get("include")
        return isinstance(include, list) and ENCRYPTED in include
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")


def message_of(name: str, body: Json, answer: Json, losses: Losses) -> Json | None:
    """Return an answer as the message that its client's next request is carried as.

    body: the request. answer: the answer in the client's format. None for an answer of nothing.
    """
    unsealed_parts = _unsealed(answer.get("output" if name == RESPONSES else "content") or ())
    if name == RESPONSES:
        echo: Json = {"tools": body.get("tools"), "input": unsealed_parts}
    else:
        echo = {"messages": [{"role": "assistant", "content": unsealed_parts}]}
    messages: list[Json] = carry(name, echo, losses, "max_tokens").body["messages"]
    if messages:
        return messages[-1]
    return None


def _unsealed(parts: Sequence[Json]) -> list[Json]:
    return [p for p in parts if p.get("type") not in UNSEALED]

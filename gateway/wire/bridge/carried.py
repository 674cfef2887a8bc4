"""Translates a request of another format into a chat completion's. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.wire.bridge import messages_request, responses_request
from gateway.wire.bridge.chat_reply import ReplyWriter
from gateway.wire.bridge.losses import Losses
from gateway.wire.bridge.messages_reply import MessagesReply
from gateway.wire.bridge.responses_reply import ResponsesReply
from gateway.wire.chat import Json

RESPONSES, MESSAGES = "responses", "messages"


class CarriedRequest(NamedTuple):
    """A request as a chat completion's.

    writer: makes the writer of its answer in the client's format, from an unguessable id and the
    seconds since the epoch.
    """

    body: Json
    writer: Callable[[str, int], ReplyWriter]


def carry(name: str, body: Json, losses: Losses, limit: str) -> CarriedRequest:
    """Return a request of another format as a chat completion's. Raises BadRequest.

    limit: the server's name for the maximum of output tokens.
    """
    if name == RESPONSES:
        sent, tools = responses_request.chat_request(body, losses, limit)
        return CarriedRequest(sent, lambda ident, at: ResponsesReply(body, tools, ident, at))
    sent, _ = messages_request.chat_request(body, losses, limit)
    return CarriedRequest(sent, lambda ident, _: MessagesReply(body.get("model"), ident))

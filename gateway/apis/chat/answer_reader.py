"""Reads what a chat server answers: events of a stream, and whole completions.

A completion of one choice that says nothing but a text, as nearly all do, is not taken apart:
nothing in it can be of ours or has to be edited, and what a round came to is the completion itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gateway.apis.chat.interceptor import CUT
from gateway.apis.round_result import RoundResult
from gateway.wire.chat import (
    Chunk,
    Json,
    MalformedCompletion,
    broken_stream,
    chunk,
    decode_answer,
    lift,
    parse_chunk,
)
from gateway.wire.json_weight import SURE_BYTES, UNREADABLE, is_light, is_readable

CHOICE_MEMBERS = frozenset({"index", "message", "finish_reason", "logprobs"})
MESSAGE_MEMBERS = frozenset({"role", "content", "refusal", "annotations", "tool_calls"})
NOTHING: tuple[object, ...] = (None, [])


class PlainCompletion(msgspec.Struct, frozen=True):
    """A completion as it came: one text, and why it ends there."""

    body: Json
    reason: str

    @property
    def usage(self) -> Json | None:
        usage = self.body.get("usage")
        return usage if isinstance(usage, dict) and usage else None

    def chunk(self) -> Chunk:
        """Return it as the only chunk of a stream."""
        return chunk(lift(self.body), b"")

    def result(self) -> RoundResult:
        """Return what a round came to that it answers."""
        is_cut = self.reason in CUT
        return RoundResult(
            self.body, [], [], complete=True, cut=is_cut, text_shown=True, usage=self.usage
        )


def read_completion_body(data: bytes) -> tuple[Chunk | PlainCompletion | None, Any]:
    """Read a whole answer: the completion, or the error that it tells.

    Raises MalformedCompletion, and what `decode_answer` does.
    """
    if len(data) > SURE_BYTES and not is_readable(data):
        raise MalformedCompletion(UNREADABLE)
    body = decode_answer(data)
    if not isinstance(body, dict):
        raise MalformedCompletion("not an object")
    if body.get("error"):
        return (None, body["error"])
    return (plain_completion(body) or chunk(lift(body), b""), None)


async def read_chunk(data: bytes) -> Chunk:
    """Read an event's data, off the event loop where it is long.

    Raises StreamIncomplete for what is no chunk.
    """
    try:
        if is_light(data):
            return parse_chunk(data)
        return await asyncio.to_thread(_read_in_thread, data)
    except MalformedCompletion as e:
        raise broken_stream(e) from e


def _read_in_thread(data: bytes) -> Chunk:
    if not is_readable(data):
        raise MalformedCompletion(f"the upstream sent an event of more than {UNREADABLE} values")
    return parse_chunk(data)


def plain_completion(body: Json) -> PlainCompletion | None:
    """Return a decoded completion if it is a plain one; None for any other."""
    choices = body.get("choices")
    if body.get("object") != "chat.completion" or type(choices) is not list or len(choices) != 1:
        return None
    choice = choices[0]
    if type(choice) is not dict or not choice.keys() <= CHOICE_MEMBERS:
        return None
    message = choice.get("message")
    reason = choice.get("finish_reason")
    index = choice.get("index")
    is_first = index is None or (index == 0 and type(index) is int)
    if not is_first or type(message) is not dict or type(reason) is not str or not reason:
        return None
    if choice.get("logprobs") is not None or not _says_text_alone(message):
        return None
    return PlainCompletion(body, reason)


def _says_text_alone(message: Json) -> bool:
    content = message.get("content")
    if type(content) is not str or not content or message.get("role", "assistant") != "assistant":
        return False
    # As most have.
    if len(message) == 2:
        return "role" in message
    return message.keys() <= MESSAGE_MEMBERS and all(
        value in NOTHING for name, value in message.items() if name not in ("role", "content")
    )

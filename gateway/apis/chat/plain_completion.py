"""A completion of one choice that says nothing but a text, as nearly all do. Pure.

Nothing in it can be of ours or has to be edited, so it is not taken apart: what a round came to is
the completion itself.
"""

from __future__ import annotations

import msgspec

from gateway.apis.chat.interceptor import CUT
from gateway.apis.round_result import RoundResult
from gateway.wire.chat import Chunk, Json, chunk, lift

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

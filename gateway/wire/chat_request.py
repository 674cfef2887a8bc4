"""Parse a chat request, with an error that says where its JSON breaks. Pure."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.errors import BadRequest, kind_of
from gateway.wire.chat import Json, decode
from gateway.wire.json_weight import UNREADABLE, is_readable

STEP_BYTES = 1 << 20
POSITION = re.compile(r"\(byte (\d+)\)")


def parse(body: bytes, decoder: Callable[[bytes], Any] = decode) -> Json:
    """Read the JSON object of a body. Raises BadRequest with the position of the fault.

    decoder: decodes it, or as much of it as is wanted.
    """
    try:
        data = decoder(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadRequest(
            f"The body is not valid JSON{_where(e, body)}: {str(e)[:200]}", code="invalid_json"
        ) from e
    except RecursionError as e:
        raise BadRequest("The body is nested too deeply.", code="invalid_json") from e
    if not isinstance(data, dict):
        raise BadRequest(
            f"The body must be a JSON object, not {kind_of(data)}.", code="invalid_json"
        )
    return data


def parse_readable(body: bytes, limited: str) -> Json:
    """Read the JSON object of a body that nothing has weighed yet.

    limited: what the limit is one of, for the error. Raises BadRequest.
    """
    if not is_readable(body):
        raise BadRequest(f"The body has {UNREADABLE}: that is the limit of {limited}. Send fewer.")
    return parse(body)


def _where(error: Exception, body: bytes) -> str:
    """Return the place of the fault, where it is known; a text that ends too early is at fault at
    its end.
    """
    if position_match := POSITION.search(str(error)):
        return f" at byte {position_match[1]}"
    if isinstance(error, UnicodeDecodeError):
        # The error counts from the beginning of the string that the byte stands in.
        decoder = getincrementaldecoder("utf-8")()
        for at in range(0, len(body), STEP_BYTES):
            undecoded_bytes = len(decoder.getstate()[0])
            try:
                decoder.decode(body[at : at + STEP_BYTES])
            except UnicodeDecodeError as e:
                return f" at byte {at - undecoded_bytes + e.start}"
    if "truncated" in str(error):
        return f" at byte {len(body)}"
    return ""


def check_model(body: Json) -> None:
    """What a request needs to be routed. Raises BadRequest."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise BadRequest("`model` must be a non-empty string.", param="model")


def messages_of(body: Json) -> list[Json]:
    """Return the messages of a request that is translated. Raises BadRequest."""
    messages = body.get("messages")
    if (
        not isinstance(messages, list)
        or not messages
        or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages)
    ):
        raise BadRequest(
            "`messages` must be a non-empty list of objects with a `role`.", param="messages"
        )
    return messages


def check_messages(body: Json, checked_count: int = 0) -> None:
    """What a chat completion needs to carry memory.

    checked_count: messages before these, which were found good. Raises BadRequest naming the
    member.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not (messages or checked_count):
        raise BadRequest("`messages` must be a non-empty list of messages.", param="messages")
    for index, message in enumerate(messages, checked_count):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(
                f"`messages[{index}]` must be an object with a `role`.", param=f"messages[{index}]"
            )
        calls = message.get("tool_calls")
        if calls is not None and not (
            isinstance(calls, list) and all(isinstance(c, dict) for c in calls)
        ):
            raise BadRequest(
                f"`messages[{index}].tool_calls` must be a list of objects.",
                param=f"messages[{index}].tool_calls",
            )
    if body.get("tools") is not None and not isinstance(body["tools"], list):
        raise BadRequest("`tools` must be a list.", param="tools")

"""Reading a request: its body within the limit, its JSON with an error that says where it breaks."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.errors import BadRequest, LeftEarly, TooLarge, UnsupportedMedia, kind_of
from gateway.packing import PIECE, Unpacker
from gateway.wire.chat import Json, decode

MEMBERS = 16  # of a gzip body: each may be empty
POSITION = re.compile(r"\(byte (\d+)\)")


async def read_body(receive: Any, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    """The whole body, decompressed. Raises TooLarge (without reading the rest), UnsupportedMedia, BadRequest, LeftEarly.

    limit: bytes, counted as they come and after decompression.
    """
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > 19 or int(declared) > limit):
        raise _too_large(limit)
    encoding = headers.get(b"content-encoding", b"identity").lower()
    if encoding not in (b"identity", b"gzip", b"deflate", b""):
        raise UnsupportedMedia(
            f"The body is encoded as {encoding[:60].decode('latin-1')!r}. Send it plain or gzip-compressed."
        )
    unpack = Unpacker(MEMBERS) if encoding in (b"gzip", b"deflate") else None
    parts: list[bytes] = []
    came = size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftEarly("The client left before its body was read.")
        more, part = bool(message.get("more_body")), message.get("body", b"")
        came += len(part)
        for piece in _pieces(unpack, part):
            size += len(piece)
            if max(size, came) > limit:
                raise _too_large(limit)
            parts.append(piece)
            if unpack is not None and len(piece) == PIECE:
                await asyncio.sleep(0)  # others' turn
    if unpack is not None and not unpack.whole:  # half a request must not be taken for a whole one
        raise BadRequest("The compressed body ends before its end. Send it whole.")
    return b"".join(parts)


def _pieces(unpack: Unpacker | None, part: bytes) -> Iterator[bytes]:
    """What a part of a body unpacks to. Raises BadRequest."""
    try:
        yield from (part,) if unpack is None else unpack.pieces(part)
    except zlib.error as e:
        raise BadRequest(
            f"The body is not what its Content-Encoding says ({e}). Send it plain, or as one gzip member."
        ) from e


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"The body is larger than {limit} bytes. Send less, or raise server.max_body_mib.",
        headers=[(b"connection", b"close")],
    )


def parse(body: bytes, read: Callable[[bytes], Any] = decode) -> Json:
    """Read the JSON object of a body. Raises BadRequest with the position of the fault.

    read: decodes it, or as much of it as is wanted.
    """
    try:
        data = read(body)
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


def _where(error: Exception, body: bytes) -> str:
    """The place of the fault, where it is known; a text that ends too early is at fault at its end."""
    if found := POSITION.search(str(error)):
        return f" at byte {found[1]}"
    if isinstance(error, UnicodeDecodeError):
        try:  # the decoder counts from the beginning of the string the byte stands in
            body.decode()
        except UnicodeDecodeError as e:
            return f" at byte {e.start}"
    return f" at byte {len(body)}" if "truncated" in str(error) else ""


def check_model(body: Json) -> None:
    """What a request needs to be routed. Raises BadRequest."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise BadRequest("`model` must be a non-empty string.", param="model")


def check_messages(body: Json, known: int = 0) -> None:
    """What a chat completion needs to carry memory. known: messages before these, which were found good. Raises BadRequest naming
    the member."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not (messages or known):
        raise BadRequest("`messages` must be a non-empty list of messages.", param="messages")
    for i, message in enumerate(messages, known):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(
                f"`messages[{i}]` must be an object with a `role`.", param=f"messages[{i}]"
            )
        calls = message.get("tool_calls")
        if calls is not None and not (
            isinstance(calls, list) and all(isinstance(c, dict) for c in calls)
        ):
            raise BadRequest(
                f"`messages[{i}].tool_calls` must be a list of objects.",
                param=f"messages[{i}].tool_calls",
            )
    if body.get("tools") is not None and not isinstance(body["tools"], list):
        raise BadRequest("`tools` must be a list.", param="tools")

"""Reads the messages of MCP servers, and leaves the package what it reads safely. Pure.

The package refuses a whole list for one odd tool, loses an answer that holds half an emoji, checks
results against schemas of the server, whose regular expressions may take for ever, and needs half a
second for a result of many values. So lists and results are read here. The package gets the same
message without them: a name in `_meta` stands for what was put aside.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.wire.chat import Json
from gateway.wire.json_weight import is_light, is_readable

MESSAGE_BYTES = 8 << 20
# Bytes of answers that wait for who asked.
KEPT_BYTES = 128 << 20
# Values of a message that only a slower reader takes.
MENDED_VALUES = 100_000
ANSWER = "mnemogate/answer"
RESULT_MEMBERS = ("content", "structuredContent")
TOO_MANY = "the server's answer has too many values"
INTERNAL_ERROR = -32603
# Bytes of a message that cannot be read, where its id is looked for.
EDGE_BYTES = 2048
ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\\x00-\x1f]{1,200}")')
HALVES = re.compile(r"\\(?:(u[dD][89a-fA-F][0-9a-fA-F]{2}(?:\\u[dD][89a-fA-F][0-9a-fA-F]{2})*)|.)")
PAIR_OR_HALF = re.compile(r"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u....")


class UnreadableMessage(Exception):
    """A message is no JSON, or has too many values; the text says which."""


class AnswerStore:
    """Lists and results of one connection, until who asked takes them. The oldest goes first."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[Json, int]] = OrderedDict()
        self._numbers = itertools.count(1)
        self._byte_count = 0

    def put(self, answer: Json, byte_count: int) -> str:
        """Keep an answer; return its name."""
        name = str(next(self._numbers))
        self._answers[name] = answer, byte_count
        self._byte_count += byte_count
        while self._byte_count > KEPT_BYTES and len(self._answers) > 1:
            self._byte_count -= self._answers.popitem(last=False)[1][1]
        return name

    def take(self, meta: Mapping[str, Any] | None) -> Json | None:
        """Return the answer that the `_meta` of a message names, once; None without one."""
        name = (meta or {}).get(ANSWER)
        answer, byte_count = self._answers.pop(str(name), (None, 0))
        self._byte_count -= byte_count
        return answer


def lighten_message(text: bytes, answers: AnswerStore) -> bytes:
    """Return a message as the package is given it; what it lists or results in is put aside."""
    try:
        message = decode_message(text)
    except UnreadableMessage as e:
        return refuse_answer(text, str(e))
    if not isinstance(message, dict):
        return text[:EDGE_BYTES]
    result = message.get("result")
    if isinstance(result, dict) and isinstance(result.get("tools"), list):
        light_result = _lighten_list(result)
    elif isinstance(result, dict) and not result.keys().isdisjoint(RESULT_MEMBERS):
        light_result = _lighten_result(result)
    elif is_light(text):
        return msgspec.json.encode(message)
    else:
        return _cut_message(message)
    name = answers.put(result, len(text))
    return msgspec.json.encode({**message, "result": {**light_result, "_meta": {ANSWER: name}}})


def decode_message(text: bytes) -> Any:
    """Return a message. Raises UnreadableMessage."""
    if not is_readable(text):
        raise UnreadableMessage(TOO_MANY)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as e:
        if not is_readable(text, MENDED_VALUES):
            raise UnreadableMessage(TOO_MANY) from e
    try:
        # Numbers that are none, halves of emojis, other encodings: what many programs write.
        return json.loads(mend_text(text))
    except (ValueError, RecursionError) as e:
        raise UnreadableMessage("what the server answered is not MCP (no JSON)") from e


def mend_text(data: bytes) -> str:
    """Return a JSON text with U+FFFD for what is no character."""
    text = data.decode("utf-8", "replace")
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return HALVES.sub(_mend_escapes, text)


def _mend_escapes(match: re.Match[str]) -> str:
    """Return an escape, or a run of escaped surrogates without those that are no pair."""
    if match[1] is None:
        return match[0]
    return PAIR_OR_HALF.sub(lambda half: half[1] or "\\ufffd", match[0])


def refuse_answer(text: bytes, why: str) -> bytes:
    """Return the error that answers the call of an unreadable answer, if that names its call."""
    edges = text[:EDGE_BYTES] + b"\n" + text[-EDGE_BYTES:]
    match = ID.search(edges)
    if match is None or b'"method"' in edges:
        return text[:EDGE_BYTES]
    error = {"code": INTERNAL_ERROR, "message": why}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": msgspec.Raw(match[1]), "error": error})


def _cut_message(message: Json) -> bytes:
    """Return a heavy message of another kind without what makes it heavy."""
    light_message: Json = {
        name: message[name] for name in ("jsonrpc", "id", "method") if name in message
    }
    if "method" in message:
        return msgspec.json.encode(light_message)
    error = message.get("error")
    text = str(error.get("message"))[:EDGE_BYTES] if isinstance(error, dict) else ""
    light_message["error"] = {
        "code": INTERNAL_ERROR,
        "message": text or "the server's answer is too large",
    }
    return msgspec.json.encode(light_message)


def _lighten_list(result: Json) -> Json:
    """Return a list of tools as the package needs it: names, and what calls take."""
    tools = []
    for tool in result["tools"]:
        if not is_named(tool):
            continue
        schema = tool.get("inputSchema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        plain_schema: Json = {"type": "object"}
        if isinstance(properties, dict):
            plain_schema["properties"] = {
                name: member for name, member in properties.items() if isinstance(member, dict)
            }
        tools.append({"name": tool["name"], "inputSchema": plain_schema})
    return {**result, "tools": tools}


def _lighten_result(result: Json) -> Json:
    # The package asks for the list of tools anew, to check a result that is no error.
    light_result: Json = {"content": [], "isError": True}
    if "resultType" in result:
        light_result["resultType"] = result["resultType"]
    return light_result


def is_named(tool: object) -> bool:
    """Tell whether a definition of a server names a tool."""
    if not isinstance(tool, dict):
        return False
    name = tool.get("name")
    return isinstance(name, str) and name != ""

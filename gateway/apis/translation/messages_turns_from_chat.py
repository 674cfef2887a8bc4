"""The messages of a chat completion as `system` and the turns of Anthropic's Messages API. Pure.

Decisions, where the two differ:
- System and developer messages at the beginning are `system`, one text block each part. A later one
  keeps its place as user text
  in `<system>` tags: most models refuse the role there.
- Roles alternate: neighbours of one role are one message, and a first user message is put where
  there is none. Text without a
  visible character is dropped, since the API refuses it; so is white space at the end of an
  assistant message that ends the request.
- Every call has its result directly after it, and what was said between the two comes after the
  result. A call without a result
  gets a stub; a result without a call becomes user text.
- Call ids are mapped to what the API takes, the same way each time; one that occurs twice is
  numbered.
- Arguments that are no JSON object are kept under `unparsed_arguments`.
- Images are addresses or base64, files PDF or plain text; Anthropic's own parts stay as they are;
  audio is refused with 400.
- `thinking_blocks` stand at their `position`, else first. `reasoning_content` alone has no
  signature and is not sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec

from gateway.errors import BadRequest
from gateway.wire.chat import Json, decode

# By status.
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
SYSTEM = ("system", "developer")
NATIVE_PARTS = ("image", "document", "search_result")
OPENING = "(The conversation begins with the assistant.)"
NO_RESULT = "(no result)"
MARK = {"type": "ephemeral"}
ID = re.compile(r"[a-zA-Z0-9_-]+")


def as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []


def loop_of(messages: Sequence[Any]) -> list[Json]:
    """Return the assistant messages of the tool loop under way: those after the newest user
    message.
    """
    newest_user = max(
        (i for i, m in enumerate(messages) if isinstance(m, dict) and m.get("role") == "user"),
        default=-1,
    )
    return [
        m
        for m in messages[newest_user + 1 :]
        if isinstance(m, dict) and m.get("role") == "assistant"
    ]


def call_ids_in(messages: Sequence[Json]) -> set[str]:
    return {_call(c)[0] for m in messages for c in as_list(m.get("tool_calls"))}


def _call(call: Any) -> tuple[str, Json]:
    """Return a call's name and input."""
    if not isinstance(call, dict):
        call = {}
    function: Json = next(
        (call[k] for k in ("function", "custom") if isinstance(call.get(k), dict)), {}
    )
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", str(function.get("name") or ""))[:128] or "unnamed"
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = decode(arguments.encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            arguments = {"unparsed_arguments": arguments}
        if not isinstance(arguments, dict):
            arguments = {"unparsed_arguments": function.get("arguments", function.get("input"))}
    return name, arguments if isinstance(arguments, dict) else {}


class NativeMessages:
    """Messages as `system` blocks and alternating turns.

    thinkers: of so many assistant messages at the end the thinking is kept.

    marked: a cache mark goes to the end of the first system message. thoughtful: there was thinking
    to keep.
    """

    def __init__(self, messages: Sequence[Json], thinkers: int, marked: bool) -> None:
        self.thoughtful = False
        self.system: list[Json] = []
        self.messages: list[Json] = []
        # Those taken, and from which number on another of the same is looked for.
        self._ids: dict[str, int] = {}
        # Calls without a result so far: by our id the client's.
        self._open: dict[str, str] = {}
        # The same by the client's id.
        self._ids_by_client_id: dict[str, deque[str]] = {}
        self._results: list[Json] = []
        # What was said between a call and its result.
        self._after: list[Json] = []
        # Assistant messages to come without thinking.
        self._unkept_count = sum(m["role"] == "assistant" for m in messages) - thinkers
        self._mark = marked
        has_begun = False
        for i, message in enumerate(messages):
            has_begun = has_begun or message["role"] not in SYSTEM
            self._add(message, f"messages[{i}]", has_begun)
        self._settle()
        if not self.messages or self.messages[0]["role"] != "user":
            self.messages.insert(
                0, {"role": "user", "content": [{"type": "text", "text": OPENING}]}
            )
        self._trim()

    def _add(self, message: Json, where: str, begun: bool) -> None:
        role = message["role"]
        if role in SYSTEM:
            self._add_result(_blocks(message.get("content"), where), begun)
        elif role == "tool":
            self._result(message, where)
        elif role == "assistant":
            self._settle()
            self._add_assistant(message, where)
        elif role == "user":
            self._settle()
            self._turn("user", _blocks(message.get("content"), where))
        else:
            raise BadRequest(
                f"`{where}.role` is {role[:40]!r}; this provider takes system, developer, user, "
                "assistant and tool.",
                param=where,
            )

    def _turn(self, role: str, blocks: list[Json]) -> None:
        if blocks and self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"].extend(blocks)
        elif blocks:
            self.messages.append({"role": role, "content": blocks})

    def _add_result(self, blocks: list[Json], begun: bool) -> None:
        if begun:
            blocks = [
                {**b, "text": f"<system>\n{b['text']}\n</system>"} if b["type"] == "text" else b
                for b in blocks
            ]
        if self._mark and blocks:
            self._mark = False
            if blocks[-1]["type"] == "text":
                blocks[-1] = {"cache_control": MARK, **blocks[-1]}
        if not begun:
            self.system += blocks
        else:
            self._add_user_text(blocks)

    def _add_user_text(self, blocks: list[Json]) -> None:
        """User text, which waits while calls have their results told."""
        if self._open or self._results:
            self._after += blocks
        else:
            self._turn("user", blocks)

    def _add_assistant(self, message: Json, where: str) -> None:
        blocks = _blocks(message.get("content"), where) or _blocks(message.get("refusal"), where)
        for call in as_list(message.get("tool_calls")):
            name, arguments = _call(call)
            client_id = ""
            if isinstance(call, dict):
                client_id = str(call.get("id") or "")
            self._open[native_id := self._id(client_id)] = client_id
            self._ids_by_client_id.setdefault(client_id, deque()).append(native_id)
            blocks.append({"type": "tool_use", "id": native_id, "name": name, "input": arguments})
        self._unkept_count -= 1
        if self._unkept_count < 0 and (thoughts := _thoughts(message)):
            blocks = merge_thoughts(blocks, thoughts)
            self.thoughtful = True
        self._turn("assistant", blocks)

    def _id(self, client_id: str) -> str:
        if ID.fullmatch(client_id):
            base = client_id
        else:
            base = "toolu_" + hashlib.sha256(client_id.encode("utf-8", "replace")).hexdigest()[:24]
        native_id = base
        number = self._ids.get(base, 1)
        while native_id in self._ids:
            native_id = f"{base}_{number + 1}"
            number = number + 1
        self._ids[base] = number
        self._ids.setdefault(native_id, 1)
        return native_id

    def _result(self, message: Json, where: str) -> None:
        blocks = _blocks(message.get("content"), where)
        open_ids = self._ids_by_client_id.get(str(message.get("tool_call_id") or ""))
        if open_ids:
            del self._open[native_id := open_ids.popleft()]
            self._results.append(
                {
                    "type": "tool_result",
                    "tool_use_id": native_id,
                    **({"content": blocks} if blocks else {}),
                }
            )
        else:
            self._add_user_text(blocks)

    def _settle(self) -> None:
        """End a group of calls: their results, a stub for each that has none, then what was said
        meanwhile.
        """
        stubs = [
            {
                "type": "tool_result",
                "tool_use_id": native_id,
                "content": NO_RESULT,
                "is_error": True,
            }
            for native_id in self._open
        ]
        self._turn("user", [*self._results, *stubs, *self._after])
        self._open = {}
        self._ids_by_client_id = {}
        self._results = []
        self._after = []

    def _trim(self) -> None:
        """The API refuses white space at the end of an assistant message that it is to go on
        with.
        """
        last_message = self.messages[-1]
        if last_message["role"] == "assistant" and last_message["content"][-1]["type"] == "text":
            last_message["content"][-1] = {
                **last_message["content"][-1],
                "text": last_message["content"][-1]["text"].rstrip(),
            }


def _thoughts(message: Json) -> list[tuple[int, Json]]:
    """Return the signed thinking of an assistant message, each with its place in the content."""
    placed_thoughts: list[tuple[int, Json]] = []
    for block in as_list(message.get("thinking_blocks")):
        kind = None
        if isinstance(block, dict):
            kind = block.get("type")
        place = None
        if kind:
            place = block.get("position")
        place = (
            place
            if isinstance(place, int) and place >= len(placed_thoughts)
            else len(placed_thoughts)
        )
        if kind == "thinking" and block.get("signature"):
            placed_thoughts.append(
                (
                    place,
                    {
                        "type": kind,
                        "thinking": block.get("thinking") or "",
                        "signature": block["signature"],
                    },
                )
            )
        elif kind == "redacted_thinking" and block.get("data"):
            placed_thoughts.append((place, {"type": kind, "data": block["data"]}))
    return placed_thoughts


def merge_thoughts(blocks: list[Json], thoughts: list[tuple[int, Json]]) -> list[Json]:
    """Put thoughts among blocks, each at its place where there are as many before it."""
    merged_blocks: list[Json] = []
    block_index = 0
    for place, thought_block in sorted(thoughts, key=itemgetter(0)):
        gap = max(0, place - len(merged_blocks))
        merged_blocks += blocks[block_index : block_index + gap]
        merged_blocks.append(thought_block)
        block_index += gap
    return merged_blocks + blocks[block_index:]


def _blocks(content: Any, where: str) -> list[Json]:
    if content is None:
        return []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not all(isinstance(p, dict) for p in parts):
        raise BadRequest(
            f"`{where}.content` must be a string or a list of parts.", param=f"{where}.content"
        )
    return [block for part in parts if (block := _block(part, where))]


def _block(part: Json, where: str) -> Json | None:
    kind = part.get("type")
    cache_members = {"cache_control": part["cache_control"]} if part.get("cache_control") else {}
    if kind in ("text", "refusal"):
        text = part.get(kind)
        if isinstance(text, str) and text.strip():
            return {"type": "text", "text": text, **cache_members}
        return None
    if kind == "image_url":
        url = part.get("image_url")
        return {
            "type": "image",
            "source": _source(url.get("url") if isinstance(url, dict) else url, where),
            **cache_members,
        }
    if kind == "file":
        return {**_document(part.get("file"), where), **cache_members}
    if kind in NATIVE_PARTS:
        return part
    raise BadRequest(
        f"`{where}.content` has a part of type {str(kind)[:40]!r}, which this provider does not "
        "take. Send text, images, PDF or plain text files.",
        param=f"{where}.content",
    )


def _source(url: Any, where: str) -> Json:
    if data_match := _data(url):
        return {"type": "base64", "media_type": data_match[0], "data": data_match[1]}
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    raise BadRequest(
        f"`{where}.content` has an image that is neither an http(s) address nor a base64 data: "
        "URL.",
        param=f"{where}.content",
    )


def _data(url: Any) -> tuple[str, str] | None:
    """Return the media type and the base64 of a data: URL; None for anything else."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, _, data = url[5:].partition(",")
    if head.endswith(";base64"):
        return (head.partition(";")[0], data)
    return None


def _document(file: Any, where: str) -> Json:
    data = None
    if isinstance(file, dict):
        data = file.get("file_data")
    data_match = _data(data)
    title = {"title": file["filename"]} if data_match and file.get("filename") else {}
    if data_match and data_match[0] == "application/pdf":
        return {
            "type": "document",
            "source": {"type": "base64", "media_type": data_match[0], "data": data_match[1]},
            **title,
        }
    if data_match and data_match[0].startswith("text/"):
        try:
            text = base64.b64decode(data_match[1]).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as e:
            raise BadRequest(
                f"`{where}.content` has a file whose base64 cannot be read: {e}.",
                param=f"{where}.content",
            ) from e
        return {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": text},
            **title,
        }
    raise BadRequest(
        f"`{where}.content` has a file that this provider cannot read. Send `file_data` as a "
        "base64 data: URL of a PDF or of plain text.",
        param=f"{where}.content",
    )

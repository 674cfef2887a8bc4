"""Placing memory into a chat-completions request, and taking nothing of the client's away. Pure.

The order is the prompt cache's (MEMORY.md 2): the client's tools, then ours; the client's system
text with the core text after it; the history with hidden exchanges and notes at their fixed places.
The client's own members stay as they came.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from gateway.wire.lone_surrogates import encode_json
from memory.context.window import NOTHING_LEFT_OUT, SummarizedGap
from memory.conversation.history import Messages
from memory.conversation.json_spans import Span

Json = dict[str, Any]
SYSTEM = ("system", "developer")
# Bytes of a piece that are sooner sent by themselves than copied.
LARGE_PIECE_BYTES = 1 << 14
# After which those of ours are joined.
PIECES = 32
# what stands for the messages, unlike anything that a request says
PLACE = f"mnemogate-{secrets.token_hex(16)}"
_PLACE = msgspec.json.encode(PLACE)
# In a hidden message, where it is kept: the target that gave it.
BY = "mnemogate_by"
COMMON = ("role", "content", "name", "refusal", "tool_calls", "tool_call_id")
# How a model's thinking is told.
THOUGHTS = ("reasoning_content", "thinking_blocks")


class Placement(msgspec.Struct):
    """What to put where; indexes count the client's messages.

    drop: left out; swap: sent in another form (elided results).

    recall: text for the end of the newest user message, not replayed later. since: how many
    messages were placed before, with the core text: the rest is placed.
    """

    core: str = ""
    notes: dict[int, str] = msgspec.field(default_factory=dict)
    splices: dict[int, list[Json]] = msgspec.field(default_factory=dict)
    drop: SummarizedGap = NOTHING_LEFT_OUT
    swap: dict[int, Json] = msgspec.field(default_factory=dict)
    recall: str = ""
    tools: Sequence[Json | msgspec.Raw] = ()
    since: int = 0


def place_memory(body: Json, placement: Placement) -> Json:
    """Return the request with memory in it; `body` and its messages are left as they are."""
    out = dict(body)
    out["messages"] = _messages(body["messages"], placement)
    if placement.tools:
        out["tools"] = [*(body.get("tools") or []), *placement.tools]
    return out


def place_lasting(messages: Sequence[Json], placement: Placement) -> list[Json]:
    """Return the messages as later requests have them: without what was recalled for this one."""
    return _messages(messages, msgspec.structs.replace(placement, recall=""))


def _messages(messages: Sequence[Json], placement: Placement) -> list[Json]:
    core = placement.core if not placement.since else ""
    is_whole = placement.drop is NOTHING_LEFT_OUT or not placement.drop
    # As it nearly always is.
    if is_whole and not (
        placement.notes or placement.splices or placement.swap or placement.recall
    ):
        if core:
            return _with_core(list(messages), core)
        return list(messages[placement.since :])
    newest_indexes = reversed(range(len(messages))) if placement.recall else ()
    last_user = next((i for i in newest_indexes if messages[i].get("role") == "user"), -1)
    out: list[Json] = []
    for i in placement.drop.remaining_indexes(placement.since, len(messages)):
        if i in placement.splices:
            out.extend(_with_ids_of(messages[i], placement.splices[i]))
            continue
        text = "\n\n".join(
            t for t in (placement.notes.get(i, ""), placement.recall if i == last_user else "") if t
        )
        message = placement.swap.get(i) or messages[i]
        out.append(with_text(message, text) if text else message)
    if core:
        return _with_core(out, core)
    return out


def _with_ids_of(message: Json, hidden: list[Json]) -> list[Json]:
    """Return a hidden exchange with the ids that the client's message gives its own calls.

    Two answers may say the same under other ids (a regeneration), and the client's results name
    those of its own. A call of ours that has one of these ids gets another.
    """
    answered_ids = {m["tool_call_id"] for m in hidden if m.get("role") == "tool"}
    calls = [c for m in hidden for c in m.get("tool_calls") or ()]
    hidden_ids = [c.get("id") for c in calls if c.get("id") not in answered_ids]
    client_ids = [c.get("id") for c in message.get("tool_calls") or () if isinstance(c, dict)]
    if hidden_ids == client_ids or len(hidden_ids) != len(client_ids):
        return hidden
    ids = {
        **{i: f"{i}_0" for i in answered_ids if i in client_ids},
        **dict(zip(hidden_ids, client_ids, strict=True)),
    }
    return [_with_call_ids(m, ids) for m in hidden]


def _with_call_ids(message: Json, ids: Mapping[Any, Any]) -> Json:
    """Return a hidden message with its calls, or the one it answers, under other ids."""
    if message.get("role") == "tool":
        return {
            **message,
            "tool_call_id": ids.get(message["tool_call_id"], message["tool_call_id"]),
        }
    if calls := message.get("tool_calls"):
        return {
            **message,
            "tool_calls": [{**c, "id": ids.get(c.get("id"), c.get("id"))} for c in calls],
        }
    return message


def _with_core(messages: list[Json], core: str) -> list[Json]:
    """Return messages with the core text at their beginning, where later ones do not move it."""
    if messages and messages[0].get("role") in SYSTEM:
        return [with_text(messages[0], core), *messages[1:]]
    return [{"role": "system", "content": core}, *messages]


# Of a list of messages as JSON: text of ours, or from where to where in the client's.
Piece = bytes | Span


def message_spans(
    messages: Sequence[Json], client: Messages | None, before: Sequence[Piece]
) -> list[Piece]:
    """Return what goes upstream for these messages, after what was sent for those before them.

    client: the request they are from. Messages of the client that were not changed are sent as the
    bytes that came.
    """
    out = list(before)
    if client is not None and (new_span := client.span_of_new(messages)) is not None:
        _add_span(out, new_span, client.text)
    else:
        spans, text = ({}, b"") if client is None else (client.spans(), client.text)
        for message in messages:
            span = spans.get(id(message))
            if span is None:
                out.append(encode_json(message))
            else:
                _add_span(out, span, text)
    # There are few, however long a history is.
    if len(out) > PIECES:
        return [
            x
            for is_encoded, run in groupby(out, _ours)
            for x in ([b",".join(p for p in run if type(p) is bytes)] if is_encoded else run)
        ]
    return out


def _add_span(pieces: list[Piece], span: Span, text: bytes) -> None:
    """Add messages of the client's, joined with those right before them."""
    if (
        pieces
        and type(last_piece := pieces[-1]) is tuple
        and not text[last_piece[1] : span[0]].strip(b", \t\r\n")
    ):
        pieces[-1] = last_piece[0], span[1]
    else:
        pieces.append(span)


def _ours(span: Piece) -> bool:
    return type(span) is bytes


def encode_request(
    body: Json, message_pieces: Sequence[Piece], client: Messages | None
) -> list[bytes | memoryview]:
    """Return the request as JSON, in parts.

    A large piece is a part of its own and is not copied. Raises ValueError for a piece that lies
    outside the client's text.
    """
    text = memoryview(client.text if client is not None else b"")
    for message_piece in message_pieces:
        if type(message_piece) is tuple and message_piece[1] > len(text):
            raise ValueError("a piece of the client's text is not there")
    head, _, tail = encode_json({**body, "messages": PLACE}).partition(_PLACE)
    parts: list[bytes | memoryview] = []
    run: list[bytes | memoryview] = [head]
    separator = b"["
    for message_piece in message_pieces:
        part = (
            message_piece
            if type(message_piece) is bytes
            else text[message_piece[0] : message_piece[1]]
        )
        run.append(separator)
        separator = b","
        if len(part) > LARGE_PIECE_BYTES:
            parts += b"".join(run), part
            run = []
        else:
            run.append(part)
    return [*parts, b"".join((*run, b"]" if message_pieces else b"[]", tail))]


def for_target(messages: Sequence[Json], label: str, *, thoughts: bool) -> list[Json]:
    """Return the messages as the target `label` takes them.

    Hidden ones keep a vendor's own members (reasoning, signatures) only where they came from; of
    the client's own, thinking that the Messages adapter told goes to no other kind. thoughts: the
    target is of that kind.
    """
    target_messages: list[Json] = []
    for message in messages:
        if BY in message or (THOUGHTS[1] in message and not thoughts):
            message = _native(message, label, thoughts)
        target_messages.append(message)
    return target_messages


def _native(message: Json, label: str, thoughts: bool) -> Json:
    by = message.get(BY)
    if by == label:
        return {k: v for k, v in message.items() if k != BY}
    if by is None:
        if thoughts or not _is_adapted(message[THOUGHTS[1]]):
            return message
        return {k: v for k, v in message.items() if k not in THOUGHTS}
    common_members = {k: message[k] for k in COMMON if k in message}
    if calls := message.get("tool_calls"):
        common_members["tool_calls"] = [
            {k: c[k] for k in ("id", "type", "function") if k in c} for c in calls
        ]
    return common_members


def _is_adapted(blocks: Any) -> bool:
    """Tell whether our Messages adapter made these blocks, which it numbers.

    Blocks of another gateway behind us must not be removed.
    """
    return isinstance(blocks, list) and any(isinstance(b, dict) and "position" in b for b in blocks)


def with_text(message: Json, text: str) -> Json:
    """Return the message with one more text at its end: after a blank line, or as one more part of
    a list.
    """
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*content, {"type": "text", "text": text}]}
    return {**message, "content": f"{content}\n\n{text}" if content else text}


def without_tools(body: Json, client: Json) -> Json:
    """Return the request without our tools.

    It never leaves `tools: []`, nor a `tool_choice` without tools.
    """
    if client.get("tools"):
        return {**body, "tools": client["tools"]}
    return {
        k: v for k, v in body.items() if k not in ("tools", "tool_choice", "parallel_tool_calls")
    }

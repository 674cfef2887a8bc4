"""A whole response as the events of a stream. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.apis.envelope_events import event_of
from gateway.apis.masked_parts import MaskedPart
from gateway.apis.search.search_results import SearchCitations
from gateway.wire.arguments import RepeatedArguments
from gateway.wire.chat import Json
from gateway.wire.part_keys import CALL

OPENINGS = frozenset({"response.created", "response.queued", "response.in_progress"})
CLOSINGS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
# What the pieces of an item are.
TEXT, ARGUMENTS = "text", "arguments"
ADDED = "response.output_item.added"
DONE_ITEM = "response.output_item.done"
TEXT_DELTA = "response.output_text.delta"
PART_DONE = "response.content_part.done"
ANNOTATION = "response.output_text.annotation.added"
SEARCH_STATES = ("in_progress", "searching", "completed")
ARGUMENTS_DELTA = "response.function_call_arguments.delta"


def lift(reply: Json, cuts: Sequence[Sequence[int]] = ()) -> Iterator[Json]:
    """Return a whole response as the events of a stream.

    cuts: how long the pieces of each item are; what they do not tell of is one piece.
    """
    opening = {**reply, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
    items = reply.get("output")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield from _lift_item(index, item, iter(cuts[index] if index < len(cuts) else ()))
    yield closing_of(reply)


def events_behind(reply: Json, cuts: Sequence[Sequence[int]], after: int) -> bytes:
    """Return a response's events behind one number; no ending where it has none yet."""
    runs = f"response.{reply.get('status')}" in OPENINGS
    return b"".join(
        event_of({**event, "sequence_number": number})
        for number, event in enumerate(lift(reply, cuts))
        if number > after and not (runs and event["type"] in CLOSINGS)
    )


def closing_of(reply: Json) -> Json:
    """Return the event that ends a whole response."""
    kind = f"response.{reply.get('status')}"
    return {"type": kind if kind in CLOSINGS else "response.completed", "response": reply}


def has_text(item: Json) -> bool:
    """Tell whether an item shows text."""
    if item.get("type") == "message":
        parts = _content_parts(item)
    else:
        parts = []
    return any(part.get("type") == "output_text" for part in parts)


def _content_parts(item: Json) -> list[Json]:
    """Return the parts of a message's content that can be read."""
    content = item.get("content")
    if isinstance(content, list):
        return [p for p in content if isinstance(p, dict)]
    return []


def _lift_item(index: int, item: Json, sizes: Iterator[int]) -> Iterator[Json]:
    """Return one item as events: its beginning, its text or arguments, its end."""
    where = {"output_index": index, "item_id": item.get("id")}
    kind = item.get("type")
    if "status" in item:
        opening_item = {**item, "status": "in_progress"}
    else:
        opening_item = dict(item)
    if kind == "message":
        opening_item["content"] = []
    elif kind == "function_call":
        opening_item["arguments"] = ""
    yield {"type": ADDED, "output_index": index, "item": opening_item}
    if kind == "message":
        for part_index, part in enumerate(_content_parts(item)):
            yield from _lift_part({**where, "content_index": part_index}, part, sizes)
    elif kind == "function_call":
        arguments = {**where, "arguments": item.get("arguments")}
        for argument_text in _cut(item.get("arguments"), sizes):
            yield {"type": ARGUMENTS_DELTA, **where, "delta": argument_text}
        yield {"type": "response.function_call_arguments.done", **arguments}
    yield {"type": DONE_ITEM, "output_index": index, "item": item}


def _cut(text: Any, sizes: Iterator[int]) -> Iterator[Any]:
    """Return a text in pieces of these sizes, the rest of it as one."""
    if not isinstance(text, str) or not text:
        yield text
        return
    start = 0
    while start < len(text):
        size = next(sizes, 0) or len(text)
        yield text[start : start + size]
        start += size


def _lift_part(where: Json, part: Json, sizes: Iterator[int]) -> Iterator[Json]:
    """Return one part of a message's content as events."""
    is_text = part.get("type") == "output_text"
    member = "text" if is_text else "refusal"
    name = "output_text" if is_text else "refusal"
    empty_part = {**part, member: ""}
    yield {"type": "response.content_part.added", **where, "part": empty_part}
    for part_text in _cut(part.get(member), sizes):
        yield {"type": f"response.{name}.delta", **where, "delta": part_text}
    yield {"type": f"response.{name}.done", **where, member: part.get(member)}
    yield {"type": "response.content_part.done", **where, "part": part}


def lift_search(place: int, item: Json) -> Iterator[Json]:
    """Return a search that is over as events."""
    where = {"output_index": place, "item_id": item["id"]}
    yield {"type": ADDED, "output_index": place, "item": {**item, "status": "in_progress"}}
    for state in SEARCH_STATES:
        yield {"type": f"response.web_search_call.{state}", **where}
    yield {"type": DONE_ITEM, "output_index": place, "item": item}


def cite_event(event: Json, citations: SearchCitations) -> list[Json]:
    """Return the events that stand for the end of a text with citations; none for any other."""
    if event.get("type") == DONE_ITEM:
        item = event.get("item")
        if isinstance(item, dict):
            return [{**event, "item": citations.cite_item(item)}]
        return []
    if event.get("type") != PART_DONE:
        return []
    part = citations.cite_part(event.get("part"))
    if part is event.get("part"):
        return []
    where = {k: event[k] for k in ("item_id", "output_index", "content_index") if k in event}
    annotation_events = [
        {"type": ANNOTATION, **where, "annotation_index": index, "annotation": annotation}
        for index, annotation in enumerate(part["annotations"])
    ]
    return [*annotation_events, {**event, "part": part}]


def whole_item(part: MaskedPart) -> Json:
    """Return an item; one that was cut off, with the text that arrived."""
    item = part.item
    if part.kind and not isinstance(item.get("type"), str):
        item = {**item, "type": part.kind}
    kind = item.get("type")
    if kind == "message" and not item.get("content") and part.pieces:
        content = [{"type": "output_text", "text": part.text_of(TEXT)}]
        return {"role": "assistant", **item, "content": content}
    if kind == CALL and not (part.is_whole and item.get(ARGUMENTS)) and part.pieces:
        repeated = RepeatedArguments(str(item.get(ARGUMENTS) or ""))
        argument_texts = [
            repeated.add(argument_text) for argument_text in part.pieces.get(ARGUMENTS, ())
        ]
        idents = {"call_id": part.idents[-1]} if part.idents else {}
        call_members = {"name": part.name, ARGUMENTS: "".join([*argument_texts, repeated.end()])}
        return {**idents, **item, **call_members}
    return item

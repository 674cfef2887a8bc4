"""Adding streamed deltas up, whatever the format: text grows, lists grow, names stay; and usage
over rounds. Pure.
"""

from __future__ import annotations

from typing import Any

from gateway.wire.streamed_calls import NAME, StreamedCalls, grown_name

Json = dict[str, Any]
CALLS = "tool_calls"
# Members of a content's parts that grow from list to list.
GROWING_PARTS = ("text", "thinking")
# Characters of a piece that a text grows by at once.
LARGE_CHARACTERS = 1 << 16

# Members of a delta that name rather than grow: repeated by some servers, never to be concatenated.
WHOLE = frozenset(
    {"role", "id", "type", "object", "finish_reason", "model", "created", "index", "format"}
)


class Items(list[Any]):
    """A list of deltas, added up by their `index`; `places` maps an index to its newest item."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, Json] = {}


class CallItems(list[Any]):
    """A list of calls, whose deltas are told apart as `StreamedCalls` says."""

    __slots__ = ("_places", "_streamed")

    def __init__(self) -> None:
        super().__init__()
        self._streamed = StreamedCalls()
        # Of the calls in this list.
        self._places: list[int] = []

    def add(self, deltas: list[Any]) -> None:
        """Add the deltas of one event."""
        for delta in deltas:
            if isinstance(delta, dict):
                self._add_delta(delta)
            else:
                self.append(delta)

    def _add_delta(self, delta: Json) -> None:
        call = self._streamed.route(delta)
        if call.place == len(self._places):
            self._places.append(len(self))
            self.append(_copy(delta))
            return
        item = self[self._places[call.place]]
        # The first id stays: servers that give every delta another one mean the same call.
        ident = delta.get("id")
        first_id = item.get("id")
        if ident is not None and ident != first_id and first_id not in (None, ""):
            delta = {k: v for k, v in delta.items() if k != "id"}
        merge(item, delta)

    def copy(self) -> CallItems:
        """Return one that grows by itself from here on."""
        out = CallItems()
        out.extend(map(_copy, self))
        out._streamed = self._streamed.copy()
        out._places = list(self._places)
        return out

    def plain(self) -> list[Any]:
        """Return the calls with strings for their texts, each with its tail."""
        out = [plain_text(item) for item in self]
        tails = [c for c in self._streamed.calls if c.tail_of is not None]
        for call in tails:
            root, tail = (out[self._places[c.place]] for c in (call.root, call))
            _add_tail(root, tail)
        places = {self._places[call.place] for call in tails}
        return [item for place, item in enumerate(out) if place not in places]


def _add_tail(call: Json, tail: Json) -> None:
    """Add the arguments of a tail to its call."""
    into = call.get("function")
    tail_function = tail.get("function")
    if isinstance(into, dict) and isinstance(tail_function, dict):
        have = into.get("arguments")
        text = tail_function.get("arguments")
        if isinstance(have, str) and isinstance(text, str):
            into["arguments"] = have + text


class TextBuffer(list[str]):
    """A text that grows in pieces.

    Adding a piece costs that piece only, and the pieces are joined now and then. A text with a
    large piece grows at its end, where it is: to join 25 MiB at the end takes 40 ms.
    """

    # So many at the front are pieces put together.
    joined_count = 0

    def add(self, text: str) -> None:
        if len(text) >= LARGE_CHARACTERS:
            # Without another name for it a text grows without being copied.
            joined_text = self[0]
            later_text = "".join(self[1:])
            self.clear()
            joined_text += later_text
            joined_text += text
            self.append(joined_text)
            self.joined_count = 1
            return
        self.append(text)
        if len(self) - self.joined_count == 256:
            self[self.joined_count :] = ["".join(self[self.joined_count :])]
            self.joined_count += 1


def merge(into: Json, delta: Json) -> None:
    """Add a delta to what is there: text grows (see `joined`), lists grow (by `index` where their
    items have one), names stay.
    """
    for key, value in delta.items():
        have = into.get(key)
        if have is None:
            into[key] = _begin_list(key, value) if isinstance(value, list) else _copy(value)
        elif isinstance(value, str) and isinstance(have, TextBuffer):
            have.add(value)
        elif isinstance(value, str) and isinstance(have, str) and key not in WHOLE:
            is_name = key == "name" and len(have) <= NAME
            into[key] = grown_name(have, value) if is_name else _begin_text(have, value)
        elif isinstance(value, dict) and isinstance(have, dict):
            merge(have, value)
        elif (
            isinstance(value, list) and isinstance(have, list) and not isinstance(have, TextBuffer)
        ):
            _grown(have, value)
        elif _is_text_beside_parts(have, value):
            into[key] = _parts_of(have)
            _add_parts(into[key], value)
        elif value or (value is not None and value != "" and not isinstance(have, list | dict)):
            into[key] = value


def _is_text_beside_parts(have: Any, value: Any) -> bool:
    """Tell whether a text meets a list of parts: Mistral's content is one, then the other."""
    if isinstance(value, str):
        return bool(value) and isinstance(have, Items) and all(map(_is_part, have[-1:]))
    is_text = isinstance(have, str | TextBuffer)
    return is_text and isinstance(value, list) and all(map(_is_part, value))


def _is_part(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str)


def _parts_of(content: Any) -> Items:
    """Return a content as the list of its parts."""
    if isinstance(content, Items):
        return content
    parts, text = Items(), plain_text(content)
    if text:
        parts.append({"type": "text", "text": text})
    return parts


def _add_parts(parts: Items, content: Any) -> None:
    """Add a text to the last part if that is one, and any other content as parts."""
    if isinstance(content, list):
        _grown(parts, content)
    elif parts and parts[-1].get("type") == "text":
        merge(parts[-1], {"text": content})
    else:
        parts.append({"type": "text", "text": content})


def _begin_text(text: str, more: str) -> TextBuffer:
    buffer = TextBuffer((text,))
    buffer.add(more)
    return buffer


def _begin_list(key: str, value: list[Any]) -> list[Any]:
    if key != CALLS:
        return _grown(Items(), value)
    calls = CallItems()
    calls.add(value)
    return calls


def plain_text(value: Any) -> Any:
    """Return what deltas were merged into, with strings for its texts.

    The original stays as it is, and may grow further.
    """
    if isinstance(value, dict):
        return {k: plain_text(v) for k, v in value.items()}
    if isinstance(value, TextBuffer):
        if len(value) == 1:
            return value[0]
        return "".join(value)
    if isinstance(value, CallItems):
        return value.plain()
    if isinstance(value, list):
        return [plain_text(v) for v in value]
    return value


def growing_copy(value: Any) -> Any:
    """Return a copy of what was joined that grows by itself from here on."""
    return _copy(value)


def _copy(value: Any) -> Any:
    if isinstance(value, CallItems):
        return value.copy()
    if isinstance(value, TextBuffer):
        if len(value) == 1:
            return value[0]
        return "".join(value)
    if isinstance(value, dict):
        return {
            k: _begin_list(k, v) if type(v) is list and k == CALLS else _copy(v)
            for k, v in value.items()
        }
    if not isinstance(value, list):
        return value
    if not (value and isinstance(value[0], dict)):
        return [_copy(v) for v in value]
    out = Items()
    for item in value:
        out.append(_copy(item))
        if isinstance(item, dict) and isinstance(index := item.get("index"), int):
            out.places[index] = out[-1]
    return out


def _grown(have: list[Any], items: list[Any]) -> list[Any]:
    """Add items to a list: those with an `index` of one that is there go on with it."""
    if isinstance(have, CallItems):
        have.add(items)
        return have
    places = have.places if isinstance(have, Items) else {}
    if have and items and _goes_on(have[-1], items[0]):
        merge(have[-1], items[0])
        items = items[1:]
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(index, int):
            have.append(_copy(item))
            continue
        item_at_index = places.get(index)
        if item_at_index is None or _is_another(item_at_index, item):
            have.append(_copy(item))
            places[index] = have[-1]
        else:
            merge(item_at_index, item)
    return have


def _goes_on(last_part: Any, part: Any) -> bool:
    """Tell whether the first part of a delta is more of the last one of those before."""
    if not (isinstance(last_part, dict) and isinstance(part, dict)):
        return False
    is_numbered = "index" in last_part or "index" in part
    return (
        part.get("type") in GROWING_PARTS
        and part.get("type") == last_part.get("type")
        and not is_numbered
    )


def _is_another(earlier_item: Json, item: Json) -> bool:
    """Tell whether an item is another than the one before it at its index.

    A new id at a used index is a new item, and so is a new type: some servers number each type of a
    list by itself. Calls are told apart by `StreamedCalls`.
    """
    return any(
        item.get(m) and earlier_item.get(m) and item[m] != earlier_item[m] for m in ("id", "type")
    )


def usage_sum(first_usage: Json | None, second_usage: Json | None) -> Json | None:
    """Add the usage of two rounds.

    Numbers add up at every level; of anything else the newest value stays.
    """
    if first_usage is None or second_usage is None:
        return first_usage or second_usage
    out = dict(first_usage)
    for key, value in second_usage.items():
        have = out.get(key)
        if isinstance(value, dict) and isinstance(have, dict):
            out[key] = usage_sum(have, value)
        elif (
            isinstance(value, (int, float))
            and isinstance(have, (int, float))
            and not isinstance(value, bool)
        ):
            out[key] = have + value
        elif value is not None:
            out[key] = value
    return out

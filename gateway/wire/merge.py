"""Adding streamed deltas up, whatever the format: text grows, lists grow, names stay; and usage
over rounds. Pure.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

# Members of a delta that name rather than grow: repeated by some servers, never to be concatenated.
WHOLE = frozenset(
    {"role", "id", "type", "object", "finish_reason", "model", "created", "index", "format"}
)


NAME = 1024  # characters up to which a name may be repeated whole; what is longer is no name


class Items(list[Any]):
    """A list of deltas, added up by their `index`; `places` maps an index to its newest item."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, Json] = {}


class TextBuffer(list[str]):
    """A text that grows in pieces.

    Adding a piece costs that piece only, and the pieces are joined now and then.
    """

    joined = 0  # so many at the front are pieces put together

    def add(self, more: str) -> None:
        self.append(more)
        if len(self) - self.joined == 256:
            self[self.joined :] = ["".join(self[self.joined :])]
            self.joined += 1


def merge(into: Json, delta: Json) -> None:
    """Add a delta to what is there: text grows (see `joined`), lists grow (by `index` where their
    items have one), names stay.
    """
    for key, value in delta.items():
        have = into.get(key)
        if have is None:
            into[key] = _grown(Items(), value) if isinstance(value, list) else _copy(value)
        elif isinstance(value, str) and isinstance(have, TextBuffer):
            have.add(value)
        elif isinstance(value, str) and isinstance(have, str) and key not in WHOLE:
            named = key == "name" and len(have) <= NAME
            into[key] = grown_name(have, value) if named else TextBuffer((have, value))
        elif isinstance(value, dict) and isinstance(have, dict):
            merge(have, value)
        elif (
            isinstance(value, list) and isinstance(have, list) and not isinstance(have, TextBuffer)
        ):
            _grown(have, value)
        elif value is not None and value != "":
            into[key] = value


def grown_name(have: str, more: str) -> str:
    """Return a name that came in fragments, or whole on every delta."""
    return more if more.startswith(have) else have + more


def plain_text(value: Any) -> Any:
    """Return what deltas were merged into, with strings for its texts.

    The original stays as it is, and may grow further.
    """
    if isinstance(value, dict):
        return {k: plain_text(v) for k, v in value.items()}
    if isinstance(value, TextBuffer):
        return "".join(value)
    return [plain_text(v) for v in value] if isinstance(value, list) else value


def growing_copy(value: Any) -> Any:
    """Return a copy of what was joined that grows by itself from here on."""
    return _copy(plain_text(value))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: _grown(Items(), v) if k == "tool_calls" and isinstance(v, list) else _copy(v)
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


def _grown(have: list[Any], more: list[Any]) -> list[Any]:
    """Add items to a list: those with an `index` of one that is there go on with it."""
    places = have.places if isinstance(have, Items) else {}
    for item in more:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(index, int):
            if (
                have
                and isinstance(item, dict)
                and "function" in item
                and not item.get("id")
                and isinstance(have[-1], dict)
            ):
                merge(
                    have[-1], item
                )  # a server that leaves the index out goes on with its last call
            else:
                have.append(_copy(item))
            continue
        same = places.get(index)
        if same is None or _is_another(same, item):
            have.append(_copy(item))
            places[index] = have[-1]
        else:
            merge(same, item)
    return have


def _is_another(same: Json, item: Json) -> bool:
    """Tell whether an item is another than the one before it at its index.

    A new id at a used index is a new call: some servers number every parallel call 0. Others number
    each type of a list by itself.
    """
    return any(item.get(m) and same.get(m) and item[m] != same[m] for m in ("id", "type"))


def usage_sum(one: Json | None, other: Json | None) -> Json | None:
    """Add the usage of two rounds.

    Numbers add up at every level; of anything else the newest value stays.
    """
    if one is None or other is None:
        return one or other
    out = dict(one)
    for key, value in other.items():
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

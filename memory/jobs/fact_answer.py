"""What a model's answer proposes to keep: read with patience for its slips. Pure.

Small models wrap the object that they are asked for in prose, give a bare list, misspell a member
or leave one out. None of it may cost a fact: what is missing gets a default, what is too long is
clipped, and an item that cannot be read never takes the others with it. Only the quote has to be
the user's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from memory.conversation.messages import collapse_whitespace

MAX_FACTS, MAX_FACT_CHARACTERS, MAX_QUOTE_CHARACTERS = 24, 400, 600
MAX_ANSWER_CHARACTERS = 40_000
# Operations of an answer that are told of.
MAX_DROPS = 500
# Beginnings of objects and lists that are tried in an answer.
MAX_BEGINNINGS = 200
Operation = Literal["add", "update", "supersede"]
OPERATIONS: dict[str, Operation] = {
    "": "add",
    "add": "add",
    "insert": "add",
    "create": "add",
    "new": "add",
    "save": "add",
    "update": "update",
    "edit": "update",
    "modify": "update",
    "merge": "update",
    "supersede": "supersede",
    "replace": "supersede",
    "delete": "supersede",
    "remove": "supersede",
    "forget": "supersede",
}
REMOVALS = frozenset({"delete", "remove", "forget"})
TYPES = frozenset({"identity", "preference", "fact", "context", "trivial"})
LISTS = ("operations", "facts", "memories", "items")
# What models call the members of an operation, where they do not use the names of the prompt.
MEMBERS = {
    "operation": "op",
    "action": "op",
    "event": "op",
    "fact": "text",
    "content": "text",
    "memory": "text",
    "statement": "text",
    "new_text": "text",
    "evidence": "quote",
    "source_quote": "quote",
    "citation": "quote",
    "fact_id": "id",
    "memory_id": "id",
    "number": "id",
}
_begin = re.compile(r"[{\[]")
_trailing_comma = re.compile(r",(\s*[}\]])")
_number = re.compile(r"\d{1,6}")
_decoder = json.JSONDecoder(strict=False)


class ProposedFact(msgspec.Struct):
    """One operation of an answer. id: the number of a known fact, as in the prompt."""

    quote: str
    op: Operation = "add"
    text: str = ""
    id: int | None = None
    type: str = "fact"
    importance: float = 0.5
    category: str = ""


class FactAnswer(NamedTuple):
    """What an answer proposes.

    malformed: what of it cannot be used, clipped. excess: what is more than is kept of one answer.
    """

    facts: list[ProposedFact]
    malformed: list[str]
    excess: Sequence[str] = ()


def read_answer(answer: str) -> FactAnswer | None:
    """Return what an answer proposes; None if it proposes nothing in any form.

    answer: without a model's thoughts.
    """
    items = _find_items(answer[:MAX_ANSWER_CHARACTERS])
    if items is None:
        return None
    facts: list[ProposedFact] = []
    malformed: list[str] = []
    for item in items[:MAX_FACTS]:
        fact = _read_item(item)
        if fact is not None:
            facts.append(fact)
        elif item not in ({}, None, ""):
            malformed.append(_excerpt(item))
    excess = [_excerpt(item) for item in items[MAX_FACTS:MAX_DROPS]]
    return FactAnswer(facts, malformed, excess)


def _find_items(answer: str) -> list[Any] | None:
    """Return the operations of the first object or list that holds some; None for none at all."""
    items, single_items = _search(answer)
    if not items and "," in answer:
        items_again, single_items_again = _search(_trailing_comma.sub(r"\1", answer))
        items = items_again or items
        single_items = single_items_again or single_items
    # Single operations are what is left of a list that cannot be decoded as a whole.
    return items or single_items or items


def _search(answer: str) -> tuple[list[Any] | None, list[Any]]:
    """Return the first list of operations, [] for an empty one, and single ones beside it."""
    empty_list: list[Any] | None = None
    single_items: list[Any] = []
    for value in _values_in(answer):
        items = _items_of(value)
        if items:
            return items, single_items
        if items is not None and empty_list is None:
            empty_list = items
        elif isinstance(value, dict) and _is_operation(value):
            single_items.append(value)
    return empty_list, single_items


def _values_in(answer: str) -> Iterator[Any]:
    """Yield the objects and lists of a text, each outermost one that decodes."""
    search_start = 0
    for _ in range(MAX_BEGINNINGS):
        begin = _begin.search(answer, search_start)
        if begin is None:
            return
        search_start = begin.start()
        try:
            value, search_start = _decoder.raw_decode(answer, search_start)
        except (ValueError, RecursionError):
            search_start += 1
            continue
        yield value


def _items_of(value: Any) -> list[Any] | None:
    """Return the operations that a value lists; None if it lists none."""
    if isinstance(value, list):
        is_list = all(isinstance(item, dict) for item in value)
        if is_list:
            return value
        return None
    for name, items in value.items():
        if str(name).strip().lower() not in LISTS:
            continue
        if items is None:
            return []
        if isinstance(items, dict):
            return [items]
        if isinstance(items, list):
            return items
    # A list of another name is told by what it holds.
    return next((items for items in value.values() if _lists_operations(items)), None)


def _lists_operations(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and _is_operation(item) for item in value)
    )


def _is_operation(value: dict[str, Any]) -> bool:
    names = _name_members(value).keys()
    return "quote" in names and not names.isdisjoint({"op", "text"})


def _name_members(item: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an operation by the names of the prompt, which come first."""
    written = {str(name).strip().lower(): value for name, value in item.items()}
    renamed = {MEMBERS[name]: value for name, value in written.items() if name in MEMBERS}
    return renamed | written


def _read_item(item: Any) -> ProposedFact | None:
    """Return one operation, with defaults for what is missing or cannot be understood."""
    if not isinstance(item, dict):
        return None
    members = _name_members(item)
    name = _text(members.get("op")).strip().lower()
    quote = collapse_whitespace(_text(members.get("quote")))
    text = ""
    if name not in REMOVALS:
        text = collapse_whitespace(_text(members.get("text")))
    kind = _text(members.get("type")).strip().lower()
    op = OPERATIONS.get(name)
    number = _integer(members.get("id"))
    if op is None or not quote or not (text or (op == "supersede" and number is not None)):
        # Such as an "ignore".
        return None
    return ProposedFact(
        quote[:MAX_QUOTE_CHARACTERS],
        op,
        _clip(text, MAX_FACT_CHARACTERS),
        number,
        kind if kind in TYPES else "fact",
        _importance(members.get("importance")),
        _text(members.get("category")).strip(),
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        value = next((v for v in value if isinstance(v, str)), None)
    if isinstance(value, str):
        return value
    return ""


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _number.search(str(value))
    if match:
        return int(match[0])
    return None


def _importance(value: Any) -> float:
    """Return an importance of 0 to 1, also where the scale was of 10 or 100."""
    try:
        if not isinstance(value, bool):
            number = float(value)
        else:
            number = math.nan
    except (TypeError, ValueError, OverflowError):
        return 0.5
    if not math.isfinite(number):
        return 0.5
    scale = next((scale for scale in (1, 10, 100) if number <= scale), number)
    return max(0.0, number / scale)


def _clip(text: str, characters: int) -> str:
    """Return the beginning of a text, cut between two words."""
    if len(text) <= characters:
        return text
    cut_end = text.rfind(" ", characters // 2, characters)
    return text[: cut_end if cut_end > 0 else characters]


def _excerpt(item: Any) -> str:
    if isinstance(item, dict):
        text = item.get("text")
    else:
        text = item
    return collapse_whitespace(str(text if isinstance(text, str) else item))[:MAX_FACT_CHARACTERS]

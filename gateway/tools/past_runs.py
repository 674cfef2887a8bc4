"""What the tools of a turn ran in earlier rounds, read from the exchange itself. Pure.

The three formats write calls and results in three ways, which are told apart by their members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gateway.wire.chat import object_or_empty

TOOL_CALL = "tool_call"  # stands for the tool that its arguments name


class PastCall(msgspec.Struct):
    """A call of an earlier round. result: None where there is none, as of the client's calls."""

    id: str
    name: str
    result: str | None = None


def read_round(reply: Any, results: Sequence[str], owned: Iterable[str]) -> list[PastCall]:
    """Return the calls of a reply with our results. owned: names of the calls that we run."""
    names = frozenset(owned)
    calls = [call for call in _calls_in(reply) if call.name in names]
    for call, result in zip(calls, results, strict=False):
        call.result = result
    return calls


def read_exchange(hidden: Iterable[Any]) -> list[list[PastCall]]:
    """Return the rounds of hidden messages, each a list of calls with their results."""
    rounds: list[list[PastCall]] = []
    open_calls: dict[str, PastCall] = {}
    has_results = True
    for message in hidden:
        calls = list(_calls_in(message))
        if calls:
            if has_results:
                rounds.append([])
                has_results = False
            rounds[-1] += calls
            open_calls |= {call.id: call for call in calls}
        for ident, result in _results_in(message):
            has_results = True
            if ident in open_calls:
                open_calls.pop(ident).result = result
    return rounds


def _calls_in(part: Any) -> Iterator[PastCall]:
    """Yield the calls in a message, an item or a whole reply, in order."""
    if not isinstance(part, Mapping):
        return
    kind = part.get("type")
    if kind == "function_call":
        yield _call(part.get("call_id") or part.get("id"), part.get("name"), part.get("arguments"))
    elif kind == "tool_use":
        yield _call(part.get("id"), part.get("name"), part.get("input"))
    for choice in _list_of(part.get("choices"))[:1]:
        yield from _calls_in(choice.get("message") if isinstance(choice, Mapping) else None)
    for call in _list_of(part.get("tool_calls")):
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield _call(call.get("id"), function.get("name"), function.get("arguments"))
    for name in ("output", "content"):
        if kind not in ("function_call_output", "tool_result"):
            for inner in _list_of(part.get(name)):
                yield from _calls_in(inner)


def _results_in(part: Any) -> Iterator[tuple[str, str]]:
    """Yield the results in a message or an item, each with the id of its call."""
    if not isinstance(part, Mapping):
        return
    if part.get("role") == "tool":
        yield str(part.get("tool_call_id")), _text_of(part.get("content"))
    elif part.get("type") == "function_call_output":
        yield str(part.get("call_id")), _text_of(part.get("output"))
    elif part.get("type") == "tool_result":
        yield str(part.get("tool_use_id")), _text_of(part.get("content"))
    elif part.get("role") == "user":
        for inner in _list_of(part.get("content")):
            yield from _results_in(inner)


def _call(ident: Any, name: Any, arguments: Any) -> PastCall:
    name = str(name or "")
    return PastCall(str(ident or ""), called_name(name, arguments))


def called_name(name: str, arguments: Any) -> str:
    """Return the tool that a call stands for. arguments: as text or as an object."""
    if name != TOOL_CALL:
        return name
    if isinstance(arguments, str):
        arguments = object_or_empty(arguments.encode("utf-8", "replace"))
    inner = arguments.get("name") if isinstance(arguments, Mapping) else None
    return inner if isinstance(inner, str) else name


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in _list_of(content) if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

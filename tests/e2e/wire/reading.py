"""What a strict client makes of an answer, streamed or plain; and upstreams that stream exactly
what a test says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import Live, events
from tests.models import Model

both = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
}
HEAD = {"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


@contextlib.contextmanager
def case(up: Model, what: object, *script: Any) -> Iterator[str]:
    """One case of a test that shares its gateway with others: the upstream's script, and a user of
    its own. A failure names it.
    """
    up.script = list(script)
    up.requests.clear()
    try:
        yield f"user-{what}"
    except BaseException as e:
        e.add_note(f"case: {what}")
        raise


def strict(found: list[Any]) -> dict[str, Any]:
    """A whole stream as a completion; fails where a picky client would: roles, indexes, finishes,
    usage, `[DONE]`.
    """
    assert found[-1] == "[DONE]"
    assert found.count("[DONE]") == 1
    chunks = found[:-1]
    for member in ("id", "object", "created", "model"):
        assert len({c[member] for c in chunks}) == 1, member
    lanes: dict[int, dict[str, Any]] = {}
    usage = None
    for c in chunks:
        assert usage is None, "nothing follows the usage chunk"
        assert isinstance(c["choices"], list)
        if c.get("usage"):
            assert c["choices"] == []
            usage = c["usage"]
        for choice in c["choices"]:
            _add(
                lanes.setdefault(
                    choice["index"],
                    {
                        "index": choice["index"],
                        "roles": 0,
                        "content": None,
                        "calls": [],
                        "finish_reason": None,
                    },
                ),
                choice,
            )
    for lane in lanes.values():
        assert lane.pop("roles") == 1
        assert lane["finish_reason"]
    return {
        "id": chunks[0]["id"],
        "model": chunks[0]["model"],
        "choices": [lanes[i] for i in sorted(lanes)],
        "usage": usage,
    }


def _add(lane: dict[str, Any], choice: dict[str, Any]) -> None:
    assert lane["finish_reason"] is None, "nothing of a choice follows its finish"
    delta = choice["delta"]
    if "role" in delta:
        assert delta["role"] == "assistant"
        lane["roles"] += 1
    if isinstance(delta.get("content"), str):
        lane["content"] = (lane["content"] or "") + delta["content"]
    for call in delta.get("tool_calls") or []:
        if call["index"] == len(lane["calls"]):
            lane["calls"].append(
                {"id": call["id"], "name": call["function"]["name"], "arguments": ""}
            )
        else:
            assert not call.get("id") or call["id"] == lane["calls"][call["index"]]["id"]
        lane["calls"][call["index"]]["arguments"] += call["function"].get("arguments") or ""
    lane["finish_reason"] = choice.get("finish_reason")


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """A completion in the same shape."""
    choices = []
    for choice in body["choices"]:
        message = choice["message"]
        assert message["role"] == "assistant"
        assert "content" in message
        calls = [
            {"id": c["id"], "name": c["function"]["name"], "arguments": c["function"]["arguments"]}
            for c in message.get("tool_calls") or []
        ]
        choices.append(
            {
                "index": choice["index"],
                "content": message["content"],
                "calls": calls,
                "finish_reason": choice["finish_reason"],
            }
        )
    return {
        "id": body["id"],
        "model": body["model"],
        "choices": choices,
        "usage": body.get("usage"),
    }


async def asked(
    live: Live, stream: bool, messages: Any, headers: dict[str, str] | None = None, **body: Any
) -> tuple[httpx.Response, dict[str, Any]]:
    """The response, and the answer as a strict client reads it."""
    options = {"stream_options": {"include_usage": True}} if stream else {}
    response = await live.chat(messages, headers, stream=stream, **options, **body)
    assert response.status_code == 200, response.text
    return response, strict(events(response.text)) if stream else plain(response.json())


def message_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The assistant's message as a client would send it back."""
    choice = answer["choices"][0]
    found = [
        {
            "id": c["id"],
            "type": "function",
            "function": {"name": c["name"], "arguments": c["arguments"]},
        }
        for c in choice["calls"]
    ]
    return {
        "role": "assistant",
        "content": choice["content"],
        **({"tool_calls": found} if found else {}),
    }


def check_valid(messages: list[Any]) -> None:
    """Every call is followed by its result at once, every result belongs to a call, and no id
    serves two calls of a turn.
    """
    pending: list[str] = []
    for m in messages:
        if m["role"] == "tool":
            assert m["tool_call_id"] in pending, messages
            pending.remove(m["tool_call_id"])
            continue
        assert not pending, messages
        pending = [c["id"] for c in m.get("tool_calls") or []]
        assert all(pending), messages
        assert len(set(pending)) == len(pending), messages
    assert not pending, messages


def streamed(*parts: Any) -> Any:
    """A behaviour: each part is a delta of choice 0, a finish reason (a string), or a whole chunk
    (with `choices`).
    """

    async def behave(seen: Any, wire: Any) -> None:
        await wire.start_stream()
        for part in parts:
            await wire.event(chunk(part))
        await wire.event(b"[DONE]")
        await wire.end()

    return lambda seen, wire: behave(seen, wire)


def chunk(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": part}]}
    return (
        part
        if "choices" in part
        else {**HEAD, "choices": [{"index": 0, "delta": part, "finish_reason": None}]}
    )


def fragments(*calls: dict[str, Any], size: int = 5) -> list[dict[str, Any]]:
    """The deltas of several calls, interleaved: every start, then a piece of each in turn."""
    out = [
        {
            "tool_calls": [
                {"index": i, **c, "function": {"name": c["function"]["name"], "arguments": ""}}
            ]
        }
        for i, c in enumerate(calls)
    ]
    texts = [c["function"]["arguments"] for c in calls]
    for at in range(0, max(map(len, texts)), size):
        out += [
            {"tool_calls": [{"index": i, "function": {"arguments": t[at : at + size]}}]}
            for i, t in enumerate(texts)
            if t[at : at + size]
        ]
    return out

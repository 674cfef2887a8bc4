"""Strategies and builders for completions and their chunkings, shared by the wire tests."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from gateway.wire import chat

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalar = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text
unknown = st.dictionaries(
    st.sampled_from(["x_one", "x_two", "annotations_url", "provider"]), scalar, max_size=2
)


@st.composite
def calls(draw, names: tuple[str, ...] = ("get_weather", "lookup")):
    n = draw(st.integers(1, 3))
    return [
        {
            "id": f"call_{i}_{draw(st.integers(0, 99))}",
            "type": "function",
            "function": {
                "name": draw(st.sampled_from(names)),
                "arguments": json.dumps({"q": draw(text)}),
            },
        }
        for i in range(n)
    ]


@st.composite
def messages(draw):
    out: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | text)}
    if draw(st.booleans()):
        out["tool_calls"] = draw(calls())
    if draw(st.booleans()):
        out["reasoning_content"] = draw(text)
    if draw(st.booleans()):
        out["refusal"] = None
    return {**out, **draw(unknown)}


@st.composite
def completions(draw, n: int = 2):
    choices = [
        {
            "index": i,
            "message": draw(messages()),
            "finish_reason": draw(st.sampled_from(["stop", "length", "tool_calls"])),
            **(
                {"logprobs": {"content": [{"token": draw(text), "logprob": -0.5}]}}
                if draw(st.booleans())
                else {}
            ),
        }
        for i in range(draw(st.integers(1, n)))
    ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": choices,
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "details": {"cached": 0}},
        **draw(unknown),
    }


def head(completion: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in completion.items() if k not in ("choices", "usage")} | {
        "object": "chat.completion.chunk"
    }


@st.composite
def chunkings(draw, completion: dict[str, Any]):
    """A legal stream of this completion: pieces of text and arguments cut anywhere, choices
    interleaved.
    """
    per_choice = []
    for choice in completion["choices"]:
        lane, message, out = choice["index"], choice["message"], []
        rest = {
            k: v
            for k, v in message.items()
            if k not in ("content", "tool_calls", "reasoning_content", "role")
        }
        out.append({"index": lane, "delta": {"role": "assistant", **rest}})
        for key in ("reasoning_content", "content"):
            if key in message:
                out += [
                    {"index": lane, "delta": {key: piece}} for piece in draw(pieces(message[key]))
                ]
        for i, call in enumerate(message.get("tool_calls") or []):
            out.append(
                {
                    "index": lane,
                    "delta": {
                        "tool_calls": [
                            {
                                "index": i,
                                "id": call["id"],
                                "type": "function",
                                "function": {"name": call["function"]["name"], "arguments": ""},
                            }
                        ]
                    },
                }
            )
            out += [
                {
                    "index": lane,
                    "delta": {"tool_calls": [{"index": i, "function": {"arguments": piece}}]},
                }
                for piece in draw(pieces(call["function"]["arguments"]))
            ]
        last = {k: v for k, v in choice.items() if k not in ("message", "index")}
        per_choice.append([*out, {"index": lane, "delta": {}, **last}])
    order = draw(st.permutations([i for i, c in enumerate(per_choice) for _ in c]))
    queues = [list(c) for c in per_choice]
    base = head(completion)
    chunks = [{**base, "choices": [queues[i].pop(0)]} for i in order]
    return [*chunks, {**base, "choices": [], "usage": completion["usage"]}]


@st.composite
def pieces(draw, value: str | None):
    if not value:
        return [value]
    cuts = sorted(draw(st.lists(st.integers(0, len(value)), max_size=3)))
    return [value[a:b] for a, b in zip([0, *cuts], [*cuts, len(value)], strict=True)]


def read(body: dict[str, Any]) -> chat.Chunk:
    return chat.parse_chunk(json.dumps(body, ensure_ascii=False).encode())

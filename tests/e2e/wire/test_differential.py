"""The same upstream reached directly and through the gateway: with memory off nothing differs, with
it on what is written down here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import events
from tests.e2e.wire.rows import row
from tests.models import USAGE, call

pytestmark = pytest.mark.asyncio(loop_scope="session")
# Headers that belong to one connection, or that the documentation names; all others are equal.
CONNECTION = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "date",
    "server",
    "set-cookie",
    "strict-transport-security",
}
OURS = {
    "x-memory-status",
    "x-memory-reason",
    "x-memory-user",
    "x-memory-conversation",
    "x-memory-explain",
    "x-memory-rounds",
    "x-memory-injected-tokens",
    "x-mnemogate-upstream",
    "x-mnemogate-attempts",
    "x-mnemogate-overhead-ms",
    "x-mnemogate-request-id",
}
# Ours to set on a stream.
STREAMING = {"cache-control", "x-accel-buffering"}
RATES = (
    "x-request-id: up-1",
    "x-ratelimit-remaining-tokens: 0",
    "openai-processing-ms: 12",
    "x-vendor: a",
    "set-cookie: a=b",
    "connection: x-hop",
    "x-hop: 1",
)
HEAD = {
    "id": "c-1",
    "object": "chat.completion.chunk",
    "created": 7,
    "model": "m",
    "system_fingerprint": None,
}
WEATHER = call("get_weather", '{"city": "Rīga"}', "c1")


def whole(*messages: Any, finish: str = "stop", **top: Any) -> dict[str, Any]:
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", **m},
            "logprobs": None,
            "finish_reason": finish,
        }
        for i, m in enumerate(messages)
    ]
    return {**HEAD, "object": "chat.completion", "choices": choices, "usage": USAGE, **top}


def plain(
    body: Any, status: int = 200, *headers: str, kind: str = "application/json"
) -> Callable[..., Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda seen, wire: wire.answer(status, raw, *RATES, *headers, content_type=kind)


def piece(delta: Any, finish: Any = None, index: int = 0, **members: Any) -> dict[str, Any]:
    return {
        **HEAD,
        "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}],
        **members,
    }


def stream(
    *chunks: Any,
    end: bytes = b"\n",
    size: int = 0,
    before: bytes = b"",
    prefix: bytes = b"data: ",
    done: bool = True,
) -> Callable[..., Any]:
    async def answer(seen: Any, wire: Any) -> None:
        lines = [
            prefix
            + (c if isinstance(c, bytes) else json.dumps(c, ensure_ascii=False).encode())
            + end * 2
            for c in [*chunks, *([b"[DONE]"] if done else [])]
        ]
        raw = before + b"".join(lines)
        await wire.start_stream(*RATES)
        for at in range(0, len(raw), size or len(raw)):
            await wire.part(raw[at : at + (size or len(raw))])
        await wire.end()

    return answer


HELLO = [
    piece({"role": "assistant", "content": ""}),
    piece({"content": "Hé \u2028 "}),
    piece({"content": "there"}),
    piece({}, "stop"),
]
TOOLS = [
    piece(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"index": 0, **WEATHER, "function": {"name": "get_weather", "arguments": ""}}
            ],
        }
    ),
    piece({"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]}),
    piece({"tool_calls": [{"index": 1, **call("other", "{}", "c2")}]}),
    piece({"tool_calls": [{"index": 0, "function": {"arguments": '":1}'}}]}),
    piece({}, "tool_calls"),
]
LANES = [
    piece({"role": "assistant", "content": ""}, index=1),
    piece({"role": "assistant", "content": "a"}),
    piece({"content": "b"}, index=1),
    piece({}, "stop"),
    piece({}, "length", 1),
]
ASKED = {"stream_options": {"include_usage": True}}
USED = {**HEAD, "choices": [], "usage": USAGE}

PLAIN: dict[str, Any] = {
    "text": plain(whole({"content": "hi"})),
    "odd bytes": plain(
        b" "
        b'{"choices":[{"message":{"content":"\\u00e9","role":"assistant"},"index":0,'
        b'"finish_reason":"stop","n":1.10}], '
        b'"a":1E2 }\n'
    ),
    "calls": plain(
        whole(
            {"content": None, "tool_calls": [WEATHER, call("other", "{", "c2")]},
            finish="tool_calls",
        )
    ),
    "several": plain(whole({"content": "a"}, {"content": "b"})),
    "refusal": plain(whole({"content": None, "refusal": "No."})),
    "reasoning": plain(
        whole(
            {
                "content": "x",
                "reasoning_content": "r",
                "reasoning_details": [{"type": "t", "signature": "s"}],
            }
        )
    ),
    "cut": plain(whole({"content": "x"}, finish="length")),
    "no usage": plain({k: v for k, v in whole({"content": "x"}).items() if k != "usage"}),
    "zero usage": plain(
        whole(
            {"content": "x"},
            usage={
                "prompt_tokens": 0,
                "completion_tokens": 0,
                "total_tokens": 0,
                "prompt_tokens_details": None,
            },
        )
    ),
    "no choices": plain(whole()),
    "empty text": plain(whole({"content": ""})),
    "audio": plain(
        whole({"content": None, "audio": {"id": "a", "data": "AA==", "transcript": "x"}})
    ),
    "unknown members": plain(whole({"content": "x", "zeta": {"b": 1.0}}, zeta=[None])),
}
ERRORS: dict[str, Any] = {
    **{
        f"error {s}": plain(
            {"error": {"message": "no", "type": "t", "param": None, "code": "c", "x": 1.0}},
            s,
            "retry-after: 7",
            "retry-after-ms: 7000",
            "x-should-retry: false",
        )
        for s in (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529)
    },
    "bare error": plain({"detail": "no"}, 422),
    "error text": plain({"error": "no"}, 500, "x-should-retry: false"),
}
STREAMS: dict[str, Any] = {
    "hello": stream(*HELLO),
    "crlf": stream(*HELLO, end=b"\r\n"),
    "cr": stream(*HELLO, end=b"\r"),
    "byte by byte": stream(*HELLO, size=1),
    "sevens": stream(*HELLO, end=b"\r\n", size=7),
    "no space": stream(*HELLO, prefix=b"data:"),
    "comments": stream(*HELLO, before=b": OPENROUTER PROCESSING\n\n"),
    "bom": stream(*HELLO, before=b"\xef\xbb\xbf"),
    "event lines": stream(*HELLO, prefix=b"event: message\nid: 5\nretry: 10\ndata: "),
    "calls": stream(*TOOLS),
    "lanes": stream(*LANES),
    "reasoning": stream(
        piece({"role": "assistant", "reasoning_content": "hm", "reasoning": None}), *HELLO[1:]
    ),
    "refusal": stream(piece({"role": "assistant", "refusal": "No"}), piece({}, "content_filter")),
    "unknown members": stream(
        piece({"role": "assistant", "content": "x", "zeta": [1.0]}, zeta={"b": None}),
        piece({}, "stop"),
    ),
    "error inside": stream(
        *HELLO[:2],
        {"error": {"message": "overloaded", "type": "server_error", "code": 503}},
        done=False,
    ),
    "zero chunk": stream({**HEAD, "choices": [], "prompt_filter_results": []}, *HELLO),
}
USAGES: dict[str, Any] = {
    "usage": stream(*HELLO, USED),
    "usage and nulls": stream(*({**c, "usage": None} for c in HELLO), USED),
    "zeros": stream(*HELLO, {**USED, "usage": {"prompt_tokens": 0, "total_tokens": 0}}),
}
# Where the gateway answers otherwise than the upstream, off or on: PRODUCT.md, Errors, and WIRE.md
# 30, 39, 40, 91.
PAGE = plain(b"<html><h1>Bad gateway</h1></html>", 502, "x-should-retry: false", kind="text/html")
OTHERWISE: dict[str, tuple[Any, bool, int, str]] = {
    "html error": (PAGE, False, 502, "upstream_error"),
    "redirect": (
        plain(b"", 302, "location: http://127.0.0.1:9/"),
        False,
        502,
        "upstream_unreachable",
    ),
    "empty error": (plain(b"", 500, "x-should-retry: false"), True, 500, "upstream_error"),
    "cut stream": (stream(*HELLO[:2], done=False), True, 200, "stream_incomplete"),
}
# With memory on an event stream of one round differs in its framing alone: each event is one
# `data:` shared. No chunk differs.
CASES = [
    *((k, v, {}) for k, v in PLAIN.items()),
    *((k, v, {}) for k, v in ERRORS.items()),
    *((k, v, {"stream": True}) for k, v in {**STREAMS, **ERRORS}.items()),
    *((k, v, {"stream": True, **ASKED}) for k, v in USAGES.items()),
]


def relevant(response: Any) -> dict[str, str]:
    drop = (
        CONNECTION
        | OURS
        | (STREAMING if "event-stream" in response.headers["content-type"] else set())
    )
    return {k: v for k, v in response.headers.items() if k not in drop}


async def both(shared: Any, answer: Any, mode: str, more: dict[str, Any]) -> tuple[Any, Any]:
    shared.up.script = [answer]
    sent = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}
    ).encode()
    direct = await shared.live.http.post(f"{shared.up.url}/chat/completions", content=sent)
    return direct, await shared.post(sent, mode)


@row(3, 141)
@pytest.mark.parametrize(("name", "answer", "more"), CASES, ids=itertools.count())
async def test_with_memory_off_nothing_differs(shared, name, answer, more):
    direct, through = await both(shared, answer, "off", more)
    assert (through.status_code, through.content) == (direct.status_code, direct.content), name
    headers = {k: v for k, v in relevant(direct).items() if k != "x-hop"}
    assert relevant(through) == headers, name
    assert shared.up.requests[-1].body == shared.up.requests[-2].body


@row(21, 77, 82)
@pytest.mark.parametrize(("name", "answer", "more"), CASES, ids=itertools.count())
async def test_with_memory_on_only_the_framing_differs(shared, name, answer, more):
    direct, through = await both(shared, answer, "full", more)
    assert through.status_code == direct.status_code, name
    if "event-stream" not in direct.headers["content-type"]:
        assert through.content == direct.content
        assert relevant(through) == {k: v for k, v in relevant(direct).items() if k != "x-hop"}
        return
    shown = [json.loads(d) if d != "[DONE]" else d for d in data_of(direct.content)]
    assert json.dumps(events(through.text)) == json.dumps(shown), name
    # One way of framing, whatever came.
    assert through.text == "".join(f"data: {line}\n\n" for line in data_of(through.content))
    assert {**relevant(through), "content-type": ""} == {
        **{k: v for k, v in relevant(direct).items() if k != "x-hop"},
        "content-type": "",
    }


def data_of(raw: bytes) -> list[str]:
    """The data of each event, by the book."""
    text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    blocks = [
        [x[5:].removeprefix(" ") for x in b.split("\n") if x.startswith("data:")]
        for b in text.split("\n\n")
    ]
    return ["\n".join(b) for b in blocks if b]


@row(30, 40, 91)
@pytest.mark.parametrize("mode", ["off", "full"])
@pytest.mark.parametrize("name", OTHERWISE)
async def test_what_is_answered_otherwise_is_written_down(shared, mode, name):
    answer, streamed, status, code = OTHERWISE[name]
    direct, through = await both(shared, answer, mode, {"stream": streamed})
    assert through.status_code == status
    error = events(through.text)[-1]["error"] if status == 200 else through.json()["error"]
    assert error["code"] == code
    if status == 200:
        assert through.text.startswith(direct.text)

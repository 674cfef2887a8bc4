"""A client of the Messages API that is as strict as its SDKs, and the bodies that it sends."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from memory.core.tool_definitions import OURS
from tests.conftest import Live
from tests.wire_models import use

Json = dict[str, Any]
# Each key is a tenant, which may look at its memory.
OWN = {"server.single_user": False}
TEA = {"label": "human", "content": "Likes tea."}
REMEMBER = use("core_memory_append", TEA)
WEATHER = {
    "name": "weather",
    "description": "The weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
MARK = {"cache_control": {"type": "ephemeral"}}
GROWS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


@dataclass
class Answer:
    """What a client was told. message: the whole one, however it came."""

    response: httpx.Response
    message: Json
    events: list[Json] = field(default_factory=list)

    @property
    def content(self) -> list[Json]:
        return self.message["content"]

    @property
    def text(self) -> str:
        return "".join(b["text"] for b in self.content if b["type"] == "text")

    @property
    def kinds(self) -> list[str]:
        return [b["type"] for b in self.content]


async def ask(
    live: Live,
    messages: Any,
    *,
    stream: bool,
    headers: dict[str, str] | None = None,
    path: str = "/messages",
    **body: Any,
) -> Answer:
    """The answer to a request, which must be one."""
    sent = request(messages, stream=stream, **body)
    response = await live.http.post(live.url + path, json=sent, headers=headers or {})
    assert response.status_code == 200, response.text
    shows_nothing_owned(response)
    if not stream:
        return Answer(response, response.json())
    events = events_of(response.text)
    return Answer(response, fold(events), events)


def request(messages: Any, *, stream: bool, **body: Any) -> Json:
    if isinstance(messages, str):
        messages = [user(messages)]
    members = {"model": "m", "max_tokens": 99, "metadata": {"user_id": "ada"}, **body}
    return {**members, "messages": messages, "stream": stream}


def events_of(text: str) -> list[Json]:
    """The events of a stream, each with a line that says its type."""
    out = []
    for part in text.split("\n\n"):
        if not part.strip() or part.startswith(":"):
            continue
        name, data = part.split("\n", 1)
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}", part
        out.append(event)
    return out


def fold(events: list[Json]) -> Json:
    """The message that a stream tells. Its events stand in the order that the API promises."""
    told = [e for e in copy.deepcopy(events) if e["type"] != "ping"]
    message: Json = told[0]["message"]
    assert told[0]["type"] == "message_start"
    assert message["content"] == []
    at, inputs, signed = 1, "", False
    while told[at]["type"] == "content_block_start":
        block = told[at]["content_block"]
        index = len(message["content"])
        assert told[at]["index"] == index, "the indexes have a gap"
        inputs, signed = "", False
        for event in told[at + 1 :]:
            at += 1
            assert event["index"] == index, event
            if event["type"] == "content_block_stop":
                break
            assert event["type"] == "content_block_delta", event
            assert not signed, "something follows a signature"
            delta = event["delta"]
            signed = delta["type"] == "signature_delta"
            if delta["type"] == "input_json_delta":
                inputs += delta["partial_json"]
            elif delta["type"] == "citations_delta":
                block["citations"].append(delta["citation"])
            elif member := GROWS.get(delta["type"]):
                block[member] += delta[member]
            else:
                block |= {k: v for k, v in delta.items() if k != "type"}
        if inputs:
            block["input"] = json.loads(inputs)
        message["content"].append(block)
        at += 1
    assert [e["type"] for e in told[at:]] == ["message_delta", "message_stop"], told[at:]
    usage = {**message["usage"], **told[at]["usage"]}
    return {**message, **told[at]["delta"], "usage": usage}


def shows_nothing_owned(response: httpx.Response) -> None:
    said = response.text + str(response.headers)
    assert not [name for name in OURS if name in said], "a call of ours was seen"
    assert "Saved:" not in said, "a result of ours was seen"


def user(*content: Any) -> Json:
    if len(content) == 1 and isinstance(content[0], str):
        return {"role": "user", "content": content[0]}
    blocks = [text(c) if isinstance(c, str) else c for c in content]
    return {"role": "user", "content": blocks}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def result(call: Json | str, content: str = "4 degrees", **more: Any) -> Json:
    ident = call if isinstance(call, str) else call["id"]
    return {"type": "tool_result", "tool_use_id": ident, "content": content, **more}


def said(answer: Answer) -> Json:
    return {"role": "assistant", "content": answer.content}


def marks(body: Any) -> int:
    return json.dumps(body).count('"cache_control"')


def unmarked(value: Any) -> Any:
    """The same without cache marks."""
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [unmarked(v) for v in value] if isinstance(value, list) else value


def ours_of(body: Json) -> list[str]:
    """The tools of ours that a request offers."""
    return [t["name"] for t in body.get("tools") or () if t["name"] in OURS]


def text_in(body: Json) -> str:
    return json.dumps(body, ensure_ascii=False)

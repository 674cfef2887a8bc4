"""How the tests of `/v1/responses` ask, and what they read."""

from __future__ import annotations

from tests.wire_models import sse

FACT = {"label": "human", "content": "Likes tea"}
APPEND = "core_memory_append"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}


def user(text):
    return {"role": "user", "content": text}


async def ask(live, items, *, headers=None, stream=False, **body):
    """Return the response object that a client ends up with, and the events of a stream."""
    sent = {"model": "m", "input": items, "user": "ada", **body}
    if stream:
        sent["stream"] = True
    http = await live.http.post(f"{live.url}/responses", json=sent, headers=headers or {})
    assert http.status_code == 200, http.text
    if not stream:
        return http.json(), []
    events = sse(http.text)
    return events[-1]["response"], events


def texts(response):
    """The texts of a response's messages."""
    return [
        p["text"]
        for item in response["output"]
        if item["type"] == "message"
        for p in item["content"]
    ]


def kinds(items):
    return [i.get("type", "message") for i in items]


def names(body):
    return [t.get("name") for t in body.get("tools") or ()]


def check_stream(events):
    """The rules that every stream of the API keeps."""
    found = [e["type"] for e in events]
    assert found.count("response.created") == 1
    assert found.count("response.in_progress") <= 1
    ends = [t for t in found if t in TERMINAL]
    assert len(ends) == 1
    assert found[-1] in TERMINAL
    numbers = [e["sequence_number"] for e in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    check_nesting(events)
    heads = [e["response"] for e in events if "response" in e]
    assert len({(h["id"], h["model"], h["created_at"]) for h in heads}) == 1
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done


def check_nesting(events):
    """Items open in order without gaps; what belongs to one lies between its ends."""
    open_items, seen = set(), 0
    for e in events:
        index = e.get("output_index")
        if e["type"] == "response.output_item.added":
            assert index == seen
            seen += 1
            open_items.add(index)
            if e["item"]["type"] == "message":
                assert e["item"]["content"] == []
        elif e["type"] == "response.output_item.done":
            open_items.remove(index)
        elif index is not None:
            assert index in open_items
    assert not open_items


TERMINAL = (
    "response.completed",
    "response.incomplete",
    "response.failed",
)

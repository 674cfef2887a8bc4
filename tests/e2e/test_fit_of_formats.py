"""Context fit of requests of the Responses and the Messages API: the oldest is summarised, calls
keep their results, and who keeps the context small by other means is left alone.
"""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.models import Model
from tests.wire_models import MessagesModel, ResponsesModel

WINDOW = 4000
ADA = {"x-memory-user": "ada"}
WORDS, ROWS = "some words about nothing " * 12, "result row " * 150


def summing(seen, wire):
    return "SUMMARY of what was said"


def config(up, other, *, stateful=True, **more):
    targets = [{"provider": "openai", "stateful": stateful}]
    models = {
        "m": {"targets": targets, "context_window": WINDOW},
        "s": {"targets": [{"provider": "sum"}]},
    }
    servers = {"providers.openai.base_url": up.url, "providers.sum.base_url": other.url}
    return {"models": models, "memory.summarizer": "s", **servers, **more}


def items(turns):
    out = []
    for i in range(turns):
        call = {"type": "function_call", "call_id": f"c{i}", "name": "look", "arguments": "{}"}
        out += [
            {"role": "user", "content": f"question {i}: {WORDS}"},
            {"type": "reasoning", "id": f"rs_{i}", "summary": [], "encrypted_content": "e"},
            call,
            {"type": "function_call_output", "call_id": f"c{i}", "output": ROWS},
            {"role": "assistant", "content": f"reply {i}: {WORDS}"},
        ]
    return [*out, {"role": "user", "content": "and now?"}]


def messages(turns):
    """Each message of the user begins with the result that was asked for before it."""
    out, result = [], []
    for i in range(turns):
        words = {"type": "text", "text": f"question {i}: {WORDS}"}
        call = {"type": "tool_use", "id": f"c{i}", "name": "look", "input": {}}
        said = {"type": "text", "text": f"reply {i}: {WORDS}"}
        out += [
            {"role": "user", "content": [*result, words]},
            {"role": "assistant", "content": [said, call]},
        ]
        result = [{"type": "tool_result", "tool_use_id": f"c{i}", "content": ROWS}]
    return [*out, {"role": "user", "content": [*result, {"type": "text", "text": "and now?"}]}]


def asked_of(wire, turns):
    """The path, and a request of so many turns."""
    if wire == "responses":
        return "responses", {"model": "m", "input": items(turns), "store": False}
    look = {"name": "look", "input_schema": {"type": "object"}}
    return "messages", {
        "model": "m",
        "max_tokens": 200,
        "tools": [look],
        "messages": messages(turns),
    }


def speaking(wire):
    if wire == "responses":
        return ResponsesModel("Fine."), {"providers.openai.wires": ["responses"]}
    return MessagesModel("Fine."), {"providers.openai.kind": "anthropic"}


WIRES = pytest.mark.parametrize("wire", ["responses", "messages"])


@WIRES
async def test_over_the_window_the_oldest_is_summarised_and_the_newest_stays(data, wire):
    double, more = speaking(wire)
    async with (
        Model(summing) as other,
        double as up,
        running(up.url, data, config(up, other, **more)) as live,
    ):
        path, body = asked_of(wire, 30)
        answer = await live.http.post(f"{live.url}/{path}", json=body, headers=ADA)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-memory-status"] == "ok"
        sent = up.bodies[-1]
        told = json.dumps(sent)
        assert len(told) < 4 * WINDOW
        assert "SUMMARY of what was said" in str(sent.get("instructions") or sent.get("system"))
        assert "question 0:" not in told
        assert "and now?" in told
        first = (sent.get("input") or sent["messages"])[0]
        assert first["role"] == "user"


@WIRES
async def test_within_the_window_everything_is_sent_as_it_came(data, wire):
    double, more = speaking(wire)
    async with (
        Model(summing) as other,
        double as up,
        running(up.url, data, config(up, other, **more)) as live,
    ):
        path, body = asked_of(wire, 2)
        answer = await live.http.post(f"{live.url}/{path}", json=body, headers=ADA)
        assert answer.status_code == 200, answer.text
        member = "input" if wire == "responses" else "messages"
        assert len(up.bodies[-1][member]) == len(body[member])
        assert not other.bodies


@pytest.mark.parametrize(
    ("wire", "more"),
    [
        ("responses", {"truncation": "auto"}),
        ("responses", {"context_management": [{"type": "compaction", "compact_threshold": 9000}]}),
        ("messages", {"context_management": {"edits": []}}),
    ],
)
async def test_who_manages_the_context_elsewhere_is_left_alone(data, wire, more):
    double, kind = speaking(wire)
    async with (
        Model(summing) as other,
        double as up,
        running(up.url, data, config(up, other, **kind)) as live,
    ):
        path, body = asked_of(wire, 30)
        answer = await live.http.post(f"{live.url}/{path}", json=body | more, headers=ADA)
        assert answer.status_code == 200, answer.text
        member = "input" if wire == "responses" else "messages"
        assert len(up.bodies[-1][member]) == len(body[member])


async def test_a_chain_that_is_kept_here_is_summarised_too(data):
    async with (
        Model(summing) as other,
        ResponsesModel(lambda seen, wire: f"Reply about {WORDS}") as up,
        running(up.url, data, config(up, other, stateful=False)) as live,
    ):
        before = {}
        for i in range(16):
            body = {"model": "m", "input": f"question {i}: {WORDS * 2}", **before}
            answer = await live.http.post(f"{live.url}/responses", json=body, headers=ADA)
            assert answer.status_code == 200, answer.text
            before = {"previous_response_id": answer.json()["id"]}
        told = json.dumps(up.bodies[-1])
        assert len(told) < 4 * WINDOW
        assert "conversation_summary" in told
        assert "question 0:" not in told
        assert "question 15:" in told


@WIRES
async def test_the_next_turn_goes_on_from_the_same_cut(data, wire):
    double, more = speaking(wire)
    async with (
        Model(summing) as other,
        double as up,
        running(up.url, data, config(up, other, **more)) as live,
    ):
        path, body = asked_of(wire, 30)
        member = "input" if wire == "responses" else "messages"
        for said in ("and now?", "and then?"):
            answer = await live.http.post(f"{live.url}/{path}", json=body, headers=ADA)
            assert answer.status_code == 200, said
            body[member] = [
                *body[member],
                {"role": "assistant", "content": "Fine."},
                {"role": "user", "content": "and then?"},
            ]
        one, two = (json.dumps(b[member]) for b in up.bodies[-2:])
        assert two.startswith(one[:-1].rstrip("]")[:2000])
        assert len(other.bodies) >= 1

"""Context fit of requests of the Responses and the Messages API: the oldest is summarised, calls
keep their results, and who keeps the context small by other means is left alone.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.conftest import Live, running
from tests.models import Model
from tests.wire_models import MessagesModel, ResponsesModel, WireModel

WINDOW = 4000
ADA = {"x-memory-user": "ada"}
WORDS, ROWS = "some words about nothing " * 12, "result row " * 150


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
    """A request of so many turns."""
    if wire == "responses":
        return {"model": "m", "input": items(turns), "store": False}
    look = {"name": "look", "input_schema": {"type": "object"}}
    return {"model": "m", "max_tokens": 200, "tools": [look], "messages": messages(turns)}


# That holds the conversation.
MEMBER = {"responses": "input", "messages": "messages"}
WIRES = pytest.mark.parametrize("wire", list(MEMBER))


@dataclass
class Setup:
    """A gateway before a server of the format, and what makes summaries."""

    wire: str
    live: Live
    up: WireModel
    other: Model

    async def ask(self, body):
        """Send a request; return the one that reached the server."""
        http = await self.live.http.post(f"{self.live.url}/{self.wire}", json=body, headers=ADA)
        assert http.status_code == 200, http.text
        assert http.headers["x-memory-status"] == "ok"
        self.answer = http.json()
        return self.up.bodies[-1]


@asynccontextmanager
async def opened(data, wire, reply="Fine.", **options):
    if wire == "responses":
        double, kind = ResponsesModel(reply), {"providers.openai.wires": ["responses"]}
    else:
        double, kind = MessagesModel(reply), {"providers.openai.kind": "anthropic"}
    async with (
        Model(lambda seen, wire: "SUMMARY of what was said") as other,
        double as up,
        running(up.url, data, config(up, other, **kind, **options)) as live,
    ):
        yield Setup(wire, live, up, other)


@WIRES
async def test_over_the_window_the_oldest_is_summarised_and_the_newest_stays(data, wire):
    async with opened(data, wire) as setup:
        sent = await setup.ask(asked_of(wire, 30))
        told = json.dumps(sent)
        assert len(told) < 4 * WINDOW
        assert "SUMMARY of what was said" in str(sent.get("instructions") or sent.get("system"))
        assert "question 0:" not in told
        assert "and now?" in told
        assert sent[MEMBER[wire]][0]["role"] == "user"


@WIRES
async def test_within_the_window_everything_is_sent_as_it_came(data, wire):
    async with opened(data, wire) as setup:
        body = asked_of(wire, 2)
        assert (await setup.ask(body))[MEMBER[wire]] == body[MEMBER[wire]]
        assert not setup.other.bodies


@pytest.mark.parametrize(
    ("wire", "more"),
    [
        ("responses", {"truncation": "auto"}),
        ("responses", {"context_management": [{"type": "compaction", "compact_threshold": 9000}]}),
        ("messages", {"context_management": {"edits": []}}),
    ],
)
async def test_who_manages_the_context_elsewhere_is_left_alone(data, wire, more):
    async with opened(data, wire) as setup:
        body = asked_of(wire, 30) | more
        assert (await setup.ask(body))[MEMBER[wire]] == body[MEMBER[wire]]


async def test_a_chain_that_is_kept_here_is_summarised_too(data):
    reply = f"Reply about {WORDS}"
    async with opened(data, "responses", lambda seen, wire: reply, stateful=False) as setup:
        before = {}
        for i in range(16):
            body = {"model": "m", "input": f"question {i}: {WORDS * 2}", **before}
            told = json.dumps(await setup.ask(body))
            before = {"previous_response_id": setup.answer["id"]}
        assert len(told) < 4 * WINDOW
        assert "conversation_summary" in told
        assert "question 0:" not in told
        assert "question 15:" in told


@WIRES
async def test_the_next_turn_goes_on_from_the_same_cut(data, wire):
    async with opened(data, wire) as setup:
        body = asked_of(wire, 30)
        first = (await setup.ask(body))[MEMBER[wire]]
        summaries = len(setup.other.bodies)
        said = {"role": "assistant", "content": "Fine."}
        then = {"role": "user", "content": "and then?"}
        longer = [*body[MEMBER[wire]], said, then]
        second = await setup.ask(body | {MEMBER[wire]: longer})
        assert second[MEMBER[wire]] == [*first, said, then]
        assert len(setup.other.bodies) == summaries

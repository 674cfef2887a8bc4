"""An upstream and a session for unit tests of the turn: both do what a test says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace

from gateway.apis.chat.chat_format import CHAT
from gateway.errors import UpstreamRefused
from gateway.wire.chat import chunk, encode, lift
from gateway.wire.sse import SseFramer
from memory.session.composer import Composer
from memory.session.store_deadline import StoreDeadline
from memory.session.trace import ExplainTrace
from tests.memory.session.turns import a_turn

TARGET = SimpleNamespace(label="a/m", supports_images=True)
APPEND = "core_memory_append"


def call(name, ident="call_1", arguments="{}"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(text=None, *calls, finish=None, usage=None):
    """A whole completion."""
    message = {
        "role": "assistant",
        "content": text,
        **({"tool_calls": list(calls)} if calls else {}),
    }
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
    }
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage or {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11},
    }


def refusal(status, text="no"):
    return UpstreamRefused(status, encode({"error": {"message": text, "type": "x"}}), [])


TOO_LONG = "This model's maximum context length is 100 tokens"


class Incoming:
    def __init__(self):
        self.closed, self.body, self.carriage = False, None, None

    async def close(self):
        self.closed = True


class FakeDispatcher:
    """An upstream that answers by script, one a call.

    asked: the bodies it got. another, frozen: what it was told of each.
    """

    wire = CHAT
    route = SimpleNamespace(targets=(TARGET,))

    def __init__(self, *script, served=TARGET, among_many=False):
        self.script, self.served, self.among_many = list(script), served, among_many
        self.asked, self.another, self.frozen, self.alias = [], [], [], None
        self.meter = SimpleNamespace(record_usage=lambda usage: None)

    async def complete(self, compose, *, another=False, frozen=False):
        body, *_ = compose(TARGET)
        self.asked.append(body)
        self.another.append(another)
        self.frozen.append(frozen)
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(
            target=TARGET,
            headers=[],
            incoming=Incoming(),
            framer=SseFramer(),
            events=[],
            chunk=chunk(lift(found), b""),
            plain=encode(found),
            messages=[],
        )

    async def report_broken_stream(self, error):
        return


@dataclass
class FakeSession:
    """A session that keeps what it is told.

    shrinks: how often its prompt can be cut. opening: what opening does. keeps: whether it records.
    """

    prompt: object = None
    rounds: list = field(default_factory=list)
    shrinks: int = 0
    keeps: bool = True
    can_defer_opening: bool = True
    is_proven: bool = True
    unsaved: bool = False
    refused_tokens: int = 0
    opening: object = None
    log: list = field(default_factory=list)
    ran: list = field(default_factory=list)
    outcome: object = None
    exits: object = None
    sent_to: list = field(default_factory=list)

    def __post_init__(self):
        self.trace, self.patience = ExplainTrace(), StoreDeadline(10.0)

    async def wait_for_opening(self, opening, patience):
        with self.patience.of(patience) as seconds:
            await asyncio.wait([opening], timeout=seconds)

    async def open(self):
        self.log.append("open")
        if self.opening is not None:
            await self.opening()
        self.log.append("opened")

    async def run(self, calls, reply):
        self.ran.append([c.name for c in calls])
        results = [f"Saved {c.id}." for c in calls]
        self.rounds.append({"reply": reply, "results": results})
        return results

    async def compact_harder(self, attempt, told=None):
        self.log.append(f"compact {attempt}")
        return attempt < self.shrinks

    def inject_nothing(self):
        self.log.append("inject nothing")
        self.prompt = self.prompt.without_memory()

    def remember_sent_prompt(self, target, pieces):
        self.sent_to.append(target)

    request_bytes = 0

    async def calibrate_token_counter(self, usage, *, proven=False):
        self.log.append("calibrate")

    async def finish(self, outcome):
        self.log.append("finish")
        self.outcome = outcome
        return self.keeps

    async def fail(self):
        self.log.append("fail")

    async def drop_all(self):
        self.log.append("drop")

    async def proven(self):
        return self.is_proven


def a_session(messages=None, *, asked=None, **members):
    """A session whose prompt was composed for these messages."""
    prompt = asyncio.run(Composer(a_turn(messages, **(asked or {}))).compose())
    return FakeSession(prompt=prompt, **members)

"""Apps that talk at random in the Responses and the Messages API: they ask, ask again, edit and
trim what they send, run a tool of their own, and stream half of the time.
"""

from __future__ import annotations

import copy
import json
import random
import re

from memory.core.tool_definitions import OURS
from tests.e2e.messages.client import ask as ask_messages
from tests.e2e.responses.asking import ask as ask_responses
from tests.e2e.responses.asking import check_stream
from tests.wire_models import say, think, use

NUMBERED = re.compile(r"question \d+\b")
APPEND, LOOK = "core_memory_append", "look"
SCHEMA = {"type": "object", "properties": {}}
USUAL = ["ask"] * 20 + ["again"]


def numbers_in(value):
    return {*NUMBERED.findall(value if isinstance(value, str) else json.dumps(value))}


def summarise(seen, wire):
    asked = numbers_in(seen.json["messages"][1:])
    return "SUMMARY of " + ", ".join(sorted(asked, key=lambda q: int(q.split()[1])))


def random_answers(seed, *, thinks):
    """A model that talks, thinks, remembers and calls the app's tool, in any mixture."""
    count = 0

    def answer(seen, wire):
        nonlocal count
        count += 1
        rng, tools = random.Random(f"{seed} {count}"), json.dumps(seen.json.get("tools") or [])
        parts = [think(f"Hm {rng.random()}")] if thinks and rng.random() < 0.3 else []
        if rng.random() < 0.6:
            parts.append(say(f"answer {rng.random()} " + "and so on " * rng.randrange(40)))
        if APPEND in tools and rng.random() < 0.2:
            parts.append(use(APPEND, {"label": "human", "content": f"fact {rng.random()}"}))
        if f'"{LOOK}"' in tools and rng.random() < 0.3:
            parts.append(use(LOOK, {"q": rng.random()}))
        return parts if any(p.kind != "think" for p in parts) else [*parts, say("Well.")]

    return answer


class App:
    """What they share. asked: the numbers of the questions that a request stands on."""

    can = USUAL

    def __init__(self, seed):
        self.rng, self.live, self.turns = random.Random(seed), None, 0

    @property
    def asked(self):
        return numbers_in(self.said)

    async def turn(self):
        self.begin(self.rng.choice(self.can))
        self.turns += 1
        while calls := await self.ask():
            # No memory call is seen.
            assert not {*calls} & OURS
        return self.asked

    def begin(self, what):
        """Change what was said, and ask."""
        own = [i for i, m in enumerate(self.said) if self.is_question(m)]
        if what == "again" and own:
            del self.said[own[-1] + 1 :]
            return
        if what == "trim" and own:
            del self.said[: self.rng.choice(own)]
        elif what == "edit" and own:
            self.said[self.rng.choice(own)] = {"role": "user", "content": f"edited {self.turns}"}
        self.said.append({"role": "user", "content": self.words()})

    def words(self):
        return f"question {self.turns} " + "some words " * self.rng.randrange(80)

    def rows(self):
        return "rows " * self.rng.randrange(600)

    def is_question(self, message):
        return message.get("role") == "user"


class ResponsesApp(App):
    """Resends all items."""

    can = [*USUAL, "trim", "edit"]
    tool = {"type": "function", "name": LOOK, "parameters": SCHEMA}

    def __init__(self, seed):
        super().__init__(seed)
        self.said = []

    async def send(self, items, **members):
        stream = self.rng.random() < 0.5
        response, events = await ask_responses(
            self.live, items, stream=stream, tools=[self.tool], **members
        )
        if stream:
            check_stream(events)
        return response

    def outputs(self, response):
        return [
            {"type": "function_call_output", "call_id": item["call_id"], "output": self.rows()}
            for item in response["output"]
            if item["type"] == "function_call"
        ]

    async def ask(self):
        more = {"store": False, "include": ["reasoning.encrypted_content"]}
        response = await self.send(self.said, **more)
        found = self.outputs(response)
        self.said += [*response["output"], *found]
        return [i["name"] for i in response["output"] if i["type"] == "function_call"]


class ChainApp(ResponsesApp):
    """Sends what is new, and goes on from a response: mostly the last, at times an older one."""

    can = [*USUAL, "fork"]

    def __init__(self, seed):
        super().__init__(seed)
        # Ids of finished turns, with what was asked up to there, and their items.
        self.links = []

    def begin(self, what):
        if what == "fork" and self.links:
            del self.links[self.rng.randrange(len(self.links)) :]
        last = self.links.pop() if what == "again" and self.links else None
        self.items = last[2] if last else [{"role": "user", "content": self.words()}]
        self.first = self.items
        before = self.links[-1] if self.links else (None, set(), [])
        self.before, self.said = before[0], [*before[1], *numbers_in(self.items)]

    async def ask(self):
        goes_on = {"previous_response_id": self.before} if self.before else {}
        response = await self.send(self.items, **goes_on)
        self.before, self.items = response["id"], self.outputs(response)
        if not self.items:
            self.links.append((self.before, {*self.said}, self.first))
        return [i["name"] for i in response["output"] if i["type"] == "function_call"]


class MessagesApp(App):
    """Resends all messages."""

    can = [*USUAL, "trim", "edit"]
    tool = {"name": LOOK, "input_schema": SCHEMA}

    def __init__(self, seed):
        super().__init__(seed)
        self.said = []

    def is_question(self, message):
        return message["role"] == "user" and isinstance(message["content"], str)

    async def ask(self):
        stream, said = self.rng.random() < 0.5, copy.deepcopy(self.said)
        answer = await ask_messages(
            self.live, said, stream=stream, tools=[self.tool], max_tokens=200
        )
        self.said.append({"role": "assistant", "content": answer.content})
        calls = [b for b in answer.content if b["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": c["id"], "content": self.rows()} for c in calls
        ]
        if results:
            self.said.append({"role": "user", "content": results})
        return [c["name"] for c in calls]

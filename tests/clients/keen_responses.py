"""A strict Responses server whose model uses its memory at every turn it can."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tests.wire_models import Part, ResponsesModel, say, think, use

APPEND = "core_memory_append"
FACT = {"label": "human", "content": "Likes tea"}


class KeenResponses(ResponsesModel):
    """Tea is kept when it is told, and told when it is asked for; the weather is a tool's.

    tool: the call of the app's own that gives the weather.
    """

    def __init__(self, tool: Part | None = None) -> None:
        super().__init__(self.behave)
        self.tool = tool or use("get_weather", {"city": "Oslo"})

    async def behave(self, seen: Any, wire: Any) -> Any:
        body = seen.json
        items = body.get("input")
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        before = self.stored.get(str(body.get("previous_response_id")), [])
        items = [*before, *items]
        if body.get("tools") == [] and "summary" in json.dumps(items[-1]):
            return [say("The user likes tea. Nothing is left to do.")]
        told = json.dumps(items[_opener(items) :])
        if "Break off" in told:
            return await self.break_off(body, wire)
        done = [i["output"] for i in items[_opener(items) :] if "output" in i]
        tools = {t.get("name") for t in body.get("tools") or ()}
        if "I like tea" in told:
            if APPEND in tools and not done:
                return [think(), say("One moment."), use(APPEND, FACT)]
            return [think(), say("Hello, Ada.")]
        if "weather" in told:
            if done:
                return [think(), say("Rain.")]
            memory = [use("conversation_search", {"query": "weather"})] * (APPEND in tools)
            return [think(), *memory, self.tool]
        knows = "Likes tea" in json.dumps([body.get("instructions"), items])
        return [say("You like tea." if knows else "I do not know.")]

    async def break_off(self, body: Any, wire: Any) -> Any:
        """Begin an answer, and end the stream without having finished it."""
        reply = self.reply([say("One two three.")], body)
        await wire.start_stream()
        for event in itertools.islice(self.events(reply), 5):
            await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await wire.end()


def _opener(items: list[Any]) -> int:
    """Where the newest user message stands."""
    users = [i for i, item in enumerate(items) if item.get("role") == "user"]
    return users[-1] if users else 0

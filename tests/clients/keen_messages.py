"""A model of the Messages API that uses its memory at every turn: alone, before its answer, and
between the app's own calls.

It answers the prompts of `prompts.json`, by the newest user message that holds one. Offered no
memory tools, it answers without them. Bodies that the API would refuse fail the test.
"""

from __future__ import annotations

import json
import re
from typing import Any

from memory.core.tool_definitions import OURS
from tests.clients.keen import PROMPTS
from tests.sockets import Seen, Wire
from tests.wire_models import Json, MessagesModel, say, think, use

TEA = use("core_memory_append", {"label": "human", "content": "Likes tea"})
PASSAGE = use("archival_memory_insert", {"content": "Asks about Oslo"})
TOO_LONG = {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}
# The first, or that behind a T.
NUMBER = re.compile(r"^\D*(?:\d+.*T)?(\d+)")
LIMITED = {"type": "rate_limit_error", "message": "Slow down."}


class KeenMessages(MessagesModel):
    """See the module. tools: calls of the app's own that the prompt `weather` comes to."""

    def __init__(self, *tools: Any) -> None:
        super().__init__(self.answer)
        self.tools = tools or tuple(use("get_weather", {"city": c}) for c in ("Oslo", "Bergen"))

    async def answer(self, seen: Seen, wire: Wire) -> Any:
        messages = seen.json["messages"]
        newest, asked = next(
            ((i, name) for i in reversed(range(len(messages))) if (name := prompt_in(messages[i]))),
            (0, ""),
        )
        since = [b for m in messages[newest + 1 :] if m["role"] != "system" for b in blocks_of(m)]
        found = getattr(self, asked or "hello")(seen.json, since)
        if asked == "cut":
            return await self.break_off(seen.json, wire)
        return found

    def hello(self, body: Json, since: list[Json]) -> Any:
        if remembers(body) and not since:
            return [think("To be kept."), say("One moment. "), TEA]
        return [think("Well."), say("Hello, Ada.")]

    def likes(self, body: Json, since: list[Json]) -> Any:
        knows = "Likes tea" in json.dumps([body.get("system"), body["messages"]])
        return [think("Hm."), say("You like tea." if knows else "I do not know.")]

    def weather(self, body: Json, since: list[Json]) -> Any:
        """Calls of the app's with one of ours between; what they gave; a look for more before."""
        results = [b for b in since if b["type"] == "tool_result"]
        ours = [b["id"] for b in since if b["type"] == "tool_use" and b["name"] in OURS]
        theirs = [b for b in results if b["tool_use_id"] not in ours]
        if not theirs:
            between = [PASSAGE] if remembers(body) else []
            return [think("Look."), self.tools[0], *between, *self.tools[1:]]
        if remembers(body) and len(ours) < 2:
            return [think("More?"), use("conversation_search", {"query": "Oslo"})]
        told = [NUMBER.search(json.dumps(b["content"])) for b in theirs]
        return [think("So."), say(" and ".join(m[1] for m in told if m) + ".")]

    def cut(self, body: Json, since: list[Json]) -> None:
        """Nothing: see `break_off`."""

    def too_long(self, body: Json, since: list[Json]) -> Any:
        return 400, {"type": "error", "error": TOO_LONG}

    def limited(self, body: Json, since: list[Json]) -> Any:
        return 429, {"type": "error", "error": LIMITED}, "x-should-retry: false"

    async def break_off(self, body: Json, wire: Wire) -> Any:
        """Begin a stream, and end it in good order without having finished.

        Who asks again without a stream is answered.
        """
        if not body.get("stream"):
            return [say("One two three.")]
        events = list(self.events(self.reply([say("One two three.")], body)))
        await wire.start_stream()
        for event in events[:5]:
            await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await wire.end()
        return None


def remembers(body: Json) -> bool:
    return any(t["name"] in OURS for t in body.get("tools") or ())


def blocks_of(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def prompt_in(message: Json) -> str | None:
    """The prompt that a user message holds."""
    if message["role"] != "user":
        return None
    said = [b["text"] for b in blocks_of(message) if b["type"] == "text"]
    return next((n for n, p in PROMPTS.items() if any(p in words for words in said)), None)

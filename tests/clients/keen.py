"""A model that uses its memory at every turn: alone, before its answer, and between the app's own
calls.

It answers the prompts of `prompts.json`, by the newest user message. Offered no memory tools, it
answers without them. Like a real server it refuses a history whose calls and results do not match,
and a member that does not fit the others.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gateway.demo_model.validation import check_chat
from gateway.errors import BadRequest
from memory.core.tool_definitions import OURS
from tests.models import call, calls, text
from tests.sockets import Seen, Wire

PROMPTS = json.loads(Path(__file__).with_name("prompts.json").read_text())
CITIES = {"Oslo": "call_oslo", "Bergen": "call_bergen"}
ADA = {"name": "Ada", "age": 36}
TOO_LONG = {
    "message": "This model's maximum context length is 8192 tokens. "
    "However, your messages resulted in 9000 tokens.",
    "type": "invalid_request_error",
    "param": "messages",
    "code": "context_length_exceeded",
}
LIMITED = {
    "message": "Rate limit reached. Please try again in 1s.",
    "type": "requests",
    "param": None,
    "code": "rate_limit_exceeded",
}


def reply(seen: Seen, wire: Wire) -> Any:
    body = seen.json
    try:
        check_chat(body)
    except BadRequest as e:
        return 400, {
            "error": {
                "message": e.message,
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        }
    messages = body["messages"]
    at = max(i for i, m in enumerate(messages) if m["role"] == "user")
    asked = next(name for name, prompt in PROMPTS.items() if said(messages[at]).startswith(prompt))
    return ANSWERS[asked](body, messages[at + 1 :], wire)


def hello(body: Any, since: list[Any], wire: Wire) -> Any:
    if remembers(body) and not since:
        return calls(
            call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_tea"),
            content="One moment. ",
        )
    return text("Hello, Ada.")


def likes(body: Any, since: list[Any], wire: Wire) -> Any:
    return text(
        "You like tea." if "Likes tea" in json.dumps(body["messages"]) else "I do not know."
    )


def weather(body: Any, since: list[Any], wire: Wire) -> Any:
    results = {m["tool_call_id"]: re.search(r"\d+", said(m)) for m in since if m["role"] == "tool"}
    if not set(CITIES.values()) <= set(results):
        asked = [call("get_weather", {"city": city}, ident) for city, ident in CITIES.items()]
        between = (
            [call("archival_memory_insert", {"content": "Asks about Oslo"}, "call_passage")]
            if remembers(body)
            else []
        )
        return calls(asked[0], *between, asked[1], content="Let me look.")
    if remembers(body) and "call_search" not in results:
        return calls(call("conversation_search", {"query": "Oslo"}, "call_search"))
    return text(", ".join(f"{city} {results[ident][0]}" for city, ident in CITIES.items()) + ".")


def person(body: Any, since: list[Any], wire: Wire) -> Any:
    choice = body.get("tool_choice")
    if remembers(body) and not since and not isinstance(choice, dict):
        return calls(
            call("core_memory_append", {"label": "human", "content": "Asks about Ada"}, "call_ada")
        )
    output = next((name for name in offered(body) if name not in OURS), None)
    if output:
        return calls(call(output, ADA, "call_output"))
    return text(json.dumps(ADA) if body.get("response_format") else "Ada is 36.")


async def cut(body: Any, since: list[Any], wire: Wire) -> None:
    """Ends in good order, but without having finished: what openai-python alone takes for a whole
    answer.
    """
    head = {
        "id": "chatcmpl-cut",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": body["model"],
    }
    await wire.start_stream()
    for word in ("One ", "two "):
        await wire.event(
            {
                **head,
                "choices": [
                    {
                        "index": 0,
                        "delta": {"role": "assistant", "content": word},
                        "finish_reason": None,
                    }
                ],
            }
        )
    await wire.end()


ANSWERS = {
    "hello": hello,
    "likes": likes,
    "weather": weather,
    "person": person,
    "cut": cut,
    "too_long": lambda *_: (400, {"error": TOO_LONG}),
    "limited": lambda *_: (
        429,
        {"error": LIMITED},
        "retry-after: 1",
        "x-ratelimit-remaining-requests: 0",
    ),
}


def offered(body: Any) -> list[str]:
    return [t["function"]["name"] for t in body.get("tools") or [] if "function" in t]


def remembers(body: Any) -> bool:
    return "core_memory_append" in offered(body)


def said(message: Any) -> str:
    """A message's text, whether it is a string or parts."""
    content = message["content"]
    return (
        content if isinstance(content, str) else "".join(p.get("text", "") for p in content or [])
    )

"""Background calls of chat UIs (titles, tags, follow-ups), known by their prompts: they run as `X-Memory: off`. Pure.

The patterns are the beginnings these UIs are known to send; an operator adds more in `memory.ignore`.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.wire.chat import Json
from memory.messages import text_of

SHIPPED = (
    r"^### Task:\s*\n?(?:Generate|Suggest|Analyze|You are an autocompletion)",  # Open WebUI: titles, tags, follow-ups, queries
    r"^Create a concise, 3-5 word (?:phrase|title)",
    r"^(?:Please )?(?:generate|write|create|suggest) (?:a |an )?(?:short|concise|brief)(?:,? [\w-]+)* title (?:for|of|that)",
    r"^(?:Provide|Give) a (?:concise|short)(?:,? [\w-]+)* title for",
    r"^Based on (?:the|this) (?:chat history|conversation)[^.]{0,60}, (?:generate|suggest|provide) [^.]{0,40}(?:title|tags|follow-up)",
    r"^(?:You are an? )?(?:expert )?(?:conversation|chat) (?:title|name) generator",
    r"^Summarize (?:the|this) (?:conversation|chat) in (?:\d+|five|a few|three|four|ten) words",
)


class Background:
    """more: the operator's regular expressions, matched at the beginning of the last user message or the system text."""

    def __init__(self, more: Sequence[str] = ()) -> None:
        self._pattern = re.compile("|".join(f"(?:{p})" for p in (*SHIPPED, *more)), re.IGNORECASE)

    def matches(self, body: Json) -> bool:
        """Whether this request is a UI's own, not its user's."""
        messages = body["messages"]
        last = next((m for m in reversed(messages) if m.get("role") == "user"), None)
        system = next((m for m in messages if m.get("role") in ("system", "developer")), None)
        return any(m is not None and self._pattern.match(text_of(m)[:2000].lstrip()) for m in (last, system))

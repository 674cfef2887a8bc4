"""`[delegation]`: how far agents may write to each other and ask each other."""

from __future__ import annotations

from pydantic import Field

from gateway.config.section import Section


class DelegationSettings(Section):
    """Bounds of messages and asks between agents.

    max_depth: asks below the client's request. max_asks: of the whole tree. parallel: asks of one
    reply at a time. inbox_messages, inbox_characters: delivered in one turn.
    """

    max_depth: int = Field(3, ge=0, le=16)
    max_asks: int = Field(8, ge=0, le=1000)
    parallel: int = Field(4, ge=1, le=64)
    ask_seconds: float = Field(60, gt=0, le=3600)
    answer_characters: int = Field(8000, ge=100, le=1_000_000)
    inbox_messages: int = Field(20, ge=1, le=1000)
    inbox_characters: int = Field(4000, ge=100, le=100_000)
    inbox_days: float = Field(30, gt=0)

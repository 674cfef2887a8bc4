"""Our ids in the form of Letta's: the 32 hex digits as a UUID behind a kind. Pure."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

UUID = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})")
DIGITS = re.compile(r"[0-9a-f]{32}")
OWN_ID = re.compile(r"\b(agent|block|message|passage|tool)_([0-9a-f]{32})\b")


def letta_id(kind: str, digits: str) -> str:
    """Return an id of 32 hex digits, with or without a prefix of ours before them."""
    name = digits[-32:]
    return f"{kind}-{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"


def digits_of(kind: str, name: str) -> str | None:
    """Return the 32 hex digits of an id; None for what is no id of this kind."""
    match = None
    if name.startswith(f"{kind}-"):
        match = UUID.fullmatch(name[len(kind) + 1 :])
    if match:
        return "".join(match.groups())
    return None


def with_letta_ids(text: str) -> str:
    """Return a sentence of ours with the ids in it as the client has them."""
    return OWN_ID.sub(lambda match: letta_id(match[1], match[2]), text)


def new_agent_name() -> str:
    """Return the name of a new agent, which is its id."""
    return letta_id("agent", secrets.token_hex(16))


class ItemPlace(NamedTuple):
    """Where an item stands. turn: the row key of its turn. order: its place within the turn."""

    turn: int
    order: int

    @property
    def id(self) -> str:
        return letta_id("message", f"{self.turn:016x}{self.order:016x}")


def place_of(ident: str) -> ItemPlace | None:
    """Return where an item stands by its id; None for what is no item's."""
    digits = digits_of("message", ident)
    if digits:
        return ItemPlace(int(digits[:16], 16), int(digits[16:], 16))
    return None

"""Who may use which tools: patterns of names, in which `*` stands for anything. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

HEADER = b"x-memory-tools"
# In the header: no tool at all.
NOTHING = "none"
MAX_HEADER_PATTERNS = 256


def matches(pattern: str, name: str) -> bool:
    """Tell whether a name is one of a pattern's, in time that grows with their lengths alone."""
    prefix, *parts = pattern.split("*")
    if not parts:
        return name == pattern
    *middle, suffix = parts
    if not name.startswith(prefix) or len(name) < len(prefix) + len(suffix):
        return False
    at = len(prefix)
    end = len(name) - len(suffix)
    for part in middle:
        place = name.find(part, at, end)
        if place < 0:
            return False
        at = place + len(part)
    return name.endswith(suffix)


def any_matches(patterns: Iterable[str], name: str) -> bool:
    """Tell whether a name is of one of these patterns."""
    return any(matches(pattern, name) for pattern in patterns)


def narrowing_of(header: str) -> tuple[str, ...] | None:
    """Return the patterns of the header X-Memory-Tools; None where it is absent."""
    if not header:
        return None
    if header.lower() == NOTHING:
        return ()
    patterns = [part.strip() for part in header.split(",", MAX_HEADER_PATTERNS)]
    return tuple(part for part in patterns[:MAX_HEADER_PATTERNS] if part)


class Grants(msgspec.Struct, frozen=True):
    """What a request may use.

    patterns: by the key, the model or the agent. limits: each of them bounds that. reads_only: the
    request may not write.
    """

    patterns: tuple[str, ...] = ()
    limits: tuple[tuple[str, ...], ...] = ()
    reads_only: bool = False

    def allow(self, name: str) -> bool:
        """Tell whether a tool is granted."""
        return any_matches(self.patterns, name) and self.limits_allow(name)

    def limits_allow(self, name: str) -> bool:
        """Tell whether no limit excludes a tool."""
        return all(any_matches(limit, name) for limit in self.limits)


def limits_of(*limits: Sequence[str] | None) -> tuple[tuple[str, ...], ...]:
    """Return those limits that exclude anything. None and `*` exclude nothing."""
    return tuple(tuple(limit) for limit in limits if limit is not None and "*" not in limit)

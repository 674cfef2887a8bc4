"""What still fits the context window: which old tool results become stubs, which old messages are
evicted. Pure.

Rules (MEMORY.md 6): over `hard` of the budget, cut down to `low` and keep that cut; first old,
large tool results, then the oldest groups. System messages, the newest user message and the newest
group stay verbatim; a call is never parted from its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from memory.conversation.messages import Json, is_system

HARD, SOFT, LOW = 0.9, 0.7, 0.5
LARGE_RESULT_TOKENS = 300  # tokens from which an old tool result is worth a stub
STUB = 40


@dataclass(frozen=True, slots=True)
class SummarizedGap:
    """What of a history is left out: all up to index `last`, but for a few, in order."""

    last: int = -1
    but: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self.last + 1 - len(self.but)

    def __contains__(self, index: int) -> bool:
        return index <= self.last and index not in self.but

    def remaining_indexes(self, start: int, end: int) -> Iterator[int]:
        """Yield the indexes from `start` to `end` that are not left out."""
        return chain((i for i in self.but if i >= start), range(max(start, self.last + 1), end))


NOTHING_LEFT_OUT = SummarizedGap()


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Messages start..end (end excluded) that stand or fall together."""

    start: int
    end: int


def reserved_output(window: int, asked: int | None) -> int:
    """Return tokens kept free for the answer: what the client allows, else the smaller of 4,096 and
    a quarter of the window.
    """
    return asked if asked is not None else min(4096, window // 4)


def budget(window: int, asked: int | None) -> int:
    return max(window - reserved_output(window, asked), window // 8)


def groups(messages: Sequence[Json]) -> list[MessageGroup]:
    """Return each assistant message with the tool results that follow it, every other message
    alone; system messages in none.
    """
    out: list[MessageGroup] = []
    for i, message in enumerate(messages):
        if is_system(message):
            continue
        if message.get("role") in ("tool", "function") and out and out[-1].end == i:
            out[-1] = MessageGroup(out[-1].start, i + 1)
        else:
            out.append(MessageGroup(i, i + 1))
    return out


def protected_groups(messages: Sequence[Json], found: Sequence[MessageGroup]) -> set[MessageGroup]:
    """Return the groups that are never evicted: the newest user message and the newest group."""
    if not found:
        return set()
    newest = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    return {g for g in found if g is found[-1] or g.start <= newest < g.end}


def elidable(messages: Sequence[Json], sizes: Sequence[int], until: int) -> list[int]:
    """Indexes before `until` of tool results large enough to be stubbed."""
    return [
        i
        for i in range(min(until, len(messages)))
        if messages[i].get("role") == "tool" and sizes[i] > LARGE_RESULT_TOKENS
    ]


def stub(message: Json, tokens: int) -> Json:
    """Return what stands for an elided tool result."""
    return {
        **message,
        "content": f"[{tokens} tokens of this result were left out to save room; "
        "conversation_search finds them]",
    }


def eviction_index(
    messages: Sequence[Json], sizes: Sequence[int], room: int, start: int = 0
) -> int:
    """Return how many leading messages to evict so that the rest is at most `room` tokens; as few
    as will do.

    start: messages before it are evicted already. Only whole groups go, and what is left begins
    with a user's message, since strict servers refuse an answer to nothing; the newest turn stays
    while older ones can go instead. The result counts messages, system ones among them included
    (those are never dropped).
    """
    found = [g for g in groups(messages) if g.end > start]
    stay = protected_groups(messages, found)
    total = sum(sizes[g.start : g.end][i] for g in found for i in range(g.end - g.start))
    at = start
    for group in found:
        whole = at == start or messages[group.start].get("role") == "user"
        if (total <= room and whole) or group in stay:
            break
        total -= sum(sizes[group.start : group.end])
        at = group.end
    return at


def groups_within_turn(
    messages: Sequence[Json], sizes: Sequence[int], room: int, start: int
) -> list[MessageGroup]:
    """Return the last resort inside one long tool loop: groups after the newest user message,
    oldest first, the newest kept.
    """
    found = [g for g in groups(messages) if g.start >= start]
    stay = protected_groups(messages, found)
    total = sum(sum(sizes[g.start : g.end]) for g in found)
    out: list[MessageGroup] = []
    for group in found:
        if total <= room:
            break
        if group not in stay:
            out.append(group)
            total -= sum(sizes[group.start : group.end])
    return out

"""Which old tool results become stubs and which old messages are evicted. Pure.

Beyond `hard` of the budget, cut to `low` and keep that cut: first old, large tool results, then the
oldest groups. System messages, the newest user message and the newest group stay verbatim; a call
is never separated from its results. Blocks take at most half of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from memory.conversation.messages import Json, is_system
from memory.core.block_space import length_of
from memory.core.blocks import CoreBlock, elements

HARD, SOFT, LOW = 0.9, 0.7, 0.5
LARGE_RESULT_TOKENS = 300  # an old tool result with more tokens is stubbed
STUB = 40
CORE_SHARE = 0.5  # of a model's window that blocks may take
MOST_TOKENS = 4  # of a character, in any vocabulary
FRAME_CHARACTERS = 100  # of a block's element, beside its own texts


@dataclass(frozen=True, slots=True)
class SummarizedGap:
    """The messages left out: all up to index `last`, except those in `but`, in order."""

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
    """Messages from start to end (exclusive) that are kept or evicted together."""

    start: int
    end: int


def reserved_output(window: int, asked: int | None) -> int:
    """Return the tokens reserved for the answer.

    What the client allows, otherwise the smaller of 4,096 and a quarter of the window.
    """
    return asked if asked is not None else min(4096, window // 4)


def budget(window: int, asked: int | None) -> int:
    return max(window - reserved_output(window, asked), window // 8)


def groups(messages: Sequence[Json]) -> list[MessageGroup]:
    """Return each assistant message with its tool results, every other message alone.

    System messages are in no group.
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
    """Return the indexes before `until` of tool results large enough to be stubbed."""
    return [
        i
        for i in range(min(until, len(messages)))
        if messages[i].get("role") == "tool" and sizes[i] > LARGE_RESULT_TOKENS
    ]


def stub(message: Json, tokens: int) -> Json:
    """Return the replacement of an elided tool result."""
    return {
        **message,
        "content": f"[{tokens} tokens of this result were left out to save room; "
        "conversation_search finds them]",
    }


def eviction_index(
    messages: Sequence[Json], sizes: Sequence[int], room: int, start: int = 0
) -> int:
    """Return how many leading messages to evict to leave at most `room` tokens.

    As few as needed. start: messages before it are evicted already. Only whole groups are evicted,
    and the rest begins with a user message, since strict servers refuse an answer without one; the
    newest turn stays while older ones can go. The result includes system messages (which are never
    dropped).
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
    """Return the groups to evict within one long tool loop, the last resort.

    Groups after the newest user message, oldest first, without the newest.
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


def fit_blocks(
    blocks: Sequence[CoreBlock], window: int | None, count: Callable[[str], int]
) -> tuple[list[CoreBlock], list[str]]:
    """Return the blocks that take at most half of a window, and the labels of the others.

    They are taken in the order of their labels, each that still fits: the same blocks and the same
    window give the same choice. count: the tokens of a text.
    """
    if window is None:
        return list(blocks), []
    room = int(CORE_SHARE * window)
    longest = sum(map(length_of, blocks)) + FRAME_CHARACTERS * len(blocks)
    if MOST_TOKENS * longest <= room:  # the usual case, which costs no counting
        return list(blocks), []
    fitting, left_out = [], []
    for block in sorted(blocks, key=lambda b: b.label):
        tokens = count(elements([block]))
        if tokens <= room:
            room -= tokens
            fitting.append(block)
        else:
            left_out.append(block.label)
    return [b for b in blocks if b in fitting] if left_out else list(blocks), left_out

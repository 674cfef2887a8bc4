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

HARD = 0.9
SOFT = 0.7
LOW = 0.5
# An old tool result with more tokens is stubbed.
LARGE_RESULT_TOKENS = 300
STUB = 40
# Of a model's window that blocks may take.
CORE_SHARE = 0.5
# Of a character, in any vocabulary.
MOST_TOKENS = 4
# Of a block's element, beside its own texts.
FRAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class SummarizedGap:
    """The messages left out: all up to `last_index`, except those in `but`, in order."""

    last_index: int = -1
    but: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self.last_index + 1 - len(self.but)

    def __contains__(self, index: int) -> bool:
        return index <= self.last_index and index not in self.but

    def remaining_indexes(self, start: int, end: int) -> Iterator[int]:
        """Yield the indexes from `start` to `end` that are not left out."""
        return chain(
            (i for i in self.but if i >= start), range(max(start, self.last_index + 1), end)
        )


NOTHING_LEFT_OUT = SummarizedGap()


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Messages from start to end (exclusive) that are kept or evicted together."""

    start: int
    end: int


def reserved_output(window: int, requested_tokens: int | None) -> int:
    """Return the tokens reserved for the answer.

    What the client allows, otherwise the smaller of 4,096 and a quarter of the window.
    """
    if requested_tokens is not None:
        return requested_tokens
    return min(4096, window // 4)


def budget(window: int, requested_tokens: int | None) -> int:
    return max(window - reserved_output(window, requested_tokens), window // 8)


def groups(messages: Sequence[Json]) -> list[MessageGroup]:
    """Return each assistant message with its tool results, every other message alone.

    System messages are in no group.
    """
    message_groups: list[MessageGroup] = []
    for index, message in enumerate(messages):
        if is_system(message):
            continue
        if (
            message.get("role") in ("tool", "function")
            and message_groups
            and message_groups[-1].end == index
        ):
            message_groups[-1] = MessageGroup(message_groups[-1].start, index + 1)
        else:
            message_groups.append(MessageGroup(index, index + 1))
    return message_groups


def protected_groups(
    messages: Sequence[Json], message_groups: Sequence[MessageGroup]
) -> set[MessageGroup]:
    """Return the groups that are never evicted: the newest user message and the newest group."""
    if not message_groups:
        return set()
    newest_user = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    return {g for g in message_groups if g is message_groups[-1] or g.start <= newest_user < g.end}


def elidable(messages: Sequence[Json], sizes: Sequence[int], end_index: int) -> list[int]:
    """Return the indexes before `end_index` of tool results large enough to be stubbed."""
    return [
        i
        for i in range(min(end_index, len(messages)))
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
    later_groups = [g for g in groups(messages) if g.end > start]
    protected = protected_groups(messages, later_groups)
    total = sum(sizes[g.start : g.end][i] for g in later_groups for i in range(g.end - g.start))
    end_index = start
    for group in later_groups:
        begins_turn = end_index == start or messages[group.start].get("role") == "user"
        if (total <= room and begins_turn) or group in protected:
            break
        total -= sum(sizes[group.start : group.end])
        end_index = group.end
    return end_index


def groups_within_turn(
    messages: Sequence[Json], sizes: Sequence[int], room: int, start: int
) -> list[MessageGroup]:
    """Return the groups to evict within one long tool loop, the last resort.

    Groups after the newest user message, oldest first, without the newest.
    """
    later_groups = [g for g in groups(messages) if g.start >= start]
    protected = protected_groups(messages, later_groups)
    total = sum(sum(sizes[g.start : g.end]) for g in later_groups)
    evicted_groups: list[MessageGroup] = []
    for group in later_groups:
        if total <= room:
            break
        if group not in protected:
            evicted_groups.append(group)
            total -= sum(sizes[group.start : group.end])
    return evicted_groups


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
    most_characters = sum(map(length_of, blocks)) + FRAME_CHARACTERS * len(blocks)
    # The usual case, which costs no counting.
    if MOST_TOKENS * most_characters <= room:
        return list(blocks), []
    fitting = []
    omitted_labels = []
    for block in sorted(blocks, key=lambda b: b.label):
        tokens = count(elements([block]))
        if tokens <= room:
            room -= tokens
            fitting.append(block)
        else:
            omitted_labels.append(block.label)
    return [b for b in blocks if b in fitting] if omitted_labels else list(blocks), omitted_labels

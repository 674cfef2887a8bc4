"""Makes a request fit its context window: measures it, reuses a kept summary, or evicts and summarises (MEMORY.md 6).

A summary is kept under the chain hash of the last message it stands for, so the next request that resends the same history
reuses it and the cost of a turn does not grow with the conversation. A compaction begins a new epoch with a fresh core text.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from memory.blocks import Block
from memory.epoch import Plan, begun
from memory.history import Turn
from memory.messages import EMPTY, Json, is_system
from memory.summary import Complete, summarise
from memory.tokens import Counter
from memory.window import HARD, LOW, STUB, cut_at, elidable, groups, stub, within_turn

Kept = tuple[bytes, str]  # chain link of the last message a summary stands for, and its text


@dataclass(slots=True)
class Room:
    """What a request may use. budget: tokens for the prompt, None when the model's window is unknown.

    other: tokens of what is not a message (tools). load, save: the kept summaries of this scope. seconds: a summary's time.
    """

    counter: Counter
    model: str
    blocks: Sequence[Block]
    tag: str
    edits: int
    budget: int | None
    other: int
    complete: Complete | None
    load: Callable[[Sequence[bytes]], Awaitable[list[Kept]]]
    save: Callable[[bytes, str, int], Awaitable[None]]
    seconds: float = 30


@dataclass(slots=True)
class Fitted:
    """drop: messages left out. swap: messages sent as stubs. evicted: indexes that this very turn evicted."""

    plan: Plan
    drop: frozenset[int] = frozenset()
    swap: dict[int, Json] = field(default_factory=dict)
    tokens: int = 0
    evicted: list[int] = field(default_factory=list)
    how: str = ""


def index_of(turn: Turn, link: bytes | None) -> int:
    """The last message that this link covers; -1 for none."""
    if link is None:
        return -1
    return next((i for i in range(len(turn.chain.links) - 1, -1, -1) if turn.chain.links[i] == link), -1)


def sizes_of(turn: Turn, counter: Counter) -> list[int]:
    return [counter.message(m, d if d != EMPTY else None) for m, d in zip(turn.messages, turn.chain.digests, strict=True)]


def view(turn: Turn, plan: Plan, sizes: Sequence[int], room: Room) -> Fitted:
    """What the plan's epoch leaves out and stubs, and what is left in tokens."""
    cut, elide = index_of(turn, plan.epoch.cut), index_of(turn, plan.epoch.elide)
    newest = max((i for i, m in enumerate(turn.messages) if m.get("role") == "user"), default=-1)
    drop = frozenset(i for i in range(cut + 1) if not is_system(turn.messages[i]) and i != newest)
    swap = {i: stub(turn.messages[i], sizes[i]) for i in elidable(turn.messages, sizes, elide + 1) if i not in drop}
    total = room.other + room.counter.text(plan.epoch.core) + sum(room.counter.text(n) for n in plan.notes.values())
    total += sum(room.counter.message(m) for hidden in plan.splices.values() for m in hidden)
    total += sum(size for i, size in enumerate(sizes) if i not in drop and i not in swap and i not in plan.splices)
    total += sum(room.counter.message(m) for m in swap.values())
    return Fitted(plan, drop, swap, room.counter.scaled(room.model, total))


async def fit(turn: Turn, plan: Plan, room: Room) -> Fitted:
    """The request as it is when it fits under the hard threshold, else compacted to the low one."""
    sizes = sizes_of(turn, room.counter)
    fitted = view(turn, plan, sizes, room)
    if room.budget is None or fitted.tokens <= HARD * room.budget:
        return fitted
    return await compact(turn, fitted, room, int(LOW * room.budget), int(HARD * room.budget))


async def compact(turn: Turn, now: Fitted, room: Room, goal: int, limit: int) -> Fitted:
    """Cuts the request to about `goal` tokens; a kept summary is reused when that makes it at most `limit`.

    First old, large tool results become stubs, then the oldest groups are summarised. What cannot be cut stays.
    """
    stored = sorted((index_of(turn, link), text) for link, text in await room.load(turn.chain.links))
    cutter = _Cutter(turn, room, sizes_of(turn, room.counter), index_of(turn, now.plan.epoch.cut), stored)
    if cutter.elide is not None and now.plan.epoch.elide != cutter.elide:
        text = dict(stored).get(cutter.cut, "")
        if (cutter.cut < 0 or text) and (fitted := cutter.fresh(text, cutter.cut, "elided")).tokens <= goal:
            return fitted
    for index, text in stored:
        if index > cutter.cut or (index == cutter.cut and now.plan.epoch.cut is None):
            fitted = cutter.fresh(text, index, "summary reused")
            if fitted.tokens <= limit and fitted.tokens < now.tokens:
                return fitted
    return await cutter.evict(goal)


class _Cutter:
    """One compaction. cut: index of the last message evicted already, -1 for none. stored: (index, text) of kept summaries."""

    def __init__(self, turn: Turn, room: Room, sizes: Sequence[int], cut: int, stored: Sequence[tuple[int, str]]) -> None:
        self.turn, self.room, self.sizes, self.cut, self.stored = turn, room, sizes, cut, stored
        found = groups(turn.messages)
        newest = found[-1].start if found else 0
        self.elide = turn.chain.before(newest) if elidable(turn.messages, sizes, newest) else None

    def fresh(self, summary: str, cut: int, how: str) -> Fitted:
        """The request under a new epoch that stands for everything up to message `cut` by this summary."""
        room = self.room
        link = self.turn.chain.links[cut] if cut >= 0 else None
        epoch = replace(begun(room.blocks, room.tag, room.edits, summary=summary, cut=link), elide=self.elide)
        fitted = view(self.turn, Plan(epoch, "compaction"), self.sizes, room)
        fitted.how = how
        return fitted

    async def evict(self, goal: int) -> Fitted:
        """Summarises the oldest groups, as few as will do; on top of the summary that covers most of them already."""
        messages = self.turn.messages
        allowance = max(100, min(1200, (self.room.budget or goal * 2) // 10))
        at = self._until(goal - allowance)
        if at <= max(0, self.cut + 1):
            return self.fresh(dict(self.stored).get(self.cut, ""), self.cut, "nothing to evict")
        base, before = max(((i, text) for i, text in self.stored if i < at), default=(-1, ""))
        newest = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
        gone = [i for i in range(base + 1, at) if not is_system(messages[i]) and i != newest]
        text, by_model = await summarise(self.room.complete, before, [messages[i] for i in gone], allowance, self.room.seconds)
        if gone:
            await self.room.save(self.turn.chain.links[at - 1], text, len(gone))
        fitted = self.fresh(text, at - 1, "summarised" if by_model else "dropped, the summariser failed")
        fitted.evicted = gone
        return fitted

    def _until(self, goal: int) -> int:
        """The index before which everything goes, so that what is left is about `goal` tokens."""
        messages, begin = self.turn.messages, max(0, self.cut + 1)
        stubbed = set(elidable(messages, self.sizes, index_of(self.turn, self.elide) + 1))
        lean = [min(size, STUB) if i in stubbed else size for i, size in enumerate(self.sizes)]
        bare = self.fresh("", len(messages) - 1, "")  # what stays whatever is evicted
        staying = sum(lean[i] for i, m in enumerate(messages) if i not in bare.drop and not is_system(m))
        left = max(0, goal - (bare.tokens - staying))
        at = cut_at(messages, lean, left, begin)
        if sum(lean[i] for i in range(at, len(lean)) if not is_system(messages[i])) > left:
            at = max([at, *(g.end for g in within_turn(messages, lean, left, max(at, begin)))])
        return at

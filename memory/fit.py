"""Makes a request fit its context window: measures it, reuses a kept summary, or evicts and summarises (MEMORY.md 6).

A summary is kept under the chain hash of the last message it stands for, so the next request that resends the same history
reuses it and the cost of a turn does not grow with the conversation. A compaction begins a new epoch with a fresh core text.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from memory.blocks import Block
from memory.epoch import Epoch, Plan, begun
from memory.history import Turn
from memory.messages import EMPTY, Json, is_system
from memory.summary import Complete, summarise
from memory.tokens import Counter
from memory.window import HARD, LOW, cut_at, elidable, groups, kept, stub, within_turn

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
    sizes = sizes_of(turn, room.counter)
    found = groups(turn.messages)
    last = min((g.start for g in kept(turn.messages, found)), default=0)
    newest = found[-1].start if found else 0
    elide = turn.chain.before(newest) if elidable(turn.messages, sizes, newest) else None
    cut = index_of(turn, now.plan.epoch.cut)
    stored = sorted((index_of(turn, link), text) for link, text in await room.load(turn.chain.links))
    if elide is not None and now.plan.epoch.elide != elide:
        text = dict(stored).get(cut, "")
        if cut < 0 or text:
            fitted = _fresh(turn, sizes, room, text, (cut, elide), "elided")
            if fitted.tokens <= goal:
                return fitted
    for index, text in stored:
        if index > cut or (index == cut and now.plan.epoch.cut is None):
            fitted = _fresh(turn, sizes, room, text, (index, elide), "summary reused")
            if fitted.tokens <= limit and fitted.tokens < now.tokens:
                return fitted
    return await _evict(turn, (sizes, last), room, goal, (cut, elide, stored))


def _fresh(turn: Turn, sizes: Sequence[int], room: Room, text: str, marks: tuple[int, bytes | None], how: str) -> Fitted:
    cut, elide = marks
    link = turn.chain.links[cut] if cut >= 0 else None
    made = begun(room.blocks, room.tag, room.edits, summary=text, cut=link)
    epoch = Epoch(made.id, made.core, made.blocks, made.edits, link, elide)
    fitted = view(turn, Plan(epoch, "compaction"), sizes, room)
    fitted.how = how
    return fitted


async def _evict(turn: Turn, measured: tuple[Sequence[int], int], room: Room, goal: int, was: tuple[int, bytes | None, list[tuple[int, str]]]) -> Fitted:
    sizes, _ = measured
    cut, elide, stored = was
    lean = [min(s, 60) if i in set(elidable(turn.messages, sizes, index_of(turn, elide) + 1)) else s for i, s in enumerate(sizes)]
    allowance = max(100, min(1200, (room.budget or goal * 2) // 10))
    empty = _fresh(turn, sizes, room, "", (len(turn.messages) - 1, elide), "")
    spare = sum(lean[i] for i in range(len(lean)) if i not in empty.drop and not is_system(turn.messages[i]))
    left = max(0, goal - allowance - (empty.tokens - spare))
    at = cut_at(turn.messages, lean, left, max(0, cut + 1))
    if at <= cut + 1 or sum(lean[i] for i in range(at, len(lean)) if not is_system(turn.messages[i])) > left:
        inside = within_turn(turn.messages, lean, left, max(at, cut + 1))
        at = max([at, *(g.end for g in inside)])
    if at <= cut + 1 and at <= 0:
        return _fresh(turn, sizes, room, "", (cut, elide), "nothing to evict")
    base, before = max(((i, text) for i, text in stored if i < at), default=(-1, ""))
    newest = max((i for i, m in enumerate(turn.messages) if m.get("role") == "user"), default=-1)
    gone = [i for i in range(base + 1, at) if not is_system(turn.messages[i]) and i != newest]
    text, by_model = await summarise(room.complete, before, [turn.messages[i] for i in gone], allowance, room.seconds)
    if gone:
        await room.save(turn.chain.links[at - 1], text, len(gone))
    fitted = _fresh(turn, sizes, room, text, (at - 1, elide), "summarised" if by_model else "dropped, model summary failed")
    fitted.evicted = gone
    return fitted

"""Makes a request fit its context window: measures it, reuses a kept summary, or evicts and summarises (MEMORY.md 6).

A summary is kept under the chain hash of the last message it stands for, so the next request that resends the same history
reuses it and the cost of a turn does not grow with the conversation. A compaction begins a new epoch with a fresh core text.

Past the soft threshold the summary is to be made ahead, by a job; while one is under way no turn waits for a model: it uses the
room that is left above the hard threshold, and past that the fallback, which is not kept.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from memory.blocks import Block
from memory.epoch import Plan, begun
from memory.history import Turn
from memory.messages import EMPTY, Json, is_system
from memory.prefix import Messages, Prefix, Span
from memory.summary import Complete, summarise, transcript
from memory.tokens import Counter
from memory.window import HARD, LOW, SOFT, STUB, cut_at, elidable, groups, stub, within_turn

Kept = tuple[bytes, str]  # chain link of the last message a summary stands for, and its text


@dataclass(slots=True)
class Room:
    """What a request may use. budget: tokens for the prompt, None when the model's window is unknown.

    other: tokens of what is not a message (tools). load, save: the kept summaries of this scope. seconds: a summary's time.
    coming: whether a summary of this conversation is being made. most: tokens that the request cannot have more of, None when only
    counting tells.
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
    coming: Callable[[], Awaitable[bool]] | None = None
    most: int | None = None

    @property
    def ample(self) -> bool:
        """Whether the request needs no counting to be known to fit, and to need no summary soon."""
        return self.most is not None and (self.budget is None or self.most <= SOFT * self.budget)


@dataclass(slots=True)
class Fitted:
    """drop: messages left out. swap: messages sent as stubs. tokens: 0 where they were not counted. evicted: indexes that this very
    turn evicted. cut: index of the last message that the epoch left behind, -1 for none. held: tokens of the messages and of what is
    placed among them, as counted. coming: the summary after the epoch's own is there or on its way."""

    plan: Plan
    drop: frozenset[int] = frozenset()
    swap: dict[int, Json] = field(default_factory=dict)
    tokens: int = 0
    evicted: list[int] = field(default_factory=list)
    how: str = ""
    cut: int = -1
    held: int = 0
    coming: bool = False


@dataclass(slots=True)
class Sent:
    """What went upstream for the messages of `of`, kept for the turn that goes on from them.

    by: the target it was written for. pieces: the messages with what was placed among them, as JSON; where they are the client's own,
    where they stood in its body: a body that begins with the same bytes holds them too.
    """

    of: Prefix
    by: str
    pieces: Sequence[bytes | Span]
    fitted: Fitted
    places: dict[int, int]
    tokenizer: str = "estimate"

    def goes_on(self, messages: Messages) -> bool:
        """Whether these are the same and an answer, and more: system messages among that belong to the beginning."""
        before = messages.before
        return before is self.of and messages.after.newest == before.count and messages.after.system == before.system


def index_of(turn: Turn, link: bytes | None) -> int:
    """The last message that this link covers; -1 for none."""
    if link is None:
        return -1
    return next((i for i in range(len(turn.chain.links) - 1, -1, -1) if turn.chain.links[i] == link), -1)


def sizes_of(turn: Turn, counter: Counter) -> list[int]:
    return [_size(counter, m, d) for m, d in zip(turn.messages, turn.chain.digests, strict=True)]


def _size(counter: Counter, message: Json, digest: bytes) -> int:
    return counter.message(message, digest if digest != EMPTY else None)


def counted(turn: Turn, now: Fitted, room: Room) -> Fitted:
    """The same request with its tokens counted."""
    return now if now.tokens else view(turn, now.plan, sizes_of(turn, room.counter), room)


def view(turn: Turn, plan: Plan, sizes: Sequence[int], room: Room) -> Fitted:
    """What the plan's epoch leaves out and stubs, and what is left in tokens."""
    cut, elide = index_of(turn, plan.epoch.cut), index_of(turn, plan.epoch.elide)
    newest = turn.messages.after.user
    drop = frozenset(i for i in range(cut + 1) if not is_system(turn.messages[i]) and i != newest)
    swap = {i: stub(turn.messages[i], sizes[i]) for i in elidable(turn.messages, sizes, elide + 1) if i not in drop}
    held = room.counter.text(plan.epoch.core) + sum(size for i, size in enumerate(sizes) if i not in drop and i not in swap and i not in plan.splices)
    held += sum(room.counter.message(m) for m in swap.values()) + _placed(plan, room.counter, 0)
    return Fitted(plan, drop, swap, room.counter.scaled(room.model, held + room.other), cut=cut, held=held)


def _placed(plan: Plan, counter: Counter, start: int) -> int:
    """Tokens of the notes and hidden exchanges at message `start` or after it."""
    hidden = [m for i, spliced in plan.splices.items() if i >= start for m in spliced]
    return sum(counter.text(n) for i, n in plan.notes.items() if i >= start) + sum(map(counter.message, hidden))


def grown(turn: Turn, plan: Plan, before: Fitted, room: Room) -> Fitted:
    """The same for a turn that goes on, under its epoch, from what was fitted `before`: only what is new is counted."""
    known = turn.messages.before.count
    fresh = [i for i in range(known, len(turn.messages)) if i not in plan.splices]
    held = before.held + sum(_size(room.counter, turn.messages[i], turn.chain.digest(i)) for i in fresh) + _placed(plan, room.counter, known)
    return replace(before, plan=plan, tokens=room.counter.scaled(room.model, held + room.other), held=held, how="", evicted=[])


async def fit(turn: Turn, plan: Plan, room: Room, before: Fitted | None = None) -> Fitted:
    """The request as it is when it fits under the hard threshold, else compacted to the low one; as it is, too, while its summary
    is being made and it still fits the budget. before: the same for the messages that came before, under the plan's epoch."""
    if room.ample and plan.epoch.cut is None and plan.epoch.elide is None:
        return Fitted(plan)
    fitted = grown(turn, plan, before, room) if before and before.held else view(turn, plan, sizes_of(turn, room.counter), room)
    if room.budget is None or fitted.tokens <= HARD * room.budget:
        return fitted
    return await _compacted(turn, fitted, room, (int(LOW * room.budget), int(HARD * room.budget), room.budget))


async def compact(turn: Turn, now: Fitted, room: Room, goal: int) -> Fitted:
    """Cuts a request whose tokens were counted to about `goal` of them."""
    return await _compacted(turn, now, room, (goal, goal, 0))


async def _compacted(turn: Turn, now: Fitted, room: Room, sizes: tuple[int, int, int]) -> Fitted:
    """sizes: the tokens to cut to; those up to which a kept summary is reused; those that may wait for a summary that is being made.

    First old, large tool results become stubs, then the oldest groups are summarised. What cannot be cut stays.
    """
    goal, limit, patience = sizes
    stored = sorted((index_of(turn, link), text) for link, text in await room.load(turn.chain.links))
    cutter = _Cutter(turn, room, sizes_of(turn, room.counter), index_of(turn, now.plan.epoch.cut), stored)
    if (found := cutter.reused(now, goal, limit)) is not None:
        return found
    coming = room.coming is not None and await room.coming()
    if coming and now.tokens <= patience:
        now.how = "waits for its summary"
        return now
    return await cutter.evict(goal, coming=coming)


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is to be summarised ahead: `text`, on top of the summary under `base`, to be kept under `link`. count: messages."""

    link: bytes
    base: bytes | None
    text: str
    tokens: int
    count: int


async def ahead(turn: Turn, now: Fitted, room: Room, answers: Sequence[Json]) -> Ahead | None:
    """What to summarise now, so that a request that passes the hard threshold finds its summary; None when there is nothing to do.

    answers: they are in the next request too. The cut is the one that leaves the low threshold when the hard one is reached. Where it
    is there or under way, `now.coming` says so from then on, and it is not looked for again.
    """
    more = len(msgspec.json.encode(answers))  # no text has more tokens than bytes
    if now.coming or room.budget is None or (now.tokens or (room.most or 0)) + more <= SOFT * room.budget:
        return None
    found, now = now, counted(turn, now, room)
    if now.tokens + sum(room.counter.message(a) for a in answers) <= SOFT * room.budget:
        return None
    cut = index_of(turn, now.plan.epoch.cut)
    cutter = _Cutter(turn, room, sizes_of(turn, room.counter), cut, [])
    allowance = cutter.allowance(0)
    newest = turn.messages.after.user
    at = min(newest, cutter.until(max(0, now.tokens - int((HARD - LOW) * room.budget)) - allowance))
    if at <= max(0, cut + 1):
        return None
    known = {link for link, _ in await room.load(turn.chain.links)}
    stored = [i for i in range(len(turn.messages)) if turn.chain.links[i] in known and not is_system(turn.messages[i])]
    base = max((i for i in stored if i < at), default=-1)
    gone = cutter.between(base, at)
    there = max(stored, default=-1) > cut
    found.coming = there or bool(gone)
    if there or not gone:
        return None
    return Ahead(turn.chain.links[at - 1], turn.chain.links[base] if base >= 0 else None, transcript([turn.messages[i] for i in gone]), allowance, len(gone))


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

    def reused(self, now: Fitted, goal: int, limit: int) -> Fitted | None:
        """The request with stubs alone, or with the kept summary that evicts least, where that is enough."""
        if self.elide is not None and now.plan.epoch.elide != self.elide:
            text = dict(self.stored).get(self.cut, "")
            if (self.cut < 0 or text) and (fitted := self.fresh(text, self.cut, "elided")).tokens <= goal:
                return fitted
        for index, text in self.stored:
            if index > self.cut or (index == self.cut and now.plan.epoch.cut is None):
                fitted = self.fresh(text, index, "summary reused")
                if fitted.tokens <= limit and fitted.tokens < now.tokens:
                    fitted.evicted = self.between(-1, index + 1)
                    return fitted
        return None

    def allowance(self, goal: int) -> int:
        """Tokens that a summary may have."""
        return max(100, min(1200, (self.room.budget or goal * 2) // 10))

    def between(self, after: int, before: int) -> list[int]:
        """The messages after one index and before another that can be left out."""
        messages = self.turn.messages
        newest = messages.after.user
        return [i for i in range(after + 1, before) if not is_system(messages[i]) and i != newest]

    async def evict(self, goal: int, *, coming: bool = False) -> Fitted:
        """Summarises the oldest groups, as few as will do; on top of the summary that covers most of them already.

        coming: the summary is being made elsewhere, so this one is the fallback's, for this request alone."""
        messages, room = self.turn.messages, self.room
        allowance = self.allowance(goal)
        at = self.until(goal - allowance)
        if at <= max(0, self.cut + 1):
            return self.fresh(dict(self.stored).get(self.cut, ""), self.cut, "nothing to evict")
        base, before = max(((i, text) for i, text in self.stored if i < at), default=(-1, ""))
        gone = self.between(base, at)
        text, by_model = await summarise(None if coming else room.complete, before, [messages[i] for i in gone], allowance, room.seconds)
        if gone and not coming:
            await room.save(self.turn.chain.links[at - 1], text, len(gone))
        how = "summarised" if by_model else "dropped, its summary is being made" if coming else "dropped, the summariser failed"
        fitted = self.fresh(text, at - 1, how)
        fitted.evicted = gone
        return fitted

    def until(self, goal: int) -> int:
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

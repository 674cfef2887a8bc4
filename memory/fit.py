"""Makes a request fit its context window: measures it, reuses a kept summary, or evicts and summarises (MEMORY.md 6).

A summary is kept under the chain hash of the last message it stands for, so the next request that resends the same history
reuses it and the cost of a turn does not grow with the conversation. A compaction begins a new epoch with a fresh core text.
Neither does that of a compaction: it hashes and counts what the one before it left (`Tail`), not all that was ever said.

Past the soft threshold the summary is to be made ahead, by a job; while one is under way no turn waits for a model: it uses the
room that is left above the hard threshold, and past that the fallback, which is not kept. Whether one is under way is always asked
before what is kept is read: a summary is kept in the very transaction that ends its job, so it is seen by one of the two, and no
stretch is summarised twice.
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
from memory.summary import Complete, Piece, length_of, pieces, summarise
from memory.tokens import Counter, length
from memory.tools import SEARCHING, WRITING
from memory.window import (
    HARD,
    LOW,
    NOTHING_LEFT_OUT,
    SOFT,
    STUB,
    Gap,
    cut_at,
    elidable,
    groups,
    stub,
    within_turn,
)

Kept = tuple[bytes, str]  # chain link of the last message a summary stands for, and its text
Summary = tuple[int, str]  # its index, and the text
COMPACTION = "compaction"  # why an epoch began
OVER = 1.05  # of its room, that a request is taken to have which was refused for its size
OURS_BYTES = len(msgspec.json.encode([*WRITING, *SEARCHING]))


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
    turn evicted, or made a stub of. cut: index of the last message that the epoch left behind, -1 for none. held: tokens of the messages and of what is
    placed among them, as counted. coming: the summary after the epoch's own is kept or was asked for."""

    plan: Plan
    drop: Gap = NOTHING_LEFT_OUT
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
        return (
            before is self.of
            and messages.after.newest == before.count
            and messages.after.system == before.system
        )


def _size(counter: Counter, message: Json, digest: bytes) -> int:
    return counter.message(message, digest if digest != EMPTY else None)


class Tail:
    """The messages that a cut left, hashed and counted; of those before it only what is sent all the same: system messages, the newest user's.

    cut: index of the last message that was cut, -1 for none; link: the chain's there. start: index of the first one of the tail; `messages`
    and `sizes` (tokens) begin with it. links: the chain's, from the cut's own on, each with the index of the message that it ends in.
    """

    def __init__(self, turn: Turn, counter: Counter, cut: int, link: bytes | None = None) -> None:
        self.turn, self.start = turn, cut + 1
        if link is not None:
            turn.reach(self.start, link)
        self.messages: Sequence[Json] = turn.messages[self.start :]
        self.sizes = [
            _size(counter, m, turn.chain.digest(i)) for i, m in enumerate(self.messages, self.start)
        ]
        self._newest = turn.messages.after.user
        self._before = [i for i in turn.messages.first(self.start) if self._stays(i)]
        self.apart = sum(counter.message(turn.messages[i]) for i in self._before)
        named = [(turn.chain.link(i), i) for i in range(self.start, len(turn.messages))]
        if cut >= 0 or turn.messages.after.behind:
            named.insert(0, (turn.chain.before(self.start), cut))
        self.links = dict(reversed(named))  # system messages leave a link as it is

    def _stays(self, index: int) -> bool:
        return is_system(self.turn.messages[index]) or index == self._newest

    def staying(self, cut: int) -> list[int]:
        """The indexes up to `cut` that are sent all the same."""
        return [*self._before, *(i for i in range(self.start, cut + 1) if self._stays(i))]

    def between(self, after: int, before: int) -> list[int]:
        """The messages of the tail after one index and before another that are left out, now or, the newest user's, once there is a newer one."""
        return [
            i
            for i in range(max(after + 1, self.start), before)
            if not is_system(self.turn.messages[i])
        ]

    def size(self, index: int) -> int:
        return self.sizes[index - self.start]


def counted(turn: Turn, now: Fitted, room: Room) -> Fitted:
    """The same request with its tokens counted."""
    return now if now.tokens else _whole(turn, now.plan, room)


def refused(turn: Turn, now: Fitted, room: Room, least: int | None) -> Fitted:
    """The same request counted anew, once it was refused for its size: it has `least` tokens or more; None: more than there was
    room for, as far as that is known."""
    now = counted(turn, now, room)
    raw = now.held + room.other
    room.counter.refused(
        room.model, raw, int(OVER * (room.budget or 0)) if least is None else least
    )
    return replace(now, tokens=room.counter.scaled(room.model, raw))


def at_most(turn: Turn, plan: Plan, size: int, recall: str, offers: bool) -> int | None:
    """Tokens that a request has at most, where it is all text: a token is a byte at least. size: of the body in bytes, 0 when unknown.
    offers: whether our tools are added."""
    if not size or not turn.messages.after.texts:
        return None
    ours = [plan.epoch.core, recall, *plan.notes.values()]
    spliced = sum(len(msgspec.json.encode(hidden)) for hidden in plan.splices.values())
    return size + sum(len(x.encode()) for x in ours) + spliced + OURS_BYTES * offers


def _whole(turn: Turn, plan: Plan, room: Room) -> Fitted:
    """What the plan's epoch leaves out and stubs, found in the history, and what is left in tokens."""
    if plan.epoch.cut is not None:
        turn.enter()
    cut = turn.chain.place(plan.epoch.cut)
    tail = Tail(turn, room.counter, cut, plan.epoch.cut if cut >= 0 else None)
    return view(tail, plan, room, cut, tail.links.get(plan.epoch.elide or b"", -1))


def view(tail: Tail, plan: Plan, room: Room, cut: int, elide: int) -> Fitted:
    """The request without what is cut, up to index `cut`, and with stubs for the large tool results up to `elide`; and what is left in tokens."""
    counter, turn, staying = room.counter, tail.turn, tail.staying(cut)
    stubbed = (i + tail.start for i in elidable(tail.messages, tail.sizes, elide + 1 - tail.start))
    swap = {i: stub(turn.messages[i], tail.size(i)) for i in stubbed if i > cut}
    sent = [
        *(i for i in staying if i >= tail.start),
        *range(max(cut + 1, tail.start), len(turn.messages)),
    ]
    held = (
        counter.text(plan.epoch.core)
        + tail.apart
        + sum(tail.size(i) for i in sent if i not in swap and i not in plan.splices)
    )
    held += sum(counter.message(m) for m in swap.values()) + _placed(plan, counter, 0)
    return Fitted(
        plan,
        Gap(cut, tuple(staying)),
        swap,
        counter.scaled(room.model, held + room.other),
        cut=cut,
        held=held,
    )


def _placed(plan: Plan, counter: Counter, start: int) -> int:
    """Tokens of the notes and hidden exchanges at message `start` or after it."""
    hidden = [m for i, spliced in plan.splices.items() if i >= start for m in spliced]
    return sum(counter.text(n) for i, n in plan.notes.items() if i >= start) + sum(
        map(counter.message, hidden)
    )


def grown(turn: Turn, plan: Plan, before: Fitted, room: Room) -> Fitted:
    """The same for a turn that goes on, under its epoch, from what was fitted `before`: only what is new is counted."""
    known = turn.messages.before.count
    fresh = [i for i in range(known, len(turn.messages)) if i not in plan.splices]
    held = (
        before.held
        + sum(_size(room.counter, turn.messages[i], turn.chain.digest(i)) for i in fresh)
        + _placed(plan, room.counter, known)
    )
    return replace(
        before,
        plan=plan,
        tokens=room.counter.scaled(room.model, held + room.other),
        held=held,
        how="",
        evicted=[],
    )


async def fit(turn: Turn, plan: Plan, room: Room, before: Fitted | None = None) -> Fitted:
    """The request as it is when it fits under the hard threshold, else compacted to the low one; as it is, too, while its summary
    is being made and it still fits the budget. before: the same for the messages that came before, under the plan's epoch."""
    if room.ample and plan.epoch.cut is None and plan.epoch.elide is None:
        return Fitted(plan)
    fitted = grown(turn, plan, before, room) if before and before.held else _whole(turn, plan, room)
    if room.budget is None or fitted.tokens <= HARD * room.budget:
        return fitted
    return await _compacted(
        turn, fitted, room, (int(LOW * room.budget), int(HARD * room.budget), room.budget)
    )


async def compact(turn: Turn, now: Fitted, room: Room, goal: int) -> Fitted:
    """Cuts a request whose tokens were counted to about `goal` of them."""
    fitted = await _compacted(turn, now, room, (goal, goal, 0))
    fitted.evicted = sorted({*now.evicted, *fitted.evicted})  # what this turn cut before, too
    return fitted


async def _compacted(turn: Turn, now: Fitted, room: Room, sizes: tuple[int, int, int]) -> Fitted:
    """sizes: the tokens to cut to; those up to which a kept summary is reused; those that may wait for a summary that is being made.

    First old, large tool results become stubs, then the oldest groups are summarised. What cannot be cut stays.
    """
    goal, limit, patience = sizes
    coming = room.coming is not None and await room.coming()
    if coming and now.tokens <= patience:
        now.how = "waits for its summary"
        return now
    cutter = await _cutter(turn, now, room)
    return cutter.reused(now, goal, limit) or await cutter.evict(goal, coming=coming)


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is to be summarised ahead: `pieces`, on top of the summary under `base`, to be kept under `link`. count: messages."""

    link: bytes
    base: bytes | None
    pieces: list[Piece]
    tokens: int
    count: int


async def ahead(turn: Turn, now: Fitted, room: Room, answers: Sequence[Json]) -> Ahead | None:
    """What to summarise now, so that a request that passes the hard threshold finds its summary; None when there is nothing to do.

    answers: they are in the next request too. The cut is the one that leaves the low threshold when the hard one is reached. Where the
    summary is there or is asked for here, `now.coming` says so from then on, and it is not looked for again: one that no model makes is the
    hard threshold's to do without, not paid for with each turn until then.
    """
    if now.coming or room.budget is None:
        return None
    left = SOFT * room.budget - (now.tokens or (room.most or 0))
    if sum(map(length, answers)) <= left and len(msgspec.json.encode(answers)) <= left:
        return None  # no text has more tokens than bytes; a very long one is not written to be measured
    found, now = now, counted(turn, now, room)
    if now.tokens + sum(room.counter.message(a) for a in answers) <= SOFT * room.budget:
        return None
    if room.coming is not None and await room.coming():
        return None
    cutter = await _cutter(turn, now, room)
    allowance = cutter.allowance(0)
    at = min(
        turn.messages.after.user,
        cutter.until(max(0, now.tokens - int((HARD - LOW) * room.budget)) - allowance),
    )
    if at <= max(0, now.cut + 1):
        return None
    base, _ = cutter.base(at)
    gone = cutter.tail.between(base, at)
    there = any(i > now.cut for i, _ in cutter.stored)
    found.coming = there or bool(gone)
    if there or not gone:
        return None
    each, most = length_of(getattr(room.complete, "window", None), allowance)
    text = pieces([turn.messages[i] for i in gone], each)
    return Ahead(
        cutter.link(at - 1),
        cutter.link(base) if cutter.stored and base >= cutter.stored[0][0] else None,
        text,
        most,
        len(gone),
    )


async def _cutter(turn: Turn, now: Fitted, room: Room) -> _Cutter:
    """With what the cut left; where the summary of what it cut is not kept, with what the last one left whose summary is, or
    with all of the history."""
    places = [(now.cut, now.plan.epoch.cut)] if now.cut >= 0 else []
    if places and (mark := turn.mark) is not None and mark.index <= now.cut:
        places.append((mark.index - 1, mark.link))
    for cut, link in places:
        tail = Tail(turn, room.counter, cut, link)
        stored = await room.load(list(tail.links))
        if any(kept == link for kept, _ in stored):
            return _Cutter(tail, room, now, stored)
    tail = Tail(turn, room.counter, -1)
    return _Cutter(tail, room, now, await room.load(list(tail.links)))


class _Cutter:
    """One compaction of `now`. stored: index and text of the summaries that are kept of its history, the cut's own and later ones, in order."""

    def __init__(self, tail: Tail, room: Room, now: Fitted, stored: Sequence[Kept]) -> None:
        self.tail, self.room, self.cut = tail, room, now.cut
        self.stored = sorted((tail.links[link], text) for link, text in stored)
        found = groups(tail.messages)
        newest = found[-1].start if found else 0
        self._elided = (
            newest - 1 + tail.start if elidable(tail.messages, tail.sizes, newest) else -1
        )
        self.elide = tail.turn.chain.link(self._elided) if self._elided >= 0 else None

    def fresh(self, summary: str, cut: int, how: str) -> Fitted:
        """The request under a new epoch that stands for everything up to message `cut` by this summary."""
        room = self.room
        link = self.link(cut) if cut >= 0 else self.tail.turn.messages.after.behind or None
        epoch = replace(
            begun(room.blocks, room.tag, room.edits, summary=summary, cut=link), elide=self.elide
        )
        fitted = view(self.tail, Plan(epoch, COMPACTION), room, cut, self._elided)
        fitted.how, fitted.evicted = how, list(fitted.swap)  # of a stub, search has the whole
        return fitted

    def link(self, index: int) -> bytes:
        """The chain's, at a message of the tail or at the cut."""
        chain = self.tail.turn.chain
        return chain.link(index) if index >= self.tail.start else chain.before(index + 1)

    def _mark(self, cut: int) -> None:
        """Lets later turns look at what this cut leaves, and no more."""
        turn = self.tail.turn
        turn.messages.mark(turn.chain.key, cut + 1, self.link(cut), self.tail.staying(cut))

    def base(self, at: int) -> Summary:
        """The kept summary that covers most of what is before index `at`."""
        return max((one for one in self.stored if one[0] < at), default=(-1, ""))

    def reused(self, now: Fitted, goal: int, limit: int) -> Fitted | None:
        """The request with stubs alone, or with the kept summary that evicts least, where that is enough."""
        if self.elide is not None and now.plan.epoch.elide != self.elide:
            text = dict(self.stored).get(self.cut, "")
            if (self.cut < 0 or text) and (
                fitted := self.fresh(text, self.cut, "elided")
            ).tokens <= goal:
                return fitted
        for index, text in self.stored:
            if index > self.cut:
                fitted = self.fresh(text, index, "summary reused")
                if fitted.tokens <= limit and fitted.tokens < now.tokens:
                    self._mark(index)
                    fitted.evicted = [*self.tail.between(self.cut, index + 1), *fitted.evicted]
                    return fitted
        return None

    def allowance(self, goal: int) -> int:
        """Tokens that a summary may have."""
        return max(100, min(1200, (self.room.budget or goal * 2) // 10))

    async def evict(self, goal: int, *, coming: bool = False) -> Fitted:
        """Summarises the oldest groups, as few as will do; on top of the summary that covers most of them already.

        coming: the summary is being made elsewhere, so this one is the fallback's, for this request alone."""
        messages, room = self.tail.turn.messages, self.room
        allowance = self.allowance(goal)
        at, own = self.until(goal - allowance), dict(self.stored).get(self.cut, "")
        if at <= self.cut + 1 and (
            own or self.cut < 0
        ):  # else the cut's own summary is not kept, and is made again
            return self.fresh(own, self.cut, "nothing to evict")
        base, before = self.base(at)
        gone = self.tail.between(base, at)
        text, by_model = await summarise(
            None if coming else room.complete,
            before,
            [messages[i] for i in gone],
            allowance,
            room.seconds,
        )
        if gone and not coming:
            await room.save(self.link(at - 1), text, len(gone))
            self._mark(at - 1)
        how = (
            "summarised"
            if by_model
            else "dropped, its summary is being made"
            if coming
            else "dropped, the summariser failed"
        )
        fitted = self.fresh(text, at - 1, how)
        fitted.evicted = [
            *self.tail.between(min(base, self.cut), at),
            *fitted.evicted,
        ]  # what a summary made ahead stands for among them
        return fitted

    def until(self, goal: int) -> int:
        """The index before which everything goes, so that what is left is about `goal` tokens."""
        tail, start = self.tail, self.tail.start
        messages, begin = tail.messages, max(0, self.cut + 1 - start)
        stubbed = set(elidable(messages, tail.sizes, self._elided + 1 - start))
        lean = [min(size, STUB) if i in stubbed else size for i, size in enumerate(tail.sizes)]
        newest = tail.turn.messages.after.user - start
        bare = self.fresh("", len(tail.turn.messages) - 1, "")  # what stays whatever is evicted
        left = max(0, goal - (bare.tokens - (lean[newest] if newest >= 0 else 0)))
        at = cut_at(messages, lean, left, begin)
        if sum(lean[i] for i in range(at, len(lean)) if not is_system(messages[i])) > left:
            at = max([at, *(g.end for g in within_turn(messages, lean, left, max(at, begin)))])
        return at + start

"""Makes a request fit its context window: measures it, reuses a kept summary, or evicts and
summarises (MEMORY.md 6).

A summary is kept under the chain hash of the last message it stands for, so the next request that
resends the same history reuses it and the cost of a turn does not grow with the conversation. A
compaction begins a new epoch with a fresh core text. Neither does that of a compaction: it hashes
and counts what the one before it left (`UncompactedMessages`), not all that was ever said.

Past the soft threshold the summary is to be made ahead, by a job; while one is under way no turn
waits for a model: it uses the room that is left above the hard threshold, and past that the
fallback, which is not kept. Whether one is under way is always asked before what is kept is read: a
summary is kept in the very transaction that ends its job, so it is seen by one of the two, and no
stretch is summarised twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from memory.context.epoch import PlacementPlan, new_epoch
from memory.context.fitted import (
    ContextBudget,
    FittedContext,
    Kept,
    Summary,
    UncompactedMessages,
    message_size,
)
from memory.context.summary import Piece, length_of, pieces, summarise
from memory.context.tokens import TokenCounter, length
from memory.context.window import (
    HARD,
    LOW,
    SOFT,
    STUB,
    SummarizedGap,
    elidable,
    eviction_index,
    groups,
    groups_within_turn,
    stub,
)
from memory.conversation.matching import RequestHistory
from memory.conversation.messages import Json, is_system
from memory.core.tool_definitions import SEARCHING, WRITING

COMPACTION = "compaction"  # why an epoch began


OVER = 1.05  # of its room, that a request is taken to have which was refused for its size


OURS_BYTES = len(msgspec.json.encode([*WRITING, *SEARCHING]))


def ensure_counted(turn: RequestHistory, now: FittedContext, room: ContextBudget) -> FittedContext:
    """Return the same request with its tokens counted."""
    return now if now.tokens else _whole(turn, now.plan, room)


def recount_after_refusal(
    turn: RequestHistory, now: FittedContext, room: ContextBudget, least: int | None
) -> FittedContext:
    """Return the same request counted anew, once it was refused for its size: it has `least` tokens
    or more; None: more than there was room for, as far as that is known.
    """
    now = ensure_counted(turn, now, room)
    raw = now.held + room.other
    room.counter.learn_from_refusal(
        room.model, raw, int(OVER * (room.budget or 0)) if least is None else least
    )
    return replace(now, tokens=room.counter.scale(room.model, raw))


def at_most(
    turn: RequestHistory, plan: PlacementPlan, size: int, recall: str, offers: bool
) -> int | None:
    """Return tokens that a request has at most, where it is all text: a token is a byte at least.

    size: of the body in bytes, 0 when unknown. offers: whether our tools are added.
    """
    if not size or not turn.messages.after.texts:
        return None
    ours = [plan.epoch.core, recall, *plan.notes.values()]
    spliced = sum(len(msgspec.json.encode(hidden)) for hidden in plan.splices.values())
    return size + sum(len(x.encode()) for x in ours) + spliced + OURS_BYTES * offers


def _whole(turn: RequestHistory, plan: PlacementPlan, room: ContextBudget) -> FittedContext:
    """Return what the plan's epoch leaves out and stubs, found in the history, and what is left in
    tokens.
    """
    if plan.epoch.cut is not None:
        turn.enter()
    cut = turn.chain.place(plan.epoch.cut)
    tail = UncompactedMessages(turn, room.counter, cut, plan.epoch.cut if cut >= 0 else None)
    return apply_cut(tail, plan, room, cut, tail.links.get(plan.epoch.elide or b"", -1))


def apply_cut(
    tail: UncompactedMessages, plan: PlacementPlan, room: ContextBudget, cut: int, elide: int
) -> FittedContext:
    """Return the request without what is cut, up to index `cut`, and with stubs for the large tool
    results up to `elide`; and what is left in tokens.
    """
    counter, turn, staying = room.counter, tail.turn, tail.kept_indexes(cut)
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
    held += sum(counter.message(m) for m in swap.values()) + _placed_tokens(plan, counter, 0)
    return FittedContext(
        plan,
        SummarizedGap(cut, tuple(staying)),
        swap,
        counter.scale(room.model, held + room.other),
        cut=cut,
        held=held,
    )


def _placed_tokens(plan: PlacementPlan, counter: TokenCounter, start: int) -> int:
    """Return tokens of the notes and hidden exchanges at message `start` or after it."""
    hidden = [m for i, spliced in plan.splices.items() if i >= start for m in spliced]
    return sum(counter.text(n) for i, n in plan.notes.items() if i >= start) + sum(
        map(counter.message, hidden)
    )


def extend_fitted(
    turn: RequestHistory, plan: PlacementPlan, before: FittedContext, room: ContextBudget
) -> FittedContext:
    """Return the same for a turn that goes on, under its epoch, from what was fitted `before`: only
    what is new is counted.
    """
    known = turn.messages.before.count
    fresh = [i for i in range(known, len(turn.messages)) if i not in plan.splices]
    held = (
        before.held
        + sum(message_size(room.counter, turn.messages[i], turn.chain.digest(i)) for i in fresh)
        + _placed_tokens(plan, room.counter, known)
    )
    return replace(
        before,
        plan=plan,
        tokens=room.counter.scale(room.model, held + room.other),
        held=held,
        how="",
        evicted=[],
    )


async def fit(
    turn: RequestHistory,
    plan: PlacementPlan,
    room: ContextBudget,
    before: FittedContext | None = None,
) -> FittedContext:
    """Return the request as it is when it fits under the hard threshold, else compacted to the low
    one; as it is, too, while its summary is being made and it still fits the budget. before: the
    same for the messages that came before, under the plan's epoch.
    """
    if room.certainly_fits and plan.epoch.cut is None and plan.epoch.elide is None:
        return FittedContext(plan)
    fitted = (
        extend_fitted(turn, plan, before, room)
        if before and before.held
        else _whole(turn, plan, room)
    )
    if room.budget is None or fitted.tokens <= HARD * room.budget:
        return fitted
    goals = _Goals(int(LOW * room.budget), int(HARD * room.budget), room.budget)
    return await _compact(turn, fitted, room, goals)


async def compact(
    turn: RequestHistory, now: FittedContext, room: ContextBudget, goal: int
) -> FittedContext:
    """Cut a request whose tokens were counted to about `goal` of them."""
    fitted = await _compact(turn, now, room, _Goals(goal, goal, 0))
    fitted.evicted = sorted({*now.evicted, *fitted.evicted})  # what this turn cut before, too
    return fitted


class _Goals(NamedTuple):
    """Sizes of a compaction, in tokens.

    goal: to which it cuts. limit: up to which a kept summary is reused. patience: up to which the
    request waits for a summary that is being made.
    """

    goal: int
    limit: int
    patience: int


async def _compact(
    turn: RequestHistory, now: FittedContext, room: ContextBudget, goals: _Goals
) -> FittedContext:
    """Stub old, large tool results, then summarise the oldest groups; what cannot be cut stays."""
    goal, limit, patience = goals
    coming = room.coming is not None and await room.coming()
    if coming and now.tokens <= patience:
        now.how = "waits for its summary"
        return now
    cutter = await _cutter(turn, now, room)
    return cutter.reuse_summary(now, goal, limit) or await cutter.evict(goal, coming=coming)


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """What is to be summarised ahead: `pieces`, on top of the summary under `base`, to be kept
    under `link`. count: messages.
    """

    link: bytes
    base: bytes | None
    pieces: list[Piece]
    tokens: int
    count: int


async def plan_summary(
    turn: RequestHistory, now: FittedContext, room: ContextBudget, answers: Sequence[Json]
) -> SummaryTask | None:
    """Return what to summarise now, so that a request that passes the hard threshold finds its
    summary; None when there is nothing to do.

    answers: they are in the next request too. The cut is the one that leaves the low threshold when
    the hard one is reached. Where the summary is there or is asked for here, `now.coming` says so
    from then on, and it is not looked for again: one that no model makes is the hard threshold's to
    do without, not paid for with each turn until then.
    """
    if now.coming or room.budget is None or _surely_below_soft(now, room, answers):
        return None
    found, now = now, ensure_counted(turn, now, room)
    if now.tokens + sum(room.counter.message(a) for a in answers) <= SOFT * room.budget:
        return None
    if room.coming is not None and await room.coming():
        return None
    cutter = await _cutter(turn, now, room)
    allowance = cutter.allowance(0)
    over = max(0, now.tokens - int((HARD - LOW) * room.budget))
    at = min(turn.messages.after.user, cutter.until(over - allowance))
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
    after = cutter.link(base) if cutter.stored and base >= cutter.stored[0][0] else None
    return SummaryTask(cutter.link(at - 1), after, text, most, len(gone))


def _surely_below_soft(now: FittedContext, room: ContextBudget, answers: Sequence[Json]) -> bool:
    """Tell without counting whether the next request stays below the soft threshold.

    No text has more tokens than bytes. A very long one is not written to be measured.
    """
    left = SOFT * (room.budget or 0) - (now.tokens or (room.most or 0))
    return sum(map(length, answers)) <= left and len(msgspec.json.encode(answers)) <= left


async def _cutter(turn: RequestHistory, now: FittedContext, room: ContextBudget) -> _Compactor:
    """With what the cut left; where the summary of what it cut is not kept, with what the last one
    left whose summary is, or with all of the history.
    """
    places = [(now.cut, now.plan.epoch.cut)] if now.cut >= 0 else []
    if places and (mark := turn.mark) is not None and mark.index <= now.cut:
        places.append((mark.index - 1, mark.link))
    for cut, link in places:
        tail = UncompactedMessages(turn, room.counter, cut, link)
        stored = await room.load(list(tail.links))
        if any(kept == link for kept, _ in stored):
            return _Compactor(tail, room, now, stored)
    tail = UncompactedMessages(turn, room.counter, -1)
    return _Compactor(tail, room, now, await room.load(list(tail.links)))


class _Compactor:
    """One compaction of `now`.

    stored: index and text of the summaries that are kept of its history, the cut's own and later
    ones, in order.
    """

    def __init__(
        self,
        tail: UncompactedMessages,
        room: ContextBudget,
        now: FittedContext,
        stored: Sequence[Kept],
    ) -> None:
        self.tail, self.room, self.cut = tail, room, now.cut
        self.stored = sorted((tail.links[link], text) for link, text in stored)
        found = groups(tail.messages)
        newest = found[-1].start if found else 0
        self._elided = (
            newest - 1 + tail.start if elidable(tail.messages, tail.sizes, newest) else -1
        )
        self.elide = tail.turn.chain.link(self._elided) if self._elided >= 0 else None

    def fresh(self, summary: str, cut: int, how: str) -> FittedContext:
        """Return the request under a new epoch that stands for everything up to message `cut` by
        this summary.
        """
        room = self.room
        link = self.link(cut) if cut >= 0 else self.tail.turn.messages.after.behind or None
        epoch = replace(
            new_epoch(room.blocks, room.tag, room.edits, summary=summary, cut=link),
            elide=self.elide,
        )
        fitted = apply_cut(self.tail, PlacementPlan(epoch, COMPACTION), room, cut, self._elided)
        fitted.how, fitted.evicted = how, list(fitted.swap)  # of a stub, search has the whole
        return fitted

    def link(self, index: int) -> bytes:
        """Return the chain's, at a message of the tail or at the cut."""
        chain = self.tail.turn.chain
        return chain.link(index) if index >= self.tail.start else chain.before(index + 1)

    def _mark(self, cut: int) -> None:
        """Let later turns look at what this cut leaves, and no more."""
        turn = self.tail.turn
        turn.messages.mark(turn.chain.key, cut + 1, self.link(cut), self.tail.kept_indexes(cut))

    def base(self, at: int) -> Summary:
        """Return the kept summary that covers most of what is before index `at`."""
        return max((one for one in self.stored if one[0] < at), default=(-1, ""))

    def reuse_summary(self, now: FittedContext, goal: int, limit: int) -> FittedContext | None:
        """Return the request with stubs alone, or with the kept summary that evicts least, where
        that is enough.
        """
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
        """Return tokens that a summary may have."""
        return max(100, min(1200, (self.room.budget or goal * 2) // 10))

    async def evict(self, goal: int, *, coming: bool = False) -> FittedContext:
        """Summarise the oldest groups, as few as will do; on top of the summary that covers most
        of them already.

        coming: the summary is being made elsewhere, so this one is the fallback's, for this request
        alone.
        """
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
        """Return the index before which everything goes, so that what is left is about `goal`
        tokens.
        """
        tail, start = self.tail, self.tail.start
        messages, begin = tail.messages, max(0, self.cut + 1 - start)
        stubbed = set(elidable(messages, tail.sizes, self._elided + 1 - start))
        lean = [min(size, STUB) if i in stubbed else size for i, size in enumerate(tail.sizes)]
        newest = tail.turn.messages.after.user - start
        bare = self.fresh("", len(tail.turn.messages) - 1, "")  # what stays whatever is evicted
        left = max(0, goal - (bare.tokens - (lean[newest] if newest >= 0 else 0)))
        at = eviction_index(messages, lean, left, begin)
        if sum(lean[i] for i in range(at, len(lean)) if not is_system(messages[i])) > left:
            at = max(
                [at, *(g.end for g in groups_within_turn(messages, lean, left, max(at, begin)))]
            )
        return at + start

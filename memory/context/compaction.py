"""Makes a request fit its context window: counts tokens, reuses summaries, evicts, summarises.

A summary is stored under the chain hash of the last message it covers, so the next request that
resends the same history reuses it, and the cost of a turn does not grow with the conversation. A
compaction begins a new epoch with a fresh core text. Its own cost does not grow either: it hashes
and counts what the previous one left (`UncompactedMessages`), not the whole history.

Beyond the soft threshold a job makes the summary in advance. While one is being made no turn waits
for a model: it uses the space above the hard threshold, and beyond that the fallback, which is not
stored. Whether one is being made is always checked before stored summaries are read. Since a
summary is stored in the transaction that ends its job, one of the two checks finds it, and nothing
is summarised twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from memory.context.summary import Piece, SummaryRules, length_of, pieces, summarise
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

COMPACTION = "compaction"  # the reason for a new epoch


OVER = 1.05  # of its budget: the assumed size of a request that overflowed


OURS_BYTES = len(msgspec.json.encode([*WRITING, *SEARCHING]))


def ensure_counted(
    turn: RequestHistory, now: FittedContext, context_budget: ContextBudget
) -> FittedContext:
    """Return the request with its tokens counted."""
    return now if now.tokens else _whole(turn, now.plan, context_budget)


def recount_after_refusal(
    turn: RequestHistory, now: FittedContext, context_budget: ContextBudget, least: int | None
) -> FittedContext:
    """Return a request that overflowed, counted again.

    least: tokens that it has at least; None: more than the budget, as far as that is known.
    """
    now = ensure_counted(turn, now, context_budget)
    raw = now.held + context_budget.other
    context_budget.counter.learn_from_refusal(
        context_budget.model,
        raw,
        int(OVER * (context_budget.budget or 0)) if least is None else least,
    )
    return msgspec.structs.replace(
        now, tokens=context_budget.counter.scale(context_budget.model, raw)
    )


def at_most(
    turn: RequestHistory, plan: PlacementPlan, size: int, recall: str, tool_bytes: int
) -> int | None:
    """Return an upper bound for the tokens of a text-only request; None if unknown.

    No token is shorter than a byte. size: of the body in bytes, 0 if unknown. tool_bytes: of the
    tools that are added.
    """
    if not size or not turn.messages.after.texts:
        return None
    ours = len(plan.epoch.core.encode()) + len(recall.encode()) + tool_bytes
    for text in plan.notes.values():
        ours += len(text.encode())
    for hidden in plan.splices.values():
        ours += len(msgspec.json.encode(hidden))
    return size + ours


def _whole(
    turn: RequestHistory, plan: PlacementPlan, context_budget: ContextBudget
) -> FittedContext:
    """Find what the plan's epoch leaves out and stubs, and count the rest."""
    if plan.epoch.cut is not None:
        turn.enter()
    cut = turn.chain.place(plan.epoch.cut)
    tail = UncompactedMessages(
        turn, context_budget.counter, cut, plan.epoch.cut if cut >= 0 else None
    )
    return apply_cut(tail, plan, context_budget, cut, tail.links.get(plan.epoch.elide or b"", -1))


def apply_cut(
    tail: UncompactedMessages,
    plan: PlacementPlan,
    context_budget: ContextBudget,
    cut: int,
    elide: int,
) -> FittedContext:
    """Return the request without the messages up to `cut`, with stubs up to `elide`, counted.

    Stubs replace large tool results.
    """
    counter, turn, staying = context_budget.counter, tail.turn, tail.kept_indexes(cut)
    stubbed = (i + tail.start for i in elidable(tail.messages, tail.sizes, elide + 1 - tail.start))
    swap = {i: stub(turn.messages[i], tail.size(i)) for i in stubbed if i > cut}
    sent = [
        *(i for i in staying if i >= tail.start),
        *range(max(cut + 1, tail.start), len(turn.messages)),
    ]
    held = (
        counter.text(plan.epoch.core)
        + tail.count_before(staying)
        + sum(tail.size(i) for i in sent if i not in swap and i not in plan.splices)
    )
    held += sum(counter.message(m) for m in swap.values()) + _placed_tokens(plan, counter, 0)
    return FittedContext(
        plan,
        SummarizedGap(cut, tuple(staying)),
        swap,
        counter.scale(context_budget.model, held + context_budget.other),
        cut=cut,
        held=held,
    )


def _placed_tokens(plan: PlacementPlan, counter: TokenCounter, start: int) -> int:
    """Count the notes and hidden exchanges from message `start` on."""
    hidden = [m for i, spliced in plan.splices.items() if i >= start for m in spliced]
    return sum(counter.text(n) for i, n in plan.notes.items() if i >= start) + sum(
        map(counter.message, hidden)
    )


def extend_fitted(
    turn: RequestHistory, plan: PlacementPlan, before: FittedContext, context_budget: ContextBudget
) -> FittedContext:
    """Return the fit of a turn that continues `before` under the same epoch.

    Only new messages are counted.
    """
    known = turn.messages.before.count
    fresh = [i for i in range(known, len(turn.messages)) if i not in plan.splices]
    held = (
        before.held
        + sum(
            message_size(context_budget.counter, turn.messages[i], turn.chain.digest(i))
            for i in fresh
        )
        + _placed_tokens(plan, context_budget.counter, known)
    )
    return msgspec.structs.replace(
        before,
        plan=plan,
        tokens=context_budget.counter.scale(context_budget.model, held + context_budget.other),
        held=held,
        how="",
        evicted=[],
    )


async def fit(
    turn: RequestHistory,
    plan: PlacementPlan,
    context_budget: ContextBudget,
    before: FittedContext | None = None,
) -> FittedContext:
    """Return the request unchanged if it fits the hard threshold, otherwise compacted.

    A compaction cuts to the low threshold. The request also stays unchanged while its summary is
    being made, if it fits the budget. before: the fit of the preceding messages, under the plan's
    epoch.
    """
    if context_budget.certainly_fits and plan.epoch.cut is None and plan.epoch.elide is None:
        return FittedContext(plan)
    count: Callable[[], FittedContext] = partial(_whole, turn, plan, context_budget)
    if before and before.held:
        count = partial(extend_fitted, turn, plan, before, context_budget)
    # A message of 100,000 parts takes longer to count than others may wait.
    fitted = await asyncio.to_thread(count) if turn.messages.heavy else count()
    if context_budget.budget is None or fitted.tokens <= HARD * context_budget.budget:
        return fitted
    goals = _Goals(
        int(LOW * context_budget.budget), int(HARD * context_budget.budget), context_budget.budget
    )
    return await _compact(turn, fitted, context_budget, goals)


async def compact(
    turn: RequestHistory, now: FittedContext, context_budget: ContextBudget, goal: int
) -> FittedContext:
    """Cut a counted request to about `goal` tokens."""
    fitted = await _compact(turn, now, context_budget, _Goals(goal, goal, 0))
    fitted.evicted = sorted({*now.evicted, *fitted.evicted})  # including what this turn cut before
    return fitted


class _Goals(NamedTuple):
    """Sizes of a compaction, in tokens.

    goal: to cut to. limit: up to which a stored summary is reused. patience: up to which the
    request waits for a summary that is being made.
    """

    goal: int
    limit: int
    patience: int


async def _compact(
    turn: RequestHistory, now: FittedContext, context_budget: ContextBudget, goals: _Goals
) -> FittedContext:
    """Stub old, large tool results, then summarise the oldest groups that may be evicted."""
    goal, limit, patience = goals
    coming = context_budget.coming is not None and await context_budget.coming()
    if coming and now.tokens <= patience:
        now.how = "waits for its summary"
        return now
    cutter = await _cutter(turn, now, context_budget)
    return cutter.reuse_summary(now, goal, limit) or await cutter.evict(goal, coming=coming)


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """A summary to make in advance.

    pieces: to be summarised on top of the summary under `base`, and stored under `link`. count:
    messages.
    """

    link: bytes
    base: bytes | None
    pieces: list[Piece]
    tokens: int
    count: int


async def plan_summary(
    turn: RequestHistory, now: FittedContext, context_budget: ContextBudget, answers: Sequence[Json]
) -> SummaryTask | None:
    """Return what to summarise now, so that a later request finds its summary; None for nothing.

    answers: of this turn, which are part of the next request. The cut is the one that leaves the
    low threshold when the hard one is reached. Once the summary exists or is requested here,
    `now.coming` is set and it is not looked for again: if no model makes it, the hard threshold
    handles that, rather than every turn until then.
    """
    if (
        now.coming
        or context_budget.budget is None
        or _surely_below_soft(now, context_budget, answers)
    ):
        return None
    found, now = now, ensure_counted(turn, now, context_budget)
    if (
        now.tokens + sum(context_budget.counter.message(a) for a in answers)
        <= SOFT * context_budget.budget
    ):
        return None
    if context_budget.coming is not None and await context_budget.coming():
        return None
    cutter = await _cutter(turn, now, context_budget)
    allowance = cutter.allowance(0)
    over = max(0, now.tokens - int((HARD - LOW) * context_budget.budget))
    at = min(turn.messages.after.user, cutter.until(over - allowance))
    if at <= max(0, now.cut + 1):
        return None
    base, _ = cutter.base(at)
    gone = cutter.tail.between(base, at)
    there = any(i > now.cut for i, _ in cutter.stored)
    found.coming = there or bool(gone)
    if there or not gone:
        return None
    each, most = length_of(getattr(context_budget.complete, "window", None), allowance)
    text = pieces([turn.messages[i] for i in gone], each)
    after = cutter.link(base) if cutter.stored and base >= cutter.stored[0][0] else None
    return SummaryTask(cutter.link(at - 1), after, text, most, len(gone))


def _surely_below_soft(
    now: FittedContext, context_budget: ContextBudget, answers: Sequence[Json]
) -> bool:
    """Tell, without counting, that the next request stays below the soft threshold.

    No text has more tokens than bytes. A very long one is not encoded to be measured.
    """
    most = context_budget.most
    tokens = now.tokens or (most.tokens if most is not None else 0)
    left = SOFT * (context_budget.budget or 0) - tokens
    return sum(map(length, answers)) <= left and len(msgspec.json.encode(answers)) <= left


async def _cutter(
    turn: RequestHistory, now: FittedContext, context_budget: ContextBudget
) -> _Compactor:
    """Return the compactor of what the newest usable cut left.

    That is the current cut, if its summary is stored; otherwise the last cut whose summary is;
    otherwise the whole history.
    """
    places = [(now.cut, now.plan.epoch.cut)] if now.cut >= 0 else []
    if places and (mark := turn.mark) is not None and mark.index <= now.cut:
        places.append((mark.index - 1, mark.link))
    for cut, link in places:
        tail = UncompactedMessages(turn, context_budget.counter, cut, link)
        stored = await context_budget.load(list(tail.links))
        if any(kept == link for kept, _ in stored):
            return _Compactor(tail, context_budget, now, stored)
    tail = UncompactedMessages(turn, context_budget.counter, -1)
    return _Compactor(tail, context_budget, now, await context_budget.load(list(tail.links)))


class _Compactor:
    """One compaction of `now`.

    stored: index and text of the stored summaries of its history, the current one and later ones,
    in order.
    """

    def __init__(
        self,
        tail: UncompactedMessages,
        context_budget: ContextBudget,
        now: FittedContext,
        stored: Sequence[Kept],
    ) -> None:
        self.tail, self.room, self.cut = tail, context_budget, now.cut
        self._tools = now.plan.epoch.tools  # what is offered stays for this request
        self.stored = sorted((tail.links[link], text) for link, text in stored)
        found = groups(tail.messages)
        newest = found[-1].start if found else 0
        self._elided = (
            newest - 1 + tail.start if elidable(tail.messages, tail.sizes, newest) else -1
        )
        self.elide = tail.turn.chain.link(self._elided) if self._elided >= 0 else None

    def fresh(self, summary: str, cut: int, how: str) -> FittedContext:
        """Return the request under a new epoch, with this summary for all up to message `cut`."""
        context_budget = self.room
        link = self.link(cut) if cut >= 0 else self.tail.turn.messages.after.behind or None
        epoch = replace(
            new_epoch(
                context_budget.blocks,
                context_budget.tag,
                context_budget.edits,
                (link, summary),
                context_budget.instruction,
            ),
            elide=self.elide,
            tools=self._tools,
        )
        fitted = apply_cut(
            self.tail, PlacementPlan(epoch, COMPACTION), context_budget, cut, self._elided
        )
        fitted.how, fitted.evicted = how, list(fitted.swap)  # search finds the full text of a stub
        return fitted

    def link(self, index: int) -> bytes:
        """Return the chain link of a message in the tail or at the cut."""
        chain = self.tail.turn.chain
        return chain.link(index) if index >= self.tail.start else chain.before(index + 1)

    def _mark(self, cut: int) -> None:
        """Let later turns decode only what this cut leaves."""
        turn = self.tail.turn
        turn.messages.mark(turn.chain.key, cut + 1, self.link(cut), self.tail.kept_indexes(cut))

    def base(self, at: int) -> Summary:
        """Return the stored summary that covers most of what is before index `at`."""
        return max((one for one in self.stored if one[0] < at), default=(-1, ""))

    def reuse_summary(self, now: FittedContext, goal: int, limit: int) -> FittedContext | None:
        """Return the request with stubs only, or with the stored summary that evicts least.

        None if neither is enough.
        """
        if self.elide is not None and now.plan.epoch.elide != self.elide:
            text = dict(self.stored).get(self.cut, "")
            if (self.cut < 0 or text) and (
                fitted := self.fresh(text, self.cut, "elided")
            ).tokens <= goal:
                return fitted
        newest = len(self.tail.turn.messages) - 1
        for index, text in self.stored:
            if self.cut < index < newest:  # what was asked once and summarised may be asked again
                fitted = self.fresh(text, index, "summary reused")
                if fitted.tokens <= limit and fitted.tokens < now.tokens:
                    self._mark(index)
                    fitted.evicted = [*self.tail.between(self.cut, index + 1), *fitted.evicted]
                    return fitted
        return None

    def allowance(self, goal: int) -> int:
        """Return the tokens that a summary may have."""
        return max(100, min(1200, (self.room.budget or goal * 2) // 10))

    async def evict(self, goal: int, *, coming: bool = False) -> FittedContext:
        """Summarise the oldest groups, as few as needed, on top of the longest stored summary.

        coming: the summary is being made elsewhere, so this one is a fallback for this request
        only.
        """
        messages, context_budget = self.tail.turn.messages, self.room
        allowance = self.allowance(goal)
        at, own = self.until(goal - allowance), dict(self.stored).get(self.cut, "")
        if at <= self.cut + 1 and (
            own or self.cut < 0
        ):  # otherwise the cut's summary is not stored, and is made again
            return self.fresh(own, self.cut, "nothing to evict")
        base, before = self.base(at)
        gone = self.tail.between(base, at)
        text, by_model = await summarise(
            None if coming else context_budget.complete,
            before,
            [messages[i] for i in gone],
            allowance,
            SummaryRules(context_budget.seconds, context_budget.prompt),
        )
        if gone and not coming:
            await context_budget.save(self.link(at - 1), text, len(gone))
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
        ]  # including what a summary made in advance covers
        return fitted

    def until(self, goal: int) -> int:
        """Return the index before which everything is evicted to leave about `goal` tokens."""
        tail, start = self.tail, self.tail.start
        messages, begin = tail.messages, max(0, self.cut + 1 - start)
        stubbed = set(elidable(messages, tail.sizes, self._elided + 1 - start))
        lean = [min(size, STUB) if i in stubbed else size for i, size in enumerate(tail.sizes)]
        newest = tail.turn.messages.after.user - start
        bare = self.fresh("", len(tail.turn.messages) - 1, "")  # what always stays
        left = max(0, goal - (bare.tokens - (lean[newest] if newest >= 0 else 0)))
        at = eviction_index(messages, lean, left, begin)
        if sum(lean[i] for i in range(at, len(lean)) if not is_system(messages[i])) > left:
            at = max(
                [at, *(g.end for g in groups_within_turn(messages, lean, left, max(at, begin)))]
            )
        return at + start

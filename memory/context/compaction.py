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

# The reason for a new epoch.
COMPACTION = "compaction"
# Of its budget: the assumed size of a request that overflowed.
OVER = 1.05
OURS_BYTES = len(msgspec.json.encode([*WRITING, *SEARCHING]))


def ensure_counted(
    turn: RequestHistory, fitted: FittedContext, context: ContextBudget
) -> FittedContext:
    """Return the request with its tokens counted."""
    return fitted if fitted.tokens else _whole(turn, fitted.plan, context)


def recount_after_refusal(
    turn: RequestHistory,
    fitted: FittedContext,
    context: ContextBudget,
    minimum_tokens: int | None,
) -> FittedContext:
    """Return a request that overflowed, counted again.

    minimum_tokens: tokens that it has at least; None: more than the budget, as far as that is
    known.
    """
    fitted = ensure_counted(turn, fitted, context)
    estimated_tokens = fitted.held + context.other_tokens
    context.counter.learn_from_refusal(
        context.model,
        estimated_tokens,
        int(OVER * (context.budget or 0)) if minimum_tokens is None else minimum_tokens,
    )
    return msgspec.structs.replace(
        fitted, tokens=context.counter.scale(context.model, estimated_tokens)
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
    memory_bytes = len(plan.epoch.core.encode()) + len(recall.encode()) + tool_bytes
    for text in plan.notes.values():
        memory_bytes += len(text.encode())
    for exchange in plan.splices.values():
        memory_bytes += len(msgspec.json.encode(exchange))
    return size + memory_bytes


def _whole(turn: RequestHistory, plan: PlacementPlan, context: ContextBudget) -> FittedContext:
    """Find what the plan's epoch leaves out and stubs, and count the rest."""
    if plan.epoch.cut is not None:
        turn.enter()
    cut_index = turn.chain.place(plan.epoch.cut)
    tail = UncompactedMessages(
        turn, context.counter, cut_index, plan.epoch.cut if cut_index >= 0 else None
    )
    return apply_cut(tail, plan, context, cut_index, tail.links.get(plan.epoch.elide or b"", -1))


def apply_cut(
    tail: UncompactedMessages,
    plan: PlacementPlan,
    context: ContextBudget,
    cut_index: int,
    elide: int,
) -> FittedContext:
    """Return the request without the messages up to `cut_index`, with stubs up to `elide`, counted.

    Stubs replace large tool results.
    """
    counter = context.counter
    turn = tail.turn
    staying = tail.kept_indexes(cut_index)
    stubbed = (i + tail.start for i in elidable(tail.messages, tail.sizes, elide + 1 - tail.start))
    swap = {i: stub(turn.messages[i], tail.size(i)) for i in stubbed if i > cut_index}
    sent_indexes = [
        *(i for i in staying if i >= tail.start),
        *range(max(cut_index + 1, tail.start), len(turn.messages)),
    ]
    message_tokens = (
        counter.text(plan.epoch.core)
        + tail.count_before(staying)
        + sum(tail.size(i) for i in sent_indexes if i not in swap and i not in plan.splices)
    )
    message_tokens += sum(counter.message(m) for m in swap.values()) + _placed_tokens(
        plan, counter, 0
    )
    return FittedContext(
        plan,
        SummarizedGap(cut_index, tuple(staying)),
        swap,
        counter.scale(context.model, message_tokens + context.other_tokens),
        cut=cut_index,
        held=message_tokens,
    )


def _placed_tokens(plan: PlacementPlan, counter: TokenCounter, start: int) -> int:
    """Count the notes and hidden exchanges from message `start` on."""
    spliced_messages = [m for i, spliced in plan.splices.items() if i >= start for m in spliced]
    return sum(counter.text(n) for i, n in plan.notes.items() if i >= start) + sum(
        map(counter.message, spliced_messages)
    )


def extend_fitted(
    turn: RequestHistory,
    plan: PlacementPlan,
    previous_fit: FittedContext,
    context: ContextBudget,
) -> FittedContext:
    """Return the fit of a turn that continues `previous_fit` under the same epoch.

    Only new messages are counted.
    """
    previous_count = turn.messages.before.count
    new_indexes = [i for i in range(previous_count, len(turn.messages)) if i not in plan.splices]
    message_tokens = (
        previous_fit.held
        + sum(
            message_size(context.counter, turn.messages[i], turn.chain.digest(i))
            for i in new_indexes
        )
        + _placed_tokens(plan, context.counter, previous_count)
    )
    return msgspec.structs.replace(
        previous_fit,
        plan=plan,
        tokens=context.counter.scale(context.model, message_tokens + context.other_tokens),
        held=message_tokens,
        how="",
        evicted=[],
    )


async def fit(
    turn: RequestHistory,
    plan: PlacementPlan,
    context: ContextBudget,
    previous_fit: FittedContext | None = None,
) -> FittedContext:
    """Return the request unchanged if it fits the hard threshold, otherwise compacted.

    A compaction cuts to the low threshold. The request also stays unchanged while its summary is
    being made, if it fits the budget. previous_fit: the fit of the preceding messages, under the
    plan's epoch.
    """
    if context.certainly_fits and plan.epoch.cut is None and plan.epoch.elide is None:
        return FittedContext(plan)
    count: Callable[[], FittedContext] = partial(_whole, turn, plan, context)
    if previous_fit and previous_fit.held:
        count = partial(extend_fitted, turn, plan, previous_fit, context)
    # A message of 100,000 parts takes longer to count than others may wait.
    fitted = await asyncio.to_thread(count) if turn.messages.heavy else count()
    if context.budget is None or fitted.tokens <= HARD * context.budget:
        return fitted
    goals = _Goals(int(LOW * context.budget), int(HARD * context.budget), context.budget)
    return await _compact(turn, fitted, context, goals)


async def compact(
    turn: RequestHistory, now: FittedContext, context: ContextBudget, goal: int
) -> FittedContext:
    """Cut a counted request to about `goal` tokens."""
    fitted = await _compact(turn, now, context, _Goals(goal, goal, 0))
    # Including what this turn cut before.
    fitted.evicted = sorted({*now.evicted, *fitted.evicted})
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
    turn: RequestHistory, now: FittedContext, context: ContextBudget, goals: _Goals
) -> FittedContext:
    """Stub old, large tool results, then summarise the oldest groups that may be evicted."""
    goal, limit, patience = goals
    coming = context.coming is not None and await context.coming()
    if coming and now.tokens <= patience:
        now.how = "waits for its summary"
        return now
    cutter = await _cutter(turn, now, context)
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
    turn: RequestHistory,
    fitted: FittedContext,
    context: ContextBudget,
    answers: Sequence[Json],
) -> SummaryTask | None:
    """Return what to summarise now, so that a later request finds its summary; None for nothing.

    answers: of this turn, which are part of the next request. The cut is the one that leaves the
    low threshold when the hard one is reached. Once the summary exists or is requested here,
    `coming` is set and it is not looked for again: if no model makes it, the hard threshold
    handles that, rather than every turn until then.
    """
    if fitted.coming or context.budget is None or _surely_below_soft(fitted, context, answers):
        return None
    uncounted = fitted
    fitted = ensure_counted(turn, fitted, context)
    if fitted.tokens + sum(context.counter.message(a) for a in answers) <= SOFT * context.budget:
        return None
    if context.coming is not None and await context.coming():
        return None
    cutter = await _cutter(turn, fitted, context)
    allowance = cutter.allowance(0)
    over = max(0, fitted.tokens - int((HARD - LOW) * context.budget))
    cut_end = min(turn.messages.after.user, cutter.until(over - allowance))
    if cut_end <= max(0, fitted.cut + 1):
        return None
    base, _ = cutter.base(cut_end)
    evicted_indexes = cutter.tail.between(base, cut_end)
    has_later_summary = any(i > fitted.cut for i, _ in cutter.stored)
    uncounted.coming = has_later_summary or bool(evicted_indexes)
    if has_later_summary or not evicted_indexes:
        return None
    piece_tokens, summary_tokens = length_of(getattr(context.complete, "window", None), allowance)
    text = pieces([turn.messages[i] for i in evicted_indexes], piece_tokens)
    base_link = cutter.link(base) if cutter.stored and base >= cutter.stored[0][0] else None
    return SummaryTask(
        cutter.link(cut_end - 1), base_link, text, summary_tokens, len(evicted_indexes)
    )


def _surely_below_soft(
    fitted: FittedContext, context: ContextBudget, answers: Sequence[Json]
) -> bool:
    """Tell, without counting, that the next request stays below the soft threshold.

    By what the upstream counted of this one, if it told; else by what was counted here, or by a
    bound: no text has more tokens than bytes. A very long one is not encoded to be measured.
    """
    request_bound = context.token_bound
    bound_tokens = request_bound.tokens if request_bound is not None else 0
    tokens = fitted.reported or fitted.tokens or bound_tokens
    free_tokens = SOFT * (context.budget or 0) - tokens
    return (
        sum(map(length, answers)) <= free_tokens
        and len(msgspec.json.encode(answers)) <= free_tokens
    )


async def _cutter(
    turn: RequestHistory, fitted: FittedContext, context: ContextBudget
) -> _Compactor:
    """Return the compactor of what the newest usable cut left.

    That is the current cut, if its summary is stored; otherwise the last cut whose summary is;
    otherwise the whole history.
    """
    places = [(fitted.cut, fitted.plan.epoch.cut)] if fitted.cut >= 0 else []
    if places and (cut_record := turn.mark) is not None and cut_record.index <= fitted.cut:
        places.append((cut_record.index - 1, cut_record.link))
    for cut_index, link in places:
        tail = UncompactedMessages(turn, context.counter, cut_index, link)
        summaries = await context.load(list(tail.links))
        if any(summary_link == link for summary_link, _ in summaries):
            return _Compactor(tail, context, fitted, summaries)
    tail = UncompactedMessages(turn, context.counter, -1)
    return _Compactor(tail, context, fitted, await context.load(list(tail.links)))


class _Compactor:
    """One compaction of `now`.

    stored: index and text of the stored summaries of its history, the current one and later ones,
    in order.
    """

    def __init__(
        self,
        tail: UncompactedMessages,
        context: ContextBudget,
        fitted: FittedContext,
        summaries: Sequence[Kept],
    ) -> None:
        self.tail = tail
        self.room = context
        self.cut = fitted.cut
        # What is offered stays for this request.
        self._tools = fitted.plan.epoch.tools
        self.stored = sorted((tail.links[link], text) for link, text in summaries)
        message_groups = groups(tail.messages)
        newest_start = message_groups[-1].start if message_groups else 0
        if elidable(tail.messages, tail.sizes, newest_start):
            self._elided = newest_start - 1 + tail.start
        else:
            self._elided = -1
        self.elide = tail.turn.chain.link(self._elided) if self._elided >= 0 else None

    def fresh(self, summary: str, cut_index: int, reason: str) -> FittedContext:
        """Return the request under a new epoch, with this summary of all up to `cut_index`."""
        context = self.room
        link = (
            self.link(cut_index) if cut_index >= 0 else self.tail.turn.messages.after.behind or None
        )
        epoch = replace(
            new_epoch(
                context.blocks,
                context.tag,
                context.edits,
                (link, summary),
                context.instruction,
            ),
            elide=self.elide,
            tools=self._tools,
        )
        fitted = apply_cut(
            self.tail, PlacementPlan(epoch, COMPACTION), context, cut_index, self._elided
        )
        # Search finds the full text of a stub.
        fitted.evicted = list(fitted.swap)
        fitted.how = reason
        return fitted

    def link(self, index: int) -> bytes:
        """Return the chain link of a message in the tail or at the cut."""
        chain = self.tail.turn.chain
        return chain.link(index) if index >= self.tail.start else chain.before(index + 1)

    def _mark(self, cut_index: int) -> None:
        """Let later turns decode only what this cut leaves."""
        turn = self.tail.turn
        turn.messages.mark(
            turn.chain.key, cut_index + 1, self.link(cut_index), self.tail.kept_indexes(cut_index)
        )

    def base(self, end_index: int) -> Summary:
        """Return the stored summary that covers most of what is before index `end_index`."""
        return max((summary for summary in self.stored if summary[0] < end_index), default=(-1, ""))

    def reuse_summary(
        self, fitted_before: FittedContext, goal: int, limit: int
    ) -> FittedContext | None:
        """Return the request with stubs only, or with the stored summary that evicts least.

        None if neither is enough.
        """
        if self.elide is not None and fitted_before.plan.epoch.elide != self.elide:
            text = dict(self.stored).get(self.cut, "")
            if (self.cut < 0 or text) and (
                fitted := self.fresh(text, self.cut, "elided")
            ).tokens <= goal:
                return fitted
        newest_index = len(self.tail.turn.messages) - 1
        for index, text in self.stored:
            # What was asked once and summarised may be asked again.
            if self.cut < index < newest_index:
                fitted = self.fresh(text, index, "summary reused")
                if fitted.tokens <= limit and fitted.tokens < fitted_before.tokens:
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
        messages = self.tail.turn.messages
        context = self.room
        allowance = self.allowance(goal)
        end_index, cut_summary = self.until(goal - allowance), dict(self.stored).get(self.cut, "")
        # Otherwise the cut's summary is not stored, and is made again.
        if end_index <= self.cut + 1 and (cut_summary or self.cut < 0):
            return self.fresh(cut_summary, self.cut, "nothing to evict")
        base, base_summary = self.base(end_index)
        evicted_indexes = self.tail.between(base, end_index)
        text, by_model = await summarise(
            None if coming else context.complete,
            base_summary,
            [messages[i] for i in evicted_indexes],
            allowance,
            SummaryRules(context.seconds, context.prompt),
        )
        if evicted_indexes and not coming:
            await context.save(self.link(end_index - 1), text, len(evicted_indexes))
            self._mark(end_index - 1)
        reason = (
            "summarised"
            if by_model
            else "dropped, its summary is being made"
            if coming
            else "dropped, the summariser failed"
        )
        fitted = self.fresh(text, end_index - 1, reason)
        # Including what a summary made in advance covers.
        covered_indexes = self.tail.between(min(base, self.cut), end_index)
        fitted.evicted = [*covered_indexes, *fitted.evicted]
        return fitted

    def until(self, goal: int) -> int:
        """Return the index before which everything is evicted to leave about `goal` tokens."""
        tail, start = self.tail, self.tail.start
        messages, begin = tail.messages, max(0, self.cut + 1 - start)
        stubbed = set(elidable(messages, tail.sizes, self._elided + 1 - start))
        lean = [min(size, STUB) if i in stubbed else size for i, size in enumerate(tail.sizes)]
        newest_user = tail.turn.messages.after.user - start
        # What always stays. Sizes are as counted here, the goal is as the upstream counts.
        bare = self.fresh("", len(tail.turn.messages) - 1, "")
        spare_tokens = self.room.counter.unscale(self.room.model, goal - bare.tokens)
        free_tokens = max(0, spare_tokens + (lean[newest_user] if newest_user >= 0 else 0))
        end_index = eviction_index(messages, lean, free_tokens, begin)
        remaining = range(end_index, len(lean))
        if sum(lean[i] for i in remaining if not is_system(messages[i])) > free_tokens:
            group_start = max(end_index, begin)
            evicted_groups = groups_within_turn(messages, lean, free_tokens, group_start)
            end_index = max([end_index, *(group.end for group in evicted_groups)])
        return end_index + start

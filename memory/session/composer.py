"""Composes the prompt of a request from the request and its snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from memory.context import epoch as epochs
from memory.context.compaction import (
    COMPACTION,
    at_most,
    compact,
    fit,
    recount_after_refusal,
)
from memory.context.fitted import (
    ContextBudget,
    FittedContext,
    SampledSize,
    SentPrompt,
    TokenBound,
)
from memory.context.tokens import PromptReport, TokenCounter, fewest, prompt_tokens_of
from memory.context.window import LOW, SummarizedGap, budget, fit_blocks
from memory.conversation.history import Messages, Span
from memory.conversation.messages import Json, text_of
from memory.core import tool_definitions
from memory.core.blocks import CoreBlock
from memory.retrieval.auto_recall import Recall
from memory.session.context import TurnContext
from memory.session.kept_summaries import KeptSummaries
from memory.session.prepared_memory import PlacedMemory, PreparedMemory, prepare
from memory.session.turn_recall import TurnRecall
from memory.session.turn_store import LIGHT
from memory.session.turn_tools import offer_tools, plan_placement

SHARES = (0.5, 0.25, 0.125)  # of a prompt's tokens to keep, after each context overflow
EXPECTED_SHARE = 0.75  # of a prompt's tokens as counted here: a smaller report is looked into
SURE_SHARE = 0.9  # of the fewest tokens that a text can have, for a vocabulary that has fewer
ROLE_TOKENS = 3  # of a message, beside its text, in every template
ANY_TAG = "0a1b2c3d4e"  # stands for a scope's own where only its length matters
NO_RECALL = Recall()
MOST_BYTES = 6  # of a token, in a text of any language, on average


class Prompt(msgspec.Struct, frozen=True):
    """What is sent for one request.

    messages: the history, preceded by the stored part if the client sends only the rest. client:
    its messages as they came, if the next request will begin with them. core, notes, splices,
    recall, offered: what is added; notes and splices by message index. recalled: keys of the
    passages in `recall`. tools_tokens: tokens of the tools first offered. previous: what the
    previous turn sent for the beginning of these messages. seen: label to the block's version as
    the model sees it. injected_tokens: of the core text, the notes and our tools. owned: names of
    calls that are run here. prepared: what the next turn may go on from.
    """

    messages: Messages
    client: Messages | None
    fitted: FittedContext
    budget: ContextBudget
    core: str
    notes: dict[int, str]
    splices: dict[int, list[Json]]
    recall: str
    recalled: Recall
    offered: Sequence[Json]
    tools_tokens: int
    previous: SentPrompt | None
    seen: Mapping[str, int]
    injected_tokens: int = 0
    owned: frozenset[str] = tool_definitions.OURS
    prepared: PreparedMemory | None = None

    @property
    def plan(self) -> epochs.PlacementPlan:
        return self.fitted.plan

    @property
    def drop(self) -> SummarizedGap:
        """The messages left out."""
        return self.fitted.drop

    @property
    def swap(self) -> dict[int, Json]:
        """The messages sent in another form."""
        return self.fitted.swap

    @property
    def adds_anything(self) -> bool:
        return bool(self.core or self.notes or self.offered or self.recall)

    def with_fitted(self, fitted: FittedContext) -> Prompt:
        """Return the prompt with another fit; after a compaction `previous` no longer applies."""
        plan = fitted.plan
        return msgspec.structs.replace(
            self,
            fitted=fitted,
            core=plan.epoch.core,
            notes=plan.notes,
            splices=plan.splices,
            previous=None if plan.reason == COMPACTION else self.previous,
            injected_tokens=_placed_tokens(self.budget.counter, plan, self.budget.tag)
            + (self.tools_tokens if self.offered else 0),
        )

    def without_memory(self) -> Prompt:
        """Return the prompt without any memory, so that nothing counts as sent."""
        plan = msgspec.structs.replace(self.plan, note="")
        fitted = msgspec.structs.replace(self.fitted, plan=plan)
        return msgspec.structs.replace(
            self,
            fitted=fitted,
            core="",
            notes={},
            splices={},
            offered=[],
            recall="",
            injected_tokens=0,
        )

    def without_tools(self, names: Collection[str]) -> Prompt:
        """Return the prompt without some of the tools that it offers."""
        offered = [tool for tool in self.offered if tool["function"]["name"] not in names]
        return msgspec.structs.replace(self, offered=offered)

    def sent_to(
        self, target: str, pieces: Sequence[bytes | Span], tokenizer: str
    ) -> SentPrompt | None:
        """Return what the next turn can reuse, once this was sent to a target.

        pieces: without what was recalled for this turn alone. None if something else in it is not
        replayed, or will stand elsewhere.
        """
        after = self.messages.after
        if not self.core or self.fitted.cut >= after.user:
            return None
        return SentPrompt(
            after, target, pieces, self.fitted, self.plan.places, tokenizer, self.budget.other
        )


def _placed_tokens(counter: TokenCounter, plan: epochs.PlacementPlan, tag: str) -> int:
    """Count the tokens of a plan's core text and notes.

    tag: of the scope. All scopes with the same blocks are counted once, so it counts as any other.
    """
    tokens = counter.text(plan.epoch.core.replace(tag, ANY_TAG))
    for note in plan.notes.values():
        tokens += counter.text(note.replace(tag, ANY_TAG))
    return tokens


def fewest_tokens(prompt: Prompt, enough: int) -> int:
    """Return a number of tokens that the messages of a prompt have at least, see `fewest`.

    enough: it is no matter whether there are more. The newest messages are looked at first.
    """
    found = fewest(prompt.core)
    for i in reversed([*prompt.drop.remaining_indexes(0, len(prompt.messages))]):
        if i not in prompt.swap:
            found += fewest(text_of(prompt.messages[i])) + ROLE_TOKENS
        if SURE_SHARE * found > enough:
            break
    return int(SURE_SHARE * found)


def fewest_after(prompt: Prompt, before: SentPrompt) -> int:
    """Return the fewest tokens of a prompt that begins with all of the previous turn's.

    0 if it does not, or if nobody counted that one. Of texts alone: others may be left out later.
    """
    messages = prompt.messages
    if not before.reported or prompt.budget.most is None:
        return 0
    if before.other != prompt.budget.other or not before.goes_on(messages):
        return 0
    tokens = 0
    for index in range(before.of.count, len(messages)):
        tokens += fewest(text_of(messages[index]))
    return before.reported + int(SURE_SHARE * tokens)


class Composer:
    """Composes the prompts of one turn."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self._counter = turn.services.counter

    async def compose(self) -> Prompt:
        """Plan the epoch and fit the window."""
        turn = self._turn
        ask, snapshot = turn.ask, turn.snapshot
        prepared = snapshot.prepared
        if prepared is not None and not prepared.holds(turn):
            prepared = None
        planned = prepared.place(turn) if prepared is not None else None
        if prepared is None or planned is None:
            prepared, (planned, placed) = None, self._place()
        else:
            placed = prepared.placed
        tools = offer_tools(turn, self._counter, planned)
        wants_recall = ask.recall and placed.shown and not turn.is_spare
        recalled = (
            await TurnRecall(turn, self._counter).find(planned) if wants_recall else NO_RECALL
        )
        other = tools.tokens + self._counter.text(recalled.text) if recalled.text else tools.tokens
        if ask.client_tools:
            turn.progress.trace.client_tools = self._counter.tools(ask.client_tools)
            other += turn.progress.trace.client_tools
        size = 0 if snapshot.prepended else len(ask.body)
        most = at_most(snapshot.turn, planned, size, recalled.text, tools.byte_count)
        budget_left = self._context_budget(placed, other, most)
        sent = self._reusable(planned, recalled)
        fitted = await self._fit(planned, budget_left, sent)
        messages, plan = snapshot.turn.messages, fitted.plan
        if plan is not planned:
            prepared, placed = None, self._count_placed(placed, plan)
        return Prompt(
            messages,
            None if turn.keeps_history else messages,
            fitted,
            budget_left,
            plan.epoch.core,
            plan.notes,
            plan.splices,
            recalled.text,
            recalled,
            tools.definitions,
            tools.tokens,
            None if plan.reason == COMPACTION else sent,
            placed.seen,
            placed.tokens + tools.tokens,
            tools.owned,
            prepare(turn, plan, placed) if prepared is None else prepared,
        )

    def _place(self) -> tuple[epochs.PlacementPlan, PlacedMemory]:
        """Return where the memory goes, and what is shown of it."""
        turn, ask = self._turn, self._turn.ask
        shown = self._shown_blocks() if turn.injects else []
        planned = plan_placement(turn, shown)
        tokens = budget(ask.window, ask.max_output) if ask.window else None
        return planned, self._count_placed(PlacedMemory(shown, tokens, {}, 0), planned)

    def _count_placed(self, placed: PlacedMemory, plan: epochs.PlacementPlan) -> PlacedMemory:
        """Return what is placed with what a plan shows of it, and its tokens."""
        tokens = _placed_tokens(self._counter, plan, self._turn.ask.scope.tag)
        seen = _versions_seen(plan, placed.shown)
        return msgspec.structs.replace(placed, seen=seen, tokens=tokens)

    def recount(self, prompt: Prompt, told: tuple[int, int] | None) -> Prompt:
        """Return a prompt that overflowed, with its tokens counted again.

        Remembers the error of the estimate. told: tokens of the prompt and of the window, if the
        error names them.
        """
        fitted = recount_after_refusal(
            self._turn.snapshot.turn, prompt.fitted, prompt.budget, told[0] if told else None
        )
        return msgspec.structs.replace(prompt, fitted=fitted)

    async def compact_harder(
        self, prompt: Prompt, attempt: int, told: tuple[int, int] | None
    ) -> Prompt | None:
        """Cut a counted prompt to a half, a quarter, an eighth.

        told: see `recount`. Returns None if nothing more can be removed.
        """
        before = prompt.fitted.tokens
        goal = int(before * SHARES[attempt])
        if told:
            goal = min(goal, int(LOW * budget(told[1], self._turn.ask.max_output)))
        fitted = await compact(self._turn.snapshot.turn, prompt.fitted, prompt.budget, goal)
        if fitted.tokens >= before:
            return None
        self._trace_eviction(fitted)
        return prompt.with_fitted(fitted)

    async def calibrate(
        self, prompt: Prompt, usage: Json | None, before: SentPrompt | None = None
    ) -> PromptReport | None:
        """Let the token estimate learn from what the upstream counted.

        before: what this target was sent in the previous turn, if that is known. A count of less
        than all of the prompt teaches nothing. Returns the count; None without one.
        """
        reported = prompt_tokens_of(usage or {})
        if type(reported) is not int or reported <= 0:
            return None
        expected = EXPECTED_SHARE * prompt.fitted.tokens
        bytes_sent = prompt.budget.most.size if prompt.budget.most is not None else 0
        least = fewest_after(prompt, before) if before is not None else 0
        if reported < (expected or bytes_sent / MOST_BYTES):
            # A thread costs more than counting a few messages does.
            count = partial(fewest_tokens, prompt, reported + 1)
            light = len(self._turn.ask.body) <= LIGHT
            least = max(least, count() if light else await asyncio.to_thread(count))
        report = PromptReport(reported, least)
        if prompt.core and prompt.fitted.held and report.is_whole:
            held = prompt.fitted.held + prompt.budget.other
            self._counter.correct(self._turn.ask.model, held, reported)
        return report

    def _reusable(self, planned: epochs.PlacementPlan, recalled: Recall) -> SentPrompt | None:
        """Return what the turn before sent, if this one goes on from it.

        What is recalled then goes into a message that is new.
        """
        snapshot = self._turn.snapshot
        sent, newest = snapshot.sent, snapshot.turn.messages.after.user
        if sent is None or planned.epoch is not snapshot.past.epoch:
            return None
        return None if recalled.text and newest < sent.of.count else sent

    def _shown_blocks(self) -> list[CoreBlock]:
        """Return the blocks to show, as many as half of the window takes.

        Without empty ones where little is added.
        """
        turn = self._turn
        blocks = [b for b in turn.snapshot.blocks.values() if not turn.is_spare or b.value]
        shown, left_out = fit_blocks(blocks, turn.ask.window, self._counter.text)
        if left_out:
            turn.progress.trace.left_out = left_out
            turn.progress.trace.note_once(
                f"left out, since half of the window of {turn.ask.window} tokens was full: the "
                f"blocks {', '.join(left_out)}"
            )
        return shown

    async def _fit(
        self, planned: epochs.PlacementPlan, budget_left: ContextBudget, sent: SentPrompt | None
    ) -> FittedContext:
        if not self._turn.injects:
            return FittedContext(planned)
        is_whole = planned.epoch.cut is None and planned.epoch.elide is None
        if is_whole and budget_left.certainly_fits_with_answer:  # as nearly always
            return FittedContext(planned)
        sampled = self._sample(budget_left, sent)
        known = sent is not None and sent.tokenizer == self._turn.ask.tokenizer
        before = sent.fitted if sent is not None and known else None
        fitted = await fit(self._turn.snapshot.turn, planned, budget_left, before)
        if sampled is not None and not fitted.tokens:
            fitted.sampled = sampled
        self._trace_eviction(fitted)
        return fitted

    def _context_budget(
        self,
        placed: PlacedMemory,
        other: int,
        most: int | None,
    ) -> ContextBudget:
        """Return the available context. other, most: see `ContextBudget`."""
        turn, ask, snapshot = self._turn, self._turn.ask, self._turn.snapshot
        stored = KeptSummaries(
            turn.services.db,
            snapshot.owner,
            turn.progress.scope_id,
            snapshot.conversation.id if snapshot.conversation else None,
            turn.identity.conversation.id if turn.is_recording else None,
            turn.progress.trace.notes,
            turn.attempt.patience,
            snapshot.behind,
        )
        return ContextBudget(
            self._counter,
            ask.model,
            placed.shown,
            ask.scope.tag,
            snapshot.edits,
            placed.budget,
            other,
            ask.complete,
            stored.load,
            stored.save,
            turn.policy.summary_seconds,
            stored.is_coming,
            TokenBound(most) if most is not None else None,
            turn.policy.rules.instruction,
            turn.policy.summary_prompt,
        )

    def _sample(self, room: ContextBudget, sent: SentPrompt | None) -> SampledSize | None:
        """Estimate the request from samples, where its bytes do not tell whether it fits.

        None if they do, if nothing can, or if the turn before was counted, so that only the new
        messages are left to count. Samples of the turn before hold for what continues it.
        """
        ask, most = self._turn.ask, room.most
        if most is None or room.certainly_fits_with_answer:
            return None
        if sent is not None and sent.fitted.held:
            return None
        sampled = None
        for sampled in self._guess_sizes(sent):
            scaled = self._counter.scale(ask.model, sampled.tokens)
            most.likely = most.size - ask.size + scaled
            if room.certainly_fits_with_answer:
                break
        return sampled if room.certainly_fits else None

    def _guess_sizes(self, sent: SentPrompt | None) -> Iterator[SampledSize]:
        """Yield what the samples of the turn before say, and then those of this body."""
        ask = self._turn.ask
        if sent is not None and sent.fitted.sampled is not None:
            yield sent.fitted.sampled.grow(ask.size)
        yield SampledSize(ask.size, self._counter.sample(ask.body))

    def _trace_eviction(self, fitted: FittedContext) -> None:
        if fitted.how:
            self._turn.progress.trace.evicted.append(
                {
                    "how": fitted.how,
                    "messages": len(fitted.drop),
                    "elided": len(fitted.swap),
                    "tokens": fitted.tokens,
                }
            )


def _versions_seen(plan: epochs.PlacementPlan, shown: Sequence[CoreBlock]) -> dict[str, int]:
    """Map labels to block versions as the model sees them.

    A change that still waits for a user message counts as unseen.
    """
    told = epochs.apply_overrides(plan.epoch.blocks, plan.told)
    return {b.label: b.version for b in shown if told.get(b.label) == b.value}

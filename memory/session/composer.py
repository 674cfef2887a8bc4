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
from memory.conversation.history import Messages
from memory.conversation.json_spans import Span
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

# Of a prompt's tokens to keep, after each context overflow.
SHARES = (0.5, 0.25, 0.125)
# Of a prompt's tokens as counted here: a smaller report is looked into.
EXPECTED_SHARE = 0.75
# Of the fewest tokens that a text can have, for a vocabulary that has fewer.
SURE_SHARE = 0.9
# Of a message, beside its text, in every template.
ROLE_TOKENS = 3
# Stands for a scope's own where only its length matters.
ANY_TAG = "0a1b2c3d4e"
NO_RECALL = Recall()
# Of a token, in a text of any language, on average.
MOST_BYTES = 6


class Prompt(msgspec.Struct, frozen=True):
    """What is sent for one request.

    messages: the history, preceded by the stored part if the client sends only the rest. client:
    its messages as they came, if the next request will begin with them. core, notes, splices,
    recall, tools: what is added; notes and splices by message index. recall_result: keys of the
    passages in `recall`. tools_tokens: tokens of the tools first offered. previous_prompt: what the
    previous turn sent for the beginning of these messages. seen_versions: label to the block's
    version as the model sees it. injected_tokens: of the core text, the notes and our tools. owned:
    names of calls that are run here. prepared: what the next turn may go on from.
    """

    messages: Messages
    client: Messages | None
    fitted: FittedContext
    budget: ContextBudget
    core: str
    notes: dict[int, str]
    splices: dict[int, list[Json]]
    recall: str
    recall_result: Recall
    tools: Sequence[Json]
    tools_tokens: int
    previous_prompt: SentPrompt | None
    seen_versions: Mapping[str, int]
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
        return bool(self.core or self.notes or self.tools or self.recall)

    def prepared_for(self, blocks: Mapping[str, CoreBlock]) -> PreparedMemory | None:
        """Return what was prepared, if the turn left these blocks as they were."""
        prepared = self.prepared
        if prepared is not None and prepared.blocks is blocks:
            return prepared
        return None

    def with_fitted(self, fitted: FittedContext) -> Prompt:
        """Return the prompt with another fit; after a compaction `previous` no longer applies."""
        plan = fitted.plan
        return msgspec.structs.replace(
            self,
            fitted=fitted,
            core=plan.epoch.core,
            notes=plan.notes,
            splices=plan.splices,
            previous_prompt=None if plan.reason == COMPACTION else self.previous_prompt,
            injected_tokens=_placed_tokens(self.budget.counter, plan, self.budget.tag)
            + (self.tools_tokens if self.tools else 0),
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
            tools=[],
            recall="",
            injected_tokens=0,
        )

    def without_tools(self, names: Collection[str]) -> Prompt:
        """Return the prompt without some of the tools that it offers."""
        tools = [tool for tool in self.tools if tool["function"]["name"] not in names]
        return msgspec.structs.replace(self, tools=tools)

    def sent_to(
        self, target: str, parts: Sequence[bytes | Span], tokenizer: str
    ) -> SentPrompt | None:
        """Return what the next turn can reuse, once this was sent to a target.

        parts: without what was recalled for this turn alone. None if something else in it is not
        replayed, or will stand elsewhere.
        """
        after = self.messages.after
        if not self.core or self.fitted.cut >= after.user:
            return None
        return SentPrompt(
            after, target, parts, self.fitted, self.plan.places, tokenizer, self.budget.other_tokens
        )


def _placed_tokens(counter: TokenCounter, plan: epochs.PlacementPlan, tag: str) -> int:
    """Count the tokens of a plan's core text and notes.

    tag: of the scope. All scopes with the same blocks are counted once, so it counts as any other.
    """
    tokens = counter.text(plan.epoch.core.replace(tag, ANY_TAG))
    for note in plan.notes.values():
        tokens += counter.text(note.replace(tag, ANY_TAG))
    return tokens


def fewest_tokens(prompt: Prompt, token_goal: int) -> int:
    """Return a number of tokens that the messages of a prompt have at least, see `fewest`.

    token_goal: it is no matter whether there are more. The newest messages are looked at first.
    """
    tokens = fewest(prompt.core)
    for index in reversed([*prompt.drop.remaining_indexes(0, len(prompt.messages))]):
        if index not in prompt.swap:
            tokens += fewest(text_of(prompt.messages[index])) + ROLE_TOKENS
        if SURE_SHARE * tokens > token_goal:
            break
    return int(SURE_SHARE * tokens)


def fewest_after(prompt: Prompt, before: SentPrompt) -> int:
    """Return the fewest tokens of a prompt that begins with all of the previous turn's.

    0 if it does not, or if nobody counted that one. Of texts alone: others may be left out later.
    """
    messages = prompt.messages
    if not before.reported_tokens or prompt.budget.token_bound is None:
        return 0
    if before.other_tokens != prompt.budget.other_tokens or not before.goes_on(messages):
        return 0
    tokens = 0
    for index in range(before.of.count, len(messages)):
        tokens += fewest(text_of(messages[index]))
    return before.reported_tokens + int(SURE_SHARE * tokens)


class Composer:
    """Composes the prompts of one turn."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self._counter = turn.services.counter

    async def compose(self) -> Prompt:
        """Plan the epoch and fit the window."""
        turn, ask, snapshot = self._turn, self._turn.ask, self._turn.snapshot
        prepared, planned, placed_memory = self._place_prepared()
        tools = offer_tools(turn, self._counter, planned)
        wants_recall = ask.recall and placed_memory.blocks and not turn.is_spare
        recall_result, other_tokens = NO_RECALL, tools.tokens
        if wants_recall:
            recall_result = await TurnRecall(turn, self._counter).find(planned)
        if recall_result.text:
            other_tokens += self._counter.text(recall_result.text)
        if ask.client_tools:
            turn.progress.trace.client_tools = self._counter.tools(ask.client_tools)
            other_tokens += turn.progress.trace.client_tools
        size = 0 if snapshot.prepended_count else len(ask.body)
        max_tokens = at_most(snapshot.turn, planned, size, recall_result.text, tools.byte_count)
        budget_left = self._context_budget(placed_memory, other_tokens, max_tokens)
        sent_prompt = self._reusable(planned, recall_result)
        fitted = await self._fit(planned, budget_left, sent_prompt)
        messages, plan = snapshot.turn.messages, fitted.plan
        if plan is not planned:
            prepared, placed_memory = None, self._count_placed(placed_memory, plan)
        return Prompt(
            messages,
            None if turn.keeps_history else messages,
            fitted,
            budget_left,
            plan.epoch.core,
            plan.notes,
            plan.splices,
            recall_result.text,
            recall_result,
            tools.definitions,
            tools.tokens,
            None if plan.reason == COMPACTION else sent_prompt,
            placed_memory.seen_versions,
            placed_memory.tokens + tools.tokens,
            tools.owned,
            prepare(turn, plan, placed_memory) if prepared is None else prepared,
        )

    def _place_prepared(
        self,
    ) -> tuple[PreparedMemory | None, epochs.PlacementPlan, PlacedMemory]:
        """Return the plan, and what the turn before prepared of it: None if it does not hold."""
        prepared = self._turn.snapshot.prepared
        if prepared is not None and prepared.holds(self._turn):
            planned = prepared.place(self._turn)
            if planned is not None:
                return prepared, planned, prepared.placed_memory
        return None, *self._place()

    def _place(self) -> tuple[epochs.PlacementPlan, PlacedMemory]:
        """Return where the memory goes, and what is shown of it."""
        turn = self._turn
        ask = self._turn.ask
        if turn.injects:
            blocks = self._shown_blocks()
        else:
            blocks = []
        planned = plan_placement(turn, blocks)
        tokens = None
        if ask.window:
            tokens = budget(ask.window, ask.max_output)
        return planned, self._count_placed(PlacedMemory(blocks, tokens, {}, 0), planned)

    def _count_placed(
        self, placed_memory: PlacedMemory, plan: epochs.PlacementPlan
    ) -> PlacedMemory:
        """Return what is placed with what a plan shows of it, and its tokens."""
        tokens = _placed_tokens(self._counter, plan, self._turn.ask.scope.tag)
        seen_versions = _versions_seen(plan, placed_memory.blocks)
        return msgspec.structs.replace(placed_memory, seen_versions=seen_versions, tokens=tokens)

    def recount(self, prompt: Prompt, error_tokens: tuple[int, int] | None) -> Prompt:
        """Return a prompt that overflowed, with its tokens counted again.

        Remembers the error of the estimate. error_tokens: tokens of the prompt and of the window,
        if the error names them.
        """
        fitted = recount_after_refusal(
            self._turn.snapshot.turn,
            prompt.fitted,
            prompt.budget,
            error_tokens[0] if error_tokens else None,
        )
        return msgspec.structs.replace(prompt, fitted=fitted)

    async def compact_harder(
        self, prompt: Prompt, attempt: int, error_tokens: tuple[int, int] | None
    ) -> Prompt | None:
        """Cut a counted prompt to a half, a quarter, an eighth.

        error_tokens: see `recount`. Returns None if nothing more can be removed.
        """
        before = prompt.fitted.tokens
        goal = int(before * SHARES[attempt])
        if error_tokens:
            goal = min(goal, int(LOW * budget(error_tokens[1], self._turn.ask.max_output)))
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
        reported_tokens = prompt_tokens_of(usage or {})
        if type(reported_tokens) is not int or reported_tokens <= 0:
            return None
        expected_tokens = EXPECTED_SHARE * prompt.fitted.tokens
        bytes_sent = 0
        if prompt.budget.token_bound is not None:
            bytes_sent = prompt.budget.token_bound.size
        fewest_possible = 0
        if before is not None:
            fewest_possible = fewest_after(prompt, before)
        if reported_tokens < (expected_tokens or bytes_sent / MOST_BYTES):
            # A thread costs more than counting a few messages does.
            count = partial(fewest_tokens, prompt, reported_tokens + 1)
            is_light = len(self._turn.ask.body) <= LIGHT
            fewest_possible = max(
                fewest_possible, count() if is_light else await asyncio.to_thread(count)
            )
        report = PromptReport(reported_tokens, fewest_possible)
        if report.is_whole:
            prompt.fitted.reported = reported_tokens
        if prompt.core and prompt.fitted.held and report.is_whole:
            held_tokens = prompt.fitted.held + prompt.budget.other_tokens
            self._counter.correct(self._turn.ask.model, held_tokens, reported_tokens)
        return report

    def _reusable(self, planned: epochs.PlacementPlan, recall_result: Recall) -> SentPrompt | None:
        """Return what the turn before sent, if this one goes on from it.

        What is recalled then goes into a message that is new.
        """
        snapshot = self._turn.snapshot
        sent_prompt = snapshot.sent_prompt
        newest_message = snapshot.turn.messages.after.user
        if sent_prompt is None or planned.epoch is not snapshot.past.epoch:
            return None
        if recall_result.text and newest_message < sent_prompt.of.count:
            return None
        return sent_prompt

    def _shown_blocks(self) -> list[CoreBlock]:
        """Return the blocks to show, as many as half of the window takes.

        Without empty ones where little is added.
        """
        turn = self._turn
        blocks = [b for b in turn.snapshot.blocks.values() if not turn.is_spare or b.value]
        fitting_blocks, omitted_labels = fit_blocks(blocks, turn.ask.window, self._counter.text)
        if omitted_labels:
            turn.progress.trace.omitted_labels = omitted_labels
            turn.progress.trace.note_once(
                f"left out, since half of the window of {turn.ask.window} tokens was full: the "
                f"blocks {', '.join(omitted_labels)}"
            )
        return fitting_blocks

    async def _fit(
        self,
        planned: epochs.PlacementPlan,
        budget_left: ContextBudget,
        sent_prompt: SentPrompt | None,
    ) -> FittedContext:
        if not self._turn.injects:
            return FittedContext(planned)
        is_whole = planned.epoch.cut is None and planned.epoch.elide is None
        # As nearly always.
        if is_whole and budget_left.certainly_fits_with_answer:
            return FittedContext(planned)
        sampled_size = self._sample(budget_left, sent_prompt)
        is_comparable = (
            sent_prompt is not None and sent_prompt.tokenizer == self._turn.ask.tokenizer
        )
        previous_context = None
        if sent_prompt is not None and is_comparable:
            previous_context = sent_prompt.fitted
        fitted = await fit(self._turn.snapshot.turn, planned, budget_left, previous_context)
        if sampled_size is not None and not fitted.tokens:
            fitted.sampled = sampled_size
        self._trace_eviction(fitted)
        return fitted

    def _context_budget(
        self,
        placed_memory: PlacedMemory,
        other_tokens: int,
        max_tokens: int | None,
    ) -> ContextBudget:
        """Return the available context. other_tokens, max_tokens: see `ContextBudget`."""
        turn = self._turn
        ask = self._turn.ask
        snapshot = self._turn.snapshot
        summaries = KeptSummaries(
            turn.services.db,
            snapshot.owner,
            turn.progress.scope_id,
            snapshot.conversation.id if snapshot.conversation else None,
            turn.identity.conversation.id if turn.is_recording else None,
            turn.progress.trace.notes,
            turn.attempt.patience,
            snapshot.earlier_summary,
        )
        return ContextBudget(
            self._counter,
            ask.model,
            placed_memory.blocks,
            ask.scope.tag,
            snapshot.edits,
            placed_memory.budget,
            other_tokens,
            ask.complete,
            summaries.load,
            summaries.save,
            turn.policy.summary_seconds,
            summaries.is_coming,
            TokenBound(max_tokens) if max_tokens is not None else None,
            turn.policy.rules.instruction,
            turn.policy.summary_prompt,
        )

    def _sample(self, room: ContextBudget, sent_prompt: SentPrompt | None) -> SampledSize | None:
        """Estimate the request from samples, where its bytes do not tell whether it fits.

        None if they do, if nothing can, or if the turn before was counted, so that only the new
        messages are left to count. Samples of the turn before hold for what continues it.
        """
        ask = self._turn.ask
        token_bound = room.token_bound
        if token_bound is None or room.certainly_fits_with_answer:
            return None
        if sent_prompt is not None and sent_prompt.fitted.held:
            return None
        sampled_size = None
        for sampled_size in self._guess_sizes(sent_prompt):
            scaled_tokens = self._counter.scale(ask.model, sampled_size.tokens)
            token_bound.likely_tokens = token_bound.size - ask.size + scaled_tokens
            if room.certainly_fits_with_answer:
                break
        if room.certainly_fits:
            return sampled_size
        return None

    def _guess_sizes(self, sent_prompt: SentPrompt | None) -> Iterator[SampledSize]:
        """Yield what the samples of the turn before say, and then those of this body."""
        ask = self._turn.ask
        if sent_prompt is not None and sent_prompt.fitted.sampled is not None:
            yield sent_prompt.fitted.sampled.grow(ask.size)
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


def _versions_seen(plan: epochs.PlacementPlan, blocks: Sequence[CoreBlock]) -> dict[str, int]:
    """Map labels to block versions as the model sees them.

    A change that still waits for a user message counts as unseen.
    """
    seen_values = epochs.apply_overrides(plan.epoch.blocks, plan.told)
    return {b.label: b.version for b in blocks if seen_values.get(b.label) == b.value}

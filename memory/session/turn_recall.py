"""What automatic recall adds to a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Sequence
from functools import partial

from memory.context import epoch as epochs
from memory.context.tokens import TokenCounter
from memory.conversation.messages import Json, text_of
from memory.errors import StoreUnavailable
from memory.retrieval.auto_recall import (
    MAX_QUERY_CHARACTERS,
    AlreadyThere,
    Beginnings,
    BodyBeginnings,
    Recall,
    ShownAs,
    alternate,
    recall_query,
    render_recall,
    token_budget,
)
from memory.session.context import TurnContext
from memory.session.turn_store import LIGHT


class TurnRecall:
    """Finds what seems relevant to one request."""

    def __init__(self, turn: TurnContext, counter: TokenCounter) -> None:
        self._turn = turn
        self._counter = counter

    async def find(self, planned: epochs.PlacementPlan) -> Recall:
        """Return what automatic recall adds; note how long it took."""
        started = time.perf_counter()
        recalled = await self._recall(planned)
        milliseconds = round((time.perf_counter() - started) * 1000, 2)
        self._turn.progress.trace.timings["recall"] = milliseconds
        return recalled

    async def _recall(self, planned: epochs.PlacementPlan) -> Recall:
        """Return what automatic recall adds.

        It is searched once for each user message, and stays the same while tools run.
        """
        turn, snapshot = self._turn, self._turn.snapshot
        messages, node, waiting = snapshot.turn.messages, snapshot.past.node, snapshot.waiting
        newest, scope_id = messages.after.user, turn.progress.scope_id
        if newest < 0 or (scope_id is None and not snapshot.layers):
            return Recall()
        if turn.identity.adopted and waiting is not None and waiting.recall is not None:
            return Recall(waiting.recall)
        if newest < snapshot.past.at and node is not None:
            return Recall(node.recall or "")
        whole = planned.epoch.cut is None and not messages.after.behind
        sent = snapshot.conversation.id if snapshot.conversation and whole else None
        recall, layers = turn.services.recall, snapshot.layers
        within = node.id if node and not turn.ask.scope.is_named else None
        message = text_of(messages[newest])
        try:
            if scope_id is not None and not layers and not await recall.may_find(scope_id, sent):
                return Recall()
            wanted = recall_query(message, within, turn.ask.harness)
            if wanted is None:
                return Recall()
            if scope_id is None or layers:
                hits = await recall.find_in_layers((scope_id, sent), wanted, layers)
            else:
                hits = await recall.find(scope_id, wanted, sent)
        except StoreUnavailable:
            return Recall()
        found = alternate(hits)
        if not found:
            return Recall()
        present = await self._sent_texts(planned)
        recalled, asked = set(node.recalled) if node else (), message[:MAX_QUERY_CHARACTERS]
        there = AlreadyThere(present, recalled, planned.epoch.core, hits.outdated, asked)
        shown = ShownAs(turn.ask.scope.tag, turn.zone)
        return render_recall(found, there, shown, self._counter, token_budget(turn.ask.window))

    async def _sent_texts(self, planned: epochs.PlacementPlan) -> Container[str]:
        """Return the texts that the request sends already."""
        turn = self._turn
        # To be certain, the messages of the request are decoded and looked at.
        held = partial(self._held_messages, planned)
        if turn.snapshot.prepended or not turn.ask.body:
            return Beginnings(held())
        if turn.ask.size <= LIGHT:
            return BodyBeginnings(turn.ask.body, held)
        return await asyncio.to_thread(lambda: Beginnings(held()))

    def _held_messages(self, planned: epochs.PlacementPlan) -> Sequence[Json]:
        """Return the messages that the request sends, without those before the epoch's cut."""
        history = self._turn.snapshot.turn
        messages, mark = history.messages, history.mark
        if mark is None or mark.link != planned.epoch.cut:
            return messages
        history.enter()
        return [messages[i] for i in [*mark.stays, *range(mark.index, len(messages))]]

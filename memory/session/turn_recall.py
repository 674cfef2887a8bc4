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
        start_time = time.perf_counter()
        recall_result = await self._recall(planned)
        milliseconds = round((time.perf_counter() - start_time) * 1000, 2)
        self._turn.progress.trace.timings["recall"] = milliseconds
        return recall_result

    async def _recall(self, planned: epochs.PlacementPlan) -> Recall:
        """Return what automatic recall adds.

        It is searched once for each user message, and stays the same while tools run.
        """
        turn, snapshot = self._turn, self._turn.snapshot
        messages, node, attempt = snapshot.turn.messages, snapshot.past.node, snapshot.attempt_node
        newest_index, scope_id = messages.after.user, turn.progress.scope_id
        if newest_index < 0 or (scope_id is None and not snapshot.layers):
            return Recall()
        if turn.identity.adopted and attempt is not None and attempt.recall is not None:
            return Recall(attempt.recall)
        if newest_index < snapshot.past.at and node is not None:
            return Recall(node.recall or "")
        sends_all = planned.epoch.cut is None and not messages.after.behind
        line = snapshot.conversation.id if snapshot.conversation and sends_all else None
        recall, layers = turn.services.recall, snapshot.layers
        within = node.id if node and not turn.ask.scope.is_named else None
        message = text_of(messages[newest_index])
        try:
            if scope_id is not None and not layers and not await recall.may_find(scope_id, line):
                return Recall()
            query = recall_query(message, within, turn.ask.harness)
            if query is None:
                return Recall()
            if scope_id is None or layers:
                hits = await recall.find_in_layers((scope_id, line), query, layers)
            else:
                hits = await recall.find(scope_id, query, line)
        except StoreUnavailable:
            return Recall()
        passages = alternate(hits)
        if not passages:
            return Recall()
        present = await self._sent_texts(planned)
        keys, question = set(node.recalled) if node else (), message[:MAX_QUERY_CHARACTERS]
        present_texts = AlreadyThere(present, keys, planned.epoch.core, hits.outdated, question)
        display = ShownAs(turn.ask.scope.tag, turn.zone)
        room = token_budget(turn.ask.window)
        return render_recall(passages, present_texts, display, self._counter, room)

    async def _sent_texts(self, planned: epochs.PlacementPlan) -> Container[str]:
        """Return the texts that the request sends already."""
        turn = self._turn
        # To be certain, the messages of the request are decoded and looked at.
        read_messages = partial(self._held_messages, planned)
        if turn.snapshot.prepended_count or not turn.ask.body:
            return Beginnings(read_messages())
        if turn.ask.size <= LIGHT:
            return BodyBeginnings(turn.ask.body, read_messages)
        return await asyncio.to_thread(lambda: Beginnings(read_messages()))

    def _held_messages(self, planned: epochs.PlacementPlan) -> Sequence[Json]:
        """Return the messages that the request sends, without those before the epoch's cut."""
        history = self._turn.snapshot.turn
        messages, bookmark = history.messages, history.mark
        if bookmark is None or bookmark.link != planned.epoch.cut:
            return messages
        history.enter()
        return [messages[i] for i in [*bookmark.stays, *range(bookmark.index, len(messages))]]

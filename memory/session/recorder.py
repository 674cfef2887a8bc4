"""Records a turn in the store: opened, then finished, failed or taken back.

The request is durable while the upstream works. The answer is durable before the client is told
that it is complete, or goes to the recovery log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.context.compaction import plan_summary
from memory.context.fitted import SentPrompt
from memory.conversation.messages import Json, text_of
from memory.core.autonomy import ModelRecord
from memory.core.task_turns import is_error
from memory.core.tool_definitions import OURS, SEARCHES, WRITES
from memory.errors import ErasedMeanwhile, StoreUnavailable
from memory.jobs import extraction, summarization
from memory.session.composer import Prompt
from memory.session.context import TurnContext
from memory.session.conversation_cache import named_conversation_key
from memory.session.turn_record import (
    RecordedTurn,
    TurnOutcome,
    next_snapshot,
    pending_turn,
    turn_record,
)
from memory.session.turn_shortcut import opening_of, record_of
from memory.session.turn_store import are_heavy, log_failed_drop
from memory.session.waiting_messages import release_messages
from memory.stores.sql.engine.waiting import ends_within, gets_connection, told_of_connection
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.jobs import QueuedJob
from memory.stores.sql.turns import turn_writer
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord

# for the answer, before it goes to the recovery log; limited by the turn's patience
WRITE_SECONDS = 0.8
# For request and answer at once, which delays the whole answer.
TOGETHER_SECONDS = 0.25


class TurnRecorder:
    """Records one turn."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self._is_over = False
        # The store did not take the request.
        self._is_lost = False
        # What was to be written waits in the recovery log.
        self.is_late = False
        # It failed, and leaves no explain record.
        self.has_no_answer = False
        # The write of the request.
        self._has_connection = asyncio.Event()

    @property
    def can_defer_opening(self) -> bool:
        """Whether the request may be written together with its answer, if that comes soon."""
        turn = self._turn
        services = self._turn.services
        # A user's first turn takes longer on a server; and jobs for vectors name the scope's row.
        is_quick = not services.db.is_shared and services.retrieval.meaning is None
        return (
            turn.is_recording
            and (turn.progress.scope_id is not None or is_quick)
            and not turn.identity.adopted
            and not turn.store.heavy
        )

    async def open(self, prompt: Prompt, *, ended: bool = False) -> None:
        """Make the request durable.

        ended: nobody works on it any more. Raises StoreUnavailable or ErasedMeanwhile; the memory
        then does not record it.
        """
        turn = self._turn
        progress = self._turn.progress
        if not turn.is_recording or progress.opened:
            return
        opening = await turn.store.look(pending_turn, turn, prompt)
        if ended and not opening.adopted:
            opening.holder = opening.once = None
        self._is_lost = True
        write, shortcut = opening_of(turn, opening)
        with told_of_connection(self._has_connection.set):
            progress.scope_id = await turn.store.write(
                write, large_bodies=opening.large_bodies, shortcut=shortcut
            )
        progress.opened = True
        self._is_lost = False
        turn.attempt.claim.is_stored = opening.holder is not None

    async def wait_for_opening(self, opening: asyncio.Future[None], patience: float) -> None:
        """Wait for the write of the request: for a connection, then at most `patience` seconds.

        A shared store is busy with others' writes too, and gets as long as for an answer.
        """
        if self._turn.services.db.is_shared:
            await gets_connection(opening, self._has_connection)
            # Nobody waits as long a second time.
            self._has_connection.set()
            patience = max(patience, WRITE_SECONDS)
        with self._turn.attempt.patience.of(patience) as seconds:
            await ends_within(opening, seconds)

    async def finish(
        self, prompt: Prompt, outcome: TurnOutcome, sent_prompt: SentPrompt | None = None
    ) -> bool:
        """Record the answers, and the request if it was not written yet.

        If the store fails, the record goes to the recovery log. sent_prompt: what the next turn can
        reuse. Returns False if nothing of the turn is kept.
        """
        turn = self._turn
        store = self._turn.store
        if self._is_over or self._is_lost or not turn.is_recording:
            self.release()
            return not self._is_lost
        self._is_over = True
        store.heavy = store.heavy or are_heavy(outcome.answers)
        try:
            record, opening = await store.look(self._rows, prompt, outcome)
            if turn.ask.scope.is_named or turn.policy.ahead:
                record.jobs = await self._jobs(prompt, outcome.answers)
            record.models = self._count(prompt, outcome)
            recorded = await self._write(record, opening)
            if recorded is not None:
                self._prepare_next_turn(prompt, recorded, sent_prompt)
                return True
            self.is_late = True
            if opening is not None:
                # The request is not written, so nothing was sent to the client yet.
                return False
            is_durable = await store.log_unwritten(await store.look(self._record_for_log, record))
            # Held until it is stored after all.
            turn.attempt.claim.is_stored = False
            return is_durable
        except ErasedMeanwhile:
            # The user was erased meanwhile: nothing may be stored.
            return True
        finally:
            self.release()

    async def _write(self, record: TurnRecord, opening: PendingTurn | None) -> RecordedTurn | None:
        """Write the record; None if the store does not take it. Raises ErasedMeanwhile."""
        write, shortcut = record_of(self._turn, record, opening)
        if opening is None:
            seconds = WRITE_SECONDS
        else:
            seconds = TOGETHER_SECONDS
        large_bodies = [
            *record.large_bodies,
            *(opening.large_bodies if opening is not None else ()),
        ]
        try:
            head, blocks = await self._turn.store.write(write, seconds, large_bodies, shortcut)
        except StoreUnavailable:
            return None
        self._turn.attempt.claim.is_stored = False
        return RecordedTurn(record, head, blocks)

    async def fail(self, prompt: Prompt) -> None:
        """End the turn without an answer.

        The request stays recorded, and its repetition is a retry.
        """
        turn = self._turn
        self.has_no_answer = self.has_no_answer or not self._is_over
        if self._is_over or self._is_lost or not turn.is_recording:
            self.release()
            return
        try:
            with turn.attempt.patience.of(WRITE_SECONDS) as seconds:
                # The client is still waiting for the error.
                async with asyncio.timeout(seconds):
                    await self._note_failure(prompt)
            self._is_over = True
        except (StoreUnavailable, ErasedMeanwhile, TimeoutError):
            turn.progress.trace.notes.append("the failed attempt could not be recorded")
        finally:
            self.release()

    async def drop(self) -> None:
        """Remove the opened turn (the upstream refused its credentials).

        A late write completes by itself.
        """
        self._is_over = self.has_no_answer = True
        turn = self._turn
        scope_id = self._turn.progress.scope_id
        scope = turn.ask.scope
        try:
            if turn.progress.opened and scope_id is not None and not turn.identity.adopted:
                dropping = asyncio.ensure_future(
                    turn.services.db.write(
                        lambda conn: turn_writer.drop_turn(conn, scope_id, turn.identity.node_id),
                        # it may remove the scope, which the unnamed share
                        lock=owner_lock(scope.tenant, scope.user),
                    )
                )
                dropping.add_done_callback(log_failed_drop)
                with turn.attempt.patience.of(WRITE_SECONDS) as seconds:
                    await asyncio.wait([dropping], timeout=seconds)
        finally:
            self.release()

    async def proven(self) -> bool:
        """Tell whether an upstream ever answered this tenant, as far as the store shows."""
        tenant = self._turn.ask.scope.tenant
        try:
            return await self._turn.services.db.read(
                lambda conn: scopes.proven(conn, tenant), WRITE_SECONDS
            )
        except StoreUnavailable:
            return False

    def release(self) -> None:
        """Let a waiting duplicate of this request continue. Safe to call again."""
        if self._turn.progress.delivery is not None:
            release_messages(self._turn)
        self._turn.attempt.claim.release()

    async def _note_failure(self, prompt: Prompt) -> None:
        if not self._turn.progress.opened:
            await self.open(prompt, ended=True)
            return
        node_id = self._turn.identity.node_id
        holder = self._turn.services.db.holder
        await self._turn.store.write(lambda conn: turn_writer.attempt_failed(conn, node_id, holder))
        self._turn.attempt.claim.is_stored = False

    def _record_for_log(self, record: TurnRecord) -> TurnRecord:
        """Return what the recovery log gets: no secrets, unless the history is kept here.

        What the rows say goes first: it may be a copy of the answers without secrets, too.
        """
        turn = self._turn
        record.contents = None
        record.large_bodies = ()
        if not turn.keeps_history:
            record.answers = [turn.policy.screen.mask_message(a) for a in record.answers]
        return record

    def _rows(self, prompt: Prompt, outcome: TurnOutcome) -> tuple[TurnRecord, PendingTurn | None]:
        record = turn_record(self._turn, prompt, outcome)
        return record, None if self._turn.progress.opened else pending_turn(self._turn, prompt)

    def _count(self, prompt: Prompt, outcome: TurnOutcome) -> dict[str, ModelRecord]:
        """Count a named user's turn with tools, for the record of the model that answered.

        Returns the records to write now.
        """
        turn = self._turn
        progress = self._turn.progress
        models = self._turn.services.models
        offers_tools = prompt.tools and turn.ask.mode == "full" and turn.ask.scope.is_named
        # The memory's stand before those of the operator.
        if offers_tools and prompt.owned is not OURS:
            offers_tools = prompt.tools[0]["function"]["name"] in OURS
        names = succeeded = frozenset[str]()
        if progress.rounds:
            calls = progress.trace.tools
            names = frozenset(c["name"] for c in calls)
            succeeded = frozenset(c["name"] for c in calls if not is_error(c["result"]))
        if offers_tools and outcome.served and (progress.rounds or turn.is_new_message):
            # What is refused each time keeps nothing.
            has_saved = not succeeded.isdisjoint(WRITES)
            has_searched = not names.isdisjoint(SEARCHES)
            models.count(outcome.served, saved=has_saved, searched=has_searched)
        return models.take_unsaved()

    def _prepare_next_turn(
        self, prompt: Prompt, recorded: RecordedTurn, sent_prompt: SentPrompt | None
    ) -> None:
        """Make ready what the next turn of this conversation will need."""
        turn = self._turn
        lines = self._turn.services.lines
        turn.services.retrieval.indexing.notify_added()
        jobs = recorded.record.jobs
        if jobs and any(job.kind == summarization.KIND for job in jobs):
            # The next turns come soon, and need it.
            turn.services.wake_worker()
        scope = turn.ask.scope.key
        line = turn.identity.conversation
        # At its current end, which another turn may have moved.
        if line.explicit:
            lines.take(lines.entries_of(scope), named_conversation_key(line.name))
        if (cache_entry := next_snapshot(turn, prompt, recorded, sent_prompt)) is not None:
            lines.keep(scope, turn.attempt.entries, *cache_entry)

    async def _jobs(self, prompt: Prompt, answers: Sequence[Json]) -> list[QueuedJob]:
        """Return the background jobs of this turn, which are written together with it."""
        turn = self._turn
        ask = self._turn.ask
        jobs: list[QueuedJob] = []
        if ask.scope.is_named:
            jobs += turn.services.retrieval.jobs(turn.progress.scope_id)
        if ask.mode != "full":
            return jobs
        if turn.policy.skills.is_on and ask.scope.is_named and turn.has_run_tools:
            jobs.append(turn.policy.skills.job(ask.scope.key, ask.model, ask.scope.project))
        if turn.task is not None:
            return jobs
        if ask.scope.is_named:
            if turn.ask.extract and turn.is_new_message:
                jobs += self._extraction_jobs()
            jobs += turn.policy.reflect.jobs(ask.scope.key, ask.model, ask.scope.project)
        if turn.policy.ahead and turn.injects:
            jobs += await self._summary_jobs(prompt, answers)
        return jobs

    def _extraction_jobs(self) -> list[QueuedJob]:
        turn = self._turn
        messages = self._turn.snapshot.turn.messages
        words = text_of(messages[messages.after.user])
        payload = {"model": turn.ask.model}
        if turn.ask.scope.project:
            payload[extraction.PROJECT] = turn.ask.scope.project
        if turn.ask.zone:
            payload[extraction.ZONE] = turn.ask.zone
        unusable = turn.services.models.unusable
        rules = turn.policy.extraction
        return extraction.jobs_of(rules, turn.ask.scope.key, payload, words, unusable)

    async def _summary_jobs(self, prompt: Prompt, answers: Sequence[Json]) -> list[QueuedJob]:
        turn = self._turn
        try:
            summary_plan = await plan_summary(
                turn.snapshot.turn, prompt.fitted, prompt.budget, answers
            )
        except StoreUnavailable:
            # The next turn tries again.
            return []
        if summary_plan is None:
            return []
        return [summarization.job_of(summary_plan, turn.identity.conversation.id, turn.ask.model)]

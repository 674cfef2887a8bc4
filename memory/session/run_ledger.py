"""The ledger of one round: what its calls did, written so that no retry does it twice.

A round with calls of the operator's tools is written before the first of them may change the
world, with the reply and the results that are there already. So an attempt that broke off is gone
on with at the same calls, and each is known by its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from sqlalchemy import Connection

from memory.conversation.messages import Json
from memory.errors import ErasedMeanwhile, StoreUnavailable
from memory.session.context import TurnContext
from memory.session.speaker_guard import speaker_check
from memory.session.store_deadline import StoreDeadline
from memory.session.toolbox import (
    DIGEST_CHARACTERS,
    EarlierRun,
    Result,
    RunRecord,
    StartedRun,
    text_of_result,
)
from memory.stores.sql.rows import scopes, tool_calls, tool_results
from memory.stores.sql.rows.tool_calls import CallPlace
from memory.stores.sql.turns import turn_writer
from memory.tools import ToolCall

log = logging.getLogger("mnemogate")
# That a run may wait for its row.
START_SECONDS = 2.0
END_SECONDS = 1.0
READ_SECONDS = 2.0
# That all writes of one round may wait for a store.
ROUND_SECONDS = 5.0
# Its name, whether it succeeded, and the digest of its arguments.
RecordedRun = list[str | bool]
# What the result of a memory tool that failed begins with.
FAILED = "Error: "
# Of a call that is over; else done.
STATES = {"unknown": "unknown", "refused": "refused"}


class RoundLedger:
    """See `RunLedger`.

    results: of all calls of the reply, None for those that are not over. lock: held by each write
    of the round, so that none takes back what the one before it wrote. runs: of each call that was
    run, its name and whether it succeeded. ended: how the operator's tools ended, by place.
    """

    def __init__(self, turn: TurnContext, reply: Json, calls: Sequence[ToolCall]) -> None:
        self.results: list[Result | None] = [None] * len(calls)
        self.runs: list[RecordedRun | None] = [None] * len(calls)
        self.ended: dict[int, RunRecord] = {}
        self._calls = calls
        self.lock = asyncio.Lock()
        self._turn = turn
        self._reply = reply
        # A round may have many runs, each with two rows: it waits for them beside the turn's rows.
        self._store = msgspec.structs.replace(turn.store, patience=StoreDeadline(ROUND_SECONDS))
        # One that an earlier attempt left is gone on with.
        rounds = turn.progress.rounds
        is_resumed = bool(rounds) and rounds[-1]["reply"] is reply
        self._before: Sequence[Json] = rounds[:-1] if is_resumed else list(rounds)
        if is_resumed:
            self.results = list(rounds[-1]["results"])
            earlier = rounds[-1].get("runs") or ()
            self.runs[: len(earlier)] = earlier
        # Places of runs whose end is written.
        self._written_places: set[int] = set()

    @property
    def number(self) -> int:
        return len(self._before) + 1

    @property
    def before(self) -> Sequence[Json]:
        """The finished rounds before this one."""
        return self._before

    @property
    def records(self) -> bool:
        return self._turn.is_recording

    async def start(self, run: StartedRun) -> EarlierRun | None:
        if not self.records:
            return None
        if not self._turn.progress.opened:
            raise StoreUnavailable("the turn is not recorded")
        async with self.lock:
            return await self._store.write(partial(self._start, run=run), START_SECONDS)

    async def end(self, record: RunRecord) -> None:
        self.take(record)
        if record.run.effect == "read" or record.status in ("refused", "unknown", "replayed"):
            # With the round.
            return
        try:
            async with self.lock:
                await self._store.write(partial(self._end, record=record), END_SECONDS)
        except (StoreUnavailable, ErasedMeanwhile):
            log.warning("how a run of the tool %s ended is not stored yet", record.run.name)

    def take(self, record: RunRecord) -> None:
        """Take in how a call ended."""
        run = record.run
        self.ended[run.place] = record
        self.results[run.place] = record.result
        recorded: RecordedRun = [run.name, record.is_ok, run.digest[:DIGEST_CHARACTERS]]
        self.runs[run.place] = None if record.status == "refused" else recorded

    def note_cancelled(self, record: RunRecord) -> None:
        self.ended[record.run.place] = record

    def take_text(self, place: int, text: str) -> None:
        """Take in what a call of a memory tool came to."""
        self.results[place] = text
        self.runs[place] = self._run_of(place, text)

    def _run_of(self, place: int, text: str) -> RecordedRun:
        return [self._calls[place].name, not text.startswith(FAILED)]

    async def read_result(self, ident: str) -> str | None:
        scope_id = self._turn.progress.scope_id
        if scope_id is None:
            return None
        query = tool_results.read(scope_id, ident)
        rows = await self._turn.services.db.read(query, READ_SECONDS, single=True)
        if not rows:
            return None
        return str(rows[0][0])

    def note(self, conn: Connection, texts: Mapping[int, str]) -> None:
        """Write the round as it is now, in the transaction of memory calls.

        texts: the results of those, by place.
        """
        results = [texts.get(i, result) for i, result in enumerate(self.results)]
        runs = [self._run_of(i, texts[i]) if i in texts else run for i, run in enumerate(self.runs)]
        entry = {
            "reply": self._reply,
            "results": [None if r is None else text_of_result(r) for r in results],
            "runs": runs,
        }
        node = self._turn.identity.node_id
        holder = self._turn.services.db.holder
        turn_writer.round_done(conn, node, [*self._before, entry], holder)

    async def close(self, records: Sequence[RunRecord]) -> None:
        """Write the finished round, and what no run wrote by itself.

        Raises StoreUnavailable, ErasedMeanwhile.
        """
        if not self.records:
            return
        if not self._turn.progress.opened:
            raise StoreUnavailable("the turn is not recorded")
        async with self.lock:
            await self._store.write(partial(self._close, records=records), START_SECONDS)

    def entry(self) -> Json:
        """Return the finished round, as later attempts find it."""
        results = [text_of_result(result) for result in self.results if result is not None]
        return {"reply": self._reply, "results": results, "runs": self.runs}

    def _start(self, conn: Connection, run: StartedRun) -> EarlierRun | None:
        self._check(conn)
        at = self._place(run)
        earlier = tool_calls.find(conn, at)
        if earlier is not None and (earlier.name, earlier.digest) == (run.name, run.digest):
            if earlier.state == "done":
                return EarlierRun(True, earlier.result or "", earlier.status == "ok")
            if earlier.state in ("started", "unknown") and not run.idempotent:
                tool_calls.set_state(conn, at, "unknown")
                return EarlierRun(False)
        self._put(conn, run, state="started")
        self.note(conn, {})
        return None

    def _end(self, conn: Connection, record: RunRecord) -> None:
        self._check(conn)
        self._write_record(conn, record)
        self.note(conn, {})
        self._written_places.add(record.run.place)

    def _close(self, conn: Connection, records: Sequence[RunRecord]) -> None:
        scope_id = self._check(conn)
        for record in records:
            if record.run.place not in self._written_places and record.status != "replayed":
                self._write_record(conn, record)
            if record.result_id:
                name = record.run.name
                tool_results.keep(conn, scope_id, record.result_id, name, record.full_text)
        self.note(conn, {})

    def _check(self, conn: Connection) -> int:
        """Return the scope's row. Raises ErasedMeanwhile."""
        if (check := speaker_check(self._turn)) is not None:
            check(conn)
        return scopes.get_or_create(conn, self._turn.snapshot.owner)

    def _place(self, run: StartedRun) -> CallPlace:
        return CallPlace.of(self._turn.identity.node_id, self.number, run.place)

    def _write_record(self, conn: Connection, record: RunRecord) -> None:
        mask = self._turn.policy.screen.mask
        text = text_of_result(record.result)
        self._put(
            conn,
            record.run,
            state=STATES.get(record.status, "done"),
            status=record.status,
            result=text if self._turn.keeps_history else mask(text)[0],
            origin=str(record.facts.get("origin", "")),
            rule=str(record.facts.get("rule", "")),
            approval=str(record.facts.get("approval", "")),
            milliseconds=record.milliseconds,
            cost_usd=float(record.facts.get("cost_usd", 0.0)),
        )

    def _put(self, conn: Connection, run: StartedRun, **columns: object) -> None:
        ask = self._turn.ask
        progress = self._turn.progress
        tool_calls.put(
            conn,
            self._place(run),
            scope_id=progress.scope_id,
            tenant=ask.scope.tenant,
            entry=run.entry,
            name=run.name,
            version=run.version,
            effect=run.effect,
            digest=run.digest,
            arguments=self._turn.policy.screen.mask(run.arguments)[0],
            request_id=ask.request_id,
            actor="model",
            **columns,
        )

"""Runs the memory calls of a turn, round by round, and writes them with their ledger entry."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from sqlalchemy import Connection

from memory import tools
from memory.conversation.messages import Json
from memory.core.tool_definitions import WRITES
from memory.errors import ErasedMeanwhile, StoreUnavailable
from memory.session.context import TurnContext
from memory.session.speaker_guard import speaker_check
from memory.session.turn_store import LIGHT_CALLS
from memory.stores.sql.rows import passage_lifecycle as fact_rows
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.blocks import BlockSet
from memory.stores.sql.rows.read_layers import NO_LAYERS, ReadLayers
from memory.stores.sql.turns import turn_writer

# For the edits of a round.
EDIT_SECONDS = 0.5
UNAVAILABLE = (
    "Error: the memory is unavailable right now, nothing was saved. Answer without it, and say so "
    "if it matters."
)


class WrittenRound(Protocol):
    """Writes the ledger entry of a round. lock: held while a write of the round runs."""

    @property
    def lock(self) -> AbstractAsyncContextManager[object]: ...

    def note(self, conn: Connection, texts: Mapping[int, str]) -> None:
        """Write the round as it is, in the transaction of its calls. texts: results by place."""
        ...


class _PlainRound:
    """A round that has calls of memory tools alone, which one transaction finishes."""

    def __init__(self, turn: TurnContext, reply: Json) -> None:
        self._turn = turn
        self._reply = reply
        self.lock: AbstractAsyncContextManager[object] = nullcontext()

    def note(self, conn: Connection, texts: Mapping[int, str]) -> None:
        turn = self._turn
        entry = {"reply": self._reply, "results": [texts[i] for i in range(len(texts))]}
        rounds = [*turn.progress.rounds, entry]
        holder = turn.services.db.holder
        turn_writer.round_done(conn, turn.identity.node_id, rounds, holder)


def _layers_of(turn: TurnContext) -> ReadLayers:
    layers = turn.snapshot.layers
    if layers:
        return ReadLayers(turn.ask.scope, layers)
    return NO_LAYERS


class ToolRunner:
    """Runs the calls of one turn. seen: label to the block's version shown to the model."""

    def __init__(self, turn: TurnContext, seen_versions: Mapping[str, int]) -> None:
        self._turn = turn
        # Updated by its own edits.
        self._seen_versions = dict(seen_versions)

    async def run(
        self, calls: Sequence[tools.ToolCall], reply: Json, definitions: Sequence[Json]
    ) -> list[str]:
        """Run one round's calls and return one result for each.

        reply: the completion that contains them, for the ledger. definitions: the tools that may be
        called. Never raises for a failure of a tool or the store.
        """
        start_time = time.perf_counter()
        progress = self._turn.progress
        plain_round = _PlainRound(self._turn, reply)
        results = await self.run_at(range(len(calls)), calls, definitions, plain_round)
        progress.rounds.append({"reply": reply, "results": results})
        self._trace(calls, results, round((time.perf_counter() - start_time) * 1000, 2))
        return results

    async def run_at(
        self,
        places: Sequence[int],
        calls: Sequence[tools.ToolCall],
        definitions: Sequence[Json],
        written_round: WrittenRound,
    ) -> list[str]:
        """Run those of a round's calls at these places; return their results.

        definitions: see `run`. written_round: writes the ledger entry.
        """
        turn = self._turn
        progress = self._turn.progress
        context = self._tool_context(definitions)
        of_places = [calls[i] for i in places]
        # Otherwise the store did not even take the request.
        has_row = progress.opened or not turn.is_recording
        if has_row:
            search_results = await tools.run_searches(of_places, context)
        else:
            search_results = {}
        is_alone = False
        try:
            by_index = await self._edit(of_places, context, search_results, (places, written_round))
            # A branch has its own blocks; shared ones are read again.
            scope = turn.ask.scope
            shares = turn.snapshot.shares
            is_alone = scope.is_named and shares is None and not scope.project
        except (StoreUnavailable, ErasedMeanwhile):
            progress.unsaved = True
            by_index = {**dict.fromkeys(range(len(of_places)), UNAVAILABLE), **search_results}
        finally:
            # A client may leave at the moment it is written.
            if any(c.name in WRITES for c in of_places):
                turn.attempt.edits(turn.services.lines, turn.ask.scope.key, is_alone)
                if turn.ask.scope.project:
                    turn.services.lines.forget(turn.ask.scope.general.key)
                if turn.snapshot.shares is not None:
                    turn.services.shared.note(turn.ask.scope.tenant)
        return [by_index[i] for i in range(len(of_places))]

    async def _edit(
        self,
        calls: Sequence[tools.ToolCall],
        context: tools.ToolContext,
        search_results: Mapping[int, str],
        at: tuple[Sequence[int], WrittenRound],
    ) -> dict[int, str]:
        """Run the edits, and write them with the round.

        at: the places of the calls, and what writes it. Raises StoreUnavailable, ErasedMeanwhile.
        """
        turn = self._turn
        (places, written_round) = at
        turn.store.heavy = turn.store.heavy or len(calls) > LIGHT_CALLS
        if not turn.is_recording:
            return {**search_results, **tools.refuse_calls(calls, context)}
        if not turn.progress.opened:
            raise StoreUnavailable("the turn is not recorded")

        check = speaker_check(turn)

        def work(conn: Connection) -> dict[int, str]:
            if check is not None:
                check(conn)
            scopes.get_or_create(conn, turn.snapshot.owner)
            results = {**search_results, **tools.run_edits(conn, calls, context)}
            fact_rows.record_use(conn, context.found_passages)
            written_round.note(conn, {place: results[i] for i, place in enumerate(places)})
            return results

        async with written_round.lock:
            return await turn.store.write(work, EDIT_SECONDS)

    def _tool_context(self, definitions: Sequence[Json]) -> tools.ToolContext:
        turn = self._turn
        node_id = self._turn.identity.node_id
        is_named = turn.ask.scope.is_named
        parent = turn.snapshot.past.node
        scope_id = turn.progress.scope_id
        inherited = 0
        if parent and not is_named:
            inherited = parent.branch
        return tools.ToolContext(
            scope_id or 0,
            BlockSet(
                scope_id,
                turn.snapshot.defaults,
                0 if is_named else node_id,
                inherited,
                None if turn.snapshot.shares is None else turn.ask.scope,
                turn.policy.general_blocks(turn.ask.scope),
            ),
            turn.services.retrieval,
            turn.ask.request_id,
            self._seen_versions,
            None if is_named else node_id,
            node_id,
            frozenset(x["function"]["name"] for x in definitions),
            screen=turn.policy.screen,
            model_blocks=turn.policy.model_blocks,
            speaker=tools.Speaker(turn.ask.said_by, turn.zone, _layers_of(turn)),
        )

    def _trace(
        self, calls: Sequence[tools.ToolCall], results: Sequence[str], milliseconds: float
    ) -> None:
        progress = self._turn.progress
        progress.trace.tools += [
            {
                "round": len(progress.rounds),
                "name": c.name,
                "arguments": c.arguments,
                "result": r,
                "ms": milliseconds,
            }
            for c, r in zip(calls, results, strict=True)
        ]

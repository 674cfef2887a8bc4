"""Runs the memory calls of a turn, round by round, and writes them with their ledger entry."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from memory import tools
from memory.conversation.messages import Json
from memory.core.tool_definitions import WRITES
from memory.errors import ErasedMeanwhile, StoreUnavailable
from memory.session.context import TurnContext
from memory.session.speaker_guard import speaker_check
from memory.session.turn_store import LIGHT_CALLS
from memory.stores.sql import passage_lifecycle as fact_rows
from memory.stores.sql import scopes, turn_writer
from memory.stores.sql.blocks import BlockSet
from memory.stores.sql.read_layers import NO_LAYERS, ReadLayers

EDIT_SECONDS = 0.5  # for the edits of a round
UNAVAILABLE = (
    "Error: the memory is unavailable right now, nothing was saved. Answer without it, and say so "
    "if it matters."
)


def _layers_of(turn: TurnContext) -> ReadLayers:
    layers = turn.snapshot.layers
    return ReadLayers(turn.ask.scope, layers) if layers else NO_LAYERS


class ToolRunner:
    """Runs the calls of one turn. seen: label to the block's version shown to the model."""

    def __init__(self, turn: TurnContext, seen: Mapping[str, int]) -> None:
        self._turn = turn
        self._seen = dict(seen)  # updated by its own edits

    async def run(
        self, calls: Sequence[tools.ToolCall], reply: Json, offered: Sequence[Json]
    ) -> list[str]:
        """Run one round's calls and return one result for each.

        reply: the completion that contains them, for the ledger. offered: the tools that may be
        called. Never raises for a failure of a tool or the store.
        """
        started = time.perf_counter()
        turn, progress = self._turn, self._turn.progress
        context = self._tool_context(offered)
        # Otherwise the store did not even take the request.
        stored = progress.opened or not turn.is_recording
        searched = await tools.run_searches(calls, context) if stored else {}
        done = False
        try:
            by_place = await self._edit(calls, reply, context, searched)
            # A branch has its own blocks; shared ones are read again.
            scope, shares = turn.ask.scope, turn.snapshot.shares
            done = scope.is_named and shares is None and not scope.project
        except (StoreUnavailable, ErasedMeanwhile):
            progress.unsaved = True
            by_place = {**dict.fromkeys(range(len(calls)), UNAVAILABLE), **searched}
        finally:  # a client may leave at the moment it is written
            if any(c.name in WRITES for c in calls):
                turn.attempt.edits(turn.services.lines, turn.ask.scope.key, done)
                if turn.ask.scope.project:
                    turn.services.lines.forget(turn.ask.scope.general.key)
                if turn.snapshot.shares is not None:
                    turn.services.shared.note(turn.ask.scope.tenant)
        results = [by_place[i] for i in range(len(calls))]
        progress.rounds.append({"reply": reply, "results": results})
        self._trace(calls, results, round((time.perf_counter() - started) * 1000, 2))
        return results

    async def _edit(
        self,
        calls: Sequence[tools.ToolCall],
        reply: Json,
        context: tools.ToolContext,
        searched: Mapping[int, str],
    ) -> dict[int, str]:
        """Run the edits, and write them with the round.

        Raises StoreUnavailable, ErasedMeanwhile.
        """
        turn, progress = self._turn, self._turn.progress
        turn.store.heavy = turn.store.heavy or len(calls) > LIGHT_CALLS
        if not turn.is_recording:
            return {**searched, **tools.refuse_calls(calls, context)}
        if not progress.opened:
            raise StoreUnavailable("the turn is not recorded")

        check = speaker_check(turn)

        def work(conn: Connection) -> dict[int, str]:
            if check is not None:
                check(conn)
            scopes.get_or_create(conn, turn.snapshot.owner)
            results = {**searched, **tools.run_edits(conn, calls, context)}
            fact_rows.record_use(conn, context.found)
            entry = {"reply": reply, "results": [results[i] for i in range(len(calls))]}
            rounds, holder = [*progress.rounds, entry], turn.services.db.holder
            turn_writer.round_done(conn, turn.identity.node_id, rounds, holder)
            return results

        return await turn.store.write(work, EDIT_SECONDS)

    def _tool_context(self, offered: Sequence[Json]) -> tools.ToolContext:
        turn, node_id = self._turn, self._turn.identity.node_id
        named, parent = turn.ask.scope.is_named, turn.snapshot.past.node
        scope_id = turn.progress.scope_id
        inherited = parent.branch if parent and not named else 0
        return tools.ToolContext(
            scope_id or 0,
            BlockSet(
                scope_id,
                turn.snapshot.defaults,
                0 if named else node_id,
                inherited,
                None if turn.snapshot.shares is None else turn.ask.scope,
                turn.policy.general_blocks(turn.ask.scope),
            ),
            turn.services.retrieval,
            turn.ask.request_id,
            self._seen,
            None if named else node_id,
            node_id,
            frozenset(x["function"]["name"] for x in offered),
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

"""Calls of the operator's tools from outside a turn: their audit, and a run by a person."""

from __future__ import annotations

from typing import Any

import msgspec

from memory.ids import new_key
from memory.scope import Scope
from memory.service import Memory
from memory.session.toolbox import EarlierRun, RunRecord, StartedRun, text_of_result
from memory.stores.sql.rows import scopes, tool_calls
from memory.stores.sql.rows.scopes import VisibleScopes
from memory.stores.sql.rows.tool_calls import CallFilter, CallPlace

__all__ = ["CallFilter", "SingleRun", "list_calls"]
READ_SECONDS = 10.0


async def list_calls(
    memory: Memory, reach: VisibleScopes, call_filter: CallFilter, limit: int
) -> list[dict[str, Any]]:
    """Return calls, newest first. Raises StoreUnavailable."""
    return await memory.db.read(
        lambda conn: tool_calls.list_calls(conn, reach, call_filter, limit), READ_SECONDS
    )


class RunOrigin(msgspec.Struct, frozen=True):
    """Who runs a tool outside a turn. scope: of the user that it is for, None for nobody."""

    tenant: str
    scope: Scope | None
    request_id: str
    actor: str


class SingleRun:
    """See `RunLedger`: the audit of one run outside a turn."""

    def __init__(self, memory: Memory, origin: RunOrigin) -> None:
        self._memory = memory
        self._origin = origin
        self._place = CallPlace.of(new_key(), 0, 0)

    @property
    def records(self) -> bool:
        return False

    async def start(self, run: StartedRun) -> EarlierRun | None:
        await self._put(run, state="started")
        return None

    async def end(self, record: RunRecord) -> None:
        mask = self._memory.policy.screen.mask
        await self._put(
            record.run,
            state="refused" if record.status == "refused" else "done",
            status=record.status,
            result=mask(text_of_result(record.result))[0],
            origin=str(record.facts.get("origin", "")),
            milliseconds=record.milliseconds,
            cost_usd=float(record.facts.get("cost_usd", 0.0)),
        )

    def note_cancelled(self, record: RunRecord) -> None:
        """Nothing: its row says that it was started."""

    async def read_result(self, ident: str) -> str | None:
        return None

    async def _put(self, run: StartedRun, **columns: object) -> None:
        origin = self._origin
        arguments = self._memory.policy.screen.mask(run.arguments)[0]

        def work(conn: Any) -> None:
            scope = origin.scope
            tool_calls.put(
                conn,
                self._place,
                scope_id=None if scope is None else scopes.find(conn, scope),
                tenant=origin.tenant,
                entry=run.entry,
                name=run.name,
                version=run.version,
                effect=run.effect,
                digest=run.digest,
                arguments=arguments,
                request_id=origin.request_id,
                actor=origin.actor,
                **columns,
            )

        await self._memory.db.write(work)

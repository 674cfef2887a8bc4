"""The port through which a job calls a model while no client waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, bindparam, select

from memory.conversation.messages import Json
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import execute
from memory.stores.sql.rows import policies

# Policies with which a memory is written.
WRITING = ("full", "write")
_OWNER = select(t.scopes.c.tenant, t.scopes.c.user).where(t.scopes.c.id == bindparam("scope"))


@dataclass(frozen=True, slots=True)
class BackgroundCall:
    """On whose behalf a job calls a model.

    kind: of the job. model: the conversation's own, used if no other is configured. tools: what the
    model may call. own_model: the one that is configured for this job, "" for none.
    """

    kind: str
    tenant: str
    user: str | None
    model: str
    tools: Sequence[Json] = ()
    own_model: str = ""


class BackgroundModel(Protocol):
    """Calls a model for a job."""

    async def __call__(
        self, call: BackgroundCall, messages: Sequence[Json], max_tokens: int
    ) -> Json:
        """Return the assistant's message.

        Raises Postponed if the tenant's credential is not available, any other exception if no
        answer came.
        """
        ...


def background_call(
    conn: Connection, kind: str, scope_id: int | None, model: str
) -> BackgroundCall | None:
    """Return the call of a job for this scope.

    None if the scope is gone, or its user's policy no longer lets anything be written.
    """
    row = execute(conn, _OWNER, {"scope": scope_id}).first()
    if row is None:
        return None
    if row.user is not None and policies.find(conn, (row.tenant, row.user)).memory not in WRITING:
        return None
    return BackgroundCall(kind, row.tenant, row.user, model)

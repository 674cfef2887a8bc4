"""The port by which a job asks a model while no client waits: for whom, for what, and with whose
credential.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, select

from memory.conversation.messages import Json
from memory.stores.sql import schema as t


@dataclass(frozen=True, slots=True)
class BackgroundCall:
    """kind: the job's.

    model: the conversation's own, for where no other is set. tools: what the model may call.
    """

    kind: str
    tenant: str
    user: str | None
    model: str
    tools: Sequence[Json] = ()


class BackgroundModel(Protocol):
    """Carries an errand to a model."""

    async def __call__(
        self, errand: BackgroundCall, messages: Sequence[Json], max_tokens: int
    ) -> Json:
        """Return the assistant's message.

        Raises Postponed when the tenant's credential is not at hand, any other exception when no
        answer came.
        """
        ...


def errand_of(
    conn: Connection, kind: str, scope_id: int | None, model: str
) -> BackgroundCall | None:
    """Return an errand in the name of this scope; None when it is gone."""
    s = t.scopes.c
    row = conn.execute(select(s.tenant, s.user).where(s.id == scope_id)).first()
    return BackgroundCall(kind, row.tenant, row.user, model) if row else None

"""The port by which a job asks a model while no client waits: for whom, for what, and with whose credential."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, select

from memory.messages import Json
from memory.stores.sql import schema as t


@dataclass(frozen=True, slots=True)
class Errand:
    """kind: the job's. model: the conversation's own, for where no other is set. tools: what the model may call."""

    kind: str
    tenant: str
    user: str | None
    model: str
    tools: Sequence[Json] = ()


class Envoy(Protocol):
    """Carries an errand to a model."""

    async def __call__(self, errand: Errand, messages: Sequence[Json], max_tokens: int) -> Json:
        """The assistant's message. Raises Postponed when the tenant's credential is not at hand, any other exception when no
        answer came."""
        ...


def errand_of(conn: Connection, kind: str, scope_id: int | None, model: str) -> Errand | None:
    """An errand in the name of this scope; None when it is gone."""
    s = t.scopes.c
    row = conn.execute(select(s.tenant, s.user).where(s.id == scope_id)).first()
    return Errand(kind, row.tenant, row.user, model) if row else None

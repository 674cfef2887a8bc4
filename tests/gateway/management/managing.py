"""A gateway with keys of every kind, for the tests of the management API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.conftest import SENTINEL_KEY, Live, running
from tests.models import Model

KEYS = [
    {"name": "app", "key": SENTINEL_KEY, "tenant": "acme"},
    {"name": "ada", "key": "sk-ada", "tenant": "acme", "trusted": False, "default_user": "ada"},
    {"name": "other", "key": "sk-other", "tenant": "beta"},
    {"name": "root", "key": "sk-root", "tenant": "ops", "admin": True},
]
BLOCKS = [
    {"label": "human", "limit": 40},
    {"label": "rules", "value": "Be kind.", "read_only": True},
]


@contextlib.asynccontextmanager
async def managed(data: Path, *script: Any, **config: Any) -> AsyncIterator[Live]:
    """The gateway in front of a scripted model."""
    async with Model(*(script or ("Hello.",))) as model:
        async with running(
            model.url, data, {"keys": KEYS, "memory.blocks": BLOCKS, **config}
        ) as live:
            live.model = model
            yield live


def as_key(key: str) -> dict[str, Any]:
    return {"headers": {"authorization": f"Bearer {key}"}}


async def rows(live: Live) -> dict[str, int]:
    """How many rows of each table are about anybody: `marks` holds counters and the version of the
    index, and a usage record that names no user stays when its user is erased.
    """
    from sqlalchemy import func, select

    from memory.stores.sql.engine import schema
    from memory.stores.sql.engine.sqlite import fts

    def counted(conn):
        marks = {*conn.execute(select(schema.marks.c.name)).scalars()}
        assert marks <= {"messages", fts.TERMS_MARK}
        found = {
            t.name: select(func.count()).select_from(t)
            for t in schema.metadata.sorted_tables
            if t is not schema.marks
        }
        found["usage"] = found["usage"].where(schema.usage.c.user.is_not(None))
        return {name: conn.execute(query).scalar() for name, query in found.items()}

    # Else whether they are there yet is a matter of the second.
    await live.gateway.usage.flush()
    return await live.gateway.memory.db.read(counted)

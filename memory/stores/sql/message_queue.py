"""Which messages wait to be put into the search index, on Postgres.

Many workers commit at once, so a key up to which all is indexed would pass over some for ever:
each message that waits is named, in the transaction that stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, text

from memory.stores.sql.statements import execute_sql

_OF_SCOPE = "AND u.scope_id = :scope ORDER BY u.id DESC"
_NEXT = "SELECT m.* FROM unindexed u JOIN messages m ON m.id = u.id WHERE true {} LIMIT :most"
# Another indexer's messages are left to it. A search waits for those of its scope.
NEXT = {
    (False, False): text(_NEXT.format("ORDER BY u.id")),
    (False, True): text(_NEXT.format("ORDER BY u.id") + " FOR UPDATE OF u SKIP LOCKED"),
    (True, False): text(_NEXT.format(_OF_SCOPE)),
    (True, True): text(_NEXT.format(_OF_SCOPE) + " FOR UPDATE OF u"),
}

WAITS = """SELECT EXISTS (SELECT FROM unindexed u JOIN messages m ON m.id = u.id
WHERE u.scope_id = $1 AND m.conversation IS DISTINCT FROM $2::bigint)"""


def waits(conn: Connection, scope_id: int, but: int | None = None) -> bool:
    """Tell by one statement whether a message of the scope waits. but: of another conversation."""
    return bool(execute_sql(conn, WAITS, scope_id, but)[0][0])


def add(conn: Connection, scope_id: int, keys: Iterable[int]) -> None:
    """Let messages wait."""
    execute_sql(
        conn,
        "INSERT INTO unindexed (id, scope_id) SELECT k, $2 FROM unnest($1::bigint[]) AS u(k) ON "
        "CONFLICT DO NOTHING",
        list(keys),
        scope_id,
    )


def take(
    conn: Connection, most: int, scope_id: int | None = None, *, to_index: bool = False
) -> Sequence[Any]:
    """Return the next messages that wait; of one scope the newest first.

    to_index: they are kept from other indexers until the transaction ends.
    """
    values = {"most": most} if scope_id is None else {"most": most, "scope": scope_id}
    return conn.execute(NEXT[scope_id is not None, to_index], values).all()


def done(conn: Connection, keys: Sequence[int]) -> None:
    """Take messages out that were put into the index."""
    execute_sql(conn, "DELETE FROM unindexed WHERE id = ANY($1::bigint[])", list(keys))

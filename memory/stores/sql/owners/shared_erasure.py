"""Takes a user out of the shared blocks: their memberships, the lines they wrote, their name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, select, update

from memory.core.shared import Writers, rename_writer, without_lines_of
from memory.ids import clock, new_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import run_pure
from memory.stores.sql.rows import project_rows, teams
from memory.stores.sql.rows.scopes import UserName
from memory.stores.sql.rows.shared_blocks import ERASE, raise_changes, read_writers

b = t.shared_blocks.c
m = t.shared_members.c
v = t.shared_versions.c
encode = msgspec.json.encode
KINDS = ("memberships", "lines", "versions")


def forget_member(conn: Connection, user_name: UserName) -> dict[str, int]:
    """Remove a user's memberships and lines; return the counts.

    user_name: tenant and user. Of each block that they wrote in, the older versions lose their
    texts.
    """
    counts = {"memberships": _leave(conn, user_name), "lines": 0, "versions": 0}
    for row in _written_by(conn, user_name):
        counts["lines"] += _remove_lines(conn, row, user_name[1])
        texts = v.block_id == row.id, v.version <= row.version
        has_text = (v.before.is_not(None)) | (v.after.is_not(None))
        no_text = {"before": None, "after": None, "writers": None}
        counts["versions"] += conn.execute(
            update(t.shared_versions).where(*texts, has_text).values(no_text)
        ).rowcount
        _drop_name(conn, row, user_name[1])
    if any(counts.values()):
        raise_changes(conn, user_name[0])
    return counts


def keep_lines(conn: Connection, user_name: UserName) -> dict[str, int]:
    """Remove a user's memberships, and their name beside what they wrote; return the counts."""
    counts = {"memberships": _leave(conn, user_name), "lines": 0, "versions": 0}
    for row in _written_by(conn, user_name):
        counts["versions"] += _drop_name(conn, row, user_name[1])
        _put_writers(conn, row.id, rename_writer(read_writers(row.writers), user_name[1], None))
    if any(counts.values()):
        raise_changes(conn, user_name[0])
    return counts


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give memberships and lines to another name; of another tenant they are left behind."""
    if source[0] != target[0]:
        keep_lines(conn, source)
        return
    is_member = m.tenant == source[0], m.kind == "user", m.name == source[1]
    twin = t.shared_members.alias()
    target_memberships = select(twin.c.block_id).where(
        twin.c.block_id == m.block_id,
        twin.c.kind == "user",
        twin.c.name == target[1],
        twin.c.agent == m.agent,
    )
    conn.execute(delete(t.shared_members).where(*is_member, target_memberships.exists()))
    conn.execute(update(t.shared_members).where(*is_member).values(name=target[1]))
    teams.rename_member(conn, source, target)
    project_rows.rename_member(conn, source, target)
    for row in _written_by(conn, source):
        names = rename_writer(read_writers(row.writers), source[1], target[1])
        _put_writers(conn, row.id, names)
        _drop_name(conn, row, source[1], target[1])
    raise_changes(conn, source[0])


def _leave(conn: Connection, user_name: UserName) -> int:
    """Take a user out of blocks, teams and projects; return of how many."""
    is_member = m.tenant == user_name[0], m.kind == "user", m.name == user_name[1]
    left_count = conn.execute(delete(t.shared_members).where(*is_member)).rowcount
    left_count += project_rows.leave_all(conn, user_name[0], project_rows.USER, user_name[1])
    return left_count + teams.leave_all(conn, user_name)


def _written_by(conn: Connection, user_name: UserName) -> Iterator[Row[Any]]:
    """Yield the blocks that a user wrote in, held one after the other in the order of their ids."""
    written_blocks = select(v.block_id).where(v.user == user_name[1])
    query = (
        select(t.shared_blocks)
        .where(b.tenant == user_name[0], b.id.in_(written_blocks))
        .order_by(b.id)
    )
    yield from conn.execute(query.with_for_update()).all()


def _remove_lines(conn: Connection, row: Row[Any], user: str) -> int:
    """Remove a user's lines of a block, by a new version; return how many.

    The version has no text before, which the older ones have lost too.
    """
    writers = read_writers(row.writers)
    value, other_writers = run_pure(
        conn, lambda old: without_lines_of(old, writers, user), row.value, len(row.value)
    )
    removed_count = len(writers) - len(other_writers)
    if not removed_count:
        return 0
    now = clock.now()
    version = row.version + 1
    new_values = {
        "value": value,
        "writers": encode(other_writers).decode(),
        "version": version,
        "outside": row.outside + 1,
        "updated_at": now,
        "actor": ERASE,
        "user": None,
        "agent": None,
    }
    conn.execute(update(t.shared_blocks).where(b.id == row.id).values(new_values))
    conn.execute(
        t.shared_versions.insert().values(
            id=new_key(),
            block_id=row.id,
            version=version,
            after=value,
            actor=ERASE,
            created_at=now,
        )
    )
    return removed_count


def _drop_name(conn: Connection, row: Row[Any], user: str, new_name: str | None = None) -> int:
    """Put another name, or none, in the place of a user's beside what they wrote."""
    conn.execute(
        update(t.shared_blocks).where(b.id == row.id, b.user == user).values(user=new_name)
    )
    is_named = v.block_id == row.id, v.user == user
    return conn.execute(update(t.shared_versions).where(*is_named).values(user=new_name)).rowcount


def _put_writers(conn: Connection, ident: str, writers: Writers) -> None:
    conn.execute(
        update(t.shared_blocks).where(b.id == ident).values(writers=encode(writers).decode())
    )

"""Python tools as rows: versions without a gap, undo back to the first, tenants apart."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Conflict, NotFound
from memory.stores.sql.rows import python_tools as rows
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.python_tools import ToolText

API = EditSource("api", "req_1")
WHO = "t", "triple"


def text(value: str) -> ToolText:
    return ToolText(f'{{"source": "{value}"}}', "{}")


async def put(db, value, who=WHO, source=API):
    return await db.write(
        lambda conn: rows.edit(conn, who, None if value is None else text(value), source)
    )


async def undo(db, who=WHO):
    version, before = await db.read(lambda conn: rows.find_undone(conn, *who))
    after = None if before is None else ToolText(before, "{}")
    return await db.write(lambda conn: rows.undo(conn, who, version, after, API))


async def test_each_edit_is_a_version_and_undo_walks_back(db):
    assert (await put(db, "a")).version == 1
    assert (await put(db, "a")).version == 1
    assert (await put(db, "b")).version == 2
    assert await put(db, None) is None
    assert (await undo(db)).definition == text("b").definition
    assert (await undo(db)).definition == text("a").definition
    assert await undo(db) is None
    with pytest.raises(NotFound):
        await undo(db)
    listed = await db.read(lambda conn: rows.versions(conn, WHO, None, 50))
    assert [row["version"] for row in listed] == [6, 5, 4, 3, 2, 1]
    for newer, older in itertools.pairwise(listed):
        assert newer["before"] == older["after"]
    assert (await put(db, "c")).version == 7


async def test_a_stale_edit_and_a_missing_tool_are_refused(db):
    with pytest.raises(NotFound):
        await put(db, None)
    await put(db, "a")
    for expect in (0, 2):
        with pytest.raises(Conflict, match="version 1"):
            await put(db, "b", source=EditSource("api", "r", expect=expect))
    assert (await put(db, "b", source=EditSource("api", "r", expect=1))).version == 2
    with pytest.raises(Conflict):
        await db.write(lambda conn: rows.undo(conn, WHO, 1, None, API))


async def test_tenants_are_apart(db, monkeypatch):
    monkeypatch.setattr(rows, "MAX_TOOLS", 1)
    await put(db, "a")
    await put(db, "b", ("u", "triple"))
    assert await db.read(lambda conn: rows.find(conn, "v", "triple")) is None
    with pytest.raises(Conflict, match="1 at most"):
        await put(db, "c", ("t", "second"))
    listed = await db.read(rows.list_tools)
    assert [row[:3] for row in listed] == [("t", "triple", 1), ("u", "triple", 1)]


@given(st.lists(st.sampled_from(["a", "b", None, "undo"]), max_size=8))
def test_any_edits_leave_versions_that_follow_each_other(steps):
    """The history alone says what the tool is."""
    from sqlalchemy import create_engine

    from memory.stores.sql.engine import python_tool_tables as schema

    engine = create_engine("sqlite://")
    schema.python_tools.create(engine)
    schema.python_tool_versions.create(engine)
    with engine.begin() as conn:
        for step in steps:
            try:
                if step == "undo":
                    version, before = rows.find_undone(conn, *WHO)
                    after = None if before is None else ToolText(before, "{}")
                    rows.undo(conn, WHO, version, after, API)
                else:
                    rows.edit(conn, WHO, None if step is None else text(step), API)
            except NotFound:
                continue
        held = rows.find(conn, *WHO)
        try:
            listed = rows.versions(conn, WHO, None, 50)
        except NotFound:
            assert held is None
            return
        assert [row["version"] for row in listed] == list(range(len(listed), 0, -1))
        assert listed[0]["after"] == (held.definition if held else None)
    engine.dispose()

"""The lists of skills, brought in line with the settings."""

from __future__ import annotations

from sqlalchemy import insert

from memory import Scope
from memory.core.skill_text import ACTIVE
from memory.stores.sql.engine.skill_tables import skills
from memory.stores.sql.rows import scopes, skill_block
from memory.stores.sql.rows.skill_block import SkillListing


async def test_lists_for_which_there_is_no_room_are_passed_over(db, monkeypatch):
    def fill(conn):
        keys = []
        for name in ("ada", "bob", "cid"):
            owner = scopes.current_owner(conn, Scope("t", name, "default", b"s" * 32))
            keys.append(scopes.get_or_create(conn, owner))
            values = {"id": name, "scope_id": keys[-1], "status": ACTIVE, "version": 1}
            conn.execute(insert(skills).values(**values, created_at=0.0, updated_at=0.0))
        return sorted(keys)

    keys, refreshed = await db.write(fill), []
    monkeypatch.setattr(skill_block, "refresh", lambda conn, key, *_: refreshed.append(key))
    after, rounds = 0, 0
    while after := await db.write(
        lambda conn, after=after: skill_block.align(conn, SkillListing({}), after, 2)
    ):
        rounds += 1
        assert rounds < 9
    assert refreshed == keys

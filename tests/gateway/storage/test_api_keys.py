"""The table of keys: made once a name, listed in order, revoked, followed by counts."""

from __future__ import annotations

import pytest

from gateway.storage import api_keys
from memory import Conflict, NotFound


async def test_a_name_is_one_keys_until_that_is_revoked(db):
    first = await api_keys.create_key(db, "app", "acme", "d1", "{}")
    with pytest.raises(Conflict):
        await api_keys.create_key(db, "app", "acme", "d2", "{}")
    assert (await api_keys.revoke_key(db, "app")).id == first.id
    second = await api_keys.create_key(db, "app", "other", "d2", "{}")
    assert [k.id for k in await api_keys.list_keys(db, None, None, 10)] == [first.id, second.id]
    assert [k.id for k in await api_keys.list_keys(db, "other", None, 10)] == [second.id]
    place = (first.created_at, first.id)
    assert [k.id for k in await api_keys.list_keys(db, None, place, 10)] == [second.id]


async def test_a_key_is_revoked_once_and_a_stranger_never(db):
    made = await api_keys.create_key(db, "app", "acme", "d", "{}")
    ended = await api_keys.revoke_key(db, made.id)
    assert await api_keys.revoke_key(db, made.id) == ended
    with pytest.raises(NotFound):
        await api_keys.revoke_key(db, "app")


async def test_what_changed_is_told_by_counts(db):
    counts, found = await api_keys.read_changes(db, None)
    assert found == []
    assert await api_keys.read_changes(db, counts) is None
    made = await api_keys.create_key(db, "app", "acme", "d", "{}")
    counts, found = await api_keys.read_changes(db, counts)
    assert [k.id for k in found] == [made.id]
    await api_keys.revoke_key(db, made.id)
    assert (await api_keys.read_changes(db, counts))[1] == []

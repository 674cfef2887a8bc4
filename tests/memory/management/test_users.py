"""Users from outside: listed, exported, imported, erased with what an application knows of them."""

from __future__ import annotations

import dataclasses

import pytest

from memory import (
    ImportLimits,
    ImportManifest,
    NewPassage,
    OwnerRename,
    Scope,
    VisibleScopes,
    export_format,
)
from memory.management import passages, renaming, users
from tests.memory.management.conftest import SECRET

EVERYTHING = VisibleScopes(None)


class Application:
    """Tables of an application: two rows name the user, one more comes meanwhile."""

    counted = ""

    def __init__(self, fails=False):
        self.rows, self.fails, self.calls = 2, fails, []

    def forget_batch(self, conn, tenant, user, most):
        assert most > 0
        self.calls.append(("batch", tenant, user))
        had, self.rows = self.rows, max(self.rows - 1, 0)
        return had - self.rows

    def forget(self, conn, tenant, user):
        self.calls.append(("last", tenant, user))
        if self.fails:
            raise RuntimeError("no")

    def expire(self, conn, now):
        return 0


async def names(store):
    return [u["id"] for u in await users.list_users(store, EVERYTHING, None, 10)]


async def test_an_erasure_asks_each_application_first_in_batches_and_then_once(store, actor, scope):
    application = Application()
    store.db.application_tables.append(application)
    await passages.add_passage(store, actor, NewPassage("Ada keeps bees."))
    assert await names(store) == ["ada"]
    assert (await users.erase_user(store, "acme", "ada")).counts["passages"] == 1
    assert application.calls == [("batch", "acme", "ada")] * 3 + [("last", "acme", "ada")]
    assert await names(store) == []
    assert await users.find_scope(store, scope) is None


async def test_what_an_application_cannot_forget_is_not_erased(store, actor, scope):
    store.db.application_tables.append(Application(fails=True))
    await passages.add_passage(store, actor, NewPassage("Ada keeps bees."))
    with pytest.raises(RuntimeError):
        await users.erase_user(store, "acme", "ada")
    assert await names(store) == ["ada"]
    assert len(await passages.list_passages(store, scope, None, 10)) == 1


async def test_an_export_is_read_back_in_for_another_user(store, actor, scope):
    await passages.add_passage(store, actor, NewPassage("Ada keeps bees."))
    lines = [line async for line in users.export_user(store, "acme", "ada")]
    body = b"".join(map(export_format.encode_line, lines))
    bob = Scope("acme", "bob", "default", SECRET)
    manifest = ImportManifest(body, ImportLimits({}))
    await manifest.examine()
    receipt = await users.import_user(store, dataclasses.replace(actor, scope=bob), manifest)
    assert receipt.imported["passages"] == 1
    assert await names(store) == ["ada", "bob"]


async def test_a_user_takes_the_memory_along_under_another_name(store, actor):
    await passages.add_passage(store, actor, NewPassage("Ada keeps bees."))
    move = OwnerRename(SECRET, ("acme", "ada"), ("home", "me"))
    await renaming.rename_user(store.db, move)
    assert await names(store) == ["me"]
    me = Scope("home", "me", "default", SECRET)
    assert len(await passages.list_passages(store, me, None, 10)) == 1


async def test_a_tenant_is_not_proven_before_an_upstream_accepted_it(store, actor):
    await passages.add_passage(store, actor, NewPassage("Ada keeps bees."))
    assert not await users.is_proven(store, "acme")

"""`mnemogate doctor` and the stores beside the database."""

from __future__ import annotations

import socket
from functools import partial

from gateway.cli.store_check import check_stores
from gateway.config.loader import load
from memory.scope import Scope
from memory.stores.sql.rows.management_context import touch_scope
from tests import stores
from tests.redis_server import PASSWORD


def look(tmp_path, **overrides):
    settings = load(None, {}, {"storage.data": str(tmp_path), **overrides})
    return [(f.what, f.state, f.told) for f in check_stores(settings)]


def test_stores_that_are_not_used_are_not_spoken_of(tmp_path):
    assert look(tmp_path) == []


def test_a_redis_is_asked_whether_it_takes_writes(tmp_path, own_server):
    up = look(tmp_path, **{"storage.redis": own_server.url})
    refused = look(tmp_path, **{"storage.redis": own_server.url.replace(PASSWORD, "wrong")})
    own_server.stop()
    down = look(tmp_path, **{"storage.redis": own_server.url})
    assert up == [("redis", "ok", f"127.0.0.1:{own_server.port} answers")]
    for [(what, state, told)] in (down, refused):
        assert (what, state) == ("redis", "note")
        assert told.endswith("start it, or correct storage.redis")
        assert "wrong" not in told


def test_a_server_of_vectors_is_told_with_what_mends_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        settings = {"memory.embedder": "upstream:m", "storage.vectors": f"chroma:{url}"}
        assert look(tmp_path, **settings) == [("vectors", "ok", f"Chroma at {url} answers")]
    [(what, state, told)] = look(tmp_path, **settings)
    assert (what, state) == ("vectors", "note")
    assert told.endswith("start it (`chroma run`), or correct storage.vectors")
    embedded = {**settings, "storage.vectors": "chroma:embedded"}
    assert look(tmp_path, **embedded) == [("vectors", "ok", "Chroma, embedded")]


async def test_users_who_are_named_like_another_kind_of_owner_are_told(tmp_path, db):
    url = stores.url_of(tmp_path / "test.db")
    where = {"storage.database": url, "storage.secret": stores.SECRET.hex()}
    settings = load(None, {}, {"storage.data": str(tmp_path), **where})
    assert list(check_stores(settings)) == []
    for user in ("ada", "agents", "agent:x", "team:42", "\x1fagent:support", None):
        scope = Scope("t", user, "default", b"")
        await db.write(partial(touch_scope, scope=scope))
    (found,) = check_stores(settings)
    assert (found.what, found.state) == ("users", "note")
    assert found.told.startswith("agent:x, team:42: ")
    assert found.told.endswith("/users/user%3Aagent%3Ax")

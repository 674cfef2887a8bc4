"""Large messages are written in pieces, so that others are written between them; everything that
reads messages finds them whole, and everything that removes them leaves no piece.
"""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from sqlalchemy import text as sql

from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.owners import rename_owner
from memory.stores.sql.rows import message_pieces
from tests.conftest import running
from tests.e2e.test_background import rows
from tests.models import Model, call, calls

PIECE, LARGE = 500, 2000
WORDS = "tea and cake " * 1000
IMAGE = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'iVBOR' * 4000}"}},
    ],
}
ANSWER = {"role": "assistant", "content": "A cup."}
SHAPES = {
    "an image": (IMAGE, "A cup."),
    "sound": (
        {
            "role": "user",
            "content": [
                {"type": "input_audio", "input_audio": {"data": "UklG" * 4000, "format": "wav"}}
            ],
        },
        "A song.",
    ),
    "words": ({"role": "user", "content": WORDS}, "Yes."),
    "words of somebody with a name": ({"role": "user", "name": "bo", "content": WORDS}, "Yes."),
    "letters of four bytes": ({"role": "user", "content": "🍵 天地 " * 4000}, "Yes."),
    "an answer": ({"role": "user", "content": "tea?"}, WORDS),
    "both": (IMAGE, WORDS),
    "a call": (
        {"role": "user", "content": "tea?"},
        calls(call("brew", {"leaves": WORDS}, "a"), content=None),
    ),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(message_pieces, "PIECE_CHARACTERS", PIECE)
    monkeypatch.setattr(message_pieces, "LARGE_BYTES", LARGE)


def token(data):
    return {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}


async def pieces(live):
    return await rows(live, t.message_pieces)


def brew_offered(answer):
    tool = {"type": "function", "function": {"name": "brew", "parameters": {"type": "object"}}}
    return {} if isinstance(answer, str) else {"tools": [tool]}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_large_message_is_read_whole_and_leaves_nothing(tmp_path, shape):
    asked, answer = SHAPES[shape]
    async with Model(answer) as m, running(m.url, tmp_path) as live:
        r = await live.chat([asked], user="ada", **brew_offered(answer))
        assert r.headers["x-memory-status"] == "ok"
        said = r.json()["choices"][0]["message"]
        assert len(await pieces(live)) > LARGE // PIECE
        assert all(
            len(x["body"]) + len(x["content"]) < LARGE or x["pieces"] is not None
            for x in await rows(live, t.messages)
        )
        local = {"headers": token(tmp_path)}
        found = await live.memory("GET", "/users/ada/conversations", **local)
        (name,) = [x["id"] for x in found.json()["data"]]
        listed = await live.memory("GET", f"/users/ada/conversations/{name}/messages", **local)
        for shown, message in zip(listed.json()["data"], (asked, said), strict=True):
            assert {k: shown[k] for k in message} == message
        exported = await live.memory("GET", "/users/ada/export", **local)
        lines = [json.loads(x) for x in exported.text.splitlines()]
        assert [x["message"] for x in lines if x["object"] == "message"] == [asked, said]
        await live.memory("DELETE", f"/conversations/{name}", **local)
        assert await pieces(live) == await rows(live, t.messages) == []


async def test_a_history_kept_here_sends_its_images_again(tmp_path):
    named = {"x-memory-conversation": "c"}
    async with Model("A cup.") as m:
        async with running(m.url, tmp_path) as live:
            await live.chat([IMAGE], user="ada", headers=named)
        async with running(m.url, tmp_path) as live:
            await live.chat("And of which colour?", user="ada", headers=named)
    assert [x for x in m.bodies[1]["messages"] if x["role"] != "system"][:2] == [IMAGE, ANSWER]


async def test_a_resent_history_goes_on_behind_its_image(tmp_path):
    async with Model("A cup.") as m, running(m.url, tmp_path) as live:
        await live.chat([IMAGE], user="ada")
        await live.chat([IMAGE, ANSWER, {"role": "user", "content": "Sure?"}], user="ada")
        assert len({x["conversation"] for x in await rows(live, t.messages)}) == 1
        assert len({x["body"] for x in await pieces(live)}) == 1


async def test_an_erased_user_leaves_no_piece_and_a_moved_one_keeps_the_digests(tmp_path):
    async with Model("A cup.") as m, running(m.url, tmp_path) as live:
        await live.chat([IMAGE], user="ada")
        memory = live.gateway.memory
        (scope,) = [x for x in await rows(live, t.scopes) if x["user"] == "ada"]
        key = Scope(scope["tenant"], "ada", scope["agent"], memory.secret).key
        before = {x["id"]: x["digest"] for x in await rows(live, t.messages)}
        await memory.db.write(lambda conn: rename_owner.page(conn, scope["id"], key, 0))
        assert {x["id"]: x["digest"] for x in await rows(live, t.messages)} == before
        erased = await live.memory("DELETE", "/users/ada", headers=token(tmp_path))
        assert erased.json()["erased"]["messages"] == 2
        assert await pieces(live) == []


async def test_a_refused_key_leaves_no_piece(tmp_path):
    refusal = (401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
    async with Model(refusal) as m, running(m.url, tmp_path) as live:
        assert (await live.chat([IMAGE], user="ada")).status_code == 401
        async with asyncio.timeout(10):
            while await pieces(live) or await rows(live, t.scopes):
                await asyncio.sleep(0.01)
        assert await rows(live, t.messages) == []


async def test_small_writes_pass_between_the_pieces(tmp_path, monkeypatch):
    """Of the same loop: what is written at once is never behind more than one piece."""
    async with Model("A cup.") as m, running(m.url, tmp_path) as live:
        memory = live.gateway.memory
        await memory.wait_until_ready()
        behind = []
        write = memory.db.write

        async def beside(work, **options):
            if getattr(work, "func", None) is not message_pieces._put:
                return await write(work, **options)
            large = asyncio.ensure_future(write(work, **options))
            await asyncio.sleep(0)
            await write(lambda conn: conn.execute(sql("SELECT 1")), small=True)
            behind.append(len(await pieces(live)))
            return await large

        monkeypatch.setattr(memory.db, "write", beside)
        assert (await live.chat([IMAGE], user="ada")).headers["x-memory-status"] == "ok"
        assert len(behind) == len(await pieces(live)) > 10
        assert all(there <= i + 1 for i, there in enumerate(behind))


async def test_pieces_that_no_message_came_to_name_leave_by_age(tmp_path):
    async with Model("A cup.") as m, running(m.url, tmp_path) as live:
        await live.chat([IMAGE], user="ada")
        db, kept = live.gateway.memory.db, await pieces(live)
        lost = message_pieces.LargeBody(kept[0]["body"] + 1, ["x" * PIECE * 3])
        await message_pieces.write(db, lambda conn: kept[0]["scope_id"], [lost], NOTHING)
        for age, left in ((0.0, 3), (2 * message_pieces.ORPHAN_SECONDS, 0)):
            now = time.time() + age
            while await db.write(lambda conn, now=now: message_pieces.expire_orphans(conn, now)):
                pass
            assert len(await pieces(live)) == len(kept) + left


@pytest.mark.parametrize("words", ["tea ", "té ", "お茶", "🍵"])
@pytest.mark.parametrize("size", [LARGE // 2, 2 * LARGE])
def test_what_is_large_is_told_by_its_bytes(words, size):
    """So many characters of another script are several times as many bytes to write."""
    text = (words * size)[:size]
    contents = [{"role": "user", "body": "", "content": text, "digest": b"", "pieces": None}]
    large = message_pieces.split_off(contents)
    assert bool(large) == (len(text.encode()) > LARGE or not text.isascii())
    assert bool(large) == (contents[0]["pieces"] is not None)
    for body in large:
        slices = [piece for part in body.parts for piece in message_pieces._slices_of(part)]
        assert "".join(slices) == text
        assert max(len(piece.encode()) for piece in slices) <= PIECE

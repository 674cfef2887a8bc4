"""Bulk work, and management requests of any shape, beside the requests of others: they hold nobody
up.
"""

from __future__ import annotations

import gzip
import json
import random

import httpx

from gateway.cli.index import _keywords
from memory.jobs.reindex import ReindexProgress
from memory.stores.sql.engine.database import Database
from tests.e2e.beside import BULK, beside, chat, passages, served

ROWS = 3000
SECONDS = (
    # A wait that no machine makes of a piece; the whole takes longer where it is made at once.
    1.0
)
GZIP = {**BULK, "content-encoding": "gzip"}


async def test_others_keep_their_memory_during_bulk_work_of_any_kind(data):
    async with served(data, MNEMOGATE_MEMORY__READ_DEADLINE_MS="2000") as client:
        user, body, said = "/memory/v1/users/eve", passages(ROWS), chat(ROWS)
        works = (
            lambda: client.post(f"{user}/import", content=body, headers=BULK),
            lambda: client.post(f"{user}/conversations", content=said, headers=BULK),
            lambda: client.get(f"{user}/export", headers=BULK),
            lambda: client.delete("/memory/v1/conversations/long", headers=BULK),
            lambda: client.delete(user, headers=BULK),
        )
        for work in works:
            answer, felt = await beside(client, work)
            assert answer.status_code == 200, answer.text
            assert set(felt.statuses) == {"ok"}
            assert max(felt.health) < SECONDS
        assert answer.json()["erased"]["passages"] == ROWS


def message(content):
    return json.dumps(
        {"object": "message", "conversation": "c", "message": {"role": "user", "content": content}}
    ).encode()


WORDS = " ".join(random.Random(3).sample([f"word{i}" for i in range(100_000)], 100_000))
HOSTILE = {
    "blank lines": ("import", b"\n" * (16 << 20), 200),
    "white space": ("import", b" " * (16 << 20), 200),
    "brackets in a line": ("import", b'{"object":"message","message":[' + b"[]," * (4 << 20), 400),
    "tags in a line": (
        "import",
        b'{"object":"passage","content":"x","tags":[' + b'"",' * (4 << 20) + b'""]}',
        400,
    ),
    "deep nesting": ("import", b'{"object":"message","message":' + b"[" * (8 << 20), 400),
    "words of a message": ("import", message(WORDS), 200),
    "an image": (
        "import",
        message([{"type": "image_url", "image_url": {"url": "data:" + "A" * (8 << 20)}}]),
        200,
    ),
    "empty messages": ("conversations", b'{"messages":[' + b"{}," * (4 << 20) + b"{}]}", 400),
    "one long turn": (
        "conversations",
        json.dumps({"messages": [{"role": "user", "content": "hi"}] * 5000}).encode(),
        200,
    ),
    "sentences": ("passages", json.dumps({"content": "A word. " * 25_000}).encode(), 200),
    "a text without end": ("passages", json.dumps({"content": "A word. " * 25_001}).encode(), 400),
    "members of a body": ("passages", b'{"content":[' + b"{}," * (2 << 20) + b"{}]}", 400),
    "a large body": ("passages", b" " * (9 << 20), 413),
}


async def test_a_management_request_of_any_shape_holds_nobody_up(data):
    async with served(data, MNEMOGATE_MEMORY__READ_DEADLINE_MS="2000") as client:
        for name, (path, body, status) in HOSTILE.items():
            packed = gzip.compress(body, 1)
            answer, felt = await beside(
                client,
                lambda p=path, b=packed: client.post(
                    f"/memory/v1/users/eve/{p}", content=b, headers=GZIP
                ),
            )
            assert (name, answer.status_code) == (name, status), answer.text[:300]
            assert max(felt.health) < SECONDS, name
        for query in (
            "may " * 2000,
            "1 " * 4000,
            " ".join(f"w{i}" for i in range(2000)),
            "x&tags=" + ",".join("t" * 3000),
        ):
            answer, felt = await beside(
                client,
                lambda q=query: client.get(
                    f"/memory/v1/users/eve/passages/search?q={q}", headers=BULK
                ),
            )
            assert answer.status_code == (400 if "tags" in query else 200)
            assert max(felt.health) < SECONDS, query[:20]


async def test_an_index_made_anew_leaves_others_their_memory(data):
    async with served(data, MNEMOGATE_MEMORY__READ_DEADLINE_MS="2000") as client:
        assert (
            await client.post("/memory/v1/users/eve/import", content=passages(1000), headers=BULK)
        ).status_code == 200

        async def rebuilt():
            db = Database(f"sqlite+aiosqlite:///{data}/mnemogate.db")
            await db.open()
            await _keywords(db, ReindexProgress(), data / "note")
            await db.close()
            return httpx.Response(200)

        _, felt = await beside(client, rebuilt)
        assert set(felt.statuses) == {"ok"}
        found = (
            await client.get("/memory/v1/users/eve/passages/search?q=shop", headers=BULK)
        ).json()["data"]
        assert found

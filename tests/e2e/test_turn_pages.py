"""How many pages of the database a warm turn writes, its index included: no machine moves it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys

import pytest

from tests.conftest import running
from tests.e2e.test_turn_calls import CONFIG
from tests.models import Model

MOST_PAGES = 12
WARM, COUNTED = 4, 64
IDLE_SECONDS = 30.0
WORDS = "what is next to do here with the kettle, the garden and the boat? "
WAITING = """SELECT (SELECT count(*) FROM journal) + (SELECT count(*) FROM messages m
WHERE NOT EXISTS (SELECT 1 FROM messages_fts WHERE rowid = m.id))"""


def count_frames(data) -> int:
    """Count the pages in the log, which its index tells: `mxFrame` in sqlite.org/walformat.html."""
    (index,) = data.glob("*.db-shm")
    return int.from_bytes(index.read_bytes()[16:20], sys.byteorder)


@contextlib.contextmanager
def kept_log(data):
    """A reader that holds the log, so that it is not begun anew and counts every page."""
    (file,) = data.glob("*.db")
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as raw:
        raw.execute("BEGIN")
        raw.execute("SELECT count(*) FROM messages").fetchone()
        yield


async def wait_until_idle(live, data) -> None:
    """Wait until nothing is left to file or to index."""
    await live.gateway.memory.db.filer.file()
    (file,) = data.glob("*.db")
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as raw:
        for _ in range(int(IDLE_SECONDS / 0.1)):
            await asyncio.sleep(0.1)
            if raw.execute(WAITING).fetchone()[0] == 0:
                return
    pytest.fail("turns are not filed and indexed in time")


async def talk(live, messages, turns: int) -> None:
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{len(messages)}: {turn} " + WORDS * 4})
        answer = await live.chat(messages, {"x-memory-user": "ada"}, max_tokens=512)
        assert answer.headers["x-memory-status"] == "ok"
        messages.append(answer.json()["choices"][0]["message"])


async def test_a_warm_turn_writes_few_pages(data):
    async with Model(lambda seen, wire: "This is to be done next, says the gardener. " * 8) as up:
        config = {**CONFIG, "providers": {"up": {**CONFIG["providers"]["up"], "base_url": up.url}}}
        async with running("", data, config, key="key-of-the-app-0123456789") as live:
            messages = [{"role": "system", "content": "You are a helpful assistant."}]
            await talk(live, messages, WARM)
            await wait_until_idle(live, data)
            with kept_log(data):
                before = count_frames(data)
                await talk(live, messages, COUNTED)
                spoken = count_frames(data)
                await wait_until_idle(live, data)
                pages = (count_frames(data) - before) / COUNTED
    assert pages <= MOST_PAGES, (pages, (spoken - before) / COUNTED)

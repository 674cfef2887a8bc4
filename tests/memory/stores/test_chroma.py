"""The vector index's process: whatever becomes of it, nobody waits for it and words go on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time

import pytest

from memory.errors import StoreUnavailable
from memory.stores import chroma, chroma_child
from memory.stores.chroma import ChromaIndex
from tests.chroma_server import chroma_server

VECTORS = [(i, [float(i), 1.0]) for i in range(5)]


@pytest.fixture
async def index(tmp_path):
    out = ChromaIndex("chroma:embedded", tmp_path / "chroma")
    await out.upsert("scope-1", VECTORS)
    yield out
    await out.close()


async def test_a_process_that_stands_still_costs_a_search_two_seconds_once_and_the_log_says_so_once(
    index, monkeypatch, caplog
):
    monkeypatch.setattr(chroma, "CALL_SECONDS", 0.5)
    os.kill(index._child.pid, signal.SIGSTOP)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await index.nearest("scope-1", [1.0, 1.0], 3)
    begun = time.monotonic()
    for _ in range(100):
        with pytest.raises(StoreUnavailable):
            await index.upsert("scope-1", VECTORS)
    # Left alone, none of them waited.
    assert time.monotonic() - begun < 5
    assert len([r for r in caplog.records if "left alone" in r.message]) == 1


async def test_the_loop_is_free_while_the_folder_vanishes_under_it(index, tmp_path):
    late, ended = [], asyncio.Event()

    async def looking():
        while not ended.is_set():
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            late.append(time.monotonic() - begun)

    looks = asyncio.create_task(looking())
    shutil.rmtree(tmp_path / "chroma")
    for i in range(20):
        try:
            await index.upsert(f"scope-{i}", VECTORS)
        except StoreUnavailable:
            break
    ended.set()
    await looks
    assert max(late) < 2


async def test_it_is_tried_again_after_its_rest(index, monkeypatch):
    monkeypatch.setattr(chroma, "REST_SECONDS", 0.0)
    index._child.kill()
    with pytest.raises(StoreUnavailable):
        await index.nearest("scope-1", [1.0, 1.0], 3)
    await index.upsert("scope-1", VECTORS)
    assert set(await index.nearest("scope-1", [4.0, 1.0], 2)) == {3, 4}


async def test_closing_waits_for_no_call_that_hangs(index):
    os.kill(index._child.pid, signal.SIGSTOP)
    call = asyncio.create_task(index.upsert("scope-1", VECTORS))
    await asyncio.sleep(0.05)
    begun = time.monotonic()
    await index.close()
    assert time.monotonic() - begun < 5
    with pytest.raises(StoreUnavailable):
        await call


async def test_a_call_that_holds_the_interpreter_ends_the_process_by_the_systems_own_clock(
    tmp_path, monkeypatch
):
    script = tmp_path / "holding.py"
    script.write_text(
        "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0.3)\nwhile True: pass\n"
    )
    monkeypatch.setattr(chroma, "CHILD", script)
    out = ChromaIndex("chroma:embedded", tmp_path / "chroma")
    with pytest.raises(StoreUnavailable, match="ended"):
        await asyncio.wait_for(out.upsert("scope-1", VECTORS), 20)
    await out.close()


async def test_a_second_process_on_the_folder_is_told(index, tmp_path):
    other = ChromaIndex("chroma:embedded", tmp_path / "chroma")
    with pytest.raises(StoreUnavailable, match="another process"):
        await other.upsert("scope-1", VECTORS)
    await other.close()


def test_collections_are_found_page_by_page_since_a_server_may_cap_its_answer(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(chroma_child, "PAGE", 3)
    client = chroma_child.open_client("embedded", tmp_path / "paged")
    names = [f"scope-1-{i:02}" for i in range(7)]
    for name in [*names, "scope-11-00"]:
        chroma_child.upsert(client, name, [(1, [1.0, 0.0])])
    assert chroma_child.find_collections(client, "scope-1-") == names
    chroma_child.forget(client, "scope-1-", None)
    assert [c.name for c in client.list_collections()] == ["scope-11-00"]


@pytest.mark.parametrize("keys", [None, [1]])
def test_a_collection_that_another_worker_deletes_meanwhile_is_no_failure(
    tmp_path, monkeypatch, keys
):
    client = chroma_child.open_client("embedded", tmp_path / "raced")
    chroma_child.upsert(client, "scope-1-b", [(1, [1.0, 0.0])])
    monkeypatch.setattr(chroma_child, "find_collections", lambda *_: ["scope-1-a", "scope-1-b"])
    chroma_child.forget(client, "scope-1-", keys)
    assert sum(c.count() for c in client.list_collections()) == 0


@pytest.fixture(params=["embedded", "server"])
def where(request, tmp_path):
    if request.param == "embedded":
        yield "chroma:embedded"
    else:
        with chroma_server(tmp_path / "server") as url:
            yield f"chroma:{url}"


async def test_the_embedded_index_and_the_server_do_the_same(where, tmp_path):
    index = ChromaIndex(where, tmp_path / "chroma")
    await index.upsert("scope-1-x", VECTORS)
    # Replaced.
    await index.upsert("scope-1-x", [(4, [0.0, 1.0])])
    await index.upsert("scope-11-x", VECTORS)
    found = await index.nearest("scope-1-x", [0.0, 1.0], 2)
    assert set(found) == {0, 4}
    assert min(found.values()) > 0.999
    await index.forget("scope-1-", [0, 77])
    assert set(await index.nearest("scope-1-x", [0.0, 1.0], 9)) == {1, 2, 3, 4}
    await index.forget("scope-1-", None)
    await index.forget("scope-1-", None)
    assert await index.nearest("scope-1-x", [0.0, 1.0], 9) == {}
    assert len(await index.nearest("scope-11-x", [0.0, 1.0], 9)) == 5
    await index.close()


async def test_two_workers_share_a_server(tmp_path):
    with chroma_server(tmp_path / "server") as url:
        one, other = (ChromaIndex(f"chroma:{url}", tmp_path / name) for name in ("a", "b"))
        await asyncio.gather(
            one.upsert("scope-1", VECTORS[:3]), other.upsert("scope-1", VECTORS[3:])
        )
        assert len(await one.nearest("scope-1", [1.0, 1.0], 9)) == 5
        await asyncio.gather(one.forget("scope-1", None), other.forget("scope-1", None))
        assert await other.nearest("scope-1", [1.0, 1.0], 9) == {}
        await one.close()
        await other.close()

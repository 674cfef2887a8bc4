"""What an import, a conversation brought along and an erasure promise, whole or cut short."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import Counter

import pytest
from sqlalchemy import update

from gateway.config import validation
from gateway.errors import BadRequest
from gateway.management import conversations, profile_edits, schemas, sent_bodies
from memory import Screen, export_format, text_of
from memory.conversation.steps import pausing_with
from memory.core.block_space import BlockSpace
from memory.stores.sql.engine import batches
from memory.stores.sql.engine import schema as t
from memory.stores.sql.transfer import importer
from tests.e2e.beside import chat, passages
from tests.gateway.management.managing import as_key, managed, rows
from tests.long_work import noted


@pytest.fixture
async def slow(live, monkeypatch):
    """A gateway whose pieces are of a few rows, so that a small work has many; nothing else
    writes.
    """
    monkeypatch.setattr(batches.WriterShare.__init__, "__defaults__", (3, 60.0))
    await live.stop_worker()
    await live.gateway.memory.retrieval.indexing.stop()
    return live


def failing_at(db, count):
    """The database's `write`, which fails from that piece on."""
    write, left = db.write, [count]

    async def failing(work, **how):
        left[0] -= how.get("piece", False)
        if left[0] <= 0 and how.get("piece"):
            raise importer.Conflict("the process died")
        return await write(work, **how)

    return failing


async def settled(live):
    """Runs every job, those too that wait for their time."""
    await live.gateway.memory.db.write(
        lambda conn: conn.execute(update(t.jobs).values(run_at=0)) and None
    )
    await live.gateway.worker.drain()


async def test_a_key_that_is_no_admins_brings_so_much_at_once_and_no_more(data):
    limits = {"memory.import_rows": 10, "memory.import_mib": 0.01}
    async with managed(data, **limits) as live:
        for path, body, code in (
            ("import", passages(11), "too_many_rows"),
            ("import", b"\n" * 11_000, "request_too_large"),
            ("conversations", chat(11), "too_many_rows"),
            ("conversations", chat(1, "other") + b" " * 11_000, "request_too_large"),
        ):
            refused = await live.memory("POST", f"/users/ada/{path}", content=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (413, code)
            assert "memory.import_" in refused.json()["error"]["message"]
            assert (
                await live.memory(
                    "POST", f"/users/ada/{path}?tenant=acme", content=body, **as_key("sk-root")
                )
            ).status_code == 200
        assert (
            await live.memory("POST", "/users/bob/import", content=passages(10))
        ).status_code == 200


LIMITS = [
    ({"object": "block", "label": "b", "value": "x" * 1_000_001, "limit": 2_000_000}, "1000000"),
    ({"object": "block", "label": "b", "limit": 0}, "limit"),
    ({"object": "block", "label": "b", "description": "x" * 10_001}, "10000"),
    ({"object": "version", "label": "b", "version": 1, "after": "x" * 1_000_001}, "1000000"),
    ({"object": "passage", "content": "x" * 200_001}, "200000"),
    ({"object": "passage", "content": "x", "tags": ["t"] * 65}, "64"),
    ({"object": "passage", "content": "x", "tags": ["t" * 257]}, "256"),
    ({"object": "passage", "content": "x", "importance": 7}, "importance"),
    ({"object": "passage", "content": "x", "agent": "a" * 257}, "256"),
    ({"object": "message", "conversation": "c" * 257, "message": {"role": "user"}}, "256"),
    (
        {
            "object": "message",
            "conversation": "c",
            "message": {"role": "user", "content": "x" * (8_388_609)},
        },
        "8388608",
    ),
]


async def test_an_import_holds_every_limit_that_the_api_holds(live):
    for line, said in LIMITS:
        answer = await live.memory(
            "POST",
            "/users/ada/import",
            content=json.dumps({"object": "passage", "content": "fine"}) + "\n" + json.dumps(line),
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_line"), line[
            "object"
        ]
        assert "Line 2" in answer.json()["error"]["message"]
        assert said in answer.json()["error"]["message"]
    assert (await live.memory("GET", "/users")).json()["data"] == []


async def test_a_tenant_has_one_import_at_a_time(live, monkeypatch):
    begun, go = asyncio.Event(), asyncio.Event()
    examine = importer.ImportManifest.examine

    async def held(self):
        begun.set()
        await go.wait()
        await examine(self)

    monkeypatch.setattr(importer.ImportManifest, "examine", held)
    first = asyncio.create_task(live.memory("POST", "/users/ada/import", content=passages(1)))
    await asyncio.wait_for(begun.wait(), 10)
    second = await live.memory("POST", "/users/bob/import", content=passages(1))
    assert (second.status_code, second.json()["error"]["code"]) == (409, "import_running")
    assert "retry-after" in second.headers
    go.set()
    assert (
        await live.memory("POST", "/users/zoe/import", content=passages(1), **as_key("sk-other"))
    ).status_code == 200
    assert (await first).status_code == 200
    assert (await live.memory("POST", "/users/bob/import", content=passages(1))).status_code == 200


def everything():
    """An import of something of each kind."""
    lines = [{"object": "block", "label": "pets", "value": "a dog", "version": 4}]
    lines += [
        {"object": "version", "label": "pets", "version": i + 1, "after": f"{i} dogs"}
        for i in range(4)
    ]
    lines += [{"object": "passage", "content": f"She likes shop {i}."} for i in range(12)]
    lines += [
        {
            "object": "message",
            "conversation": f"c{i % 3}",
            "message": {"role": "user", "content": f"Hello {i}"},
        }
        for i in range(12)
    ]
    return "\n".join(map(json.dumps, lines))


WHOLE = {"blocks": 1, "block_versions": 4, "passages": 12, "conversations": 3, "messages": 12}


# Each of its pieces.
@pytest.mark.parametrize("after", range(1, 12))
async def test_an_import_that_was_cut_short_is_completed_by_doing_it_again(slow, after):
    db = slow.gateway.memory.db
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "write", failing_at(db, after))
        assert (
            await slow.memory("POST", "/users/ada/import", content=everything())
        ).status_code == 409
    listed = (await slow.memory("GET", "/users/ada/conversations")).json()["data"]
    # Whole, or not there.
    assert {c["message_count"] for c in listed} <= {4}
    assert (await slow.memory("POST", "/users/ada/import", content=everything())).status_code == 200
    await settled(slow)
    found = await rows(slow)
    assert {k: found[k] for k in WHOLE} == WHOLE
    assert found["nodes"] == 3
    indexed = await db.read(
        lambda conn: [conn.exec_driver_sql(f"SELECT count(*) FROM {n}").scalar() for n in t.FTS]
    )
    assert indexed == [12, 12, 0]


@pytest.mark.parametrize("path", ["import", "conversations"])
async def test_an_erasure_during_an_import_wins(slow, monkeypatch, path):
    db, begun, go = slow.gateway.memory.db, asyncio.Event(), asyncio.Event()
    write = db.write

    async def held(work, **how):
        done = await write(work, **how)
        if how.get("piece") and not begun.is_set():
            begun.set()
            await go.wait()
        return done

    monkeypatch.setattr(db, "write", held)
    brought = asyncio.create_task(
        slow.memory(
            "POST", f"/users/ada/{path}", content=everything() if path == "import" else chat(30)
        )
    )
    await asyncio.wait_for(begun.wait(), 10)
    assert (await slow.memory("DELETE", "/users/ada")).status_code == 200
    go.set()
    answer = await brought
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    await settled(slow)
    assert {k for k, n in (await rows(slow)).items() if n} <= {"generations", "jobs"}


async def test_an_erasure_that_was_cut_short_is_readable_by_nobody_and_goes_on(slow):
    for user in ("ada", "bob"):
        assert (
            await slow.memory("POST", f"/users/{user}/import", content=everything())
        ).status_code == 200
    db = slow.gateway.memory.db
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "write", failing_at(db, 3))
        assert (await slow.memory("DELETE", "/users/ada")).status_code == 409
    assert (await rows(slow))["messages"] > 12
    assert [u["id"] for u in (await slow.memory("GET", "/users")).json()["data"]] == ["bob"]
    for path in ("passages", "conversations", "messages/search?q=hello"):
        assert (await slow.memory("GET", f"/users/ada/{path}")).json()["data"] == []
    assert (await slow.memory("GET", "/conversations/c0", **as_key("sk-root"))).json()[
        "user"
    ] == "bob"
    await settled(slow)
    found = await rows(slow)
    # Bob's.
    assert {k: found[k] for k in WHOLE} == WHOLE
    assert found["scopes"] == 1


async def test_a_deletion_that_was_cut_short_is_readable_by_nobody_and_goes_on(slow):
    await slow.memory("POST", "/users/ada/conversations", content=chat(40))
    db = slow.gateway.memory.db
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "write", failing_at(db, 1))
        assert (await slow.memory("DELETE", "/conversations/long")).status_code == 409
    assert (await slow.memory("GET", "/conversations/long")).status_code == 404
    assert (await slow.memory("GET", "/users/ada/messages/search?q=message")).json()["data"] == []
    await settled(slow)
    found = await rows(slow)
    assert (found["messages"], found["nodes"], found["conversations"]) == (0, 0, 0)


async def test_a_page_of_a_list_has_fewer_entries_where_they_are_long_and_none_is_left_out(live):
    live.gateway.memory.policy.blocks.space = BlockSpace(64, 20_000_000)
    for i in range(12):
        await live.memory(
            "PUT", f"/users/ada/blocks/b{i:02}", json={"value": "x" * 900_000, "limit": 1_000_000}
        )
    seen, sizes, cursor = [], [], None
    while True:
        page = await live.memory(
            "GET",
            "/users/ada/blocks",
            params={"limit": 200, **({"cursor": cursor} if cursor else {})},
        )
        sizes.append(len(page.content))
        seen += [b["label"] for b in page.json()["data"]]
        if (cursor := page.json()["next_cursor"]) is None:
            break
    assert seen == sorted([f"b{i:02}" for i in range(12)] + ["human", "rules"])
    assert max(sizes) < 6 << 20


LONG = {
    "POST /users/ada/import": (b'{"object":"passage","content":"x","tags":[%b""]}', 400),
    "POST /users/ada/passages": (b'{"content":"x","tags":[%b""]}', 400),
    "POST /users/ada/conversations": (b'{"messages":[{"role":"user","content":[%b""]}]}', 400),
    "PUT /agents/clerk": (b'{"tools":[%b""]}', 400),
    "PATCH /agents/clerk": (b'{"tools":[%b""]}', 404),
    "PUT /teams/team": (b'{"description":[%b""]}', 400),
    "PUT /projects/project": (b'{"description":[%b""]}', 400),
}


async def test_a_long_body_is_read_beside_the_event_loop(live, monkeypatch):
    readers, own = [], threading.get_ident()

    def noting(work):
        return lambda text: readers.append(threading.get_ident()) or work(text)

    monkeypatch.setattr(export_format, "has_many_values", noting(export_format.has_many_values))
    monkeypatch.setattr(sent_bodies, "has_many_values", noting(sent_bodies.has_many_values))
    monkeypatch.setattr(profile_edits, "parse", noting(profile_edits.parse))
    monkeypatch.setattr(schemas, "has_many_values", noting(schemas.has_many_values))
    for route, (body, status) in LONG.items():
        method, path = route.split()
        readers.clear()
        answer = await live.memory(
            method, f"{path}?tenant=acme", content=body % (b'"",' * 90_000), **as_key("sk-root")
        )
        assert (route, answer.status_code) == (route, status), answer.text
        assert readers
        assert own not in readers


def test_values_are_counted_no_further_than_the_limit(monkeypatch):
    steps, counted = export_format.json_steps, []
    monkeypatch.setattr(
        export_format, "json_steps", lambda raw: (counted.append(s) or s for s in steps(raw))
    )
    for text, many in ((b'"",' * (4 << 20), True), (b"[]," * (4 << 20), True)):
        counted.clear()
        assert export_format.has_many_values(b"[" + text + b'""]') == many
        assert len(counted) <= 10
    assert not export_format.has_many_values(b'["' + b",[{" * (1 << 20) + b'"]')


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"tools": [""] * 9_000}, "tools.4: "),
        ({f"m{i}": 1 for i in range(9_000)}, "m4: there is no such setting"),
        ({"parameters": {f"m{i}": 1 for i in range(9_000)}}, "parameters.m4: "),
        ({"metadata": [1] * 10_001}, "10000 JSON values"),
        ({"blocks": [{"label": f"label{i}", "value": "x" * 99} for i in range(2_000)]}, "262144"),
    ],
)
async def test_of_the_faults_of_a_profile_few_are_described(live, monkeypatch, members, said):
    described = []
    describe = validation._describe_error
    monkeypatch.setattr(
        validation, "_describe_error", lambda *fault: described.append(1) or describe(*fault)
    )
    answer = await live.memory(
        "PUT", "/agents/clerk?tenant=acme", json=members, **as_key("sk-root")
    )
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert len(described) in (0, 5)


async def test_a_letta_client_is_bound_as_the_management_api_is(live):
    async def ask(path, body):
        url, headers = f"{live.root}/letta/v1{path}", as_key("sk-root")["headers"]
        answer = await live.http.post(url, json=body, headers=headers)
        return answer.status_code, answer.json()

    status, agent = await ask("/agents/", {"model": "m"})
    assert status == 200
    passages, long = f"/agents/{agent['id']}/archival-memory", "x" * 1_000_001
    blocks = [{"label": f"label{i}", "value": "x"} for i in range(257)]
    said = [{"role": "user", "content": "Hi"}] * 5001
    for path, body, name in (
        (passages, {"text": "x" * 200_001}, "text"),
        (passages, {"text": "x", "tags": ["t"] * 65}, "tags"),
        (passages, {"text": "x", "tags": ["t" * 257]}, "tags"),
        ("/blocks/", {"label": "b", "value": long, "limit": 1_000_000}, "value"),
        ("/agents/", {"model": "m", "memory_blocks": blocks}, "memory_blocks"),
        ("/agents/", {"model": "m", "initial_message_sequence": said}, "initial_message_sequence"),
    ):
        status, answer = await ask(path, body)
        assert (status, answer["error"]["param"]) == (422, name), answer
    assert (await ask(passages, {"text": "x" * 200_000, "tags": ["t"] * 64}))[0] == 200


WORDS = b"likes tea and walks " * (1 << 18)
MESSAGE = b'{"role":"user","content":"%b"}'
CALLS = b'{"role":"assistant","tool_calls":[%b]}' % b",".join([b'{"id":"c"}'] * 499_000)
LONG_MESSAGES = {
    "words": (MESSAGE % WORDS[: 4 << 20], 200),
    "lines": (MESSAGE % (b"\\n" * (2 << 20)), 200),
    "quotes": (MESSAGE % (b'\\"' * (2 << 20)), 200),
    "more than a message may hold": (MESSAGE % (WORDS * 2), 400),
    "calls": (CALLS, 400),
}
BROUGHT = {
    "conversations": (b'{"messages":[%b]}', {"brought", "message_of"}, "digest_messages"),
    "import": (b'{"object":"message","conversation":"c","message":%b}', {"line_at"}, "text_of"),
}


@pytest.mark.parametrize("name", LONG_MESSAGES)
async def test_a_long_message_that_is_brought_is_worked_on_beside_the_event_loop(live, name):
    message, status = LONG_MESSAGES[name]
    readers = (schemas.brought, schemas.message_of, export_format.line_at)
    for path, (body, reading, writing) in BROUGHT.items():
        with noted(*readers, importer.digest_messages, text_of) as work:
            answer = await live.memory("POST", f"/users/ada/{path}", content=body % message)
            assert answer.status_code == status, answer.text[:300]
            await settled(live)
        assert work.on_loop == [], path
        assert reading <= work.names_beside, path
        assert status != 200 or writing in work.names_beside, path


async def test_of_millions_of_messages_none_is_read(live):
    body = b'{"messages":[%b]}' % b",".join([b"{}"] * 4_000_000)
    with noted(schemas.brought, schemas.message_of) as work:
        answer = await live.memory("POST", "/users/ada/conversations", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_values")
    assert (work.on_loop, work.names_beside) == ([], {"brought"})


@pytest.mark.parametrize("unit", [b"\\n", b'\\"', b"\\t"])
def test_the_thread_that_reads_a_long_message_works_in_short_steps(monkeypatch, unit):
    """While a thread is at one step nobody else runs: none covers more than a quarter."""
    working, steps = [], Counter()

    def counted(module, name):
        work = getattr(module, name)

        def counting(*given):
            working.append(name)
            try:
                return work(*given)
            finally:
                working.pop()

        monkeypatch.setattr(module, name, counting)

    works = [(schemas, "cut_long_strings"), (schemas, "decode_weighed")]
    for module, name in works:
        counted(module, name)
    body = b'{"messages":[%b]}' % (MESSAGE % (unit * ((8 << 20) // len(unit) - 100)))
    with pausing_with(lambda: steps.update(working[-1:])):
        (message,) = schemas.brought(body, None).messages
        with contextlib.suppress(BadRequest):
            conversations._read_message(message, "messages[0]", 0.0, Screen())
    assert all(steps[name] >= 4 for _, name in works), steps

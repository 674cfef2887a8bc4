"""Bad input and faults: the right status, an error that says what to do, and nothing lost that was
said.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3

import pytest
from sqlalchemy import select

from gateway.chat.turn.opening import STORE_SECONDS
from memory.errors import StoreUnavailable
from memory.session.recorder import WRITE_SECONDS
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import VERSION_SECONDS, Database
from memory.stores.sql.engine.sqlite.sqlite import SqliteThreads
from memory.stores.sql.turns.journal import FilingStep
from tests.conftest import events, running, said
from tests.models import Model, call, calls

REMEMBER = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))
GOOD = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"{", 400, "JSON"),
        (b"[1]", 400, "object"),
        (b'"x"', 400, "object"),
        (b"\xff\xfe", 400, "JSON"),
        (b"", 400, "JSON"),
        (b"{" * 100_000, 400, ""),
        (b'{"model":"m"}', 400, "messages"),
        (b'{"model":"m","messages":[]}', 400, "messages"),
        (b'{"model":"m","messages":"hi"}', 400, "messages"),
        (b'{"model":"m","messages":[1]}', 400, "messages[0]"),
        (b'{"messages":[{"role":"user","content":"x"}]}', 400, "model"),
        (b'{"model":3,"messages":[{"role":"user","content":"x"}]}', 400, "model"),
        (b'{"model":"m","messages":[{"role":"user"}],"tools":{}}', 400, "tools"),
    ],
)
async def test_bad_bodies(data, body, status, word):
    async with Model("ok") as up, running(up.url, data) as live:
        response = await live.http.post(
            f"{live.url}/chat/completions",
            content=body,
            headers={"content-type": "application/json"},
        )
        assert response.status_code == status
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert word in error["message"]
        assert not up.requests


@pytest.mark.parametrize("declared", [True, False])
async def test_an_oversize_body_is_413_without_reading_the_rest(data, declared):
    async def parts():
        for _ in range(300):
            yield b"x" * 10_000

    async with Model("ok") as up, running(up.url, data, {"server.max_body_mib": 1}) as live:
        response = await live.http.post(
            f"{live.url}/chat/completions", content=b"x" * 2_000_000 if declared else parts()
        )
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


async def test_gzip_bodies_are_read_and_counted_unpacked(data):
    import gzip

    async with Model("ok") as up, running(up.url, data, {"server.max_body_mib": 1}) as live:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        response = await live.http.post(
            f"{live.url}/chat/completions",
            content=gzip.compress(json.dumps(GOOD).encode()),
            headers=headers,
        )
        assert response.status_code == 200
        bomb = gzip.compress(b" " * 50_000_000)
        assert (
            await live.http.post(f"{live.url}/chat/completions", content=bomb, headers=headers)
        ).status_code == 413
        assert (
            await live.http.post(
                f"{live.url}/chat/completions", content=b"x", headers={"content-encoding": "br"}
            )
        ).status_code == 415


async def test_wrong_paths_and_methods_are_json(data):
    async with Model("ok") as up, running(up.url, data) as live:
        assert (
            (await live.http.post(f"{live.root}/chat/completions", json=GOOD))
            .json()["error"]["message"]
            .count("/v1")
        )
        for method, path, status in (
            ("GET", "/nope", 404),
            ("GET", "/v1/chat/completions", 405),
            ("PUT", "/health", 405),
        ):
            response = await live.http.request(method, live.root + path)
            assert response.status_code == status, path
            assert isinstance(response.json()["error"]["message"], str)


async def html(seen, wire):
    await wire.answer(502, b"<html><h1>Bad gateway</h1></html>", content_type="text/html")


async def garbage(seen, wire):
    await wire.answer(200, b"<html>hello</html>", content_type="text/html")


async def reset(seen, wire):
    wire.reset()


async def silent(seen, wire):
    await asyncio.sleep(30)


async def redirect(seen, wire):
    await wire.answer(302, b"", "location: http://127.0.0.1:9/")


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (html, 502, "upstream_error"),
        (garbage, 502, "upstream_unreachable"),
        (reset, 502, "upstream_unreachable"),
        (silent, 504, "first_token_timeout"),
        (redirect, 502, "upstream_unreachable"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_upstream_faults_before_the_first_byte(data, fault, status, code, stream, mode):
    # Its one limit is the total time, which leaves none for another try.
    hushed = fault is silent and not stream
    # A limit of 0.3 s is for the upstream that is silent alone: a busy machine is as slow.
    limits = {} if fault is not silent else {"total": 0.5} if hushed else {"first_token": 0.3}
    slow = {"providers": {"openai": {"base_url": "x", "timeouts": limits}}}
    async with Model(fault) as up, running(up.url, data, {**slow, "routing.retries": 1}) as live:
        response = await live.chat("hi", {"x-memory": mode}, stream=stream)
        if mode == "off" and fault is garbage:
            # Off passes on what came.
            assert response.content == b"<html>hello</html>"
            return
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == ("total_timeout" if hushed else code)
        assert (
            len(up.requests) == (2 if fault in (html, reset, silent, garbage) and not hushed else 1)
            or fault is redirect
        )


async def test_an_upstream_that_is_down_is_502(data):
    async with running("http://127.0.0.1:9/v1", data) as live:
        response = await live.chat("hi")
        assert response.status_code == 502
        assert "127.0.0.1" not in response.text


async def wrong_key(seen, wire):
    await wire.answer(401, b'{"error": {"message": "Incorrect API key provided: bad."}}')


async def no_v1(seen, wire):
    await wire.answer(404, b"404 page not found", content_type="text/plain")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [html, reset, wrong_key, no_v1])
async def test_a_failed_turn_names_no_record_that_is_not_there(data, fault, stream):
    """An answer with a record names it; what the upstream refused leaves none, and names none."""
    async with Model("Hello.", fault) as up, running(up.url, data) as live:
        for is_answered in (True, False):
            response = await live.chat("hi", user="ada", stream=stream)
            explain_id = response.headers.get("x-memory-explain")
            assert (response.status_code == 200) is is_answered
            assert (explain_id is not None) is is_answered
            records = await live.gateway.memory.db.read(
                lambda conn: conn.execute(select(t.explains.c.id)).scalars().all()
            )
            assert len(records) == 1


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("cut", "stream_incomplete"),
        ("end", "stream_incomplete"),
        ("stall", "stream_idle_timeout"),
        ("error", "server_overloaded"),
        ("junk", "stream_incomplete"),
    ],
)
async def test_a_stream_that_breaks_delivers_what_came_then_one_error(data, how, code):
    async def behave(seen, wire):
        await wire.start_stream()
        for word in ("Hello ", "wor"):
            await wire.event(
                {
                    "id": "1",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "m",
                    "choices": [{"index": 0, "delta": {"role": "assistant", "content": word}}],
                }
            )
        if how == "cut":
            wire.reset()
        elif how == "stall":
            await asyncio.sleep(30)
        elif how == "error":
            await wire.event(
                {"error": {"message": "busy", "type": "server_error", "code": "server_overloaded"}}
            )
        elif how == "junk":
            await wire.event(b"{not json")
        if how != "cut":
            await wire.end()

    # More than a busy machine takes between two words.
    patient = {"providers": {"openai": {"base_url": "x", "timeouts": {"idle": 1}}}}
    async with (
        Model(behave, "fine") as up,
        running(up.url, data, {**patient, "routing.retries": 0}) as live,
    ):
        response = await live.chat("say hello", stream=True, user="ada")
        found = events(response.text)
        assert (
            said(found) == "Hello wor"
            if how != "cut"
            else said(found) in ("", "Hello ", "Hello wor")
        )
        assert found[-1]["error"]["code"] == code
        assert "[DONE]" not in found
        if how != "cut":
            messages = await live.gateway.memory.db.read(
                lambda c: list(
                    c.exec_driver_sql("SELECT role, content, aborted FROM messages ORDER BY id")
                )
            )
            assert [tuple(m) for m in messages] == [
                ("user", "say hello", 0),
                ("assistant", "Hello wor", 1),
            ]


@pytest.mark.parametrize("phase", ["before headers", "between rounds", "mid-stream"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_client_that_leaves_cancels_the_upstream_within_a_second(data, phase, stream, mode):
    async def slow(seen, wire):
        if phase == "mid-stream":
            await wire.start_stream()
            await wire.event(
                {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]}
            )
        await asyncio.sleep(30)

    script = [REMEMBER, slow] if phase == "between rounds" and mode == "full" else [slow]
    async with Model(*script) as up, running(up.url, data) as live:
        task = asyncio.create_task(live.chat("hi", {"x-memory": mode}, stream=stream))
        async with asyncio.timeout(5):
            while len(up.requests) < len(script):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await up.requests[-1].leaves()
        count = len(up.requests)
        await asyncio.sleep(0.2)
        assert len(up.requests) == count
        assert not live.gateway.memory.in_flight.nodes


class Broken(Exception):
    pass


def breaking(monkeypatch, *, reads=None, writes=None):
    """Lets the n-th read or write of the database fail (1 is the first), and all after it.

    What the journal files by itself, at any time, is not counted.
    """
    counts = {"read": 0, "write": 0}
    for verb, nth in (("read", reads), ("write", writes)):
        original = getattr(Database, verb)

        def failing(verb=verb, nth=nth, original=original):
            async def method(self, *a, **k):
                counts[verb] += not (a and isinstance(a[0], FilingStep))
                if nth is not None and counts[verb] >= nth:
                    raise StoreUnavailable("broken for the test")
                return await original(self, *a, **k)

            return method

        monkeypatch.setattr(Database, verb, failing())
    return counts


@pytest.mark.parametrize("stream", [False, True])
async def test_a_store_that_fails_never_takes_the_app_down(data, monkeypatch, stream):
    async with Model("fine") as up, running(up.url, data) as live:
        breaking(monkeypatch, reads=1)
        response = await live.chat("hi", stream=stream, user="ada")
        assert response.status_code == 200
        assert response.headers["x-memory-status"] == "degraded"
        assert "fine" in response.text
        assert up.bodies[0] == {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "user": "ada",
            "stream": stream,
        }


async def test_a_request_that_needs_its_history_is_refused_without_it(data, monkeypatch):
    async with Model("fine") as up, running(up.url, data) as live:
        breaking(monkeypatch, reads=1)
        assert (
            await live.chat("hi", {"x-memory-conversation": "c"}, user="ada")
        ).status_code == 503
        assert not up.requests


async def test_on_error_fail_refuses(data, monkeypatch):
    async with Model("fine") as up, running(up.url, data, {"memory.on_error": "fail"}) as live:
        breaking(monkeypatch, reads=1)
        assert (await live.chat("hi")).status_code == 503


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_write_that_fails_at_any_point_still_answers(data, monkeypatch, nth, stream):
    # A busy machine is late without any fault.
    monkeypatch.setattr("memory.session.tool_runner.EDIT_SECONDS", 20.0)
    async with Model(REMEMBER, "fine") as up:
        async with running(up.url, data) as live:
            await asyncio.wait_for(live.gateway.memory._ready.wait(), 5)
            # Its writes are not the turn's.
            await live.stop_worker()
            with monkeypatch.context() as patch:
                breaking(patch, writes=nth)
                response = await live.chat("hi", stream=stream, user="ada")
            assert response.status_code == 200
            assert "fine" in response.text
            if nth == 1:
                assert response.headers["x-memory-status"] == "degraded"
            if nth == 2:
                assert "unavailable" in up.bodies[1]["messages"][-1]["content"]
            if nth == 3:
                assert response.headers["x-memory-status"] == "ok"
                assert (data / "spill.ndjson").exists()
        # What was promised is there after the next start.
        if nth == 3:
            async with running(up.url, data) as live:
                await asyncio.wait_for(live.gateway.memory._ready.wait(), 5)
                assert not (data / "spill.ndjson").exists()
                messages = await live.gateway.memory.db.read(
                    lambda c: list(
                        c.exec_driver_sql("SELECT role, content FROM messages ORDER BY id")
                    )
                )
                assert [tuple(m) for m in messages] == [("user", "hi"), ("assistant", "fine")]


async def test_an_answer_that_is_stored_late_leaves_the_end_of_its_conversation(data, monkeypatch):
    """It comes after what was said meanwhile, which would be lost if the line ended in it."""
    named = {"x-memory-conversation": "c"}
    async with Model(REMEMBER, "fine", "good", "well", "yes") as up:
        async with running(up.url, data) as live:
            await asyncio.wait_for(live.gateway.memory._ready.wait(), 5)
            await live.stop_worker()
            with monkeypatch.context() as patch:
                breaking(patch, writes=3)
                await live.chat("one", named, user="ada")
            assert (data / "spill.ndjson").exists()
            for words in ("two", "three"):
                await live.chat(words, named, user="ada")
        async with running(up.url, data) as live:
            await asyncio.wait_for(live.gateway.memory._ready.wait(), 5)
            await live.chat("four", named, user="ada")
        said = [m["content"] for m in up.bodies[-1]["messages"][1:]]
        assert {"one", "fine", "two", "good", "three", "well"} <= {*said}


async def test_a_store_that_is_slow_is_not_waited_for(data, monkeypatch):
    async with Model("fine") as up, running(up.url, data, {"memory.read_deadline_ms": 100}) as live:
        await live.gateway.memory.wait_until_ready()
        original = Database._read_once

        async def slow(self, *works):
            await asyncio.sleep(2)
            return await original(self, *works)

        monkeypatch.setattr(Database, "_read_once", slow)
        # As once it was slow.
        monkeypatch.setattr(SqliteThreads, "at_once", lambda *_, **__: None)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        response = await live.chat("hi")
        assert loop.time() - begun < 1.5
        assert response.headers["x-memory-status"] == "degraded"


async def test_a_memory_call_that_comes_at_once_has_the_patience_of_every_other(data, monkeypatch):
    async with (
        Model("hello", REMEMBER, "fine") as up,
        running(up.url, data, {"memory.read_deadline_ms": 5000}) as live,
    ):
        # What a first write costs is not what is late here.
        await live.chat("hello", user="ada")
        await live.stop_worker()
        original = Database.write

        async def late(self, *a, **k):
            await asyncio.sleep(2 * STORE_SECONDS)
            return await original(self, *a, **k)

        monkeypatch.setattr(Database, "write", late)
        response = await live.chat("hi", user="ada")
        assert response.headers["x-memory-status"] == "ok"
        assert "unavailable" not in up.bodies[-1]["messages"][-1]["content"]
        monkeypatch.undo()
        blocks = await live.gateway.memory.db.read(
            lambda c: [r.value for r in c.exec_driver_sql("SELECT value FROM blocks")]
        )
        assert any("Likes tea" in value for value in blocks)


async def test_a_refused_turn_that_the_store_does_not_take_back_holds_up_no_repetition(
    data, monkeypatch
):
    async def refuses(seen, wire):
        await asyncio.sleep(STORE_SECONDS)
        await wire.json({"error": {"message": "no such key"}}, 401)

    async with Model("hello", refuses, "fine") as up, running(up.url, data) as live:
        await live.chat("hello", user="ada")
        # Its writes are not the turn's.
        await live.stop_worker()
        with monkeypatch.context() as patch:
            breaking(patch, writes=2)
            assert (
                await live.chat("hi", {"idempotency-key": "k"}, user="ada", stream=True)
            ).status_code == 401
        async with asyncio.timeout(5):
            assert (
                await live.chat("hi", {"idempotency-key": "k"}, user="ada", stream=True)
            ).status_code == 200


@pytest.mark.parametrize("status", [401, 500])
async def test_an_error_of_the_upstreams_does_not_wait_for_a_store_that_is_stuck(data, status):
    began, go = asyncio.Event(), asyncio.Event()

    async def fails(seen, wire):
        began.set()
        await go.wait()
        await wire.json({"error": {"message": "no"}}, status)

    async with Model("hello", fails) as up, running(up.url, data, {"routing.retries": 0}) as live:
        await live.chat("hello", user="ada")
        asked = asyncio.create_task(live.chat("hi", user="ada", stream=True))
        await began.wait()
        memory, loop = live.gateway.memory, asyncio.get_running_loop()
        while (
            len(await memory.db.read(lambda c: list(c.exec_driver_sql("SELECT id FROM nodes")))) < 2
        ):
            await asyncio.sleep(0.01)
        other = sqlite3.connect(data / "mnemogate.db", isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            begun = loop.time()
            go.set()
            assert (await asked).status_code == status
            assert loop.time() - begun < WRITE_SECONDS + 1
        finally:
            other.close()
        assert not memory.in_flight.nodes


async def test_what_was_edited_as_its_client_left_is_told_in_every_conversation(data, monkeypatch):
    async with Model("fine") as up, running(up.url, data) as live:
        # Its writes are not the turn's.
        await live.stop_worker()
        await live.chat("hello", user="ada")
        await asyncio.sleep(2 * VERSION_SECONDS)
        await live.chat("hi", user="ada")
        original = Database.write

        async def left(self, work, **how):
            done = await original(self, work, **how)
            if "run." in getattr(work, "__qualname__", ""):
                raise asyncio.CancelledError
            return done

        up.script = [REMEMBER, "fine"]
        with monkeypatch.context() as patch:
            patch.setattr(Database, "write", left)
            await live.chat("I like tea", user="ada")
        await live.chat(
            [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "fine"},
                {"role": "user", "content": "so?"},
            ],
            user="ada",
        )
        assert "Likes tea" in up.bodies[-1]["messages"][-1]["content"]


async def test_draining_says_so_and_refuses_new_work(data):
    async with Model("ok") as up, running(up.url, data) as live:
        live.gateway.process.draining = True
        assert (await live.http.get(f"{live.root}/ready")).status_code == 503
        assert (await live.http.get(f"{live.root}/health")).status_code == 200
        response = await live.chat("hi")
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")

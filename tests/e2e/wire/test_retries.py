"""G.

Retries and fallbacks: before the first byte alone, never more than configured, and never for the
client's own fault.
"""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate

import pytest

from tests.conftest import events, running, said
from tests.e2e.wire.rows import row
from tests.e2e.wire.ways import ask, each_mode, each_way, provider
from tests.sockets import RawServer, within

MESSAGE = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
    ],
}
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
ERROR = {"error": {"message": "no", "type": "t", "param": None, "code": "c"}}


def piece(content=None, finish=None):
    return {
        **CHUNK,
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": content},
                "finish_reason": finish,
            }
        ],
    }


async def fine(seen, wire):
    if "responses" in seen.path:
        if seen.json.get("stream"):
            await wire.start_stream()
            await wire.event({"type": "response.completed", "text": "fine"})
            await wire.end()
        else:
            await wire.json({"text": "fine"})
    elif seen.json.get("stream"):
        await wire.start_stream()
        await wire.event(piece("fine", "stop"))
        await wire.event(b"[DONE]")
        await wire.end()
    else:
        await wire.json(MESSAGE)


def says(status, *lines):
    async def behave(seen, wire):
        await wire.json(ERROR, status, *lines)

    return behave


async def reset(seen, wire):
    wire.reset()


async def silent(seen, wire):
    await asyncio.sleep(30)


async def error_first(seen, wire):
    if not seen.json.get("stream"):
        await wire.json({"error": {"message": "busy", "code": 503}})
        return
    await wire.start_stream()
    await wire.part(b": a comment\n\n")
    await wire.event({"error": {"message": "busy", "code": 503}})
    await wire.end()


class Played(RawServer):
    """Behaves by its script, the last entry for ever. at: when each request came."""

    def __init__(self, *script):
        super().__init__(self._next)
        self.script, self.at = list(script), []

    async def _next(self, seen, wire):
        self.at.append(time.monotonic())
        await (self.script.pop(0) if len(self.script) > 1 else self.script[0])(seen, wire)


def two(first, second, patience=20, **more):
    """Configuration of a model with two targets at two providers, the first tried first.

    patience: seconds, with the first.
    """
    both = {
        "openai": {"base_url": first.url, "timeouts": {"first_token": patience}},
        "other": {"base_url": second.url},
    }
    return {
        "providers": both,
        "models": {
            "m": {"targets": [{"provider": "openai"}], "fallbacks": ["second"]},
            "second": {"targets": [{"provider": "other", "model": "m"}]},
        },
        **more,
    }


@row(98, 108, 109)
@each_way
@each_mode
@pytest.mark.parametrize(
    "fault", [says(500), says(408), says(429), says(529), reset, silent, error_first]
)
async def test_what_may_be_anothers_luck_goes_to_the_next_target_unseen(data, way, stream, fault):
    if way == "relay" and fault is error_first and not stream:
        # What a 200 of another API means is not ours to say.
        fault = says(503)
    if way == "off" and fault is error_first and not stream:
        fault = says(503)
    if fault is silent and not stream:
        # whose silence is limited by the total time alone, after which nothing is left for another
        fault = reset
    config = {"patience": 0.4} if fault is silent else {}
    async with (
        Played(fault) as first,
        Played(fine) as second,
        running(first.url, data, two(first, second, **config)) as live,
    ):
        response = await ask(live, way, stream)
        assert response.status_code == 200
        assert "fine" in response.text
        assert "busy" not in response.text
        assert (len(first.requests), len(second.requests)) == (1, 1)
        assert (
            response.headers["x-mnemogate-upstream"],
            response.headers["x-mnemogate-attempts"],
        ) == ("other/m", "2")


@row(100)
@each_way
@each_mode
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_the_clients_own_fault_goes_nowhere_else(data, way, stream, status):
    async with (
        Played(says(status)) as first,
        Played(fine) as second,
        running(first.url, data, two(first, second)) as live,
    ):
        response = await ask(live, way, stream)
        assert (response.status_code, response.json()) == (status, ERROR)
        assert not second.requests
        # With memory on, a first round that carried additions is tried once more as the client
        # wrote it.
        bare = way == "full" and status in (400, 404, 422)
        assert len(first.requests) == (2 if bare else 1)
        if bare:
            assert first.requests[1].json == {
                "model": "m",
                "messages": [{"role": "user", "content": "hi"}],
                "stream": stream,
            }


@row(98)
@pytest.mark.parametrize("way", ["full", "off"])
async def test_after_the_first_event_no_other_target_is_tried(data, way):
    async def breaks(seen, wire):
        await wire.start_stream()
        await wire.event(piece("Hel"))
        await asyncio.sleep(0.1)
        wire.reset()

    async with (
        Played(breaks) as first,
        Played(fine) as second,
        running(first.url, data, two(first, second)) as live,
    ):
        found = events((await ask(live, way, True)).text)
        assert said(found) == "Hel"
        assert found[-1]["error"]["code"] == "stream_incomplete"
        assert not second.requests


@row(99)
async def test_an_error_as_the_first_event_is_a_failure_with_a_status(data):
    async with Played(error_first) as up, running(up.url, data, {"routing.retries": 0}) as live:
        response = await ask(live, "full", True)
        assert (response.status_code, response.json()) == (
            503,
            {"error": {"message": "busy", "code": 503}},
        )
        # Byte for byte, as it came.
        passed = await ask(live, "off", True)
        assert (passed.status_code, passed.text) == (
            200,
            ': a comment\n\ndata: {"error": {"message": "busy", "code": 503}}\n\n',
        )


@row(102, 108)
@each_way
@each_mode
@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("fault", [says(503, "retry-after-ms: 5"), reset])
async def test_attempts_never_exceed_the_configured_total(data, way, stream, retries, fault):
    async with Played(fault) as up, running(up.url, data, {"routing.retries": retries}) as live:
        response = await ask(live, way, stream)
        assert response.status_code in (502, 503)
        assert len(up.requests) == retries + 1
        assert response.headers["x-mnemogate-attempts"] == str(retries + 1)


@row(102)
async def test_a_connection_that_died_in_the_pool_is_replaced_once_and_no_more(data):
    async def lists(seen, wire):
        await wire.json({"data": []})

    async def dies(seen, wire):
        wire.reset()

    async with RawServer(lists) as up, running(up.url, data, {"routing.retries": 0}) as live:
        await live.http.get(f"{live.url}/files")
        up.behave = dies
        assert (await live.http.get(f"{live.url}/files")).status_code == 502
        assert len(up.requests) == 3


@row(103)
@each_way
@each_mode
async def test_attempts_and_waits_end_by_the_total_deadline(data, way, stream):
    config = {**provider(timeouts={"first_token": 0.5, "total": 2.4}), "routing.retries": 50}
    async with Played(silent) as up, running(up.url, data, config) as live:
        asked = asyncio.ensure_future(ask(live, way, stream))
        assert await within(4.2, asked.done)
        response = await asked
        assert response.status_code == 504
        assert (2 if stream else 1) <= len(up.requests) <= (5 if stream else 1)


@row(103)
@each_way
@each_mode
async def test_a_wait_that_the_deadline_does_not_hold_is_the_clients(data, way, stream):
    async with (
        Played(says(429, "retry-after: 3600")) as up,
        running(up.url, data, {"routing.retries": 5}) as live,
    ):
        asked = asyncio.ensure_future(ask(live, way, stream))
        assert await within(2, asked.done)
        response = await asked
        assert (response.status_code, response.headers["retry-after"], len(up.requests)) == (
            429,
            "3600",
            1,
        )


@row(104, 108)
@each_way
@each_mode
@pytest.mark.parametrize("form", ["seconds", "ms", "date"])
async def test_the_wait_that_the_upstream_asks_for_is_kept_in_each_form(data, way, stream, form):
    def line():
        return {
            "seconds": "retry-after: 1",
            "ms": "retry-after-ms: 900",
            "date": f"retry-after: {formatdate(time.time() + 2, usegmt=True)}",
        }[form]

    async def busy(seen, wire):
        await wire.json(ERROR, 429, line())

    async with Played(busy, fine) as up, running(up.url, data, {"routing.retries": 1}) as live:
        assert "fine" in (await ask(live, way, stream)).text
        assert 0.8 <= up.at[1] - up.at[0] < 3.5


@row(104)
async def test_without_a_hint_the_wait_is_short_and_never_the_same(data):
    async with Played(says(500)) as up, running(up.url, data, {"routing.retries": 3}) as live:
        for _ in range(3):
            await ask(live, "off")
        waits = [b - a for a, b in zip(up.at, up.at[1:], strict=False)]
        assert max(waits) < 3
        assert len({round(w, 2) for w in waits}) > 3


@row(111)
async def test_a_name_is_served_by_its_own_entry_then_the_longest_prefix_then_the_star(data):
    async with Played(fine) as up:
        names = {"exact": "a", "gpt-*": "b", "gpt-4o*": "c", "gpt-4o": "d", "*": None}
        models = {
            k: {"targets": [{"provider": "openai", **({"model": v} if v else {})}]}
            for k, v in names.items()
        }
        async with running(up.url, data, {"models": models}) as live:
            for asked, served in (
                ("exact", "a"),
                ("gpt-4o", "d"),
                ("gpt-4o-mini", "c"),
                ("gpt-3", "b"),
                ("org/other:free", "org/other:free"),
            ):
                for way in ("full", "off", "relay"):
                    response = await ask(live, way, model=asked)
                    assert json.loads(up.requests[-1].body)["model"] == served
                    assert response.headers["x-mnemogate-upstream"] == f"openai/{served}"
            listed = [m["id"] for m in (await live.http.get(f"{live.url}/models")).json()["data"]]
            assert listed == ["exact", "gpt-4o"]

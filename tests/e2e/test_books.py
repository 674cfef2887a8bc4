"""One record for each request: what it used, at whose price, how long it took and how it ended, by
every way through the gateway.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time

import httpx
import pytest

from gateway.limits.limiter import KeyQuota
from tests.conftest import running
from tests.e2e.test_limits import PRICED, completion, keyed
from tests.e2e.wire.rows import row
from tests.e2e.wire.test_retries import Played, says
from tests.e2e.wire.test_targets import first_of
from tests.e2e.wire.ways import GATEWAY_KEY, ask, each_mode, each_way
from tests.models import Model, call, calls
from tests.sockets import RawServer

TEA = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))


async def records(live, **query):
    """The newest first. What is written after the answer is waited for."""
    await asyncio.sleep(0.05)
    answer = await live.memory("GET", "/usage", params={"group_by": "request", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


@each_way
@each_mode
async def test_a_request_leaves_one_record(data, way, stream):
    usage = (
        {"input_tokens": 100, "output_tokens": 10}
        if way == "relay"
        else {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 60},
        }
    )

    async def answers(seen, wire):
        if not stream:
            await wire.json(completion(usage))
            return
        await wire.start_stream()
        if way == "relay":
            await wire.event({"type": "response.output_text.delta", "delta": "fine"})
            await wire.event(
                {"type": "response.completed", "response": {"id": "r", "usage": usage}}
            )
        else:
            await wire.event(
                {
                    "id": "1",
                    "choices": [
                        {"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"}
                    ],
                    "usage": None,
                }
            )
            await wire.event({"id": "1", "choices": [], "usage": usage})
            await wire.event(b"[DONE]")
        await wire.end()

    async with (
        RawServer(answers) as up,
        running(
            up.url,
            data,
            keyed({"*": {**PRICED, "price": {"input": 10, "cached_input": 1, "output": 50}}}),
            key=GATEWAY_KEY,
        ) as live,
    ):
        answer = await ask(live, way, stream, {"x-memory-user": "ada"})
        found = await records(live)
        assert len(found) == 1
        told = found[0]
        assert told["request_id"] == answer.headers["x-mnemogate-request-id"]
        assert (
            told["tenant"],
            told["key"],
            told["model"],
            told["target"],
            told["attempts"],
            told["status"],
        ) == ("acme", "app", "m", "openai/m", 1, 200)
        assert told["user"] == ("ada" if way == "full" else None)
        cached = 0 if way == "relay" else 60
        assert (
            told["input_tokens"],
            told["cached_input_tokens"],
            told["output_tokens"],
            told["estimated"],
        ) == (100, cached, 10, False)
        assert told["cost_usd"] == pytest.approx(((100 - cached) * 10 + cached + 10 * 50) / 1e6)
        assert 0 < told["first_token_ms"] <= told["latency_ms"] < 5000


@each_mode
async def test_hidden_rounds_are_told_apart(data, stream):
    async with (
        Model(TEA, "Noted.") as up,
        running(up.url, data, keyed({"*": PRICED}), key=GATEWAY_KEY) as live,
    ):
        await live.chat("I like tea", {"x-memory-user": "ada"}, stream=stream)
        told = (await records(live))[0]
        assert (told["rounds"], told["input_tokens"], told["output_tokens"]) == (2, 200, 20)
        assert (told["hidden_input_tokens"], told["hidden_output_tokens"]) == (100, 10)


async def test_a_summary_is_billed_to_the_request_it_was_made_for_at_its_own_models_price(data):
    config = {
        **keyed(
            {
                "small": {"targets": [{"provider": "openai"}], "price": {"input": 1, "output": 1}},
                "m": {**PRICED, "context_window": 3000},
            }
        ),
        "memory.summarizer": "small",
        "memory.tools": "never",
    }
    long = [
        {"role": r, "content": f"{i} " + "word " * 180}
        for i in range(8)
        for r in ("user", "assistant")
    ]
    async with Model("fine") as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        assert (
            await live.chat(
                [*long, {"role": "user", "content": "on"}], {"x-memory-user": "ada"}, max_tokens=50
            )
        ).status_code == 200
        asked = [b["model"] for b in up.bodies]
        assert asked == ["small", "m"]
        told = (await records(live))[0]
        assert (told["model"], told["input_tokens"], told["hidden_input_tokens"]) == ("m", 200, 100)
        assert told["cost_usd"] == pytest.approx((100 * 1000 + 10 * 10_000 + 110) / 1e6)


@row(109)
@each_way
async def test_usage_goes_to_the_target_that_served(data, way):
    async def second(seen, wire):
        await wire.json(completion({"prompt_tokens": 7, "completion_tokens": 3}))

    async with Played(says(500)) as one, Played(second) as two:
        config = first_of(one, two)
        config["models"]["m"]["price"] = {"input": 1e6, "output": 1e6}
        config["models"]["n"]["price"] = {"input": 1000, "output": 1000}
        async with running(one.url, data, {**keyed(), **config}, key=GATEWAY_KEY) as live:
            await ask(live, way)
            told = (await records(live))[0]
            assert (told["target"], told["attempts"], told["cost_usd"]) == (
                "two/m",
                2,
                pytest.approx(0.01),
            )


@row(109)
@each_way
async def test_where_every_target_failed_the_last_is_named(data, way):
    async with (
        Played(says(500)) as one,
        Played(says(503)) as two,
        running(one.url, data, {**keyed(), **first_of(one, two)}, key=GATEWAY_KEY) as live,
    ):
        answer = await ask(live, way)
        told = (await records(live))[0]
        assert (answer.status_code, answer.headers["x-mnemogate-upstream"]) == (503, "two/m")
        assert (told["target"], told["attempts"], told["status"]) == ("two/m", 2, 503)


async def test_an_unknown_price_is_told_as_unknown(data):
    async with Model("fine") as up, running(up.url, data, keyed(), key=GATEWAY_KEY) as live:
        await live.chat("hi")
        assert (await records(live))[0]["cost_usd"] is None
        group = (await live.memory("GET", "/usage?group_by=model")).json()["data"][0]
        assert (group["requests"], group["cost_usd"], group["unpriced_requests"]) == (1, None, 1)


@pytest.mark.parametrize(("status", "code"), [(400, "c"), (500, "c"), (401, "upstream_auth_error")])
async def test_a_failure_is_recorded_with_its_code(data, status, code):
    config = {**keyed(), "routing.retries": 0}
    async with Played(says(status)) as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        await ask(live, "off")
        told = (await records(live))[0]
        assert (told["status"], told["code"], told["input_tokens"], told["cost_usd"]) == (
            502 if status == 401 else status,
            code,
            0,
            0,
        )


async def test_a_refusal_by_a_limit_is_recorded_and_costs_nothing(data):
    async with (
        Model("fine") as up,
        running(up.url, data, keyed(limits={"rpm": 1}), key=GATEWAY_KEY) as live,
    ):
        await ask(live, "off")
        await ask(live, "off")
        told = (await records(live))[0]
        assert (told["status"], told["code"], told["attempts"], told["input_tokens"]) == (
            429,
            "rate_limit_exceeded",
            0,
            0,
        )


@pytest.mark.parametrize("way", ["full", "off"])
async def test_what_a_caller_who_left_had_is_guessed_and_said_to_be(data, way):
    async def hangs(seen, wire):
        await wire.start_stream()
        for _ in range(5):
            await wire.event({"id": "1", "choices": [{"index": 0, "delta": {"content": "x"}}]})
        await seen.gone.wait()

    async with (
        RawServer(hangs) as up,
        running(up.url, data, keyed({"*": PRICED}), key=GATEWAY_KEY) as live,
    ):
        body = {"model": "m", "messages": [{"role": "user", "content": "hi" * 200}], "stream": True}
        async with live.http.stream(
            "POST", f"{live.url}/chat/completions", json=body, headers={"x-memory": way}
        ) as response:
            async for _ in response.aiter_bytes():
                break
        async with asyncio.timeout(5):
            while not (found := await records(live)):
                pass
        told = found[0]
        assert (told["status"], told["code"], told["estimated"], told["output_tokens"]) == (
            499,
            "client_left",
            True,
            5,
        )
        assert 90 < told["input_tokens"] < 200
        assert told["cost_usd"] > 0


async def test_a_whole_answer_without_a_count_is_guessed_by_its_size(data):
    async def answers(seen, wire):
        await wire.json(
            {
                **completion(None),
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "word " * 400},
                        "finish_reason": "stop",
                    }
                ],
            }
        )

    async with (
        RawServer(answers) as up,
        running(up.url, data, keyed({"*": PRICED}), key=GATEWAY_KEY) as live,
    ):
        await live.chat("hi")
        told = (await records(live))[0]
        assert (told["estimated"], 400 < told["output_tokens"] < 700) == (True, True)


async def test_what_is_no_matter_of_tokens_is_not_guessed(data):
    async def audio(seen, wire):
        await wire.answer(200, b"\xff" * 100, content_type="audio/mpeg")

    config = keyed(paths=["/v1/files"])
    async with RawServer(audio) as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        await live.http.post(
            f"{live.url}/audio/speech", json={"model": "tts", "input": "hello " * 500}
        )
        await live.http.get(f"{live.url}/files")
        files, speech = await records(live)
        assert (
            speech["path"],
            speech["input_tokens"],
            speech["estimated"],
            speech["cost_usd"],
        ) == ("/audio/speech", 0, False, None)
        # A price nobody knows is no zero.
        assert (files["path"], files["model"], files["cost_usd"]) == (
            "/files",
            "",
            None,
        )


@row(152)
async def test_a_streamed_message_is_metered_with_what_was_cached(data):
    async def message(seen, wire):
        await wire.start_stream()
        for event in (
            {
                "type": "message_start",
                "message": {
                    "id": "m",
                    "usage": {
                        "input_tokens": 5,
                        "cache_read_input_tokens": 70,
                        "cache_creation_input_tokens": 20,
                        "output_tokens": 1,
                    },
                },
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "hi"},
            },
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 42},
            },
            {"type": "message_stop"},
        ):
            await wire.part(
                b"event: "
                + event["type"].encode()
                + b"\ndata: "
                + json.dumps(event).encode()
                + b"\n\n"
            )
        await wire.end()

    async with RawServer(message) as up, running(up.url, data, keyed(), key=GATEWAY_KEY) as live:
        await live.http.post(
            f"{live.url}/messages",
            json={"model": "claude-x", "stream": True, "messages": []},
            headers={"x-memory": "off"},
        )
        told = (await records(live))[0]
        assert (
            told["input_tokens"],
            told["cached_input_tokens"],
            told["cache_write_tokens"],
            told["output_tokens"],
        ) == (95, 70, 20, 42)


async def test_nothing_is_kept_of_a_request_whose_own_credentials_were_refused(data):
    async with (
        Played(says(401)) as up,
        running(up.url, data, {"server.single_user": False, "routing.retries": 0}) as live,
    ):
        for way in ("full", "off", "relay"):
            await ask(live, way)
        await live.gateway.usage.flush()
        assert (
            await live.gateway.memory.db.read(
                lambda conn: conn.exec_driver_sql("SELECT count(*) FROM usage").scalar()
            )
            == 0
        )


@row(160)
async def test_a_store_that_stalls_slows_no_answer_and_the_records_come_when_it_is_back(data):
    async with Model("fine") as up, running(up.url, data, keyed(), key=GATEWAY_KEY) as live:
        await ask(live, "off")
        await records(live)
        holder = sqlite3.connect(data / "mnemogate.db", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        for stream in (False, True) * 10:
            assert (await ask(live, "off", stream)).status_code == 200
        # To wait for the store once would take 1 s and more.
        assert time.monotonic() - begun < 20
        holder.execute("ROLLBACK")
        holder.close()
        assert len(await records(live)) == 21
        assert live.gateway.usage.dropped_records == 0


async def test_what_is_known_of_a_cost_counts_on_a_budget_though_a_summarys_price_is_not(data):
    models = {
        "small": {"targets": [{"provider": "openai", "model": "unheard-of"}]},
        "m": {**PRICED, "context_window": 3000},
    }
    config = {
        **keyed(models, budget={"usd": 50}),
        "memory.summarizer": "small",
        "memory.tools": "never",
    }
    long = [
        {"role": r, "content": f"{i} " + "word " * 180}
        for i in range(8)
        for r in ("user", "assistant")
    ]
    async with Model("fine") as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        assert (
            await live.chat(
                [*long, {"role": "user", "content": "on"}], {"x-memory-user": "ada"}, max_tokens=50
            )
        ).status_code == 200
        assert [b["model"] for b in up.bodies] == ["unheard-of", "m"]
        assert (await records(live))[0]["cost_usd"] is None
        assert await live.gateway.limits.spent_this_period(
            KeyQuota("app", usd=50)
        ) == pytest.approx(0.2)


@pytest.mark.parametrize("path", ["//responses", "/responses/", "/%72esponses"])
async def test_however_a_path_is_spelt_its_tokens_count(data, path):
    async def answers(seen, wire):
        await wire.start_stream()
        await wire.event(
            {
                "type": "response.completed",
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            }
        )
        await wire.end()

    async with (
        RawServer(answers) as up,
        running(up.url, data, keyed({"*": PRICED}), key=GATEWAY_KEY) as live,
    ):
        await live.http.post(
            httpx.URL(f"{live.root}/v1{path}"),
            json={"model": "m", "input": "x" * 4000, "stream": True},
        )
        told = (await records(live))[0]
        assert (told["input_tokens"] > 1000, told["cost_usd"] > 1, told["estimated"]) == (
            True,
            True,
            True,
        )

"""Corners that one row alone does not reach: breaks that come with data, packed answers, refusals
of the outermost layer.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time

import httpx
import pytest

from gateway.wire.sse import SseFramer
from tests.conftest import events, running, said
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls

pytestmark = pytest.mark.asyncio(loop_scope="session")
MODES = pytest.mark.parametrize("mode", ["full", "off", "read", "write"])
WHOLE = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
}
MANAGED = {
    "models": {
        "m": {"targets": [{"provider": "a"}]},
        "n": {"targets": [{"provider": "a", "model": "real"}]},
    },
    "keys": [{"name": "app", "key": "sk-app", "tenant": "acme", "default_user": "bob"}],
}


def chunk(delta, finish=None):
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def framed(*bodies):
    return b"".join(
        b"data: " + (b if isinstance(b, bytes) else json.dumps(b).encode()) + b"\n\n"
        for b in bodies
    )


def managed(url):
    return {
        **MANAGED,
        "upstream": None,
        "providers": {"a": {"base_url": url, "api_key": "sk-theirs-9f"}},
    }


@row(40)
@MODES
async def test_what_came_right_before_the_break_is_delivered(data, mode):
    texts = [f"{i:03d}" + "x" * 10000 for i in range(60)]

    async def broken(seen, wire):
        await wire.start_stream()
        sent = [
            chunk({"role": "assistant", "content": texts[0]}),
            *(chunk({"content": t}) for t in texts[1:]),
        ]
        body = framed(*sent)
        wire.writer.write(b"%x\r\n%s\r\n" % (len(body), body))
        wire.writer.close()

    async with Model(broken) as model, running(model.url, data) as live:
        for _ in range(3):
            _, found = await live.stream("hi", {"x-memory": mode})
            assert found[-1]["error"]["code"] == "stream_incomplete"
            assert said(found) == "".join(texts)


@row(28, 31)
@MODES
@pytest.mark.parametrize("stream", [True, False])
async def test_a_packed_answer_of_several_members_is_unpacked_whole(data, mode, stream):
    async def packed(seen, wire):
        if not stream:
            raw = json.dumps(WHOLE).encode()
            await wire.answer(
                200, gzip.compress(raw[:40]) + gzip.compress(raw[40:]), "content-encoding: gzip"
            )
            return
        await wire.start_stream("content-encoding: gzip")
        for body in (
            chunk({"role": "assistant", "content": "h"}),
            chunk({"content": "i"}),
            chunk({}, "stop"),
            b"[DONE]",
        ):
            await wire.part(gzip.compress(framed(body)))
        await wire.end()

    async with Model(packed) as model, running(model.url, data) as live:
        response = await live.chat("hi", {"x-memory": mode}, stream=stream)
        assert "content-encoding" not in response.headers
        if stream:
            assert said(events(response.text)) == "hi"
            assert events(response.text)[-1] == "[DONE]"
        else:
            assert response.json()["choices"][0]["message"]["content"] == "hi"


@row(28)
@MODES
async def test_a_packed_answer_that_was_cut_does_not_look_whole(data, mode):
    raw = gzip.compress(json.dumps(WHOLE).encode())[:-20]
    async with (
        Model(lambda seen, wire: wire.answer(200, raw, "content-encoding: gzip")) as model,
        running(model.url, data, {"routing.retries": 0}) as live,
    ):
        try:
            response = await live.chat("hi", {"x-memory": mode})
        except httpx.RemoteProtocolError:  # an answer that had begun ends with its connection
            return
        assert response.status_code == 502


@row(86)
@pytest.mark.parametrize("name", ["m", "n"])
@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/embeddings"])
async def test_a_key_in_an_error_under_200_is_scrubbed(data, path, name):
    async def quoting(seen, wire):
        await wire.json({"error": {"message": f"bad {seen.header('authorization')}", "code": "x"}})

    async with Model(quoting) as model, running("", data, managed(model.url), key="sk-app") as live:
        sent = {"model": name, "messages": [{"role": "user", "content": "hi"}], "input": "x"}
        response = await live.http.post(f"{live.url}{path}", json=sent, headers={"x-memory": "off"})
        assert response.json()["error"]["message"] == "bad Bearer [key]"


async def test_a_word_in_the_place_of_a_key_is_no_secret_to_be_taken_out_of_errors(data):
    """Servers of one's own take any key; people set "x", "e", "none"."""
    error = {"error": {"message": "none of these exist", "code": "x"}}
    async with Model(lambda seen, wire: wire.json(error, 400)) as model:
        config = managed(model.url)
        config["providers"] = {
            name: {**provider, "api_key": "e"} for name, provider in config["providers"].items()
        }
        async with running("", data, config, key="sk-app") as live:
            assert (await live.chat("hi")).json() == error


@row(18, 93)
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/embeddings", "/memory/v1/users/bob/blocks/human"]
)
async def test_a_refusal_for_size_names_the_request(data, path):
    async with (
        Model("hi") as model,
        running(
            "", data, {**managed(model.url), "server.max_body_mib": 0.01}, key="sk-app"
        ) as live,
    ):
        response = await live.http.request(
            "PUT" if "memory" in path else "POST", live.root + path, content=b"x" * 20000
        )
        assert response.status_code == 413
        assert response.headers["x-mnemogate-request-id"].startswith("req_")


@row(79)
async def test_a_page_can_read_the_refusals_of_the_outermost_layer(data):
    origin = {"origin": "https://app.test"}
    async with (
        Model("hi") as model,
        running(
            "",
            data,
            {**managed(model.url), "server.cors_origins": ["https://app.test"]},
            key="sk-app",
        ) as live,
    ):
        refused = await live.http.get(f"{live.url}/%ff", headers=origin)
        live.gateway.process.draining = True
        drained = await live.http.get(f"{live.url}/models", headers=origin)
        live.gateway.process.draining = False
        assert (refused.status_code, drained.status_code) == (400, 503)
        for response in (refused, drained):
            assert response.headers["access-control-allow-origin"] == "https://app.test"


@row(16)
async def test_a_byte_that_is_no_text_is_told_by_its_place(data):
    body = b'{"model": "m", "messages": [{"role": "user", "content": "ab\xff"}]}'
    async with Model("hi") as model, running(model.url, data) as live:
        response = await live.http.post(f"{live.url}/chat/completions", content=body)
        assert response.status_code == 400
        assert f"at byte {body.index(0xFF)}:" in response.json()["error"]["message"]


@row(35, 37)
async def test_an_event_of_20_mb_in_small_pieces_costs_its_length():
    raw = b"data: " + b"x" * (20 << 20) + b"\n\n"
    framer, found, began = SseFramer(), [], time.process_time()
    for at in range(0, len(raw), 4096):
        found += framer.feed(raw[at : at + 4096])
    assert [e.event_bytes for e in found] == [raw]
    assert time.process_time() - began < 2


@row(26, 151)
async def test_a_response_that_was_cut_fails_under_the_name_that_was_asked_for(data):
    async def cut(seen, wire):
        await wire.start_stream()
        await wire.part(
            b"event: response.created\n"
            + framed(
                {
                    "type": "response.created",
                    "sequence_number": 0,
                    "response": {"id": "r", "model": "real"},
                }
            )
        )
        wire.reset()

    async with Model(cut) as model, running("", data, managed(model.url), key="sk-app") as live:
        response = await live.http.post(
            f"{live.url}/responses", json={"model": "n", "input": "x", "stream": True}
        )
        assert "real" not in response.text
        failed = json.loads(response.text.split("event: response.failed\ndata: ")[1])
        assert (failed["response"]["model"], failed["response"]["status"]) == ("n", "failed")


@row(92, 104)
@pytest.mark.parametrize("stream", [True, False])
async def test_every_round_has_an_idempotency_key_of_its_own(data, stream):
    """An upstream that honours the key would refuse the second body under it, or give the first
    answer for ever.
    """
    said = calls(call("core_memory_append", {"label": "human", "content": "likes tea"}))
    async with (
        Model(said, "Noted.") as model,
        running(model.url, data, {"routing.retries": 0}) as live,
    ):
        await live.chat("I like tea", {"idempotency-key": "k1"}, stream=stream)
        first, second = (r.header("idempotency-key") for r in model.requests)
        assert first == "k1"
        assert second.startswith("k1-")
        model.script = [
            said,
            (429, {"error": {"message": "slow"}}),
            (429, {"error": {"message": "slow"}}),
            "Noted.",
        ]
        # A retry resumes at the second round, with the key of that round.
        for _ in range(3):
            await live.chat("I like milk", {"idempotency-key": "k2"}, stream=stream)
        sent = [r.header("idempotency-key") for r in model.requests[2:]]
        assert sent[0] == "k2"
        assert len(set(sent)) == 2


@row(77, 104)
@pytest.mark.parametrize(
    "after",
    ["21 Oct 99999999999 07:28:00 GMT", "1 Jan 2020 00:00:00 +99999999999999", "soon", "-1"],
)
async def test_a_retry_after_that_is_no_time_costs_nothing(data, after):
    async with (
        Model((429, {"error": {"message": "slow"}}, f"retry-after: {after}")) as model,
        running(model.url, data) as live,
    ):
        for mode in ("full", "off"):
            response = await live.chat("hi", {"x-memory": mode})
            assert (response.status_code, response.headers["retry-after"]) == (429, after)


@row(18)
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/embeddings", "/memory/v1/users/bob/blocks/human"]
)
async def test_a_client_that_goes_on_sending_reads_the_refusal_for_size(data, path):
    async with (
        Model("hi") as model,
        running(
            "", data, {**managed(model.url), "server.max_body_mib": 0.01}, key="sk-app"
        ) as live,
    ):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(live.root.rpartition(":")[2])
        )
        method = "PUT" if "memory" in path else "POST"
        writer.write(
            f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-app\r\n"
            "content-length: 900000\r\n\r\n".encode()
        )
        for _ in range(90):
            writer.write(b"x" * 10000)
            await asyncio.sleep(0.001)
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"request_too_large"' in answer


@row(79)
async def test_a_switch_of_protocols_that_nobody_asked_for_is_a_bad_answer(data):
    async def switching(seen, wire):
        await wire.raw(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
        )

    async with Model(switching) as model, running(model.url, data, {"routing.retries": 0}) as live:
        assert (await live.http.get(f"{live.url}/files/x")).status_code == 502
        for mode in ("full", "off"):
            assert (await live.chat("hi", {"x-memory": mode})).status_code == 502

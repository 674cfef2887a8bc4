"""What an upstream does wrong: always an answer for the client, always a line for the operator, and
a bill that is true.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from email.utils import formatdate

import pytest

from gateway.cli.serve import startup_lines
from gateway.cli.upstream_check import check_upstream
from gateway.config.loader import load
from gateway.config.settings import ConfigError
from tests.conftest import events, running, said
from tests.e2e.test_books import records
from tests.e2e.wire.rows import row
from tests.e2e.wire.test_retries import MESSAGE, Played, fine, piece, says
from tests.e2e.wire.ways import GATEWAY_KEY, ask, each_mode, each_way, managed, provider
from tests.proxies import Proxy
from tests.sockets import RawServer

PRICED = {
    "models": {"m": {"targets": [{"provider": "openai"}], "price": {"input": 1000, "output": 1000}}}
}


def raw(head, body=b"{}"):
    async def behave(seen, wire):
        await wire.raw(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)

    return behave


@row(79)
@each_way
@pytest.mark.parametrize("status", [600, 999, 101])
async def test_a_status_that_nobody_may_send_is_a_502(data, way, status):
    async with (
        RawServer(raw(f"HTTP/1.1 {status} X\r\n")) as up,
        running(up.url, data, {"routing.retries": 0}) as live,
    ):
        answer = await ask(live, way)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")


@each_way
@pytest.mark.parametrize("line", ["x bad: 1", "x-bad: a\x01b", "x-bad: a\x7fb", "x(bad): 1"])
async def test_a_header_that_nobody_may_send_is_dropped_and_the_others_arrive(data, way, line):
    body = json.dumps(MESSAGE).encode()
    async with RawServer(
        raw(
            f"HTTP/1.1 200 OK\r\n{line}\r\nx-good: a\tb\r\ncontent-type: application/json\r\n", body
        )
    ) as up:
        async with running(up.url, data, {"routing.retries": 0}) as live:
            answer = await ask(live, way)
            # Llhttp itself refuses some of them.
            if answer.status_code == 502:
                assert answer.json()["error"]["code"] == "upstream_unreachable"
                return
            assert (answer.status_code, answer.json(), answer.headers["x-good"]) == (
                200,
                MESSAGE,
                "a\tb",
            )
            assert not [name for name in answer.headers if "bad" in name]


@row(30, 86)
@each_way
async def test_an_error_that_is_no_json_is_quoted_by_its_first_line_and_logged_with_the_rest(
    data, way, caplog
):
    text = (
        "worker at 10.1.2.3:8000 died "
        + "x" * 300
        + '\nTraceback (most recent call last):\n  File "/srv/app/main.py"\n'
        + "y" * 5000
    )

    async def page(seen, wire):
        await wire.answer(500, text.encode(), content_type="text/plain")

    async with RawServer(page) as up, running(up.url, data, {"routing.retries": 0}) as live:
        with caplog.at_level(logging.INFO, "mnemogate"):
            answer = await ask(live, way)
        shown = answer.json()["error"]["message"]
        assert answer.status_code == 500
        assert shown.startswith("The upstream answered 500: worker at [address] died xxx")
        assert len(shown) <= len("The upstream answered 500: ") + 200
        assert "Traceback" not in shown
        (line,) = [
            r.getMessage() for r in caplog.records if "upstream call failed" in r.getMessage()
        ]
        assert "10.1.2.3:8000" in line
        assert "main.py" in line
        assert len(line) < 1500


@row(93)
@each_way
@pytest.mark.parametrize("fault", ["refused", "503", "400", "silent"])
async def test_each_failed_call_is_one_line_with_its_address_and_reason(data, way, fault, caplog):
    async def silent(seen, wire):
        await asyncio.sleep(30)

    async with Played(
        {"503": says(503), "400": says(400), "silent": silent}.get(fault, fine)
    ) as up:
        address = f"127.0.0.1:{up.port}"
        if fault == "refused":
            await up.__aexit__()
        url = f"http://me:geheim@{address}/v1?key=geheim"
        async with running(
            url,
            data,
            {**provider(timeouts={"total": 0.4}), "memory.tools": "never", "routing.retries": 0},
        ) as live:
            with caplog.at_level(logging.INFO, "mnemogate"):
                answer = await ask(live, way)
        name = answer.headers["x-mnemogate-request-id"]
        lines = [r.getMessage() for r in caplog.records if "upstream call failed" in r.getMessage()]
        assert len(lines) == int(answer.headers["x-mnemogate-attempts"])
        assert lines[0].startswith(
            f"upstream call failed: openai/m at {address}, attempt 1 of {name}: "
        )
        if fault == "refused":
            message = answer.json()["error"]["message"]
            assert message.startswith("The upstream refused the connection. Check that it runs")
        reason = {
            "refused": "ConnectionRefusedError",
            "503": "it answered 503 (c)",
            "400": "it answered 400 (c)",
            "silent": "total_timeout",
        }[fault]
        assert reason in lines[0]
        assert "geheim" not in caplog.text
        assert address not in answer.text


async def test_an_error_inside_a_stream_is_a_line_too(data, caplog):
    async def breaks(seen, wire):
        await wire.start_stream()
        await wire.event(piece("Hel"))
        await wire.event({"error": {"message": "no", "code": "c"}})
        await wire.end()

    async with RawServer(breaks) as up, running(up.url, data) as live:
        await ask(live, "full", True)
        assert [r for r in caplog.records if "upstream call failed: openai/m" in r.getMessage()]


@row(62)
@each_way
@pytest.mark.parametrize("when", ["before its head", "in its body"])
async def test_an_answer_that_is_not_streamed_has_the_total_time_alone_and_is_asked_for_once(
    data, way, when
):
    async def slow(seen, wire):
        body = json.dumps(MESSAGE).encode()
        if when == "before its head":
            await asyncio.sleep(0.7)
        await wire.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % len(body)
            + body[:5]
        )
        await asyncio.sleep(0.7)
        await wire.raw(body[5:])

    limits = {"timeouts": {"first_token": 0.2, "idle": 0.2, "total": 20}}
    async with (
        RawServer(slow) as up,
        running(up.url, data, {**provider(**limits), "routing.retries": 1}) as live,
    ):
        assert (await ask(live, way)).json() == MESSAGE
        assert len(up.requests) == 1


@row(104)
@each_way
@pytest.mark.parametrize("form", ["rfc", "asctime", "ahead", "behind"])
async def test_a_date_is_waited_for_like_as_many_seconds_whatever_the_upstreams_clock_says(
    data, way, form
):
    def lines():
        skew = {"ahead": 3600, "behind": -3600}.get(form, 0)
        now = int(time.time()) + skew
        date = (
            time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(now + 1))
            if form == "asctime"
            else formatdate(now + 1, usegmt=True)
        )
        return f"retry-after: {date}", *(
            [f"date: {formatdate(now, usegmt=True)}"] if skew or form == "asctime" else []
        )

    async def busy(seen, wire):
        await wire.json({"error": {"message": "no"}}, 429, *lines())

    async with Played(busy, fine) as up, running(up.url, data, {"routing.retries": 1}) as live:
        assert "fine" in (await ask(live, way)).text
        assert 0.8 <= up.at[1] - up.at[0] < 3.5


@row(39)
@pytest.mark.parametrize("way", ["full", "off"])
@pytest.mark.parametrize("every", [True, False])
async def test_an_empty_finish_before_the_done_is_a_whole_answer(data, way, every):
    async def ends(seen, wire):
        await wire.start_stream()
        for word in ("Hel", "lo ", "you"):
            await wire.event(piece(word, "" if every else None))
        await wire.event(
            {**piece(None, ""), "choices": [{"index": 0, "delta": {}, "finish_reason": ""}]}
        )
        await wire.event(b"[DONE]")
        await wire.end()

    async with RawServer(ends) as up, running(up.url, data) as live:
        found = events((await ask(live, way, True)).text)
        assert said(found) == "Hello you"
        assert found[-1] == "[DONE]"
        assert not [e for e in found if isinstance(e, dict) and e.get("error")]
        if way == "full":
            assert [
                c["finish_reason"] for e in found[:-1] for c in e["choices"] if c["finish_reason"]
            ] == ["stop"]


@row(116)
@each_mode
@pytest.mark.parametrize("way", ["full", "off"])
@pytest.mark.parametrize("how", ["leaves", "first_token", "total", "cut"])
async def test_who_left_before_the_first_byte_is_billed_by_an_estimate(data, way, stream, how):
    async def silent(seen, wire):
        if how == "cut":
            if stream:
                await wire.start_stream()
            else:
                await wire.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
            wire.reset()
        await asyncio.sleep(30)

    # Long enough for a busy machine to send the request: nothing is billed of one that was not.
    limits = {"first_token": {"first_token": 1.5}, "total": {"total": 1.5}}.get(how, {})
    if how == "first_token" and not stream:
        limits = {"total": 1.5}
    config = {**managed(timeouts=limits), **PRICED, "routing.retries": 0}
    async with Played(silent) as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        asked = asyncio.ensure_future(live.chat("word " * 4000, {"x-memory": way}, stream=stream))
        while not up.requests and not asked.done():
            await asyncio.sleep(0.01)
        if how == "leaves":
            await asyncio.sleep(0.2)
            asked.cancel()
        await asyncio.wait([asked])
        (record,) = await records(live)
        assert (record["attempts"], record["estimated"]) == (1, True)
        assert 4500 < record["input_tokens"] < 7000
        assert record["cost_usd"] > 4


@pytest.mark.parametrize("fault", ["refused", "503"])
async def test_what_never_reached_a_model_costs_nothing(data, fault):
    config = {**managed(), **PRICED, "routing.retries": 1}
    async with Played(says(503)) as up, running(up.url, data, config, key=GATEWAY_KEY) as live:
        if fault == "refused":
            await up.__aexit__()
        await live.chat("word " * 4000, {"x-memory": "off"})
        (record,) = await records(live)
        assert (record["input_tokens"], record["cost_usd"]) == (0, 0.0)


@row(102)
@each_way
@each_mode
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_kept_connection_that_dies_is_replaced_at_once_uncounted_and_in_no_cooldown(
    data, way, stream, how
):
    async def dies(seen, wire):
        wire.reset() if how == "reset" else wire.writer.close()

    config = {"routing": {"retries": 0, "cooldown": {"failures": 1, "window": 30, "seconds": 30}}}
    async with Played(fine, dies, fine) as up, running(up.url, data, config) as live:
        assert "fine" in (await ask(live, way, stream)).text
        answer = await ask(live, way, stream)
        assert "fine" in answer.text
        assert answer.headers["x-mnemogate-attempts"] == "1"
        assert up.at[-1] - up.at[-2] < 0.3
        assert not live.gateway.choice.cooldowns.records.byte_count


@each_way
async def test_a_query_in_the_base_url_goes_along(data, way):
    async with Played(fine) as up, running(f"{up.url}/?api-version=2026-01-01&x=1", data) as live:
        assert "fine" in (await ask(live, way)).text
        assert re.fullmatch(
            r"/v1/(chat/completions|responses)\?api-version=2026-01-01&x=1", up.requests[0].path
        )
        await live.http.post(f"{live.url}/responses?x=2&y=3", json={"model": "m", "input": "hi"})
        assert up.requests[1].path == "/v1/responses?x=2&y=3&api-version=2026-01-01"


@each_way
@each_mode
async def test_every_request_goes_through_the_proxy_that_the_environment_names(
    data, way, stream, monkeypatch
):
    async with Played(fine) as up, Proxy("me:geheim") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with running(up.url, data) as live:
            # The test's own client goes straight.
            live.http._mounts.clear()
            assert "fine" in (await ask(live, way, stream)).text
            assert [s.split("/v1/")[0] for s in proxy.seen] == [up.url.removesuffix("/v1")] * len(
                up.requests
            )
            settings = live.gateway.settings
        lines = startup_lines(settings, live.root)
        assert (
            f"  upstream   openai: {up.url} (httpx through proxy 127.0.0.1:{proxy.port})" in lines
        )
        assert "geheim" not in str(lines)
        up.script[:] = [says(404)]
        finding = await asyncio.to_thread(check_upstream, "openai", settings)
        assert f"(httpx through proxy 127.0.0.1:{proxy.port}) answers 404" in finding.told


async def test_a_reload_sends_a_provider_another_way(data):
    async with Played(fine) as up, Proxy() as proxy, running(up.url, data) as live:
        await ask(live, "off")
        assert not proxy.seen
        base = {"storage.data": str(data), "storage.vectors": "none", "upstream": up.url}
        live.app.reload(load(None, {}, {**base, "providers.openai.proxy": proxy.url}))
        assert "fine" in (await ask(live, "off")).text
        assert len(proxy.seen) == 1
        with pytest.raises(ConfigError, match="ca_file"):
            live.app.reload(load(None, {}, {**base, "providers.openai.ca_file": "/no/such.pem"}))
        assert "fine" in (await ask(live, "off")).text


async def test_a_proxy_that_does_not_answer_is_named_in_the_log_alone(data, caplog):
    async with Proxy() as gone:
        pass
    config = {**provider(proxy=f"http://me:geheim@127.0.0.1:{gone.port}"), "routing.retries": 0}
    async with Played(fine) as up, running(up.url, data, config) as live:
        with caplog.at_level(logging.INFO, "mnemogate"):
            answer = await ask(live, "off")
    assert f"through proxy 127.0.0.1:{gone.port}: " in caplog.text
    assert "geheim" not in caplog.text
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert str(gone.port) not in answer.text

"""Traces: spans of a request, its rounds and tools; no content; a stalled sink costs nothing."""

from __future__ import annotations

import asyncio
import json

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.app import create_app
from gateway.config.loader import load
from gateway.config.settings import ConfigError
from gateway.telemetry import traces
from gateway.telemetry.traces import TurnTraces, open_traces
from tests.conftest import running
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls
from tests.sockets import RawServer, within

SEARCH = calls(call("archival_memory_search", {"query": "a secret wish"}))
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    return InMemorySpanExporter()


def traced(live, spans, **options):
    live.gateway.traces = TurnTraces(SimpleSpanProcessor(spans), **options)


@row(159)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_its_rounds_and_its_tools_are_spans(data, spans, stream):
    async with Model(SEARCH, "Hello.") as up, running(up.url, data) as live:
        traced(live, spans)
        await live.chat("a secret wish", {"traceparent": PARENT}, user="zoe", stream=stream)
        assert up.requests[-1].header("traceparent") == PARENT
    found = {s.name: s for s in spans.get_finished_spans()}
    top = found["POST /v1/chat/completions"]
    assert f"{top.parent.span_id:016x}" == PARENT.split("-")[2]
    assert {f"{s.context.trace_id:032x}" for s in found.values()} == {PARENT.split("-")[1]}
    rounds = [s for s in spans.get_finished_spans() if s.name == "chat m"]
    assert [s.attributes["gen_ai.usage.input_tokens"] for s in rounds] == [100, 100]
    assert [s.attributes["mnemogate.round"] for s in rounds] == [1, 2]
    tool = found["execute_tool archival_memory_search"]
    assert tool.attributes["gen_ai.operation.name"] == "execute_tool"
    for span in (*rounds, tool):
        assert span.parent.span_id == top.context.span_id
        assert top.start_time <= span.start_time <= span.end_time <= top.end_time
    assert top.attributes["mnemogate.first_byte_ms"] > 0
    assert top.attributes["http.response.status_code"] == 200
    written = json.dumps([s.to_json() for s in spans.get_finished_spans()])
    assert "secret" not in written
    assert "zoe" not in written


async def test_content_is_there_only_where_it_is_asked_for(data, spans):
    async with Model(SEARCH, "Hello.") as up, running(up.url, data) as live:
        traced(live, spans, content=True)
        await live.chat("Hi", user="ada")
    tool = next(s for s in spans.get_finished_spans() if s.name.startswith("execute_tool"))
    assert "a secret wish" in tool.attributes["gen_ai.tool.call.arguments"]
    assert "Nothing found" in tool.attributes["gen_ai.tool.call.result"]


@pytest.mark.parametrize(
    "parent", ["", "x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", PARENT + "x"]
)
async def test_an_unusable_parent_begins_a_trace_of_its_own(data, spans, parent):
    async with Model((404, {"error": {"message": "no"}})) as up, running(up.url, data) as live:
        traced(live, spans)
        await live.chat("Hi", {"traceparent": parent} if parent else {}, user="ada")
    top = next(s for s in spans.get_finished_spans() if s.name.startswith("POST"))
    assert top.parent is None
    assert top.attributes["http.response.status_code"] == 404


async def test_a_sink_that_stalls_delays_no_turn(data, monkeypatch):
    """Turns end while it holds the spans of those before, and the gateway ends without it."""
    monkeypatch.setattr(traces, "SEND_SECONDS", 0.5)
    never = asyncio.Event()

    async def stall(seen, wire):
        await never.wait()

    async with RawServer(stall) as sink, Model("Hello.") as up:
        async with running(up.url, data, {"telemetry.traces": f"{sink.url}/traces"}) as live:
            await live.chat("Hi", user="ada")
            flush = live.gateway.traces._provider.force_flush
            sending = asyncio.create_task(asyncio.to_thread(flush))
            assert await within(20, lambda: sink.requests)
            for _ in range(5):
                assert (await live.chat("Hi", user="ada")).status_code == 200
            await sending


def test_a_setting_that_cannot_be_used_is_told(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"telemetry\.traces"):
        load(None, {}, {"telemetry.traces": "localhost:4318"})
    monkeypatch.setattr("gateway.app.is_available", lambda: False)
    settings = load(None, {}, {"storage.data": str(tmp_path), "telemetry.traces": "http://x/v1"})
    with pytest.raises(ConfigError, match="needs OpenTelemetry"):
        create_app(settings)


def test_opened_traces_send_to_their_endpoint():
    found = open_traces("http://127.0.0.1:9/v1/traces", content=False)
    found._provider.shutdown()

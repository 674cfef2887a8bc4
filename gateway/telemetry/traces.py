"""OpenTelemetry traces: a span for each request, for each of its rounds, for each memory tool.

Spans are made when a request has ended, from what is known of it then, and only queued: a thread
sends them, and where the sink stalls they are dropped. No text of a prompt, an answer or a memory
is in them, unless telemetry.trace_content says so. The names are those of the GenAI conventions,
which change: they stand here alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL = "gen_ai.tool.name"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
ERROR = "error.type"
STATUS = "http.response.status_code"
REQUEST_ID = "mnemogate.request_id"
FIRST_BYTE = "mnemogate.first_byte_ms"
MEMORY = "mnemogate.memory_status"
ROUND = "mnemogate.round"
# A batch of spans that takes longer is dropped.
SEND_SECONDS = 2
QUEUED_SPANS = 2048
MAX_CONTENT_CHARACTERS = 2000
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
NANOSECONDS_A_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class TracedRound:
    """One call of an upstream. target: `provider/model`. sent_at: Unix time in nanoseconds."""

    target: str
    sent_at: int
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A request that ended.

    began_at, ended_at: Unix time in nanoseconds. tools: those of the explain record. parent: the
    client's `traceparent` header.
    """

    id: str
    path: str
    model: str
    began_at: int
    ended_at: int
    status: int
    code: str | None
    memory: str
    first_byte_ms: float | None
    rounds: Sequence[TracedRound]
    tools: Sequence[Mapping[str, Any]]
    parent: str


class TurnTraces:
    """Makes spans and hands them to a processor of OpenTelemetry. content: with texts in them."""

    def __init__(self, processor: Any, *, content: bool = False) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        resource = Resource.create({"service.name": "mnemogate"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("mnemogate")
        self._content = content

    def record(self, request: TracedRequest) -> None:
        """Queue the spans of a request. Never waits."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        top = self._tracer.start_span(
            f"POST /v1{request.path}",
            _parent_context(request.parent),
            kind=SpanKind.SERVER,
            attributes=_without_none(
                {
                    REQUEST_MODEL: request.model,
                    REQUEST_ID: request.id,
                    STATUS: request.status,
                    MEMORY: request.memory,
                    FIRST_BYTE: request.first_byte_ms,
                    ERROR: request.code,
                }
            ),
            start_time=request.began_at,
        )
        inside = set_span_in_context(top)
        for number, call in enumerate(request.rounds, 1):
            self._record_round(request, number, call, inside)
        top.end(request.ended_at)

    def _record_round(
        self, request: TracedRequest, number: int, call: TracedRound, inside: Any
    ) -> None:
        """Record a round, and the tools that ran between it and the next one."""
        from opentelemetry.trace import SpanKind

        tools = [tool for tool in request.tools if tool.get("round") == number]
        is_last = number == len(request.rounds)
        if is_last:
            until = request.ended_at
        else:
            until = request.rounds[number].sent_at
        longest_tool_ns = max((int(tool["ms"] * NANOSECONDS_A_MS) for tool in tools), default=0)
        answered_at = max(until - longest_tool_ns, call.sent_at)
        provider, _, model = call.target.partition("/")
        self._tracer.start_span(
            f"chat {model}",
            inside,
            kind=SpanKind.CLIENT,
            attributes={
                OPERATION: "chat",
                PROVIDER: provider,
                REQUEST_MODEL: request.model,
                RESPONSE_MODEL: model,
                INPUT_TOKENS: call.input,
                OUTPUT_TOKENS: call.output,
                ROUND: number,
            },
            start_time=call.sent_at,
        ).end(answered_at)
        for tool in tools:
            self._record_tool(tool, answered_at, inside)

    def _record_tool(self, tool: Mapping[str, Any], began_at: int, inside: Any) -> None:
        attributes = {OPERATION: "execute_tool", TOOL: tool["name"]}
        if self._content:
            attributes[ARGUMENTS] = tool["arguments"][:MAX_CONTENT_CHARACTERS]
            attributes[RESULT] = tool["result"][:MAX_CONTENT_CHARACTERS]
        self._tracer.start_span(
            f"execute_tool {tool['name']}", inside, attributes=attributes, start_time=began_at
        ).end(began_at + int(tool["ms"] * NANOSECONDS_A_MS))

    async def close(self) -> None:
        """Send what is queued, as far as the sink takes it."""
        await asyncio.to_thread(self._provider.shutdown)


def is_available() -> bool:
    """Tell whether the packages of the extra `otel` are installed."""
    return find_spec("opentelemetry") is not None and all(
        find_spec(name) is not None
        for name in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    )


def open_traces(endpoint: str, *, content: bool) -> TurnTraces:
    """Return traces that go to an OTLP/HTTP endpoint, such as http://127.0.0.1:4318/v1/traces."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(endpoint, timeout=SEND_SECONDS)
    processor = BatchSpanProcessor(exporter, QUEUED_SPANS, export_timeout_millis=SEND_SECONDS * 1e3)
    return TurnTraces(processor, content=content)


def _parent_context(header: str) -> Any:
    """Return the client's trace as the context of a span; an empty one without a valid header."""
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    match = TRACEPARENT.fullmatch(header)
    if match is None:
        return Context()
    trace, span, flags = (int(part, 16) for part in match.groups())
    parent = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))
    if not parent.is_valid:
        return Context()
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _without_none(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}

"""The metrics of this process, in Prometheus's format.

- Labels are bounded: models, providers and agents of the configuration, else `other`; tools of the
  memory;
  classes of status codes. No user, key or tenant is in a label.
- Counts are added up here and handed to the library when somebody reads them: each costs it 1 us.
- With several processes behind one port, set PROMETHEUS_MULTIPROC_DIR to an empty folder before
  they start: counters then go to files there, and a scrape of any process returns the sums.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter as TotalCounts
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from gateway.telemetry.degraded import DegradedTurns
from gateway.telemetry.tool_metrics import ToolMetrics
from memory import Drop, Session

OTHER = "other"
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LEFT = 499
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
SEARCH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 10)
TOKENS = (0, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 50_000)
PATHS = frozenset(
    {
        "/chat/completions",
        "/responses",
        "/messages",
        "/completions",
        "/embeddings",
        "/moderations",
        "/audio/speech",
        "/audio/transcriptions",
        "/images/generations",
    }
)
COUNTERS = {
    "requests": (
        "Requests to /v1, when they ended.",
        ["path", "model", "provider", "memory", "status"],
    ),
    "tokens": (
        "Tokens as billed, over all rounds. input includes cached_input and cache_write; output "
        "includes reasoning.",
        ["model", "kind"],
    ),
    "cost_usd": ("Cost of requests whose price is known.", ["model"]),
    "rounds": ("Calls of upstreams that were accepted.", ["model"]),
    "agent_requests": ("Requests to agents with a profile, when they ended.", ["agent", "status"]),
    "agent_tokens": ("Tokens of these requests, as billed.", ["agent", "kind"]),
    "agent_cost_usd": ("Cost of these requests, where the price is known.", ["agent"]),
    "http_responses": ("Responses of every path.", ["route", "status"]),
    "memory_dropped": (
        "What filters did not keep of what users said: messages that no model was shown, and "
        "facts that a model proposed.",
        ["stage", "reason"],
    ),
}
DURATIONS = {
    "latency_ms": (
        "mnemogate_request_duration_seconds",
        "From a request's arrival to the end of its answer.",
    ),
    "first_token_ms": (
        "mnemogate_first_byte_seconds",
        "From a request's arrival to the first byte of its answer.",
    ),
}
# How processes are joined.
GAUGES: dict[str, tuple[str, Literal["livesum", "livemin"]]] = {
    "requests_in_progress": ("Requests in progress.", "livesum"),
    "memory_ready": ("1 while the memory's store works, in every process.", "livemin"),
    "usage_records_dropped": ("Usage records that were lost.", "livesum"),
    "unwritten_turns": (
        "Turns that neither the store nor the recovery file has taken yet.",
        "livesum",
    ),
    "turns_dropped": ("Finished turns that found no place at all.", "livesum"),
}
KINDS = ("input", "cached_input", "cache_write", "output", "reasoning")


class BilledTokens(Protocol):
    """The tokens that a request is billed by."""

    input: int
    cached_input: int
    cache_write: int
    output: int
    reasoning: int


class BilledRequest(BilledTokens, Protocol):
    """What a usage record tells of a request; see `gateway.usage.log`."""

    path: str
    model: str
    target: str
    status: int
    code: str | None
    latency_ms: float
    first_token_ms: float | None
    attempts: int
    rounds: int
    cost: float | None
    agent: str


class _RequestSums(msgspec.Struct):
    """What requests with the same labels add to counters, since the last hand-over."""

    requests: int = 0
    cost_usd: float = 0.0
    rounds: int = 0
    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    def add(self, record: BilledRequest) -> None:
        self.requests += 1
        self.cost_usd += record.cost or 0
        self.rounds += record.rounds
        self.input += record.input
        self.cached_input += record.cached_input
        self.cache_write += record.cache_write
        self.output += record.output
        self.reasoning += record.reasoning


class _Sums(msgspec.Struct):
    """What was counted since the last hand-over, by labels; responses by route and status."""

    requests: dict[tuple[str, ...], _RequestSums] = msgspec.field(default_factory=dict)
    agents: dict[tuple[str, ...], _RequestSums] = msgspec.field(default_factory=dict)
    responses: TotalCounts[tuple[str, str]] = msgspec.field(default_factory=TotalCounts)


class _Durations:
    """Histograms of how long requests took, by model."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._histograms = {
            member: Histogram(name, text, ["model"], buckets=SECONDS, registry=registry)
            for member, (name, text) in DURATIONS.items()
        }
        # Looked up once: the library checks labels for as long as it counts.
        self._of_models: dict[tuple[str, str], Histogram] = {}

    def observe(self, member: str, model: str, milliseconds: float) -> None:
        if (histogram := self._of_models.get((member, model))) is None:
            histogram = self._histograms[member].labels(model)
            self._of_models[member, model] = histogram
        histogram.observe(milliseconds / 1000)


@dataclass(frozen=True, slots=True)
class _LabelNames:
    """The names of the configuration, which labels may have."""

    models: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()


@dataclass(slots=True)
class ProviderHealth:
    """How the requests of one provider went in this process. last_failed_at: Unix time."""

    requests: int = 0
    failures: int = 0
    last_status: int = 0
    last_code: str | None = None
    last_failed_at: float | None = None

    def note(self, status: int, code: str | None) -> None:
        self.requests += 1
        if status >= 500 or status == 429:
            self.failures += 1
            self.last_status = status
            self.last_code = code
            self.last_failed_at = time.time()


class Metrics:
    """Counts what this process does.

    health: by provider. memory: requests by memory status. degraded: the newest of these. tools:
    of the operator.
    """

    def __init__(
        self,
        models: Collection[str] = (),
        providers: Collection[str] = (),
        agents: Collection[str] = (),
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        self.health: dict[str, ProviderHealth] = {}
        self.memory: dict[str, int] = {}
        self.degraded = DegradedTurns()
        self.configure(models, providers, agents)
        self._counters = {
            name: Counter(f"mnemogate_{name}", text, labels, registry=registry)
            for name, (text, labels) in COUNTERS.items()
        }
        self._durations = _Durations(registry)
        self._turn = _TurnMetrics(registry)
        self.tools = ToolMetrics(registry)
        self._lock = threading.Lock()
        self._drops: TotalCounts[tuple[str, str]] = TotalCounts()
        self._sums = _Sums()
        # Other processes read what this one counts.
        self._is_shared = SHARED_FOLDER in os.environ
        self._gauges = {
            name: Gauge(f"mnemogate_{name}", text, registry=registry, multiprocess_mode=mode)
            for name, (text, mode) in GAUGES.items()
        }

    def configure(
        self, models: Collection[str], providers: Collection[str], agents: Collection[str] = ()
    ) -> None:
        """Set the names that labels may have; others count as `other`."""
        model_names = frozenset(m for m in models if not m.endswith("*"))
        self._labels = _LabelNames(model_names, frozenset(providers), frozenset(agents))

    def observe_request(self, record: BilledRequest, memory: str) -> None:
        """Count a request that ended. memory: `x-memory-status` at its end."""
        if record.model in self._labels.models:
            model = record.model
        else:
            model = OTHER
        provider = record.target.partition("/")[0]
        if provider in self._labels.providers:
            self.health.setdefault(provider, ProviderHealth()).note(record.status, record.code)
        else:
            provider = OTHER if provider else "none"
        memory = memory or "none"
        self.memory[memory] = self.memory.get(memory, 0) + 1
        path = record.path if record.path in PATHS else OTHER
        status = status_class(record.status)
        labels = (path, model, provider, memory, status)
        if (sums := self._sums.requests.get(labels)) is None:
            sums = self._sums.requests[labels] = _RequestSums()
        sums.add(record)
        if record.agent:
            agent = record.agent if record.agent in self._labels.agents else OTHER
            self._sums.agents.setdefault((agent, status), _RequestSums()).add(record)
        if self._is_shared:
            self._hand_over()
        self._durations.observe("latency_ms", model, record.latency_ms)
        if record.first_token_ms is not None:
            self._durations.observe("first_token_ms", model, record.first_token_ms)

    def _hand_over(self) -> None:
        """Hand what was added up to the library."""
        with self._lock:
            drops = self._drops
            self._drops = TotalCounts()
        for (stage, reason), times in drops.items():
            self._counters["memory_dropped"].labels(stage, reason).inc(times)
        all_sums = self._sums
        self._sums = _Sums()
        for labels, sums in all_sums.requests.items():
            self._counters["requests"].labels(*labels).inc(sums.requests)
            self._inc("rounds", labels[1:2], sums.rounds)
            self._hand_over_bill("", labels[1], sums)
        for labels, sums in all_sums.agents.items():
            self._counters["agent_requests"].labels(*labels).inc(sums.requests)
            self._hand_over_bill("agent_", labels[0], sums)
        for labels, times in all_sums.responses.items():
            self._counters["http_responses"].labels(*labels).inc(times)

    def _hand_over_bill(self, prefix: str, label: str, sums: _RequestSums) -> None:
        """Hand over what was billed: of a model, or of an agent (`prefix`)."""
        self._inc(f"{prefix}cost_usd", (label,), sums.cost_usd)
        for kind in KINDS:
            self._inc(f"{prefix}tokens", (label, kind), getattr(sums, kind))

    def _inc(self, name: str, labels: Sequence[str], amount: float) -> None:
        """Add to a counter, which is not shown before it counts something."""
        if amount:
            self._counters[name].labels(*labels).inc(amount)

    def observe_turn(self, session: Session) -> None:
        """Count what the memory did in a turn."""
        self._turn.observe(session)

    def observe_drops(self, drops: Iterable[Drop]) -> None:
        """Count what filters dropped. Jobs call this from the writer's thread."""
        with self._lock:
            self._drops.update((drop.stage, drop.reason) for drop in drops)

    def observe_http(self, route: str, status: int) -> None:
        """Count a response. route: one of a few names."""
        self._sums.responses[route, status_class(status)] += 1
        if self._is_shared:
            self._hand_over()

    def render(self, gauges: Mapping[str, float]) -> bytes:
        """Return all metrics as text. gauges: the values of now, by name."""
        self._hand_over()
        for name, value in gauges.items():
            self._gauges[name].set(value)
        return generate_latest(_registry_of_all() or self._registry)


class _TurnMetrics:
    """The metrics of what the memory does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "mnemogate_memory_calls",
            "Memory tools that models called; automatic_recall is the gateway's own search.",
            ["tool", "outcome"],
            registry=registry,
        )
        self._searches = Histogram(
            "mnemogate_memory_search_seconds",
            "How long searches of the memory took.",
            buckets=SEARCH_SECONDS,
            registry=registry,
        )
        self._injected = Histogram(
            "mnemogate_injected_tokens",
            "Tokens that the memory added to a request.",
            buckets=TOKENS,
            registry=registry,
        )
        self._tasks = Counter(
            "mnemogate_memory_tasks",
            "Requests that were tasks: templated one-shot prompts, which get no memory but blocks.",
            registry=registry,
        )
        self._evictions = Counter(
            "mnemogate_compactions",
            "Requests that were made to fit their window.",
            registry=registry,
        )

    def observe(self, session: Session) -> None:
        trace = session.trace
        for call in session.observed_calls() if trace.tools or trace.timings else ():
            self._calls.labels(call.name, call.outcome).inc()
            if call.searches:
                self._searches.observe(call.milliseconds / 1000)
        self._injected.observe(session.prompt.injected_tokens)
        if session.is_task:
            self._tasks.inc()
        if evicted := trace.evicted:
            self._evictions.inc(len(evicted))


@lru_cache(64)
def status_class(status: int) -> str:
    """Return a status as a label: its class, or 499 for a client that left."""
    if status == LEFT:
        return str(LEFT)
    return f"{min(max(status // 100, 1), 5)}xx"


async def close_metrics() -> None:
    """Take the gauges of this process, which ends, out of those of all processes."""
    if SHARED_FOLDER in os.environ:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]


def _registry_of_all() -> Any:
    """Return the metrics of all processes; None where this one is alone."""
    if SHARED_FOLDER not in os.environ:
        return None
    from prometheus_client.multiprocess import MultiProcessCollector

    shared_registry = CollectorRegistry()
    MultiProcessCollector(shared_registry)  # type: ignore[no-untyped-call]
    return shared_registry

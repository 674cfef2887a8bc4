"""Metrics of the operator's tools, by entry of the configuration; others count as `other`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

OTHER = "other"
RUN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class ToolMetrics:
    """Counts runs of tools. waiting: runs without a slot yet."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._entries: frozenset[str] = frozenset()
        self._runs = Counter(
            "mnemogate_tool_runs",
            "Runs of the operator's tools, when they ended.",
            ["entry", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "mnemogate_tool_run_seconds",
            "How long runs of the operator's tools took, without waiting for a slot.",
            ["entry"],
            buckets=RUN_SECONDS,
            registry=registry,
        )
        self._running_gauge = self._gauge(
            registry, "mnemogate_tools_running", "Runs of the operator's tools in progress."
        )
        self._waiting_gauge = self._gauge(
            registry,
            "mnemogate_tools_waiting",
            "Runs of the operator's tools that wait for a slot.",
        )
        self._up = Gauge(
            "mnemogate_tool_entry_up",
            "1 while an entry of [tools] can be used, in every process.",
            ["entry"],
            registry=registry,
            multiprocess_mode="livemin",
        )

    def configure(self, entries: Collection[str]) -> None:
        """Set the entries that labels may have."""
        for removed_entry in self._entries - set(entries):
            self._up.remove(removed_entry)
        self._entries = frozenset(entries)

    def came(self) -> None:
        """Count a run that waits for its slot."""
        self._waiting_gauge.inc()

    def began(self) -> None:
        """Count a run that had its slot."""
        self._waiting_gauge.dec()
        self._running_gauge.inc()

    def ended(self, entry: str, status: str, seconds: float | None) -> None:
        """Count the end of a run. seconds: since it had its slot, None if it never had one."""
        label = self._label_of(entry)
        self._runs.labels(label, status).inc()
        if seconds is None:
            self._waiting_gauge.dec()
        else:
            self._running_gauge.dec()
            self._seconds.labels(label).observe(seconds)

    def count_refusal(self, entry: str) -> None:
        """Count a call that is not run."""
        self._runs.labels(self._label_of(entry), "refused").inc()

    def _label_of(self, entry: str) -> str:
        if entry in self._entries:
            return entry
        return OTHER

    def set_states(self, states: Mapping[str, bool]) -> None:
        """Set which entries can be used now."""
        for entry, is_up in states.items():
            self._up.labels(entry).set(is_up)

    @staticmethod
    def _gauge(registry: CollectorRegistry, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=registry, multiprocess_mode="livesum")

"""Pytest's hooks for the wire: which rows were tried, which hold, by priority, at the end of a
run.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.e2e.wire.rows import ELSEWHERE, LATER, P0, P1, P2


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "wire(*rows): shows these invariants of the wire")
    for name in ("P0", "P1", "P2"):
        config.addinivalue_line("markers", f"{name}: an invariant of that priority")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    # As a property the numbers travel with the report from a worker process to the one that sums
    # up.
    for item in items:
        for mark in item.iter_markers("wire"):
            item.user_properties += [("wire", number) for number in mark.args]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    held: dict[int, bool] = defaultdict(lambda: True)
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, number in getattr(report, "user_properties", ()):
                if name == "wire":
                    held[number] &= outcome == "passed"
    if not held:
        return
    terminalreporter.section("the wire")
    for name, rows in (("P0", P0), ("P1", P1), ("P2", P2)):
        broken = sorted(n for n in rows if n in held and not held[n])
        untried = sorted(n for n in rows if n not in held and n not in LATER and n not in ELSEWHERE)
        elsewhere = sorted(n for n in rows if n in ELSEWHERE)
        later = sorted(n for n in rows if n not in held and n in LATER)
        parts = [f"{sum(held[n] for n in rows if n in held)} of {len(rows)} rows hold"]
        parts += [
            f"{what}: {', '.join(map(str, found))}"
            for what, found in (
                ("BROKEN", broken),
                ("not tried", untried),
                ("by a command of their own", elsewhere),
                ("later", later),
            )
            if found
        ]
        terminalreporter.line(f"{name}: {'; '.join(parts)}")

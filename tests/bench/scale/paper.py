"""What a memory of any size needs, computed from measured unit costs, and what is full first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memory.ids import SLOTS
from tests.bench.scale.measures import Times
from tests.bench.scale.sizes import TableSize

# Rows of each turn.
TURN_TABLES = {"nodes": 1, "messages": 2, "message_terms": 2, "usage": 1}
TURNS_OF_CONVERSATION = 25
# Of a turn whose two messages have vectors of 384 numbers.
VECTOR_BYTES = 2 * 1_650
EXPLAINED_DAYS = 7
PRIMARY_BYTES, PRIMARY_CORES = 2e12, 8
# Of a warm turn, as `make bench BENCH=fleet-cpu` has it.
GATEWAY_SECONDS = 0.0028
# Share of a core that is planned with.
BUSY = 0.5
# Times the mean.
PEAK = 3
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a turn: bytes, and seconds of CPU. user_bytes: of a user. search_seconds: the server's."""

    turn_bytes: float
    explain_bytes: float
    user_bytes: float
    log_bytes: float
    server_seconds: float
    search_seconds: float
    gateway_seconds: float = GATEWAY_SECONDS


@dataclass(frozen=True, slots=True)
class Fleet:
    """users: all there are. turns: stored in all. daily: of them, each day."""

    name: str
    users: float
    turns: float
    daily: float


FLEETS = (
    Fleet("1 M users x 10,000 messages, over 2 years", 1e6, 5e9, 5e9 / 730),
    Fleet("100 M users, 10 M a day x 20 turns, 1 year", 1e8, 2e8 * 365, 2e8),
)


def costs_of(sizes: Mapping[str, TableSize], times: Mapping[str, Times], log_bytes: float) -> Costs:
    """Return the unit costs of what was measured."""
    of_turn = sum(sizes[name].row_bytes * rows for name, rows in TURN_TABLES.items())
    of_line = sizes["conversations"].row_bytes + sizes["epochs"].row_bytes
    return Costs(
        of_turn + of_line / TURNS_OF_CONVERSATION,
        sizes["explains"].row_bytes,
        sizes["scopes"].row_bytes,
        log_bytes,
        times["write"].server / 1e3,
        times["search by words"].server / 1e3,
    )


def needs(fleet: Fleet, costs: Costs) -> dict[str, float]:
    """Return what a fleet needs, by name."""
    rate = fleet.daily / DAY
    durable = fleet.turns * costs.turn_bytes + fleet.users * costs.user_bytes
    explains = min(fleet.turns, fleet.daily * EXPLAINED_DAYS) * costs.explain_bytes
    peak = rate * PEAK
    cores = PRIMARY_CORES * BUSY
    searching = costs.server_seconds + costs.search_seconds
    return {
        "turns a second": rate,
        "at the peak": peak,
        "TB stored": durable / 1e12,
        "TB of vectors, where there is an embedder": fleet.turns * VECTOR_BYTES / 1e12,
        "TB of explain records": explains / 1e12,
        "primaries, by their bytes": (durable + explains) / PRIMARY_BYTES,
        "primaries, by their CPU at the peak": peak * costs.server_seconds / cores,
        "the same, if each turn searches": peak * searching / cores,
        "MB/s of log at the peak, in all": peak * costs.log_bytes / 1e6,
        "gateway cores at the peak": peak * costs.gateway_seconds / BUSY,
        "share of the workers that one database names": peak * costs.gateway_seconds / BUSY / SLOTS,
    }


def of_one_primary(costs: Costs) -> dict[str, float]:
    """Return what one primary carries, by name."""
    cores = PRIMARY_CORES * BUSY
    return {
        "million turns stored": PRIMARY_BYTES / (costs.turn_bytes + VECTOR_BYTES) / 1e6,
        "the same without an embedder": PRIMARY_BYTES / costs.turn_bytes / 1e6,
        "turns a second, by its CPU": cores / costs.server_seconds,
        "the same, if each searches": cores / (costs.server_seconds + costs.search_seconds),
        "MB/s of log at that rate": cores / costs.server_seconds * costs.log_bytes / 1e6,
    }


def report(costs: Costs) -> str:
    """Return the table of the fleets."""
    lines = [
        f"\na turn: {costs.turn_bytes:,.0f} bytes, explained {costs.explain_bytes:,.0f} more; "
        f"{costs.log_bytes:,.0f} of log; {costs.server_seconds * 1e3:.2f} ms of the server's CPU, "
        f"{costs.search_seconds * 1e3:.1f} more with a search, {costs.gateway_seconds * 1e3:.1f} "
        "of the gateway's",
        f"\none primary of {PRIMARY_BYTES / 1e12:.0f} TB and {PRIMARY_CORES} cores, half busy",
        *(f"  {k:46} {v:12,.2f}" for k, v in of_one_primary(costs).items()),
    ]
    for fleet in FLEETS:
        found = needs(fleet, costs)
        lines += [f"\n{fleet.name}", *(f"  {k:46} {v:12,.2f}" for k, v in found.items())]
        lines.append(f"  full first: {full_first(found)}")
    return "\n".join(lines)


def full_first(found: Mapping[str, float]) -> str:
    """Name what asks for the most primaries."""
    of_bytes = found["primaries, by their bytes"]
    of_cpu = found["the same, if each turn searches"]
    return "bytes of the primaries" if of_bytes >= of_cpu else "CPU of the primaries"

"""What happened lately, from outside: recent turns, and the four monitors over them.

The monitors are context use, archival growth, retrieval (hit rate and latency), and edits of core
memory a turn. They look at a bounded number of recent turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec

from memory.ids import time_of
from memory.management.reading import read
from memory.scope import Scope, split_memory_name
from memory.service import Memory
from memory.session.trace import ObservedCall
from memory.stores.sql.rows import activity as rows
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.conversations import FoundConversation
from memory.stores.sql.rows.scopes import VisibleScopes

# That the monitors look at.
MAX_TURNS = 300
# Of one turn.
MAX_SHOWN_CALLS = 64
CORE_EDITS = frozenset({"core_memory_append", "core_memory_replace", "memory_rethink"})


class CallRecord(msgspec.Struct):
    """A memory tool that a turn ran. arguments: JSON text as the model wrote it."""

    name: str
    arguments: str = ""
    result: str = ""
    ms: float = 0.0
    round: int = 1


class TurnTokens(msgspec.Struct):
    """See `TokenCounts`. rounds: the usage that each round reported."""

    injected: int = 0
    prompt_estimate: int = 0
    counted: bool = False
    system: int = 0
    client_tools: int = 0
    window: int | None = None
    rounds: list[Any] = []

    @property
    def prompt(self) -> int:
        """Tokens of the whole prompt, with what the memory added."""
        return self.prompt_estimate + (0 if self.counted else self.injected)


class InjectedTexts(msgspec.Struct):
    recall: str = ""


class TurnDecision(msgspec.Struct):
    on: bool
    why: str


class ExplainSummary(msgspec.Struct):
    """What of an explain record a list of turns shows. Older records lack some of it."""

    id: str
    request_id: str = ""
    conversation: str = ""
    model: str = ""
    decisions: dict[str, TurnDecision] = {}
    tools: list[CallRecord] = []
    evicted: list[dict[str, Any]] = []
    remarks: list[str] = []
    timings_ms: dict[str, float] = {}
    tokens: TurnTokens = msgspec.field(default_factory=TurnTokens)
    injected: InjectedTexts = msgspec.field(default_factory=InjectedTexts)


@dataclass(frozen=True, slots=True)
class RecentTurn:
    """One turn. explain: None where its record is too long for a list. attempts: at this turn."""

    key: int
    tenant: str
    user: str | None
    agent: str
    began_at: float
    ended_at: float
    attempts: int
    explain: ExplainSummary | None

    @property
    def mark(self) -> str:
        """A name of the turn as it is now."""
        return f"{self.key:016x}-{self.attempts}"

    @property
    def end_mark(self) -> str:
        """A name of the turn as it is now; turns that end later have later names."""
        return f"{int(self.ended_at * 1_000_000):016x}-{self.mark}"


@dataclass(slots=True)
class Distribution:
    """Percentiles of some values; None of none."""

    p50: float | None = None
    p95: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        if not values:
            return cls()
        ordered_values = sorted(values)
        return cls(
            _percentile(ordered_values, 0.5), _percentile(ordered_values, 0.95), ordered_values[-1]
        )


@dataclass(frozen=True, slots=True)
class TurnMonitor:
    """What one turn adds to the monitors. search_ms: of each search."""

    search_ms: list[float]
    hits: int
    core_edits: int

    @classmethod
    def of(cls, explain: ExplainSummary) -> TurnMonitor:
        calls = calls_of(explain)
        searches = [call for call in calls if call.searches]
        return cls(
            [call.milliseconds for call in searches],
            sum(call.outcome == "ok" for call in searches),
            sum(call.name in CORE_EDITS and call.outcome == "ok" for call in calls),
        )


@dataclass(frozen=True, slots=True)
class Monitors:
    """The four monitors.

    turns: how many were looked at, the newest first in `recent`. passages: up to `MAX_TOTAL`.
    passages_by_day, edits_by_day: by UTC date; edits also by who made them. searches: of tools and
    of automatic recall. window_share: of turns whose model's window is known.
    """

    recent: list[RecentTurn]
    prompt_tokens: Distribution
    window_share: Distribution
    injected_tokens: Distribution
    passages: int
    passages_by_day: dict[str, int]
    searches: int
    hits: int
    search_ms: Distribution
    core_edits: int
    edits_by_day: dict[str, dict[str, int]]

    @property
    def turns(self) -> int:
        return len(self.recent)


def _percentile(ordered_values: Sequence[float], share: float) -> float:
    return ordered_values[max(0, ceil(share * len(ordered_values)) - 1)]


async def list_turns(
    memory: Memory, reach: VisibleScopes, since: float, limit: int, user: str | None = None
) -> list[RecentTurn]:
    """List turns that began after a Unix time, newest first. Raises StoreUnavailable."""
    return await read(
        memory,
        lambda conn: [_recent_turn(row) for row in rows.turns(conn, reach, since, limit, user)],
    )


async def list_ended_turns(
    memory: Memory, reach: VisibleScopes, since: float, limit: int
) -> list[RecentTurn]:
    """List turns that began after a Unix time, the last to end first. Raises StoreUnavailable."""
    return await read(
        memory,
        lambda conn: [_recent_turn(row) for row in rows.ended_turns(conn, reach, since, limit)],
    )


async def read_monitors(
    memory: Memory, reach: VisibleScopes, since: float, user: str | None = None
) -> Monitors:
    """Return the monitors since a Unix time. Raises StoreUnavailable."""
    recent_turns = await list_turns(memory, reach, since, MAX_TURNS, user)
    passages = await read(memory, lambda conn: rows.count_passages(conn, reach, user))
    passages_by_day = await read(
        memory, lambda conn: rows.passages_by_day(conn, reach, since, user)
    )
    edits = await read(memory, lambda conn: rows.edits_by_day(conn, reach, since, user))
    explain_records = [turn.explain for turn in recent_turns if turn.explain is not None]
    per_turn = [TurnMonitor.of(x) for x in explain_records]
    return Monitors(
        recent_turns,
        Distribution.of([x.tokens.prompt for x in explain_records]),
        Distribution.of(
            [x.tokens.prompt / x.tokens.window for x in explain_records if x.tokens.window]
        ),
        Distribution.of([x.tokens.injected for x in explain_records]),
        passages,
        passages_by_day,
        sum(len(x.search_ms) for x in per_turn),
        sum(x.hits for x in per_turn),
        Distribution.of([ms for x in per_turn for ms in x.search_ms]),
        sum(x.core_edits for x in per_turn),
        edits,
    )


def explained_turn(ident: str) -> tuple[int, float]:
    """Return the key of an explain record's turn, and when it began, from the record's id."""
    key = int(ident[-16:], 16)
    return key, time_of(key)


def split_core(core: str) -> tuple[str, str]:
    """Split an injected core text into the blocks and the summary of evicted messages."""
    start = core.rfind("<conversation_summary ")
    if start < 0:
        return (core, "")
    return (core[:start].rstrip(), core[start:])


def calls_of(explain: ExplainSummary) -> list[ObservedCall]:
    """Return the memory tools that a turn ran, and automatic recall if it searched."""
    observed_calls = [ObservedCall.of(call.name, call.result, call.ms) for call in explain.tools]
    if (ms := explain.timings_ms.get("recall")) is not None:
        observed_calls.append(ObservedCall.of_recall(explain.injected.recall, ms))
    return observed_calls


async def edit_mark(memory: Memory, scope: Scope) -> tuple[int, int] | None:
    """Return what changes with every edit of a scope's blocks; None while nothing is stored.

    Raises StoreUnavailable.
    """

    def work(conn: Any) -> tuple[int, int] | None:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            return None
        return rows.newest_edit(conn, scope_id)

    return await read(memory, work)


async def list_turn_messages(
    memory: Memory, reach: VisibleScopes, key: int
) -> list[rows.RecordedMessage]:
    """List what was said in a turn. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.turn_messages(conn, reach, key))


@dataclass(frozen=True, slots=True)
class ThreadNotes:
    """What belongs to a conversation beside its messages. explains: ids by the turns' keys."""

    summaries: list[rows.StoredSummary]
    forks: list[str]
    explains: dict[int, str]


async def read_thread_notes(
    memory: Memory, conversation: FoundConversation, turns: Sequence[int]
) -> ThreadNotes:
    """Return summaries and forks of a conversation, and the explain records of some turns.

    Raises StoreUnavailable.
    """
    return await read(
        memory,
        lambda conn: ThreadNotes(
            rows.summaries(conn, conversation.scope_id, conversation.key),
            rows.forks(conn, conversation.scope_id, conversation.name),
            rows.explain_ids(conn, turns),
        ),
    )


def _recent_turn(row: rows.RecordedActivity) -> RecentTurn:
    if row.record:
        lines = row.record.split("\n")
    else:
        lines = []
    explain = None
    if lines:
        explain = msgspec.json.decode(lines[-1], type=ExplainSummary)
    if explain is not None:
        del explain.tools[MAX_SHOWN_CALLS:]
    return RecentTurn(
        row.key,
        row.tenant,
        row.user,
        split_memory_name(row.agent)[0],
        row.began_at,
        row.ended_at,
        len(lines) or 1,
        explain,
    )

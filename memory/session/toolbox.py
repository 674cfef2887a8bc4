"""The port behind which the operator's tools stand: a turn offers them, and runs their calls.

A call is made by its place: the number of its round in the turn, and its place in the reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from memory.conversation.messages import Json
from memory.core.tool_rules import TurnEnd
from memory.core.turn_runs import NO_RUNS, TurnRuns
from memory.tools import ToolCall

RunStatus = Literal["ok", "error", "refused", "timeout", "cancelled", "unknown", "replayed"]
Effect = Literal["read", "write"]
# Of arguments' digests, which tell the calls of one turn apart.
DIGEST_CHARACTERS = 16
NO_LONGER_AVAILABLE = "Error: {} is no longer available."


class ResultImage(msgspec.Struct, frozen=True):
    """A picture that a tool returned. data: base64. tool: whose result it is."""

    tool: str
    media_type: str
    data: str
    byte_count: int


class ResultWithImages(msgspec.Struct, frozen=True):
    """A result that is more than text. stub: stands for the pictures where they are not sent."""

    text: str
    images: Sequence[ResultImage]
    stub: str


# What the model is given for a call. A result without pictures is its text.
Result = str | ResultWithImages


def text_of_result(result: Result) -> str:
    """Return the text that stands for a result wherever no picture can."""
    if isinstance(result, str):
        return result
    return f"{result.text}\n{result.stub}"


class ToolOffer(msgspec.Struct, frozen=True):
    """The tools that a request shows. tokens, byte_count: of all of their definitions."""

    definitions: Sequence[Json] = msgspec.field(default_factory=list)
    tokens: int = 0
    byte_count: int = 0


NO_OFFER = ToolOffer()


class StartedRun(msgspec.Struct, frozen=True):
    """A run that is about to start, for the ledger. digest: of its arguments."""

    place: int
    entry: str
    name: str
    version: int
    effect: Effect
    arguments: str
    digest: str
    idempotent: bool = False


class EarlierRun(msgspec.Struct, frozen=True):
    """What an earlier attempt left of a run. is_done: else nobody knows whether it took effect.

    is_ok: it succeeded.
    """

    is_done: bool
    result: str = ""
    is_ok: bool = False


class RunRecord(msgspec.Struct, frozen=True):
    """How a call ended. facts: more for the explain record.

    result: as the model sees it. full_text: all of it, where that was too long to be shown.
    has_succeeded: where it is known apart from the status, as of a run that is replayed.
    """

    run: StartedRun
    status: RunStatus
    result: Result
    milliseconds: float = 0.0
    facts: Mapping[str, Any] = {}
    result_id: str = ""
    full_text: str = ""
    has_succeeded: bool = False

    @property
    def is_ok(self) -> bool:
        """Whether the run succeeded, now or in an earlier attempt."""
        return self.status == "ok" or self.has_succeeded


class RunLedger(Protocol):
    """Keeps what a turn's runs did, so that no retry repeats one that may have taken effect."""

    @property
    def records(self) -> bool:
        """Whether anything is kept of this request."""
        ...

    async def start(self, run: StartedRun) -> EarlierRun | None:
        """Write that a run starts, before it does. Returns what an earlier attempt left of it.

        Raises StoreUnavailable.
        """
        ...

    async def end(self, record: RunRecord) -> None:
        """Write how a started run ended. What the store does not take is written with the round."""
        ...

    def note_cancelled(self, record: RunRecord) -> None:
        """Take note of a call that was given up, for the explain record alone."""
        ...

    async def read_result(self, ident: str) -> str | None:
        """Return a kept result of this memory; None if there is none. Raises StoreUnavailable."""
        ...


async def _refuse_memory(place: int) -> str:
    return "Error: memory tools are not available."


class ToolTurn(msgspec.Struct, frozen=True):
    """What a round's runs need of their turn.

    number: of the round, from 1. places: of the calls in the reply. before: what ran in the user's
    turn before this round, in earlier requests too. run_memory: runs the memory call at a place.
    conversation: its name. explain_id: of the turn's record.
    """

    number: int
    places: Sequence[int]
    ledger: RunLedger
    before: TurnRuns = NO_RUNS
    run_memory: Callable[[int], Awaitable[str]] = _refuse_memory
    conversation: str = ""
    explain_id: str = ""


class ExitRules(Protocol):
    """The rules that act on the turn itself, by what ran in it."""

    def find_end(self, runs: TurnRuns) -> TurnEnd | None:
        """Return how the turn ends after its newest round; None while it goes on."""
        ...

    def list_unmet(self, runs: TurnRuns) -> list[str]:
        """Return the names that are to succeed before the turn ends, and have not, sorted."""
        ...

    def list_withheld(self, names: Collection[str], runs: TurnRuns) -> frozenset[str]:
        """Return those of these tools that are not shown, as no call of them could be allowed."""
        ...


class Toolbox(Protocol):
    """The operator's tools, as one request may use them.

    names: of all calls that are run here. Those of the client are not among them. exits: the rules
    that act on the turn itself, None where there are none. governed_memory: names of memory tools
    whose calls it judges too. is_idle: it has nothing to run but what an epoch shows.
    """

    names: Collection[str]
    is_idle: bool
    exits: ExitRules | None
    governed_memory: frozenset[str]

    @property
    def fingerprint(self) -> object | None:
        """What the choice of tools depends on, to be compared; None if that cannot be told."""
        ...

    def choose_tools(self, blocks: Collection[str]) -> Mapping[str, str]:
        """Return the tools that an epoch beginning now shows, with a digest of each.

        blocks: the labels of the blocks that it shows.
        """
        ...

    def continues(self, tool_digests: Mapping[str, str]) -> bool:
        """Tell whether everything that an epoch shows may be shown as it is."""
        ...

    def offer(self, tool_digests: Mapping[str, str]) -> ToolOffer:
        """Return the definitions of the tools that an epoch shows."""
        ...

    def describe(self, tool_digests: Mapping[str, str]) -> Json:
        """Return what the explain record tells of the tools that an epoch shows."""
        ...

    async def run(self, calls: Sequence[ToolCall], turn: ToolTurn) -> list[RunRecord]:
        """Run calls of one reply; return how each ended, in their order.

        Never raises for a failure of a tool.
        """
        ...

    def describe_replayed(self, call: ToolCall, place: int, result: Result) -> RunRecord:
        """Return the record of a call that an earlier attempt ran."""
        ...

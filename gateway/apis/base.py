"""The protocols by which the turn knows a format."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from gateway.apis.round_result import RoundResult
from gateway.errors import GatewayError
from gateway.http.paths import UpstreamPath
from gateway.http.upstream_request import UpstreamRequest
from gateway.wire.chat import Json
from gateway.wire.placement import Piece
from gateway.wire.sse import SseEvent
from memory import Messages, Repeat, ToolCall
from memory.session.composer import Prompt
from memory.session.toolbox import Result

# Of a tool, as a round takes it in.
RunResult = Result
# Calls or other parts of a round, that are told apart on the event loop.
LIGHT_PARTS = 256
ASKS_AGAIN: tuple[Repeat, Repeat] = ("again", "again")


class TargetFacts(Protocol):
    """What a request is composed for. label: its name here. model: its own name for the model."""

    @property
    def label(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def settings(self) -> Any: ...


class RequestFacts(msgspec.Struct, frozen=True):
    """What the gateway needs to know of a request, whatever its format.

    history: as the memory sees it. tool_names: the client's own. takes_tools: ours may be offered.
    wants_json: the answer is to be one JSON text. manages_context: the client or the provider
    keeps the context small, so nothing is cut here. view: the format's own, for `compose`.
    """

    history: Messages
    tool_names: frozenset[str] = frozenset()
    takes_tools: bool = True
    wants_json: bool = False
    manages_context: bool = False
    view: Any = None


class ReplyMask(Protocol):
    """One answer out of any number of upstream rounds, without the calls of ours.

    alias: the model name to show in place of the upstream's; set before the first event. usage: of
    all rounds together. holds_finish: the end of the round is held back.
    Everything returned is bytes of the stream that the client reads.
    """

    alias: str | None
    holds_finish: bool

    @property
    def usage(self) -> Json | None: ...

    @property
    def ended(self) -> bool:
        """Whether the round has a finish, so that a stream that breaks off after it is complete."""
        ...

    @property
    def over(self) -> bool:
        """Whether the newest event was the round's last."""
        ...

    @property
    def is_long(self) -> bool:
        """Whether the round has so much that others would wait while it is closed."""
        ...

    def fast_forward(self, event_bytes: bytes) -> bytes:
        """Return what to show for an event known by its bytes alone; b"" where it must be read."""
        ...

    async def show(self, event: SseEvent) -> bytes:
        """Return what to show for an event. Raises StreamIncomplete for a malformed one."""
        ...

    def show_whole(self, answer: Any, *, heavy: bool = False) -> list[bytes]:
        """Return the events of an answer that came whole, for a client that wants events.

        heavy: others would wait while the round is closed.
        """
        ...

    def take_whole(self, answer: Any) -> RoundResult | None:
        """Return the result of a whole answer; None if its parts have to be read."""
        ...

    def pass_on(self, answer_bytes: bytes, result: RoundResult) -> None:
        """Note that this is the complete answer, in the upstream's own bytes."""
        ...

    def close(self) -> tuple[bytes, RoundResult]:
        """End the round: return what was still held back, and the round's result."""
        ...

    def replay(self, reply: Json) -> tuple[bytes, RoundResult]:
        """Show a round again that an earlier attempt finished."""
        ...

    def end_with(self, reply: Json) -> tuple[bytes, RoundResult]:
        """Show a reply of the gateway's own, a tool's result, as the end of the answer."""
        ...

    def start_next_round(self) -> bytes | None:
        """Note that another round continues the answer; return what to show before it, if any."""
        ...

    def hold_finish(self, *, holds: bool) -> None:
        """Hold the end of rounds back, or not: one may follow where no call of ours is made."""
        ...

    def run_out(self) -> None:
        """Note that the client's limit of output ends the answer."""
        ...

    def finish(self) -> bytes:
        """Return what was held back until no round follows, except for the end itself."""
        ...

    def end(self, usage: Json | None) -> bytes:
        """Return the end of the stream, once the turn is recorded."""
        ...

    def answers(self) -> list[Json]:
        """Return what the client was shown, as messages for the memory."""
        ...

    def body(self, usage: Json | None, *, long: bool = False) -> bytes | list[bytes]:
        """Return the whole answer for a client that wants no events; in parts if it is long.

        The upstream's own bytes are not held any longer then.
        """
        ...

    def fault(self, error: GatewayError) -> bytes:
        """Return an error after the first byte, as the last event."""
        ...

    def keepalive(self) -> bytes:
        """Return what keeps a quiet stream alive."""
        ...


class HiddenRounds(Protocol):
    """What the client does not see of a turn, in its format.

    messages: they follow the client's own in the next round. recorded: what stands for the answer
    in the next turn; None where the answer stands for itself.
    """

    messages: list[Json]
    recorded: list[Json] | None

    def reassign_ids_of(self, calls: Sequence[Json]) -> None:
        """Give hidden calls new ids where the client's own calls of a reply have theirs."""
        ...

    def send_whole(self) -> bool:
        """Send the rounds so far in full from now on.

        The provider does not continue from its state. Returns False if that is done already, or not
        possible.
        """
        ...

    def add_round(
        self, result: RoundResult, answers: Sequence[RunResult], client: Messages, target: str
    ) -> None:
        """Add a round and our answers to its calls. target: the target that gave it, "" unknown."""
        ...

    def add_reminder(self, result: RoundResult, text: str, by: str) -> None:
        """Add a round that ended too early, and what the model is told behind it."""
        ...

    def drop_images(self) -> bool:
        """Put stubs in place of the pictures of results; False where there are none."""
        ...

    def record_mixed(self) -> None:
        """Record the rounds so far: the client answers the rest of the calls."""
        ...

    def has_room(self, body: Json) -> bool:
        """Tell whether the client's limit of output leaves room for another round."""
        ...

    def record_last(self, result: RoundResult, target: str) -> None:
        """Record the rounds so far and the last of them, in which nothing of ours was run."""
        ...


class RoundParts(msgspec.Struct, frozen=True):
    """What one round is made of.

    body: the client's request. prompt: what is added to it. hidden: the rounds before. tools:
    ours are offered. ask_usage: the usage of a stream is told where it is asked for. view: see
    `RequestFacts`. ask_reasoning: reasoning is told in the form in which it can be sent again.
    """

    body: Json
    prompt: Prompt
    hidden: HiddenRounds
    tools: bool
    ask_usage: bool = True
    view: Any = None
    ask_reasoning: bool = True


# A request in its format's own form, ready to be encoded for a target.
Composed = Any
# What went upstream for the messages of a request, where the next one may go on from it.
SentPieces = Sequence[Piece]

# In the first hidden message of a turn: the format it is in, where that is not chat completions.
FORMAT = "mnemogate_format"


def chat_only(splices: Mapping[int, list[Json]]) -> dict[int, list[Json]]:
    """Return the hidden exchanges that are chat completions.

    A conversation may go on in another format: what was hidden then stays so, and its answers
    stand for themselves.
    """
    return {
        i: exchange for i, exchange in splices.items() if not (exchange and FORMAT in exchange[0])
    }


class ApiFormat(Protocol):
    """One format of requests and replies.

    name: in settings and records. path: below `/v1`.
    """

    name: str
    path: UpstreamPath
    # What an answer is called in errors.
    noun: str
    # A client is shown all rounds' usage; else the last's, the context's size.
    sums_usage: bool
    # Clients know a prompt that is too long by a code, which we add.
    marks_overflow: bool
    # Requests are chat completions, however the answers are shown.
    is_chat: bool
    # A round that was cut ends the turn, whatever of it was shown.
    cut_is_final: bool
    # What a message like the last one is, and what a retry is.
    repeats: tuple[Repeat, Repeat]

    def identity(self, body: Json) -> Json:
        """Return the members of a request that may name its user, as chat completions have them."""
        ...

    def facts(self, body: Json, summaries: Sequence[str] = ()) -> RequestFacts:
        """Return what the gateway needs to know of a request.

        summaries: beginnings of messages in which the client sends a summary of its own in place
        of the history. Raises BadRequest.
        """
        ...

    def own_request(self, body: Json, history: Messages | None) -> Composed:
        """Return the client's own request, without our additions."""
        ...

    def compose(self, parts: RoundParts, target: str) -> Composed:
        """Return the request of a round. target: the label of the one that gets it."""
        ...

    def encode(
        self, composition: Composed, target: TargetFacts, *, frozen: bool, long: bool
    ) -> tuple[UpstreamRequest, SentPieces]:
        """Return the request as it is sent, and what the next turn may go on from.

        frozen: see `UpstreamRequest`. long: it may hold very long strings.
        """
        ...

    def event_error(self, data: bytes) -> Any:
        """Return the error that an event reports, None for none. Raises MalformedReply."""
        ...

    def read_whole(self, data: bytes) -> tuple[Any, Any]:
        """Read a whole answer: what a mask takes, and the error it reports, if any.

        Raises MalformedReply, msgspec.DecodeError, UnicodeDecodeError, RecursionError.
        """
        ...

    def mask(
        self, body: Json, owned: Collection[str], alias: str | None, *, injected: bool, view: Any
    ) -> ReplyMask:
        """Return what shows the replies to a request.

        owned: names of calls that are never shown. injected: the request goes upstream with
        something of ours in it. view: see `RequestFacts`.
        """
        ...

    def hidden_rounds(self) -> HiddenRounds:
        """Return the empty ledger of one turn."""
        ...

    def text_reply(self, body: Json, text: str, before: Json | None) -> Json:
        """Return a whole reply with a text. before: the turn's last reply, if there was one."""
        ...

    def calls(self, result: RoundResult) -> list[ToolCall]:
        """Return the calls of ours in a round, as the memory takes them."""
        ...

    def error_body(self, error: GatewayError, request: str) -> bytes:
        """Return an error of ours as a body. request: its name."""
        ...

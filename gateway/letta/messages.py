"""A message to an agent: one turn of the gateway, with the agent's own conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from gateway.chat.intake.called_agent import CalledAgent
from gateway.chat.intake.request import KnownCall, MemoryPath, read_turn_input
from gateway.chat.intake.request_link import link_request
from gateway.chat.turn.degraded import DegradedProducer
from gateway.chat.turn.endpoint import dispatcher_of, entry_of, serve
from gateway.chat.turn.producer import TurnProducer, begin_turn
from gateway.config.agents import PREFIX
from gateway.errors import GatewayError
from gateway.http.access_log import BAD_REQUEST, LEFT, current_line
from gateway.http.asgi import Receive
from gateway.http.json_thread import run_heavy
from gateway.http.response import ResponseProducer
from gateway.letta.agent_queue import QueuedTurn
from gateway.letta.agents import look_up
from gateway.letta.call import LettaCall, listable
from gateway.letta.errors import Unprocessable, wrong_type
from gateway.letta.history import CONVERSATION
from gateway.letta.ids import letta_id
from gateway.letta.models import served_model
from gateway.letta.profile import door_members, refuse_members
from gateway.letta.project import PROJECT
from gateway.letta.reply import ItemOptions, LettaFormat, QuietProducer
from gateway.letta.route import LettaRoute
from gateway.letta.sent import as_context, read_messages, sent_messages
from gateway.pipeline import accounted_response
from gateway.routing.agents import Agent, check_call
from gateway.state import HEADERS
from gateway.wire.chat import Json, encode
from gateway.wire.headers import Pairs
from gateway.wire.json_weight import LIGHT_BYTES
from memory import keyed_hash

REFUSED = ("client_tools", "return_token_ids")
USED = frozenset(
    """
    messages input max_steps streaming stream_tokens include_pings include_return_message_types
    override_model override_system
    """.split()  # noqa: SIM905
)
# Of the client's request, not of the one that is made of it.
REPLACED = frozenset(
    {
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"transfer-encoding",
        b"x-memory-conversation",
        PROJECT,
    }
)


async def send(call: LettaCall, ident: str) -> None:
    """Answer a message, whole or as events."""
    await _send(call, ident, streams=False)


async def stream(call: LettaCall, ident: str) -> None:
    """Answer a message as events."""
    await _send(call, ident, streams=True)


async def _send(call: LettaCall, ident: str, *, streams: bool) -> None:
    agent = await look_up(call, ident)
    check_call(call.principal, agent)
    body = await call.body()
    refuse_members(body, REFUSED)
    call.drop(n for n in body if n not in USED and body[n] is not None)
    turn_options = Wanted(call, body)
    agent = _overridden(call, agent, turn_options)
    options = turn_options.options(call, agent, streams=streams or turn_options.flag("streaming"))
    inner_request = await _inner_request(call, agent, body, options)
    turn = QueuedTurn(call, agent, _digest(body))
    try:
        await _answer(call, CalledAgent(agent, True), inner_request, LettaFormat(options), turn)
        if BAD_REQUEST <= current_line().status != LEFT:
            turn.note_failure()
    except GatewayError:
        turn.note_failure()
        raise
    finally:
        turn.end()


class Wanted:
    """The members of a request beside its messages."""

    def __init__(self, call: LettaCall, body: Json) -> None:
        self._call = call
        self._body = body

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._body.get(name)
        if value is not None and not isinstance(value, bool):
            raise wrong_type(name, value, bool)
        if value is None:
            return default
        return value

    def word(self, name: str) -> str:
        value = self._body.get(name)
        if value is not None and not isinstance(value, str):
            raise wrong_type(name, value, str)
        return value or ""

    @property
    def max_steps(self) -> int | None:
        """The rounds that the client allows. Raises Unprocessable."""
        value = self._body.get("max_steps")
        if value is not None and (type(value) is not int or value < 1):
            raise Unprocessable("`max_steps` must be a number from 1.", param="max_steps")
        return value

    def options(self, call: LettaCall, agent: Agent, *, streams: bool) -> ItemOptions:
        """Return how the answer is wanted. Raises Unprocessable."""
        kinds = self._body.get("include_return_message_types")
        if kinds is not None and not isinstance(kinds, list):
            raise wrong_type("include_return_message_types", kinds, list)
        return ItemOptions(
            letta_id("run", call.id),
            streams,
            self.flag("stream_tokens"),
            self.flag("include_pings", True),
            frozenset(map(str, kinds)) if kinds else None,
            agent.settings.max_rounds or call.gateway.settings.memory.max_rounds,
        )


def _overridden(call: LettaCall, agent: Agent, turn_options: Wanted) -> Agent:
    """Return an agent as one request changes it. Raises UnknownModel, Forbidden, Unprocessable."""
    changes: Json = {}
    if model := turn_options.word("override_model"):
        changes["model"] = served_model(call, model)
    if system := turn_options.word("override_system"):
        changes["instruction"] = system
    max_steps = turn_options.max_steps
    usual_steps = agent.settings.max_rounds or call.gateway.settings.memory.max_rounds
    if max_steps is not None and max_steps < usual_steps:
        changes["max_rounds"] = max_steps
    if not changes:
        return agent
    settings = agent.settings.model_copy(update=changes)
    # What is kept of an agent, its routes and its policy, is kept by its id.
    override_hash = keyed_hash(
        b"override", encode({k: v for k, v in changes.items() if k != "max_rounds"})
    )
    return replace(agent, id=f"{agent.id}/{override_hash.hex()}", settings=settings)


class InnerRequest(msgspec.Struct, frozen=True):
    """The chat completion that a message is sent as. scope, receive: of ASGI."""

    scope: Any
    receive: Receive


async def _inner_request(
    call: LettaCall, agent: Agent, body: Json, options: ItemOptions
) -> InnerRequest:
    """Return the chat completion that answers a request. Raises Unprocessable."""
    new_messages = sent_messages(body, call.drop)
    members_of_door = door_members(agent)
    if members_of_door.autoclear:
        name = f"{CONVERSATION}-{call.id}"
        first_messages = members_of_door.initial and read_messages(
            members_of_door.initial, "initial_message_sequence", call.drop
        )
        messages = [*(first_messages or ()), *new_messages]
    else:
        name = CONVERSATION
        messages = as_context(new_messages)
    completion_request = {
        "model": PREFIX + agent.name,
        "messages": messages,
        "stream": options.stream,
    }
    heavy = call.size > LIGHT_BYTES
    if heavy:
        content = await run_heavy(encode, completion_request)
    else:
        content = encode(completion_request)
    headers = [(k, v) for k, v in call.scope["headers"] if k.lower() not in REPLACED]
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(content)),
        (b"x-memory-conversation", name.encode()),
    ]
    if PROJECT in call.headers:
        headers.append((PROJECT, call.headers[PROJECT]))
    scope = {k: v for k, v in call.scope.items() if k != HEADERS}
    scope |= {"headers": headers, "query_string": b""}
    return InnerRequest(scope, _receive_first(content, call.receive))


def _receive_first(content: bytes, receive: Receive) -> Receive:
    """Return what receives a body, then what follows the client's own."""
    unread_messages = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive_next() -> Mapping[str, Any]:
        return unread_messages.pop() if unread_messages else await receive()

    return receive_next


def _digest(body: Json) -> bytes:
    return keyed_hash(b"sent", encode(body))


async def _answer(
    call: LettaCall,
    called_agent: CalledAgent,
    inner_request: InnerRequest,
    letta_format: LettaFormat,
    turn: QueuedTurn,
) -> None:
    """Run the turn, by the path of a chat completion that calls the agent."""
    gateway = call.gateway
    streams = letta_format.items.options.stream
    known_call = KnownCall(call.principal, called_agent)
    path = MemoryPath(letta_format, known_call=known_call)
    request = await read_turn_input(gateway, inner_request.scope, inner_request.receive, path)
    request = await link_request(gateway, request)
    forward = dispatcher_of(gateway, request)
    forward.dropped = [*request.dropped_members, *listable(call.dropped_members)]

    async def begin() -> ResponseProducer:
        await turn.begin()
        letta_format.take_again(unanswered=turn.repeats_unanswered)
        producer: ResponseProducer = PlainAnswer(gateway, request, forward)
        if request.uses_memory:
            producer = await begin_turn(gateway, request, forward, serve)
            if isinstance(producer, TurnProducer):
                letta_format.items.begin(producer.turn_key)
        if streams:
            return QuietProducer(producer)
        return producer

    response = accounted_response(gateway, forward, entry_of(request), begin)
    await response(inner_request.scope, inner_request.receive, call.send)


class PlainAnswer(DegradedProducer):
    """An answer without memory, where a policy allows none."""

    @property
    def memory(self) -> str:
        return "off"

    def extra_headers(self) -> Pairs:
        reason = self._request.off_reason or self._request.too_heavy
        return [
            (b"x-memory-status", b"off"),
            (b"x-memory-reason", reason.encode()),
            *self._forward.target_headers(self._request.started_at),
        ]


ROUTES = (
    LettaRoute("POST", "agents/*/messages", send, "Send messages to an agent", of_tenant=False),
    LettaRoute("POST", "agents/*/messages/stream", stream, "The same, as events", of_tenant=False),
)

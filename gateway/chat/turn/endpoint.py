"""Chat completions, Responses and Messages: read a request, choose who answers it, answer.

Requests with memory run as a turn, the others go to the relay.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from gateway.apis.responses.responses_format import RESPONSES
from gateway.chat.intake.body import ModelMissing
from gateway.chat.intake.request import (
    CHAT_PATH,
    MemoryPath,
    TurnInput,
    keep_known,
    read_turn_input,
)
from gateway.chat.intake.request_link import link_request
from gateway.chat.turn.commands import command_of, to_command
from gateway.chat.turn.count import count_response
from gateway.chat.turn.nameless_relay import relay_nameless
from gateway.chat.turn.passing import query_of, relay_turn
from gateway.chat.turn.producer import begin_turn
from gateway.errors import GatewayError, TooLarge
from gateway.http.asgi import UNEXPECTED, EarlyErrorResponse, Receive, Send, respond_error
from gateway.http.paths import UpstreamPath
from gateway.http.response import GatewayResponse, ResponseProducer
from gateway.pipeline import RequestInfo, accounted_response, affinity_key, new_dispatcher
from gateway.routing.dispatcher import Dispatcher
from gateway.state import REQUEST_ID, GatewayState
from gateway.usage.meter import BYTES_A_TOKEN
from gateway.wire.json_weight import LIGHT_BYTES

log = logging.getLogger("mnemogate")


async def serve(
    gateway: GatewayState,
    scope: Any,
    receive: Receive,
    send: Send,
    path: MemoryPath | None = None,
) -> None:
    """Answer a request over ASGI, also if it fails."""
    path = path or CHAT_PATH
    name = scope[REQUEST_ID]
    base = [(b"x-mnemogate-request-id", name.encode())]
    try:
        request = await read_turn_input(gateway, scope, receive, path)
        if request.known is None:
            request = await link_request(gateway, request)
            if path.is_plain_chat:
                keep_known(gateway, scope, request)
        if not path.count and (command := command_of(gateway, request)) is not None:
            request = to_command(gateway, request, command)
        response = response_to(gateway, request, path.count)
    except ModelMissing as e:
        await relay_nameless(gateway, scope, e, send)
    except TooLarge as e:
        await EarlyErrorResponse(e, base)(scope, receive, send)
    except GatewayError as e:
        await respond_error(send, e, base)
    except Exception:
        # A defect of ours. The client gets an answer with the request's id, the log the rest.
        log.exception("unexpected failure (%s)", name)
        await respond_error(send, GatewayError(UNEXPECTED, code="internal_error"), base)
    else:
        await response(scope, receive, send)


def response_to(
    gateway: GatewayState, request: TurnInput, count: UpstreamPath | None = None
) -> GatewayResponse:
    """Return the ASGI response to a chat request; nothing has begun yet.

    count: see `MemoryPath`.
    """
    forward = dispatcher_of(gateway, request)
    if count:
        return count_response(gateway, request, forward, (count, entry_of(request)))
    stored = None if request.api.is_chat else gateway.stored
    if stored is not None and not stored.may_compact(request):
        stored = None
    if stored is not None:
        request = replace(request, mode="off", off_reason="background")
    entry = entry_of(request)
    begin: Callable[[], Awaitable[ResponseProducer]]
    if request.mode != "off" and not request.too_heavy:
        begin = partial(begin_turn, gateway, request, forward, serve)
    else:
        relayed = relay_turn(gateway, request, forward)
        begin = relayed.ready
        if stored is not None:
            begin = partial(stored.compact, gateway, request, forward, relayed)
    return accounted_response(gateway, forward, entry, begin)


def entry_of(request: TurnInput) -> RequestInfo:
    """Return what the books know of a request before it begins."""
    off = request.mode == "off"
    entry = RequestInfo(
        request.id,
        request.principal,
        request.api.path,
        request.started_at,
        request.body["model"],
        request.mode,
        None if off else request.user,
        request.total_output if _is_reserved(request) else None,
        request.api is RESPONSES and request.runs_in_background,
    )
    if request.agent_call.agent is not None:
        entry.profile = request.agent_call.agent.name
    if request.agent_call.chain is not None:
        entry.parent = request.agent_call.chain.parent
    name_memory(entry, request)
    return entry


def _is_reserved(request: TurnInput) -> bool:
    """Tell whether it matters what an answer may have, before it is there."""
    principal = request.principal
    limits = principal.limits
    is_limited = limits.rpm or limits.tpm or limits.concurrent or principal.budget.usd
    return bool(is_limited) or request.runs_in_background


def name_memory(entry: RequestInfo, request: TurnInput) -> None:
    """Let the answer name whose memory it is about, where that is not plainly the user's."""
    if request.mode != "off":
        entry.agent = request.agent
        entry.project = request.project
        if request.agent_call.agent is None:
            entry.owner = request.user
        else:
            entry.owner = request.owner


def dispatcher_of(gateway: GatewayState, request: TurnInput) -> Dispatcher:
    """Return what carries the request to the targets of its route."""
    principal = request.principal
    owner = request.user
    if principal.paths is None and (gateway.settings.single_user or not request.uses_memory):
        # In an account that one person uses, their key passes as it is.
        owner = None
    forward = new_dispatcher(gateway, request.route, request.headers, principal, owner)
    forward.wire = request.api
    forward.dropped = request.dropped_members
    if request.whole_facts is not None:
        history = request.whole_facts.history
        # Of a chat completion, new messages are sent as they came, where it is known how they stand
        # in the body; earlier ones may be decoded.
        source = history.source if request.api.is_chat else None
        size = len(request.raw_body)
        if source is not None:
            # Tools, for one, are written anew.
            other_size = size - (source.end - source.start) if source.end else 0
            is_long = other_size > LIGHT_BYTES or (size > LIGHT_BYTES and history.is_long)
            forward.writes_off_loop = is_long
        else:
            forward.writes_off_loop = history.heavy
    # As the relay does; what chat completions take is known.
    if not request.api.is_chat:
        forward.query = query_of(request)
    forward.meter.guess = len(request.raw_body) // BYTES_A_TOKEN + 1
    if gateway.settings.routing.sticky:
        caller = f"{principal.tenant}\x00{request.user}"
        forward.conversation = affinity_key(request.messages, request.conversation, caller)
    return forward

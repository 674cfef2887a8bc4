"""One request with memory, read once: who calls, whose memory, which mode, what for.

Everything that a client can say in headers, path or body is looked at here and nowhere else, in
the order in which clients know the faults: credentials, body, mode, model, user, conversation,
agent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.apis.base import ApiFormat, RequestFacts
from gateway.apis.chat.chat_format import CHAT
from gateway.apis.client_profiles import ClientProfile
from gateway.apis.search.vendor_search import VendorSearch
from gateway.auth.authenticator import Principal
from gateway.auth.user_resolver import may_act_for
from gateway.chat.intake.body import BodySource, ReadBody, read_members
from gateway.chat.intake.called_agent import HEADER as AGENT
from gateway.chat.intake.called_agent import NO_AGENT, CalledAgent, called_agent
from gateway.chat.intake.memory_mode import (
    UNREADABLE,
    MemoryMode,
    lower,
    mode_at_most,
    mode_in_force,
)
from gateway.chat.intake.named_project import HEADER as PROJECT
from gateway.chat.intake.named_project import named_project
from gateway.chat.intake.request_headers import (
    CONVERSATION,
    Headers,
    conversation_of,
    retry_signals,
)
from gateway.config.agents import PREFIX
from gateway.errors import BadRequest, Unavailable
from gateway.http.asgi import Receive
from gateway.http.json_thread import run_by_weight
from gateway.http.known_requests import MEMBERS_BYTES
from gateway.http.paths import UpstreamPath
from gateway.http.request_body import read_body
from gateway.routing.router import Route, Target
from gateway.state import REQUEST_ID, GatewayState, headers_of
from gateway.usage.pricing import MAX_COUNT
from gateway.wire.chat import Json
from gateway.wire.model_field import model_for_certain
from memory import SHIPPED_HARNESS, Harness, Messages, TurnRequest

MIB = 1 << 20


class KnownCall(msgspec.Struct, frozen=True):
    """Who calls which agent, where that is known before the request is read.

    user: whose turn it is, "" where the request tells.
    """

    principal: Principal
    agent_call: CalledAgent
    user: str = ""


class MemoryPath(msgspec.Struct, frozen=True):
    """A path with memory: its format, and the user that it names (`/u/{user}/v1/...`).

    count: the path below `/v1` that counts a request's tokens, where that alone is asked.
    """

    api: ApiFormat = CHAT
    user: str | None = None
    count: UpstreamPath | None = None
    known_call: KnownCall | None = None

    @property
    def is_plain_chat(self) -> bool:
        """Whether the path tells nothing but that it is a chat completion."""
        return self.api.is_chat and self.user is None and self.known_call is None


CHAT_PATH = MemoryPath()
NOTHING_DROPPED: Sequence[str] = ()


class KnownMembers(msgspec.Struct):
    """What was made of a request's headers and members for one target, for those like it.

    ask: the memory's view, without what came with one request.
    """

    target: Target | None = None
    ask: TurnRequest | None = None


class TurnInput(msgspec.Struct, frozen=True):
    """A request as the gateway understands it.

    headers: by lower-case name, for what of them goes upstream. path_user: from `/u/{user}`. raw:
    the body's bytes, decompressed. started_at: by perf_counter. body: what the bytes say. mode: the
    one in force, "off" for a chat UI's own prompts too. user: None where nobody is named.
    conversation: the one that the client names. resends: its program names it, and sends the
    history itself. too_heavy: why memory cannot look at the request in time, "" where it can.
    off_reason: why its memory is off. agent, idempotency_key, is_retry (the client says that it
    tried before): empty where memory has no part. api: its format. whole_facts: what that says of
    it, None where the body was not read whole. query: of its URL. chained: the stored response it
    goes on from, by the name that the client knows. kept_items: the client's own items, where the
    response is to be kept here. thread: the conversation kept here that it is in. agent_call: the
    agent's profile, None where it has none. dropped_members: members of its own that the profile
    does not let it set. harness: what its program puts around its user's words. project: in which
    it is, "" for none. search: a vendor's search tool that the operator's own stands in for.
    known: where all but its messages is as in a request before it, and was checked then; else None.

    A Struct, since a dataclass of so many members takes six times as long to make.
    """

    id: str
    principal: Principal
    headers: Headers
    path_user: str | None
    raw_body: bytes
    started_at: float
    body: Json
    route: Route
    mode: str
    user: str | None
    conversation: str | None
    too_heavy: str
    agent: str
    idempotency_key: str
    is_retry: bool
    api: ApiFormat
    whole_facts: RequestFacts | None
    off_reason: str = ""
    query: bytes = b""
    resends: bool = False
    harness: Harness = SHIPPED_HARNESS
    chained: str = ""
    kept_items: list[Any] | None = None
    thread: str = ""
    agent_call: CalledAgent = NO_AGENT
    dropped_members: Sequence[str] = ()
    project: str = ""
    search: VendorSearch | None = None
    known: KnownMembers | None = None

    @property
    def model(self) -> str:
        """The model that is to answer."""
        agent_call = self.agent_call
        return (agent_call.model if agent_call.agent is not None else "") or self.body["model"]

    @property
    def runs_in_background(self) -> bool:
        """Whether a response goes on at its provider without its client."""
        return bool(self.body.get("background")) and self.body.get("store") is not False

    @property
    def owner(self) -> str | None:
        """Whose memory it is about; None where nobody's."""
        agent = self.agent_call.agent
        if agent is None:
            return self.user
        return agent.owner(self.user)

    @property
    def facts(self) -> RequestFacts:
        """What the format says of the request. Only for one that uses memory."""
        if self.whole_facts is None:
            raise ValueError("the body was not read whole")
        return self.whole_facts

    @property
    def uses_memory(self) -> bool:
        """Whether memory has a part in the answer."""
        return self.mode != "off" and not self.too_heavy

    @property
    def messages(self) -> object:
        """What was said, as far as it was read: the memory's view of it, or the body's own."""
        if self.whole_facts is not None:
            return self.whole_facts.history
        return self.body.get("messages") or self.body.get("input")

    @property
    def wants_stream(self) -> bool:
        """Whether the client asked for events."""
        return bool(self.body.get("stream"))

    @property
    def max_output(self) -> int | None:
        """The tokens that one choice may have, where the request says so."""
        for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
            value = self.body.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                # What is sent on may be more: here it is reckoned with.
                return min(value, MAX_COUNT)
        return None

    @property
    def total_output(self) -> int | None:
        """The tokens that all choices together may have, where the request says so."""
        choice_count = self.body.get("n")
        choice_tokens = self.max_output
        if choice_tokens and isinstance(choice_count, int) and choice_count > 1:
            return min(choice_tokens * choice_count, MAX_COUNT)
        return choice_tokens

    @property
    def conversation_as_sent(self) -> bytes:
        """The conversation as the client spelt it, b"" where it named none."""
        return self.headers.get(b"x-memory-conversation", b"")


async def _route(
    gateway: GatewayState,
    body: ReadBody,
    principal: Principal,
    raw_body: bytes,
    agent_call: CalledAgent,
) -> Route:
    """Return the route of the model that is asked for. Raises UnknownModel, Forbidden, BadRequest.

    For a limited key it matters which model that is, so the body must name one alone.
    """
    name = body.members["model"]
    if agent_call.agent is not None and agent_call.by_model:
        route = gateway.router.route_agent(agent_call.agent, name, principal)
    else:
        route = gateway.router.route(name, principal)
    # See `Principal.limited`.
    if "*" not in principal.models or principal.budget.usd > 0:
        await run_by_weight(raw_body, model_for_certain, raw_body, b"application/json")
    return route


async def read_turn_input(
    gateway: GatewayState, scope: Any, receive: Receive, path: MemoryPath = CHAT_PATH
) -> TurnInput:
    """Read a request from its connection.

    Raises GatewayError for every fault that can be found without an upstream.
    """
    started_at, name = time.perf_counter(), scope[REQUEST_ID]
    headers = headers_of(scope)
    path_user, api, known_call = path.user, path.api, path.known_call
    principal = gateway.keys.caller(headers) if known_call is None else known_call.principal
    raw_body = await read_body(receive, headers, int(gateway.settings.server.max_body_mib * MIB))
    mode = mode_at_most(headers, principal)
    caller = principal.tenant, principal.key, headers.get(b"x-memory-user"), path_user
    source = BodySource(name, api, client := gateway.clients.find(headers), caller)
    body = await read_members(gateway, source, raw_body, whole=mode.name != "off")
    if path.is_plain_chat and (known := _find_known(gateway, scope, principal, body)) is not None:
        own = {"principal": principal, "raw_body": raw_body, "started_at": started_at}
        return _renew(known, scope, body, own)
    agent_call = NO_AGENT if known_call is None else known_call.agent_call
    dropped_names = NOTHING_DROPPED
    if known_call is None and (body.members["model"].startswith(PREFIX) or AGENT in headers):
        agent_call = await called_agent(gateway, principal, body.members["model"], headers, mode)
    if agent_call is not NO_AGENT:
        mode, body, dropped_names = agent_call.apply(api, mode, body)
    route = await _route(gateway, body, principal, raw_body, agent_call)
    sources = headers, path_user, _identity(gateway, principal, api, body.members)
    user = known_call.user if known_call is not None else None
    user = may_act_for(principal, user) if user else gateway.names.user(principal, *sources)
    asker = _Asker(principal, user, route, headers, client, agent_call)
    decision = await _decide(gateway, body, mode, asker)
    signals = _signals(agent_call, headers) if decision.uses_memory else ("", "", False)
    connection = (name, principal, headers, path_user, raw_body, started_at, body.members)
    choices = (route, decision.mode.name, user, decision.conversation, decision.body.too_heavy)
    options = (decision.mode.off_reason, scope.get("query_string", b""), decision.resends)
    members = (*connection, *choices, *signals, api, decision.body.facts, *options, client.harness)
    turn_input = TurnInput(*members, project=decision.project)
    if agent_call is NO_AGENT:
        return turn_input
    return msgspec.structs.replace(turn_input, agent_call=agent_call, dropped_members=dropped_names)


def _find_known(
    gateway: GatewayState, scope: Any, principal: Principal, body: ReadBody
) -> TurnInput | None:
    """Return a request before this one that differs in its messages alone, see `keep_known`.

    None where it has to be read whole: the messages may say that a chat UI asks for itself.
    """
    if body.facts is None or scope.get("query_string") or not gateway.memory.policies.is_unused:
        return None
    history = body.facts.history
    name = _name_of(gateway, scope, history)
    known: TurnInput | None = gateway.known_requests.decisions.get(name)
    if known is None or not _is_same_caller(known.principal, principal):
        return None
    if gateway.background.matches(history):
        return None
    return known


def _name_of(gateway: GatewayState, scope: Any, history: Messages) -> int:
    """Return what names requests like this one, see `KnownRequests.name`."""
    members = history.unchecked_within(MEMBERS_BYTES)
    return gateway.known_requests.name(scope["headers"], members)


def _without_key(principal: Principal) -> Principal:
    """Return a principal to keep: without its key, if that is a client's own."""
    if principal.authorization is None:
        return principal
    return msgspec.structs.replace(principal, authorization=None)


def _is_same_caller(known: Principal, principal: Principal) -> bool:
    """Tell whether a key is the one before, and may do what that might.

    Of a client's own key the tenant is made, and nothing else differs between two of these.
    """
    if principal.authorization is not None:
        return known.key == principal.key and known.tenant == principal.tenant
    return known is principal or known == principal


def _renew(known: TurnInput, scope: Any, body: ReadBody, members: Mapping[str, Any]) -> TurnInput:
    """Return a request with the decisions of one before it. members: more that is its own."""
    facts = body.facts
    assert facts is not None  # noqa: S101 - of a known request
    facts.history.after.checked = True
    return msgspec.structs.replace(
        known,
        id=scope[REQUEST_ID],
        headers=headers_of(scope),
        body=body.members,
        whole_facts=facts,
        **members,
    )


def keep_known(gateway: GatewayState, scope: Any, request: TurnInput) -> None:
    """Keep what was decided of a request that was read and checked whole.

    Only of one in which no header and no member but its messages has to be looked at again: it
    names neither a conversation nor an agent, a project, a retry or what is stored.
    """
    facts = request.whole_facts
    if facts is None or not facts.history.after.checked or not _is_plain(request):
        return
    if scope.get("query_string") or gateway.clients.find(request.headers).utility:
        return
    name = _name_of(gateway, scope, facts.history)
    if name:
        nothing: Json = {}
        kept = msgspec.structs.replace(
            request,
            principal=_without_key(request.principal),
            headers=nothing,
            raw_body=b"",
            body=nothing,
            whole_facts=None,
            known=KnownMembers(),
        )
        gateway.known_requests.decisions.put(name, kept)


def _is_plain(request: TurnInput) -> bool:
    """Tell whether what was decided of a request is what is decided of most."""
    names = (request.conversation, request.chained, request.thread, request.project)
    retries = request.idempotency_key or request.is_retry
    is_usual = request.mode == "full" and request.agent == "default" and not request.too_heavy
    is_own = request.agent_call is NO_AGENT and request.search is None and not request.resends
    return is_usual and is_own and not retries and not any(names)


def _signals(agent_call: CalledAgent, headers: Headers) -> tuple[str, str, bool]:
    """Return the agent whose memory it is, the idempotency key, and whether it is a retry."""
    is_default = agent_call is NO_AGENT and AGENT not in headers
    return ("default" if is_default else agent_call.name(headers), *retry_signals(headers))


def _identity(gateway: GatewayState, principal: Principal, api: ApiFormat, members: Json) -> Json:
    """Return the members that may name the user.

    Where one person uses this machine, `metadata.user_id`, which names the machine, is none.
    """
    if api.name == "messages" and principal.default_user and gateway.settings.single_user:
        return {}
    return api.identity(members)


class _Asker(NamedTuple):
    """The caller, the model and the client program."""

    principal: Principal
    user: str | None
    route: Route
    headers: Headers
    client: ClientProfile
    agent_call: CalledAgent = NO_AGENT

    @property
    def owner(self) -> str | None:
        agent = self.agent_call.agent
        if agent is None:
            return self.user
        return agent.owner(self.user)


class _Decided(NamedTuple):
    """The mode in force, what counts of the body, and the conversation that is named.

    resends, project: see `TurnInput`.
    """

    mode: MemoryMode
    body: ReadBody
    conversation: str | None = None
    resends: bool = False
    project: str = ""

    @property
    def uses_memory(self) -> bool:
        return self.mode.name != "off" and not self.body.too_heavy


async def _decide(
    gateway: GatewayState, body: ReadBody, mode: MemoryMode, asker: _Asker
) -> _Decided:
    """Decide what memory may do. Raises BadRequest, Forbidden, Unavailable."""
    principal, user, route, headers, client = asker[:5]
    settings = gateway.settings.memory
    why_heavy = body.too_heavy
    refusal = None
    facts = body.facts
    if facts is not None and (
        (client.utility and client.asks_for_itself(headers, body.members, facts))
        or gateway.background.matches(facts.history)
    ):
        return _Decided(MemoryMode("off", "background"), body)
    try:
        mode = await mode_in_force(gateway, mode, principal, route, user)
    except Unavailable as e:
        why_heavy = UNREADABLE
        refusal = e
    if mode.name == "off":
        return _Decided(mode, ReadBody(body.members))
    conversation = None
    resends = False
    if CONVERSATION in headers or client.conversations:
        program = client if facts is not None else None
        conversation, resends = conversation_of(headers, principal, asker.owner, program)
    if why_heavy and (settings.on_error == "fail" or (conversation and not resends)):
        raise refusal or _memory_needed(why_heavy)
    if settings.conversations == "named" and asker.owner is not None and conversation is None:
        mode = lower(mode, "read")
    if mode.name == "off":
        return _Decided(mode, ReadBody(body.members))
    body = ReadBody(body.members, body.facts, why_heavy)
    decision = _Decided(mode, body, conversation, resends)
    # The usual case, without a call.
    if PROJECT not in headers and not client.projects:
        return decision
    project = await named_project(gateway, principal, headers, client, (user, asker.owner))
    return decision._replace(project=project)


def _memory_needed(too_heavy: str) -> BadRequest:
    return BadRequest(
        f"This request needs its memory, which cannot look at it in time: {too_heavy}. Send less."
    )

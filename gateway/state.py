"""The state of the application: everything a request needs. A reload replaces it as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any
from weakref import WeakValueDictionary

from gateway.apis.client_profiles import ClientProfiles
from gateway.auth.authenticator import Authenticator
from gateway.auth.credential_cache import CredentialCache
from gateway.auth.keyless_guard import (
    KeylessGuard,
    is_local_host,
    is_local_peer,
    sign_of_a_proxy,
    sign_of_another_user,
)
from gateway.auth.user_resolver import UserResolver
from gateway.config.settings import Settings
from gateway.http.known_requests import KnownRequests
from gateway.http.parse_cache import RequestParseCache
from gateway.http.response import GatewayResponse
from gateway.limits.limiter import Limiter
from gateway.limits.running_imports import RunningImports
from gateway.models.tokenizers import Vocabularies
from gateway.redis_client import RedisClient
from gateway.routing.agents import AgentDirectory
from gateway.routing.context_windows import ContextWindows
from gateway.routing.router import Router
from gateway.routing.selector import TargetSelector
from gateway.storage.bookings import PendingBookings
from gateway.storage.kept_sizes import KeptSizes
from gateway.storage.responses import ResponseTable
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.traces import TurnTraces
from gateway.tools.registry import ToolRegistry
from gateway.tools.skill_tool import SkillTools
from gateway.usage.log import UsageLog
from gateway.wire.headers import merge_headers
from gateway.wire.ui_prompts import UiPromptDetector
from memory import Cache, Memory, Worker

REQUEST_ID = "mnemogate.request_id"
HEADERS = "mnemogate.headers"
# Bounded: behind `*`, clients choose the names.
LACKS_BYTES, LACKS_EACH = 1 << 19, 200
# Then no more: whoever invents names must not fill the log.
MOST_TOLD = 500
UNANSWERED_BYTES = 1 << 20
UNANSWERED_EACH = 400
Lacks = Cache[str, tuple[int, float]]


def no_lacks() -> Lacks:
    """Return an empty record of what targets reject."""
    return Cache(LACKS_BYTES, LACKS_EACH, lambda name, _: getsizeof(name))


@dataclass(slots=True, weakref_slot=True)
class RequestQueue:
    """Those that follow each other. requests: that are not answered yet."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0


@dataclass(slots=True)
class ServerState:
    """What survives a reload.

    busy: number of requests in progress. live: their responses. relayed: programs and paths
    without memory that the log has told of, at most `MOST_TOLD`. jobs: tasks that end with it.
    queues: by which requests to one agent follow each other. unanswered: digests of the
    last messages to agents, where they ended with an error. calls: what each key's calls over MCP
    wait for, by tenant and name.
    """

    bookings: PendingBookings

    draining: bool = False
    busy: int = 0
    live: set[GatewayResponse] = field(default_factory=set)
    relayed: set[tuple[str, str]] = field(default_factory=set)
    jobs: set[asyncio.Task[None]] = field(default_factory=set)
    queues: WeakValueDictionary[tuple[str, str], RequestQueue] = field(
        default_factory=WeakValueDictionary
    )
    calls: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(
        default_factory=WeakValueDictionary
    )
    unanswered: Cache[tuple[str, str], bytes] = field(
        default_factory=lambda: Cache(UNANSWERED_BYTES, UNANSWERED_EACH)
    )


@dataclass(frozen=True, slots=True)
class StoredRoom:
    """What a gateway does with stored objects of the Responses API, by `gateway.chat.stored`.

    link: returns a request with what it goes on from. keep: returns what keeps a turn's response.
    relay: returns what forwards a request whose provider stores the response. may_compact: tells
    whether a request may ask for a compaction. compact: returns what answers such a request. book:
    asks for responses in the background as long as the gateway runs.
    """

    link: Callable[..., Awaitable[Any]]
    keep: Callable[..., Any]
    relay: Callable[..., Any]
    may_compact: Callable[..., bool]
    compact: Callable[..., Awaitable[Any]]
    book: Callable[..., Coroutine[Any, Any, None]]


@dataclass(slots=True)
class GatewayState:
    """Everything a request needs, wired in `gateway.app`.

    A reload makes another state with the same memory and process; a request keeps the state it
    began with. lacks: what each target was seen to reject (1: tools, 2: any addition), and when.
    stored: None for a gateway without that room. successor: the state that a reload put in place.
    """

    settings: Settings
    keys: Authenticator
    router: Router
    memory: Memory
    secret: bytes
    background: UiPromptDetector
    worker: Worker
    credentials: CredentialCache
    vocabularies: Vocabularies
    choice: TargetSelector
    limits: Limiter
    usage: UsageLog
    responses: ResponseTable
    kept_sizes: KeptSizes
    windows: ContextWindows
    metrics: Metrics
    process: ServerState
    toolbox: ToolRegistry
    shared: RedisClient | None = None
    traces: TurnTraces | None = None
    stored: StoredRoom | None = None
    lacks: Lacks = field(default_factory=no_lacks)
    names: UserResolver = field(init=False)
    clients: ClientProfiles = field(init=False)
    agents: AgentDirectory = field(init=False)
    skills: SkillTools = field(init=False)
    prefixes: RequestParseCache = field(default_factory=RequestParseCache)
    known_requests: KnownRequests = field(default_factory=KnownRequests)
    # Of `GatewayMiddleware`.
    guard: KeylessGuard | None = field(init=False)
    successor: GatewayState | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.names = UserResolver(self.settings)
        self.clients = ClientProfiles(self.settings)
        self.agents = AgentDirectory(self.settings, self.memory, self.secret)
        self.skills = SkillTools(self.memory)
        settings = self.settings
        is_local = settings.server.loopback and settings.single_user
        if settings.is_keyless or is_local:
            self.guard = KeylessGuard(settings)
        else:
            self.guard = None

    @property
    def newest(self) -> GatewayState:
        """The state that requests get now."""
        state = self
        while state.successor is not None:
            state = state.successor
        return state

    def is_from_here(self, scope: Any, headers: Mapping[bytes, bytes]) -> bool:
        """Tell whether a program of this machine and user asks, as far as can be seen."""
        server = self.settings.server
        return (
            server.loopback
            and is_local_peer(scope)
            and is_local_host(headers)
            and not sign_of_a_proxy(scope, headers)
            and (server.answers_any_peer or not sign_of_another_user(scope))
        )


@dataclass(slots=True)
class CurrentState:
    """Holds the state that the next request gets; a reload puts another here.

    imports: those that run, which a reload does not end.
    """

    gateway: GatewayState
    imports: RunningImports = field(default_factory=RunningImports)


def request_id(scope: Any) -> str:
    """Return the id that `GatewayMiddleware` gave to a request.

    It stands in headers, the log and the explain record.
    """
    identifier: str = scope[REQUEST_ID]
    return identifier


def headers_of(scope: Any) -> Mapping[bytes, bytes]:
    """Return a request's headers by lower-case name, merged once."""
    headers: Mapping[bytes, bytes] | None = scope.get(HEADERS)
    if headers is None:
        headers = scope[HEADERS] = merge_headers(scope["headers"])
    return headers

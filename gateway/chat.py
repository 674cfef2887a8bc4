"""`POST /v1/chat/completions`: from a request to the turn that answers it, or to the relay where memory is off."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.answer import (
    UNEXPECTED,
    Answer,
    Completing,
    Head,
    Prepare,
    Receive,
    Refusal,
    Send,
    respond_error,
)
from gateway.background import Background
from gateway.booking import Booked
from gateway.choice import Choice
from gateway.embedding import Credentials
from gateway.errors import (
    BadRequest,
    Forbidden,
    GatewayError,
    TooLarge,
    Unavailable,
    UpstreamRefused,
)
from gateway.forward import Forwarder
from gateway.headers import Pairs, client_side, joined, shown_user, told_apart
from gateway.heavy import TooHeavy, skim
from gateway.identity import KeyRing, Names, Principal, header_text
from gateway.intake import check_model, parse, read_body
from gateway.limits import Allowance, Limits
from gateway.metering import Meter, guessed
from gateway.naming import model_for_certain
from gateway.plain import PlainWork
from gateway.prefixes import Prefixes
from gateway.prices import MOST
from gateway.refusals import is_overflow
from gateway.relay import Passing, RelayWork
from gateway.routing import Route, Router, Target
from gateway.settings import Settings
from gateway.shared import Shared
from gateway.tokenizers import Vocabularies
from gateway.turn import Bounds, Turn
from gateway.usage import Record, UsageLog
from gateway.weighing import is_light, weighed
from gateway.wire.chat import Json
from memory.ask import Ask
from memory.cache import Cache
from memory.errors import MemoryFault, TooLong
from memory.jobs.worker import Worker
from memory.messages import mac
from memory.prefix import Messages, first_of
from memory.scope import Scope
from memory.service import Memory

log = logging.getLogger("mnemogate")
REQUEST_ID = "mnemogate.request_id"
MODES = ("full", "read", "write", "off")
LACKS_SECONDS = 3600.0
HEAVY_SECONDS = 0.8  # that an answer waits for the store to take a long request
LACKS_BYTES, LACKS_EACH = 1 << 19, 200  # behind `*`, clients name models as they like
CONVERSATION_CHARACTERS = AGENT_CHARACTERS = 256
NOBODY = (
    "nobody was named, so what is remembered is this conversation's alone: send `user` in the body, "
    "the header X-Memory-User, or name the user in the path, /u/{user}/v1"
)
SORTED = msgspec.json.Encoder(order="sorted")


Lacks = Cache[str, tuple[int, float]]


def no_lacks() -> Lacks:
    """Return the lacks of targets before any was seen."""
    return Cache(LACKS_BYTES, LACKS_EACH, lambda name, _: getsizeof(name))


@dataclass(slots=True)
class Process:
    """What a reload leaves alone. busy: requests under way. live: the answers among them."""

    draining: bool = False
    busy: int = 0
    live: set[Answer] = field(default_factory=set)


@dataclass(slots=True)
class Gateway:
    """Everything a request needs, wired in `app`. A reload makes another one of the same memory and process; a request keeps
    the one it began with. lacks: what each target was seen to refuse (1 tools, 2 any addition), and when."""

    settings: Settings
    keys: KeyRing
    names: Names
    router: Router
    memory: Memory
    secret: bytes
    background: Background
    worker: Worker
    credentials: Credentials
    vocabularies: Vocabularies
    choice: Choice
    limits: Limits
    usage: UsageLog
    shared: Shared | None = None
    process: Process = field(default_factory=Process)
    lacks: Lacks = field(default_factory=no_lacks)
    prefixes: Prefixes = field(default_factory=Prefixes)
    local: bool = field(init=False)  # one person on one machine, whom `Front` guards

    def __post_init__(self) -> None:
        self.local = self.settings.server.loopback and self.settings.single_user


@dataclass(slots=True)
class Request:
    """One chat request as it came. headers: lower-case names. path_user: from `/u/{user}`."""

    principal: Principal
    headers: Mapping[bytes, bytes]
    body: bytes
    path_user: str | None
    started: float
    id: str


def request_id(scope: Any) -> str:
    """The name that `Front` gave a request: for its headers, the log, the explain record."""
    name: str = scope[REQUEST_ID]
    return name


def mode_of(headers: Mapping[bytes, bytes]) -> str:
    """The request's `X-Memory`. Raises BadRequest."""
    mode = headers.get(b"x-memory", b"full").decode("latin-1").strip().lower()
    if mode not in MODES:
        raise BadRequest(
            f"X-Memory is {mode[:40]!r}: use one of {', '.join(MODES)}.", param="x-memory"
        )
    return mode


def agent_of(headers: Mapping[bytes, bytes]) -> str:
    """The request's agent. Raises BadRequest."""
    agent = header_text(headers, b"x-memory-agent") or "default"
    if len(agent) > AGENT_CHARACTERS:
        raise BadRequest(
            f"X-Memory-Agent has {len(agent)} characters; at most {AGENT_CHARACTERS} are allowed.",
            param="x-memory-agent",
        )
    return agent


async def serve(
    gateway: Gateway, scope: Any, receive: Receive, send: Send, path_user: str | None
) -> None:
    """Answers a request, over ASGI, and tells every error."""
    started, name = time.perf_counter(), request_id(scope)
    base = [(b"x-mnemogate-request-id", name.encode())]
    try:
        headers = joined(scope["headers"])
        principal = gateway.keys.caller(headers)
        body = await read_body(
            receive, headers, int(gateway.settings.server.max_body_mib * 1024 * 1024)
        )
        respond = await answer(gateway, Request(principal, headers, body, path_user, started, name))
    except TooLarge as e:
        await Refusal(e, base)(scope, receive, send)
    except GatewayError as e:
        await respond_error(send, e, base)
    except Exception:
        log.exception("unexpected failure (%s)", name)
        await respond_error(send, GatewayError(UNEXPECTED, code="internal_error"), base)
    else:
        await respond(scope, receive, send)


async def answer(gateway: Gateway, request: Request) -> Any:
    """The ASGI response to a chat request. Raises GatewayError for what can be told without an upstream."""
    principal = request.principal
    mode = mode_of(request.headers)
    body, reason = await _read(gateway, request, mode)
    route = gateway.router.route(body["model"], principal)
    if principal.limited:
        await weighed(request.body, model_for_certain, request.body, b"application/json")
    user = gateway.names.user(principal, request.headers, request.path_user, body)
    off = mode == "off" or (not reason and gateway.background.matches(body["messages"]))
    explicit = None if off else conversation_of(request.headers, principal, user)
    forward = forwarder(gateway, route, request.headers, principal)
    forward.meter.guess = guessed(len(request.body))
    if gateway.settings.routing.sticky:
        forward.conversation = beginning(body, explicit, f"{principal.tenant}\x00{user}")
    entry = Entry(
        request.id,
        principal,
        "/chat/completions",
        request.started,
        body["model"],
        "off" if off else mode,
        None if off else user,
        _all_output(body),
    )
    if reason and (explicit or gateway.settings.memory.on_error == "fail"):
        raise BadRequest(
            f"This request needs its memory, which cannot look at it in time: {reason}. Send less."
        )
    if off or reason:
        status = (
            [(b"x-memory-status", b"degraded"), (b"x-memory-reason", reason.encode())]
            if reason
            else [(b"x-memory-status", b"off")]
        )
        passing = Passing(
            "POST",
            "/chat/completions",
            request.body,
            several=body.get("n") not in (None, 1),
            named=status,
            started=request.started,
        )
        return answering(
            gateway, forward, entry, RelayWork(forward, passing, bool(body.get("stream"))).ready
        )
    agent = agent_of(request.headers)
    work = ChatWork(
        gateway,
        request,
        body,
        forward,
        _Wanted(gateway.memory.scope(principal.tenant, user, agent), mode, explicit),
    )
    return answering(gateway, forward, entry, work.prepare)


async def _read(gateway: Gateway, request: Request, mode: str) -> tuple[Json, str]:
    """Read the request as its mode needs it; the text says why memory stands aside, if it does.

    Raises BadRequest.
    """
    reason = ""
    if mode != "off":
        principal = request.principal
        whose = (
            principal.tenant,
            principal.key,
            request.headers.get(b"x-memory-user"),
            request.path_user,
        )
        try:
            return await gateway.prefixes.take(whose, request.body), ""
        except TooHeavy as e:
            reason = str(e)
            log.warning(
                "a request is too long for memory and goes without it (%s): %s", request.id, reason
            )
    if is_light(request.body):
        check_model(body := parse(request.body))
        return body, reason
    return await asyncio.to_thread(skim, request.body), reason


@dataclass(slots=True)
class Entry:
    """What a request's books say of it before it begins. user: None where its record names nobody. output: tokens its answer may have."""

    id: str
    principal: Principal
    path: str
    started: float
    model: str = ""
    mode: str = "off"
    user: str | None = None
    output: int | None = None


def answering(gateway: Gateway, forward: Forwarder, entry: Entry, make: Prepare) -> Answer:
    """The response that a work gives, with its books kept, as the server is set."""
    principal, server = entry.principal, gateway.settings.server
    record = Record(
        entry.id,
        time.time(),
        principal.tenant,
        entry.user,
        principal.key,
        entry.model,
        "",
        entry.path,
        entry.mode,
        0.0,
        0,
    )
    limits, budget = principal.limits, principal.budget
    allowance = Allowance(
        principal.key, limits.rpm, limits.tpm, limits.concurrent, budget.usd, budget.period
    )
    forward.request = entry.id
    books = Booked(
        forward, record, entry.started, gateway.limits, gateway.usage, allowance, make, entry.output
    )
    base = [(b"x-mnemogate-request-id", entry.id.encode())]
    if entry.mode != "off":
        base.append((b"x-memory-user", shown_user(entry.user)))
    return Answer(
        books.prepare,
        base,
        gateway.process.live,
        commit=server.commit_seconds,
        quiet=server.keepalive_seconds,
    )


def beginning(body: Json, explicit: str | None, whose: str) -> bytes:
    """What stays the same in a conversation, for it to stay with its target: its name, else its first user message."""
    messages = body.get("messages")
    if isinstance(messages, Messages):
        first = messages.after.first
    else:
        first = next(
            (
                first_of(m)
                for m in messages or ()
                if isinstance(m, dict) and m.get("role") == "user"
            ),
            b"",
        )
    return mac(
        b"beginning",
        whose.encode("utf-8", "surrogatepass"),
        explicit.encode("utf-8", "surrogatepass") if explicit else first,
    )


def forwarder(
    gateway: Gateway, route: Route, headers: Mapping[bytes, bytes], principal: Principal
) -> Forwarder:
    """What carries one client request to the targets of its route, within their total time."""
    settings, total = gateway.settings, max(t.settings.timeouts.total for t in route.targets)
    own = gateway.keys.own
    client = client_side(headers, settings.server.forward_headers, own=own)
    if not own:
        client = told_apart(client, gateway.secret, principal.tenant)
    return Forwarder(
        route,
        gateway.choice,
        client,
        principal.authorization,
        not own,
        principal.tenant if own else "",
        retries=settings.routing.retries,
        deadline=asyncio.get_running_loop().time() + total,
    )


def conversation_of(
    headers: Mapping[bytes, bytes], principal: Principal, user: str | None
) -> str | None:
    """The conversation the client names. Raises BadRequest, Forbidden."""
    name = header_text(headers, b"x-memory-conversation")
    if not name:
        return None
    if len(name) > CONVERSATION_CHARACTERS:
        raise BadRequest(
            f"X-Memory-Conversation has {len(name)} characters; at most {CONVERSATION_CHARACTERS} are allowed.",
            param="x-memory-conversation",
        )
    if user is None and not principal.trusted:
        raise Forbidden("X-Memory-Conversation needs a named user or a trusted key.")
    return name


@dataclass(frozen=True, slots=True)
class _Wanted:
    scope: Scope
    mode: str
    explicit: str | None


class ChatWork(Completing):
    """One chat request's work, with memory where the store answers and without where it does not."""

    def __init__(
        self, gateway: Gateway, request: Request, body: Json, forward: Forwarder, wanted: _Wanted
    ) -> None:
        self._gateway, self._request, self._body, self._forward, self._wanted = (
            gateway,
            request,
            body,
            forward,
            wanted,
        )
        self.stream = bool(body.get("stream"))
        self._turn: Turn | None = None
        self._composed = 0.0

    async def prepare(self) -> ChatWork | PlainWork:
        """Begins the session. A memory that fails never takes the app down, unless the operator or the request needs it."""
        memory = self._gateway.settings.memory
        target = await self._forward.chosen()
        if self._gateway.credentials.keep(
            tenant := self._wanted.scope.tenant, self._forward.authorization
        ):
            self._gateway.worker.resume(tenant)
        try:
            session = await self._gateway.memory.begin(self._ask(target, await self._rest()))
        except MemoryFault as e:
            if memory.on_error == "fail" or (
                self._wanted.explicit and self._body["messages"].after.newest < 0
            ):
                raise Unavailable(
                    "The memory store is unavailable, and this request needs it. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            return PlainWork(self._body, self._forward, self._request.started)
        if self._wanted.scope.user is None:
            session.trace.notes.append(NOBODY)
        until = asyncio.get_running_loop().time() + memory.turn_seconds
        patience = HEAVY_SECONDS if self._body["messages"].heavy else memory.read_deadline_ms / 1000
        bounds = Bounds(memory.max_rounds, until, memory.usage == "sum", patience)
        self._turn = Turn(
            self._body,
            session,
            self._forward,
            bounds,
            target.settings.stream_usage,
            partial(_refused, self._gateway, self._body),
            memory.placement == "cache_stable",
        )
        self._composed = time.perf_counter()
        return self

    async def _rest(self) -> bytes:
        """What tells the request from another of the same messages."""
        members = {
            k: v for k, v in self._body.items() if k not in ("messages", "stream", "stream_options")
        }
        told = partial(_digest, members)
        return await asyncio.to_thread(told) if self._body["messages"].heavy else told()

    def _ask(self, target: Target, rest: bytes) -> Ask:
        body, request, wanted = self._body, self._request, self._wanted
        lack = _lack(self._gateway, target.label)
        retries = request.headers.get(b"x-stainless-retry-count", b"0")
        idempotency = request.headers.get(b"idempotency-key", b"").decode("latin-1")
        return Ask(
            scope=wanted.scope,
            messages=body["messages"],
            model=body["model"],
            request_id=request.id,
            mode=wanted.mode,
            explicit=wanted.explicit,
            client_tools=body.get("tools"),
            offer=lack < 1 and _offers(self._gateway, body, target),
            inject=lack < 2,
            recall=self._recalls(target, lack),
            window=target.window,
            tokenizer=self._gateway.vocabularies.wanted(target.tokenizer),
            max_output=_max_output(body),
            complete=Summariser(self._gateway, self._forward, body["model"]),
            rest=rest,
            idempotency=idempotency,
            certain=bool(idempotency) or (retries.isdigit() and bool(retries.strip(b"0"))),
            extract=self._gateway.settings.memory.extract == "auto"
            and self._toolless(target, lack),
            size=len(request.body),
        )

    def _recalls(self, target: Target, lack: int) -> bool:
        """Automatic recall: where it is set, and for models that cannot search for themselves."""
        return self._gateway.settings.memory.recall == "auto" or self._toolless(target, lack)

    def _toolless(self, target: Target, lack: int) -> bool:
        """Whether the model cannot keep and find things by itself."""
        return lack == 1 or not target.supports_tools

    @property
    def memory(self) -> str:
        return "degraded" if self._turn is None or self._turn.degraded else "ok"

    def chunks(self) -> AsyncGenerator[bytes, None]:
        assert self._turn is not None  # noqa: S101 - prepared
        return self._turn.run()

    def whole(self) -> bytes:
        assert self._turn is not None  # noqa: S101 - prepared
        return self._turn.completion()

    def head(self, *, committed: bool) -> Head:
        assert self._turn is not None  # noqa: S101 - prepared
        return self.shaped(self._turn.reply.headers if self._turn.reply is not None else [])

    def named(self) -> Pairs:
        turn = self._turn
        assert turn is not None  # noqa: S101 - prepared
        session = turn.session
        out = [
            (b"x-memory-status", self.memory.encode()),
            (b"x-memory-conversation", self._conversation(session.conversation.name)),
            *self._forward.named(self._request.started),
        ]
        if session.stores:
            out.append((b"x-memory-explain", session.explain_id.encode()))
        if not self.stream:
            out += [
                (b"x-memory-rounds", b"%d" % len(turn.used)),
                (b"x-memory-injected-tokens", b"%d" % session.injected_tokens),
            ]
        return out

    def _conversation(self, name: str) -> bytes:
        """The conversation as the client spelt it, else percent-encoded."""
        if self._wanted.explicit:
            return self._request.headers[b"x-memory-conversation"]
        return name.encode() if name.isascii() and name.isidentifier() else quote(name).encode()

    def over(self, error: BaseException | None) -> Coroutine[Any, Any, None] | None:
        return (
            self._turn.abandon(error)
            if self._turn is not None and not self._turn.finished
            else None
        )


def _digest(members: Json) -> bytes:
    return mac(b"rest", SORTED.encode(members))


def _offers(gateway: Gateway, body: Json, target: Target) -> bool:
    """Whether the request, its target and the operator take our tools."""
    tools = gateway.settings.memory.tools
    if tools == "never" or (tools == "with_client_tools" and not body.get("tools")):
        return False
    several = isinstance(body.get("n"), int) and body["n"] > 1
    return (
        target.supports_tools
        and not several
        and not body.get("functions")
        and not body.get("function_call")
    )


def _refused(gateway: Gateway, body: Json, target: Target) -> None:
    """A target took the client's body but not ours: next time without tools, after that without any addition."""
    had_tools = _offers(gateway, body, target) and _lack(gateway, target.label) < 1
    gateway.lacks.put(target.label, (1 if had_tools else 2, time.monotonic()))


def _lack(gateway: Gateway, label: str) -> int:
    """What the target is known to refuse; asked anew after an hour, since a passing fault looks the same."""
    level, at = gateway.lacks.get(label) or (0, 0.0)
    return level if time.monotonic() - at < LACKS_SECONDS else 0


class Summariser:
    """The memory's `Complete` port over this request's own upstream and credentials."""

    def __init__(self, gateway: Gateway, forward: Forwarder, model: str) -> None:
        self._gateway, self._forward, self._model = gateway, forward, model

    def _route(self) -> Route:
        name = self._gateway.settings.memory.summarizer
        return (
            self._gateway.router.route(name, Principal("", "summariser"))
            if name
            else self._forward.route
        )

    @property
    def window(self) -> int | None:
        """The smallest context among the models that may be asked, in tokens."""
        return min((t.window for t in self._route().targets if t.window), default=None)

    async def __call__(self, messages: Sequence[Json], max_tokens: int) -> str:
        route = self._route()
        before = self._forward
        mine = Forwarder(
            route,
            before.choice,
            [],
            before.authorization,
            before.managed,
            before.account,
            retries=1,
            deadline=before.deadline,
            meter=Meter(guessed(sum(len(str(m.get("content"))) for m in messages))),
        )
        before.meter.asides.append(mine.meter)
        try:
            message = await mine.message(
                {"model": self._model, "messages": list(messages), "max_tokens": max_tokens}
            )
        except UpstreamRefused as e:
            if is_overflow(e):
                raise TooLong(f"the prompt passes the window of {self._model!r}") from e
            raise
        return str(message["content"] or "")


def _all_output(body: Json) -> int | None:
    """The tokens that all choices together may have, where the request says so."""
    most, several = _max_output(body), body.get("n")
    return min(most * several, MOST) if most and isinstance(several, int) and several > 1 else most


def _max_output(body: Json) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if isinstance(value := body.get(name), int) and not isinstance(value, bool) and value > 0:
            return min(value, MOST)  # what is sent on may be more: here it is reckoned with
    return None

"""`create_app(settings)`: the only wiring. What is heavy (the database) is opened in the background once the port is bound."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response, Router, get, post, route
from litestar.enums import HttpMethod
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway import chat
from gateway.accesslog import current
from gateway.answer import UNEXPECTED, Refusal
from gateway.background import Background
from gateway.catalog import model_card, model_list
from gateway.chat import Gateway, no_lacks, request_id
from gateway.choice import Choice
from gateway.cooldowns import LocalCooldowns
from gateway.cooldowns import Rules as Rests
from gateway.counters import LocalCounters
from gateway.embedding import Credentials, UpstreamEmbed
from gateway.errors import BadRequest, GatewayError, MethodNotAllowed, NotFound, TooLarge, quoted
from gateway.front import Front, segment
from gateway.headers import joined
from gateway.identity import KeyRing, Names
from gateway.limits import Limits
from gateway.made import MadeKeys
from gateway.memories import management
from gateway.openapi import completed
from gateway.passing import pass_on, upstream_models
from gateway.prefixes import Prefixes
from gateway.routing import Router as Targets
from gateway.routing import known_models
from gateway.secret import kept_secret
from gateway.settings import ConfigError, Settings
from gateway.shared import Shared
from gateway.shared_cooldowns import SharedCooldowns
from gateway.shared_counters import SharedCounters
from gateway.tokenizers import Vocabularies, folder
from gateway.traces import Traces
from gateway.unattended import Unattended
from gateway.upstream.anthropic import AnthropicUpstream
from gateway.upstream.azure import AzureUpstream
from gateway.upstream.base import Upstream, Wire
from gateway.upstream.clock import Timeouts
from gateway.upstream.openai import OpenAIUpstream
from gateway.upstream.ways import Way, way_of, wire_of
from gateway.usage import UsageLog
from memory.ask import Policy
from memory.blocks import Block
from memory.embed.onnx import OnnxEmbed, installed
from memory.epoch import Rules
from memory.errors import MemoryFault
from memory.jobs import chores, extraction, reflection, summaries
from memory.jobs.worker import Worker
from memory.retrieval import Meaning
from memory.service import Memory
from memory.stores.chroma import ChromaIndex
from memory.stores.sql.engine import Database
from memory.stores.sql.glance import NONE

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("mnemogate")
OPENING_SECONDS = 1.0
AGAIN_SECONDS = 2.0  # until a memory that could not be opened is tried again
KEYS_SECONDS = 2.0  # a store that is slower has its keys refused with 503 until it was read
STEP_SECONDS = 4.0  # for each step of shutting down: none may hold the process
METHODS = [
    HttpMethod.GET,
    HttpMethod.HEAD,
    HttpMethod.OPTIONS,
    HttpMethod.POST,
    HttpMethod.PUT,
    HttpMethod.PATCH,
    HttpMethod.DELETE,
]


def create_app(
    settings: Settings,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    upstreams: Mapping[str, Upstream] | None = None,
) -> Front:
    """The ASGI application. transport, upstreams: a test's own, in place of real connections. Raises ConfigError."""
    wires: dict[tuple[str, Way], Wire] = {}  # a reload may send a provider another way

    def connected(settings: Settings) -> Mapping[str, Upstream]:
        serving: dict[str, Wire] = {}
        for name, provider in settings.providers.items():
            way = way_of(provider, os.environ)
            if (name, way) not in wires:
                wires[name, way] = _wire(transport, name, way, provider.max_connections)
            serving[name] = wires[name, way]
        return upstreams or upstreams_of(settings, serving)

    gateway = wire(settings, connected(settings))
    app = Litestar(
        [
            chat_completions,
            user_chat_completions,
            bare_chat_completions,
            models,
            user_models,
            one_model,
            relay,
            user_relay,
            changed_model,
            user_changed_model,
            health,
            ready,
            management(),
        ],
        openapi_config=OpenAPIConfig(
            "Mnemogate", "1", path="/schema", render_plugins=[_Schema(path=["/", "/openapi.json"])]
        ),
        exception_handlers={
            GatewayError: _told,
            TooLarge: _too_large,
            HTTPException: _http,
            Exception: _unexpected,
        },
        logging_config=None,
        request_max_body_size=None,
        on_startup=[_opening(gateway)],
        on_shutdown=[_closing(gateway, wires.values())],
    )
    app.state.gateway = gateway
    return Front(
        app,
        lambda running, settings: rewired(running, settings, connected(settings)),
        Traces(app.asgi_router.handle_routing.cache_clear),
    )


class _Schema(JsonRenderPlugin):
    """The OpenAPI schema, and nothing beside it: Litestar would answer unknown paths there with a page of HTML."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return super().render(request, completed(openapi_schema))

    def receive_router(self, router: Router) -> None:
        router.routes = [r for r in router.routes if "{" not in r.path]


def wire(settings: Settings, upstreams: Mapping[str, Upstream]) -> Gateway:
    """Everything but the HTTP around it."""
    if not settings.database.startswith("sqlite+aiosqlite:"):
        raise ConfigError(
            "storage.database: this version keeps its memory in SQLite (sqlite+aiosqlite:///file.db); Postgres comes with the fleet"
        )
    data = settings.data
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = kept_secret(data / "secret", 32)
    router, credentials = Targets(settings, upstreams, known_models(facts_file())), Credentials()
    database = Database(settings.database, settings.storage.synchronous)
    memory = Memory(
        database, _policy(settings), secret, data, _meaning(settings, router, credentials)
    )
    worker = Worker(memory.db)
    usage = UsageLog(database, memory.usable)
    shared = Shared(settings.storage.redis) if settings.storage.redis else None
    choice = Choice(
        SharedCooldowns(shared, _rests(settings)) if shared else LocalCooldowns(_rests(settings)),
        settings.routing,
    )
    limits = Limits(SharedCounters(shared) if shared else LocalCounters(), usage.spent)
    _register(worker, memory, Unattended(settings, router, choice, credentials, usage))
    return Gateway(
        settings,
        _keys(settings, secret, MadeKeys(database)),
        Names(settings),
        router,
        memory,
        secret,
        Background(settings.memory.ignore),
        worker,
        credentials,
        Vocabularies(folder(data), memory.counters),
        choice,
        limits,
        usage,
        shared,
    )


def rewired(running: Gateway, settings: Settings, upstreams: Mapping[str, Upstream]) -> Gateway:
    """Other settings over the running memory, worker and counters. Raises ConfigError, nothing being changed."""
    router = Targets(settings, upstreams, known_models(facts_file()))
    made = replace(
        running,
        settings=settings,
        keys=_keys(settings, running.secret, running.keys.made),
        names=Names(settings),
        router=router,
        prefixes=Prefixes(),
        background=Background(settings.memory.ignore),
        lacks=no_lacks(),
        choice=running.choice.ruled(settings.routing),
    )
    running.choice.cooldowns.rules = _rests(settings)
    memory = running.memory
    memory.policy = _policy(settings)
    _register(
        running.worker,
        memory,
        Unattended(settings, router, made.choice, running.credentials, running.usage),
    )
    if memory.retrieval.meaning is not None and isinstance(
        embed := memory.retrieval.meaning.embed, UpstreamEmbed
    ):
        embed.router, embed.own_key = router, settings.mode == "own-key"
    return made


def _keys(settings: Settings, secret: bytes, made: MadeKeys) -> KeyRing:
    token = (
        kept_secret(settings.data / "token", 24).hex()
        if settings.single_user and settings.mode != "managed"
        else ""
    )
    return KeyRing(settings, secret, token, made)


def _rests(settings: Settings) -> Rests:
    c = settings.routing.cooldown
    return Rests(c.failures, c.window, c.seconds)


def _policy(settings: Settings) -> Policy:
    part = settings.memory
    blocks = {
        b.label: Block(b.label, b.value, b.description, b.limit, b.read_only) for b in part.blocks
    }
    return Policy(
        blocks,
        Rules(part.cache_idle_seconds, live=part.placement == "live"),
        part.read_deadline_ms / 1000,
        summary_seconds=part.summary_seconds,
        ahead=part.summarize_ahead,
        reflect=reflection.Rhythm(part.reflect.every_turns, part.reflect.idle_seconds),
    )


def _register(worker: Worker, memory: Memory, unattended: Unattended) -> None:
    settings = unattended.settings
    ages = chores.Ages(settings.memory.explain_days, settings.memory.unnamed_days)
    chores.register(worker, memory.db, ages, memory.retrieval)
    worker.register(
        summaries.KIND, summaries.summarising(memory.db, unattended), slow=True, small=True
    )
    worker.register(
        extraction.KIND,
        extraction.extracting(memory.db, unattended, lambda: memory.policy.blocks),
        slow=True,
    )
    worker.register(
        reflection.KIND,
        reflection.reflecting(
            memory.db, unattended, memory.retrieval, lambda: memory.policy.blocks
        ),
        slow=True,
    )
    worker.register(
        "fade",
        chores.fading(memory.db),
        every=chores.EVERY if settings.memory.cleanup == "auto" else None,
    )


def _meaning(settings: Settings, router: Targets, credentials: Credentials) -> Meaning | None:
    """Search by meaning, where an embedder is configured. Raises ConfigError for one that is not there."""
    kind, _, model = settings.memory.embedder.partition(":")
    if kind == "none":
        return None
    if not (kind == "upstream" and model) and settings.memory.embedder != "onnx-minilm":
        raise ConfigError(
            f"memory.embedder is {settings.memory.embedder!r}; this version knows 'none', 'onnx-minilm' and 'upstream:<model>'"
        )
    embed = (
        UpstreamEmbed(model, router, credentials, own_key=settings.mode == "own-key")
        if model
        else _local_embedder(settings)
    )
    if find_spec("numpy") is None:
        raise ConfigError(
            "memory.embedder needs numpy: run pip install '.[chroma]' in the folder of Mnemogate's source"
        )
    vectors = settings.storage.vectors
    index = ChromaIndex(vectors, settings.data / "chroma") if vectors != "none" else None
    return Meaning(embed, index, settings.storage.exact_below)


def _local_embedder(settings: Settings) -> OnnxEmbed:
    """Raises ConfigError."""
    if missing := [
        name for name in ("onnxruntime", "tokenizers", "numpy") if find_spec(name) is None
    ]:
        raise ConfigError(
            f"memory.embedder = \"onnx-minilm\" needs {' and '.join(missing)}: run pip install '.[onnx-minilm]' in the folder of Mnemogate's source"
        )
    if not installed(folder := settings.data / "embedder"):
        raise ConfigError(
            f'memory.embedder = "onnx-minilm" needs its model in {folder}: run `mnemogate fetch embedder`'
        )
    return OnnxEmbed(folder)


def facts_file() -> Path:
    """`models.toml`, as installed or in a checkout."""
    installed = Path(__file__).parent / "defaults" / "models.toml"
    return (
        installed if installed.exists() else Path(__file__).parent.parent / "config" / "models.toml"
    )


def _wire(
    transport: httpx.AsyncBaseTransport | None, name: str, way: Way, max_connections: int
) -> Wire:
    if transport is None:
        return wire_of(name, way, max_connections)
    from gateway.upstream.transport import TransportWire

    return TransportWire(lambda: transport)


def upstreams_of(settings: Settings, wires: Mapping[str, Wire]) -> dict[str, Upstream]:
    out: dict[str, Upstream] = {}
    facts = Targets(settings, {}, known_models(facts_file())).facts
    for name, p in settings.providers.items():
        timeouts = Timeouts(**p.timeouts.model_dump())
        if p.kind == "azure":
            out[name] = AzureUpstream(p.base_url, wires[name], timeouts, p.api_version)
            continue
        out[name] = OpenAIUpstream(p.base_url, wires[name], timeouts)
        if p.kind == "anthropic":
            out[name] = AnthropicUpstream(out[name], facts, p.default_max_tokens, p.api_version)
    return out


def _opening(gateway: Gateway) -> Any:
    async def start(app: Litestar) -> None:
        async def work() -> None:
            told = ""
            while True:
                try:
                    await gateway.memory.open()
                    gateway.worker.start()
                    gateway.usage.start()
                    gateway.keys.made.start()
                    return
                except MemoryFault as e:
                    if str(e) != told:
                        told = str(e)
                        log.error("memory is unavailable: %s", e)  # noqa: TRY400 - the message says it all
                except Exception as e:
                    if repr(e) != told:
                        told = repr(e)
                        log.exception("memory cannot be opened; trying again")
                await asyncio.sleep(AGAIN_SECONDS)

        if gateway.shared is not None:
            await (
                gateway.shared.open()
            )  # before the first request, which would be counted here alone
        app.state.opening = asyncio.create_task(work())
        if gateway.settings.made != NONE:
            await gateway.keys.made.awaited(
                KEYS_SECONDS
            )  # connections wait meanwhile: refused, the first clients after a restart would see it

    return start


def _closing(gateway: Gateway, wires: Iterable[Wire]) -> Any:
    async def stop(app: Litestar) -> None:
        # What is being opened is opened to its end, so that there is one thing to close; a store that cannot be opened is given up.
        await asyncio.wait([app.state.opening], timeout=OPENING_SECONDS)
        app.state.opening.cancel()
        shared = [gateway.shared.close] if gateway.shared is not None else []
        for step in (
            gateway.keys.made.stop,
            gateway.worker.stop,
            gateway.usage.stop,
            gateway.memory.close,
            *shared,
            *(w.aclose for w in wires),
        ):
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await step()
            except TimeoutError:
                log.warning(
                    "%s did not end within %g s of shutting down; going on without it",
                    step.__qualname__,
                    STEP_SECONDS,
                )
            except Exception:
                log.exception(
                    "%s failed while shutting down; going on without it", step.__qualname__
                )

    return stop


# --- routes ----------------------------------------------------------------------------------------------------------


def _chat(request: Request[Any, Any, Any], path_user: str | None) -> ASGIApp:
    async def served(scope: Any, receive: Any, send: Any) -> None:
        await chat.serve(request.app.state.gateway, scope, receive, send, path_user)

    return served


@post("/v1/chat/completions", status_code=200, summary="A chat completion with memory")
async def chat_completions(request: Request[Any, Any, Any]) -> ASGIApp:
    return _chat(request, None)


@post("/u/{user:str}/v1/chat/completions", status_code=200, include_in_schema=False)
async def user_chat_completions(request: Request[Any, Any, Any], user: FromPath[str]) -> ASGIApp:
    return _chat(request, segment(user))


@post("/chat/completions", include_in_schema=False)
async def bare_chat_completions() -> None:
    raise NotFound("Nothing is served here: the path needs its /v1. Set base_url to end in /v1.")


@get("/v1/models", summary="The models this key may call")
async def models(request: Request[Any, Any, Any]) -> Response[bytes]:
    return await _models(request)


async def _models(request: Request[Any, Any, Any]) -> Response[bytes]:
    gateway: Gateway = request.app.state.gateway
    principal = gateway.keys.caller(joined(request.scope["headers"]))
    return _json(
        model_list(gateway.router.names(principal), await upstream_models(gateway, principal))
    )


@get("/u/{user:str}/v1/models", include_in_schema=False)
async def user_models(request: Request[Any, Any, Any], user: FromPath[str]) -> Response[bytes]:
    return await _models(request)


@get(["/v1/models/{name:path}", "/u/{user:str}/v1/models/{name:path}"], include_in_schema=False)
async def one_model(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    gateway: Gateway = request.app.state.gateway
    principal = gateway.keys.caller(joined(request.scope["headers"]))
    wanted = segment(name.removeprefix("/"))
    gateway.router.route(wanted, principal)
    return _json(model_card(wanted))


async def _relay(request: Request[Any, Any, Any], skip: int) -> ASGIApp:
    out: ASGIApp = await pass_on(request.app.state.gateway, request.scope, request.receive, skip)
    return out


@route("/v1/{path:path}", http_method=METHODS, status_code=200, include_in_schema=False)
async def relay(request: Request[Any, Any, Any]) -> ASGIApp:
    return await _relay(request, 1)


# Below a path of ours with a parameter in it the router looks no further, so these are named one by one.
@route(
    [
        "/u/{user:str}/v1/{path:path}",
        "/u/{user:str}/v1/chat/{path:path}",
        "/u/{user:str}/v1/chat/completions/{path:path}",
    ],
    http_method=METHODS,
    status_code=200,
    include_in_schema=False,
)
async def user_relay(request: Request[Any, Any, Any], user: FromPath[str]) -> ASGIApp:
    return await _relay(request, 3)


@route("/v1/models/{path:path}", http_method=METHODS[3:], status_code=200, include_in_schema=False)
async def changed_model(request: Request[Any, Any, Any]) -> ASGIApp:
    return await _relay(request, 1)


@route(
    "/u/{user:str}/v1/models/{path:path}",
    http_method=METHODS[3:],
    status_code=200,
    include_in_schema=False,
)
async def user_changed_model(request: Request[Any, Any, Any]) -> ASGIApp:
    return await _relay(request, 3)


@get("/health", summary="Alive: needs no key and touches nothing")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@get("/ready", summary="Ready, and what is degraded")
async def ready(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    gateway: Gateway = request.app.state.gateway
    degraded = [] if gateway.memory.ready else ["memory"]
    if gateway.shared is not None and gateway.shared.degraded:
        degraded.append("redis")
    status = "draining" if gateway.process.draining else "degraded" if degraded else "ok"
    return Response(
        {"status": status, "degraded": degraded},
        status_code=503 if gateway.process.draining else 200,
    )


def _json(body: bytes) -> Response[bytes]:
    return Response(body, media_type="application/json")


# --- the one translation of errors -------------------------------------------------------------------------------------


def _told(request: Request[Any, Any, Any], error: GatewayError) -> Response[bytes]:
    headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in error.headers}
    headers["x-mnemogate-request-id"] = request_id(request.scope)
    current().refused(error)
    return Response(
        error.body(), status_code=error.status, headers=headers, media_type="application/json"
    )


class _Refused:
    """A refusal as Litestar wants what answers an exception."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def to_asgi_response(self, **_: Any) -> Refusal:
        return self._refusal


def _too_large(request: Request[Any, Any, Any], error: TooLarge) -> Any:
    return _Refused(
        Refusal(error, [(b"x-mnemogate-request-id", request_id(request.scope).encode())])
    )


def _http(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    path = request.scope["path"][:200]
    if error.status_code == 404:
        return _told(request, NotFound(f"There is nothing at {path!r}."))
    if error.status_code == 405:
        there = set((error.headers or {}).get("allow", "").split(", "))
        allow = ", ".join(
            sorted(there | ({"HEAD"} if "GET" in there else set()))
        )  # the front answers it as a GET
        return _told(
            request,
            MethodNotAllowed(
                f"{request.scope['method']} is not possible at {path!r}: use {allow}.",
                headers=[(b"allow", allow.encode())],
            ),
        )
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        return _told(request, _unfit(request, error.extra[0]))
    told = GatewayError(str(error.detail))
    told.status, told.type = (
        error.status_code,
        "invalid_request_error" if error.status_code < 500 else "server_error",
    )
    return _told(request, told)


def _unfit(request: Request[Any, Any, Any], fault: Any) -> BadRequest:
    """A parameter that is not what it should be, with its value."""
    name = str(fault.get("key"))
    value = request.query_params.get(name)
    return BadRequest(f"`{name}` is {quoted(value)}: {fault.get('message')}.", param=name)


def _unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log.error("unexpected failure (%s)", request_id(request.scope), exc_info=error)
    return _told(request, GatewayError(UNEXPECTED, code="internal_error"))

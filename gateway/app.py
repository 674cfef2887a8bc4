"""Build the application: `create_app(settings)` is the only place where parts are wired.

The database is opened in the background, after the port is bound.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gateway.auth.authenticator import Authenticator
from gateway.auth.credential_cache import CredentialCache
from gateway.auth.key_store import KeyStore
from gateway.chat.stored_registration import STORED
from gateway.config.agents import PREFIX
from gateway.config.file_tools import find_file_limits
from gateway.config.memory_settings import BlockDefault
from gateway.config.secret_file import load_or_create_secret, server_secret
from gateway.config.settings import ConfigError, Settings
from gateway.http.parse_cache import RequestParseCache
from gateway.limits.counters import Counters, LocalCounters
from gateway.limits.limiter import Limiter
from gateway.limits.redis_counters import RedisCounters
from gateway.memory_adapters.background_model import BackgroundModelClient
from gateway.memory_adapters.embedder import UpstreamEmbedder
from gateway.memory_adapters.semantic_search import build_semantic_search
from gateway.models.facts import ModelFacts
from gateway.models.tokenizers import Vocabularies, folder
from gateway.redis_client import RedisClient
from gateway.routing.agents import AgentDirectory, schedule_of
from gateway.routing.context_windows import ContextWindows
from gateway.routing.cooldowns import CooldownPolicy, Cooldowns, LocalCooldowns
from gateway.routing.redis_cooldowns import RedisCooldowns
from gateway.routing.router import Router
from gateway.routing.selector import TargetSelector
from gateway.server import lifespan
from gateway.server.lazy_app import LazyApp
from gateway.server.middleware import FrameworkApps, GatewayMiddleware
from gateway.server.router_caches import RouterCaches
from gateway.state import CurrentState, GatewayState, ServerState, no_lacks
from gateway.storage.bookings import PendingBookings
from gateway.storage.kept_sizes import KeptSizes
from gateway.storage.responses import ResponseTable
from gateway.storage.usage import UsageTables
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.traces import TurnTraces, is_available, open_traces
from gateway.tools.kinds import KindServices, SharedRuntimes
from gateway.tools.registry import ToolRegistry, build_registry
from gateway.upstream.base import Transport, Upstream
from gateway.upstream.bridge_translation import Carrying
from gateway.upstream.factory import ConnectionOptions, connection_options
from gateway.upstream.window_probe import WindowProbe, build_probes
from gateway.usage.log import UsageLog
from gateway.wire.ui_prompts import UiPromptDetector
from memory import (
    PATTERNS,
    CoreBlock,
    Database,
    EpochPolicy,
    ExtractionRules,
    Memory,
    Policy,
    Screen,
    Worker,
)
from memory.context.summary import PROMPT as SUMMARY_PROMPT
from memory.core.block_space import BlockSpace, OperatorBlocks
from memory.core.blocks import INSTRUCTION
from memory.core.task_turns import RepetitionRules
from memory.jobs import (
    distillation,
    extraction,
    file_cleaning,
    maintenance,
    reflection,
    summarization,
)
from memory.jobs.fact_prompt import PROMPT as EXTRACTION_PROMPT

if TYPE_CHECKING:
    import httpx
from gateway.models.facts import facts_file
from gateway.upstream.factory import build_upstreams, open_transport

# And what asks them.
Servers = tuple[Mapping[str, Upstream], Mapping[str, WindowProbe]]


def create_app(
    settings: Settings,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    upstreams: Mapping[str, Upstream] | None = None,
) -> GatewayMiddleware:
    """Return the ASGI application for these settings.

    transport, upstreams: replace real connections in tests. Raises ConfigError.
    """
    # By provider and connection options: a reload may change a provider's options.
    transports: dict[tuple[str, ConnectionOptions], Transport] = {}
    carrying = _carrying(settings)

    def connect_upstreams(settings: Settings) -> Servers:
        serving: dict[str, Transport] = {}
        for name, provider in settings.providers.items():
            options = connection_options(provider, os.environ)
            if (name, options) not in transports:
                transports[name, options] = open_transport(
                    transport, name, options, provider.max_connections
                )
            serving[name] = transports[name, options]
        probes = {} if upstreams else build_probes(settings.providers, serving)
        return upstreams or build_upstreams(settings, serving, carrying), probes

    current_state = CurrentState(build_state(settings, connect_upstreams(settings)))
    caches = RouterCaches()
    return GatewayMiddleware(
        current_state,
        FrameworkApps(
            LazyApp(lambda: _framework().build_api(current_state, caches)),
            LazyApp(lambda: _framework().build_dashboard(current_state, caches)),
            caches,
        ),
        lambda running_gateway, settings: reload_state(
            running_gateway, settings, connect_upstreams(settings)
        ),
        lambda: lifespan.run(current_state, transports.values()),
    )


def _framework() -> Any:
    """Return the module that imports the web framework."""
    from gateway.server import api_app

    return api_app


def _carrying(settings: Settings) -> Carrying:
    """Return how bridges keep what servers want back. Raises ConfigError."""
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Carrying(server_secret(settings))


def build_state(settings: Settings, servers: Servers) -> GatewayState:
    """Build the state of the application, without its HTTP. Raises ConfigError."""
    (data := settings.data).mkdir(parents=True, exist_ok=True, mode=0o700)
    secret, credentials = server_secret(settings), CredentialCache()
    router = Router(settings, servers[0], ModelFacts.load(facts_file()))
    database = _database(settings, secret)
    semantic_search = build_semantic_search(settings, router, credentials)
    memory = Memory(database, _policy(settings), secret, data, semantic_search)
    metrics = _metrics(settings)
    usage = UsageLog(database, memory.wait_until_ready, secret=secret)
    responses = ResponseTable(database)
    database.application_tables += [UsageTables(_forgetting(usage, metrics)), responses]
    shared = RedisClient(settings.storage.redis) if settings.storage.redis else None
    sharers = database.count_workers
    selector = TargetSelector(_cooldowns(settings, shared), settings.routing, sharers)
    model = BackgroundModelClient(settings, router, selector, credentials, usage)
    _register(worker := _open_worker(memory), memory, model, metrics)
    return GatewayState(
        settings,
        _authenticator(settings, secret, KeyStore(database)),
        router,
        memory,
        secret,
        UiPromptDetector(settings.memory.ignore),
        worker,
        credentials,
        Vocabularies(folder(data), memory.counters),
        selector,
        Limiter(_counters(shared, sharers), usage.spent_since),
        usage,
        responses,
        KeptSizes(database),
        ContextWindows(servers[1]),
        metrics,
        ServerState(PendingBookings(database)),
        _toolbox(settings, memory, secret),
        shared,
        _traces(settings),
        STORED,
    )


def _model_names(settings: Settings) -> list[str]:
    """Return the names of models and agents by which metrics are told apart."""
    return [*settings.models, *(PREFIX + name for name in settings.agents)]


def _metrics(settings: Settings) -> Metrics:
    metrics = Metrics(_model_names(settings), settings.providers, settings.agents)
    metrics.tools.configure(settings.tools)
    return metrics


def _open_worker(memory: Memory) -> Worker:
    worker = Worker(memory.db)
    memory.wake_worker = worker.wake
    # Jobs are filed with their turns.
    memory.db.filer.on_filed.append(worker.wake)
    return worker


def _forgetting(usage: UsageLog, metrics: Metrics) -> Callable[[str, str], None]:
    """Return what takes an erased user's name out of what this process holds."""

    def forget(tenant: str, user: str) -> None:
        usage.forget(tenant, user)
        metrics.degraded.forget(tenant, user)

    return forget


def _database(settings: Settings, secret: bytes) -> Database:
    """Return the database, not open yet. Raises ConfigError if its driver is missing."""
    storage = settings.storage
    indexed = settings.memory.index_characters
    if storage.is_postgres and find_spec("asyncpg") is None:
        raise ConfigError(
            "storage.database needs asyncpg: run pip install '.[postgres]' in the folder of "
            "Mnemogate's source"
        )
    database = Database(settings.database, storage.synchronous, indexed, secret, storage.pool)
    database.need_lease()
    return database


def reload_state(
    running_gateway: GatewayState, settings: Settings, servers: Servers
) -> GatewayState:
    """Return the state for new settings, with the same memory, worker and counters.

    Raises ConfigError, in which case nothing has changed.
    """
    router = Router(settings, servers[0], ModelFacts.load(facts_file()))
    state = replace(
        running_gateway,
        settings=settings,
        keys=_authenticator(settings, running_gateway.secret, running_gateway.keys.key_store),
        router=router,
        prefixes=RequestParseCache(),
        background=UiPromptDetector(settings.memory.ignore),
        lacks=no_lacks(),
        windows=ContextWindows(servers[1]),
        choice=running_gateway.choice.with_rules(settings.routing),
        toolbox=_reload_toolbox(running_gateway, settings),
    )
    running_gateway.choice.cooldowns.rules = _cooldown_policy(settings)
    running_gateway.metrics.configure(_model_names(settings), settings.providers, settings.agents)
    running_gateway.metrics.tools.configure(settings.tools)
    memory = running_gateway.memory
    memory.policy = _policy(settings)
    memory.db.index_limit.characters = settings.memory.index_characters
    _register(
        running_gateway.worker,
        memory,
        BackgroundModelClient(
            settings, router, state.choice, running_gateway.credentials, running_gateway.usage
        ),
        running_gateway.metrics,
    )
    if memory.retrieval.meaning is not None and isinstance(
        embed := memory.retrieval.meaning.embed, UpstreamEmbedder
    ):
        embed.router, embed.own_key = router, settings.mode == "own-key"
    return state


def _toolbox(settings: Settings, memory: Memory, secret: bytes) -> ToolRegistry:
    shared = SharedRuntimes(settings.sandbox)
    return build_registry(KindServices(settings, memory, secret, shared))


def _reload_toolbox(running_gateway: GatewayState, settings: Settings) -> ToolRegistry:
    """Return the registry of new settings; replaced entries end with their runs."""
    shared = running_gateway.toolbox.shared
    if shared.settings != settings.sandbox:
        shared = SharedRuntimes(settings.sandbox)
    services = KindServices(settings, running_gateway.memory, running_gateway.secret, shared)
    toolbox = build_registry(services, running_gateway.toolbox)
    retiring = asyncio.ensure_future(running_gateway.toolbox.retire(toolbox))
    running_gateway.process.jobs.add(retiring)
    retiring.add_done_callback(running_gateway.process.jobs.discard)
    return toolbox


def _traces(settings: Settings) -> TurnTraces | None:
    """Return where traces go; None if no endpoint is set. Raises ConfigError."""
    telemetry = settings.telemetry
    if not telemetry.traces:
        return None
    if not is_available():
        raise ConfigError(
            "telemetry.traces needs OpenTelemetry: run pip install '.[otel]' in the folder of "
            "Mnemogate's source"
        )
    return open_traces(telemetry.traces, content=telemetry.trace_content)


def _authenticator(settings: Settings, secret: bytes, key_store: KeyStore) -> Authenticator:
    path = settings.data / "token"
    # Who had the dashboard before there were managed keys keeps it, on loopback.
    stays = settings.mode == "managed" and settings.server.loopback and path.exists()
    is_used = settings.is_keyless or stays
    token = ""
    if is_used:
        token = load_or_create_secret(path, 24).hex()
    return Authenticator(settings, secret, token, key_store)


def _counters(shared: RedisClient | None, sharers: Callable[[], int]) -> Counters:
    if shared:
        return RedisCounters(shared, sharers=sharers)
    return LocalCounters()


def _cooldowns(settings: Settings, shared: RedisClient | None) -> Cooldowns:
    policy = _cooldown_policy(settings)
    if shared:
        return RedisCooldowns(shared, policy)
    return LocalCooldowns(policy)


def _cooldown_policy(settings: Settings) -> CooldownPolicy:
    cooldown = settings.routing.cooldown
    return CooldownPolicy(cooldown.failures, cooldown.window, cooldown.seconds)


def _blocks_of(defaults: Iterable[BlockDefault]) -> dict[str, CoreBlock]:
    return {
        b.label: CoreBlock(b.label, b.value, b.description, b.limit, b.read_only) for b in defaults
    }


def _policy(settings: Settings) -> Policy:
    part = settings.memory
    prompts = part.prompts
    screen = Screen({**PATTERNS, **part.screen_patterns} if part.screen else {})
    space = BlockSpace(part.blocks_per_user, part.block_characters, part.shared_characters)
    return Policy(
        OperatorBlocks(_blocks_of(part.blocks), space),
        EpochPolicy(
            part.cache_idle_seconds,
            live=part.placement == "live",
            instruction=prompts.instruction or INSTRUCTION,
        ),
        part.read_deadline_ms / 1000,
        summary_seconds=part.summary_seconds,
        summary_prompt=prompts.summary or SUMMARY_PROMPT,
        ahead=part.summarize_ahead,
        reflect=schedule_of(part.reflect, part.timezone),
        skills=distillation.SkillPolicy(
            part.skills.mode,
            RepetitionRules(part.skills.min_calls, part.skills.min_times),
            part.skills.characters,
            part.skills.shown,
            frozenset(settings.tools),
        ),
        extraction=ExtractionRules(
            part.extraction.every_turns,
            part.extraction.idle_seconds,
            part.extraction.instructions,
            part.extraction.categories,
            prompts.extraction or EXTRACTION_PROMPT,
            screen,
            part.timezone,
        ),
        screen=screen,
        model_blocks=part.model_blocks,
        project_blocks=OperatorBlocks(_blocks_of(part.project_blocks), space),
        project_writes=part.project_writes == "user",
    )


def _blocks_in(memory: Memory) -> Callable[[str], Mapping[str, CoreBlock]]:
    """Return what gives the operator's blocks in a project, by the newest policy."""

    def blocks_in(project: str) -> Mapping[str, CoreBlock]:
        return memory.policy.blocks_in(project)

    return blocks_in


def _register(
    worker: Worker, memory: Memory, background_model: BackgroundModelClient, metrics: Metrics
) -> None:
    settings = background_model.settings
    blocks = _blocks_in(memory)
    _register_housekeeping(worker, memory, settings)
    _register_files(worker, memory, settings)
    worker.register(
        summarization.KIND,
        summarization.summary_handler(
            memory.db, background_model, lambda: memory.policy.summary_prompt
        ),
        slow=True,
        small=True,
    )
    worker.register(
        extraction.KIND,
        extraction.extraction_handler(
            memory.db,
            background_model,
            blocks,
            lambda: memory.policy.extraction,
            extraction.ExtractionCounters(memory.models.unusable, metrics.observe_drops),
        ),
        slow=True,
        small=memory.lines.forget_row,
    )
    _register_upkeep(worker, memory, background_model)
    worker.limit(_kinds_with_credential(settings, memory), background_model.credentials.tenants)


def _register_upkeep(
    worker: Worker, memory: Memory, background_model: BackgroundModelClient
) -> None:
    """Let this process tidy memories, and write skills."""
    blocks = _blocks_in(memory)
    agents = AgentDirectory(background_model.settings, memory, memory.secret)
    worker.register(
        reflection.KIND,
        reflection.reflection_handler(
            memory.db,
            background_model,
            memory.retrieval,
            blocks,
            agents.find_reflection_plan,
        ),
        slow=True,
    )
    worker.register(
        distillation.KIND,
        distillation.distillation_handler(
            memory.db, background_model, blocks, lambda: memory.policy
        ),
        slow=True,
        small=memory.lines.forget_row,
    )


def _register_housekeeping(worker: Worker, memory: Memory, settings: Settings) -> None:
    part = settings.memory
    retention = maintenance.RetentionPolicy(
        part.explain_days,
        part.unnamed_days,
        settings.delegation.inbox_days,
        settings.toolbox.result_days,
    )
    align = distillation.alignment_of(lambda: memory.policy, _blocks_in(memory))
    maintenance.register(worker, memory.db, retention, memory.retrieval, align)
    worker.register(
        "fade",
        maintenance.fade_handler(memory.db),
        interval=maintenance.PERIOD_SECONDS if part.cleanup == "auto" else None,
    )


def _register_files(worker: Worker, memory: Memory, settings: Settings) -> None:
    """Let this process read files, where an entry keeps them."""
    file_cleaning.register_cleaning(worker, memory.db)
    limits = find_file_limits(settings)
    if limits is None:
        return
    from memory.jobs.file_reading import FileReading

    reading = FileReading(memory.db, lambda: memory.policy.blocks)
    reading.limits.pages = limits.pages
    reading.limits.characters = limits.characters
    worker.register_long(reading.kind, reading.run)


def _kinds_with_credential(settings: Settings, memory: Memory) -> set[str]:
    """Return the kinds of jobs for which each tenant's own credential is needed."""
    if settings.mode != "own-key":
        return set()
    meaning = memory.retrieval.meaning
    if meaning and isinstance(meaning.embed, UpstreamEmbedder):
        embeds = {"embed"}
    else:
        embeds = set()
    return {summarization.KIND, extraction.KIND, reflection.KIND, distillation.KIND, *embeds}

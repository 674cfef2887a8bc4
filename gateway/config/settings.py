"""Every setting with its type, bounds and default, validated as a whole before use.

An unusable value is reported with its path and what is allowed; keys are never shown. `loader`
reads the settings from a file and the environment. The sections on keys and on memory have modules
of their own, which this one exports too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from gateway.config.addresses import complete_url
from gateway.config.agents import PREFIX, Agents, AgentSettings, check_agent_models
from gateway.config.clients import Clients
from gateway.config.delegation import DelegationSettings
from gateway.config.keys import Budget, KeyGrant, KeySettings, LimitSettings, MemoryMode
from gateway.config.memory_settings import BlockDefault, MemorySettings, ReflectSettings
from gateway.config.python_tools import SandboxSettings
from gateway.config.section import Section
from gateway.config.storage_settings import StorageSettings
from gateway.config.telemetry_settings import TelemetrySettings
from gateway.config.tools import Patterns, ToolboxSettings, Tools
from gateway.config.validation import describe_validation_errors
from gateway.errors import redact_url
from gateway.storage.key_probe import NONE, KeyCounts
from gateway.wire.headers import may_forward
from gateway.wire.losses import DROPPED

__all__ = [
    "AgentSettings",
    "BlockDefault",
    "Budget",
    "ConfigError",
    "CooldownSettings",
    "IdentitySettings",
    "KeyGrant",
    "KeySettings",
    "LimitSettings",
    "MemorySettings",
    "ModelSettings",
    "Price",
    "ProviderSettings",
    "ReflectSettings",
    "RoutingSettings",
    "ServerSettings",
    "Settings",
    "StorageSettings",
    "TargetSettings",
    "TelemetrySettings",
    "TimeoutSettings",
    "data_folder",
    "parse_settings",
]

# Of a request.
NEEDED = ("model", "messages", "input", "stream")
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the member and what to do."""


def _harmless(name: str) -> str:
    if not may_forward(name.lower().encode()):
        raise ValueError(
            "this header is never sent upstream: credentials, cookies, hop-by-hop and Mnemogate's "
            "own headers stay here; name another one"
        )
    return name


class ServerSettings(Section):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    max_body_mib: float = Field(64, gt=0)
    cors_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    open: bool = False
    single_user: Literal["auto"] | bool = "auto"
    peers: Literal["same_user", "any"] = "same_user"
    drain_seconds: float = Field(600, ge=0)
    keepalive_seconds: float = Field(15, ge=0)
    commit_seconds: float = Field(15, gt=0)
    forward_headers: tuple[Annotated[str, AfterValidator(_harmless)], ...] = ()
    jobs: bool = True
    letta: bool = True
    letta_open: bool = False
    letta_model: str = ""
    letta_waiting: int = Field(16, ge=1, le=1000)

    @field_validator("single_user", mode="wrap")
    @classmethod
    def _either(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            # One error for each type of the union.
            raise ValueError("use auto, true or false") from None

    @property
    def loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def answers_any_peer(self) -> bool:
        """Whether programs of other users of this machine are answered without a key.

        Whoever names more hosts has such programs: a container's connections are its engine's.
        """
        return self.peers == "any" or bool(self.hosts)


class TimeoutSettings(Section):
    connect: float = Field(5, gt=0)
    first_token: float = Field(120, gt=0)
    idle: float = Field(60, gt=0)
    total: float = Field(600, gt=0)


def _dispensable(name: str) -> str:
    if name in NEEDED:
        raise ValueError("a request is nothing without this member; name another one")
    return name


Member = Annotated[str, AfterValidator(_dispensable)]


class OmittedMembers(Section):
    """Members that a provider is never sent, by the format in which the client sends them."""

    chat: tuple[Member, ...] = ()
    responses: tuple[Member, ...] = ()
    messages: tuple[Member, ...] = ()


class ProviderSettings(Section):
    kind: Literal["openai", "anthropic", "azure"] = "openai"
    base_url: Annotated[str, BeforeValidator(complete_url)]
    api_key: SecretStr | None = None
    timeouts: TimeoutSettings = TimeoutSettings()
    max_connections: int = Field(1000, gt=0)
    proxy: str = Field("", repr=False)  # may hold a password, which messages leave out
    ca_file: str = ""
    client_cert: str = ""
    http2: bool = False
    stream_usage: bool = True
    server_tools: bool = True
    wires: tuple[Literal["chat", "responses", "messages"], ...] = ()
    drop: tuple[str, ...] = DROPPED
    omit: OmittedMembers = OmittedMembers()
    api_version: str = ""
    default_max_tokens: int = Field(4096, gt=0)

    @property
    def speaks_chat(self) -> bool:
        """Whether chat completions go to its servers as they are."""
        return self.kind != "anthropic" and (not self.wires or "chat" in self.wires)

    @model_validator(mode="after")
    def _speakable(self) -> ProviderSettings:
        if self.kind != "anthropic" and self.wires == ("messages",):
            raise ValueError(
                'wires = ["messages"]: a server that speaks Messages alone is of kind "anthropic"'
            )
        return self


class TargetSettings(Section):
    provider: str
    model: str | None = None
    weight: float = Field(1, gt=0)
    concurrent: int = Field(0, ge=0)
    stateful: bool = True


class Price(Section):
    """USD per million tokens.

    cached_input: tokens that the provider read from its prompt cache. cache_write: tokens that it
    put there. Either may be None: the price of `input`.
    """

    input: float = Field(ge=0, le=1e6)
    cached_input: float | None = Field(None, ge=0, le=1e6)
    cache_write: float | None = Field(None, ge=0, le=1e6)
    output: float = Field(ge=0, le=1e6)


class ModelSettings(Section):
    targets: tuple[TargetSettings, ...] = Field(min_length=1)
    fallbacks: tuple[str, ...] = ()
    context_window: int | None = Field(None, gt=0)
    supports_tools: bool | None = None
    supports_images: bool = True
    memory: MemoryMode = "full"
    tools: Patterns = ()
    price: Price | None = None


class CooldownSettings(Section):
    failures: int = Field(3, ge=0)
    window: float = Field(30, gt=0)
    seconds: float = Field(30, ge=0)


class RoutingSettings(Section):
    retries: int = Field(1, ge=0)
    cooldown: CooldownSettings = CooldownSettings()
    choice: Literal["weighted", "least_latency"] = "weighted"
    sticky: bool = False
    queue_seconds: float = Field(5, ge=0)
    failover_codes: tuple[str, ...] = ("insufficient_quota", "model_not_found")
    ask_windows: bool = True


IDENTITY = ("header", "path", "user", "safety_identifier", "alias")
# fmt: off
PLACEHOLDERS = (
    "undefined", "null", "none", "nil", "nan", "anonymous", "anon", "unknown", "guest", "default",
    "user", "[object object]", "n/a", "-", "0",
)
# fmt: on


class IdentitySettings(Section):
    order: tuple[Literal["header", "path", "user", "safety_identifier", "alias"], ...] = IDENTITY  # type: ignore[assignment]
    alias_headers: tuple[str, ...] = ("x-openwebui-user-id", "x-openwebui-user-email")
    placeholders: tuple[str, ...] = PLACEHOLDERS


class Settings(Section):
    """All settings of Mnemogate.

    `identity` may be given as the bare list of sources or as a table.
    """

    server: ServerSettings = ServerSettings()
    storage: StorageSettings = StorageSettings()
    identity: IdentitySettings = IdentitySettings()
    clients: Clients = Field({}, validate_default=True)
    providers: dict[str, ProviderSettings] = Field({})
    models: dict[str, ModelSettings] = Field({})
    agents: Agents = Field({})
    delegation: DelegationSettings = DelegationSettings()
    routing: RoutingSettings = RoutingSettings()
    keys: tuple[KeySettings, ...] = ()
    memory: MemorySettings = MemorySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    toolbox: ToolboxSettings = ToolboxSettings()
    sandbox: SandboxSettings = SandboxSettings()
    tools: Tools = Field({})
    _key_counts: KeyCounts | None = PrivateAttr(default=NONE)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("identity"), list):
            data = {**data, "identity": {"order": data["identity"]}}
        return data

    @model_validator(mode="after")
    def _coherent(self) -> Settings:
        for name, model in self.models.items():
            self._check_model(name, model)
        check_agent_models(self.agents, self.models, self.serves)
        if self.memory.summarizer and self.models and not self.serves(self.memory.summarizer):
            raise ValueError(
                f"memory.summarizer names the model {self.memory.summarizer!r}, which no "
                f"[models] entry serves; there are: {', '.join(self.models)}"
            )
        self._check_keys()
        return self

    def _check_model(self, name: str, model: ModelSettings) -> None:
        """Raise ValueError for a provider or a fallback that is not configured."""
        if name.startswith(PREFIX):
            raise ValueError(
                f"models.{name!r} begins with {PREFIX!r}, by which agents are called: name the "
                "model otherwise, or describe an agent in [agents]"
            )
        for target in model.targets:
            if target.provider not in self.providers:
                raise ValueError(
                    f"models.{name!r} names the provider {target.provider!r}, which is not "
                    f"configured; there are: {', '.join(self.providers) or 'none'}"
                )
        for fallback in model.fallbacks:
            if fallback.endswith("*") or not self.serves(fallback):
                raise ValueError(
                    f"models.{name!r}.fallbacks names the model {fallback!r}, which no "
                    f"[models] entry serves; there are: {', '.join(self.models)}"
                )

    def _check_keys(self) -> None:
        """Raise ValueError if two keys share a name, or two names share a key."""
        if len({k.name for k in self.keys}) != len(self.keys):
            raise ValueError("two keys have the same name")
        holders: dict[str, str] = {}
        for key in self.keys:
            if (holder := holders.setdefault(key.digest, key.name)) != key.name:
                raise ValueError(f"{holder!r} and {key.name!r} are the same key: give each its own")

    def serves(self, name: str) -> bool:
        """Tell whether a [models] entry serves this model name."""
        return name in self.models or any(
            m.endswith("*") and name.startswith(m[:-1]) for m in self.models
        )

    def validated_for_serving(self, key_counts: KeyCounts | None) -> Settings:
        """Return a copy that knows the keys created at run time, checked for serving.

        key_counts: None if the database could not be read. Raises ConfigError for settings that
        would serve people who have no right to it.
        """
        serving_settings = self.model_copy()
        serving_settings._key_counts = key_counts
        lent = [n for n, p in self.providers.items() if p.api_key is not None]
        loopback, host = self.server.loopback, self.server.host
        fault = ""
        # First, since the mode is not known then.
        if key_counts is None and not self.keys and (self.storage.is_postgres or not loopback):
            fault = (
                f"storage.database: {self.database_shown} cannot be read, so whether keys were "
                "made, and so who may call, is not known. Start again once it answers."
            )
        elif lent and serving_settings.mode == "own-key":
            fault = (
                f"providers.{lent[0]}.api_key is set but there is no managed key: anybody who "
                "reaches the port would spend it. Make one with `mnemogate keys create` (with "
                "the same --config), add a [[keys]] entry, remove api_key so that clients "
                "bring their own, or set server.open = true to allow it on loopback."
            )
        elif self.server.open and not loopback:
            fault = (
                "server.open = true serves without keys, so it binds loopback only; server.host "
                f"is {host!r}"
            )
        elif (
            self.server.single_user is True and not loopback and serving_settings.mode != "managed"
        ):
            fault = (
                f"server.single_user = true off loopback (server.host is {host!r}) needs a "
                "[[keys]] entry, or a key from `mnemogate keys create`"
            )
        if fault:
            raise ConfigError(f"configuration: {fault}")
        return serving_settings

    @property
    def key_counts(self) -> KeyCounts | None:
        """The keys that the database held when these settings were read.

        None if it could not be read.
        """
        return self._key_counts

    @property
    def mode(self) -> Literal["managed", "open", "own-key"]:
        """How clients authenticate.

        Stays `managed` if every key created at run time is revoked: to revoke the last key must not
        open the gateway.
        """
        if self.keys or (self._key_counts and self._key_counts.ever):
            return "managed"
        return "open" if self.server.open else "own-key"

    @property
    def is_keyless(self) -> bool:
        """Whether no credential tells a caller from any other who reaches the port.

        In single-user mode that of a provider is passed on, and any is as good.
        """
        return self.mode == "open" or (self.mode == "own-key" and self.single_user)

    @property
    def single_user(self) -> bool:
        """Whether one person uses this gateway: on loopback without managed keys, or as set."""
        if self.server.single_user == "auto":
            return self.mode != "managed" and self.server.loopback
        return self.server.single_user

    def merge_reloadable(self, new_settings: Settings) -> tuple[Settings, list[str]]:
        """Return `new_settings` without what needs a restart, and the names of these settings.

        Raises ConfigError.
        """
        server = new_settings.server.model_copy(
            update={"host": self.server.host, "port": self.server.port}
        )
        memory = new_settings.memory.model_copy(update={"embedder": self.memory.embedder})
        telemetry = new_settings.telemetry.model_copy(
            update={name: getattr(self.telemetry, name) for name in ("traces", "trace_content")}
        )
        fixed = {"server": server, "storage": self.storage, "memory": memory}
        fixed["telemetry"] = telemetry
        restart_names = [
            f"{part}.{name}"
            for part, section in fixed.items()
            for name in type(section).model_fields
            if getattr(section, name) != getattr(getattr(new_settings, part), name)
        ]
        restart_names += [
            f"providers.{n}.max_connections"
            for n, p in new_settings.providers.items()
            if n in self.providers and p.max_connections != self.providers[n].max_connections
        ]
        merged_settings = parse_settings(
            {
                **{name: getattr(new_settings, name) for name in type(new_settings).model_fields},
                **fixed,
            }
        )
        return merged_settings.validated_for_serving(
            new_settings.key_counts
            if new_settings.key_counts and new_settings.database == self.database
            else self.key_counts
        ), restart_names

    @property
    def data(self) -> Path:
        """The folder of the secret, the local token, the recovery log and a relative database."""
        if self.storage.data:
            return Path(self.storage.data).expanduser()
        path = self.storage.database.partition("sqlite+aiosqlite:///")[2]
        return Path(path).parent if path.startswith("/") else data_folder()

    @property
    def database(self) -> str:
        """The database's URL; a relative SQLite path is resolved in the data folder."""
        scheme, prefix, path = self.storage.database.partition("sqlite+aiosqlite:///")
        if not prefix or path.startswith("/") or ":memory:" in path:
            return self.storage.database
        return f"{scheme}{prefix}{(self.data / path).resolve()}"

    @property
    def database_shown(self) -> str:
        """The database's URL, without the password that it may hold."""
        return redact_url(self.database)

    @property
    def sqlite_file(self) -> Path | None:
        """The file of a SQLite database; None for other databases."""
        _, prefix, path = self.database.partition("sqlite+aiosqlite:///")
        return Path(path) if prefix else None


def data_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the user's data folder for Mnemogate."""
    if home := env.get("MNEMOGATE_DATA"):
        return Path(home).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "mnemogate"
    return Path(env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "mnemogate"


def parse_settings(data: dict[str, Any], variables: Mapping[tuple[str, ...], str] = {}) -> Settings:
    """Return settings parsed from a plain dict, not yet checked for serving.

    variables: names of environment variables, by the path that each set. Raises ConfigError.
    """
    try:
        return Settings.model_validate(data)
    except ValidationError as e:
        lines = [
            f"{'.'.join(path) or 'configuration'}: {text}{_origin(path, variables)}"
            for path, text in describe_validation_errors(
                e, Settings, "config/gateway.toml lists them all"
            )
        ]
        raise ConfigError("\n".join(lines)) from e


def _origin(path: Sequence[str], variables: Mapping[tuple[str, ...], str]) -> str:
    return next(
        (
            f" (from {name})"
            for at, name in variables.items()
            if path and all(a == b for a, b in zip(at, path, strict=False))
        ),
        "",
    )

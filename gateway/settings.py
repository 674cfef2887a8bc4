"""What Mnemogate can be told: every setting with its type, bounds and default, checked whole before use.

What cannot be used is refused with its path, its value and what is allowed; keys are never shown. How a file and the environment become these: `loading`.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from gateway.addresses import whole
from gateway.errors import told
from gateway.headers import may_forward
from memory.blocks import LABEL, RESERVED
from memory.stores.sql.glance import NONE, Made

SHA256 = re.compile(r"[0-9a-f]{64}")
VECTORS = re.compile(r"chroma:https?://[^/]")
KEY_CHARACTERS = 16
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the member and what to do."""


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _harmless(name: str) -> str:
    if not may_forward(name.lower().encode()):
        raise ValueError(
            "it never goes upstream: credentials, cookies, hop-by-hop headers and Mnemogate's own stay here; name another header"
        )
    return name


class Server(Part):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    max_body_mib: float = Field(64, gt=0)
    cors_origins: tuple[str, ...] = ()
    open: bool = False
    single_user: Literal["auto"] | bool = "auto"
    drain_seconds: float = Field(600, ge=0)
    keepalive_seconds: float = Field(15, ge=0)
    commit_seconds: float = Field(15, gt=0)
    forward_headers: tuple[Annotated[str, AfterValidator(_harmless)], ...] = ()

    @field_validator("single_user", mode="wrap")
    @classmethod
    def _either(cls, value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
        try:
            return inner(value)
        except ValidationError:  # of each of its types
            raise ValueError("use auto, true or false") from None

    @property
    def loopback(self) -> bool:
        return self.host in LOOPBACK


class Storage(Part):
    data: str = ""
    database: str = "sqlite+aiosqlite:///mnemogate.db"
    vectors: str = "chroma:embedded"
    redis: str = ""
    exact_below: int = Field(5000, ge=0)
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"

    @field_validator("vectors")
    @classmethod
    def _store(cls, where: str) -> str:
        if where not in ("chroma:embedded", "none") and not VECTORS.match(where):
            raise ValueError("use chroma:embedded, chroma:http://host:8000 or none")
        return where


class Timeouts(Part):
    connect: float = Field(5, gt=0)
    first_token: float = Field(120, gt=0)
    idle: float = Field(60, gt=0)
    total: float = Field(600, gt=0)


class Provider(Part):
    kind: Literal["openai", "anthropic", "azure"] = "openai"
    base_url: Annotated[str, BeforeValidator(whole)]
    api_key: SecretStr | None = None
    timeouts: Timeouts = Timeouts()
    max_connections: int = Field(1000, gt=0)
    proxy: str = Field("", repr=False)  # which may hold a password: messages show it without
    ca_file: str = ""
    client_cert: str = ""
    http2: bool = False
    stream_usage: bool = True
    api_version: str = ""
    default_max_tokens: int = Field(4096, gt=0)


class Target(Part):
    provider: str
    model: str | None = None
    weight: float = Field(1, gt=0)
    concurrent: int = Field(0, ge=0)


class Price(Part):
    """USD per million tokens. cached_input, cache_write: what the provider read from its prompt cache, and put there; None: as input."""

    input: float = Field(ge=0, le=1e6)
    cached_input: float | None = Field(None, ge=0, le=1e6)
    cache_write: float | None = Field(None, ge=0, le=1e6)
    output: float = Field(ge=0, le=1e6)


class Model(Part):
    targets: tuple[Target, ...] = Field(min_length=1)
    fallbacks: tuple[str, ...] = ()
    context_window: int | None = Field(None, gt=0)
    supports_tools: bool | None = None
    price: Price | None = None


class Cooldown(Part):
    failures: int = Field(3, ge=0)
    window: float = Field(30, gt=0)
    seconds: float = Field(30, ge=0)


class Routing(Part):
    retries: int = Field(1, ge=0)
    cooldown: Cooldown = Cooldown()
    choice: Literal["weighted", "least_latency"] = "weighted"
    sticky: bool = False
    queue_seconds: float = Field(5, ge=0)
    failover_codes: tuple[str, ...] = ("insufficient_quota", "model_not_found")


class Limits(Part):
    rpm: int = Field(0, ge=0, le=2**53)
    tpm: int = Field(0, ge=0, le=2**53)
    concurrent: int = Field(0, ge=0, le=2**53)


class Budget(Part):
    usd: float = Field(0, ge=0, le=1e9, allow_inf_nan=False)
    period: Literal["hour", "day", "week", "month"] = "month"


class Grant(Part):
    """What a managed key is called and what it may do, wherever it was made."""

    name: str = Field(min_length=1, max_length=256)
    tenant: str = Field(min_length=1, max_length=1024)
    trusted: bool = True
    users: tuple[str, ...] = ()
    default_user: str = ""
    admin: bool = False
    models: tuple[str, ...] = ("*",)
    paths: tuple[str, ...] = ()
    limits: Limits = Limits()
    budget: Budget = Budget()

    @field_validator("name", "tenant")
    @classmethod
    def _printable(cls, text: str) -> str:
        if not text.isprintable() or not text.strip() or text == "*":
            raise ValueError(
                "give printable characters, neither blanks alone nor a lone * (which means all)"
            )
        return text

    @field_validator("paths")
    @classmethod
    def _below_v1(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := next((path for path in paths if not path.startswith("/v1/")), None):
            raise ValueError(
                f'{wrong[:60]!r} does not begin with /v1/; give paths such as "/v1/files*"'
            )
        return paths


class Key(Grant):
    key: SecretStr | None = None
    key_hash: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Key:
        if (self.key is None) == (self.key_hash is None):
            raise ValueError("give either `key` or `key_hash` (sha256, hex)")
        if self.key is not None and not self.key.get_secret_value():
            raise ValueError("`key` is empty")
        if not SHA256.fullmatch(
            self.digest
        ):  # not quoted: it may be the key itself, in the wrong place
            raise ValueError(
                '`key_hash` is no sha256 in hex, which has 64 digits: printf %s "$KEY" | sha256sum'
            )
        return self

    @property
    def short(self) -> bool:
        """Whether the key could be guessed from its hash, which is a quick one."""
        return self.key is not None and len(self.key.get_secret_value()) < KEY_CHARACTERS

    @property
    def digest(self) -> str:
        """The sha256 of the key, in hex."""
        if self.key is not None:
            return hashlib.sha256(self.key.get_secret_value().encode()).hexdigest()
        return (self.key_hash or "").removeprefix("sha256:").lower()


class BlockDefault(Part):
    label: str
    description: str = ""
    value: str = ""
    limit: int = Field(4000, gt=0)
    read_only: bool = False

    @field_validator("label")
    @classmethod
    def _usable(cls, label: str) -> str:
        if not LABEL.fullmatch(label) or label in RESERVED:
            raise ValueError("this must match [a-z][a-z0-9_]{0,62} and be none of ours")
        return label

    @model_validator(mode="after")
    def _fits(self) -> BlockDefault:
        if len(self.value) > self.limit:
            raise ValueError(
                f"`value` has {len(self.value)} characters, its limit is {self.limit}: shorten it, or raise `limit`"
            )
        return self


BLOCKS = (
    BlockDefault(label="human", description="What is known about the user"),
    BlockDefault(label="persona", description="How to behave towards this user"),
    BlockDefault(label="scratchpad", description="Open tasks, plans, follow-ups"),
)


class Reflect(Part):
    every_turns: int = Field(0, ge=0)
    idle_seconds: float = Field(0, ge=0)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as e:
        raise ValueError(f"this is a regular expression ({e.msg})") from e
    return text


class MemoryPart(Part):
    tools: Literal["always", "with_client_tools", "never"] = "always"
    ignore: tuple[Annotated[str, AfterValidator(_pattern)], ...] = ()
    max_rounds: int = Field(8, ge=1)
    turn_seconds: float = Field(300, gt=0)
    usage: Literal["sum", "last"] = "sum"
    explain_days: float = Field(7, ge=0)
    unnamed_days: float = Field(30, ge=0)
    on_error: Literal["bypass", "fail"] = "bypass"
    recall: Literal["tools", "auto"] = "tools"
    placement: Literal["cache_stable", "live"] = "cache_stable"
    extract: Literal["off", "auto"] = "off"
    embedder: str = "none"
    summarizer: str = ""
    summarize_ahead: bool = True
    reflect: Reflect = Reflect()
    cleanup: Literal["off", "auto"] = "off"
    read_deadline_ms: float = Field(150, gt=0)
    cache_idle_seconds: float = Field(300, gt=0)
    summary_seconds: float = Field(30, gt=0)
    import_rows: int = Field(100_000, gt=0)
    import_mib: float = Field(32, gt=0)
    blocks: tuple[BlockDefault, ...] = BLOCKS


IDENTITY = ("header", "path", "user", "safety_identifier", "alias")
PLACEHOLDERS = (
    "undefined",
    "null",
    "none",
    "nil",
    "nan",
    "anonymous",
    "anon",
    "unknown",
    "guest",
    "default",
    "user",
    "[object object]",
    "n/a",
    "-",
    "0",
)


class Identity(Part):
    order: tuple[Literal["header", "path", "user", "safety_identifier", "alias"], ...] = IDENTITY  # type: ignore[assignment]
    alias_headers: tuple[str, ...] = ("x-openwebui-user-id", "x-openwebui-user-email")
    placeholders: tuple[str, ...] = PLACEHOLDERS


class Settings(Part):
    """Everything Mnemogate can be told. `identity` may be the bare list of sources, as well as its table."""

    server: Server = Server()
    storage: Storage = Storage()
    identity: Identity = Identity()
    providers: dict[str, Provider] = {}
    models: dict[str, Model] = {}
    routing: Routing = Routing()
    keys: tuple[Key, ...] = ()
    memory: MemoryPart = MemoryPart()
    _made: Made | None = PrivateAttr(default=NONE)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("identity"), list):
            data = {**data, "identity": {"order": data["identity"]}}
        return data

    @model_validator(mode="after")
    def _coherent(self) -> Settings:
        for name, model in self.models.items():
            for target in model.targets:
                if target.provider not in self.providers:
                    raise ValueError(
                        f"models.{name!r} names the provider {target.provider!r}, which is not configured; there are: {', '.join(self.providers) or 'none'}"
                    )
            for other in model.fallbacks:
                if other.endswith("*") or not self.serves(other):
                    raise ValueError(
                        f"models.{name!r}.fallbacks names the model {other!r}, which no [models] entry serves; there are: {', '.join(self.models)}"
                    )
        if self.memory.summarizer and self.models and not self.serves(self.memory.summarizer):
            raise ValueError(
                f"memory.summarizer names the model {self.memory.summarizer!r}, which no [models] entry serves; there are: {', '.join(self.models)}"
            )
        if len({k.name for k in self.keys}) != len(self.keys):
            raise ValueError("two keys have the same name")
        holders: dict[str, str] = {}
        for key in self.keys:
            if (other := holders.setdefault(key.digest, key.name)) != key.name:
                raise ValueError(
                    f"the keys {other!r} and {key.name!r} are one and the same: give each its own"
                )
        return self

    def serves(self, name: str) -> bool:
        """Whether a model of this name goes anywhere."""
        return name in self.models or any(
            m.endswith("*") and name.startswith(m[:-1]) for m in self.models
        )

    def guarded(self, made: Made | None) -> Settings:
        """These settings, with the keys that were made at run time; None: whether there are any cannot be told.

        Raises ConfigError for what would serve people who have no right to it.
        """
        found = self.model_copy()
        found._made = made
        lent = [n for n, p in self.providers.items() if p.api_key is not None]
        loopback, host = self.server.loopback, self.server.host
        fault = ""
        if lent and found.mode == "own-key":
            fault = (
                f"providers.{lent[0]}.api_key is set but there is no managed key: anybody who reaches the port would spend it. Make one with "
                "`mnemogate keys create` (with the same --config), add a [[keys]] entry, remove api_key so that clients bring their own, or set server.open = true to allow it on loopback."
            )
        elif self.server.open and not loopback:
            fault = f"server.open = true serves without keys, so it binds loopback only; server.host is {host!r}"
        elif self.server.single_user is True and not loopback and found.mode != "managed":
            fault = f"server.single_user = true off loopback (server.host is {host!r}) needs a [[keys]] entry, or a key from `mnemogate keys create`"
        elif made is None and found.mode == "own-key" and not loopback:
            fault = f"storage.database: {self.database} cannot be read, so whether keys were made is not known, and server.host is {host!r}. `mnemogate doctor` looks closer."
        if fault:
            raise ConfigError(f"configuration: {fault}")
        return found

    @property
    def made(self) -> Made | None:
        """The keys that the database held when these settings were read; None: it could not be read."""
        return self._made

    @property
    def mode(self) -> Literal["managed", "open", "own-key"]:
        """managed also where every key that was made is revoked: to revoke the last one must not open the door."""
        if self.keys or (self._made and self._made.ever):
            return "managed"
        return "open" if self.server.open else "own-key"

    @property
    def single_user(self) -> bool:
        """One person on one laptop: on loopback without managed keys, or where asked for."""
        if self.server.single_user == "auto":
            return self.mode != "managed" and self.server.loopback
        return self.server.single_user

    def followed(self, wanted: Settings) -> tuple[Settings, list[str]]:
        """`wanted`, but for what cannot change in a running process, and the names of what would have. Raises ConfigError."""
        server = wanted.server.model_copy(
            update={"host": self.server.host, "port": self.server.port}
        )
        memory = wanted.memory.model_copy(update={"embedder": self.memory.embedder})
        fixed = {"server": server, "storage": self.storage, "memory": memory}
        waiting = [
            f"{part}.{name}"
            for part, kept in fixed.items()
            for name in type(kept).model_fields
            if getattr(kept, name) != getattr(getattr(wanted, part), name)
        ]
        waiting += [
            f"providers.{n}.max_connections"
            for n, p in wanted.providers.items()
            if n in self.providers and p.max_connections != self.providers[n].max_connections
        ]
        merged = checked(
            {**{name: getattr(wanted, name) for name in type(wanted).model_fields}, **fixed}
        )
        return merged.guarded(
            wanted.made if wanted.made and wanted.database == self.database else self.made
        ), waiting

    @property
    def data(self) -> Path:
        """Where the secret, the local token, the spill file and a relative database live."""
        if self.storage.data:
            return Path(self.storage.data).expanduser()
        path = self.storage.database.partition("sqlite+aiosqlite:///")[2]
        return Path(path).parent if path.startswith("/") else data_folder()

    @property
    def database(self) -> str:
        """The database's URL, a relative SQLite path being in the data folder."""
        scheme, found, path = self.storage.database.partition("sqlite+aiosqlite:///")
        if not found or path.startswith("/") or ":memory:" in path:
            return self.storage.database
        return f"{scheme}{found}{(self.data / path).resolve()}"

    @property
    def sqlite_file(self) -> Path | None:
        """The file of a SQLite database; None for another kind."""
        _, found, path = self.database.partition("sqlite+aiosqlite:///")
        return Path(path) if found else None


def data_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The user's data folder for Mnemogate."""
    if home := env.get("MNEMOGATE_DATA"):
        return Path(home).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "mnemogate"
    return Path(env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "mnemogate"


def checked(data: dict[str, Any], variables: Mapping[tuple[str, ...], str] = {}) -> Settings:
    """The settings from a plain table, not guarded yet. variables: of the environment, by the path that each set. Raises ConfigError."""
    try:
        return Settings.model_validate(data)
    except ValidationError as e:
        lines = [
            f"{'.'.join(path) or 'configuration'}: {text}{_origin(path, variables)}"
            for path, text in told(e, Settings, "config/gateway.toml lists them all")
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

"""Managed keys in the configuration: permissions, limits and budgets."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.config.section import Section

SHA256 = re.compile(r"[0-9a-f]{64}")
MemoryMode = Literal["full", "read", "write", "off"]
# A shorter key could be guessed from its hash.
KEY_CHARACTERS = 16


class LimitSettings(Section):
    rpm: int = Field(0, ge=0, le=2**53)
    tpm: int = Field(0, ge=0, le=2**53)
    concurrent: int = Field(0, ge=0, le=2**53)


class Budget(Section):
    usd: float = Field(0, ge=0, le=1e9, allow_inf_nan=False)
    period: Literal["hour", "day", "week", "month"] = "month"


class KeyGrant(Section):
    """A managed key's name and permissions, however it was created."""

    name: str = Field(min_length=1, max_length=256)
    tenant: str = Field(min_length=1, max_length=1024)
    trusted: bool = True
    users: tuple[str, ...] = ()
    default_user: str = ""
    admin: bool = False
    approve: bool = False
    models: tuple[str, ...] = ("*",)
    agents: tuple[str, ...] = ("*",)
    paths: tuple[str, ...] = ()
    memory: MemoryMode = "full"
    tools: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = ()
    tools_max: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = ("*",)
    limits: LimitSettings = LimitSettings()
    budget: Budget = Budget()

    @field_validator("name", "tenant")
    @classmethod
    def _printable(cls, text: str) -> str:
        if not text.isprintable() or not text.strip() or text == "*":
            raise ValueError(
                "use printable characters, not only blanks, and not * alone (it means all)"
            )
        return text

    @field_validator("paths")
    @classmethod
    def _below_v1(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        if outside_path := next((path for path in paths if not path.startswith("/v1/")), None):
            raise ValueError(
                f'{outside_path[:60]!r} does not begin with /v1/; give paths such as "/v1/files*"'
            )
        return paths


class KeySettings(KeyGrant):
    key: SecretStr | None = None
    key_hash: str | None = None

    @model_validator(mode="after")
    def _one(self) -> KeySettings:
        if (self.key is None) == (self.key_hash is None):
            raise ValueError("give either `key` or `key_hash` (SHA-256 in hex)")
        if self.key is not None and not self.key.get_secret_value():
            raise ValueError("`key` is empty")
        # Not quoted: it may be the key itself, in the wrong place.
        if not SHA256.fullmatch(self.digest):
            raise ValueError(
                "`key_hash` is not a SHA-256 hash in hex (64 digits); make one with: printf %s "
                '"$KEY" | sha256sum'
            )
        return self

    @property
    def short(self) -> bool:
        """Whether the key is short enough to be guessed from its hash."""
        return self.key is not None and len(self.key.get_secret_value()) < KEY_CHARACTERS

    @property
    def digest(self) -> str:
        """The SHA-256 of the key, in hex."""
        if self.key is not None:
            return hashlib.sha256(self.key.get_secret_value().encode()).hexdigest()
        return (self.key_hash or "").removeprefix("sha256:").lower()

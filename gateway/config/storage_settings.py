"""The settings of [storage]: where the memory is kept."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.config.section import Section

VECTORS = re.compile(r"chroma:https?://[^/]")
SQLITE = "sqlite+aiosqlite:"
POSTGRES = "postgresql+asyncpg:"
SECRET = re.compile(r"[0-9a-fA-F]{64}")


class StorageSettings(Section):
    data: str = ""
    database: str = "sqlite+aiosqlite:///mnemogate.db"
    vectors: str = "chroma:embedded"
    redis: str = ""
    exact_below: int = Field(5000, ge=0)
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    secret: SecretStr = SecretStr("")
    pool: int = Field(8, ge=2, le=100)

    @field_validator("vectors")
    @classmethod
    def _store(cls, where: str) -> str:
        if where not in ("chroma:embedded", "none") and not VECTORS.match(where):
            raise ValueError("use chroma:embedded, chroma:http://host:8000 or none")
        return where

    @field_validator("secret")
    @classmethod
    def _hex(cls, secret: SecretStr) -> SecretStr:
        if (digits := secret.get_secret_value()) and not SECRET.fullmatch(digits):
            raise ValueError(
                f"give 64 hexadecimal digits, as `openssl rand -hex 32` prints them; this has "
                f"{len(digits)} characters"
            )
        return secret

    @model_validator(mode="after")
    def _one_store(self) -> StorageSettings:
        if not self.database.startswith((SQLITE, POSTGRES)):
            scheme = self.database.partition("//")[0][:40]
            raise ValueError(
                f"database begins with {scheme!r}: use sqlite+aiosqlite:///file.db or "
                "postgresql+asyncpg://user:password@host/database"
            )
        if self.database.startswith(POSTGRES) and not self.secret.get_secret_value():
            raise ValueError(
                "secret is required with Postgres, the same for every gateway on the database: set "
                'it to "${MNEMOGATE_SECRET}", 64 hexadecimal digits (of a memory that was kept in '
                "SQLite, those in the file `secret` of its data folder)"
            )
        return self

    @property
    def is_postgres(self) -> bool:
        """Whether the memory is on a server that several gateways may share."""
        return self.database.startswith(POSTGRES)

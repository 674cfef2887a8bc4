"""What an entry of the kind `files` takes."""

from __future__ import annotations

from pydantic import Field

from gateway.config.section import Section


class FileToolLimits(Section):
    """What a user may keep, and what is read of a file. per_user: files. quota_mib: of all."""

    max_mib: int = Field(50, ge=1, le=1024)
    per_user: int = Field(200, ge=1, le=10_000)
    quota_mib: int = Field(1024, ge=1)
    pages: int = Field(10_000, ge=1, le=100_000)
    characters: int = Field(20_000_000, ge=1, le=200_000_000)

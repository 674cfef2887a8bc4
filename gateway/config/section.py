"""The base class of all sections of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the configuration: frozen, unknown members are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

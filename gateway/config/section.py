"""What all sections of the configuration share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the configuration: frozen, and without members nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

"""What every `[tools.NAME]` takes, whatever its kind."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from gateway.config.section import Section

DESCRIPTION_CHARACTERS = 1024
Effect = Literal["read", "write"]


class ToolSettings(Section):
    """What every entry takes. effect: None for the default of its kind."""

    kind: str
    enabled: bool = True
    description: Any = ""
    effect: Any = None
    idempotent: bool = False
    timeout: float = Field(30, ge=1, le=600)
    concurrent: int = Field(8, ge=1, le=1000)
    serial: bool = False
    pinned: bool = False
    price: float = Field(0, ge=0, le=1e6, allow_inf_nan=False)
    result_characters: int = Field(0, ge=0, le=1_000_000)

    @field_validator("description")
    @classmethod
    def _is_a_description(cls, description: Any) -> Any:
        if not isinstance(description, str):
            raise ValueError("this must be a string")  # noqa: TRY004 - pydantic reports these
        if len(description) > DESCRIPTION_CHARACTERS:
            raise ValueError(
                f"it has {len(description)} characters; at most {DESCRIPTION_CHARACTERS} are "
                "allowed"
            )
        return description

    @field_validator("effect")
    @classmethod
    def _is_an_effect(cls, effect: Any) -> Any:
        if effect not in (None, "read", "write"):
            raise ValueError("use read or write")
        return effect

"""What an entry of the kind `mcp` takes: a server of tools, by its URL or its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from gateway.config.tool_entry import DESCRIPTION_CHARACTERS, ToolSettings

Patterns = tuple[Annotated[str, Field(min_length=1, max_length=256)], ...]


class McpToolSettings(ToolSettings):
    """One server. effect, description: a text, or a table by tool.

    session: `user` opens a connection for each user. pin: what happens with definitions that
    change. env, headers: never shown.
    """

    kind: Literal["mcp"] = "mcp"
    url: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict, repr=False)
    cwd: str = ""
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    forward_headers: tuple[str, ...] = ()
    user_header: str = ""
    session: Literal["shared", "user"] = "shared"
    allow: Patterns = ("*",)
    deny: Patterns = ()
    prefix: str | None = None
    pin: Literal["ask", "strict", "off"] = "ask"
    refresh_seconds: float = Field(300, ge=1)

    @field_validator("description")
    @classmethod
    def _is_a_description(cls, description: Any) -> Any:
        texts = description.values() if isinstance(description, Mapping) else (description,)
        for text in texts:
            if not isinstance(text, str) or len(text) > DESCRIPTION_CHARACTERS:
                raise ValueError(
                    f"give a text of at most {DESCRIPTION_CHARACTERS} characters, or a table of "
                    'such texts: { create_issue = "..." }'
                )
        return description

    @field_validator("effect")
    @classmethod
    def _is_an_effect(cls, effect_setting: Any) -> Any:
        effects = (
            effect_setting.values() if isinstance(effect_setting, Mapping) else (effect_setting,)
        )
        if any(effect not in (None, "read", "write") for effect in effects):
            raise ValueError('use read or write, or a table by pattern: { "list_*" = "read" }')
        return effect_setting

    @model_validator(mode="after")
    def _is_one_server(self) -> McpToolSettings:
        if bool(self.url) == bool(self.command):
            raise ValueError("give `url` or `command`, one of the two")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` begins with http:// or https://")
        if self.command and (self.headers or self.forward_headers or self.user_header):
            raise ValueError("`headers`, `forward_headers` and `user_header` are for a `url`")
        if self.url and (self.args or self.env or self.cwd):
            raise ValueError("`args`, `env` and `cwd` are for a `command`")
        if (self.forward_headers or self.user_header) and self.session != "user":
            raise ValueError(
                '`forward_headers` and `user_header` need session = "user", so that no user calls '
                "with the headers of another"
            )
        return self

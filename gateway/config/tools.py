"""The operator's tools: what `[toolbox]` and `[tools.NAME]` take.

Each kind of tool has settings of its own, beside those of every entry. A kind is known by name
before this version can run it, so that a start says which of the two is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, field_validator, model_validator

from gateway.config.file_limits import FileToolLimits
from gateway.config.mcp_tools import McpToolSettings
from gateway.config.python_tools import PythonToolSettings, RunCodeSettings
from gateway.config.section import Section
from gateway.config.tool_entry import Effect, ToolSettings
from gateway.config.tool_rules import check_rules
from gateway.config.web_tools import FetchUrlSettings, WebSearchSettings
from memory import MEMORY_TOOL_NAMES, BaseRule, parse_rules

ENTRY = re.compile(r"[a-z][a-z0-9_]{0,31}")
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
STAND_INS = ("tool_search", "tool_call", "result_open", "skill_open")
# What tools between agents begin with.
AGENT_TOOLS = "agent_"
RESERVED = MEMORY_TOOL_NAMES | frozenset(STAND_INS)
Pattern = Annotated[str, Field(min_length=1, max_length=256)]
Patterns = tuple[Pattern, ...]
READING_METHODS = ("GET", "HEAD")


def is_reserved(name: str) -> bool:
    """Tell whether no tool of the operator may have this name."""
    return name in RESERVED or name.startswith(AGENT_TOOLS)


class ToolboxSettings(Section):
    """What holds for all tools of the operator. Limits of a turn, unless they say otherwise."""

    grant: Patterns = ()
    parallel: int = Field(8, ge=1, le=64)
    process_parallel: int = Field(64, ge=1, le=1024)
    calls_per_turn: int = Field(64, ge=1, le=1000)
    schema_tokens: int = Field(4000, ge=0)
    result_characters: int = Field(20_000, ge=400, le=1_000_000)
    result_days: float = Field(7, gt=0)
    images_per_turn: int = Field(4, ge=0, le=64)
    approval_seconds: float = Field(120, gt=0, le=3600)
    policy: Literal["allow", "deny"] = "allow"
    rules: Annotated[tuple[dict[str, Any], ...], AfterValidator(check_rules)] = ()
    withhold: Literal["result", "schema"] = "result"
    create: Literal["off", "admin", "trusted"] = "admin"

    @cached_property
    def parsed_rules(self) -> tuple[BaseRule, ...]:
        """The rules on calls of tools."""
        return parse_rules(self.rules)


class HttpToolSettings(ToolSettings):
    """A tool that is one HTTP request. result: a JSON pointer into the answer."""

    kind: Literal["http"] = "http"
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: str
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    body: Literal["none", "json"] | None = None
    parameters: dict[str, dict[str, Any]] = Field(default_factory=dict)
    required: tuple[str, ...] = ()
    result: str = ""

    @property
    def sends_json(self) -> bool:
        """Whether parameters that the URL does not hold are sent as a JSON body."""
        if self.body is not None:
            return self.body == "json"
        return self.method in ("POST", "PUT", "PATCH")

    @property
    def resolved_effect(self) -> Effect:
        """What a run does: a GET and a HEAD read, unless the entry says otherwise."""
        if self.effect is not None:
            effect: Effect = self.effect
            return effect
        if self.method in READING_METHODS:
            return "read"
        return "write"

    @field_validator("url")
    @classmethod
    def _has_a_fixed_host(cls, url: str) -> str:
        scheme, separator, address = url.partition("://")
        host = re.split(r"[/?#]", address, maxsplit=1)[0]
        if not separator or scheme not in ("http", "https") or not host:
            raise ValueError("give an address such as https://api.example.com/items/{id}")
        if "{" in host or "@" in host:
            raise ValueError("the host is fixed: a {parameter} stands behind it, and no password")
        return url

    @field_validator("result")
    @classmethod
    def _is_a_pointer(cls, pointer: str) -> str:
        if pointer and not pointer.startswith("/"):
            raise ValueError("give a JSON pointer such as /items/0/name")
        return pointer

    @model_validator(mode="after")
    def _parameters_exist(self) -> HttpToolSettings:
        for name in self.parameters:
            if not PARAMETER.fullmatch(name):
                raise ValueError(
                    f"the parameter {name[:64]!r}: use letters, digits and _, beginning with a "
                    "letter or _"
                )
        placeholders = PLACEHOLDER.findall(self.url)
        for member, names in (("url", placeholders), ("required", self.required)):
            if missing_name := next((name for name in names if name not in self.parameters), None):
                raise ValueError(
                    f"`{member}` names the parameter {missing_name[:64]!r}, which [tools.NAME."
                    "parameters] does not describe"
                )
        unplaced_names = [name for name in self.parameters if name not in placeholders]
        if unplaced_names and not self.sends_json:
            raise ValueError(
                f"the parameter {unplaced_names[0]!r} goes nowhere: put "
                f"{{{unplaced_names[0]}}} into `url`, or set "
                'body = "json"'
            )
        return self


class FilesSettings(ToolSettings, FileToolLimits):
    """The tools that read a user's files, and what they may keep."""

    kind: Literal["files"] = "files"


# One line a kind: its settings. What runs it stands in `gateway.tools.kinds`.
KINDS: dict[str, type[ToolSettings]] = {
    "fetch_url": FetchUrlSettings,
    "files": FilesSettings,
    "http": HttpToolSettings,
    "mcp": McpToolSettings,
    "python": PythonToolSettings,
    "run_code": RunCodeSettings,
    "web_search": WebSearchSettings,
}
PLANNED = ("mcp", "http", "python", "run_code", "web_search", "fetch_url", "files")


def parse_tool(entry: Any) -> ToolSettings:
    """Return the settings of one entry, by its kind. Raises ValueError, ValidationError."""
    # Of a reload.
    if isinstance(entry, ToolSettings):
        return entry
    if not isinstance(entry, Mapping):
        raise ValueError("this must be a table (in JSON, an object)")  # noqa: TRY004
    kind = entry.get("kind")
    if kind is None:
        raise ValueError(f"`kind` is required: use one of {', '.join(PLANNED)}")
    if kind not in PLANNED:
        raise ValueError(f"`kind` is {str(kind)[:40]!r}: use one of {', '.join(PLANNED)}")
    if kind not in KINDS:
        raise ValueError(
            f"this version does not have the kind {kind!r} yet; it has {', '.join(KINDS)}"
        )
    return KINDS[kind].model_validate(entry)


def check_tool_names(tools: dict[str, ToolSettings]) -> dict[str, ToolSettings]:
    """Return the entries of a configuration. Raises ValueError for a name that none may have."""
    for name in tools:
        if not ENTRY.fullmatch(name):
            raise ValueError(
                f"tools.{name[:64]}: the name of an entry has 1 to 32 characters of a-z, 0-9 and "
                "'_', and begins with a letter"
            )
        if is_reserved(name):
            raise ValueError(
                f"tools.{name}: this name is reserved for Mnemogate's own tools; choose another"
            )
    return tools


Tools = Annotated[
    dict[str, Annotated[ToolSettings, PlainValidator(parse_tool)]], AfterValidator(check_tool_names)
]

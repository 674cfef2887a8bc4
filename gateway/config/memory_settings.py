"""The settings of memory: blocks, tools, recall, summaries and background jobs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from string import Formatter
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gateway.config.section import Section
from memory import LABEL, RESERVED, parse_zone


class BlockDefault(Section):
    label: str
    description: str = ""
    value: str = ""
    limit: int = Field(4000, gt=0)
    read_only: bool = False

    @field_validator("label")
    @classmethod
    def _usable(cls, label: str) -> str:
        if not LABEL.fullmatch(label) or label in RESERVED:
            raise ValueError(
                "a label must match [a-z][a-z0-9_]{0,62} and must not be a reserved name"
            )
        return label

    @model_validator(mode="after")
    def _fits(self) -> BlockDefault:
        if len(self.value) > self.limit:
            raise ValueError(
                f"`value` has {len(self.value)} characters; its limit is {self.limit}: shorten "
                "it, or raise `limit`"
            )
        return self


BLOCKS = (
    BlockDefault(label="human", description="What is known about the user"),
    BlockDefault(label="persona", description="How to behave towards this user"),
    BlockDefault(label="scratchpad", description="Open tasks, plans, follow-ups"),
)
PROJECT_BLOCKS = (BlockDefault(label="project", description="What is known about this project"),)


def check_cron(cron: str) -> str:
    """Return five fields of cron, or "". Raises ValueError."""
    if not cron:
        return cron
    # Imported only where a clock is set.
    from cronsim import CronSim, CronSimError

    try:
        if len(cron.split()) != 5:
            raise CronSimError("it has not five fields")
        CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as e:
        raise ValueError(
            f"{cron[:64]!r} is no time of cron ({e}): write minute, hour, day, month and weekday, "
            "like '0 3 * * *'"
        ) from e
    return cron


class ReflectSettings(Section):
    every_turns: int = Field(0, ge=0)
    idle_seconds: float = Field(0, ge=0)
    cron: Annotated[str, AfterValidator(check_cron)] = ""
    model: str = Field("", max_length=1024)
    prompt: str = Field("", max_length=32_000)
    dry_run: bool = False
    label: tuple[Annotated[str, Field(min_length=1, max_length=63)], ...] = ()


class ExtractionSettings(Section):
    every_turns: int = Field(6, ge=1)
    idle_seconds: float = Field(600, ge=0)
    instructions: str = Field("", max_length=4000)
    categories: dict[str, str] = Field(default_factory=dict)


class SkillSettings(Section):
    mode: Literal["off", "review", "auto"] = "off"
    min_calls: int = Field(3, ge=1)
    min_times: int = Field(3, ge=2)
    characters: int = Field(8000, gt=0, le=100_000)
    shown: int = Field(20, ge=0, le=200)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as e:
        raise ValueError(f"this must be a regular expression ({e.msg})") from e
    return text


def check_zone(name: str) -> str:
    """Return the name of a time zone. Raises ValueError if there is none of that name."""
    try:
        parse_zone(name)
    except ValueError as e:
        raise ValueError(f"{e}: give an IANA name, like Europe/Berlin") from e
    return name


PLACEHOLDERS = {
    "instruction": {"tag"},
    "summary": {"words"},
    "extraction": {"categories", "instructions"},
}


class PromptSettings(Section):
    """Texts in place of the shipped ones; empty: the shipped one."""

    instruction: str = ""
    summary: str = ""
    extraction: str = ""

    @field_validator("*")
    @classmethod
    def _has_its_placeholders(cls, text: str, info: ValidationInfo) -> str:
        placeholders = PLACEHOLDERS[info.field_name or ""]
        try:
            used_placeholders = {
                name for _, name, _, _ in Formatter().parse(text) if name is not None
            }
        except ValueError as e:
            raise ValueError(f"{e}: write {{{{ and }}}} for braces that are no placeholder") from e
        if text and used_placeholders != placeholders:
            raise ValueError(
                f"it has the placeholders {_names(used_placeholders)}, and needs "
                f"{_names(placeholders)}; write "
                "{{ and }} for other braces"
            )
        return text


def _names(placeholders: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(placeholders)) or "none"


class MemorySettings(Section):
    tools: Literal["always", "with_client_tools", "never"] = "always"
    ignore: tuple[Annotated[str, AfterValidator(_pattern)], ...] = ()
    max_rounds: int = Field(8, ge=1)
    turn_seconds: float = Field(300, gt=0)
    usage: Literal["sum", "last"] = "sum"
    explain_days: float = Field(7, ge=0)
    unnamed_days: float = Field(30, ge=0)
    on_error: Literal["bypass", "fail"] = "bypass"
    recall: Literal["tools", "auto", "always"] = "auto"
    tasks: Literal["off", "auto"] = "auto"
    placement: Literal["cache_stable", "live"] = "cache_stable"
    extract: Literal["off", "auto", "always"] = "auto"
    extraction: ExtractionSettings = ExtractionSettings()
    prompts: PromptSettings = PromptSettings()
    conversations: Literal["all", "named"] = "all"
    model_blocks: bool = False
    blocks_per_user: int = Field(64, gt=0)
    block_characters: int = Field(64_000, gt=0)
    shared_characters: int = Field(16_000, gt=0)
    agents_per_tenant: int = Field(10_000, gt=0)
    screen: bool = True
    screen_patterns: dict[str, Annotated[str, AfterValidator(_pattern)]] = Field(
        default_factory=dict
    )
    index_characters: int = Field(8000, ge=200, le=100_000)
    commands: bool = False
    embedder: str = "none"
    summarizer: str = ""
    summarize_ahead: bool = True
    reflect: ReflectSettings = ReflectSettings()
    skills: SkillSettings = SkillSettings()
    cleanup: Literal["off", "auto"] = "off"
    read_deadline_ms: float = Field(150, gt=0)
    cache_idle_seconds: float = Field(300, gt=0)
    summary_seconds: float = Field(30, gt=0)
    timezone: Annotated[str, AfterValidator(check_zone)] = "UTC"
    import_rows: int = Field(100_000, gt=0)
    import_mib: float = Field(32, gt=0)
    kept_mib: float = Field(64, gt=0)
    kept_conversation_mib: float = Field(32, gt=0)
    blocks: tuple[BlockDefault, ...] = BLOCKS
    project_blocks: tuple[BlockDefault, ...] = PROJECT_BLOCKS
    project_writes: Literal["project", "user"] = "project"

"""Profiles of agents: what `[agents.NAME]` and the management API take.

A profile describes an agent: its model, its instruction, its blocks, what it may do. Both doors
check it by this one model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from gateway.config.keys import MemoryMode
from gateway.config.memory_settings import BlockDefault, ReflectSettings, check_zone
from gateway.config.section import Section
from gateway.config.tool_rules import check_rules, read_stored_rules
from memory import BaseRule

# Of the model's name by which a profile is called.
PREFIX = "agent:"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# A name of this form could be taken for an id.
ID = re.compile(r"agent[_-][0-9a-f-]+")
TITLE_CHARACTERS = 256
INSTRUCTION_CHARACTERS = 32_000
MODEL_CHARACTERS = 1024
MAX_TAGS = 64
MAX_LISTED = 256
METADATA_BYTES = 16 << 10
FORMATS = ("text", "json_object", "json_schema")
Lockable = Literal[
    "response_format",
    "temperature",
    "top_p",
    "max_output_tokens",
    "reasoning_effort",
    "seed",
    "stop",
    "parallel_tool_calls",
]


def check_agent_name(name: str) -> str:
    """Return the name of a profile. Raises ValueError."""
    if not NAME.fullmatch(name):
        raise ValueError(
            "the name of an agent has 1 to 64 characters of a-z, 0-9, '.', '_' and '-', and "
            "begins with a letter or a digit"
        )
    if ID.fullmatch(name):
        raise ValueError("this has the form of an agent's id; choose another name")
    return name


def _callable_model(name: str) -> str:
    if name.startswith(PREFIX):
        raise ValueError("an agent cannot be the model of another one; name a model")
    return name


ModelName = Annotated[str, Field(max_length=MODEL_CHARACTERS), AfterValidator(_callable_model)]
Names = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field()]


class AgentParameters(Section):
    """What a request that does not say it itself gets; absent members: the upstream's default."""

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    max_output_tokens: int | None = Field(None, gt=0)
    reasoning_effort: str | None = Field(None, min_length=1, max_length=32)
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    parallel_tool_calls: bool | None = None


class AgentSettings(Section):
    """A profile. recall to turn_seconds: in place of those of [memory]; None: those."""

    title: str = Field("", max_length=TITLE_CHARACTERS)
    description: str = ""
    model: ModelName = ""
    fallbacks: tuple[ModelName, ...] = Field((), max_length=MAX_LISTED)
    home: Literal["user", "agent"] = "user"
    instruction: str = Field("", max_length=INSTRUCTION_CHARACTERS)
    inherit_blocks: bool = True
    blocks: tuple[BlockDefault, ...] = ()
    memory: MemoryMode = "full"
    memory_tools: bool = True
    tools: Names = ()
    tool_rules: tuple[dict[str, Any], ...] = ()
    client_tools: bool = True
    may_message: Names = ()
    may_ask: Names = ()
    timezone: Annotated[str, AfterValidator(check_zone)] = "UTC"
    response_format: dict[str, Any] = Field(default_factory=dict)
    parameters: AgentParameters | None = None
    locked: tuple[Lockable, ...] = ()
    context_window: int = Field(0, ge=0)
    tags: Names = Field((), max_length=MAX_TAGS)
    metadata: Any = Field(default_factory=dict)
    recall: Literal["tools", "auto", "always"] | None = None
    extract: Literal["off", "auto", "always"] | None = None
    reflect: ReflectSettings | None = None
    summarizer: str | None = None
    max_rounds: int | None = Field(None, ge=1)
    turn_seconds: float | None = Field(None, gt=0)

    @cached_property
    def parsed_rules(self) -> tuple[BaseRule, ...]:
        """The rules on tools, behind those of the operator."""
        return read_stored_rules(self.tool_rules)

    @field_validator("blocks")
    @classmethod
    def _labels_differ(cls, blocks: tuple[BlockDefault, ...]) -> tuple[BlockDefault, ...]:
        labels: set[str] = set()
        for block in blocks:
            if block.label in labels:
                raise ValueError(
                    f"the label {block.label!r} is used twice; a label names one block"
                )
            labels.add(block.label)
        return blocks

    @field_validator("response_format")
    @classmethod
    def _is_a_format(cls, response_format: dict[str, Any]) -> dict[str, Any]:
        kind = response_format.get("type")
        if response_format and kind not in FORMATS:
            raise ValueError(f"`type` must be one of {', '.join(FORMATS)}")
        if kind == "json_schema" and not isinstance(response_format.get("json_schema"), dict):
            raise ValueError("a format of type json_schema needs the object `json_schema`")
        return response_format

    @field_validator("metadata")
    @classmethod
    def _is_small(cls, metadata: Any) -> Any:
        try:
            size = len(json.dumps(metadata, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        except (TypeError, ValueError, RecursionError) as e:
            raise ValueError("this must be JSON") from e
        if size > METADATA_BYTES:
            raise ValueError(f"it has {size} bytes as JSON; at most {METADATA_BYTES} are allowed")
        return metadata

    @model_validator(mode="after")
    def _has_a_model(self) -> AgentSettings:
        if self.fallbacks and not self.model:
            raise ValueError("`fallbacks` needs a `model` that they stand in for")
        return self


def check_agent_names(agents: dict[str, AgentSettings]) -> dict[str, AgentSettings]:
    """Return the profiles of a configuration. Raises ValueError for a name or a rule."""
    for name, agent in agents.items():
        try:
            check_agent_name(name)
        except ValueError as e:
            raise ValueError(f"agents.{name}: {e}") from e
        check_rules(agent.tool_rules, f"agents.{name}.tool_rules")
    return agents


def check_agent_models(
    agents: Mapping[str, AgentSettings], models: Iterable[str], serves: Callable[[str], bool]
) -> None:
    """Raise ValueError if a profile names a model that is not configured.

    models: the [models] entries. serves: whether one of them serves a name.
    """
    model_names = ", ".join(models)
    for name, agent in agents.items():
        for member, profile_models in (("model", [agent.model]), ("fallbacks", agent.fallbacks)):
            missing_model = next(
                (m for m in profile_models if m and model_names and not serves(m)), None
            )
            if missing_model is not None:
                raise ValueError(
                    f"agents.{name}.{member} names the model {missing_model!r}, which no [models] "
                    f"entry serves; there are: {model_names}"
                )


Agents = Annotated[dict[str, AgentSettings], AfterValidator(check_agent_names)]

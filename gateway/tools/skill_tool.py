"""`skill_open`: a model reads how a task is done that was done before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.config.tool_entry import ToolSettings
from gateway.tools.coercion import coerce_arguments
from gateway.tools.grants import Grants
from gateway.tools.kind import OperatorTool, ToolCaller, ToolOutput
from gateway.tools.kinds import SKILLS
from gateway.tools.registry import RegisteredTool, ToolEntry, ToolRegistry
from memory import Memory, StoreUnavailable, management

SKILL_OPEN = "skill_open"
# Of the block that lists the skills: who has none has no such block.
LABEL = "skills"
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}
TOOL = OperatorTool(
    SKILL_OPEN,
    SKILLS,
    "Read how a task of the block `skills` is done.",
    PARAMETERS,
    idempotent=True,
    pinned=True,
    needs_block=LABEL,
)


class SkillKind:
    """The entry of skills; see `ToolKind`. reads_only: the request may not write."""

    problem = ""
    is_fixed = True

    def __init__(self, memory: Memory, *, reads_only: bool) -> None:
        self._memory = memory
        self._reads_only = reads_only

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        return [TOOL]

    def check_arguments(
        self, tool: OperatorTool, arguments: dict[str, Any]
    ) -> dict[str, Any] | str:
        return coerce_arguments(PARAMETERS, arguments)

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Return the text of a skill, and count the use."""
        memory = self._memory
        name = str(arguments["name"]).strip()
        scope = memory.scope(caller.tenant, caller.owner, caller.agent, caller.project)
        request = "" if self._reads_only else caller.request_id
        try:
            skill = await management.skills.open_skill(memory, scope, name, request)
        except StoreUnavailable:
            return ToolOutput("Error: skills cannot be read right now.", "error")
        if skill is None:
            return ToolOutput(
                f"Error: there is no skill {name[:64]!r}. The block `skills` lists them.", "error"
            )
        facts = {"skill": skill.id, "skill_version": skill.version}
        return ToolOutput(skill.text, facts=facts)

    async def close(self) -> None:
        """Nothing is held open."""


class SkillTools:
    """`skill_open` as registries have it, made once for all requests."""

    def __init__(self, memory: Memory) -> None:
        settings = ToolSettings.model_construct(kind=SKILLS, pinned=True)
        self._entries = {
            reads_only: ToolEntry(SKILLS, settings, SkillKind(memory, reads_only=reads_only))
            for reads_only in (False, True)
        }
        self._registered: dict[bool, RegisteredTool] = {}

    def register(self, registry: ToolRegistry, grants: Grants) -> dict[str, RegisteredTool]:
        """Return the tool by its name, unless a limit excludes it."""
        if not grants.limits_allow(SKILL_OPEN):
            return {}
        reads_only = grants.reads_only
        if reads_only not in self._registered:
            self._registered[reads_only] = registry.register(self._entries[reads_only], TOOL)
        return {SKILL_OPEN: self._registered[reads_only]}

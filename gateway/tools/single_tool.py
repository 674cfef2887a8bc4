"""What the kinds with one tool have in common: it is named like its entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.config.python_tools import SandboxedSettings
from gateway.config.tool_entry import ToolSettings
from gateway.tools.coercion import coerce_arguments
from gateway.tools.kind import Effect, OperatorTool
from gateway.tools.sandboxes import Sandboxes


@dataclass(frozen=True, slots=True)
class ToolDefaults:
    """What a tool is where its entry says nothing else. parameters: its JSON Schema."""

    description: str
    parameters: Mapping[str, Any]
    effect: Effect = "read"


class SingleTool:
    """The part of a `ToolKind` that lists the tool and checks its arguments."""

    is_fixed = True

    def __init__(self, name: str, settings: ToolSettings, defaults: ToolDefaults) -> None:
        tool = OperatorTool(
            name,
            name,
            settings.description or defaults.description,
            defaults.parameters,
            settings.effect or defaults.effect,
            settings.idempotent,
            settings.pinned,
        )
        # The same object at each call: that is how the registry sees that nothing changed.
        self._tools = (tool,)

    @property
    def problem(self) -> str:
        """Why it cannot run; empty where it can."""
        return ""

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        """Return the tool."""
        return self._tools

    def check_arguments(
        self, tool: OperatorTool, arguments: dict[str, Any]
    ) -> dict[str, Any] | str:
        """Return the coerced arguments, or the text of an error."""
        return coerce_arguments(tool.parameters, arguments)

    async def close(self) -> None:
        """Nothing of its own is held open."""


class SandboxedTool(SingleTool):
    """The same of a tool that runs in a sandbox: it is listed where that is there."""

    is_fixed = False

    def __init__(
        self, name: str, settings: SandboxedSettings, sandboxes: Sandboxes, defaults: ToolDefaults
    ) -> None:
        super().__init__(name, settings, defaults)
        self._sandboxes = sandboxes
        self._sandbox = settings.sandbox

    @property
    def problem(self) -> str:
        return self._sandboxes.problem_of(self._sandbox)

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        if self.problem:
            return ()
        return self._tools

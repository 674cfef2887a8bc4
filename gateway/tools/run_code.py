"""The tool `run_code`: a model's own Python, in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config.python_tools import RunCodeSettings
from gateway.tools.kind import OperatorTool, ToolCaller, ToolOutput
from gateway.tools.sandbox import SandboxProgram
from gateway.tools.sandboxes import Sandboxes
from gateway.tools.single_tool import SandboxedTool, ToolDefaults

DESCRIPTIONS = {
    "monty": (
        "Run Python code in a sandbox without files, network or packages. The value of the last "
        "expression is the result; print works. Each run begins empty. Modules: math, json, re, "
        "datetime, random, collections, itertools, functools, decimal, csv, base64, hashlib. No "
        "inheritance, yield, del or properties."
    ),
    "bubblewrap": (
        "Run Python code (CPython with its standard library) in a sandbox without network. The "
        "value of the last expression is the result; print works. Each run begins empty."
    ),
}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "description": "Python source."},
        "inputs": {
            "type": "object",
            "additionalProperties": True,
            "default": {},
            "description": "Values that the code finds in the dict `inputs`.",
        },
    },
    "required": ["code"],
}


class RunCodeTool(SandboxedTool):
    """One `[tools.NAME]` of kind `run_code`."""

    def __init__(self, name: str, settings: RunCodeSettings, sandboxes: Sandboxes) -> None:
        defaults = ToolDefaults(DESCRIPTIONS[settings.sandbox], PARAMETERS)
        super().__init__(name, settings, sandboxes, defaults)
        self._settings = settings

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Run one piece of code."""
        settings = self._settings
        program = SandboxProgram(
            str(arguments["code"]), inputs={"inputs": dict(arguments.get("inputs") or {})}
        )
        limits = self._sandboxes.limits_of(settings.seconds, settings.memory_mib)
        outcome = await self._sandboxes.choose(settings.sandbox).run(program, limits)
        return ToolOutput(outcome.show(), status="error" if outcome.is_error else "ok")

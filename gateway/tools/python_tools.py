"""Tools that are Python functions: of the configuration, and of a tenant's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.config.python_tools import PythonToolSettings
from gateway.tools.coercion import coerce_arguments
from gateway.tools.kind import Effect, OperatorTool, ToolCaller, ToolOutput
from gateway.tools.python_source import ARGUMENTS, PythonSource, SourceRefused, read_source
from gateway.tools.sandbox import SandboxLimits, SandboxProgram
from gateway.tools.sandbox_fetch import SandboxFetch
from gateway.tools.sandboxes import Sandboxes
from gateway.tools.single_tool import SandboxedTool, ToolDefaults
from gateway.tools.url_guard import Resolve


class PythonTool(SandboxedTool):
    """One `[tools.NAME]` of kind `python`. Raises SourceRefused where its source is no tool."""

    def __init__(
        self,
        name: str,
        settings: PythonToolSettings,
        sandboxes: Sandboxes,
        resolve: Resolve | None = None,
    ) -> None:
        self._settings = settings
        self._source = read_named_source(name, load_source(settings), settings.sandbox)
        self._network = (
            SandboxFetch(settings.hosts, settings.secrets, resolve) if settings.hosts else None
        )
        default_effect: Effect = "write" if settings.hosts else "read"
        super().__init__(
            name,
            settings,
            sandboxes,
            ToolDefaults(
                self._source.description or f"Runs {name}.",
                self._source.parameters,
                default_effect,
            ),
        )

    def check_arguments(
        self, tool: OperatorTool, arguments: dict[str, Any]
    ) -> dict[str, Any] | str:
        """Return the coerced arguments, or the text of an error."""
        return check_arguments(self._source.parameters, arguments)

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Call the function once."""
        settings = self._settings
        limits = self._sandboxes.limits_of(settings.seconds, settings.memory_mib)
        sandbox = self._sandboxes.choose(settings.sandbox)
        program = make_program(self._source, arguments, self._network)
        outcome = await sandbox.run(program, limits)
        text = outcome.show()
        if self._network is not None:
            text = self._network.mask(text)
        return ToolOutput(text, status="error" if outcome.is_error else "ok")


def load_source(settings: PythonToolSettings) -> str:
    """Return the source of an entry. Raises SourceRefused for a file that cannot be read."""
    if settings.source:
        return settings.source
    try:
        return Path(settings.source_file).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise SourceRefused(f"source_file cannot be read ({type(e).__name__})") from None


def read_named_source(name: str, source: str, sandbox: str) -> PythonSource:
    """Return the tool that a source defines by this name. Raises SourceRefused."""
    tool = read_source(source, sandbox)
    if tool.name != name:
        raise SourceRefused(f"the function is named {tool.name}, and the tool {name}")
    return tool


def check_arguments(
    parameters: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any] | str:
    """Return the coerced arguments, or the text of an error.

    What was left out is left to the function, which knows its defaults itself.
    """
    coerced = coerce_arguments(parameters, arguments)
    if isinstance(coerced, str):
        return coerced
    properties = parameters["properties"]
    return {
        name: coerced[name]
        for name in properties
        if name in arguments and name in coerced and not _is_absent(properties, name, coerced)
    }


def _is_absent(properties: Mapping[str, Any], name: str, coerced: Mapping[str, Any]) -> bool:
    return coerced[name] is None and properties[name].get("default", ...) is None


def make_program(
    source: PythonSource, arguments: Mapping[str, Any], network: SandboxFetch | None = None
) -> SandboxProgram:
    """Return what runs a tool once."""
    return SandboxProgram(
        source.source,
        source.write_call(arguments),
        inputs={ARGUMENTS: dict(arguments)},
        functions={"fetch": network.fetch} if network is not None else {},
        secrets=network.placeholders if network is not None else {},
        name=source.name,
    )


async def probe_source(sandboxes: Sandboxes, source: PythonSource, sandbox: str) -> list[str]:
    """Run the top of a source, and return what a type checker says. Raises SourceRefused."""
    program = SandboxProgram(source.source, "None", name="the source")
    outcome = await sandboxes.choose("bubblewrap" if sandbox == "bubblewrap" else "monty").run(
        program, SandboxLimits(seconds=1.0)
    )
    if outcome.is_error:
        raise SourceRefused(outcome.text.removeprefix("Error: "))
    if sandbox == "bubblewrap":
        return []
    findings = await sandboxes.monty.check_types(source.source)
    if findings:
        return [findings]
    return []

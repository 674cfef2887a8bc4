"""The Python tools that a tenant made by API: what is listed, and how one is run.

Lists are held in memory, since they are read without waiting; a run reads its tool's row, so that a
deleted one is refused by every worker from the next call on.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from pydantic import ValidationError

from gateway.config.python_tools import PythonToolSettings, SandboxName
from gateway.config.validation import describe_validation_errors
from gateway.tools.kind import OperatorTool, ToolCaller, ToolOutput
from gateway.tools.kinds import SharedRuntimes
from gateway.tools.python_source import PythonSource, SourceRefused, read_source
from gateway.tools.python_tools import (
    check_arguments,
    make_program,
    probe_source,
    read_named_source,
)
from gateway.tools.sandbox_fetch import SandboxFetch
from memory import Memory, MemoryFault, management
from memory.management.python_tools import StoredTool, ToolText

# No entry of the configuration has such a name.
API_ENTRY = "python/api"
# That other workers' changes may take to be listed here.
FRESH_SECONDS = 2.0
# By which the clocks of workers may differ.
CLOCK_SECONDS = 5.0
# Sources that are held parsed.
MAX_PARSED = 256


class ToolDefinition(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What PUT takes. effect, timeout: None for those of every Python tool.

    secrets: refused; named here so that the refusal can say where they are set.
    """

    kind: Literal["python"] = "python"
    source: str = ""
    description: str = ""
    effect: Literal["read", "write"] | None = None
    timeout: float | None = None
    sandbox: SandboxName = "monty"
    hosts: list[str] = []
    secrets: dict[str, str] = {}

    @property
    def is_privileged(self) -> bool:
        """Whether only an operator may set this."""
        return bool(self.hosts or self.sandbox != "monty")


class ListedDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a list needs of a tool."""

    description: str
    parameters: dict[str, Any]
    effect: Literal["read", "write"] = "read"
    timeout: float | None = None


class ToolRefused(ValueError):
    """A definition that is no tool. The text says why; param: the member, None for all of it."""

    def __init__(self, message: str, param: str | None) -> None:
        super().__init__(message)
        self.param = param


read_definition = msgspec.json.Decoder(ToolDefinition).decode
read_listed = msgspec.json.Decoder(ListedDefinition).decode


class TenantPythonTools:
    """The entry behind all Python tools that were made by API."""

    is_fixed = False

    def __init__(self, memory: Memory, shared: SharedRuntimes) -> None:
        self.problem = ""
        self._memory = memory
        # Replaced by a reload.
        self.shared = shared
        self.tools: dict[str, tuple[OperatorTool, ...]] = {}
        self._read_at = 0.0
        # The Unix time of that.
        self._read_when = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._sources: dict[tuple[str, str, int], PythonSource] = {}

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        """Return a tenant's tools as they were listed last; read them anew after a while."""
        if self._reading is None and time.monotonic() - self._read_at > FRESH_SECONDS:
            self._reading = asyncio.get_running_loop().create_task(self.read_quietly())
        return self.tools.get(tenant, ())

    def check_arguments(
        self, tool: OperatorTool, arguments: dict[str, Any]
    ) -> dict[str, Any] | str:
        """Return the coerced arguments, or the text of an error."""
        return check_arguments(tool.parameters, arguments)

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Call a tool as its row says now."""
        stored_tool = await management.python_tools.find_tool(
            self._memory, (caller.tenant, tool.name)
        )
        if stored_tool is None or stored_tool.version != tool.version:
            return ToolOutput(f"Error: {tool.name} is no longer available.", status="error")
        definition = read_definition(stored_tool.definition)
        source = self._parse(stored_tool, definition)
        network = None
        if definition.hosts:
            network = SandboxFetch(tuple(definition.hosts), {})
        program = make_program(source, arguments, network)
        sandbox = self.shared.sandboxes.choose(definition.sandbox)
        outcome = await sandbox.run(program, self.shared.sandboxes.limits_of(None, None))
        if network is None:
            text = outcome.show()
        else:
            text = network.mask(outcome.show())
        return ToolOutput(text, status="error" if outcome.is_error else "ok")

    async def close(self) -> None:
        """End the reading of lists; the sandboxes are of the whole process."""
        if self._reading is not None:
            self._reading.cancel()

    def seconds_since_read(self) -> float:
        """Return how old the lists are."""
        if self._read_at:
            return time.monotonic() - self._read_at
        return math.inf

    def was_read_after(self, moment: float) -> bool:
        """Tell whether the lists hold what was made before a Unix time, by any worker's clock."""
        return self._read_when > moment + CLOCK_SECONDS

    async def read_lists(self) -> None:
        """Read what is listed of all tools. Raises StoreUnavailable."""
        start_time = time.monotonic()
        read_when = time.time()
        rows = await management.python_tools.list_tools(self._memory)
        tools: dict[str, list[OperatorTool]] = {}
        for tenant, name, version, listing in rows:
            tools.setdefault(tenant, []).append(make_tool(name, version, read_listed(listing)))
        # What did not change stays the same object: that is how the registry sees it.
        before = self.tools
        self.tools = {
            tenant: before[tenant]
            if before.get(tenant) == tuple(tenant_tools)
            else tuple(tenant_tools)
            for tenant, tenant_tools in tools.items()
        }
        self._read_at = start_time
        self._read_when = read_when

    async def check(self, name: str, definition: ToolDefinition) -> tuple[ToolText, list[str]]:
        """Return what is written of a tool, and warnings. Raises SourceRefused, ToolRefused."""
        if definition.secrets:
            raise ToolRefused(
                "`secrets` are set in the configuration only, so that none is stored: write the "
                f'tool as [tools.{name}] with kind = "python" and secrets = {{ KEY = "${{KEY}}" }}',
                "secrets",
            )
        source = read_named_source(name, definition.source, definition.sandbox)
        try:
            settings = PythonToolSettings.model_validate(msgspec.to_builtins(definition))
        except ValidationError as e:
            path, text = describe_validation_errors(e, PythonToolSettings, limit=1)[0]
            member = None
            if path:
                member = str(path[0])
            raise ToolRefused(f"`{member}`: {text}" if member else text, member) from None
        if problem := await self._find_problem(definition.sandbox):
            raise ToolRefused(problem, "sandbox")
        warnings = await probe_source(self.shared.sandboxes, source, definition.sandbox)
        listing = ListedDefinition(
            settings.description or source.description or f"Runs {name}.",
            dict(source.parameters),
            settings.effect or ("write" if settings.hosts else "read"),
            definition.timeout,
        )
        text = msgspec.json.encode(definition).decode()
        return ToolText(text, msgspec.json.encode(listing).decode()), warnings

    async def _find_problem(self, sandbox: SandboxName) -> str:
        return await self.shared.sandboxes.choose(sandbox).find_problem()

    def _parse(self, stored_tool: StoredTool, definition: ToolDefinition) -> PythonSource:
        key = (stored_tool.tenant, stored_tool.name, stored_tool.version)
        source = self._sources.get(key)
        if source is None:
            if len(self._sources) >= MAX_PARSED:
                self._sources.clear()
            source = self._sources[key] = read_source(definition.source, definition.sandbox)
        return source

    async def read_quietly(self) -> None:
        """Read what is listed, unless the store does not answer."""
        try:
            await self.read_lists()
        except MemoryFault:
            self._read_at = time.monotonic()
        finally:
            self._reading = None


def make_tool(name: str, version: int, listing: ListedDefinition) -> OperatorTool:
    """Return a tool as its row lists it."""
    return OperatorTool(
        name,
        API_ENTRY,
        listing.description,
        listing.parameters,
        listing.effect,
        version=version,
        timeout=listing.timeout,
    )


def show_definition(definition: str | None) -> dict[str, Any] | None:
    """Return a definition without what is never shown: hosts and secrets."""
    if definition is None:
        return None
    members: dict[str, Any] = msgspec.to_builtins(read_definition(definition))
    return {name: value for name, value in members.items() if name not in ("hosts", "secrets")}


__all__ = [
    "API_ENTRY",
    "ListedDefinition",
    "SourceRefused",
    "TenantPythonTools",
    "ToolDefinition",
    "ToolRefused",
    "make_tool",
    "read_definition",
    "read_listed",
    "show_definition",
]

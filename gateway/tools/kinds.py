"""Makes a kind of tool from its settings. Modules of kinds are imported when one is configured."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

import msgspec

from gateway.config.python_tools import SandboxSettings
from gateway.config.settings import ConfigError, Settings
from gateway.config.tool_entry import ToolSettings
from gateway.tools.kind import ToolKind

if TYPE_CHECKING:
    from gateway.tools.sandboxes import Sandboxes
    from memory import Memory

# One line a kind, beside its settings in `gateway.config.tools`: the module and what makes it. A
# factory is called with the name of the entry, its settings, and what the gateway has.
FACTORIES = {
    "fetch_url": "gateway.tools.kind_factories:make_fetch_url",
    "files": "gateway.tools.kind_factories:make_files",
    "http": "gateway.tools.http_tool:HttpTool",
    "mcp": "gateway.tools.mcp_tool:make_mcp",
    "python": "gateway.tools.kind_factories:make_python",
    "run_code": "gateway.tools.kind_factories:make_run_code",
    "web_search": "gateway.tools.kind_factories:make_web_search",
}
# Of kinds whose results are made here, and not by somebody outside.
AGENTS = "agents"  # of the two tools by which agents reach each other
SKILLS = "skills"  # of the tool that opens one
TRUSTED_KINDS = frozenset({"python", "run_code", AGENTS, SKILLS})


class SharedRuntimes:
    """What several entries run in: the sandboxes, made when an entry needs them."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self._sandboxes: Sandboxes | None = None

    @property
    def sandboxes(self) -> Sandboxes:
        if self._sandboxes is None:
            from gateway.tools.sandboxes import Sandboxes

            self._sandboxes = Sandboxes(self.settings)
        return self._sandboxes

    async def start(self) -> None:
        """Look which sandboxes this machine has."""
        if self._sandboxes is not None:
            await self._sandboxes.probe_bubblewrap()

    async def close(self) -> None:
        """End all processes."""
        if self._sandboxes is not None:
            await self._sandboxes.close()


class KindServices(msgspec.Struct, frozen=True):
    """What of the gateway a kind may use.

    secret: the server's own. shared: what several entries run in.
    """

    settings: Settings
    memory: Memory
    secret: bytes
    shared: SharedRuntimes


def make_kind(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    """Return the kind behind an entry. Raises ConfigError for one that this version cannot run."""
    place = FACTORIES.get(settings.kind)
    if place is None:
        raise ConfigError(
            f"tools.{name}: this version does not have the kind {settings.kind!r} yet; it has "
            f"{', '.join(FACTORIES)}"
        )
    module, _, factory = place.partition(":")
    try:
        kind = getattr(import_module(module), factory)(name, settings, services)
    except ValueError as e:  # such as a source that is no tool
        line = getattr(e, "line", 0)
        raise ConfigError(f"tools.{name}: {e}{f' (line {line})' if line else ''}") from e
    return cast("ToolKind", kind)

"""What the kinds of tools may use of the gateway, and whose results are trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gateway.config.python_tools import SandboxSettings
from gateway.config.settings import Settings

if TYPE_CHECKING:
    from gateway.tools.sandboxes import Sandboxes
    from memory import Memory

# Of kinds whose results are made here, and not by somebody outside.
# Of the two tools by which agents reach each other.
AGENTS = "agents"
# Of the tool that opens one.
SKILLS = "skills"
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

"""The sandboxes of one process, shared by all tools that run Python."""

from __future__ import annotations

from dataclasses import replace

from gateway.config.python_tools import SandboxName, SandboxSettings
from gateway.tools.bubblewrap_sandbox import BubblewrapSandbox
from gateway.tools.monty_sandbox import MISSING, MontySandbox, is_installed
from gateway.tools.sandbox import Sandbox, SandboxLimits


class Sandboxes:
    """Both sandboxes, each started at its first use."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.monty = MontySandbox(settings.workers)
        self.bubblewrap = BubblewrapSandbox(settings.workers)
        self._limits = SandboxLimits(
            settings.seconds,
            settings.memory_mib,
            settings.print_characters,
            settings.recursion,
            settings.calls,
        )
        self._bubblewrap_problem = ""

    def choose(self, name: SandboxName) -> Sandbox:
        """Return a sandbox by its name."""
        if name == "bubblewrap":
            return self.bubblewrap
        return self.monty

    def limits_of(self, seconds: float | None, memory_mib: int | None) -> SandboxLimits:
        """Return the limits of an entry. None: those of [sandbox]."""
        limits = self._limits
        if seconds is not None:
            limits = replace(limits, seconds=seconds)
        if memory_mib is not None:
            limits = replace(limits, memory_mib=memory_mib)
        return limits

    async def probe_bubblewrap(self) -> str:
        """Look whether the room can be made, once. Returns why not, or nothing."""
        problem = await self.bubblewrap.find_problem()
        self._bubblewrap_problem = f"unavailable: {problem}" if problem else ""
        return self._bubblewrap_problem

    def problem_of(self, name: SandboxName) -> str:
        """Return why a sandbox is not there, as far as is known without waiting."""
        if name == "bubblewrap":
            return self._bubblewrap_problem
        if is_installed():
            return ""
        return f"unavailable: {MISSING}"

    async def close(self) -> None:
        """End all processes."""
        await self.bubblewrap.close()
        await self.monty.close()

"""Makes kinds of tools from their settings; a module is imported once a tool of it is set up."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from gateway.config.python_tools import PythonToolSettings, RunCodeSettings
from gateway.config.settings import ConfigError
from gateway.config.tool_entry import ToolSettings
from gateway.config.web_tools import FetchUrlSettings, WebSearchSettings
from gateway.tools.kind import ToolKind
from gateway.tools.kinds import KindServices


def make_fetch_url(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.fetch_url import FetchUrlTool

    return FetchUrlTool(name, cast("FetchUrlSettings", settings))


def make_http(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.http_tool import HttpTool

    return HttpTool(name, settings, services)


def make_mcp(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.mcp_tool import make_mcp

    return make_mcp(name, settings, services)


def make_web_search(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.web_search import WebSearchTool, find_missing_package

    if problem := find_missing_package(cast("WebSearchSettings", settings)):
        raise ConfigError(f"tools.{name}: {problem}")
    return WebSearchTool(name, cast("WebSearchSettings", settings))


def make_files(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.files import FilesKind

    return FilesKind(name, services.memory)


def make_run_code(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.run_code import RunCodeTool

    _check_sandbox(name, cast("RunCodeSettings", settings).sandbox)
    return RunCodeTool(name, cast("RunCodeSettings", settings), services.shared.sandboxes)


def make_python(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.python_source import SourceRefused
    from gateway.tools.python_tools import PythonTool

    python_settings = cast("PythonToolSettings", settings)
    _check_sandbox(name, python_settings.sandbox)
    try:
        return PythonTool(name, python_settings, services.shared.sandboxes)
    except SourceRefused as e:
        where = f" (line {e.line})" if e.line else ""
        raise ConfigError(f"tools.{name}.source: {e}{where}") from None


def _check_sandbox(name: str, sandbox: str) -> None:
    """Raise ConfigError for a sandbox whose package is missing."""
    from gateway.tools.monty_sandbox import MISSING, is_installed

    if sandbox == "monty" and not is_installed():
        raise ConfigError(f"tools.{name}: {MISSING}")


# One line a kind, beside its settings in `gateway.config.tools`. A factory is called with the name
# of the entry, its settings, and what the gateway has.
FACTORIES: dict[str, Callable[[str, ToolSettings, KindServices], ToolKind]] = {
    "fetch_url": make_fetch_url,
    "files": make_files,
    "http": make_http,
    "mcp": make_mcp,
    "python": make_python,
    "run_code": make_run_code,
    "web_search": make_web_search,
}


def make_kind(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    """Return the kind behind an entry. Raises ConfigError for one that this version cannot run."""
    make = FACTORIES.get(settings.kind)
    if make is None:
        raise ConfigError(
            f"tools.{name}: this version does not have the kind {settings.kind!r} yet; it has "
            f"{', '.join(FACTORIES)}"
        )
    try:
        return make(name, settings, services)
    except ValueError as e:
        # Such as a source that is no tool.
        line = getattr(e, "line", 0)
        raise ConfigError(f"tools.{name}: {e}{f' (line {line})' if line else ''}") from e

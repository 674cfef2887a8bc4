"""Makes the kinds that run Python or read the web from the settings of an entry."""

from __future__ import annotations

from typing import TypeVar

from gateway.config.python_tools import PythonToolSettings, RunCodeSettings
from gateway.config.settings import ConfigError
from gateway.config.tool_settings import ToolSettings
from gateway.config.web_tools import FetchUrlSettings, WebSearchSettings
from gateway.tools.fetch_url import FetchUrlTool
from gateway.tools.kinds import KindServices
from gateway.tools.monty_sandbox import MISSING, is_installed
from gateway.tools.python_source import SourceRefused
from gateway.tools.python_tools import PythonTool
from gateway.tools.run_code import RunCodeTool
from gateway.tools.sandboxes import Sandboxes
from gateway.tools.web_search import WebSearchTool, find_missing_package

S = TypeVar("S", bound=ToolSettings)


def make_python_tool(name: str, settings: ToolSettings, services: KindServices) -> PythonTool:
    """Return a Python function of the configuration. Raises ConfigError."""
    own = _settings_of(settings, PythonToolSettings)
    _check_sandbox(name, own.sandbox)
    try:
        return PythonTool(name, own, _sandboxes_of(services))
    except SourceRefused as e:
        where = f" (line {e.line})" if e.line else ""
        raise ConfigError(f"tools.{name}.source: {e}{where}") from None


def make_run_code(name: str, settings: ToolSettings, services: KindServices) -> RunCodeTool:
    """Return what runs a model's code. Raises ConfigError."""
    own = _settings_of(settings, RunCodeSettings)
    _check_sandbox(name, own.sandbox)
    return RunCodeTool(name, own, _sandboxes_of(services))


def make_fetch_url(name: str, settings: ToolSettings, services: KindServices) -> FetchUrlTool:
    """Return what reads web pages."""
    return FetchUrlTool(name, _settings_of(settings, FetchUrlSettings))


def make_web_search(name: str, settings: ToolSettings, services: KindServices) -> WebSearchTool:
    """Return what searches the web. Raises ConfigError."""
    own = _settings_of(settings, WebSearchSettings)
    if problem := find_missing_package(own):
        raise ConfigError(f"tools.{name}: {problem}")
    return WebSearchTool(name, own)


def _settings_of(settings: ToolSettings, kind: type[S]) -> S:
    assert isinstance(settings, kind)  # noqa: S101 - the table of kinds says so
    return settings


def _sandboxes_of(services: KindServices) -> Sandboxes:
    assert services.sandboxes is not None  # noqa: S101 - the registry gives them
    return services.sandboxes


def _check_sandbox(name: str, sandbox: str) -> None:
    """Raise ConfigError for a sandbox whose package is missing."""
    if sandbox == "monty" and not is_installed():
        raise ConfigError(f"tools.{name}: {MISSING}")

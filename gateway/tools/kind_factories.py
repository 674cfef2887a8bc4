"""Makes the kinds that need more than their settings. Each imports its own on use."""

from __future__ import annotations

from typing import cast

from gateway.config.python_tools import PythonToolSettings, RunCodeSettings
from gateway.config.tool_entry import ToolSettings
from gateway.config.web_tools import FetchUrlSettings, WebSearchSettings
from gateway.tools.kind import ToolKind
from gateway.tools.kinds import KindServices


def make_fetch_url(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.fetch_url import FetchUrlTool

    return FetchUrlTool(name, cast("FetchUrlSettings", settings))


def make_web_search(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.web_search import WebSearchTool

    return WebSearchTool(name, cast("WebSearchSettings", settings))


def make_files(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.files import FilesKind

    return FilesKind(name, services.memory)


def make_run_code(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.run_code import RunCodeTool

    return RunCodeTool(name, cast("RunCodeSettings", settings), services.shared.sandboxes)


def make_python(name: str, settings: ToolSettings, services: KindServices) -> ToolKind:
    from gateway.tools.python_tools import PythonTool

    return PythonTool(name, cast("PythonToolSettings", settings), services.shared.sandboxes)

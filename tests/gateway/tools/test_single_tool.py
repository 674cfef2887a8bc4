"""Kinds with one tool: named like the entry, as the entry says, the same object at each call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gateway.config.python_tools import PythonToolSettings, RunCodeSettings
from gateway.config.tools import HttpToolSettings
from gateway.config.web_tools import FetchUrlSettings, WebSearchSettings
from gateway.tools.fetch_url import FetchUrlTool
from gateway.tools.http_tool import HttpTool
from gateway.tools.python_tools import PythonTool
from gateway.tools.run_code import RunCodeTool
from gateway.tools.web_search import WebSearchTool


def sandboxes(problem=""):
    return SimpleNamespace(problem_of=lambda sandbox: problem)


def make(kind, held=None, **members):
    held = held or sandboxes()
    if kind == "http":
        return HttpTool("own", HttpToolSettings(url="http://h/a", **members), SimpleNamespace())
    if kind == "python":
        source = "def own() -> int: return 1"
        return PythonTool("own", PythonToolSettings(source=source, **members), held)
    if kind == "run_code":
        return RunCodeTool("own", RunCodeSettings(**members), held)
    if kind == "fetch_url":
        return FetchUrlTool("own", FetchUrlSettings(**members))
    return WebSearchTool("own", WebSearchSettings(**members))


@pytest.mark.parametrize("kind", ["http", "python", "run_code", "fetch_url", "web_search"])
def test_the_entry_says_what_its_tool_is(kind):
    made = make(kind)
    (plain,) = made.list_tools("t")
    assert (plain.name, plain.entry, plain.effect, made.problem) == ("own", "own", "read", "")
    assert made.list_tools("u")[0] is plain
    entry = {"description": "Does it.", "effect": "write", "idempotent": True, "pinned": True}
    (told,) = make(kind, **entry).list_tools("t")
    assert {name: getattr(told, name) for name in entry} == entry


@pytest.mark.parametrize("kind", ["python", "run_code"])
def test_a_tool_without_its_sandbox_is_not_listed(kind):
    made = make(kind, sandboxes("unavailable: no bwrap"))
    assert (made.list_tools("t"), made.problem) == ((), "unavailable: no bwrap")

"""The values that pass between a kind of tool and the registry."""

from __future__ import annotations

import dataclasses

import pytest

from gateway.tools.kind import OperatorTool, ToolOutput


def test_a_listed_tool_cannot_be_changed_by_who_reads_it():
    tool = OperatorTool("weather", "weather", "Tells the weather", {"type": "object"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        tool.effect = "write"
    assert tool.effect == "read"


def test_an_output_without_more_is_a_plain_text_that_went_well():
    assert ToolOutput("21 C") == ToolOutput("21 C", status="ok", images=(), origin="", cost_usd=0)

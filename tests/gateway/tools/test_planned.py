"""What is accepted and has no effect yet is told, by its path."""

from __future__ import annotations

from gateway.config.settings import Settings
from gateway.tools.planned import list_planned


def test_nothing_is_told_of_settings_that_act():
    assert list_planned(Settings.model_validate({"toolbox": {"policy": "deny"}})) == []


def test_each_setting_without_effect_is_told_with_its_path():
    exits = {"type": "required_before_exit", "tools": ["save"]}
    settings = Settings.model_validate(
        {
            "toolbox": {"withhold": "schema", "rules": [{"type": "deny", "tools": ["x"]}, exits]},
            "tools": {"web": {"kind": "web_search", "backend": "ddgs", "stand_in": True}},
            "agents": {"boss": {"model": "m", "may_ask": ["worker"], "tool_rules": [exits]}},
        }
    )
    paths = [line.split(":")[0].split(" ")[0] for line in list_planned(settings)]
    assert paths == [
        "toolbox.withhold",
        "toolbox.rules[1]",
        "tools.web.stand_in",
        "agents.boss.tool_rules[0]",
        "agents.boss.may_ask",
    ]

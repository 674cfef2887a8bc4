"""What is accepted and has no effect yet is told, by its path."""

from __future__ import annotations

from gateway.config.settings import Settings
from gateway.tools.planned import list_planned


def test_nothing_is_told_of_settings_that_act():
    assert list_planned(Settings.model_validate({"toolbox": {"policy": "deny"}})) == []


def test_each_setting_without_effect_is_told_with_its_path():
    settings = Settings.model_validate(
        {
            "tools": {"web": {"kind": "web_search", "backend": "ddgs", "stand_in": True}},
        }
    )
    paths = [line.split(":")[0].split(" ")[0] for line in list_planned(settings)]
    assert paths == ["tools.web.stand_in"]

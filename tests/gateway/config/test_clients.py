"""Client programs as settings: the shipped ones stay, an operator's are added or change members."""

from __future__ import annotations

import pytest

from gateway.config.settings import ConfigError, Settings, parse_settings

MINE = {"conversation_headers": ["X-Mine-Chat"], "user_headers": ["x-mine-user"]}


def test_an_operators_client_stands_beside_the_shipped_ones():
    found = parse_settings({"clients": {"mine": MINE}}).clients
    assert found["mine"].conversation_headers == ("x-mine-chat",)
    shipped = Settings().clients
    assert {name: found[name] for name in shipped} == shipped
    assert set(shipped) == {"codex", "claude-code", "open-webui", "librechat"}


def test_a_shipped_client_keeps_what_is_not_changed():
    found = parse_settings({"clients": {"codex": {"user_agents": ["mycodex"]}}}).clients["codex"]
    assert found.user_agents == ("mycodex",)
    assert found.conversation_headers == Settings().clients["codex"].conversation_headers


@pytest.mark.parametrize(
    ("members", "path", "told"),
    [
        ({"agents": []}, "clients.mine.agents", "there is no such setting"),
        ({"user_headers": ["x y"]}, "clients.mine.user_headers.0", "the name of a header"),
        ({"user_headers": ["Cookie"]}, "clients.mine.user_headers.0", "holds a credential"),
        ({"user_agents": [""]}, "clients.mine.user_agents.0", "must not be empty"),
        ({"summaries": [" "]}, "clients.mine.summaries.0", "must not be empty"),
        ({"utility": [{}]}, "clients.mine.utility.0", "an empty rule"),
        ({"utility": [{"contains": "a"}]}, "clients.mine.utility.0", "needs a `header`"),
        ({"utility": [{"max_tokens": 0}]}, "clients.mine.utility.0.max_tokens", "greater than 0"),
        ({"utility": [{"model": "m"}]}, "clients.mine.utility.0.model", "no such setting"),
        ({"utility": "off"}, "clients.mine.utility", "must be a list"),
    ],
)
def test_what_cannot_be_used_is_named(members, path, told):
    with pytest.raises(ConfigError) as e:
        parse_settings({"clients": {"mine": members}})
    assert str(e.value).startswith(f"{path}: ")
    assert told in str(e.value)


@pytest.mark.parametrize("clients", ["codex", {"codex": "off"}])
def test_a_client_is_a_table(clients):
    with pytest.raises(ConfigError, match="must be a table"):
        parse_settings({"clients": clients})

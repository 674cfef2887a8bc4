"""Profiles in the configuration: names, members, and what they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.agents import NAME, AgentSettings, check_agent_name
from gateway.config.settings import ConfigError, parse_settings

PROVIDER = {"o": {"base_url": "http://127.0.0.1:1/v1"}}
MODELS = {"m": {"targets": [{"provider": "o"}]}}


def parse(agents, models=MODELS):
    return parse_settings({"providers": PROVIDER, "models": models, "agents": agents})


@given(st.from_regex(NAME, fullmatch=True))
def test_a_name_of_the_right_form_is_one_unless_it_looks_like_an_id(name):
    rest = name.removeprefix("agent_").removeprefix("agent-")
    if rest != name and rest and set(rest) <= set("0123456789abcdef-"):
        with pytest.raises(ValueError, match="form of an agent's id"):
            check_agent_name(name)
    else:
        assert check_agent_name(name) == name


@pytest.mark.parametrize("name", ["", "A", ".a", "-a", "a b", "ä", "x" * 65, "a\n", "agent:a"])
def test_any_other_name_is_refused_with_its_path(name):
    with pytest.raises(ConfigError, match="agents"):
        parse({name: {}})


def test_all_members_may_be_left_out():
    found = parse({"a": {}}).agents["a"]
    assert found == AgentSettings()
    assert (found.home, found.memory, found.timezone) == ("user", "full", "UTC")


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"colour": 1}, "agents.a.colour: there is no such setting"),
        ({"model": "x"}, "agents.a.model names the model 'x'"),
        ({"model": "m", "fallbacks": ["x"]}, "agents.a.fallbacks names the model 'x'"),
        ({"fallbacks": ["m"]}, "needs a `model`"),
        ({"model": "agent:b"}, "an agent cannot be the model of another one"),
        ({"blocks": [{"label": "x"}, {"label": "x"}]}, "the label 'x' is used twice"),
        ({"timezone": "Nowhere"}, "give an IANA name"),
        ({"response_format": {"type": "json_schema"}}, "needs the object `json_schema`"),
        ({"metadata": {"x": "y" * (16 << 10)}}, "bytes as JSON; at most 16384"),
    ],
)
def test_a_profile_that_cannot_be_used_stops_the_start(agent, said):
    with pytest.raises(ConfigError) as error:
        parse({"a": agent})
    assert said in str(error.value)


def test_a_model_of_the_form_of_an_agent_is_refused():
    with pytest.raises(ConfigError, match="by which agents are called"):
        parse({}, {"agent:x": MODELS["m"]})

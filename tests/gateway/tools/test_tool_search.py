"""The right tool of many is among the first that a search finds."""

from __future__ import annotations

from types import SimpleNamespace

from gateway.tools.registry import definition_of
from gateway.tools.tool_search import rank_tools, search_tools

VERBS = ("create", "list", "delete", "update", "archive")
NOUNS = ("issue", "invoice", "calendarEvent", "customer", "deployment", "photo", "ticket")


def a_tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties}
    return SimpleNamespace(name=name, definition=definition_of(name, description, parameters))


MANY = {
    f"{verb}_{noun}": a_tool(f"{verb}_{noun}", f"Will {verb} one of the {noun}s of the account.")
    for verb in VERBS
    for noun in NOUNS
}


def test_the_tool_that_is_meant_is_among_the_first_five():
    for verb in VERBS:
        for noun in ("issue", "invoice", "customer", "ticket"):
            query = f"please {verb} the {noun} for me"
            assert f"{verb}_{noun}" in rank_tools(MANY, query)[:5]
    assert rank_tools(MANY, "add events to a calendar")[0].endswith("calendarEvent")


def test_a_hit_is_name_description_and_whole_schema():
    tools = {"weather": a_tool("weather", "Tells the weather.", city={"type": "string"})}
    found = search_tools(tools, {"query": "weather", "limit": 3})
    assert '"name":"weather"' in found
    assert '"city":{"type":"string"}' in found
    assert search_tools(tools, {"query": "zebra"}).startswith("Nothing found")

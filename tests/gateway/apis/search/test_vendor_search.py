"""A vendor's search tool is found, bounded and replaced in its place."""

from __future__ import annotations

import pytest

from gateway.apis.search.vendor_search import (
    find_vendor_search,
    replace_vendor_search,
    without_vendor_search,
)

OWN = {"type": "function", "name": "f", "parameters": {}}
FUNCTION = {"name": "look_up", "description": "Searches.", "parameters": {"type": "object"}}
PREVIEWS = ("web_search_preview", "web_search_preview_2025_03_11")
KINDS = {
    "responses": ("web_search", "web_search_2025_08_26", *PREVIEWS),
    "messages": ("web_search_20250305", "web_search_20260209"),
    "chat": (),
}


@pytest.mark.parametrize("form", KINDS)
def test_the_tools_of_each_format_are_known_and_no_other(form):
    others = {kind for kinds in KINDS.values() for kind in kinds} | {"function", None, 3}
    for kind in others:
        found = find_vendor_search(form, {"tools": [OWN, {"type": kind, "name": "web_search"}]})
        assert (found is not None) == (kind in KINDS[form]), kind


@pytest.mark.parametrize("tools", [None, 3, "x", [], [None, 3, {}]])
def test_tools_of_any_form_are_read(tools):
    assert find_vendor_search("responses", {"tools": tools}) is None


def test_a_function_stands_in_its_place_once_and_a_choice_holds_for_the_first_round():
    body = {
        "tools": [OWN, {"type": "web_search"}, {"type": "function", "name": "look_up"}],
        "tool_choice": {"type": "web_search"},
        "input": "Hm?",
    }
    search = find_vendor_search("responses", body)
    first = replace_vendor_search(body, search, FUNCTION, is_first=True)
    assert [t["name"] for t in first["tools"]] == ["f", "look_up"]
    assert first["tool_choice"] == {"type": "function", "name": "look_up"}
    later = replace_vendor_search(body, search, FUNCTION, is_first=False)
    assert (later["tools"], "tool_choice" in later) == (first["tools"], False)
    assert without_vendor_search(body, search).keys() == {"tools", "input"}
    bare = {"tools": [{"type": "web_search"}]}
    search = find_vendor_search("responses", bare)
    assert replace_vendor_search(bare, search, None, is_first=True) == {}


def test_limits_are_read_within_bounds():
    tool = {"type": "web_search_20250305", "name": "web_search"}
    tool |= {"allowed_domains": ["E.com", 3, ""] + ["x.org"] * 200, "max_uses": True}
    limits = find_vendor_search("messages", {"tools": [tool]}).limits
    assert (limits.allowed[:2], len(limits.allowed)) == (("e.com", "x.org"), 98)
    assert (limits.blocked, limits.max_uses) == ((), None)


@pytest.mark.parametrize("options", [None, 3, "x", [], True])
def test_an_option_of_any_form_is_read(options):
    assert find_vendor_search("chat", {"web_search_options": options}) is None
    assert find_vendor_search("chat", {}) is None
    assert find_vendor_search("responses", {"web_search_options": {}}) is None


@pytest.mark.parametrize("within", [True, False])
def test_limits_of_the_option_hold_in_either_place(within):
    domains = {"allowed_domains": ["E.com"], "blocked_domains": ["x.org"]}
    options = {"max_uses": 2, **({"filters": domains} if within else {"filters": 3, **domains})}
    search = find_vendor_search("chat", {"web_search_options": options})
    limits = search.limits
    assert (limits.allowed, limits.blocked, limits.max_uses) == (("e.com",), ("x.org",), 2)

"""A search shows titles, URLs and short texts; a backend that fails is an error in words."""

from __future__ import annotations

import json
import sys
from datetime import date, timedelta
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.web_tools import WebSearchSettings
from gateway.tools.kind import ToolCaller
from gateway.tools.web_search import (
    HitMembers,
    WebQuery,
    WebSearchTool,
    choose_hits,
    fill_url,
    find_missing_package,
    name_time_range,
    read_pointer,
    show_hits,
)
from tests.gateway.tools.web_servers import CountingListener, reply

CALLER = ToolCaller("default", "ann", "default", "req_1")
MEMBERS = HitMembers("/title", "/url", "/content", "/date")


async def search(settings: WebSearchSettings, **arguments):
    kind = WebSearchTool("web_search", settings)
    [tool] = kind.list_tools("default")
    coerced = kind.check_arguments(tool, arguments)
    assert isinstance(coerced, dict)
    output = await kind.run(tool, coerced, CALLER)
    await kind.close()
    return output


def hits_of(count: int) -> list[dict]:
    return [
        {"title": f"T<b>{at}</b>", "url": f"https://e.com/{at}", "content": "x " * 900}
        for at in range(count)
    ]


async def test_searxng_is_asked_for_json():
    rows = [{"title": "T", "url": "https://e.com/", "content": "text", "publishedDate": None}]
    body = json.dumps({"results": rows})
    async with CountingListener(lambda head: reply(body, kind="application/json")) as server:
        settings = WebSearchSettings(backend=f"searxng:http://127.0.0.1:{server.port}/")
        yesterday = (date.today() - timedelta(days=1)).isoformat()
        output = await search(settings, query="ä & b\n?", since=yesterday)
    assert output.text == "1. T\nhttps://e.com/\ntext"
    assert output.origin == "https://e.com/"
    [line] = [head.split("\r\n")[0] for head in server.heads]
    assert line == "GET /search?q=%C3%A4%20%26%20b%20%3F&format=json&time_range=day HTTP/1.1"


async def test_a_json_backend_is_read_by_pointers():
    rows = [{"name": "T", "href": "https://e.com/1", "d": "2026-01-01", "snippet": {"a": "s"}}]
    body = json.dumps({"web": {"results": rows}})
    async with CountingListener(lambda head: reply(body, kind="application/json")) as server:
        settings = WebSearchSettings(
            backend="json",
            url=f"http://127.0.0.1:{server.port}/s?q={{query}}&n={{limit}}",
            headers={"X-Key": "k"},
            items="/web/results",
            title="/name",
            link="/href",
            text="/snippet/a",
            date="/d",
        )
        output = await search(settings, query="q", limit="3")
        older = await search(settings, query="q", since="2026-06-01")
    assert output.text == "1. T\nhttps://e.com/1\ns\n2026-01-01"
    assert older.text == "Nothing found."
    assert server.heads[0].startswith("GET /s?q=q&n=3 HTTP/1.1")
    assert "X-Key: k" in server.heads[0]
    assert "'k'" not in repr(settings)


@pytest.mark.parametrize(
    "answer",
    [
        reply("no", 500),
        reply("<html>"),
        reply('{"results": 5}'),
        reply("[" * 100_000),
        b"",
        reply("", 302, Location="http://10.0.0.1/"),
    ],
)
async def test_a_backend_that_fails_is_an_error(answer):
    async with CountingListener(lambda head: answer) as server:
        output = await search(
            WebSearchSettings(backend=f"searxng:http://127.0.0.1:{server.port}"), query="q"
        )
    assert output.status == "error"
    assert output.text.startswith("Error: the search ")


def test_hits_are_http_addresses_once_and_short():
    rows = [
        None,
        {"url": "ftp://e.com"},
        {"url": "javascript:alert(1)"},
        {"url": "https://e.com/ x"},
        {"url": "https://e.com/a", "title": "A"},
        {"url": "https://e.com/a/", "title": "again"},
        *hits_of(50),
    ]
    hits = choose_hits(rows, MEMBERS, WebQuery("q", 10))
    assert [hit.title for hit in hits] == ["A", *(f"T{at}" for at in range(9))]
    assert all(len(hit.text) <= 400 for hit in hits)
    assert len(show_hits(hits)) <= 6000
    assert show_hits([]) == "Nothing found."


@given(
    st.recursive(
        st.none() | st.text(max_size=4) | st.integers(),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=3), x),
        max_leaves=10,
    )
)
def test_any_row_is_a_hit_or_passed_over(row):
    choose_hits([row], MEMBERS, WebQuery("q"))
    read_pointer(row, "/0/a")


def test_pointers_and_addresses():
    assert read_pointer({"a/b": [1, {"~": 2}]}, "/a~1b/1/~0") == 2
    assert read_pointer([1], "/5") is None
    assert read_pointer({"a": 1}, "") == {"a": 1}
    url = fill_url("https://e.com/?q={query}&s={since}", WebQuery("a&{limit}", 5))
    assert url == "https://e.com/?q=a%26%7Blimit%7D&s="
    today = date(2026, 11, 26)
    ages = {1: "day", 5: "week", 20: "month", 300: "year"}
    assert {d: name_time_range(today - timedelta(days=d), today) for d in ages} == ages


async def test_ddgs_is_imported_at_first_use(monkeypatch):
    asked = []

    class DDGS:
        def __init__(self, timeout):
            pass

        def text(self, query, **options):
            asked.append((query, options))
            if query == "bad":
                raise DDGSException("No results found.")
            if query == "broken":
                raise DDGSException("rate limit")
            return [{"title": "T", "href": "https://e.com", "body": "b"}]

    class DDGSException(Exception):
        pass

    package, exceptions = ModuleType("ddgs"), ModuleType("ddgs.exceptions")
    package.DDGS, exceptions.DDGSException = DDGS, DDGSException
    monkeypatch.setitem(sys.modules, "ddgs", package)
    monkeypatch.setitem(sys.modules, "ddgs.exceptions", exceptions)
    settings = WebSearchSettings(backend="ddgs")
    assert (await search(settings, query="q")).text == "1. T\nhttps://e.com\nb"
    assert asked == [("q", {"max_results": 10, "timelimit": None})]
    assert (await search(settings, query="bad")).text == "Nothing found."
    assert "rate limit" in (await search(settings, query="broken")).text


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "mnemogate[tools]" in find_missing_package(WebSearchSettings(backend="ddgs"))
    assert find_missing_package(WebSearchSettings(backend="searxng:http://x")) == ""


@pytest.mark.parametrize(
    "members",
    [
        {"backend": "google"},
        {"backend": "searxng:ftp://x"},
        {"backend": "json"},
        {"backend": "json", "url": "https://{query}.com"},
        {"items": "results"},
    ],
)
def test_settings_that_mean_nothing_are_refused(members):
    with pytest.raises(ValueError):
        WebSearchSettings.model_validate(members)

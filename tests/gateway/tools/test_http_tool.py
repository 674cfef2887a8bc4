"""The kind `http`: what it sends, and what it makes of an answer."""

from __future__ import annotations

import json
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.settings import ConfigError, parse_settings
from gateway.config.tools import HttpToolSettings
from gateway.tools.http_tool import HttpTool, resolve_pointer, size_of
from gateway.tools.kind import ToolCaller
from gateway.tools.python_source import read_source
from gateway.tools.python_tools import check_arguments
from tests.sockets import RawServer, free_port

NAME = {"type": "string"}
CALLER = ToolCaller("t", "ada", "default", "req_1")


def made(url, **more):
    parameters = more.pop("parameters", {"name": NAME})
    settings = HttpToolSettings(url=url, parameters=parameters, **more)
    return HttpTool("items", settings, SimpleNamespace())


async def run(tool, **arguments):
    (listed,) = tool.list_tools("t")
    checked = tool.check_arguments(listed, arguments)
    if isinstance(checked, str):
        return checked
    try:
        return await tool.run(listed, checked, CALLER)
    finally:
        await tool.close()


@pytest.fixture
async def server():
    async with RawServer(lambda seen, wire: wire.json({"items": [{"id": 7}]})) as made_server:
        yield made_server


def root(server):
    return f"http://127.0.0.1:{server.port}"


AS_PYTHON = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "str": {"type": "string"},
    "list[int]": {"type": "array", "items": {"type": "integer"}},
    "dict[str, int]": {"type": "object", "additionalProperties": {"type": "integer"}},
}
WRITTEN = st.sampled_from(
    [True, False, None, "yes", "true", " 3 ", "3.0", "3.5", "soon", "[1]", '{"a": "2"}', [], {}]
) | st.integers(-9, 9).map(lambda n: n / 2)


@given(st.sampled_from(sorted(AS_PYTHON)), WRITTEN)
def test_arguments_are_read_as_those_of_a_python_tool(annotation, value):
    tool = made("http://h/a?q={name}", parameters={"name": AS_PYTHON[annotation]})
    (listed,) = tool.list_tools("t")
    source = read_source(f"def f(name: {annotation}) -> str:\n    return 'x'\n", "monty")
    expected = check_arguments(source.parameters, {"name": value})
    # A null of a parameter that is not required is one that was left out.
    if value is not None:
        assert tool.check_arguments(listed, {"name": value}) == expected


@given(st.text(max_size=30))
def test_a_parameter_never_leaves_its_segment(value):
    tool = made("http://h/a/{name}/b?q={name}")
    (listed,) = tool.list_tools("t")
    checked = tool.check_arguments(listed, {"name": value})
    if isinstance(checked, str):
        assert value.strip() in ("", ".", "..")
        return
    parts = urlsplit(tool._url(checked))
    assert parts.netloc == "h"
    assert parts.path.count("/") == 3
    assert parts.fragment == ""


async def test_what_the_url_does_not_hold_is_the_json_body(server):
    tool = made(
        f"{root(server)}/users/{{name}}",
        method="POST",
        parameters={"name": NAME, "age": {"type": "integer"}},
        headers={"authorization": "Bearer secret-1234"},
        result="/items/0/id",
    )
    output = await run(tool, name="a/../b", age="3")
    (seen,) = server.requests
    assert (seen.path, seen.json) == ("/users/a%2F..%2Fb", {"age": 3})
    assert seen.header("authorization") == "Bearer secret-1234"
    assert (output.text, output.status) == ("7", "ok")
    assert output.origin == f"{root(server)}/users/a%2F..%2Fb"


async def test_a_pair_of_the_query_goes_with_its_argument(server):
    tool = made(f"{root(server)}/x?fixed=1&q={{name}}")
    await run(tool)
    await run(tool, name="a&b")
    assert [r.path for r in server.requests] == ["/x?fixed=1", "/x?fixed=1&q=a%26b"]


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b"no such item", "Error: HTTP 404: no such item"),
        (500, b"", "Error: HTTP 500: it said nothing more"),
        (200, b"no json", "Error: the answer is no JSON."),
        (200, b"{}", "Error: the answer has nothing at /a."),
    ],
)
async def test_a_failure_is_a_result_that_says_why(status, body, words):
    async with RawServer(lambda seen, wire: wire.answer(status, body)) as server:
        output = await run(made(f"{root(server)}/x", parameters={}, result="/a"))
        assert (output.text, output.status) == (words, "error")


async def test_a_server_that_is_not_there_is_a_result():
    output = await run(made(f"http://127.0.0.1:{free_port()}/x", parameters={}))
    assert output.text.startswith("Error: items cannot be reached right now.")


async def test_a_redirect_to_another_host_is_not_followed():
    async with RawServer(lambda seen, wire: wire.json({})) as elsewhere:

        async def redirect(seen, wire):
            if seen.path == "/end":
                await wire.json({"at": "end"})
            else:
                to = f"{root(elsewhere)}/x" if seen.path == "/away" else "/end"
                await wire.answer(302, b"", f"location: {to}")

        async with RawServer(redirect) as server:
            away = await run(made(f"{root(server)}/away", parameters={}))
            here = await run(made(f"{root(server)}/here", parameters={}))
        assert away.text.startswith("Error: items: it redirected to another host")
        assert json.loads(here.text) == {"at": "end"}
        assert elsewhere.requests == []


async def test_a_header_that_the_server_repeats_is_taken_out():
    async def echo(seen, wire):
        await wire.json({"you": seen.header("authorization")})

    async with RawServer(echo) as server:
        tool = made(f"{root(server)}/x", parameters={}, headers={"authorization": "Bearer abc-def"})
        output = await run(tool)
        assert "abc-def" not in output.text


def test_pointers_name_members_and_places():
    value = {"a/b": [{"~": 1}]}
    assert resolve_pointer(value, "/a~1b/0/~0") == 1
    with pytest.raises(LookupError):
        resolve_pointer(value, "/a~1b/x")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "http", "url": "http://h/{x}"}, "names the parameter 'x'"),
        ({"kind": "http", "url": "http://{h}/"}, "the host is fixed"),
        ({"kind": "http", "url": "ftp://h/"}, "give an address"),
        ({"kind": "http", "url": "http://h/", "required": ["y"]}, "names the parameter 'y'"),
        ({"kind": "http", "url": "http://h/", "parameters": {"z": {}}}, "goes nowhere"),
        ({"kind": "nothing"}, "`kind` is 'nothing'"),
        ({"kind": "http", "url": "http://h/", "zzz": 1}, "tools.items.zzz: there is no such"),
    ],
)
def test_a_wrong_entry_stops_the_start_with_its_path(entry, words):
    with pytest.raises(ConfigError, match=r"tools\.items") as e:
        parse_settings({"tools": {"items": entry}})
    assert words in str(e.value)


def test_sizes_are_told_in_words():
    assert [size_of(n) for n in (9, 2048, 3 << 19)] == ["9 bytes", "2.0 KiB", "1.5 MiB"]

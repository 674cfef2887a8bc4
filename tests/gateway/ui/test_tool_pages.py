"""Pages of the operator's tools: who sees and runs what, servers' definitions, Python tools."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio

from gateway.storage.tool_pins import ToolPin
from gateway.tools.mcp_connection import ServerUnreachable
from tests.conftest import SENTINEL_KEY
from tests.e2e.operator_tools import ToolServer
from tests.gateway.management.managing import KEYS, as_key
from tests.gateway.ui.looking import HOSTILE, in_tenant, links, shown, words
from tests.models import call, calls

pytestmark = pytest.mark.asyncio(loop_scope="module")
SOURCE = '''def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b
'''
BOTH = calls(call("weather", {"city": "Oslo"}), call("weather", {"city": "Rome"}))
GRANTING = [{**key, "tools": ["weather"]} if key["name"] == "app" else key for key in KEYS]


async def unreachable():
    raise ServerUnreachable("refused")


def definition(text):
    return json.dumps({"name": "look", "description": text, "inputSchema": {"type": "object"}})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    """A gateway with tools, and a function that signs in."""
    async with ToolServer(weather=HOSTILE, broken=(500, HOSTILE)) as server:
        tools = {
            "weather": server.entry("weather", description=HOSTILE),
            "broken": server.entry("broken"),
            "closed": server.entry("closed", enabled=False),
            # Disabled, so that nothing connects: what its server lists is set by hand.
            "probe": {"kind": "mcp", "url": "http://127.0.0.1:9/mcp", "enabled": False},
        }
        data = tmp_path_factory.mktemp("tools")
        async with shown(data, BOTH, "Done.", tools=tools, keys=GRANTING) as (live, sign_in):
            yield live, sign_in


async def test_a_key_sees_the_tools_that_it_grants_and_runs_none(site):
    _, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    text = words(await looker.get("/tools"))
    assert "weather granted to this key http read" in text
    assert "broken" not in text
    assert "Run it" not in words(await looker.get("/tool?name=weather"))
    for path in ("/tool?name=broken", "/tool?name=probe"):
        assert (await looker.get(path)).status_code == 404
    for path in ("/tools/new", "/tools/server?entry=probe", "/tool/source?name=add"):
        assert (await looker.get(path)).status_code == 403
    sent = {"argument:city": "Oslo", "name": "x", "source": SOURCE, "description": ""}
    for path in ("/tool/run?name=weather", "/tools", "/tools/server/refresh?entry=probe"):
        assert (await looker.send(path, **sent)).status_code == 403, path
    strangers = await sign_in("sk-other")
    assert "weather" not in words(await strangers.get("/tools"))
    assert (await strangers.get("/tool?name=weather")).status_code == 404


async def test_a_run_shows_its_result_as_text_and_stands_in_the_audit(site):
    _, sign_in = site
    root = await sign_in("sk-root")
    page = await root.get(in_tenant("/tool?name=weather"))
    assert (await root.send(in_tenant("/tool/run?name=weather"), csrf="")).status_code == 403
    ran = await root.send(in_tenant("/tool/run?name=weather"), **{"argument:city": "Oslo"})
    assert "✓ ok" in words(ran)
    for shown_page in (page, ran):
        assert "<script>top" not in shown_page.text
        assert "<img src=x" not in shown_page.text
    assert "city required" in words(ran)
    assert "ok – root" in words(await root.get(in_tenant("/tool?name=weather")))
    part = await root.send(
        in_tenant("/tool/run?name=broken"), {"hx-request": "true"}, **{"argument:city": "Oslo"}
    )
    assert part.text.startswith("<h3>")
    assert "HTTP 500" in part.text
    assert "<script>top" not in part.text
    listed = await root.get(in_tenant("/tools"))
    # The newest error.
    assert "HTTP 500" in words(listed)
    assert "<script>top" not in listed.text
    assert "closed disabled" in words(listed)
    bad = await root.send(in_tenant("/tool/run?name=weather"), arguments="[1]")
    assert "The arguments must be a JSON object." in words(bad)


async def test_a_changed_definition_waits_until_the_one_looked_at_is_accepted(site, monkeypatch):
    live, sign_in = site
    kind = live.gateway.toolbox.entries["probe"].kind
    pin = ToolPin("look", "h1", definition("Looks."), "h2", definition(HOSTILE))
    kind.pins = {"look": pin}
    await kind._table.save("probe", kind._server, kind.pins)
    root = await sign_in("sk-root")
    assert "1 definition waits to be accepted" in words(await root.get(in_tenant("/tools")))
    page = await root.get(in_tenant("/tools/server?entry=probe"))
    assert "look changed, waits" in words(page)
    assert "Looks." in words(page)
    assert "<script>top" not in page.text
    accept = in_tenant("/tools/server/accept?entry=probe")
    stale = await root.send(accept, tool="look", hash="h1")
    assert stale.status_code == 409
    accepted = await root.send(accept, tool="look", hash="h2")
    assert accepted.headers["location"] == "/ui/tools/server?entry=probe&tenant=acme"
    assert kind.pins["look"].status == "ready"
    monkeypatch.setattr(kind, "refresh", unreachable)
    refreshed = await root.send(in_tenant("/tools/server/refresh?entry=probe"))
    assert "cannot be read" in words(refreshed)
    assert (await root.get(in_tenant("/tools/server?entry=weather"))).status_code == 404


async def test_a_python_tool_is_made_corrected_run_undone_and_deleted(site):
    live, sign_in = site
    root = await sign_in("sk-root")
    fields = {"name": "add", "source": SOURCE, "description": ""}
    wrong = await root.send(in_tenant("/tools"), **{**fields, "source": f"{SOURCE}\nx ="})
    assert "line 10" in words(wrong)
    # What was written stays in the form.
    assert "x =" in wrong.text
    assert (await root.send(in_tenant("/tools"), **fields)).status_code == 303
    again = await root.send(in_tenant("/tools"), **fields)
    assert "There is a Python tool" in words(again)
    ran = await root.send(in_tenant("/tool/run?name=add"), **{"argument:a": "3"})
    assert "✓ ok" in words(ran)
    change = {"source": SOURCE.replace("a + b", "a - b"), "description": ""}
    save = in_tenant("/tool/source?name=add")
    assert (await root.send(save, version="1", **change)).status_code == 303
    stale = await root.send(save, version="1", **change)
    assert "a - b" in stale.text
    assert stale.status_code == 200
    versions = words(await root.get(in_tenant("/tool/versions?name=add")))
    assert "- return a + b + return a - b" in versions
    assert "by dashboard" in versions
    assert (await root.send(in_tenant("/tool/undo?name=add"))).status_code == 303
    assert (await root.send(in_tenant("/tool/delete?name=add"))).status_code == 303
    assert "This tool is deleted" in words(await root.get(in_tenant("/tool/versions?name=add")))
    assert (await root.get("/tool/versions?name=add&tenant=beta")).status_code == 404
    listed = await live.memory("GET", "/tools", **as_key("sk-root"))
    assert "add" not in [tool["name"] for tool in listed.json()["data"]]


async def test_hosts_stay_when_a_source_is_edited(site):
    live, sign_in = site
    body = {"kind": "python", "source": SOURCE, "hosts": ["a.example"]}
    path = "/tools/add?tenant=acme"
    made = await live.memory("PUT", path, json=body, **as_key("sk-root"))
    assert made.status_code == 200, made.text
    root = await sign_in("sk-root")
    page = await root.get(in_tenant("/tool/source?name=add"))
    assert "a.example" not in page.text
    version = page.text.partition('name="version" value="')[2].partition('"')[0]
    change = {"source": SOURCE.replace("a + b", "a - b"), "description": ""}
    saved = await root.send(in_tenant("/tool/source?name=add"), version=version, **change)
    assert saved.status_code == 303
    from memory import management

    who = ("acme", "add")
    stored = await management.python_tools.find_tool(live.gateway.memory, who)
    assert "a.example" in stored.definition
    assert "a - b" in stored.definition


async def test_every_link_of_the_pages_keeps_the_tenant(site):
    _, sign_in = site
    root = await sign_in("sk-root")
    for path in ("/tools", "/tool?name=weather", "/tools/new", "/tools/server?entry=probe"):
        page = await root.get(in_tenant(path))
        assert page.status_code == 200
        assert [url for url in links(page) if "tenant=acme" not in url] == []


async def test_a_requests_runs_are_a_timeline(site):
    live, sign_in = site
    explain = (await live.chat("Weather?", user="ada")).headers["x-memory-explain"]
    looker = await sign_in(SENTINEL_KEY)
    page = await looker.get(f"/request?id={explain}")
    assert "Runs of tools" in words(page)
    assert page.text.count('class="waited"') == 2
    assert "beside weather" in page.text
    assert "<script>top" not in page.text
    without = await (await sign_in("sk-other")).get(f"/request?id={explain}")
    assert without.status_code == 404

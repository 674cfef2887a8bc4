"""Pages of what is shared: blocks with members, teams, projects, the tenant, inboxes, policies."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from tests.conftest import SENTINEL_KEY
from tests.gateway.management.managing import as_key
from tests.gateway.ui.looking import HOSTILE, in_tenant, links, shown, words

pytestmark = pytest.mark.asyncio(loop_scope="module")
FRAGMENT = {"hx-request": "true"}
AGENTS = {
    "agents": {
        "house": {"model": "m", "title": "House"},
        "own": {"model": "m", "home": "agent"},
    }
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    async with shown(tmp_path_factory.mktemp("shared"), "Hi.", **AGENTS) as found:
        yield found


async def make_block(live, label="goals", **more):
    made = await live.memory("POST", "/shared-blocks", json={"label": label, **more})
    assert made.status_code == 201, made.text
    return made.json()["id"]


async def read_block(live, ident):
    return (await live.memory("GET", f"/shared-blocks/{ident}")).json()


async def test_a_shared_block_is_made_joined_edited_and_undone(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    made = await looker.send("/shared", label="goals", description=HOSTILE, value="Ship.")
    ident = made.headers["location"].partition("id=")[2]
    at = f"?id={ident}"
    for kind, name in (("user", "ann"), ("agent", "house"), ("everyone", "")):
        sent = await looker.send(f"/shared/members{at}", kind=kind, name=name, write="on")
        assert sent.status_code == 303, words(sent)
    assert (await looker.send(f"/shared/members{at}", kind="user", name="")).status_code == 400
    assert (await looker.send(f"/shared/members{at}", kind="dog", name="x")).status_code == 400
    members = (await read_block(live, ident))["members"]
    assert {one.get("user") or one.get("agent") or "all" for one in members} == {
        "ann",
        "house",
        "all",
    }
    removed = await looker.send(f"/shared/members/remove{at}", kind="everyone", name="")
    assert removed.status_code == 303
    assert (await looker.send(f"/shared/block{at}", version="1", value="Later.")).status_code == 303
    stale = await looker.send(f"/shared/block{at}", FRAGMENT, version="1", value="Lost?")
    assert "Lost?" in stale.text
    assert 'role="alert"' in stale.text
    assert (await looker.send(f"/shared/append{at}", content="Rest.")).status_code == 303
    assert (await read_block(live, ident))["value"] == "Later.\nRest."
    versions = words(await looker.get(f"/shared/versions{at}"))
    assert "- Ship. + Later." in versions
    assert "by dashboard" in versions
    assert "Later." in (await looker.send(f"/shared/undo{at}", FRAGMENT)).text
    settings = {"description": "Aims", "limit": "100", "read_only": "on"}
    assert (await looker.send(f"/shared/settings{at}", **settings)).status_code == 303
    block = await read_block(live, ident)
    assert (block["description"], block["limit"], block["read_only"]) == ("Aims", 100, True)
    assert (
        await looker.send(f"/shared/settings{at}", description="", limit="x")
    ).status_code == 400
    page = await looker.get(f"/shared/block{at}")
    assert "ann" in words(page)
    assert "<script>top" not in (await looker.get("/shared")).text
    # A read-only block is nobody's to change.
    assert "Delete this block" not in words(page)
    assert (
        await looker.send(f"/shared/settings{at}", description="", limit="9")
    ).status_code == 303
    assert (await looker.send(f"/shared/delete{at}")).status_code == 303
    assert (await looker.get(f"/shared/block{at}")).status_code == 404


async def test_a_key_sees_the_blocks_of_its_users_and_edits_where_one_may_write(site):
    live, sign_in = site
    members = [{"user": "ada", "write": True}, {"user": "bob"}]
    seen, foreign = (
        await make_block(live, "seen", members=members),
        await make_block(live, "hidden"),
    )
    ada, strangers = await sign_in("sk-ada"), await sign_in("sk-other")
    graph = words(await ada.get("/shared/graph"))
    assert ("user ada writes seen" in graph, "bob" in graph, "hidden" in graph) == (
        True,
        False,
        False,
    )
    assert "seen" not in words(await strangers.get("/shared/graph"))
    listed = words(await ada.get("/shared"))
    assert ("seen" in listed, "hidden" in listed, "bob" in listed) == (True, False, False)
    page = await ada.get(f"/shared/block?id={seen}")
    assert ("Settings" in words(page), "bob" in words(page)) == (False, False)
    for path in (f"/shared/block?id={foreign}", f"/shared/events?version=0&id={foreign}"):
        assert (await ada.get(path)).status_code == 404, path
        assert (await strangers.get(path)).status_code == 404, path
    assert (await ada.send(f"/shared/append?id={seen}", content="Tea.")).status_code == 303
    block = await read_block(live, seen)
    assert (block["value"], block["updated_by"]["user"]) == ("Tea.", "ada")
    shown_page = words(await (await sign_in(SENTINEL_KEY)).get(f"/shared/block?id={seen}"))
    # Each line with its writer.
    assert "Tea. ada" in shown_page
    assert (await ada.get(f"/shared/versions?id={seen}")).status_code == 403
    for path, fields in (
        ("/shared", {"label": "x", "description": "", "value": ""}),
        (f"/shared/delete?id={seen}", {}),
        (f"/shared/members?id={seen}", {"kind": "user", "name": "eve"}),
        ("/teams", {"name": "x", "description": ""}),
        ("/projects", {"name": "x", "description": ""}),
    ):
        assert (await ada.send(path, **fields)).status_code == 403, path
    assert (await strangers.send(f"/shared/append?id={seen}", content="x")).status_code == 404


async def test_a_page_hears_of_an_edit_by_whichever_member(site):
    live, sign_in = site
    ident, looker = await make_block(live, "heard"), await sign_in(SENTINEL_KEY)
    path = f"/ui/shared/events?id={ident}&version=1"
    async with looker.http.stream("GET", path) as response, asyncio.timeout(20):
        lines = response.aiter_lines()
        await anext(lines)
        await live.memory("POST", f"/shared-blocks/{ident}/append", json={"content": "One more."})
        async for line in lines:
            if line == "event: changed":
                break


async def test_a_team_is_made_joined_described_and_deleted_with_a_receipt(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    bad = await looker.send("/teams", name="No name", description=HOSTILE)
    assert 'role="alert"' in bad.text
    assert "<script>top" not in bad.text
    made = await looker.send("/teams", name="platform", description="Runs it")
    assert made.headers["location"] == "/ui/team?name=platform"
    again = await looker.send("/teams", name="platform", description="")
    assert "There is a team" in words(again)
    at = "?name=platform"
    for user in ("ada", HOSTILE):
        assert (await looker.send(f"/team/members{at}", user=user, write="on")).status_code == 303
    assert (await looker.send(f"/team{at}", description="Keeps it")).status_code == 303
    layer = "?kind=team&name=platform"
    added = await looker.send(f"/layer/passages{layer}", content=HOSTILE, tags="a, b")
    assert added.status_code == 303
    page = await looker.get(f"/team{at}")
    assert "<script>top" not in page.text
    assert "Keeps it · 2 members" in words(page)
    assert "ada writes" in words(page)
    ada, strangers = await sign_in("sk-ada"), await sign_in("sk-other")
    assert "What it holds" in words(await ada.get(f"/team{at}"))
    assert "platform" in words(await ada.get("/teams"))
    assert (await ada.send(f"/layer/passages{layer}", content="Mine.", tags="")).status_code == 303
    assert (await strangers.get(f"/team{at}")).status_code == 404
    held = (await live.memory("GET", "/teams/platform/passages")).json()["data"]
    assert [one.get("written_by") for one in held] == ["ada", None]
    forgotten = await looker.send(f"/layer/forget{layer}", id=held[0]["id"])
    assert forgotten.status_code == 303
    removed = await looker.send(f"/team/members/remove{at}", user="ada")
    assert removed.status_code == 303
    assert (await ada.get(f"/team{at}")).status_code == 404
    receipt = words(await looker.send(f"/team/delete{at}"))
    assert "✓ What went with it" in receipt
    assert (await looker.get(f"/team{at}")).status_code == 404
    assert (await looker.get("/layer/passages?kind=dog")).status_code == 405
    assert (await looker.send("/layer/forget?kind=dog", id="x")).status_code == 400


async def test_a_project_is_declared_changed_and_deleted(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    fields = {"description": "Moon", "users": "ada\n bob \n", "teams": "", "write": "on"}
    assert (await looker.send("/projects", name="apollo", **fields)).status_code == 303
    project = (await live.memory("GET", "/projects/apollo")).json()
    assert (project["users"], project["write"], project["everyone"]) == (
        ["ada", "bob"],
        True,
        False,
    )
    again = await looker.send("/projects", name="apollo", **fields)
    assert "There is a project" in words(again)
    assert "Moon" in words(await looker.get("/project?name=apollo"))
    change = {**fields, "users": "", "everyone": "on"}
    assert (await looker.send("/project?name=apollo", **change)).status_code == 303
    assert "everyone may name it" in words(await looker.get("/project?name=apollo"))
    assert (await (await sign_in("sk-other")).get("/project?name=apollo")).status_code == 404
    assert "✓" in words(await looker.send("/project/delete?name=apollo"))


async def test_the_tenants_own_passages_stay_in_the_tenant(site):
    _, sign_in = site
    looker, strangers = await sign_in(SENTINEL_KEY), await sign_in("sk-other")
    added = await looker.send("/layer/passages?kind=tenant", content="Closed on Mondays", tags="")
    assert added.headers["location"] == "/ui/tenant"
    assert "Closed on Mondays" in words(await looker.get("/tenant"))
    assert "Closed" not in words(await strangers.get("/tenant"))


async def test_a_message_waits_in_the_inbox_of_an_agent_and_is_taken_back(site):
    live, sign_in = site
    looker, ada = await sign_in(SENTINEL_KEY), await sign_in("sk-ada")
    assert "Name one" in words(await looker.get("/agent/inbox?name=house"))
    at = "?name=house&user=ada"
    sent = {"text": HOSTILE, "from": HOSTILE}
    assert (await looker.send(f"/agent/inbox{at}", **sent)).status_code == 303
    page = await ada.get(f"/agent/inbox{at}")
    assert "waits for the next turn" in words(page)
    assert "<script>top" not in page.text
    (message,) = (await live.memory("GET", "/agents/house/inbox?user=ada")).json()["data"]
    for path in ("?name=house&user=bob", "?name=own"):
        assert (await ada.get(f"/agent/inbox{path}")).status_code == 403
    back = await looker.send(f"/agent/inbox/take-back{at}", id=message["id"])
    assert back.status_code == 303
    assert "No messages." in words(await looker.get(f"/agent/inbox{at}"))
    assert "No messages." in words(await looker.get("/agent/inbox?name=own"))


async def test_a_users_policy_names_layers_and_tools(site):
    live, sign_in = site
    looker = await sign_in(SENTINEL_KEY)
    fields = {"memory": "full", "timezone": "", "layers": "listed", "layer-team": "on"}
    sent = await looker.send("/user/policy?user=ada", tools="weather git_*", **fields)
    assert sent.status_code == 303
    policy = (await live.memory("GET", "/users/ada/policy")).json()
    assert (policy["layers"], policy["tools"]) == (["team"], ["weather", "git_*"])
    page = await looker.get("/user?user=ada")
    assert 'value="weather git_*"' in page.text
    assert page.text.count('name="layer-team" checked') == 1
    assert 'name="layer-tenant" checked' not in page.text
    plain = {"memory": "read", "timezone": "Asia/Tokyo"}
    # What it leaves out stays.
    await looker.send("/user/policy?user=ada", **plain)
    policy = (await live.memory("GET", "/users/ada/policy")).json()
    assert (policy["memory"], policy["layers"]) == ("read", ["team"])
    wrong = await looker.send("/user/policy?user=ada", memory="some", timezone="")
    assert wrong.status_code == 400


async def test_every_link_of_the_pages_keeps_the_tenant(site):
    live, sign_in = site
    ident = await make_block(live, "linked", members=[{"everyone": True}])
    await live.memory("PUT", "/teams/linked", json={})
    await live.memory("PUT", "/projects/linked", json={})
    await live.memory("GET", "/agents", **as_key("sk-root"))
    root = await sign_in("sk-root")
    for path in (
        "/shared",
        "/shared/graph",
        f"/shared/block?id={ident}",
        f"/shared/edit?id={ident}",
        f"/shared/versions?id={ident}",
        "/teams",
        "/team?name=linked",
        "/projects",
        "/project?name=linked",
        "/tenant",
        "/agent/inbox?name=house&user=ada",
    ):
        page = await root.get(in_tenant(path))
        assert page.status_code == 200, path
        # A form that asks for the tenant ends so.
        kept = ("tenant=acme", "?")
        assert [u for u in links(page) if kept[0] not in u and not u.endswith(kept[1])] == [], path


async def test_usage_is_told_by_agent(site):
    live, sign_in = site
    await live.chat("Hi", user="ada", model="agent:house")
    await live.chat("Hi", user="ada")
    groups = (await live.memory("GET", "/usage?group_by=agent")).json()["data"]
    assert [(one["agent"], one["requests"]) for one in groups] == [(None, 1), ("house", 1)]
    requests = (await live.memory("GET", "/usage?group_by=request")).json()["data"]
    assert [one["agent"] for one in requests] == [None, "house"]
    looker = await sign_in(SENTINEL_KEY)
    assert "no agent 1" in words(await looker.get("/usage?by=agent"))
    assert "agent house" in words(await looker.get("/usage?by=request"))
    assert "house" not in words(await (await sign_in("sk-other")).get("/usage?by=agent"))

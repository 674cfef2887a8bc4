"""Teams: what their members read, and may share (AGENTS.md, rows T1 and T4)."""

from __future__ import annotations

import json

import pytest

from tests.e2e.test_agents import system_of
from tests.e2e.test_shared_blocks import append, ask, gateway, key_of
from tests.models import Model, call, calls


async def send(live, method, path, body=None, status=200, **headers):
    """Send a management request and return its body."""
    got = await live.memory(method, path, json=body, headers=headers)
    assert got.status_code == status, (method, path, got.status_code, got.text)
    return got.json()


async def make_team(live, name="platform", **members):
    """Make a team. members: whether each may write."""
    await send(live, "PUT", f"/teams/{name}", {"description": "Those of the platform"})
    for user, write in members.items():
        await send(live, "PUT", f"/teams/{name}/members/{user}", {"write": write})


def search(query, ident="call_0"):
    return call("archival_memory_search", {"query": query}, ident)


def insert(content, ident="call_0", **more):
    return call("archival_memory_insert", {"content": content, **more}, ident)


def result_of(body):
    """The result of the newest tool call in a request."""
    return [m["content"] for m in body["messages"] if m["role"] == "tool"][-1]


def offered(body):
    return {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}


async def test_a_t1_a_teams_block_and_passage_are_its_members_and_after_leaving_in_none(data):
    looks = [calls(search("deployment codeword")), "Done."]
    async with Model(*looks * 4, "Hi.") as up, gateway(up, data) as live:
        await make_team(live, ann=False, bob=True)
        block = {"label": "plan", "value": "Codeword quetzal", "members": [{"team": "platform"}]}
        await send(live, "POST", "/shared-blocks", block, 201)
        text = "The deployment codeword is ocelot"
        await send(live, "POST", "/teams/platform/passages", {"content": text})
        seen = {}
        for user in ("ann", "bob", "zoe"):
            history = await ask(live, user, "Which deployment codeword?")
            body = up.bodies[-1]
            seen[user] = "quetzal" in system_of(body), "ocelot" in result_of(body)
            if user == "ann":
                told = history
                hit = json.loads(result_of(body).split("\n")[1])
                assert (hit["content"], hit["layer"]) == (text, "team:platform")
        assert seen == {"ann": (True, True), "bob": (True, True), "zoe": (False, False)}
        await send(live, "DELETE", "/teams/platform/members/ann")
        await ask(live, "ann", "And now, which deployment codeword?", told)
        body = up.requests[-1].body.decode()
        assert "quetzal" not in body
        assert "ocelot" not in body
        found = await send(live, "GET", "/users/ann/passages/search?q=codeword&layers=all")
        assert found["data"] == []


async def test_a_t1_automatic_recall_reads_what_the_team_holds(data):
    async with (
        Model("Hi.") as up,
        gateway(up, data, **{"memory.recall": "always"}) as live,
    ):
        await make_team(live, ann=False)
        text = "The deployment of Apollo runs on Tuesday at noon"
        await send(live, "POST", "/teams/platform/passages", {"content": text})
        await ask(live, "ann", "When does the deployment of Apollo run?")
        newest = up.bodies[-1]["messages"][-1]["content"]
        assert ", team:platform) The deployment of Apollo runs on Tuesday" in newest
        await ask(live, "zoe", "When does the deployment of Apollo run?")
        assert "Tuesday" not in up.requests[-1].body.decode()


async def test_a_t4_share_is_offered_to_writers_only_and_puts_the_passage_into_the_layer(data):
    replies = ["Hi.", "Hi.", calls(insert("The server is called Heron", share="team:platform"))]
    replies += ["Noted.", calls(search("server Heron")), "Heron."]
    async with Model(*replies) as up, gateway(up, data) as live:
        await make_team(live, ann=False, bob=True)
        for user in ("ann", "zoe"):
            await ask(live, user)
            assert "share" not in offered(up.bodies[-1])["archival_memory_insert"]["properties"]
        await ask(live, "bob", "The server is called Heron")
        share = offered(up.bodies[-1])["archival_memory_insert"]["properties"]["share"]
        assert share["enum"] == ["team:platform"]
        assert result_of(up.bodies[-1]) == "Stored in team:platform."
        await ask(live, "ann", "What is the server called?")
        assert "Heron" in result_of(up.bodies[-1])
        (passage,) = (await send(live, "GET", "/teams/platform/passages"))["data"]
        assert (passage["written_by"], passage["actor"]) == ("bob", "model")
        assert (await send(live, "GET", "/users/bob/passages"))["data"] == []


async def test_a_t4_who_may_not_write_a_layer_gets_an_error_and_what_it_holds_stands(data):
    text = "The server is called Heron"
    async with Model("Hi.") as up, gateway(up, data) as live:
        await make_team(live, ann=False, bob=True)
        added = await send(live, "POST", "/teams/platform/passages", {"content": text})
        ident = added["data"][0]["id"]
        tries = [
            insert("Mine", share="team:platform"),
            call("memory_forget", {"id": ident}),
            call("memory_forget", {"id": text}),
            call("archival_memory_update", {"id": ident, "content": "Mine"}),
        ]
        for i, one in enumerate(tries):
            up.script = [calls({**one, "id": f"call_{i}"}), "No."]
            await ask(live, "ann", f"Change it {i}")
            assert result_of(up.bodies[-1]).startswith("Error: "), result_of(up.bodies[-1])
            assert "Mine" not in str((await send(live, "GET", "/teams/platform/passages"))["data"])
        (passage,) = (await send(live, "GET", "/teams/platform/passages"))["data"]
        assert passage["content"] == text
        up.script = [calls(tries[3]), "Yes."]
        await ask(live, "bob", "Change it")
        (passage,) = (await send(live, "GET", "/teams/platform/passages"))["data"]
        assert (passage["content"], passage["written_by"]) == ("Mine", "bob")


async def test_teams_are_made_listed_and_deleted_with_what_they_hold(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await make_team(live, ann=False, bob=True)
        await make_team(live, "empty")
        listed = (await send(live, "GET", "/teams"))["data"]
        assert [(t["name"], t["members"]) for t in listed] == [("empty", 0), ("platform", 2)]
        members = (await send(live, "GET", "/teams/platform/members"))["data"]
        assert [(m["user"], m["write"]) for m in members] == [("ann", False), ("bob", True)]
        (team,) = (await send(live, "GET", "/users/ann/teams"))["data"]
        assert (team["team"], team["write"]) == ("platform", False)
        block = {"label": "plan", "value": "Codeword quetzal", "members": [{"team": "platform"}]}
        block = await send(live, "POST", "/shared-blocks", block, 201)
        assert [m["team"] for m in block["members"]] == ["platform"]
        found = (await send(live, "GET", "/shared-blocks?team=platform"))["data"]
        assert [b["id"] for b in found] == [block["id"]]
        await send(live, "POST", "/teams/platform/passages", {"content": "Codeword ocelot"})
        history = await ask(live, "ann")
        assert "quetzal" in system_of(up.bodies[-1])
        receipt = await send(live, "DELETE", "/teams/platform")
        assert receipt["erased"] == {"members": 2, "shared_blocks": 1, "passages": 1}
        await ask(live, "ann", "And?", history)
        assert "quetzal" not in up.requests[-1].body.decode()
        await send(live, "GET", "/teams/platform", status=404)
        await send(live, "GET", "/teams/platform/passages", status=404)
        users = (await send(live, "GET", "/users"))["data"]
        assert [u["id"] for u in users] == ["ann"]


@pytest.mark.parametrize("name", ["Platform", "-a", "a" * 65, "a b"])
async def test_a_team_has_a_name_like_a_profile(data, name):
    async with Model("Hi.") as up, gateway(up, data) as live:
        got = await send(live, "PUT", f"/teams/{name}", {}, 400)
        assert got["error"]["param"] == "team"
        got = await send(live, "PUT", f"/projects/{name}", {}, 400)
        assert got["error"]["param"] == "project"


async def test_a_user_is_in_at_most_50_teams(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        for i in range(50):
            await make_team(live, f"team-{i}", ann=False)
        await make_team(live, "one-more")
        await send(live, "PUT", "/teams/one-more/members/ann", {}, 409)
        await send(live, "PUT", "/teams/team-7/members/ann", {"write": True})


async def test_what_the_tenant_holds_is_read_by_every_named_user(data):
    looks = [calls(search("closing holiday")), "Done."]
    async with Model(*looks * 2, "Hi.") as up, gateway(up, data) as live:
        text = "The office closes for the holiday on 24 December"
        await send(live, "POST", "/tenant/passages", {"content": text})
        for user in ("ann", "bob"):
            await ask(live, user, "When is the closing holiday?")
            hit = json.loads(result_of(up.bodies[-1]).split("\n")[1])
            assert (hit["content"], hit["layer"]) == (text, "tenant")
        got = await live.chat("When is the closing holiday?")
        assert got.headers["x-memory-user"] == "none"
        assert "December" not in up.requests[-1].body.decode()
        await send(live, "PUT", "/users/bob/policy", {"layers": ["team", "project"]})
        up.script = [*looks]
        await ask(live, "bob", "And the closing holiday?")
        assert "December" not in result_of(up.bodies[-1])
        assert (await send(live, "GET", "/users/bob/policy"))["layers"] == ["team", "project"]


async def test_a_policy_without_a_layer_hides_its_blocks_and_passages(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await make_team(live, ann=True)
        block = {"label": "plan", "value": "Codeword quetzal", "members": [{"team": "platform"}]}
        await send(live, "POST", "/shared-blocks", block, 201)
        await send(live, "POST", "/teams/platform/passages", {"content": "Codeword ocelot"})
        history = await ask(live, "ann")
        assert "quetzal" in system_of(up.bodies[-1])
        await send(live, "PUT", "/users/ann/policy", {"layers": []})
        history = await ask(live, "ann", "And?", history)
        assert "quetzal" not in up.requests[-1].body.decode()
        assert "share" not in offered(up.bodies[-1])["archival_memory_insert"]["properties"]
        path = "/users/ann/passages/search?q=codeword&layers=all"
        assert (await send(live, "GET", path))["data"] == []
        await send(live, "PUT", "/users/ann/policy", {"layers": ["team", "tenant", "project"]})
        await ask(live, "ann", "And now?", history)
        assert "quetzal" in system_of(up.bodies[-1])
        (hit,) = (await send(live, "GET", path))["data"]
        assert hit["layer"] == "team:platform"


async def test_a_search_of_all_layers_merges_them_and_pages(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await make_team(live, ann=False)
        for i, path in enumerate(["users/ann", "teams/platform", "tenant"] * 4):
            content = f"Note {i} says that the falcon flies"
            await send(live, "POST", f"/{path}/passages", {"content": content})
        pages, cursor = [], ""
        while cursor is not None:
            more = f"&cursor={cursor}" if cursor else ""
            path = f"/users/ann/passages/search?q=falcon&layers=all&limit=5{more}"
            page = await send(live, "GET", path)
            pages.append(page["data"])
            cursor = page["next_cursor"]
        hits = [hit for page in pages for hit in page]
        assert [len(page) for page in pages] == [5, 5, 2]
        assert len({hit["id"] for hit in hits}) == 12
        assert {hit["layer"] for hit in hits} == {"user", "team:platform", "tenant"}
        assert [hit["score"] for hit in hits] == sorted((h["score"] for h in hits), reverse=True)
        own = (await send(live, "GET", "/users/ann/passages/search?q=falcon"))["data"]
        assert len(own) == 4
        assert all("layer" not in hit for hit in own)


def routes(name):
    """Every route of a team, a project and their passages."""
    for kind in ("teams", "projects"):
        yield "GET", f"/{kind}/{name}", None
        yield "DELETE", f"/{kind}/{name}", None
        yield "GET", f"/{kind}/{name}/passages", None
        yield "POST", f"/{kind}/{name}/passages", {"content": "x"}
        yield "GET", f"/{kind}/{name}/passages/search?q=codeword", None
        for method in ("GET", "PATCH", "DELETE"):
            body = {"content": "x"} if method == "PATCH" else None
            yield method, f"/{kind}/{name}/passages/passage_1", body
        for verb in ("undo", "restore", "forget"):
            yield "POST", f"/{kind}/{name}/passages/passage_1/{verb}", None
    yield "GET", f"/teams/{name}/members", None
    yield "PUT", f"/teams/{name}/members/ann", {"write": True}
    yield "DELETE", f"/teams/{name}/members/ann", None


async def test_another_tenant_and_an_untrusted_key_find_no_team_and_no_project(data):
    keys = ({}, {"tenant": "other"}, {"trusted": False, "users": ["zoe"]})
    async with Model("Hi.") as up, gateway(up, data, *keys) as live:
        await make_team(live, ann=True)
        await send(live, "PUT", "/projects/platform", {"users": ["ann"], "write": True})
        await send(live, "POST", "/tenant/passages", {"content": "Codeword ibis"})
        for kind in ("teams", "projects"):
            text = {"content": "Codeword ocelot"}
            await send(live, "POST", f"/{kind}/platform/passages", text)
        for key in (key_of(1), key_of(2)):
            for method, path, body in routes("platform"):
                got = await live.memory(method, path, json=body, headers=key)
                assert got.status_code == 404, (method, path, got.text)
                assert "ocelot" not in got.text
            for path in ("/teams", "/projects"):
                assert (await send(live, "GET", path, **key))["data"] == []
        assert (await send(live, "GET", "/tenant/passages", **key_of(1)))["data"] == []
        found = await send(live, "GET", "/tenant/passages", **key_of(2))
        assert [p["content"] for p in found["data"]] == ["Codeword ibis"]
        await send(live, "POST", "/tenant/passages", {"content": "x"}, 403, **key_of(2))
        await send(live, "PUT", "/teams/mine", {}, 404, **key_of(2))
        await send(live, "GET", "/users/ann/teams", status=403, **key_of(2))


async def test_an_untrusted_key_reads_and_writes_what_its_users_may(data):
    keys = ({}, {"trusted": False, "users": ["ann"]}, {"trusted": False, "users": ["bob"]})
    async with Model("Hi.") as up, gateway(up, data, *keys) as live:
        await make_team(live, ann=False, bob=True)
        ann, bob = key_of(1), key_of(2)
        text = {"content": "Codeword ocelot"}
        await send(live, "POST", "/teams/platform/passages", text, 403, **ann)
        (made,) = (await send(live, "POST", "/teams/platform/passages", text, **bob))["data"]
        assert made["written_by"] == "bob"
        (read,) = (await send(live, "GET", "/teams/platform/passages", **ann))["data"]
        assert read["content"] == "Codeword ocelot"
        assert [t["name"] for t in (await send(live, "GET", "/teams", **ann))["data"]] == [
            "platform"
        ]
        refused = [("PUT", "/teams/platform", {}), ("DELETE", "/teams/platform", None)]
        refused += [("PUT", "/teams/platform/members/ann", {"write": True})]
        refused += [("GET", "/teams/platform/members", None)]
        refused += [("DELETE", f"/teams/platform/passages/{made['id']}", None)]
        for method, path, body in refused:
            await send(live, method, path, body, 403, **ann)


@pytest.mark.parametrize("wanted", ["", "?shared=keep"])
async def test_an_erased_users_passages_in_a_team_are_gone_or_lose_the_name(data, wanted):
    replies = [calls(insert("The server is called Heron", share="team:platform")), "Noted."]
    async with Model(*replies, "Hi.") as up, gateway(up, data) as live:
        await make_team(live, ann=True, bob=True)
        other = {"content": "The printer is called Egret"}
        await send(live, "POST", "/teams/platform/passages", other)
        await ask(live, "ann", "The server is called Heron")
        receipt = await send(live, "DELETE", f"/users/ann{wanted}")
        held = (await send(live, "GET", "/teams/platform/passages"))["data"]
        members = (await send(live, "GET", "/teams/platform/members"))["data"]
        assert [m["user"] for m in members] == ["bob"]
        assert receipt["shared"]["memberships"] == 1
        assert all("written_by" not in p for p in held)
        contents = sorted(p["content"] for p in held)
        if wanted:
            assert contents == ["The printer is called Egret", "The server is called Heron"]
        else:
            assert contents == ["The printer is called Egret"]
            assert receipt["shared"]["passages"] == 1


async def test_a_renamed_user_keeps_their_teams_and_their_name_beside_what_they_shared(data):
    replies = [calls(insert("The server is called Heron", share="team:platform")), "Noted."]
    async with Model(*replies, "Hi.") as up, gateway(up, data, {"admin": True}) as live:
        await make_team(live, ann=True)
        await send(live, "PUT", "/projects/apollo", {"users": ["ann"]})
        await ask(live, "ann", "The server is called Heron")
        await ask(live, "anna")
        await send(live, "POST", "/users/ann/merge", {"into": "anna"})
        (team,) = (await send(live, "GET", "/users/anna/teams"))["data"]
        assert (team["team"], team["write"]) == ("platform", True)
        (passage,) = (await send(live, "GET", "/teams/platform/passages"))["data"]
        assert passage["written_by"] == "anna"
        assert (await send(live, "GET", "/projects/apollo"))["users"] == ["anna"]


async def test_an_edit_of_a_teams_block_is_a_note_in_another_members_next_request(data):
    replies = ["Hi.", calls(append("plan", "Ship on Friday")), "Noted.", "Yes."]
    async with Model(*replies) as up, gateway(up, data) as live:
        await make_team(live, ann=False, bob=False)
        member = {"team": "platform", "write": True}
        block = {"label": "plan", "value": "Plan", "members": [member]}
        await send(live, "POST", "/shared-blocks", block, 201)
        first = await ask(live, "ann")
        await ask(live, "bob", "Ship it on Friday")
        await ask(live, "ann", "And?", first)
        newest = up.bodies[-1]["messages"][-1]["content"]
        assert '<plan change="appended">Ship on Friday</plan>' in newest


async def test_explain_records_name_layers_and_hide_those_that_were_left(data):
    keys = ({}, {"trusted": False, "users": ["ann"]})
    looks = [calls(search("deployment Apollo")), "Done."]
    async with (
        Model(*looks) as up,
        gateway(up, data, *keys, **{"memory.recall": "always"}) as live,
    ):
        await make_team(live, ann=False)
        block = {"label": "plan", "value": "Codeword quetzal", "members": [{"team": "platform"}]}
        await send(live, "POST", "/shared-blocks", block, 201)
        text = "The deployment of Apollo runs on Tuesday at noon"
        await send(live, "POST", "/teams/platform/passages", {"content": text})
        got = await live.chat("When does the deployment of Apollo run?", user="ann")
        path = f"/explain/{got.headers['x-memory-explain']}"
        record = await send(live, "GET", path, **key_of(1))
        assert record["layers"]["read"] == ["team:platform"]
        assert record["layers"]["blocks"] == {"plan": "team:platform"}
        assert [*record["layers"]["recall"].values()] == ["team:platform"]
        assert "Tuesday" in record["injected"]["recall"]
        assert "Tuesday" in record["tools"][0]["result"]
        await send(live, "DELETE", "/teams/platform/members/ann")
        left = await send(live, "GET", path, **key_of(1))
        assert "Tuesday" not in str(left)
        assert "quetzal" not in str(left)
        assert "(layer left)" in left["injected"]["recall"]
        assert "Tuesday" in str(await send(live, "GET", path))

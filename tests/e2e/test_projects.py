"""Projects: parts of a memory, who may name them (AGENTS.md, rows T2 and T3)."""

from __future__ import annotations

import json
import random

import pytest

from tests.e2e.postgres_chat import storage
from tests.e2e.test_agents import system_of
from tests.e2e.test_shared_blocks import append, ask, gateway, key_of
from tests.e2e.test_teams import insert, make_team, offered, result_of, search, send
from tests.models import Model, calls

APOLLO = {"x-memory-project": "apollo"}


async def test_projects_are_declared_listed_and_deleted(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await send(live, "PUT", "/teams/platform", {})
        rules = {"description": "To the moon", "teams": ["platform"], "users": ["ann"]}
        made = await send(live, "PUT", "/projects/apollo", {**rules, "write": True})
        assert {name: made[name] for name in rules} == rules
        assert (made["everyone"], made["write"]) == (False, True)
        made = await send(live, "PUT", "/projects/apollo", {"everyone": True})
        assert (made["teams"], made["users"], made["everyone"]) == ([], [], True)
        listed = (await send(live, "GET", "/projects"))["data"]
        assert [project["name"] for project in listed] == ["apollo"]
        await send(live, "PUT", "/projects/other", {"teams": ["none"]}, 404)
        await send(live, "POST", "/projects/apollo/passages", {"content": "Codeword ocelot"})
        receipt = await send(live, "DELETE", "/projects/apollo")
        assert receipt["erased"] == {"members": 0, "shared_blocks": 0, "passages": 1}
        await send(live, "GET", "/projects/apollo", status=404)


async def isolate(live, up, seed):
    """Write sentinels for two users in three projects and in none, and look at every body.

    Half of the writes are by a tool, half by the API; of each, some to blocks, some to passages.
    """
    rng = random.Random(seed)
    places = ["", "apollo", "gemini", "mercury"]
    written = {}
    for i in range(60):
        user, project = rng.choice(["ann", "bob"]), rng.choice(places)
        word = f"sentinel{i:03}x"
        written.setdefault((user, project), []).append(word)
        label = "project" if project else "human"
        headers = {"x-memory-project": project} if project else {}
        by_tool, to_block = i % 2, rng.random() < 0.5
        if by_tool:
            line = f"The codeword is {word}"
            done = append(label, line) if to_block else insert(line)
            up.script = [calls({**done, "id": f"call_{i}"}), "Noted."]
            await ask(live, user, f"Please remember this now {i}", **headers)
            assert "Error" not in result_of(up.bodies[-1]), result_of(up.bodies[-1])
        else:
            query = f"?project={project}" if project else ""
            if to_block:
                path = f"/users/{user}/blocks/{label}{query}"
                value = (await send(live, "GET", path))["value"]
                new = f"{value}\nThe codeword is {word}".strip()
                await send(live, "PUT", path, {"value": new})
            else:
                text = {"content": f"The codeword is {word}"}
                await send(live, "POST", f"/users/{user}/passages{query}", text)
    for user in ("ann", "bob"):
        for project in places:
            headers = {"x-memory-project": project} if project else {}
            up.script = [calls(search("codeword", f"call_{user}{project}")), "Done."]
            up.requests.clear()
            await ask(live, user, "Which codewords do you have for me?", **headers)
            body = "".join(r.body.decode() for r in up.requests)
            path = f"/users/{user}/passages/search?q=codeword&layers=all&limit=200"
            found = await send(live, "GET", path + (f"&project={project}" if project else ""))
            for (owner, place), words in written.items():
                for word in words:
                    seen = word in body or word in str(found)
                    assert seen == (owner == user and place in ("", project)), (
                        user, project, owner, place, word
                    )  # fmt: skip


CAP = {"memory.read_deadline_ms": 20_000}


async def test_a_t2_no_sentinel_of_a_project_is_in_another_or_in_none(data):
    async with Model("Hi.") as up, gateway(up, data, **CAP) as live:
        await isolate(live, up, 2)


async def test_a_t2_on_postgres(postgres_url, tmp_path):
    async with (
        Model("Hi.") as up,
        gateway(up, tmp_path / "data", **CAP, **storage(postgres_url)) as live,
    ):
        await isolate(live, up, 3)
        await make_team(live, ann=True)
        await send(live, "PUT", "/projects/apollo", {"users": ["ann"]})
        block = {"label": "plan", "value": "Codeword quetzal", "members": [{"team": "platform"}]}
        await send(live, "POST", "/shared-blocks", block, 201)
        await send(live, "POST", "/teams/platform/passages", {"content": "The codeword is ocelot"})
        seen = {}
        for user in ("ann", "bob"):
            up.script = [calls(search("ocelot")), "Done."]
            history = await ask(live, user, "Which codeword is ocelot?")
            seen[user] = "quetzal" in system_of(up.bodies[-1]), "ocelot" in result_of(up.bodies[-1])
            if user == "ann":
                told = history
        assert seen["ann"] == (True, True)
        assert not seen["bob"][0]
        await send(live, "DELETE", "/teams/platform/members/ann")
        await ask(live, "ann", "And now?", told)
        assert "quetzal" not in up.requests[-1].body.decode()


async def test_a_t3_a_declared_project_refuses_who_is_not_listed(data):
    keys = ({}, {"trusted": False, "users": ["zoe"]})
    async with Model("Hi.") as up, gateway(up, data, *keys) as live:
        await make_team(live, bob=False)
        await send(live, "PUT", "/projects/apollo", {"users": ["ann"], "teams": ["platform"]})
        before = len(up.requests)
        for user in ("zoe", None):
            got = await live.chat("Hi", APOLLO, **({"user": user} if user else {}))
            if user is None:
                assert (got.status_code, got.headers.get("x-memory-project")) == (200, None)
                before += 1
                continue
            assert got.status_code == 403
            assert got.json()["error"]["code"] == "project_not_allowed"
        assert len(up.requests) == before
        for user in ("ann", "bob"):
            got = await live.chat("Hi", APOLLO, user=user)
            assert (got.status_code, got.headers["x-memory-project"]) == (200, "apollo")
        got = await live.chat("Hi", {"x-memory-project": "my%20own"}, user="zoe")
        assert (got.status_code, got.headers["x-memory-project"]) == (200, "my%20own")
        got = await send(live, "GET", "/users/zoe/blocks?project=apollo", status=403, **key_of(1))
        assert got["error"]["code"] == "project_not_allowed"
        await send(live, "DELETE", "/teams/platform/members/bob")
        got = await live.chat("Hi", APOLLO, user="bob")
        assert got.status_code == 403


async def test_a_t3_a_write_in_a_project_leaves_general_memory_as_it_was(data):
    replies = [calls(append("human", "Likes tea")), "No."]
    replies += [calls(append("project", "Written in Rust"), insert("Uses port 9", "call_1"))]
    async with Model(*replies, "Noted.", "Hi.") as up, gateway(up, data) as live:
        await send(live, "PUT", "/users/ann/blocks/human", {"value": "Is called Ann"})
        general = (await send(live, "GET", "/users/ann/blocks"))["data"]
        await ask(live, "ann", "I like tea", **APOLLO)
        assert result_of(up.bodies[-1]).startswith("Error: The block 'human' is read-only")
        system = system_of(up.bodies[-1])
        assert "Is called Ann" in system
        assert '<project description="What is known about this project" chars="0/4000">' in system
        human = system[system.index("<human ") :].split(">")[0]
        assert human.endswith('read_only="true"')
        history = await ask(live, "ann", "It is written in Rust", **APOLLO)
        assert (await send(live, "GET", "/users/ann/blocks"))["data"] == general
        assert (await send(live, "GET", "/users/ann/passages"))["data"] == []
        assert (await send(live, "GET", "/users/ann/conversations"))["data"] == []
        own = (await send(live, "GET", "/users/ann/blocks?project=apollo"))["data"]
        assert [(b["label"], b["value"]) for b in own] == [("project", "Written in Rust")]
        (passage,) = (await send(live, "GET", "/users/ann/passages?project=apollo"))["data"]
        assert passage["content"] == "Uses port 9"
        # An edit of the general memory is in the project's next request.
        await send(live, "PUT", "/users/ann/blocks/human", {"value": "Is called Anna"})
        await ask(live, "ann", "And?", history, **APOLLO)
        assert "Is called Anna" in system_of(up.bodies[-1])


async def test_general_blocks_can_be_written_in_a_project_where_that_is_set(data):
    replies = ["Hi.", calls(append("human", "Likes tea")), "Noted.", "Hi.", "Hi."]
    config = {"memory.project_writes": "user"}
    async with Model(*replies) as up, gateway(up, data, **config) as live:
        history = await ask(live, "ann")
        await ask(live, "ann", "I like tea", **APOLLO)
        block = await send(live, "GET", "/users/ann/blocks/human")
        assert block["value"] == "Likes tea"
        await ask(live, "ann", "And?", history)
        assert "Likes tea" in up.requests[-1].body.decode()


async def test_an_edit_by_the_model_outside_is_a_note_in_a_projects_next_request(data):
    replies = ["Hi.", calls(append("human", "Likes tea")), "Noted.", "Hi.", "Hi."]
    async with Model(*replies) as up, gateway(up, data) as live:
        history = await ask(live, "ann", **APOLLO)
        begun = up.bodies[-1]["messages"]
        await ask(live, "ann", "I like tea")
        history = await ask(live, "ann", "And?", history, **APOLLO)
        after = up.bodies[-1]["messages"]
        assert after[: len(begun)] == begun
        assert '<human change="set">Likes tea</human>' in after[-1]["content"]


async def test_a_program_names_the_project_by_its_own_header(data):
    config = {"clients.app.project_headers": ["x-app-repository"]}
    async with Model("Hi.") as up, gateway(up, data, **config) as live:
        got = await live.chat("Hi", {"x-app-repository": "heron"}, user="ann")
        assert got.headers["x-memory-project"] == "heron"
        got = await live.chat("Hi", {"x-app-repository": "heron", **APOLLO}, user="ann")
        assert got.headers["x-memory-project"] == "apollo"
        got = await live.chat("Hi", {**APOLLO, "x-memory": "off"}, user="ann")
        assert "x-memory-project" not in got.headers


@pytest.mark.parametrize("name", ["x" * 257, "a%1Fb", "%FF"])
async def test_a_name_that_no_project_can_have_is_refused(data, name):
    async with Model("Hi.") as up, gateway(up, data) as live:
        got = await live.chat("Hi", {"x-memory-project": name}, user="ann")
        assert got.status_code == 400
        assert got.json()["error"]["param"] == "x-memory-project"


async def test_an_agents_name_never_reaches_a_project(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        path = "/users/ann/blocks/project?project=apollo"
        await send(live, "PUT", path, {"value": "Codeword quetzal"})
        agent = "%1Fproject:apollo%1Fdefault"
        await live.chat("Hi", {"x-memory-agent": agent}, user="ann")
        assert "quetzal" not in up.requests[-1].body.decode()
        got = await live.memory("GET", f"/users/ann/blocks?agent={agent}")
        assert "quetzal" not in got.text


async def test_a_projects_shared_memory_is_read_and_written_by_who_may_name_it(data):
    replies = [calls(insert("The server is Heron", share="project:apollo")), "Noted."]
    replies += [calls(search("server Heron")), "Heron.", "Hi."]
    async with Model(*replies) as up, gateway(up, data) as live:
        await send(live, "PUT", "/projects/apollo", {"everyone": True, "write": True})
        block = {"label": "plan", "value": "Codeword ibis", "members": [{"project": "apollo"}]}
        await send(live, "POST", "/shared-blocks", block, 201)
        await ask(live, "ann", "The server is Heron", **APOLLO)
        share = offered(up.bodies[-1])["archival_memory_insert"]["properties"]["share"]
        assert share["enum"] == ["project:apollo"]
        await ask(live, "bob", "What is the server?", **APOLLO)
        hit = json.loads(result_of(up.bodies[-1]).split("\n")[1])
        assert (hit["content"], hit["layer"]) == ("The server is Heron", "project:apollo")
        assert "ibis" in system_of(up.bodies[-1])
        await ask(live, "bob")
        body = up.requests[-1].body.decode()
        assert "ibis" not in body
        assert "Heron" not in body


async def test_export_import_and_erasure_know_what_is_in_a_project(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        path = "/users/ann/blocks/project?project=apollo"
        await send(live, "PUT", path, {"value": "Written in Rust"})
        await send(live, "POST", "/users/ann/passages?project=apollo", {"content": "Uses port 9"})
        await ask(live, "ann", "Hello", **APOLLO)
        (listed,) = (await send(live, "GET", "/users/ann/agents"))["data"]
        assert (listed["agent"], listed["project"], listed["passages"]) == ("default", "apollo", 1)
        (line,) = (await send(live, "GET", "/users/ann/conversations?project=apollo"))["data"]
        assert (line["agent"], line["project"]) == ("default", "apollo")
        exported = (await live.memory("GET", "/users/ann/export")).content
        got = await live.memory("POST", "/users/eve/import", content=exported)
        assert got.status_code == 200, got.text
        eve = await send(live, "GET", "/users/eve/blocks/project?project=apollo")
        assert eve["value"] == "Written in Rust"
        (passage,) = (await send(live, "GET", "/users/eve/passages?project=apollo"))["data"]
        assert passage["content"] == "Uses port 9"
        receipt = await send(live, "DELETE", "/users/ann")
        assert receipt["erased"]["passages"] == 1
        assert (await send(live, "GET", "/users/ann/passages?project=apollo"))["data"] == []

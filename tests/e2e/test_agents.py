"""Agents: a profile answers as a model, on every API, and what a request may change of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import uuid

import pytest

from gateway.auth import key_store
from memory.stores.sql.engine.database import NO_TURNS
from memory.stores.sql.rows import agents as agent_rows
from tests.conftest import running
from tests.e2e.messages.client import ask as ask_messages
from tests.e2e.responses.asking import ask as ask_responses
from tests.models import Model, call, calls, text
from tests.sockets import within
from tests.wire_models import MessagesModel, ResponsesModel, say

SECRET = "mg-0123456789abcdef0123"
KEY = {"authorization": f"Bearer {SECRET}"}
SUPPORT = {
    "title": "Support",
    "description": "Answers customers",
    "model": "gpt-4o-mini",
    "instruction": "You are Sam <the helper>, {not a placeholder}.",
    "blocks": [{"label": "persona", "description": "Who you are", "value": "I am Sam."}],
    "parameters": {"temperature": 0.25, "top_p": 0.5, "max_output_tokens": 321},
}
OWN = {"server.single_user": False}
REMEMBER = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_0")


def agents(**more):
    return {"agents": {"support": {**SUPPORT, **more}}}


def managed(*keys):
    found = keys or ({},)
    return [
        {"name": f"app{i}", "key": f"{SECRET}{i or ''}", "tenant": "t", **key}
        for i, key in enumerate(found)
    ]


@contextlib.asynccontextmanager
async def gateway(up, data, config=None, *keys):
    """A gateway with managed keys, of which its client sends the first."""
    async with running(up.url, data, {"keys": managed(*keys), **(config or {})}, key="") as live:
        live.http.headers.update(KEY)
        yield live


def system_of(body):
    """The system texts of a chat completion, a response or a message, joined."""
    told = body.get("system") or body.get("instructions") or ""
    told = told if isinstance(told, str) else "\n".join(b["text"] for b in told)
    listed = body.get("messages") or body.get("input") or []
    heads = [m for m in listed if isinstance(m, dict) and m.get("role") in ("system", "developer")]
    for message in heads:
        content = message["content"]
        told += content if isinstance(content, str) else "".join(p["text"] for p in content)
    return told


async def ask_chat(live, text, *, stream=False, headers=None, **body):
    model = body.pop("model", "agent:support")
    send = live.stream if stream else live.chat
    got = await send(text, headers, model=model, **{"user": "ada", **body})
    if not stream:
        assert got.status_code == 200, got.text
        return got, [got.json()["model"]]
    assert got[0].status_code == 200, got[0].text
    return got[0], [e["model"] for e in got[1] if isinstance(e, dict)]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_p1_an_agent_answers_as_a_model_in_a_chat_completion(data, stream):
    async with Model("Hi.") as up, running(up.url, data, agents()) as live:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        response, names = await ask_chat(live, messages, stream=stream)
        assert set(names) == {"agent:support"}
        assert response.headers["x-memory-agent"] == "support"
        assert response.headers["x-memory-status"] == "ok"
        (body,) = up.bodies
        assert body["model"] == "gpt-4o-mini"
        assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.25, 0.5, 321)
        system = system_of(body)
        assert system.startswith(f"Be brief.\n\n{SUPPORT['instruction']}\n\nElements tagged ")
        assert "I am Sam." in system
        assert [m["role"] for m in body["messages"]] == ["system", "user"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_p1_an_agent_answers_as_a_model_in_a_response(data, stream):
    config = {**agents(), "server.single_user": False}
    async with ResponsesModel([say("Hi.")]) as up, running(up.url, data, config) as live:
        sent = {"model": "agent:support", "instructions": "Be brief."}
        found, events = await ask_responses(live, "Hi", stream=stream, **sent)
        assert found["model"] == "agent:support"
        assert {e["response"]["model"] for e in events if "response" in e} <= {"agent:support"}
        body = up.bodies[0]
        assert body["model"] == "gpt-4o-mini"
        assert (body["temperature"], body["max_output_tokens"]) == (0.25, 321)
        told = json.dumps(body)
        assert told.index("Be brief.") < told.index("You are Sam <the helper>")
        assert "I am Sam." in told


@pytest.mark.parametrize("stream", [False, True])
async def test_a_p1_an_agent_answers_as_a_model_in_a_message(data, stream):
    config = {**agents(), "server.single_user": False}
    async with MessagesModel([say("Hi.")]) as up:
        config["providers"] = {"a": {"kind": "anthropic", "base_url": up.url}}
        config["models"] = {"*": {"targets": [{"provider": "a"}]}}
        async with running(up.url, data, config) as live:
            sent = {"model": "agent:support", "system": "Be brief."}
            answer = await ask_messages(live, "Hi", stream=stream, **sent)
            assert answer.message["model"] == "agent:support"
            body = up.bodies[0]
            assert body["model"] == "gpt-4o-mini"
            assert (body["temperature"], body["max_tokens"]) == (0.25, 99)
            told = system_of(body)
            assert told.index("Be brief.") < told.index("You are Sam <the helper>")
            assert "I am Sam." in told


async def test_a_p1_counts_of_tokens_name_the_agent_as_its_answers_do(data):
    async with Model("Hi.") as up, running(up.url, data, {**agents(home="agent"), **OWN}) as live:
        words = [{"role": "user", "content": "Hi"}]
        for path, sent in (
            ("messages/count_tokens", {"messages": words}),
            ("responses/input_tokens", {"input": "Hi"}),
        ):
            for base in (live.url, f"{live.root}/u/ann/v1"):
                body = {"model": "agent:support", **sent}
                got = await live.http.post(f"{base}/{path}", json=body)
                assert got.status_code == 200, got.text
                named = got.headers["x-memory-agent"], got.headers["x-memory-user"]
                assert named == ("support", "agent%3Asupport")
                assert up.requests[-1].json["model"] == "gpt-4o-mini"
                assert "You are Sam" in up.requests[-1].body.decode()


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_a_p2_an_unknown_agent_is_not_caught_by_a_wildcard(data, path):
    async with Model("Hi.") as up, running(up.url, data, agents()) as live:
        sent = {
            "model": "agent:nobody",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Hi"}],
            "input": "Hi",
        }
        for name in ("agent:nobody", "agent:", "agent:SUPPORT", "agent:agent_" + "0" * 32):
            got = await live.http.post(f"{live.url}/{path}", json={**sent, "model": name})
            assert got.status_code == 404, got.text
            error = got.json()["error"]
            assert (error.get("code"), error.get("param")) in (
                ("agent_not_found", "model"),
                (None, None),
            )
            assert "support" in error["message"]
            assert got.json().get("type") == ("error" if path == "messages" else None)
        assert up.requests == []
        for other in ("embeddings", "completions", "moderations"):
            got = await live.http.post(
                f"{live.url}/{other}", json={"model": "agent:support", "input": "x"}
            )
            assert (got.status_code, got.json()["error"]["code"]) == (400, "agent_not_possible")
        assert up.requests == []


async def test_a_p2_a_free_name_in_the_header_is_an_agent_without_a_profile(data):
    async with Model("Hi.") as up, running(up.url, data, agents()) as live:
        got = await live.chat("Hi", {"x-memory-agent": "free"}, user="ada")
        assert (got.status_code, got.headers["x-memory-agent"]) == (200, "free")
        assert "You are Sam" not in system_of(up.bodies[-1])
        got = await live.chat("Hi", {"x-memory-agent": "support"}, user="ada")
        assert (got.json()["model"], up.bodies[-1]["model"]) == ("m", "m")
        assert "You are Sam" in system_of(up.bodies[-1])
        got = await live.chat("Hi", {"x-memory-agent": "free"}, model="agent:support")
        assert (got.status_code, got.json()["error"]["code"]) == (400, "agent_conflict")
        # By any spelling of its name it is the same agent.
        digits = live.gateway.agents.configured["support"].id.removeprefix("agent_")
        spelled = f"agent-{uuid.UUID(digits)}"
        for name in ("support", f"agent_{digits}", spelled):
            for model in ("support", spelled):
                got = await live.chat("Hi", {"x-memory-agent": name}, model=f"agent:{model}")
                assert (got.status_code, got.headers["x-memory-agent"]) == (200, "support")


async def test_a_p2_an_agent_without_a_model_works_by_its_header_alone(data):
    async with Model("Hi.") as up, running(up.url, data, agents(model="")) as live:
        got = await live.chat("Hi", model="agent:support")
        assert (got.status_code, got.json()["error"]["code"]) == (400, "agent_without_model")
        assert (await live.chat("Hi", {"x-memory-agent": "support"})).status_code == 200
        listed = (await live.http.get(f"{live.url}/models")).json()["data"]
        assert "agent:support" not in [m["id"] for m in listed]


async def test_a_p3_a_request_has_its_way_but_for_what_is_locked(data):
    more = {
        "locked": ["temperature", "seed", "response_format"],
        "response_format": {"type": "json_object"},
    }
    async with Model("{}") as up, running(up.url, data, agents(**more)) as live:
        got, _ = await ask_chat(
            live, "Hi", temperature=1, top_p=0.75, seed=7, max_completion_tokens=5
        )
        body = up.bodies[-1]
        assert (body["temperature"], body["top_p"], body["max_completion_tokens"]) == (
            0.25,
            0.75,
            5,
        )
        assert "max_tokens" not in body
        assert "seed" not in body
        assert body["response_format"] == {"type": "json_object"}
        assert got.headers["x-mnemogate-dropped"] == "temperature, seed"
        got, _ = await ask_chat(live, "Hi", temperature=0.25)
        assert "x-mnemogate-dropped" not in got.headers
        got, _ = await ask_chat(live, "Hi", response_format={"type": "text"}, stream=True)
        assert got.headers["x-mnemogate-dropped"] == "response_format"


async def test_a_p3_with_memory_off_only_the_name_of_the_model_is_replaced(data):
    more = {"locked": ["temperature"], "memory": "off"}
    for config, headers in ((agents(), {"x-memory": "off"}), (agents(**more), {})):
        async with Model("Hi.") as up, running(up.url, data, config) as live:
            got, names = await ask_chat(live, "Hi", headers=headers, temperature=1)
            assert names == ["agent:support"]
            assert got.headers["x-memory-status"] == "off"
            assert up.bodies[-1] == {
                "model": "gpt-4o-mini",
                "messages": [{"role": "user", "content": "Hi"}],
                "user": "ada",
                "temperature": 1,
            }


async def test_a_p3_an_agent_may_refuse_tools_of_the_client(data):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    async with Model("Hi.") as up, running(up.url, data, agents(client_tools=False)) as live:
        got = await live.chat("Hi", model="agent:support", tools=[tool], user="ada")
        assert (got.status_code, got.json()["error"]["code"]) == (400, "client_tools_not_allowed")
        assert up.requests == []
        await ask_chat(live, "Hi")
        # The memory's own.
        assert up.bodies[-1]["tools"]


async def test_a_p3_the_instruction_is_sent_where_nobody_is_named_and_no_block_has_a_value(data):
    config = agents(inherit_blocks=False, blocks=[], memory_tools=False)
    config |= {"server.single_user": False}
    async with Model("Hi.") as up, running(up.url, data, config) as live:
        got = await live.chat("Hi", model="agent:support")
        assert got.headers["x-memory-user"] == "none"
        assert system_of(up.bodies[-1]) == SUPPORT["instruction"]
        assert "tools" not in up.bodies[-1]


async def test_a_p4_models_list_an_agent_for_the_keys_that_may_call_it(data):
    keys = ({}, {"agents": []}, {"agents": ["other-*"]}, {"models": ["agent:*"]}, {"models": ["x"]})
    async with Model("Hi.") as up, gateway(up, data, agents(), *keys) as live:
        card = {"id": "agent:support", "object": "model", "owned_by": "t"}
        for i, may in enumerate((True, False, False, True, False)):
            key = {"authorization": f"Bearer {SECRET}{i or ''}"}
            listed = (await live.http.get(f"{live.url}/models", headers=key)).json()["data"]
            found = [m for m in listed if m["id"] == "agent:support"]
            one = await live.http.get(f"{live.url}/models/agent:support", headers=key)
            by_model = await live.chat("Hi", key, model="agent:support")
            by_header = await live.chat("Hi", {**key, "x-memory-agent": "support"}, model="x")
            if may:
                assert card.items() <= found[0].items()
                assert found[0]["description"] == "Answers customers"
                assert isinstance(found[0]["created"], int)
                assert one.json() == found[0]
            else:
                assert found == []
                for refused in (one, by_model, by_header)[: 2 if i == 4 else 3]:
                    # A key may call an agent that it names, or whose model it may call.
                    code = "model_not_allowed" if i == 4 else "agent_not_allowed"
                    assert (refused.status_code, refused.json()["error"]["code"]) == (403, code)
            assert by_model.status_code == (200 if may else 403)
            # With a model of its own choice a key needs no right to the agent's, but to that one.
            assert by_header.status_code == (200 if i in (0, 4) else 403)
        assert (await live.chat("Hi")).status_code == 200


async def test_a_p4_an_untrusted_key_calls_an_agent_with_one_memory_only_if_it_is_named(data):
    keys = tuple(
        {"trusted": False, "default_user": "ann", "agents": found}
        for found in (["*"], ["support"], ["sup*"])
    )
    async with Model("Hi.") as up, gateway(up, data, agents(home="agent"), *keys) as live:
        for i, status in enumerate((403, 200, 200)):
            key = {"authorization": f"Bearer {SECRET}{i or ''}"}
            assert (await live.chat("Hi", key, model="agent:support")).status_code == status
    async with Model("Hi.") as up, gateway(up, data, agents(), *keys[:1]) as live:
        assert (await live.chat("Hi", model="agent:support")).status_code == 200


async def test_a_p6_users_of_one_agent_share_its_memory_or_have_their_own(data):
    for home, shared in (("agent", True), ("user", False)):
        folder = data / home
        async with (
            Model(calls(REMEMBER), "Noted.", "Hi.") as up,
            running(up.url, folder, {**agents(home=home), **OWN}) as live,
        ):
            got, _ = await ask_chat(live, "I like tea", user="ann")
            owner = "agent%3Asupport" if shared else "ann"
            assert got.headers["x-memory-user"] == owner
            await ask_chat(live, "What do I like?", user="bob")
            assert ("Likes tea" in system_of(up.bodies[-1])) is shared
            got = await live.chat("Hello", model="agent:support")
            assert got.headers["x-memory-user"] == (owner if shared else "none")
            assert ("Likes tea" in system_of(up.bodies[-1])) is shared


async def test_a_p6_a_user_of_an_agents_name_is_a_user_and_never_meets_the_agent(data):
    async with (
        Model(calls(REMEMBER), "Noted.", "Hi.") as up,
        running(up.url, data, {**agents(home="agent"), **OWN}) as live,
    ):
        await ask_chat(live, "I like tea", user="ann")
        for name in ("agent:support", "agent:agent:support", "user:agent:support"):
            got = await live.chat("Hi", {"x-memory-agent": "support"}, user=name)
            # Its home is the agent's, whoever asks.
            assert "Likes tea" in system_of(up.bodies[-1])
            got = await live.chat("Hi there", user=name)
            assert got.headers["x-memory-user"] == name.replace(":", "%3A")
            assert "Likes tea" not in system_of(up.bodies[-1])
        for name in ("\x1fagent:support", " agent:support"):
            await live.chat("Hello", user=name)
            assert "Likes tea" not in system_of(up.bodies[-1])


async def put(live, agent="support", headers=None, **members):
    return await live.memory("PUT", f"/agents/{agent}", json=members, headers=headers or {})


async def test_a_p5_an_edit_is_in_the_next_request_in_a_new_epoch(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        made = await put(live, **SUPPORT)
        assert (made.status_code, made.headers["etag"]) == (200, '"1"')
        agent = made.json()
        assert agent["id"].startswith("agent_")
        assert (agent["source"], agent["version"], agent["name"]) == ("tenant", 1, "support")
        history = [{"role": "user", "content": "Hi"}]
        await ask_chat(live, history)
        history += [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Go on"}]
        await ask_chat(live, history)
        first, second = (system_of(b) for b in up.bodies)
        assert first == second
        # Where the core text does not change, the epoch goes on.
        changed = await live.memory("PATCH", "/agents/support", json={"parameters": {"seed": 4}})
        assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
        await ask_chat(live, history)
        assert (system_of(up.bodies[-1]), up.bodies[-1]["seed"]) == (first, 4)
        assert "temperature" not in up.bodies[-1]
        for change in (
            {"instruction": "You are Max."},
            {"blocks": [{"label": "persona", "description": "Who", "value": "I am Max."}]},
            {"blocks": [{"label": "persona", "description": "You", "value": "I am Max."}]},
            {"blocks": [], "inherit_blocks": False},
        ):
            before = system_of(up.bodies[-1])
            await live.memory("PATCH", "/agents/support", json=change)
            await ask_chat(live, history)
            now = up.bodies[-1]
            assert system_of(now) != before
            assert "memory_updates" not in json.dumps(now["messages"][1:])
            value = change.get("instruction") or (change["blocks"] or [{}])[0].get("value", "")
            assert value in system_of(now)
        assert "<human" not in system_of(up.bodies[-1])
        by_id = await live.chat("Hi", model=f"agent:{agent['id']}", user="ada")
        assert by_id.json()["model"] == f"agent:{agent['id']}"
        assert by_id.headers["x-memory-agent"] == "support"


async def test_a_p5_a_default_never_overwrites_a_block_that_was_edited(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await put(live, **SUPPORT)
        path = "/users/ada/blocks/persona?agent=support"
        assert (await live.memory("GET", path)).json()["value"] == "I am Sam."
        await live.memory("PUT", path, json={"value": "I am Eve."})
        await ask_chat(live, "Hi")
        first = system_of(up.bodies[-1])
        assert "I am Eve." in first
        other = [{"label": "persona", "description": "Who you are", "value": "I am Max."}]
        await live.memory("PATCH", "/agents/support", json={"blocks": other})
        history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi."}]
        await ask_chat(live, [*history, {"role": "user", "content": "Go on"}])
        # Nothing of it changed, so the epoch goes on.
        assert system_of(up.bodies[-1]) == first
        assert (await live.memory("GET", path)).json()["value"] == "I am Eve."


async def test_a_p5_a_stale_write_is_refused_and_undo_walks_back(data):
    async with Model("Hi.") as up, gateway(up, data) as live:
        await put(live, model="m", title="one")
        assert (await put(live, headers={"if-match": '"1"'}, model="m", title="two")).is_success
        stale = await put(live, headers={"if-match": '"1"'}, model="m", title="three")
        assert (stale.status_code, stale.json()["error"]["code"]) == (409, "conflict")
        for method in ("PATCH", "DELETE"):
            sent = {"json": {"title": "x"}} if method == "PATCH" else {}
            got = await live.memory(method, "/agents/support", headers={"if-match": "1"}, **sent)
            assert got.status_code == 409
        gone = await live.memory("DELETE", "/agents/support")
        assert (gone.json()["agent"], gone.json()["erased"]) == ("support", {})
        assert (await live.memory("GET", "/agents/support")).status_code == 404
        assert (await live.chat("Hi", model="agent:support")).status_code == 404
        titles = []
        for _ in range(2):
            titles.append((await live.memory("POST", "/agents/support/undo")).json()["title"])
        assert titles == ["two", "one"]
        assert (await live.memory("POST", "/agents/support/undo")).json()["deleted"] is True
        assert (await live.memory("POST", "/agents/support/undo")).status_code == 404
        found = (await live.memory("GET", "/agents/support/versions")).json()["data"]
        assert [v["version"] for v in found] == [6, 5, 4, 3, 2, 1]
        assert [(v["before"] or {}).get("title") for v in found][::-1][:3] == [None, "one", "two"]
        assert all(v["actor"] == "api" and v["request_id"] for v in found)
        for newer, older in itertools.pairwise(found):
            assert newer["before"] == older["after"]
        assert up.requests == []


async def test_a_p5_profiles_of_two_tenants_never_meet_and_an_untrusted_key_makes_none(data):
    keys = (
        {},
        {"tenant": "u"},
        {"trusted": False, "default_user": "ann"},
        {"models": ["m"]},
        {"tenant": "u", "admin": True},
    )
    async with Model("Hi.") as up, gateway(up, data, None, *keys) as live:
        auth = [{"authorization": f"Bearer {SECRET}{i or ''}"} for i in range(5)]
        mine = (await put(live, model="m", instruction="I am t's.")).json()
        theirs = (await put(live, headers=auth[1], model="m", instruction="I am u's.")).json()
        assert mine["id"] != theirs["id"]
        for key, text in ((auth[0], "I am t's."), (auth[1], "I am u's.")):
            got = await live.chat("Hi", key, model="agent:support", user="ada")
            assert got.status_code == 200
            assert text in system_of(up.bodies[-1])
        for name in (theirs["id"], "agent_" + "0" * 32):
            for method in ("GET", "PATCH", "DELETE"):
                sent = {"json": {}} if method == "PATCH" else {}
                got = await live.memory(method, f"/agents/{name}", **sent)
                assert (got.status_code, got.json()["error"]["code"]) == (404, "agent_not_found")
            assert (await live.chat("Hi", model=f"agent:{name}")).status_code == 404
        assert (await put(live, headers=auth[2], model="m")).status_code == 403
        for method in ("PATCH", "DELETE"):
            sent = {"json": {}} if method == "PATCH" else {}
            got = await live.memory(method, "/agents/support", headers=auth[2], **sent)
            assert got.status_code == 403
        assert (
            await live.memory("POST", "/agents/support/undo", headers=auth[2])
        ).status_code == 403
        listed = (await live.memory("GET", "/agents", headers=auth[2])).json()["data"]
        assert [a["name"] for a in listed] == ["support"]
        for members in ({"model": "x"}, {"model": "m", "fallbacks": ["x"]}):
            got = await put(live, "other", auth[3], **members)
            assert (got.status_code, got.json()["error"]["code"]) == (403, "model_not_allowed")
        got = await put(live, "other", model="m", tools=["run_code"])
        assert (got.status_code, got.json()["error"]["code"]) == (403, "tool_not_allowed")
        got = await put(live, "other", auth[4], model="m", tools=["run_code"], may_ask=["w-*"])
        assert (got.json()["tools"], got.json()["may_ask"]) == (["run_code"], ["w-*"])
        got = await live.chat("Hi", auth[4], model="agent:other", user="ada")
        assert got.status_code == 200
        assert "run_code" not in json.dumps(up.bodies[-1])


async def test_a_grant_that_was_taken_away_comes_back_only_by_who_may_give_it(data):
    keys = ({"tools": ["lookup"]}, {"admin": True}, {"models": ["m"]})
    admin, narrow = ({"authorization": f"Bearer {SECRET}{i}"} for i in (1, 2))
    async with Model("Hi.") as up, gateway(up, data, None, *keys) as live:

        async def undo(name, headers=None):
            return await live.memory("POST", f"/agents/{name}/undo", headers=headers)

        # Taken away by a patch, with a replaced profile, with the agent itself.
        takes = {"by-patch": {"tools": ["lookup"]}, "by-put": {}, "by-delete": None}
        for name, left in takes.items():
            await put(live, name, admin, model="m", tools=["lookup", "run_code"])
            if left is None:
                await live.memory("DELETE", f"/agents/{name}?memory=keep", headers=admin)
            elif name == "by-patch":
                await live.memory("PATCH", f"/agents/{name}", json=left, headers=admin)
            else:
                await put(live, name, admin, model="m", **left)
            before = (await live.memory("GET", f"/agents/{name}/versions")).json()
            refused = await undo(name)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (403, "tool_not_allowed"), name
            assert error["param"] == "tools"
            assert (await live.memory("GET", f"/agents/{name}/versions")).json() == before
            restored = await undo(name, admin)
            assert restored.json()["tools"] == ["lookup", "run_code"]
        # What the key may give it may also give back, and what it takes away needs no right.
        await put(live, "own", model="m", tools=["lookup"])
        await live.memory("PATCH", "/agents/own", json={"tools": []})
        assert (await undo("own")).json()["tools"] == ["lookup"]
        # The same of a model.
        await put(live, "dear", admin, model="x")
        await put(live, "dear", admin, model="m")
        refused = await undo("dear", narrow)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
        assert (await undo("dear")).json()["model"] == "x"


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"colour": "red"}, "colour"),
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"blocks": [{"label": "a"}, {"label": "a"}]}, "blocks"),
        ({"blocks": [{"label": "Not a label"}]}, "blocks.0.label"),
        ({"blocks": [{"label": "a", "value": "xxx", "limit": 2}]}, "blocks.0"),
        ({"title": "x" * 257}, "title"),
        ({"instruction": "x" * 32_001}, "instruction"),
        ({"tags": ["x"] * 65}, "tags"),
        ({"metadata": {"x": "y" * 16_400}}, "metadata"),
        ({"home": "team"}, "home"),
        ({"memory": "some"}, "memory"),
        ({"memory_tools": "yes"}, "memory_tools"),
        ({"parameters": {"temperature": 3}}, "parameters.temperature"),
        ({"parameters": {"colour": 3}}, "parameters.colour"),
        ({"locked": ["model"]}, "locked.0"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"model": "agent:other"}, "model"),
        ({"context_window": -1}, "context_window"),
        ({"tool_rules": ["x"]}, "tool_rules[0]"),
    ],
)
async def test_a_profile_that_is_wrong_is_refused_with_its_member(data, members, param):
    async with Model("Hi.") as up, gateway(up, data) as live:
        got = await put(live, **{"model": "m", **members})
        assert (got.status_code, got.json()["error"]["param"]) == (400, param)
        assert (await live.memory("GET", "/agents")).json()["data"] == []


async def test_a_profile_has_a_name_of_its_own_and_of_the_right_form(data):
    async with Model("Hi.") as up, gateway(up, data, agents()) as live:
        for name in ("Upper", "-a", "x" * 65, "a b", "a%2Fb"):
            assert (await put(live, name, model="m")).status_code == 400
        for name in ("agent_" + "0" * 32, "agent-1234abcd", "agent_1"):
            got = await put(live, name, model="m")
            assert (got.status_code, got.json()["error"]["code"]) == (400, "reserved_name")
        for method, status in (("PUT", 409), ("PATCH", 403), ("DELETE", 403)):
            sent = {"json": {"model": "m"}} if method != "DELETE" else {}
            got = await live.memory(method, "/agents/support", **sent)
            assert (got.status_code, got.json()["error"]["code"]) == (status, "agent_in_config")
        shown = (await live.memory("GET", "/agents/support")).json()
        assert (shown["source"], shown["version"]) == ("config", 0)
        by_id = await put(live, shown["id"], model="m")
        assert (by_id.status_code, by_id.json()["error"]["code"]) == (409, "agent_in_config")
        renamed = await live.memory("PUT", "/agents/w", json={"model": "m", "name": "x"})
        assert (renamed.status_code, renamed.json()["error"]["param"]) == (400, "name")
        assert (await live.memory("GET", f"/agents/{shown['id']}")).json() == shown
        versions = await live.memory("GET", "/agents/support/versions")
        assert (versions.status_code, versions.json()["data"]) == (200, [])
        got = await live.chat("Hi", model=f"agent:{shown['id']}")
        assert got.headers["x-memory-agent"] == "support"
        # What was read can be written again.
        made = await put(live, "a.b_c-d", **{**SUPPORT, "tags": ["x"]})
        again = await put(live, "a.b_c-d", **made.json())
        assert again.json() == made.json()
        listed = (await live.memory("GET", "/agents?limit=1")).json()
        assert [a["name"] for a in listed["data"]] == ["a.b_c-d"]
        more = (await live.memory("GET", f"/agents?cursor={listed['next_cursor']}")).json()
        assert [a["name"] for a in more["data"]] == ["support"]
        tagged = (await live.memory("GET", "/agents?tag=x")).json()["data"]
        assert [a["name"] for a in tagged] == ["a.b_c-d"]


async def test_there_is_a_limit_to_the_agents_of_a_tenant(data):
    config = {"memory.agents_per_tenant": 2}
    async with Model("Hi.") as up, gateway(up, data, config) as live:
        assert [(await put(live, n, model="m")).status_code for n in "abc"] == [200, 200, 409]
        assert (await put(live, "a", model="m", title="x")).status_code == 200
        assert (await put(live, "c", model="m")).json()["error"]["code"] == "too_many_agents"
        await live.memory("DELETE", "/agents/a")
        assert (await put(live, "c", model="m")).status_code == 200
        got = await live.memory("POST", "/agents/a/undo")
        assert (got.status_code, got.json()["error"]["code"]) == (409, "too_many_agents")


async def test_an_agents_own_memory_is_reached_by_its_name_and_deleted_with_it(data):
    async with (
        Model(calls(REMEMBER), "Noted.", "Hi.") as up,
        gateway(up, data, None, {}, {"trusted": False, "default_user": "ann"}) as live,
    ):
        await put(live, **{**SUPPORT, "home": "agent"})
        await ask_chat(live, "I like tea", user="ann")
        await live.chat("Hi", user="agent:support")
        path = "/users/agent%3Asupport/blocks/human"
        assert (await live.memory("GET", path)).json()["value"] == "Likes tea"
        assert (await live.memory("GET", "/users/user%3Aagent%3Asupport/blocks/human")).json()[
            "value"
        ] == ""
        key = {"authorization": f"Bearer {SECRET}1"}
        assert (await live.memory("GET", path, headers=key)).status_code == 403
        users = [u["id"] for u in (await live.memory("GET", "/users")).json()["data"]]
        # The user of that name.
        assert users == ["agent:support"]
        own = (await live.memory("GET", "/users/agent%3Asupport/agents")).json()["data"]
        assert [(a["agent"], a["conversations"]) for a in own] == [("support", 1)]
        receipt = (await live.memory("DELETE", "/agents/support")).json()
        assert receipt["erased"]["messages"] == 2
        await put(live, **{**SUPPORT, "home": "agent"})
        await ask_chat(live, "What do I like?", user="ann")
        assert "Likes tea" not in json.dumps(up.bodies[-1])


async def test_the_memory_of_users_with_a_deleted_agent_is_kept_unless_asked(data):
    async with Model(calls(REMEMBER), "Noted.", "Hi.") as up, gateway(up, data) as live:
        await put(live, **SUPPORT)
        await ask_chat(live, "I like tea")
        await live.chat("Hi", user="ada")
        path = "/users/ada/blocks/human?agent=support"
        for memory, value in (
            ("", "Likes tea"),
            ("?memory=keep", "Likes tea"),
            ("?memory=erase", ""),
        ):
            await live.memory("DELETE", f"/agents/support{memory}")
            await live.memory("POST", "/agents/support/undo")
            assert (await live.memory("GET", path)).json()["value"] == value
        found = (await live.memory("GET", "/users/ada/agents")).json()["data"]
        assert [a["agent"] for a in found] == ["default"]
        assert set(found[0]) == {
            "agent", "blocks", "passages", "conversations", "active_at", "object"
        }  # fmt: skip


async def test_an_agent_is_made_for_a_tenant_that_an_upstream_accepts(data):
    """In own-key mode nothing is kept for a key that a provider refuses."""

    def listing(seen, wire):
        right = ("authorization", "Bearer sk-right") in seen.headers
        return wire.json({"data": []} if right else {"error": {}}, 200 if right else 401)

    async with Model(listing) as up, running(up.url, data, OWN, key="") as live:
        for key, status in (("sk-wrong", 403), ("sk-right", 200), ("sk-right", 200)):
            auth = {"authorization": f"Bearer {key}"}
            got = await put(live, headers=auth, model="m")
            assert got.status_code == status
            listed = await live.memory("GET", "/agents", headers=auth)
            assert listed.status_code == status
        assert [r.path for r in up.requests] == ["/v1/models"] * 3


HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "And now?"},
]


async def test_a_p7_who_uses_no_agent_has_the_bytes_and_the_reads_of_before(data, monkeypatch):
    """Where a profile is configured too, and where a header names an agent that has none."""
    # No profile is looked for in the store.
    monkeypatch.setattr(agent_rows, "find", None)
    # Its reads are no turn's.
    monkeypatch.setattr(key_store, "EVERY_SECONDS", 3600)
    seen = {}
    for case, config in (("none", {}), ("configured", agents())):
        folder = data / case
        folder.mkdir(parents=True)
        (folder / "secret").write_text("51" * 32)
        async with Model("Hi.") as up, running(up.url, folder, config) as live:
            # What runs in its own time makes a turn read anew what it had at hand.
            await live.gateway.memory.wait_until_ready()
            await live.stop_worker()
            await live.gateway.memory.retrieval.indexing.stop()
            work = watch_turn_reads(monkeypatch, live.gateway.memory.db)
            for headers in ({}, {"x-memory-agent": "free"}, {"x-memory": "off"}):
                for messages in (HISTORY[:2], HISTORY):
                    for stream in (False, True):
                        send = live.stream if stream else live.chat
                        await send(messages, headers, user="ada")
            turns = [r for r in up.requests if r.path.endswith("/chat/completions")]
            seen[case] = [r.body for r in turns], work
    assert len(seen["none"][0]) == 12
    assert seen["configured"] == seen["none"]
    assert seen["none"][1]


def watch_turn_reads(monkeypatch, db):
    """Return the reads of turns from now on: what they ask for, in their order."""
    real, work = db.read, []

    async def read(*args, **options):
        # With a deadline: somebody waits.
        if options.get("of") == NO_TURNS and len(args) > 1:
            work.append({name: value for name, value in options.items() if name != "of"})
        return await real(*args, **options)

    monkeypatch.setattr(db, "read", read)
    return work


async def test_the_log_tells_of_a_configured_agent_that_a_tenants_own_hides(data, caplog):
    async with Model("Hi.") as up:
        async with gateway(up, data) as live:
            await put(live, model="m", instruction="I am the tenant's.")
        async with gateway(up, data, agents()) as live:
            got = await live.chat("Hi", model="agent:support", user="ada")
            assert got.status_code == 200
            assert "I am the tenant's." in system_of(up.bodies[-1])
            shown = (await live.memory("GET", "/agents")).json()["data"]
            assert [(a["name"], a["source"]) for a in shown] == [("support", "tenant")]
            assert (await put(live, model="m", title="x")).status_code == 200
            told = [r.getMessage() for r in caplog.records if "of its own" in r.getMessage()]
            assert told == [
                "the tenant 't' has an agent 'support' of its own: [agents.support] is not used "
                "for it"
            ]
            await live.memory("DELETE", "/agents/support")
            got = await live.chat("Hi", model="agent:support", user="ada")
            assert "You are Sam" in system_of(up.bodies[-1])
            got = await live.memory("POST", "/agents/support/undo")
            assert (got.status_code, got.json()["error"]["code"]) == (409, "agent_in_config")


SPOKEN = {"ann": "My badge is 4711 quetzal", "bob": "My badge is 9000 ocelot"}


async def test_an_erasure_reaches_what_a_user_said_to_an_agent_with_one_memory(data):
    """Whoever else spoke to it keeps what they said; the agent knows who said what."""
    store = call("archival_memory_insert", {"content": "A badge is 4711 quetzal"}, "call_1")
    find = call("conversation_search", {"query": "badge"}, "call_2")
    async with (
        Model(calls(store), "Noted 4711.", "Noted 9000.", calls(find), "Found.", "Hi.") as up,
        running(up.url, data, {**agents(home="agent"), **OWN}) as live,
    ):
        for user, text in SPOKEN.items():
            await ask_chat(live, text, user=user, headers={"x-memory-conversation": user})
        await ask_chat(live, "Who told you?", user="cleo", headers={"x-memory-conversation": "c"})
        (told,) = [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "tool"]
        for user in SPOKEN:
            assert f'"said_by":"{user}"' in told
        home = "/users/agent%3Asupport"
        assert "quetzal" in (await live.memory("GET", f"{home}/export")).text
        receipt = (await live.memory("DELETE", "/users/ann")).json()
        assert receipt["agents"] == ["support"]
        left = (await live.memory("GET", f"{home}/export")).text
        assert ("quetzal" in left, "4711" in left, "ocelot" in left) == (False, False, True)
        await ask_chat(live, "And now?", user="bob", headers={"x-memory-conversation": "bob"})
        assert "quetzal" not in json.dumps(up.bodies[-1])
        assert "ocelot" in json.dumps(up.bodies[-1])
        assert (await live.memory("DELETE", "/users/ann")).json()["agents"] == []


@pytest.mark.parametrize("saves", [False, True])
async def test_a_turn_under_way_keeps_nothing_of_a_user_who_is_erased_meanwhile(data, saves):
    erased = asyncio.Event()
    store = call("archival_memory_insert", {"content": "A badge is 4711 quetzal"}, "call_1")

    async def answer(seen, wire):
        if seen.json["messages"][-1]["role"] == "user" and "quetzal" in json.dumps(seen.json):
            await erased.wait()
            return calls(store) if saves else text("Noted 4711 quetzal.")
        return text("So be it.")

    async with Model(answer) as up, running(up.url, data, {**agents(home="agent"), **OWN}) as live:
        await ask_chat(live, "I am Ann", user="ann", headers={"x-memory-conversation": "ann"})
        asked = asyncio.create_task(
            ask_chat(live, SPOKEN["ann"], user="ann", headers={"x-memory-conversation": "ann"})
        )
        assert await within(5, lambda: "quetzal" in json.dumps(up.bodies[-1]))
        assert (await live.memory("DELETE", "/users/ann")).status_code == 200
        erased.set()
        await asked
        left = (await live.memory("GET", "/users/agent%3Asupport/export")).text
        assert "quetzal" not in left
        await ask_chat(live, "And now?", user="bob", headers={"x-memory-conversation": "bob"})
        assert "quetzal" not in json.dumps(up.bodies[-1])


async def test_a_p6_a_key_of_an_agents_owner_name_does_not_reach_its_memory(data):
    keys = ({}, {"trusted": False, "default_user": "\x1fagent:support"})
    async with (
        Model(calls(REMEMBER), "Noted.", "Hi.") as up,
        gateway(up, data, agents(home="agent"), *keys) as live,
    ):
        await ask_chat(live, "I like tea", user="ann")
        key = {"authorization": f"Bearer {SECRET}1", "x-memory-agent": "free"}
        for agent in ("free", "default"):
            got = await live.chat("Hi", {**key, "x-memory-agent": agent})
            assert got.status_code == 200
            assert "Likes tea" not in json.dumps(up.bodies[-1])
        got = await live.chat("Hi", {**key, "x-memory-agent": "support"})
        assert got.status_code == 403


async def test_a_p4_an_untrusted_key_names_no_agent_to_the_management_that_it_may_not_call(data):
    """What its profile says and the blocks that it shares are as closed there as by its header."""
    keys = (
        {},
        {"trusted": False, "users": ["ann"]},
        {"trusted": False, "users": ["ann"], "agents": ["support", "free"]},
    )
    async with Model("Hi.") as up, gateway(up, data, agents(home="agent"), *keys) as live:
        shared = {"label": "plan", "value": "Codeword quetzal", "members": [{"agent": "support"}]}
        assert (await live.memory("POST", "/shared-blocks", json=shared)).status_code == 201
        for number, agent, status in (
            (0, "support", 200),
            (1, "support", 403),
            (2, "support", 200),
            (1, "free", 200),
            (2, "free", 200),
            (2, "other", 403),
            (2, "default", 200),
        ):
            key = {"authorization": f"Bearer {SECRET}{number or ''}"}
            for path in ("blocks", "blocks/persona", "passages", "passages/search?q=x", "export"):
                mark = "&" if "?" in path else "?"
                got = await live.memory("GET", f"/users/ann/{path}{mark}agent={agent}", headers=key)
                assert got.status_code == status, (path, number, agent, got.text)
                if status == 403:
                    assert got.json()["error"]["code"] == "agent_not_allowed"
                    assert "quetzal" not in got.text
                    assert "I am Sam" not in got.text

"""Conversation objects: kept here where the server keeps none, and each its owner's alone."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from gateway.storage import responses as stored
from tests.chat_only_model import ChatOnlyModel
from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT, WEATHER, ask, check_stream, kinds, texts, user
from tests.wire_models import ResponsesModel, say, think, use

BOTH = pytest.mark.parametrize("stream", [False, True])
ADA, BOB = {"x-memory-user": "ada"}, {"x-memory-user": "bob"}
STATELESS = {"models": {"*": {"targets": [{"provider": "openai", "stateful": False}]}}}
KEYS = {
    "providers": {"openai": {"base_url": "set below", "api_key": "sk-operator"}},
    "keys": [
        {"name": n, "key": f"key-{n}-aaaaaaaaaaaaaaaa", "tenant": n} for n in ("acme", "other")
    ],
}


async def send(live, method, path, *, headers=ADA, status=200, **options):
    http = await live.http.request(method, f"{live.url}{path}", headers=headers, **options)
    assert http.status_code == status, http.text
    return http.json()


async def create(live, headers=ADA, **body):
    found = await send(live, "POST", "/conversations", headers=headers, json=body)
    assert found["object"] == "conversation"
    return found["id"]


async def listed(live, name, headers=ADA, **query):
    query = {"order": "asc", **query}
    page = await send(live, "GET", f"/conversations/{name}/items", headers=headers, params=query)
    return page["data"]


def words(items):
    """What messages say, and the kinds of other items."""
    return [
        (i["content"] if isinstance(i["content"], str) else i["content"][0]["text"])
        if i.get("type", "message") == "message"
        else i["type"]
        for i in items
    ]


@BOTH
async def test_a_conversation_goes_on_at_a_server_that_keeps_nothing(data, stream):
    script = [[think(), use(APPEND, FACT)], "Noted.", "Tea."]
    async with ResponsesModel(*script) as up, running(up.url, data, STATELESS) as live:
        name = await create(live, items=[user("Earlier")], metadata={"topic": "tea"})
        first, _ = await ask(live, "I like tea", stream=stream, conversation=name)
        shown, events = await ask(live, "And?", stream=stream, conversation={"id": name})
        if stream:
            check_stream(events)
        assert (texts(shown), shown["conversation"]) == (["Tea."], {"id": name})
        assert all(b["store"] is False and "conversation" not in b for b in up.bodies)
        sent = up.bodies[-1]["input"]
        said = [json.dumps(i) for i in sent if i.get("role") == "user"]
        found = zip(("Earlier", "I like tea", "And?"), said, strict=True)
        assert all(w in s for w, s in found)
        assert kinds(sent).count("function_call") == kinds(sent).count("function_call_output") == 1
        items = await listed(live, name)
        assert words(items)[:2] == ["Earlier", "I like tea"]
        assert words(items)[-3:] == ["Noted.", "And?", "Tea."]
        assert APPEND not in json.dumps(items)
        assert (await send(live, "GET", f"/responses/{first['id']}"))["id"] == first["id"]


@BOTH
async def test_a_conversation_at_a_chat_server_runs_the_clients_own_tool(data, stream):
    script = [[say("Let me see."), use(APPEND, FACT), use("get_weather", {})], "Rain."]
    config = {"providers.openai.wires": ["chat"]}
    async with ChatOnlyModel(*script) as up, running(up.url, data, config) as live:
        name = await create(live)
        asked = {"stream": stream, "tools": [WEATHER], "conversation": name}
        first, _ = await ask(live, "Weather?", **asked)
        (call,) = [i for i in first["output"] if i["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        shown, _ = await ask(live, [result], **asked)
        assert texts(shown) == ["Rain."]
        names = [c["function"]["name"] for c in up.bodies[1]["messages"][-3]["tool_calls"]]
        assert names == [APPEND, "get_weather"]


async def test_a_server_without_the_path_has_its_conversations_here(data):
    """vLLM speaks Responses, and knows of no conversations."""

    class Server(ResponsesModel):
        async def serve_other(self, seen, wire):
            if "/conversations" in seen.path:
                await wire.json({"detail": "Not Found"}, 404)
                return True
            return await super().serve_other(seen, wire)

    async with Server("One.", "Two.") as up, running(up.url, data) as live:
        up.check = lambda body: ()
        name = await create(live)
        await ask(live, "Say one", conversation=name)
        shown, _ = await ask(live, "Say two", conversation=name)
        assert texts(shown) == ["Two."]
        assert words(up.bodies[-1]["input"])[:2] == ["Say one", "One."]


async def test_a_providers_page_shows_no_call_that_was_run_here(data):
    def called(name):
        ident = f"call_{name}"
        arguments = {"arguments": "{}", "call_id": ident, "name": name}
        return [
            {"type": "function_call", **arguments},
            {"type": "function_call_output", "call_id": ident, "output": f"of {name}"},
        ]

    names = ("weather", "result_open", APPEND, "get_weather")
    page = {"object": "list", "data": [item for name in names for item in called(name)]}

    class Server(ResponsesModel):
        async def serve_other(self, seen, wire):
            if "/conversations" not in seen.path:
                return await super().serve_other(seen, wire)
            found = page if "/items" in seen.path else {"id": "conv_1", "object": "conversation"}
            await wire.json(found)
            return True

    weather = {"kind": "http", "url": "http://127.0.0.1:9/weather"}
    async with Server("One.") as up, running(up.url, data, {"tools": {"weather": weather}}) as live:
        items = await listed(live, await create(live))
        assert [i["call_id"] for i in items] == ["call_get_weather"] * 2


async def test_its_verbs_and_those_of_its_items(data):
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        name = await create(live, metadata={"a": "b"})
        path = f"/conversations/{name}"
        assert (await send(live, "GET", path))["metadata"] == {"a": "b"}
        assert (await send(live, "POST", path, json={"metadata": {"c": "d"}}))["metadata"] == {
            "c": "d"
        }
        assert (await send(live, "GET", path))["metadata"] == {"c": "d"}
        added = await send(live, "POST", f"{path}/items", json={"items": [user("a"), user("b")]})
        assert (words(added["data"]), added["has_more"]) == (["a", "b"], False)
        await ask(live, "Say one", conversation=name)
        items = await listed(live, name)
        assert words(items) == ["a", "b", "Say one", "One."]
        page = await listed(live, name, limit="1", after=items[1]["id"])
        assert words(page) == ["Say one"]
        for item in (items[0], items[3]):
            where = f"{path}/items/{item['id']}"
            assert words([await send(live, "GET", where)]) == words([item])
            assert (await send(live, "DELETE", where))["id"] == name
            await send(live, "GET", where, status=404)
        left = await listed(live, name)
        assert [(words([i]), i["id"]) for i in left] == [(words([i]), i["id"]) for i in items[1:3]]
        await ask(live, "Again", conversation=name)
        assert words(up.bodies[-1]["input"])[:2] == ["b", "Say one"]
        assert (await send(live, "DELETE", path))["deleted"] is True
        for verb in ("", "/items"):
            await send(live, "GET", path + verb, status=404)
        asked = {"model": "m", "input": "x", "user": "ada", "conversation": name}
        await send(live, "POST", "/responses", status=404, json=asked)


async def test_a_response_is_gone_on_from_as_the_conversation_was_then(data):
    async with ResponsesModel("One.", "Two.", "Three.") as up:
        async with running(up.url, data, STATELESS) as live:
            name = await create(live, items=[user("Zero")])
            first, _ = await ask(live, "Say one", conversation=name)
            await ask(live, "Say two", conversation=name)
            await ask(live, "Branch", previous_response_id=first["id"])
            sent = words(up.bodies[-1]["input"])
            assert sent[0] == "Zero"
            assert "One." in sent
            assert "Say two" not in str(sent)
            # A response that is deleted leaves its items in the conversation.
            await send(live, "DELETE", f"/responses/{first['id']}")
            await send(live, "GET", f"/responses/{first['id']}", status=404)
            assert words(await listed(live, name))[:3] == ["Zero", "Say one", "One."]


@pytest.mark.parametrize("mode", ["read", "off"])
async def test_a_request_that_keeps_nothing_adds_nothing(data, mode):
    async with ResponsesModel("One.", "Two.") as up, running(up.url, data, STATELESS) as live:
        name = await create(live)
        await ask(live, "Say one", conversation=name)
        headers = {"x-memory": mode, **ADA}
        shown, _ = await ask(live, "Say two", conversation=name, headers=headers)
        assert texts(shown) == ["Two."]
        assert "Say one" in str(up.bodies[-1]["input"])
        await ask(live, "Unstored", conversation=name, store=False)
        assert words(await listed(live, name)) == ["Say one", "One."]


async def test_nobody_reaches_anothers_conversation(data):
    config = {**STATELESS, **KEYS}
    async with ResponsesModel("One.") as up:
        config["providers"] = {"openai": {"base_url": up.url, "api_key": "sk-operator"}}
        async with running("", data, config, key="key-acme-aaaaaaaaaaaaaaaa") as live:
            name = await create(live, items=[user("a secret")])
            (item,) = await listed(live, name)
            tenant = {"authorization": "Bearer key-other-aaaaaaaaaaaaaaaa", **ADA}
            asked = {"model": "m", "input": "x", "conversation": name}
            for who in (BOB, tenant):
                path = f"/conversations/{name}"
                one = f"{path}/items/{item['id']}"
                for method, where, body in (
                    ("GET", path, None),
                    ("POST", path, {}),
                    ("DELETE", path, None),
                    ("GET", f"{path}/items", None),
                    ("POST", f"{path}/items", {"items": [user("x")]}),
                    ("GET", one, None),
                    ("DELETE", one, None),
                    ("POST", "/responses", asked),
                    ("GET", f"/responses/{name}", None),
                    ("DELETE", f"/responses/{item['id'].partition('_in_')[0]}", None),
                ):
                    await send(live, method, where, headers=who, status=404, json=body)
            assert words(await listed(live, name)) == ["a secret"]
            assert up.requests == []


async def test_a_conversation_that_names_nobody_is_its_first_users(data):
    async with ResponsesModel("One.") as up:
        config = {**STATELESS, **KEYS}
        config["providers"] = {"openai": {"base_url": up.url, "api_key": "sk-operator"}}
        async with running("", data, config, key="key-acme-aaaaaaaaaaaaaaaa") as live:
            name = await create(live, headers={}, items=[user("Zero")])
            await ask(live, "Say one", conversation=name)
            assert words(await listed(live, name)) == ["Zero", "Say one", "One."]
            await send(live, "GET", f"/conversations/{name}", headers=BOB, status=404)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [user("x")] * 21}, "items"),
        ({"items": "x"}, "items"),
        ({"items": [{"type": "item_reference", "id": "x"}]}, "items"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "b" * 513}}, "metadata"),
    ],
)
async def test_what_is_out_of_bounds_is_refused(data, body, param):
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        told = await send(live, "POST", "/conversations", status=400, json=body)
        assert told["error"]["param"] == param


async def test_both_kinds_of_chain_at_once_are_refused(data):
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        name = await create(live)
        first, _ = await ask(live, "Say one", conversation=name)
        asked = {"model": "m", "input": "x", "user": "ada", "conversation": name}
        asked["previous_response_id"] = first["id"]
        told = await send(live, "POST", "/responses", status=400, json=asked)
        assert told["error"]["param"] == "conversation"
        asked = {"model": "m", "input": "x", "user": "ada", "conversation": 5}
        await send(live, "POST", "/responses", status=400, json=asked)


async def test_a_conversation_that_grew_too_long_says_so(data, monkeypatch):
    monkeypatch.setattr(stored, "MAX_CHAIN_BYTES", 500)
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        name = await create(live, items=[user("x" * 600)])
        asked = {"model": "m", "input": "x", "user": "ada", "conversation": name}
        told = await send(live, "POST", "/responses", status=400, json=asked)
        assert "the limit" in told["error"]["message"]
        path = f"/conversations/{name}/items"
        await send(live, "POST", path, status=400, json={"items": [user("y")]})


async def test_erasing_its_user_takes_it_along_and_age_does_not(data):
    config = {**STATELESS, "server.single_user": False}
    async with ResponsesModel("One.") as up, running(up.url, data, config) as live:
        await ask(live, "Hello")
        name = await create(live, items=[user("a secret")])
        await ask(live, "Say one", conversation=name)
        later = time.time() + 40 * stored.DAY
        db = live.gateway.responses._db
        await db.write(lambda conn: live.gateway.responses.expire(conn, later))
        assert words(await listed(live, name)) == ["a secret", "Say one", "One."]
        receipt = (await live.memory("DELETE", "/users/ada")).json()
        # the conversation, what was added to it, and its turn
        assert receipt["erased"]["responses"] == 3
        await send(live, "GET", f"/conversations/{name}", status=404)


async def test_turns_side_by_side_are_all_in_it(data):
    async with ResponsesModel("Yes.") as up, running(up.url, data, STATELESS) as live:
        name = await create(live)
        await asyncio.gather(*(ask(live, f"Say {n}", conversation=name) for n in range(8)))
        items = words(await listed(live, name, limit="100"))
        assert sorted(i for i in items if i != "Yes.") == [f"Say {n}" for n in range(8)]
        assert items.count("Yes.") == 8


async def test_a_turn_whose_client_left_adds_nothing(data):
    waiting = asyncio.Event()

    async def slow(seen, wire):
        await wire.start_stream()
        waiting.set()
        await asyncio.sleep(30)

    async with ResponsesModel(slow) as up, running(up.url, data, STATELESS) as live:
        name = await create(live, items=[user("Zero")])
        asked = {"model": "m", "input": "x", "user": "ada", "conversation": name, "stream": True}
        task = asyncio.create_task(live.http.post(f"{live.url}/responses", json=asked))
        await waiting.wait()
        task.cancel()
        await asyncio.wait([task])
        assert words(await listed(live, name)) == ["Zero"]
        up.script = ["One."]
        shown, _ = await ask(live, "Say one", conversation=name)
        assert texts(shown) == ["One."]


async def test_a_conversation_that_is_deleted_during_a_turn_stays_deleted(data):
    async with ResponsesModel("x") as up, running(up.url, data, STATELESS) as live:
        name = await create(live, items=[user("Zero")])

        async def deleting(seen, wire):
            await send(live, "DELETE", f"/conversations/{name}")
            await wire.json(up.reply([say("One.")], seen.json))

        up.script = [deleting]
        shown, _ = await ask(live, "Say one", conversation=name)
        assert texts(shown) == ["One."]
        await send(live, "GET", f"/conversations/{name}", status=404)
        await send(live, "GET", f"/conversations/{name}/items", status=404)
        # The turn itself is as old as any response may get, and no older.
        table, later = live.gateway.responses, time.time() + 40 * stored.DAY
        assert await table._db.write(lambda conn: table.expire(conn, later)) == 1


async def test_an_invented_key_stores_nothing(data):
    """Else whoever invents keys could fill the disk."""
    config = {**STATELESS, "server.single_user": False}
    async with ResponsesModel("One.") as up, running(up.url, data, config) as live:
        told = await send(live, "POST", "/conversations", status=403, json={})
        assert "accepted this key" in told["error"]["message"]
        await ask(live, "Hello")
        assert await create(live)


@pytest.mark.parametrize("path", ["/conversations", "/conversations/x/items"])
@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"items": [1]}', b'{"items": {}}'])
async def test_bad_bodies_are_refused(data, path, body):
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        name = await create(live)
        where = f"{live.url}{path.replace('x', name)}"
        http = await live.http.post(where, content=body, headers=ADA)
        assert http.status_code == 400, http.text
        assert http.json()["error"]["type"] == "invalid_request_error"

"""Responses kept here: at servers that keep none themselves, a client may go on from them too."""

from __future__ import annotations

import json
import threading

import pytest
from sqlalchemy import text

from gateway.chat.stored import kept_responses
from memory.management.renaming import rename_user
from memory.stores.sql.owners.rename_owner import OwnerRename
from tests.chat_only_model import ChatOnlyModel
from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT, WEATHER, ask, check_stream, kinds, texts, user
from tests.wire_models import ResponsesModel, say, sse, think, use

BOTH = pytest.mark.parametrize("stream", [False, True])
ADA = {"x-memory-user": "ada"}
STATELESS = {"models": {"m": {"targets": [{"provider": "openai", "stateful": False}]}}}
CHAT_ONLY = {"providers.openai.wires": ["chat"]}


@BOTH
async def test_a_chain_goes_on_in_full_at_a_server_that_keeps_nothing(data, stream):
    script = [[use(APPEND, FACT)], "Noted.", "Tea.", "Green."]
    async with ResponsesModel(*script) as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, "I like tea", stream=stream)
        assert first["store"] is True
        second, events = await ask(
            live, "And now?", stream=stream, previous_response_id=first["id"]
        )
        if stream:
            check_stream(events)
        third, _ = await ask(live, "Which?", stream=stream, previous_response_id=second["id"])
        assert texts(third) == ["Green."]
        for response in [second, *(e["response"] for e in events if "response" in e)]:
            assert response["previous_response_id"] == first["id"]
            assert response["store"] is True
        assert all(b["store"] is False and "previous_response_id" not in b for b in up.bodies)
        sent = up.bodies[-1]["input"]
        said = [json.dumps(i) for i in sent if i.get("role") == "user"]
        assert [w in s for w, s in zip(("I like tea", "And now?", "Which?"), said, strict=True)]
        assert kinds(sent).count("function_call") == kinds(sent).count("function_call_output") == 1


@BOTH
async def test_a_chain_at_a_chat_server_runs_the_clients_own_tool(data, stream):
    script = [
        [say("Let me see."), use(APPEND, FACT), use("get_weather", {"city": "Oslo"})],
        "Rain.",
    ]
    async with ChatOnlyModel(*script) as up, running(up.url, data, CHAT_ONLY) as live:
        first, _ = await ask(live, "Weather?", stream=stream, tools=[WEATHER])
        (call,) = [i for i in first["output"] if i["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        shown, _ = await ask(
            live, [result], stream=stream, tools=[WEATHER], previous_response_id=first["id"]
        )
        assert texts(shown) == ["Rain."]
        *_, asked, ours, theirs = up.bodies[1]["messages"]
        assert [c["function"]["name"] for c in asked["tool_calls"]] == [APPEND, "get_weather"]
        assert ours["content"].startswith("Saved")
        assert theirs["content"] == "rain"


@pytest.mark.parametrize("long", [True, False])
async def test_a_long_answer_is_measured_off_the_event_loop(data, monkeypatch, long):
    threads, measure = [], kept_responses.kept_members

    def noting(*parts):
        threads.append(threading.current_thread())
        return measure(*parts)

    monkeypatch.setattr(kept_responses, "kept_members", noting)
    words = "green tea " * (200_000 if long else 1)
    async with ChatOnlyModel(words, "One.") as up, running(up.url, data, CHAT_ONLY) as live:
        first, _ = await ask(live, "Say much", stream=True)
        assert [t is threading.main_thread() for t in threads] == [not long]
        shown, _ = await ask(live, "Say one", previous_response_id=first["id"])
        assert texts(shown) == ["One."]
        assert up.bodies[1]["messages"][-2]["content"] == words


async def test_what_a_server_is_first_found_to_lack_is_kept_too(data):
    async with ChatOnlyModel("One.", "Two.") as up, running(up.url, data) as live:
        first, _ = await ask(live, "Say one")
        shown, _ = await ask(live, "Say two", previous_response_id=first["id"])
        assert texts(shown) == ["Two."]
        assert "Say one" in str(up.bodies[-1]["messages"])


QUOTAS = {"memory.kept_mib": 0.02, "memory.kept_conversation_mib": 0.02}


async def kept_bytes(live):
    size = "SELECT coalesce(sum(length(echo) + coalesce(length(shown), 0)), 0) FROM responses"
    await live.gateway.memory.wait_until_ready()
    query = text(size)
    return int(await live.gateway.memory.db.read(lambda conn: conn.execute(query).scalar(), 2.0))


@BOTH
@pytest.mark.parametrize("whose", [ADA, {}], ids=["a user", "nobody"])
@pytest.mark.parametrize("where", ["the request", "the answer"])
async def test_the_quota_holds_for_the_first_kept_response_as_well(data, stream, whose, where):
    long = "x" * 40_000
    words, answer = (long, "One.") if where == "the request" else ("Hi", long)
    async with ChatOnlyModel(answer, "Two.") as up, running(up.url, data, QUOTAS) as live:
        body = {"model": "m", "input": words, "stream": stream}
        http = await live.http.post(f"{live.url}/responses", json=body, headers=whose)
        assert http.status_code == 200
        assert answer[:4] in http.text
        assert await kept_bytes(live) == 0
        second = {"model": "m", "input": "Hi"}
        http = await live.http.post(f"{live.url}/responses", json=second, headers=whose)
        assert (http.status_code, http.json()["store"]) == (200, True)
        assert 0 < await kept_bytes(live) < 20_000


async def test_answers_count_against_the_quota_at_once(data):
    """The sum is read once a minute; what is written meanwhile is added."""
    script = ["x" * 9_000] * 6
    async with ResponsesModel(*script) as up, running(up.url, data, QUOTAS | STATELESS) as live:
        stored = [(await ask(live, f"Say {i}"))[0]["store"] for i in range(6)]
        assert stored[:1] == [True]
        assert stored[-3:] == [False] * 3
        assert await kept_bytes(live) < 40_000


async def test_reasoning_goes_on_as_the_server_gave_it(data):
    script = [[think(), say("Hm.")], "Yes."]
    async with ResponsesModel(*script) as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, "Think", reasoning={"effort": "low"})
        assert "encrypted_content" not in json.dumps(first)
        await ask(live, "So?", reasoning={"effort": "low"}, previous_response_id=first["id"])
        (thought,) = [i for i in up.bodies[-1]["input"] if i.get("type") == "reasoning"]
        assert thought["encrypted_content"]


@pytest.mark.parametrize("named", ["resp_unknown", "unstored"])
async def test_what_is_not_kept_cannot_be_gone_on_from(data, named):
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, "Say one", store=False)
        assert first["store"] is False
        name = first["id"] if named == "unstored" else named
        sent = {"model": "m", "input": "Hi", "user": "ada", "previous_response_id": name}
        http = await live.http.post(f"{live.url}/responses", json=sent)
        assert http.status_code == 400
        assert http.json()["error"]["code"] == "previous_response_not_found"
        assert http.json()["error"]["param"] == "previous_response_id"
        assert len(up.requests) == 1


async def test_another_users_chain_is_unknown(data):
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, "Say one")
        sent = {"model": "m", "input": "Hi", "user": "bob", "previous_response_id": first["id"]}
        http = await live.http.post(f"{live.url}/responses", json=sent)
        assert http.status_code == 400
        assert len(up.requests) == 1


async def test_a_kept_response_is_shown_listed_and_removed(data):
    async with ResponsesModel("One.", "Two.") as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, [user("Say"), user("one")])
        path = f"{live.url}/responses/{first['id']}"
        assert (await live.http.get(path, headers=ADA)).json() == first
        streamed = await live.http.get(path, headers=ADA, params={"stream": "true"})
        assert sse(streamed.text)[-1]["response"] == first
        listed = (await live.http.get(f"{path}/input_items", headers=ADA)).json()
        assert [i["content"] for i in listed["data"]] == ["one", "Say"]
        query = {"limit": "1", "order": "asc"}
        page = (await live.http.get(f"{path}/input_items", headers=ADA, params=query)).json()
        assert ([i["content"] for i in page["data"]], page["has_more"]) == (["Say"], True)
        query["after"] = page["last_id"]
        page = (await live.http.get(f"{path}/input_items", headers=ADA, params=query)).json()
        assert ([i["content"] for i in page["data"]], page["has_more"]) == (["one"], False)
        for bad in ({"limit": "0"}, {"order": "up"}):
            http = await live.http.get(f"{path}/input_items", headers=ADA, params=bad)
            assert http.status_code == 400
        assert (await live.http.post(f"{path}/cancel", headers=ADA)).status_code == 400
        assert (await live.http.delete(path, headers=ADA)).json()["deleted"] is True
        assert (await live.http.get(path, headers=ADA)).status_code == 404
        assert len(up.requests) == 1


async def test_a_chain_is_gone_on_from_with_memory_off_and_after_a_restart(data):
    async with ResponsesModel("One.", "Two.") as up:
        async with running(up.url, data, STATELESS) as live:
            first, _ = await ask(live, "Say one")
        async with running(up.url, data, STATELESS) as live:
            off = {"x-memory": "off"}
            await ask(live, "Say two", headers=off, previous_response_id=first["id"])
        assert [i.get("role") for i in up.bodies[-1]["input"]] == ["user", "assistant", "user"]


async def test_a_long_request_with_memory_off_keeps_its_own_input(data):
    words = "word " * 60_000
    async with ResponsesModel("One.", "Two.") as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, "Say one")
        off = {"x-memory": "off"}
        await ask(live, words, headers=off, previous_response_id=first["id"])
        assert [i["content"] for i in up.bodies[-1]["input"][::2]] == ["Say one", words]


@pytest.mark.parametrize("config", [STATELESS, CHAT_ONLY])
async def test_items_that_are_named_by_their_ids_are_sent_in_full(data, config):
    model = ChatOnlyModel if config is CHAT_ONLY else ResponsesModel
    script = [[think(), say("Hm.")], "Yes."]
    if config is CHAT_ONLY:
        script[0] = "Hm."
    async with model(*script) as up, running(up.url, data, config) as live:
        first, _ = await ask(live, "Think")
        named = [{"type": "item_reference", "id": i["id"]} for i in first["output"]]
        shown, _ = await ask(live, [user("Think"), *named, user("So?")])
        assert texts(shown) == ["Yes."]
        assert "item_reference" not in json.dumps(up.bodies[-1])
        assert "Hm." in json.dumps(up.bodies[-1])
        if config is STATELESS:
            (thought,) = [i for i in up.bodies[-1]["input"] if i.get("type") == "reasoning"]
            assert thought["encrypted_content"]
        asked = len(up.requests)
        sent = {"model": "m", "input": [{"type": "item_reference", "id": "msg_no"}], "user": "ada"}
        http = await live.http.post(f"{live.url}/responses", json=sent)
        assert http.status_code == 400
        assert http.json()["error"]["code"] == "item_not_found"
        bob = {**sent, "user": "bob", "input": [*named, user("So?")]}
        http = await live.http.post(f"{live.url}/responses", json=bob)
        assert http.status_code == 400
        assert len(up.requests) == asked


async def test_an_erased_users_chain_is_gone(data):
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, "Say one")
        token = (data / "token").read_text().strip()
        erased = await live.memory(
            "DELETE", "/users/ada", headers={"authorization": f"Bearer {token}"}
        )
        assert erased.status_code == 200
        sent = {"model": "m", "input": "Hi", "user": "ada", "previous_response_id": first["id"]}
        assert (await live.http.post(f"{live.url}/responses", json=sent)).status_code == 400


async def test_a_request_that_only_reads_keeps_no_response(data):
    async with ResponsesModel("One.") as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, "Say one", headers={"x-memory": "read"})
        assert first["store"] is False
        path = f"{live.url}/responses/{first['id']}"
        assert (await live.http.get(path, headers=ADA)).status_code == 404


async def test_a_deleted_conversation_takes_its_responses_along(data):
    async with ResponsesModel("One.", "Two.") as up, running(up.url, data, STATELESS) as live:
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        names = []
        for words in ("Say one", "Something else"):
            sent = {"model": "m", "input": words, "user": "ada"}
            http = await live.http.post(f"{live.url}/responses", json=sent)
            names.append((http.json()["id"], http.headers["x-memory-conversation"]))
        (gone, conversation), (stays, _) = names
        path = f"/conversations/{conversation}?user=ada"
        assert (await live.memory("DELETE", path, headers=local)).status_code == 200
        found = [
            (await live.http.get(f"{live.url}/responses/{name}", headers=ADA)).status_code
            for name in (gone, stays)
        ]
        assert found == [404, 200]


async def test_a_memory_that_moves_to_another_name_takes_its_responses_along(data):
    async with ResponsesModel("One.", "Two.") as up, running(up.url, data, STATELESS) as live:
        first, _ = await ask(live, "Say one")
        memory, secret = live.gateway.memory, live.gateway.secret
        move = OwnerRename(secret, ("local", "ada"), ("local", "eve"))
        await rename_user(memory.db, move)
        shown, _ = await ask(live, "Say two", user="eve", previous_response_id=first["id"])
        assert texts(shown) == ["Two."]
        path = f"{live.url}/responses/{first['id']}"
        assert (await live.http.get(path, headers=ADA)).status_code == 404

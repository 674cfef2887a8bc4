"""Responses that the provider stores: chained, fetched, deleted; never another owner's."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

import pytest

from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT, WEATHER, ask, check_stream, kinds, texts
from tests.e2e.test_faults import breaking
from tests.wire_models import ResponsesModel, say, sse, think, use

BOTH = pytest.mark.parametrize("stream", [False, True])


@BOTH
async def test_a_chained_call_goes_on_from_the_last_round(data, stream):
    script = [[use(APPEND, FACT)], "Noted.", "Tea."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        first, _ = await ask(live, "I like tea", stream=stream)
        assert first["id"] == "resp_1"
        shown, events = await ask(live, "And now?", stream=stream, previous_response_id=first["id"])
        assert texts(shown) == ["Tea."]
        last_round = up.bodies[1]
        assert last_round["previous_response_id"] == "resp_1"
        assert up.bodies[2]["previous_response_id"] not in ("resp_1", None)
        for response in [shown, *(e["response"] for e in events if "response" in e)]:
            assert response["previous_response_id"] == first["id"]


@BOTH
async def test_after_a_mixed_turn_our_outputs_ride_along(data, stream):
    script = [[think(), use(APPEND, FACT), use("get_weather", {"city": "Oslo"})], "Rain."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        first, _ = await ask(live, "Weather?", stream=stream, tools=[WEATHER])
        (call,) = [i for i in first["output"] if i["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        await ask(live, [result], stream=stream, tools=[WEATHER], previous_response_id=first["id"])
        assert kinds(up.bodies[1]["input"]) == ["function_call_output", "function_call_output"]


async def test_a_chain_is_one_conversation_and_holds_the_core_text_nowhere(data):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.", "Yes.") as up:
        async with running(up.url, data) as live:
            names, before = set(), None
            for i in range(6):
                sent = {"model": "m", "input": f"Question {i}", "user": "ada"}
                if before:
                    sent["previous_response_id"] = before
                http = await live.http.post(f"{live.url}/responses", json=sent)
                assert http.status_code == 200, http.text
                before = http.json()["id"]
                names.add(http.headers["x-memory-conversation"])
            assert len(names) == 1
            held = [i for items in up.stored.values() for i in items]
            core = up.bodies[-1]["instructions"]
            assert core[:60] not in str(held)


async def test_an_unknown_response_is_not_found(data):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        sent = {"model": "m", "input": "Hi", "user": "ada", "previous_response_id": "resp_x"}
        http = await live.http.post(f"{live.url}/responses", json=sent)
        assert http.status_code == 404
        assert http.json()["error"]["code"] == "previous_response_not_found"
        assert up.requests == []


VERBS = [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]


@BOTH
async def test_a_stored_response_is_what_its_client_was_shown(data, stream):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.") as up, running(up.url, data) as live:
        shown, _ = await ask(live, "I like tea", stream=stream, instructions="Be brief.")
        path = f"{live.url}/responses/{shown['id']}"
        user = {"x-memory-user": "ada"}
        found = await live.http.get(path, headers=user)
        assert found.json() == shown
        streamed = await live.http.get(path, headers=user, params={"stream": "true"})
        assert sse(streamed.text)[-1]["response"] == shown
        items = (await live.http.get(f"{path}/input_items", headers=user)).json()["data"]
        assert items == [{"role": "user", "content": "I like tea"}]
        gone = await live.http.delete(path, headers=user)
        assert gone.json() == {"id": shown["id"], "object": "response", "deleted": True}
        assert up.replies == {}
        assert (await live.http.get(path, headers=user)).status_code == 404


@pytest.mark.parametrize(("method", "verb"), VERBS)
async def test_a_response_of_another_owner_is_not_found(data, method, verb):
    config = {"server.single_user": False}
    async with ResponsesModel("Yes.") as up, running(up.url, data, config) as live:
        shown, _ = await ask(live, "Hi")
        asked = len(up.requests)
        other = {"authorization": "Bearer sk-somebody-else"}
        for name in (shown["id"], "resp_guessed"):
            http = await live.http.request(
                method, f"{live.url}/responses/{name}{verb}", headers=other
            )
            assert http.status_code == 404
            assert isinstance(http.json()["error"]["message"], str)
        sent = {"model": "m", "input": "Hi", "previous_response_id": shown["id"]}
        http = await live.http.post(f"{live.url}/responses", json=sent, headers=other)
        assert http.status_code == 404
        assert len(up.requests) == asked


async def test_a_response_in_the_background_is_the_clients_own_when_it_is_fetched(data):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        shown, _ = await ask(live, "Hi", background=True, instructions="Be brief.")
        assert (shown["status"], shown["instructions"]) == ("queued", "Be brief.")
        for verb, method in (("", "GET"), ("/cancel", "POST")):
            http = await live.http.request(
                method,
                f"{live.url}/responses/{shown['id']}{verb}",
                headers={"x-memory-user": "ada"},
            )
            assert http.json()["instructions"] == "Be brief."
            assert up.requests[-1].path == f"/v1/responses/{shown['id']}{verb}"


async def test_a_stream_of_a_response_in_the_background_ends_as_the_response_does(data):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        shown, _ = await ask(live, "Hi", background=True)
        path, user = f"{live.url}/responses/{shown['id']}", {"x-memory-user": "ada"}
        asked = asyncio.create_task(live.http.get(path, headers=user, params={"stream": "true"}))
        while not any(r.method == "GET" for r in up.requests):
            await asyncio.sleep(0.01)
        up.replies[shown["id"]]["status"] = "completed"
        events = sse((await asked).text)
        check_stream(events)
        assert events[-1]["response"]["status"] == "completed"
        params = {"stream": "true", "starting_after": "1"}
        rest = sse((await live.http.get(path, headers=user, params=params)).text)
        assert rest == events[2:]


OSLO = use("get_weather", {"city": "Oslo in Norway"})


@pytest.mark.parametrize("streams", [False, True])
async def test_a_stored_response_is_streamed_again_event_for_event(data, streams):
    """With the same numbers, whether its provider streams it again or not."""
    first = [think(), say("Let me see what I know."), use(APPEND, FACT)]
    async with ResponsesModel(first, [think(), say("Noted, of course."), OSLO]) as up:
        up.streams = streams
        async with running(up.url, data) as live:
            members = {"tools": [WEATHER], "instructions": "Be brief."}
            shown, events = await ask(live, "I like tea", stream=True, **members)
            path = f"{live.url}/responses/{shown['id']}"
            for after in (-1, 3, 20, len(events) - 1):
                query = {"stream": "true", **({} if after < 0 else {"starting_after": after})}
                http = await live.http.get(path, params=query)
                assert http.headers["content-type"].startswith("text/event-stream")
                assert sse(http.text) == events[after + 1 :]


async def test_a_response_in_the_background_is_streamed_while_it_is_made(data):
    """As its first stream was, from any event of it on; a client who leaves ends it."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(seen, wire):
        reply = up.reply([say("One two three four")], seen.json)
        up.made = {**reply, "status": "completed"}
        await wire.start_stream()
        for event in up.events(up.made):
            await up.write_event(wire, event)
        await wire.end()

    class Streaming(ResponsesModel):
        async def serve_other(self, seen, wire):
            if seen.method != "GET":
                return False
            await wire.start_stream()
            for n, event in enumerate(self.events(self.made)):
                await self.write_event(wire, event)
                if n == 5:
                    asked.set()
                    await go_on.wait()
            await wire.end()
            return True

    async with Streaming(slow) as up, running(up.url, data) as live:
        members = {"background": True, "instructions": "Be brief."}
        shown, events = await ask(live, "Hi", stream=True, **members)
        path = f"{live.url}/responses/{shown['id']}"
        query = {"stream": "true", "starting_after": "3"}
        async with live.http.stream("GET", path, params=query) as response:
            parts = response.aiter_text()
            seen = await anext(parts)
            await asked.wait()
            assert "output_text.delta" in seen + await anext(parts)
        await up.requests[-1].leaves()
        go_on.set()
        again = sse((await live.http.get(path, params=query)).text)
        assert again == events[4:]
        assert again[-1]["response"]["instructions"] == "Be brief."


async def test_erasing_a_user_takes_their_responses_and_counts_them(data):
    config = {"server.single_user": False}
    async with ResponsesModel("Yes.") as up, running(up.url, data, config) as live:
        shown, _ = await ask(live, "Hi")
        receipt = (await live.memory("DELETE", "/users/ada")).json()
        assert receipt["erased"]["responses"] == 1
        http = await live.http.get(
            f"{live.url}/responses/{shown['id']}", headers={"x-memory-user": "ada"}
        )
        assert http.status_code == 404


async def test_what_the_memory_does_not_record_can_be_gone_on_from(data):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        only_read = {"x-memory": "read"}
        first, _ = await ask(live, "Hi", headers=only_read)
        await ask(live, "And?", headers=only_read, previous_response_id=first["id"])
        assert up.bodies[1]["previous_response_id"] == first["id"]


async def test_a_response_of_nobody_is_no_named_users(data):
    config = {"server.single_user": False}
    async with ResponsesModel("Yes.") as up, running(up.url, data, config) as live:
        shown, _ = await ask(live, "Hi", user=None)
        path = f"{live.url}/responses/{shown['id']}"
        assert (await live.http.get(path)).status_code == 200
        assert (await live.http.get(path, headers={"x-memory-user": "ada"})).status_code == 404


async def test_a_place_in_the_stream_that_is_no_number_is_told(data):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        shown, _ = await ask(live, "Hi")
        query = {"stream": "true", "starting_after": "soon"}
        http = await live.http.get(
            f"{live.url}/responses/{shown['id']}", params=query, headers={"x-memory-user": "ada"}
        )
        assert (http.status_code, http.json()["error"]["param"]) == (400, "starting_after")


@BOTH
async def test_a_response_that_the_store_did_not_take_is_gone_on_from(data, monkeypatch, stream):
    """At once, and after the next start, when the store has taken what it was late with."""
    script = [[use(APPEND, FACT)], "Noted.", "Tea.", "Still tea."]
    async with ResponsesModel(*script) as up:
        async with running(up.url, data) as live:
            await ask(live, "Hi", store=False, headers={"x-memory": "write"})
            up.script = script
            await live.stop_worker()
            with monkeypatch.context() as patch:
                # The request and the edit are written, the answer is not.
                breaking(patch, writes=3)
                first, _ = await ask(live, "I like tea", stream=stream)
                assert (data / "spill.ndjson").exists()
                shown = await live.http.get(
                    f"{live.url}/responses/{first['id']}", headers={"x-memory-user": "ada"}
                )
                assert shown.json() == first
            await ask(live, "And now?", stream=stream, previous_response_id=first["id"])
            assert up.bodies[-1]["previous_response_id"] != first["id"]
        async with running(up.url, data) as live:
            await ask(live, "And then?", stream=stream, previous_response_id=first["id"])
            assert up.bodies[-1]["previous_response_id"] == up.bodies[-2]["previous_response_id"]


@BOTH
async def test_a_response_of_a_request_without_its_memory_is_gone_on_from(
    data, monkeypatch, stream
):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        with monkeypatch.context() as patch:
            breaking(patch, reads=1, writes=1)
            first, _ = await ask(live, "Hi", stream=stream)
        await ask(live, "And?", stream=stream, previous_response_id=first["id"])
        assert up.bodies[-1]["previous_response_id"] == first["id"]


MANAGED = {
    "keys": [{"name": n, "key": n, "tenant": n} for n in ("acme", "other")],
}


@BOTH
@pytest.mark.parametrize("config", [MANAGED, {"server.single_user": False}])
async def test_without_memory_a_response_is_its_owners_alone(data, stream, config):
    off = {"x-memory": "off", "authorization": "Bearer acme"}
    other = {**off, "authorization": "Bearer other"}
    managed = "keys" in config
    async with ResponsesModel("Yes.") as up, running(up.url, data, config) as live:
        first, _ = await ask(live, "Hi", stream=stream, headers=off)
        chained = {"stream": stream, "previous_response_id": first["id"]}
        second, _ = await ask(live, "And?", headers=off, **chained)
        assert up.bodies[-1]["previous_response_id"] == first["id"]
        # With memory it is gone on from too, and neither is another tenant's.
        await ask(live, "And?", headers={"authorization": "Bearer acme"}, **chained)
        path = f"{live.url}/responses/{second['id']}"
        named = {**off, "x-memory-user": "ada"}
        assert (await live.http.get(path, headers=named)).json()["id"] == second["id"]
        if managed:
            assert (await live.http.get(path, headers=other)).status_code == 404
            sent = {"model": "m", "input": "Hi", "user": "ada", **chained}
            http = await live.http.post(f"{live.url}/responses", json=sent, headers=other)
            assert http.status_code == 404


# So long that of a request without memory only a few members are read.
HEAVY = "word " * 60_000


async def test_without_memory_a_long_request_goes_on_from_its_owners_responses_alone(data):
    script = [[use(APPEND, FACT)], "Noted.", "Long."]
    async with ResponsesModel(*script) as up, running(up.url, data, MANAGED) as live:
        first, _ = await ask(live, "I like tea", headers={"authorization": "Bearer acme"})
        sent = {"model": "m", "input": HEAVY, "user": "ada", "previous_response_id": first["id"]}
        off = {"x-memory": "off", "authorization": "Bearer other"}
        asked = len(up.requests)
        http = await live.http.post(f"{live.url}/responses", json=sent, headers=off)
        assert http.status_code == 404
        assert len(up.requests) == asked
        shown, _ = await ask(
            live,
            HEAVY,
            headers={**off, "authorization": "Bearer acme"},
            previous_response_id=first["id"],
        )
        assert texts(shown) == ["Long."]
        # From the last round of the first response, which the client does not know.
        assert up.bodies[-1]["previous_response_id"] not in (None, first["id"])
        assert up.bodies[-1]["input"] == [{"role": "user", "content": HEAVY}]


async def test_a_key_that_may_name_any_user_finds_their_responses_without_naming_them(data):
    """A request without a body cannot say `user`, as the one did that made the response."""
    async with ResponsesModel([use(APPEND, FACT)], "Noted.") as up, running(up.url, data) as live:
        shown, _ = await ask(live, "I like tea")
        path = f"{live.url}/responses/{shown['id']}"
        assert (await live.http.get(path)).json() == shown
        other = {"x-memory-user": "bob"}
        assert (await live.http.get(path, headers=other)).status_code == 404
        assert (await live.http.delete(path)).json()["deleted"] is True


async def test_a_key_of_one_user_finds_no_others_response(data):
    keys = [
        {"name": "all", "key": "mg-all-0123456789abcdef", "tenant": "t"},
        {
            "name": "bob",
            "key": "mg-bob-0123456789abcdef",
            "tenant": "t",
            "trusted": False,
            "default_user": "bob",
        },
    ]
    async with ResponsesModel("Yes.") as up, running(up.url, data, {"keys": keys}) as live:
        named = {"authorization": "Bearer mg-all-0123456789abcdef"}
        shown, _ = await ask(live, "Hi", headers=named)
        path = f"{live.url}/responses/{shown['id']}"
        bob = {"authorization": "Bearer mg-bob-0123456789abcdef"}
        for mode in ("full", "off", "read", "write"):
            for method, verb in VERBS:
                headers = {**bob, "x-memory": mode}
                http = await live.http.request(method, f"{path}{verb}", headers=headers)
                assert http.status_code == 404
            sent = {"model": "m", "input": "Hi", "previous_response_id": shown["id"]}
            http = await live.http.post(
                f"{live.url}/responses", json=sent, headers={**bob, "x-memory": mode}
            )
            assert http.status_code == 404
        assert (await live.http.get(path, headers=named)).json() == shown


@BOTH
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_an_alias_is_the_model_of_a_stored_response(data, stream, mode):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.", "Yes.") as up:
        config = {
            **MANAGED,
            "providers": {"main": {"kind": "openai", "base_url": up.url}},
            "models": {"nice": {"targets": [{"provider": "main", "model": "m-1"}]}},
        }
        async with running("", data, config) as live:
            headers = {"authorization": "Bearer acme", "x-memory": mode}
            for more in ({}, {}, {"background": True}):
                asked = {"stream": stream and not more, "headers": headers, "model": "nice"}
                shown, events = await ask(live, "I like tea", **asked, **more)
                told = [e["response"] for e in events if "response" in e]
                path = f"{live.url}/responses/{shown['id']}"
                found = (await live.http.get(path, headers=headers)).json()
                assert {r["model"] for r in (shown, found, *told)} == {"nice"}
                assert up.bodies[-1]["model"] == "m-1"


class Including(ResponsesModel):
    """It tells of an item's sources only where the query asks for them."""

    async def serve_other(self, seen, wire):
        path, _, query = seen.path.partition("?")
        name = path.partition("/responses/")[2]
        if seen.method == "GET" and name in self.replies and "include" in query:
            await wire.json({**self.replies[name], "asked": query})
            return True
        return await super().serve_other(seen, wire)


@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(
    "query",
    [
        "include[]=web_search_call.action.sources",
        "include=reasoning.encrypted_content",
        "include[]=a&include[]=b",
        "include%5B%5D=a",
    ],
)
async def test_a_get_asks_for_what_its_query_includes(data, mode, query):
    async with Including("Yes.") as up, running(up.url, data) as live:
        headers = {"x-memory-user": "ada", "x-memory": mode}
        shown, _ = await ask(live, "Hi", headers=headers)
        url = f"{live.url}/responses/{shown['id']}"
        plain = (await live.http.get(url, headers=headers)).json()
        assert plain["output"] == shown["output"]
        found = (await live.http.get(f"{url}?{query}", headers=headers)).json()
        assert parse_qs(found.pop("asked")) == parse_qs(query)
        assert found["id"] == shown["id"]
        assert found["output"] == shown["output"]
        assert "core_memory" not in str(found.get("tools"))
        assert "memory" not in str(found.get("instructions"))
        other = await live.http.get(f"{url}?{query}", headers={"x-memory-user": "bob"})
        assert other.status_code == 404

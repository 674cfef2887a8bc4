"""`/v1/responses` with memory: what the client is shown, and what the upstream gets."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.e2e.responses.asking import (
    APPEND,
    FACT,
    WEATHER,
    ask,
    check_stream,
    kinds,
    names,
    texts,
    user,
)
from tests.wire_models import ResponsesModel, cut, native, say, think, use

BOTH = pytest.mark.parametrize("stream", [False, True])
CUSTOM = {"type": "custom", "name": "apply_patch", "format": {"type": "text"}}


@BOTH
async def test_what_is_told_in_one_session_is_known_in_the_next(data, stream):
    async with ResponsesModel([think(), use(APPEND, FACT)], "Noted.", "Tea.") as up:
        async with running(up.url, data) as live:
            shown, events = await ask(live, "I like tea", stream=stream, store=False)
            assert texts(shown) == ["Noted."]
            assert APPEND not in json.dumps([shown, events])
            if stream:
                check_stream(events)
        async with running(up.url, data) as live:
            shown, _ = await ask(live, "What do I like?", stream=stream, store=False)
            assert texts(shown) == ["Tea."]
        assert "Likes tea" in up.bodies[-1]["instructions"]
        assert up.bodies[-1]["input"] == "What do I like?"


@BOTH
async def test_the_next_round_has_the_round_before_as_it_was(data, stream):
    script = [[think(), say("Let me see."), use(APPEND, FACT)], "Noted."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        await ask(live, [user("I like tea")], stream=stream, store=False)
        first, second = up.bodies
        assert second["input"][0] == first["input"][0]
        assert kinds(second["input"]) == [
            "message",
            "reasoning",
            "message",
            "function_call",
            "function_call_output",
        ]
        assert second["input"][1]["encrypted_content"].startswith("secret")


@BOTH
async def test_a_stored_round_is_gone_on_from_where_the_provider_keeps_it(data, stream):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.") as up, running(up.url, data) as live:
        shown, _ = await ask(live, [user("I like tea")], stream=stream)
        first, second = up.bodies
        assert second["previous_response_id"] == "resp_1"
        assert shown["id"] == "resp_1"
        assert shown["previous_response_id"] is None
        assert kinds(second["input"]) == ["function_call_output"]
        assert (second["instructions"], second["tools"]) == (first["instructions"], first["tools"])


@BOTH
async def test_a_conversation_gets_the_outputs_alone(data, stream):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.") as up, running(up.url, data) as live:
        # The conversation holds what this upstream does not keep.
        up.check = lambda body: ()
        await ask(live, [user("I like tea")], stream=stream, conversation="conv_1")
        second = up.bodies[1]
        assert kinds(second["input"]) == ["function_call_output"]
        assert "previous_response_id" not in second
        assert "Likes" not in json.dumps(up.bodies[0]["input"])


@BOTH
async def test_mixed_calls_end_the_turn_and_come_back_paired(data, stream):
    script = [[think(), use(APPEND, FACT), use("get_weather", {"city": "Oslo"})], "Rain, and tea."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        asked = [user("I like tea. The weather?")]
        shown, events = await ask(live, asked, stream=stream, store=False, tools=[WEATHER])
        assert kinds(shown["output"]) == ["reasoning", "function_call"]
        assert (shown["status"], shown["output"][1]["name"]) == ("completed", "get_weather")
        assert APPEND not in json.dumps([shown, events])
        call = shown["output"][1]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        echo = [*asked, *shown["output"], result]
        await ask(live, echo, stream=stream, store=False, tools=[WEATHER])
        sent = up.bodies[1]["input"]
        assert kinds(sent) == [
            "message",
            "reasoning",
            "function_call",
            "function_call",
            "function_call_output",
            "function_call_output",
        ]
        assert [i["name"] for i in sent if "name" in i] == [APPEND, "get_weather"]


@BOTH
async def test_an_echo_by_references_is_known_again(data, stream):
    script = [[think("a"), use(APPEND, FACT), use("get_weather", {"city": "Oslo"})], "Rain."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        asked = [user("I like tea. The weather?")]
        shown, _ = await ask(live, asked, stream=stream, tools=[WEATHER])
        refs = [{"type": "item_reference", "id": i["id"]} for i in shown["output"]]
        call = shown["output"][1]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        await ask(live, [*asked, *refs, result], stream=stream, tools=[WEATHER])
        assert kinds(up.bodies[1]["input"]) == [
            "message",
            "reasoning",
            "function_call",
            "function_call",
            "function_call_output",
            "function_call_output",
        ]


ECHOES = {
    "as it came": lambda item: item,
    "without ids and status": lambda item: {
        k: v for k, v in item.items() if k not in ("id", "status")
    },
    "content null, other order": lambda item: dict(
        reversed(({"content": None, **item} if item["type"] == "reasoning" else item).items())
    ),
    "easy messages": lambda item: (
        {"role": "assistant", "content": item["content"][0]["text"]}
        if item["type"] == "message"
        else item
    ),
}


@pytest.mark.parametrize("echo", ECHOES)
@BOTH
async def test_a_hidden_round_is_put_back_where_the_echo_shows_a_gap(data, stream, echo):
    script = [[think("a"), use(APPEND, FACT)], [think("b"), say("Noted.")], "Yes."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        asked = [user("I like tea")]
        shown, _ = await ask(live, asked, stream=stream, store=False)
        assert kinds(shown["output"]) == ["reasoning", "reasoning", "message"]
        back = [ECHOES[echo](i) for i in shown["output"]]
        await ask(live, [*asked, *back, user("Sure?")], stream=stream, store=False)
        sent = up.bodies[-1]["input"]
        assert sent[: len(up.bodies[1]["input"])] == up.bodies[1]["input"]
        assert kinds(sent) == [
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "reasoning",
            "message",
            "message",
        ]


@BOTH
async def test_the_response_repeats_the_clients_own_request(data, stream):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.") as up, running(up.url, data) as live:
        members = {"instructions": "Be brief.", "tools": [WEATHER], "store": False}
        shown, events = await ask(live, "I like tea", stream=stream, **members)
        assert up.bodies[0]["instructions"].startswith("Be brief.\n\n")
        assert len(up.bodies[0]["tools"]) > 1
        for response in [shown, *(e["response"] for e in events if "response" in e)]:
            assert response["instructions"] == "Be brief."
            assert names(response) == ["get_weather"]
            assert response["store"] is False


async def test_reasoning_is_sealed_where_the_client_did_not_ask_for_it(data):
    script = [[think(), use(APPEND, FACT)], [think(), say("Noted.")]]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        members = {"reasoning": {"effort": "low"}, "store": False}
        for stream in (False, True):
            up.script = list(script)
            shown, events = await ask(live, "I like tea", stream=stream, **members)
            assert "encrypted_content" not in json.dumps([shown, events])
            assert "reasoning.encrypted_content" in up.bodies[-2]["include"]
            assert "secret" in json.dumps(up.bodies[-1]["input"])


@pytest.mark.parametrize(
    "members",
    [
        {"tool_choice": "required", "tools": [WEATHER]},
        {"tool_choice": "none", "tools": [WEATHER]},
        {"tool_choice": {"type": "function", "name": "get_weather"}, "tools": [WEATHER]},
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}, "tools": [WEATHER]},
        {"text": {"format": {"type": "json_object"}}},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
        {"background": True},
    ],
)
async def test_no_tool_of_ours_beside_a_choice_that_is_made(data, members):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        await ask(live, "Hi", **members)
        sent = up.bodies[0]
        assert sent.get("tools", []) == members.get("tools", [])
        assert {k: sent[k] for k in members} == members


async def test_every_kind_of_item_and_tool_reaches_the_upstream_as_it_came(data):
    items = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": "search"},
        {"type": "mcp_list_tools", "id": "m_1", "server_label": "x", "tools": []},
        {"type": "no_such_kind", "deep": {"er": [1, None]}, "id": 7},
        {"type": "message", "role": "user", "content": "And?", "x": 1},
    ]
    tools = [WEATHER, CUSTOM, {"type": "web_search"}, {"type": "namespace", "name": "n"}]
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        await ask(live, items, tools=tools, x_unknown={"a": 1})
        sent = up.bodies[0]
        assert sent["input"][1:] == items[1:]
        assert sent["input"][0]["content"][0] == {"type": "input_text", "text": "Be kind."}
        assert sent["tools"][:4] == tools
        assert sent["x_unknown"] == {"a": 1}
        assert all(t["type"] == "function" and "parameters" in t for t in sent["tools"][4:])


@BOTH
async def test_other_items_pass_beside_a_call_of_ours(data, stream):
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    patch = {"type": "custom_tool_call", "id": "c_1", "call_id": "p", "name": "x", "input": "y"}
    script = [[native(search), use(APPEND, FACT), native(patch)], "Done."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        shown, events = await ask(live, "Go", stream=stream, store=False)
        assert shown["output"] == [search, patch]
        if stream:
            check_stream(events)


@BOTH
async def test_a_call_that_was_cut_off_is_not_run(data, stream):
    script = [[say("Let me"), use(APPEND, '{"label": "hum'), cut()]]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        shown, _ = await ask(live, "I like tea", stream=stream, store=False)
        assert (len(up.requests), shown["status"]) == (1, "incomplete")
        assert shown["incomplete_details"] == {"reason": "max_output_tokens"}
        assert kinds(shown["output"]) == ["message"]


@BOTH
async def test_the_usage_shown_is_the_last_rounds_and_the_books_hold_the_sum(data, stream):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.") as up:
        async with running(up.url, data, {"server.single_user": False}) as live:
            shown, _ = await ask(live, "I like tea", stream=stream, store=False)
            assert shown["usage"]["total_tokens"] == 110
            found = await live.memory("GET", "/usage", params={"group_by": "request"})
            (record,) = found.json()["data"]
            assert (record["input_tokens"], record["output_tokens"]) == (200, 20)


@BOTH
async def test_at_the_last_round_no_tool_of_ours_is_offered(data, stream):
    async with ResponsesModel([use(APPEND, FACT)], [use(APPEND, FACT)], "Enough.") as up:
        async with running(up.url, data, {"memory.max_rounds": 2}) as live:
            shown, _ = await ask(live, "I like tea", stream=stream, store=False)
            assert texts(shown) == ["Enough."]
            assert APPEND not in names(up.bodies[-1])


@BOTH
async def test_off_passes_the_bytes_in_both_directions(data, stream):
    sent = b'{ "model":"m",  "input" : "Hi", "stream": %s }' % str(stream).lower().encode()
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        http = await live.http.post(
            f"{live.url}/responses", content=sent, headers={"x-memory": "off"}
        )
        assert up.requests[0].body == sent
        assert http.headers["x-memory-status"] == "off"
        assert http.headers["x-memory-reason"] == "request"
        if stream:
            want = up.events(json.loads(http.text.rsplit("data: ", 1)[1])["response"])
            lines = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in want]
            assert http.text == "".join(lines)


async def test_one_round_without_calls_leaves_as_the_bytes_that_came(data):
    async with ResponsesModel([think(), say("Hello there")]) as up, running(up.url, data) as live:
        sent = {"model": "m", "input": "Hi", "user": "ada", "stream": True, "store": False}
        # Else it is ours to ask for and to hide.
        sent["include"] = ["reasoning.encrypted_content"]
        http = await live.http.post(f"{live.url}/responses", json=sent)
        blocks = [b for b in http.text.split("\n\n") if b]
        # Only to know how they are spelt.
        came = up.events(up.reply([], sent))
        assert json.loads(blocks[0].split("data: ")[1])["type"] == next(iter(came))["type"]
        for block in blocks:
            event = json.loads(block.split("data: ")[1])
            if "response" not in event:
                assert block == f"event: {event['type']}\ndata: {json.dumps(event)}"


async def test_the_answer_names_its_status_user_and_conversation(data):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        sent = {"model": "m", "input": "Hi"}
        headers = {"x-memory-user": "ada", "thread-id": "t-1"}
        http = await live.http.post(f"{live.url}/responses", json=sent, headers=headers)
        assert http.headers["x-memory-status"] == "ok"
        assert http.headers["x-memory-user"] == "ada"
        assert http.headers["x-memory-conversation"] == "t-1"
        assert "x-memory-explain" in http.headers


async def test_codex_compacting_has_no_part_in_the_memory(data):
    config = {"server.single_user": False}
    async with ResponsesModel("A summary.") as up, running(up.url, data, config) as live:
        headers = {"x-codex-turn-metadata": '{"request_kind": "compaction"}'}
        sent = {"model": "m", "input": [user("Summarise.")], "tools": [], "user": "ada"}
        http = await live.http.post(f"{live.url}/responses", json=sent, headers=headers)
        assert http.headers["x-memory-status"] == "off"
        assert up.requests[0].json == sent
        assert "ada" not in (await live.memory("GET", "/users")).text


REFUSED = {"error": {"message": "Previous response not found.", "code": None}}


@BOTH
async def test_a_provider_that_keeps_no_state_is_sent_everything_once(data, stream):
    """It says that it stores, and refuses to go on from it: zero retention."""
    refusal = (400, REFUSED, "x-should-retry: false")
    script = [[think(), use(APPEND, FACT)], refusal, [use(APPEND, FACT)], "Noted."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        # Which counts on the state that is refused here.
        up.check = lambda body: ()
        shown, _ = await ask(live, [user("I like tea")], stream=stream)
        assert texts(shown) == ["Noted."]
        _, refused, again, last = up.bodies
        assert refused["previous_response_id"] == "resp_1"
        pair = ["function_call", "function_call_output"]
        assert "previous_response_id" not in again
        assert kinds(again["input"]) == ["message", "reasoning", *pair]
        assert kinds(last["input"]) == ["message", "reasoning", *pair, *pair]


@BOTH
async def test_a_refusal_of_all_that_was_sent_is_the_clients(data, stream):
    refusal = (400, REFUSED, "x-should-retry: false")
    script = [[use(APPEND, FACT)], refusal]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        up.check = lambda body: ()
        sent = {"model": "m", "input": "I like tea", "user": "ada", "stream": stream}
        http = await live.http.post(f"{live.url}/responses", json=sent)
        assert "Previous response not found." in http.text
        assert len(up.bodies) == 3


@BOTH
async def test_later_rounds_have_what_is_left_of_the_limit_but_our_calls_cost_nothing_of_it(
    data, stream
):
    long = "word " * 40
    script = [[say(long), use(APPEND, FACT)], "Noted.", "So."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        await ask(live, "I like tea", stream=stream, max_output_tokens=100, store=False)
        first, second = (b["max_output_tokens"] for b in up.bodies)
        assert first == 100
        assert 16 <= second < 100
        up.script[:] = [[use(APPEND, FACT)], "Noted."]
        await ask(live, "And coffee", stream=stream, store=False)
        assert "max_output_tokens" not in up.bodies[-1]


@BOTH
@pytest.mark.parametrize("store", [False, True])
async def test_an_answer_ends_where_its_limit_leaves_no_room_for_another_round(data, stream, store):
    script = [[say("word " * 40), use(APPEND, FACT)], "Tea."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        members = {"stream": stream, "store": store}
        asked = [user("I like tea")]
        shown, events = await ask(live, asked, max_output_tokens=50, **members)
        assert (len(up.bodies), shown["status"]) == (1, "incomplete")
        assert shown["incomplete_details"] == {"reason": "max_output_tokens"}
        assert kinds(shown["output"]) == ["message"]
        if stream:
            check_stream(events)
            assert events[-1]["type"] == "response.incomplete"
        # The call was run, and stands where it happened when the client goes on.
        if store:
            await ask(live, "So?", previous_response_id=shown["id"], **members)
            assert kinds(up.bodies[-1]["input"]) == ["function_call_output", "message"]
        else:
            await ask(live, [*asked, *shown["output"], user("So?")], **members)
            pair = ["function_call", "function_call_output"]
            assert kinds(up.bodies[-1]["input"]) == ["message", "message", *pair, "message"]

"""`POST /v1/responses/compact` works at every server; what is sealed is read here alone."""

from __future__ import annotations

import json

import pytest

from tests.chat_only_model import NO_PATH, ChatOnlyModel
from tests.conftest import running
from tests.e2e.responses.asking import APPEND, ask, check_stream, texts, user
from tests.e2e.test_books import records
from tests.sockets import RawServer
from tests.wire_models import MessagesModel, ResponsesModel, native, say

SUMMARY = "Ada likes green tea; the city is Oslo."
CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city": "Oslo"}',
}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
HISTORY = [
    {"type": "message", "role": "developer", "content": "Be brief."},
    user("I like green tea."),
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Noted.", "annotations": []}],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    CALL,
    OUTPUT,
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "And in Oslo?"}],
    },
]


async def compact(live, items, headers=None, **more):
    """What Codex sends: the input, its instructions and its tools."""
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    body = {
        "model": "m",
        "input": items,
        "instructions": "You are a coding agent.",
        "tools": [tool],
        "parallel_tool_calls": True,
        **more,
    }
    return await live.http.post(f"{live.url}/responses/compact", json=body, headers=headers or {})


def check(found):
    """The shape of OpenAI's documentation."""
    assert found["object"] == "response.compaction"
    assert found["id"].startswith("resp_")
    assert isinstance(found["created_at"], int)
    *kept, item = found["output"]
    assert item.keys() == {"id", "type", "encrypted_content"}
    assert item["type"] == "compaction"
    assert "green" not in item["encrypted_content"]
    usage = found["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
    return kept, item


@pytest.mark.parametrize("kind", NO_PATH)
async def test_a_server_without_compaction_is_bridged_onto_the_summariser(kind, data):
    async with ChatOnlyModel(SUMMARY, kind=kind) as model, running(model.url, data) as live:
        for turn in range(2):
            http = await compact(live, HISTORY)
            assert http.status_code == 200, http.text
            kept, _ = check(http.json())
            said = [(m["role"], m["content"][0]["text"]) for m in kept]
            assert said == [
                ("developer", "Be brief."),
                ("user", "I like green tea."),
                ("user", "And in Oslo?"),
            ]
            assert kept[-1]["content"] == HISTORY[-1]["content"]
            # What it lacks is learnt once.
            assert len(model.refused) == 1, turn
        prompt = str(model.bodies[0]["messages"])
        assert "Oslo" in prompt
        assert "rain" in prompt
        assert "Noted." in prompt
        assert "gAAA" not in prompt
        assert "Be brief." not in prompt


@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("at", [0, 2, 5, 7])
async def test_our_compaction_item_goes_up_as_a_message_wherever_it_stands(at, mode, data):
    async with ChatOnlyModel(SUMMARY, "Yes.") as model, running(model.url, data) as live:
        _, item = check((await compact(live, HISTORY)).json())
        items = [*HISTORY[:at], item, *HISTORY[at:]]
        shown, _ = await ask(live, items, headers={"x-memory": mode}, store=False)
        assert texts(shown) == ["Yes."]
        sent = json.dumps(model.bodies[-1])
        assert SUMMARY in sent
        assert "encrypted_content" not in sent
        assert item["encrypted_content"] not in sent


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_native_server_reads_our_item_as_a_message_and_another_as_it_came(mode, data):
    foreign = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA_theirs"}
    async with ChatOnlyModel(SUMMARY) as chat, ResponsesModel("Yes.") as native:
        config = {
            "providers": {"a": {"base_url": chat.url}, "b": {"base_url": native.url}},
            "models": {
                "m": {"targets": [{"provider": "a"}]},
                "n": {"targets": [{"provider": "b"}]},
            },
        }
        async with running("", data, config) as live:
            http = await compact(live, HISTORY)
            assert http.status_code == 200, http.text
            _, item = check(http.json())
            forged = {**item, "encrypted_content": item["encrypted_content"][:-6] + "AAAAAA"}
            items = [item, foreign, forged, user("Go on")]
            shown, _ = await ask(live, items, headers={"x-memory": mode}, model="n", store=False)
            assert texts(shown) == ["Yes."]
            sent = native.bodies[-1]["input"]
            found = [i for i in sent if i.get("type") == "compaction"]
            assert found == [foreign, forged]
            assert SUMMARY in json.dumps(sent)


async def test_a_compaction_of_a_compaction_goes_on_from_the_summary(data):
    async with ChatOnlyModel(SUMMARY) as model, running(model.url, data) as live:
        kept, item = check((await compact(live, HISTORY)).json())
        again, _ = check((await compact(live, [*kept, item, user("More")])).json())
        assert [m["content"][0]["text"] for m in again][-1] == "More"
        assert len(again) == len(kept) + 1
        assert SUMMARY in str(model.bodies[-1]["messages"])


async def test_another_tenant_cannot_read_a_compaction_item(data):
    keys = [
        {"name": n, "key": f"key-{n}-aaaaaaaaaaaaaaaaaa", "tenant": n, "limits": {"rpm": 3}}
        for n in ("one", "two")
    ]
    async with ChatOnlyModel(SUMMARY, "Yes.") as model:
        provider = {"base_url": model.url, "api_key": "sk-operator"}
        config = {"providers": {"main": provider}, "keys": keys}
        async with running("", data, config, key=keys[0]["key"]) as live:
            _, item = check((await compact(live, HISTORY)).json())
            other = {"authorization": f"Bearer {keys[1]['key']}"}
            body = {"model": "m", "input": [item, user("Go on")], "store": False}
            http = await live.http.post(f"{live.url}/responses", json=body, headers=other)
            assert SUMMARY not in str(model.bodies[1:])
            # The server cannot be sent it either.
            assert http.status_code == 400, http.text
            # limits hold for it as for any other request
            await compact(live, HISTORY)
            await compact(live, HISTORY)
            assert (await compact(live, HISTORY)).status_code == 429


async def test_a_compaction_without_a_summary_leaves_nothing_out(data):
    refusal = (400, {"error": {"message": "no", "type": "invalid_request_error"}})
    async with ChatOnlyModel(refusal, "") as model, running(model.url, data) as live:
        http = await compact(live, HISTORY)
        assert (http.status_code, http.json()["error"]["message"]) == (400, "no")
        http = await compact(live, HISTORY)
        assert http.status_code == 502, http.text
        assert (await compact(live, [])).status_code == 400


async def test_a_server_with_compaction_answers_itself(data):
    answer = {"id": "resp_1", "object": "response.compaction", "output": [], "usage": None}

    async def answers(seen, wire):
        await wire.json(answer)

    async with RawServer(answers) as up, running(up.url, data) as live:
        http = await compact(live, HISTORY)
        assert http.json() == answer
        assert up.requests[-1].json["input"] == HISTORY


async def test_a_model_that_is_missing_is_no_missing_path(data):
    refusal = {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}

    async def answers(seen, wire):
        await wire.json(refusal, 404)

    async with RawServer(answers) as up, running(up.url, data) as live:
        for _ in range(2):
            http = await compact(live, HISTORY)
            assert (http.status_code, http.json()) == (404, refusal)
        assert len(up.requests) == 2


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_server_of_messages_alone_is_bridged_too(mode, data):
    async with MessagesModel(SUMMARY, "Yes.") as model:
        provider = {"base_url": model.url, "kind": "anthropic"}
        config = {"providers": {"main": provider}}
        async with running("", data, config) as live:
            kept, item = check((await compact(live, HISTORY)).json())
            assert [r.path for r in model.requests] == ["/v1/messages"]
            items = [*kept, item, user("Go on")]
            shown, _ = await ask(live, items, headers={"x-memory": mode}, store=False)
            assert texts(shown) == ["Yes."]
            assert SUMMARY in json.dumps(model.bodies[-1])


async def test_a_stored_response_is_compacted_with_all_that_led_to_it(data):
    async with ChatOnlyModel("Tea, then.", SUMMARY) as model, running(model.url, data) as live:
        first, _ = await ask(live, "I like green tea.")
        asked = {"previous_response_id": first["id"], "user": "ada"}
        kept, _ = check((await compact(live, [user("More")], **asked)).json())
        assert [m["content"][0]["text"] for m in kept] == ["I like green tea.", "More"]
        assert "Tea, then." in str(model.bodies[-1]["messages"])
        http = await compact(live, [user("More")], **{**asked, "user": "eve"})
        assert http.status_code in (400, 404), http.text


async def test_a_compaction_is_booked_with_what_its_summary_used(data):
    key = {"name": "k", "key": "key-k-aaaaaaaaaaaaaaaaaa", "tenant": "t", "admin": True}
    async with ChatOnlyModel(SUMMARY) as model:
        provider = {"base_url": model.url, "api_key": "sk-operator"}
        config = {"providers": {"main": provider}, "keys": [key]}
        async with running("", data, config, key=key["key"]) as live:
            found = (await compact(live, HISTORY)).json()
            (row,) = await records(live)
            assert row["path"] == "/responses/compact"
            assert row["input_tokens"] == found["usage"]["input_tokens"] == 100
            assert row["output_tokens"] == found["usage"]["output_tokens"] == 10


TRIGGER = {"type": "compaction_trigger"}
CODEX = {"x-codex-turn-metadata": '{"request_kind":"compaction"}'}


@pytest.mark.parametrize("headers", [{}, CODEX], ids=["any", "codex"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model_class", [ChatOnlyModel, MessagesModel])
async def test_a_compaction_trigger_is_answered_with_one_item(model_class, stream, headers, data):
    kind = {"kind": "anthropic"} if model_class is MessagesModel else {}
    async with model_class(SUMMARY, "Yes.") as model:
        config = {"providers": {"main": {"base_url": model.url, **kind}}}
        async with running("", data, config) as live:
            asked = [*HISTORY, TRIGGER]
            shown, events = await ask(live, asked, headers=headers, stream=stream, store=False)
            if stream:
                check_stream(events)
            (item,) = shown["output"]
            assert item["type"] == "compaction"
            assert shown["usage"]["total_tokens"] > 0
            assert APPEND not in str(model.bodies)
            later = [user("I like green tea."), item, user("Go on")]
            shown, _ = await ask(live, later, headers=headers, stream=stream, store=False)
            assert texts(shown) == ["Yes."]
            assert SUMMARY in json.dumps(model.bodies[-1])


async def test_a_server_that_knows_the_trigger_is_asked_as_it_is(data):
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
    async with ResponsesModel([native(sealed)]) as model, running(model.url, data) as live:
        for headers in ({}, CODEX):
            shown, _ = await ask(live, [user("Hi"), TRIGGER], headers=headers, store=False)
            assert shown["output"] == [sealed]
            assert model.bodies[-1]["input"] == [user("Hi"), TRIGGER]


async def test_a_refused_trigger_is_compacted_here(data):
    def answers(seen, wire):
        if TRIGGER in seen.json["input"]:
            return 400, {"error": {"message": "unknown item type", "param": "input"}}
        return [say(SUMMARY)]

    async with ResponsesModel(answers) as model:
        config = {"providers": {"main": {"base_url": model.url, "wires": ["responses"]}}}
        async with running("", data, config) as live:
            asked = [user("I like green tea."), TRIGGER]
            shown, events = await ask(live, asked, stream=True, store=False)
            check_stream(events)
            (item,) = shown["output"]
            later = [user("I like green tea."), item]
            await ask(live, later, store=False)
            assert SUMMARY in json.dumps(model.bodies[-1])


async def test_a_trigger_whose_summary_is_refused_fails(data):
    refusal = (400, {"error": {"message": "no", "type": "invalid_request_error"}})
    async with ChatOnlyModel(refusal) as model, running(model.url, data) as live:
        for stream in (False, True):
            sent = {"model": "m", "input": [user("Hi"), TRIGGER], "store": False, "stream": stream}
            http = await live.http.post(f"{live.url}/responses", json=sent)
            assert (http.status_code, http.json()["error"]["message"]) == (400, "no")

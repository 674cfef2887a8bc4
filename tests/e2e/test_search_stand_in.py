"""A tool of the operator in place of a vendor's own search (T-W2), on both APIs that have one."""

from __future__ import annotations

import contextlib
import json

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_message import Annotation
from openai.types.responses import (
    Response,
    ResponseFunctionWebSearch,
    ResponseStreamEvent,
)
from openai.types.responses.response_output_text import AnnotationURLCitation
from pydantic import TypeAdapter

from tests.chat_only_model import ChatOnlyModel
from tests.e2e.messages import client as claude
from tests.e2e.operator_tools import gateway, granting
from tests.e2e.responses import asking as codex
from tests.gateway.tools.web_servers import CountingListener, reply
from tests.models import Model, text
from tests.wire_models import MessagesModel, ResponsesModel, say, use

TEXT_EVENTS = ("response.output_text.delta", "response.output_text.done")
STREAMED = TypeAdapter(ResponseStreamEvent)
BOTH = pytest.mark.parametrize("stream", [False, True])
ROWS = [
    {"title": "Rain", "url": "https://e.com/1", "content": "It rains."},
    {
        "title": "Sun",
        "url": "https://other.org/2",
        "content": "It shines.",
        "publishedDate": "2026",
    },
]
ANSWER = "It rains [1], says one; [7] is no hit."
VENDORS = {
    "responses": {"type": "web_search_preview"},
    "messages": {"type": "web_search_20250305", "name": "web_search"},
}


def searches(request):
    body = json.dumps({"results": ROWS})
    return reply(body, kind="application/json")


def config_of(server, up, *patterns, **provider):
    root = f"http://127.0.0.1:{server.port}"
    entry = {"kind": "web_search", "backend": f"searxng:{root}", "stand_in": True}
    return granting(
        {"look_up": entry},
        *patterns,
        providers={"up": {"base_url": up.url, **(provider or {"wires": ["chat"]})}},
        models={"*": {"targets": [{"provider": "up"}]}},
    )


def names_of(body):
    return [tool["function"]["name"] for tool in body.get("tools") or ()]


@BOTH
async def test_t_w2_a_response_shows_the_search_as_the_vendor_would(data, stream):
    script = ([say("Let me see."), use("look_up", {"query": "rain"})], ANSWER, "Yes.")
    async with CountingListener(searches) as server, ChatOnlyModel(*script) as up:
        config = config_of(server, up)
        client_tool = {"type": "function", "name": "shell", "parameters": {"type": "object"}}
        tools = [VENDORS["responses"], client_tool]
        async with gateway(up, data, config) as live:
            asked = {"tools": tools, "store": False, "include": ["web_search_call.action.sources"]}
            shown, events = await codex.ask(live, "Weather?", stream=stream, **asked)
            response = Response.model_validate(shown)
            _, search, message = response.output
            assert isinstance(search, ResponseFunctionWebSearch)
            assert (search.status, search.action.query) == ("completed", "rain")
            assert [s.url for s in search.action.sources] == [r["url"] for r in ROWS]
            (citation,) = message.content[0].annotations
            assert isinstance(citation, AnnotationURLCitation)
            assert (citation.url, citation.title) == ("https://e.com/1", "Rain")
            assert ANSWER[citation.start_index : citation.end_index] == "[1]"
            assert "look_up" not in json.dumps([shown, events])
            if stream:
                codex.check_stream(events)
                for event in events:
                    # Of a text itself the bridge tells no `logprobs`, which the types demand.
                    if event["type"] not in TEXT_EVENTS:
                        STREAMED.validate_python(event)
                kinds = [e["type"] for e in events if "web_search" in e["type"]]
                states = ("in_progress", "searching", "completed")
                assert kinds == [f"response.web_search_call.{state}" for state in states]
                assert sum(e["type"].endswith("annotation.added") for e in events) == 1
            first, second = up.bodies
            # In place: where the vendor's tool stood, and once.
            assert names_of(first)[:2] == ["look_up", "shell"]
            assert names_of(first).count("look_up") == 1
            assert second["messages"][-1]["content"].endswith("\nIt shines.\n2026")
            items = [codex.user("Weather?"), *shown["output"], codex.user("Sure?")]
            again, _ = await codex.ask(live, items, stream=stream, **asked)
            assert codex.texts(again) == ["Yes."]
            told = [m["role"] for m in up.bodies[2]["messages"]]
            assert told[-4:] == ["assistant", "tool", "assistant", "user"]


@BOTH
async def test_t_w2_a_message_shows_the_search_as_the_vendor_would(data, stream):
    script = ([use("look_up", {"query": "rain"})], ANSWER, "Yes.")
    async with CountingListener(searches) as server, ChatOnlyModel(*script) as up:
        config = config_of(server, up)
        tools = {"tools": [VENDORS["messages"], claude.WEATHER]}
        async with gateway(up, data, config) as live:
            answer = await claude.ask(live, "Weather?", stream=stream, **tools)
            asked, result, text = answer.content
            assert (asked["type"], asked["input"]) == ("server_tool_use", {"query": "rain"})
            assert asked["id"].startswith("srvtoolu_")
            assert result["tool_use_id"] == asked["id"]
            assert [h["url"] for h in result["content"]] == [r["url"] for r in ROWS]
            assert [h["page_age"] for h in result["content"]] == [None, "2026"]
            assert text["text"] == ANSWER
            (citation,) = text["citations"]
            assert citation["type"] == "web_search_result_location"
            assert (citation["url"], citation["cited_text"]) == ("https://e.com/1", "It rains.")
            usage = answer.message["usage"]
            requests = {"web_search_requests": 1, "web_fetch_requests": 0}
            assert usage["server_tool_use"] == requests
            assert answer.message["stop_reason"] == "end_turn"
            assert "look_up" not in json.dumps([answer.message, answer.events])
            history = [claude.user("Weather?"), claude.said(answer), claude.user("Sure?")]
            assert (await claude.ask(live, history, stream=stream, **tools)).text == "Yes."
            roles = [m["role"] for m in up.bodies[2]["messages"]]
            assert roles[-4:] == ["assistant", "tool", "assistant", "user"]
            # Sent back in another conversation, it is the search again; another user's is dropped.
            moved = [claude.user("Hm?"), *history]
            for user, count in (("ada", 1), ("bob", 0)):
                up.script = ["Yes."]
                named = {"metadata": {"user_id": user}, **tools}
                assert (await claude.ask(live, moved, stream=stream, **named)).text == "Yes."
                told = [m for m in up.bodies[-1]["messages"] if m["role"] == "tool"]
                assert len(told) == count, user


async def test_t_w2_what_the_client_bounds_holds_and_a_choice_is_carried(data):
    asked = [use("look_up", {"query": "rain"})]
    blocked = {"blocked_domains": ["other.org"], "max_uses": 1}
    async with CountingListener(searches) as server, ChatOnlyModel(asked, asked, "So.") as up:
        async with gateway(up, data, config_of(server, up)) as live:
            tool = {**VENDORS["messages"], **blocked}
            choice = {"type": "tool", "name": "web_search"}
            answer = await claude.ask(live, "Hm?", stream=False, tools=[tool], tool_choice=choice)
            _, first, _, second, text = answer.content
            assert [hit["url"] for hit in first["content"]] == ["https://e.com/1"]
            assert second["content"] == {
                "type": "web_search_tool_result_error",
                "error_code": "max_uses_exceeded",
            }
            assert text["text"] == "So."
            assert server.connections == 1
            forced, free = up.bodies[:2]
            assert forced["tool_choice"]["function"]["name"] == "look_up"
            assert free.get("tool_choice", "auto") == "auto"
            filters = {"allowed_domains": ["org"]}
            up.script = [asked, "So."]
            shown, _ = await codex.ask(
                live,
                "Hm?",
                stream=False,
                tools=[{"type": "web_search", "filters": filters}],
                tool_choice={"type": "web_search"},
                store=False,
            )
            assert codex.texts(shown) == ["So."]
            assert "https://e.com/1" not in up.bodies[-1]["messages"][-1]["content"]


@pytest.mark.parametrize("patterns", [("nothing",), ("look_up",)])
async def test_t_w2_without_a_grant_or_at_a_server_that_searches_all_is_as_today(data, patterns):
    is_granted = patterns == ("look_up",)
    async with CountingListener(searches) as server, ResponsesModel("Hi.") as up:
        provider = {"wires": ["responses"], "server_tools": is_granted}
        async with gateway(up, data, config_of(server, up, *patterns, **provider)) as live:
            tools = [VENDORS["responses"]]
            await codex.ask(live, "Hm?", stream=False, tools=tools, store=False)
            assert up.bodies[-1]["tools"][0] == VENDORS["responses"]


async def test_t_w2_a_native_server_without_tools_of_its_own_is_stood_in_for(data):
    script = ([use("look_up", {"query": "rain"})], [say(ANSWER)])
    async with CountingListener(searches) as server, ResponsesModel(*script) as up:
        provider = {"wires": ["responses"], "server_tools": False}
        async with gateway(up, data, config_of(server, up, **provider)) as live:
            tools = [VENDORS["responses"]]
            shown, _ = await codex.ask(live, "Hm?", stream=True, tools=tools, store=False)
            assert [i["type"] for i in shown["output"]] == ["web_search_call", "message"]
            assert len(shown["output"][1]["content"][0]["annotations"]) == 1
            assert up.bodies[0]["tools"][0]["name"] == "look_up"


ASKED = {"web_search_options": {"search_context_size": "low"}}
# Before any search, so it cites nothing.
OPENING = "Let me see [1]."
SEARCHING = [say(OPENING), use("look_up", {"query": "rain"})]
CHAT_PROVIDERS = {
    "chat": (ChatOnlyModel, {"server_tools": False}),
    "responses": (ResponsesModel, {"wires": ["responses"]}),
    "messages": (MessagesModel, {"kind": "anthropic"}),
}


@contextlib.asynccontextmanager
async def chatting(data, name, *script):
    """A gateway before a server without search that speaks one API."""
    model, provider = CHAT_PROVIDERS[name]
    async with CountingListener(searches) as server, model(*script) as up:
        async with gateway(up, data, config_of(server, up, **provider)) as live:
            yield live, up


async def chat(live, messages, *, stream, **more):
    """The message of an answer, validated by the vendor's types; how a stream ends."""
    if not stream:
        answer = await live.chat(messages, **ASKED, **more)
        assert answer.status_code == 200, answer.text
        choice = ChatCompletion.model_validate(answer.json(), strict=True).choices[0]
        return choice.message.model_dump(exclude_none=True), choice.finish_reason
    _, told = await live.stream(messages, **ASKED, **more)
    assert told.pop() == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate(event, strict=True) for event in told]
    assert len({chunk.id for chunk in chunks}) == 1
    choices = [event["choices"][0] for event in told if event["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    message = {"role": "assistant", "content": text}
    assert [c["finish_reason"] for c in choices[:-1]] == [None] * (len(choices) - 1)
    # Alone, and the last before the finish.
    if "annotations" in choices[-2]["delta"]:
        assert choices[-2]["delta"].keys() == {"annotations"}
        message |= choices[-2]["delta"]
    assert sum("annotations" in choice["delta"] for choice in choices) == len(message) - 2
    return message, choices[-1]["finish_reason"]


@BOTH
@pytest.mark.parametrize("name", CHAT_PROVIDERS)
async def test_t_w2_a_chat_completion_cites_the_search(data, name, stream):
    async with chatting(data, name, SEARCHING, ANSWER, "Yes.", "No.") as (live, up):
        message, finish = await chat(live, "Weather?", stream=stream)
        text = f"{OPENING}\n\n{ANSWER}"
        assert (message["content"], finish) == (text, "stop")
        (annotation,) = message["annotations"]
        cited = Annotation.model_validate(annotation, strict=True).url_citation
        assert (cited.url, cited.title) == ("https://e.com/1", "Rain")
        assert (text[cited.start_index : cited.end_index], cited.start_index > 20) == ("[1]", True)
        assert "look_up" not in json.dumps(message)
        told = [json.dumps(body) for body in up.bodies]
        assert "look_up" in told[0]
        assert "It shines." in told[1]
        # Sent back with what it cites, or as plain text: the server knows no annotations.
        for back in (message, {"role": "assistant", "content": text}):
            history = [claude.user("Weather?"), back, claude.user("Sure?")]
            again, _ = await chat(live, history, stream=stream)
            assert again["content"] in ("Yes.", "No.")
            assert "annotations" not in again
            assert json.dumps(ANSWER)[1:-1] in json.dumps(up.bodies[-1])
        told = [json.dumps(body) for body in up.bodies]
        assert len(told) == 4
        assert not [body for body in told if "web_search_options" in body or "annotat" in body]


async def test_t_w2_in_chat_each_text_cites_the_search_before_it_within_bounds(data):
    script = (SEARCHING, [say("One [1]."), use("look_up", {"query": "sun"})], "Two [1][2].")
    async with chatting(data, "chat", *script) as (live, up):
        asked = {**ASKED["web_search_options"], "filters": {"blocked_domains": ["e.com"]}}
        answer = await live.chat("Hm?", web_search_options={**asked, "max_uses": 1})
        message = answer.json()["choices"][0]["message"]
        cited = [a["url_citation"] for a in message["annotations"]]
        spans = [message["content"][c["start_index"] :][:3] for c in cited]
        assert spans == ["[1]", "[1]"]
        assert {c["url"] for c in cited} == {"https://other.org/2"}
        assert "max_uses_exceeded" in up.bodies[2]["messages"][-1]["content"]
        # A finish of the client's own call comes behind what the text cites.
        up.script = [SEARCHING, [say("One [1]."), use("shell", {})]]
        shell = {"type": "function", "function": {"name": "shell", "parameters": {}}}
        message, finish = await chat(live, "Well?", stream=True, tools=[shell])
        assert (finish, len(message["annotations"])) == ("tool_calls", 1)
        assert names_of(up.bodies[-1]) == names_of(up.bodies[-2])
        assert names_of(up.bodies[-1]).count("look_up") == 1


async def test_t_w2_chat_is_offered_a_deferred_search_and_nothing_where_it_takes_no_tools(data):
    more = {"kind": "http", "url": "http://127.0.0.1:9/{city}", "description": "Tells. " * 40}
    more |= {"parameters": {"city": {"type": "string"}}, "required": ["city"]}
    async with CountingListener(searches) as server, Model(text("Hi.")) as up:
        config = config_of(server, up, server_tools=False)
        config["tools"] |= {f"far{n}": more for n in range(20)}
        config["toolbox"] = {"schema_tokens": 200}
        async with gateway(up, data, config) as live:
            await live.chat("Hm?", **ASKED)
            assert names_of(up.bodies[-1]).count("look_up") == 1
            assert "tool_search" in names_of(up.bodies[-1])
            assert "far1" not in names_of(up.bodies[-1])
            await live.chat("So?")
            assert "look_up" not in names_of(up.bodies[-1])
            await live.chat("Well?", n=2, **ASKED)
            assert up.bodies[-1]["web_search_options"] == ASKED["web_search_options"]


@pytest.mark.parametrize("patterns", [("nothing",), ("look_up",)])
async def test_t_w2_chat_without_a_grant_or_at_a_server_that_searches_is_as_today(data, patterns):
    is_granted = patterns == ("look_up",)
    async with CountingListener(searches) as server, Model(text("Hi.")) as up:
        provider = {"server_tools": is_granted}
        async with gateway(up, data, config_of(server, up, *patterns, **provider)) as live:
            sent = {"web_search_options": {}, "model": "m", "messages": [claude.user("Hm?")]}
            await live.http.post(f"{live.url}/chat/completions", json=sent)
            assert up.bodies[-1]["web_search_options"] == {}

"""A chat completion shows what its texts cite before each finish, however it comes."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.apis.chat.chat_format import ChatMask
from gateway.apis.chat.interceptor import Interceptor
from gateway.apis.chat.searched_answer import CitedTexts, replace_search_options
from gateway.apis.search.search_results import SearchCitations, ShownHit, ShownSearch
from gateway.wire.chat import chunk, lift
from gateway.wire.sse import SseEvent

TEXTS = st.lists(st.sampled_from(["[1]", "[2]", "[3", "é", "\n", "so ", "\U0001f600"]), max_size=6)
FINISHES = st.sampled_from(["stop", "length", "tool_calls"])


def seal(query, hit):
    return ""


def hits_of(name):
    return ShownSearch(name, [ShownHit(n, name, f"https://e.com/{name}/{n}") for n in (1, 2)])


def event(delta, finish=None, lane=0):
    choices = [{"index": lane, "delta": delta, "finish_reason": finish}]
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    data = json.dumps({**body, "choices": choices}).encode()
    return SseEvent(b"data: " + data + b"\n\n", data)


def call_of(name):
    call = {"index": 0, "id": "k1", "type": "function"}
    return {"tool_calls": [{**call, "function": {"name": name, "arguments": "{}"}}]}


async def feed(mask, pieces, *ends):
    """What a mask shows of a round."""
    shown = b""
    for told in (*[event({"content": piece}) for piece in pieces], *ends):
        shown += mask.fast_forward(told.event_bytes) or await mask.show(told)
    return shown + mask.close()[0]


def choices_of(shown):
    lines = [line for line in shown.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:])["choices"][0] for line in lines]


def cited_in(message):
    """The spans that a message cites, each with where from."""
    return [
        (message["content"][c["start_index"] : c["end_index"]], c["url"])
        for c in (a["url_citation"] for a in message.get("annotations", ()))
    ]


@settings(max_examples=60)
@given(TEXTS, TEXTS, TEXTS, FINISHES)
async def test_marks_of_each_round_cite_the_search_before_it(first, second, third, finish):
    mask, citations = ChatMask(Interceptor({"look_up"}, True)), SearchCitations(seal)
    shown = b""
    for name, pieces in (("old", first), ("new", second)):
        shown += await feed(mask, pieces, event(call_of("look_up"), "tool_calls"))
        citations.add(hits_of(name))
        mask.cite(partial(CitedTexts, citations))
        mask.start_next_round()
    calls = [event(call_of("shell"))] if finish == "tool_calls" else []
    shown += await feed(mask, third, *calls, event({}, finish))
    choices = choices_of(shown + mask.finish())
    (message,) = mask.answers()
    whole = json.loads(mask.body(None))["choices"][0]
    assert whole["message"] == message
    marks = [("old", second), ("new", third)]
    assert cited_in({"content": "", **message}) == [
        (f"[{n}]", f"https://e.com/{name}/{n}")
        for name, pieces in marks
        for mark in "".join(pieces).split("[")
        for n in "12"
        if mark.startswith(f"{n}]")
    ]
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == [finish]
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == finish
    added = [c["delta"].get("annotations") or [] for c in choices]
    assert [one for more in added for one in more] == message.get("annotations", [])
    assert sum(map(bool, added)) <= 1


def test_a_whole_answer_in_a_stream_shows_its_finish_behind_what_it_cites():
    mask, citations = ChatMask(Interceptor({"look_up"}, True)), SearchCitations(seal)
    citations.add(hits_of("new"))
    mask.cite(partial(CitedTexts, citations))
    message = {"role": "assistant", "content": "So [2]."}
    told = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    told["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    shown = b"".join(mask.show_whole(chunk(lift(told), b""))) + mask.close()[0] + mask.finish()
    text, cited, finish = choices_of(shown)
    assert (text["delta"]["content"], text["finish_reason"]) == ("So [2].", None)
    assert cited["delta"].keys() == {"annotations"}
    assert (finish["delta"], finish["finish_reason"]) == ({}, "stop")


@pytest.mark.parametrize("tools", [None, [{"type": "function"}]])
def test_the_option_and_citations_of_earlier_answers_are_not_sent(tools):
    kept = {"role": "user", "content": "Hm?"}
    said = {"role": "assistant", "content": "So [1].", "annotations": [{}]}
    body = {"model": "m", "messages": [kept, said], "web_search_options": {}}
    body |= {"tools": tools} if tools else {}
    function = {"name": "look_up"}
    sent, pieces, client, lasting = replace_search_options(
        (body, ("p",), None, [said, kept]), function
    )
    assert (pieces, client) == (("p",), None)
    # So that it leaves in the client's bytes.
    assert sent["messages"][0] is kept
    assert sent["messages"][1] == lasting[0] == {"role": "assistant", "content": "So [1]."}
    assert sent["tools"] == [*(tools or ()), {"type": "function", "function": function}]
    assert "web_search_options" not in sent
    same, *_, nothing = replace_search_options((body, (), None, None), None)
    assert (same.get("tools"), nothing) == (tools, None)


def test_a_replayed_answer_cites_what_it_cited():
    mask, citations = ChatMask(Interceptor({"look_up"}, True)), SearchCitations(seal)
    told = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    (call,) = call_of("look_up")["tool_calls"]
    asked = {"role": "assistant", "content": "See [1].", "tool_calls": [call]}
    for message, finish in ((asked, "tool_calls"), ({"content": "So [1]."}, "stop")):
        choices = [{"index": 0, "message": message, "finish_reason": finish}]
        mask.replay({**told, "choices": choices})
        if finish != "stop":
            citations.add(hits_of("new"))
            mask.cite(partial(CitedTexts, citations))
            mask.start_next_round()
    mask.finish()
    (answer,) = mask.answers()
    assert answer["content"] == "See [1].\n\nSo [1]."
    (annotation,) = answer["annotations"]
    assert annotation["url_citation"]["start_index"] == len("See [1].\n\nSo ")

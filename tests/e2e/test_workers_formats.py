"""Two workers at once, in every format, plain and streamed: the same words in two tabs, and one
request that is sent to both.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests import stores
from tests.conftest import said
from tests.e2e.messages import client as messages
from tests.e2e.postgres_chat import ADA
from tests.e2e.responses import asking as responses
from tests.e2e.test_workers import answers, two
from tests.models import Model, call, calls, text
from tests.sockets import within
from tests.wire_models import MessagesModel, ResponsesModel, use

TEA = {"content": "Ada likes tea."}
INSERT = "archival_memory_insert"
PATIENT = {"memory.extract": "off", "memory.read_deadline_ms": 10_000}
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])


def user(words):
    return {"role": "user", "content": words}


async def ask_chat(live, history, headers, stream):
    if stream:
        response, events = await live.stream(history, headers)
        told = {"role": "assistant", "content": said(events)}
    else:
        response = await live.chat(history, headers)
        told = response.json()["choices"][0]["message"]
    assert response.headers["x-memory-status"] == "ok"
    return told["content"], [told]


async def ask_responses(live, history, headers, stream):
    found, _ = await responses.ask(live, history, headers=headers, stream=stream, store=False)
    return "".join(responses.texts(found)), found["output"]


async def ask_messages(live, history, headers, stream):
    found = await messages.ask(live, history, headers=headers, stream=stream)
    assert found.response.headers["x-memory-status"] == "ok"
    return found.text, [messages.said(found)]


@dataclass(frozen=True)
class Format:
    """How a format is spoken. model: what answers it. note: an answer that keeps something."""

    model: Any
    ask: Any
    note: Any
    say: Any = str


FORMATS = pytest.mark.parametrize(
    "form",
    [
        pytest.param(Format(Model, ask_chat, calls(call(INSERT, TEA)), text), id="chat"),
        pytest.param(Format(ResponsesModel, ask_responses, [use(INSERT, TEA)]), id="responses"),
        pytest.param(Format(MessagesModel, ask_messages, [use(INSERT, TEA)]), id="messages"),
    ],
)


@BOTH
@FORMATS
async def test_one_key_at_two_workers_at_once_is_one_answer_and_runs_its_tools_once(
    postgres_url, tmp_path, form, stream
):
    begun = []

    async def answer(seen, wire):
        # Its call is in the request.
        if TEA["content"] in json.dumps(seen.json):
            return form.say("noted")
        begun.append(seen)
        await asyncio.sleep(0.2)
        return form.note

    key = {**ADA, "idempotency-key": "k1"}
    async with form.model(answer) as up, two(postgres_url, tmp_path, up, **PATIENT) as lives:
        asking = (form.ask(live, [user("hello")], key, stream) for live in lives)
        found = await asyncio.gather(*asking)
    assert [words for words, _ in found] == ["noted"] * 2
    assert len(begun) == 1
    assert stores.on_server(postgres_url, "SELECT count(*) FROM passages")[0][0] == 1
    assert answers(postgres_url) == ["noted"]
    rows = stores.on_server(postgres_url, "SELECT holder, once, state FROM nodes")
    assert [tuple(row) for row in rows] == [(None, None, "done")]


@BOTH
@FORMATS
async def test_the_same_words_in_two_tabs_at_two_workers_keep_both_answers_and_go_on(
    postgres_url, tmp_path, form, stream
):
    free, names = asyncio.Event(), iter(("left", "right", "third", "fourth"))

    async def answer(seen, wire):
        name = next(names)
        await free.wait()
        return form.say(name)

    async with form.model(answer) as up, two(postgres_url, tmp_path, up, **PATIENT) as lives:
        tabs = [asyncio.ensure_future(form.ask(o, [user("hello")], ADA, stream)) for o in lives]
        assert await within(10, lambda: len(up.requests) == 2)
        free.set()
        found = [await tab for tab in tabs]
        assert sorted(words for words, _ in found) == ["left", "right"]
        assert sorted(answers(postgres_url)) == ["left", "right"]
        for live, (words, items) in zip(reversed(lives), found, strict=True):
            await form.ask(live, [user("hello"), *items, user("and now?")], ADA, stream)
            assert words in json.dumps(up.bodies[-1])
    assert sorted(answers(postgres_url)) == ["fourth", "left", "right", "third"]
    parents = "SELECT count(DISTINCT parent) FROM nodes WHERE parent IS NOT NULL"
    assert stores.on_server(postgres_url, parents)[0][0] == 2

"""One memory, whichever API tells it."""

from __future__ import annotations

import itertools

import pytest

from tests.conftest import running
from tests.e2e.messages.client import OWN, TEA
from tests.models import Model, call, calls
from tests.wire_models import MessagesModel, ResponsesModel, say, use

CAT = {"label": "human", "content": "Has a cat."}
PASSAGE = {"content": "Moved to Oslo in May."}
SCRIPT = [
    ("I like tea and have a cat", [("core_memory_append", TEA), ("core_memory_append", CAT)]),
    ("I moved", [("archival_memory_insert", PASSAGE)]),
    (
        "Fix the label",
        [("core_memory_replace", {"label": "human", "old_content": "tea", "new_content": "mate"})],
    ),
]
# What the model says before it calls.
WORDS = [None, "Wait.", "One moment.\n"]


def chat_model():
    answers = []
    for i, (_, wanted) in enumerate(SCRIPT):
        found = (call(n, a, f"call_{i}_{k}") for k, (n, a) in enumerate(wanted))
        answers += [calls(*found, content=WORDS[i]), "Noted."]
    return Model(*answers, "Sure.")


def native_model(kind):
    answers = []
    for words, (_, wanted) in zip(WORDS, SCRIPT, strict=True):
        before = [say(words)] if words else []
        answers += [[*before, *(use(n, a) for n, a in wanted)], [say("Noted.")]]
    return kind(*answers, [say("Sure.")])


WAYS = {
    "chat": (chat_model, "/chat/completions", "messages", {"user": "ada"}),
    "responses": (lambda: native_model(ResponsesModel), "/responses", "input", {"user": "ada"}),
    "messages": (
        lambda: native_model(MessagesModel),
        "/messages",
        "messages",
        {"metadata": {"user_id": "ada"}, "max_tokens": 9},
    ),
}


async def told(live, path, member, more, words, stream=False):
    body = {"model": "m", member: [{"role": "user", "content": words}], "stream": stream, **more}
    response = await live.http.post(live.url + path, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["x-memory-status"] == "ok"
    return response


async def memory_of(live):
    """All that is remembered of the user, without what is of this run alone."""
    out = {}
    for what in ("blocks", "passages", "conversations"):
        found = (await live.memory("GET", f"/users/ada/{what}")).json()["data"]
        out[what] = [without_run(x) for x in found]
    listed = (await live.memory("GET", "/users/ada/conversations")).json()["data"]
    out["messages"] = []
    for conversation in sorted(listed, key=lambda c: c["created_at"]):
        path = f"/users/ada/conversations/{conversation['id']}/messages"
        out["messages"] += [without_run(m) for m in (await live.memory("GET", path)).json()["data"]]
    return out


def without_run(record):
    run = ("id", "conversation", "key")
    return {k: v for k, v in record.items() if k not in run and not k.endswith("_at")}


async def test_one_script_over_three_apis_leaves_one_memory(data):
    found = {}
    for name, stream in itertools.product(WAYS, (False, True)):
        make, *way = WAYS[name]
        async with make() as up, running(up.url, data / f"{name}{stream}", OWN) as live:
            for words, _ in SCRIPT:
                await told(live, *way, words, stream=stream)
            found[name, stream] = await memory_of(live)
    (_, first), *others = found.items()
    assert first["blocks"][0]["version"] >= 3
    assert len(first["passages"]) == 1
    assert [m["role"] for m in first["messages"]] == ["user", "assistant"] * 3
    for name, other in others:
        assert other == first, name


@pytest.mark.parametrize("teller", WAYS)
async def test_what_is_told_over_one_api_is_found_over_the_others(data, teller):
    make, *way = WAYS[teller]
    async with make() as up, running(up.url, data, OWN) as live:
        for words, _ in SCRIPT[:1]:
            await told(live, *way, words)
    for reader, (make, *way) in WAYS.items():
        async with make() as up, running(up.url, data, OWN) as live:
            up.script, up.n = ["Sure."], 0
            await told(live, *way, f"Hello over {reader}")
            assert TEA["content"] in str(up.bodies[0])

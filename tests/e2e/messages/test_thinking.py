"""Models that refuse thinking once something before it has changed, as memory does change."""

from __future__ import annotations

import pytest

from memory.errors import StoreUnavailable
from memory.service import Memory
from tests.conftest import running
from tests.e2e.messages.client import OWN, REMEMBER, ask, said, user
from tests.wire_models import MessagesModel, say, think

STRICT = "claude-opus-5-5"
BINDING = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
SCRIPT = ([think("A."), REMEMBER], [think("B."), say("Noted.")], [think("C."), say("Tea.")])


@pytest.mark.parametrize("model", ["m", STRICT])
async def test_thinking_stays_valid_as_long_as_the_memory_stays(data, stream, model):
    async with MessagesModel(*SCRIPT) as up, running(up.url, data) as live:
        up.binds = True
        talk = [user("I like tea")]
        for words in ("What?", "And?", "Well?"):
            answer = await ask(live, talk, stream=stream, model=model)
            talk = [*talk, said(answer), user(words)]
        await ask(live, talk, stream=stream, model=model)


@pytest.mark.parametrize("thinking", [None, {"type": "adaptive", "display": "omitted"}])
@pytest.mark.parametrize("change", ["edited", "down"])
async def test_thinking_that_memory_made_stale_is_dropped_and_not_refused(
    data, stream, thinking, change, monkeypatch
):
    async def down(*_, **__):
        raise StoreUnavailable("down")

    own = {} if thinking is None else {"thinking": thinking}
    async with MessagesModel(*SCRIPT) as up:
        up.binds = True
        provider = {"kind": "anthropic", "base_url": up.url}
        async with running("", data, {"providers": {"main": provider}, **OWN}) as live:
            body = {"stream": stream, "model": STRICT, **own}
            headers = {"anthropic-beta": "one-1"}
            first = await ask(live, "I like tea", headers=headers, **body)
            if change == "edited":
                path = "/users/ada/blocks/human"
                await live.memory("PUT", path, json={"value": "Likes mate."})
            else:
                monkeypatch.setattr(Memory, "_begin", down)
                live.gateway.memory.lines.__init__(live.gateway.memory.db)
            talk = [user("I like tea"), said(first), user("What?")]
            await ask(live, talk, headers=headers, **body)
            sent = up.requests[-1]
            wanted = {"type": "adaptive", **(thinking or {}), **BINDING}
            assert sent.json["thinking"] == wanted
            assert sent.header("anthropic-beta").startswith("one-1,thinking-binding")


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}},
        {"type": "enabled", "budget_tokens": 2000},
        {"type": "disabled"},
    ],
)
async def test_what_the_client_says_of_its_thinking_stays(data, stream, thinking):
    async with MessagesModel("Hi.") as up:
        provider = {"kind": "anthropic", "base_url": up.url}
        async with running("", data, {"providers": {"main": provider}}) as live:
            await ask(live, "Hello", stream=stream, model=STRICT, thinking=thinking)
            assert up.bodies[0]["thinking"] == thinking

"""One user's memory follows from model to model: a conversation that begins with one and goes on
with another stays valid for both.
"""

from __future__ import annotations

import contextlib
import json

import pytest

from tests.conftest import events, running, said
from tests.contract.messages_server import Messages
from tests.e2e.wire.reading import WEATHER, both
from tests.models import Model, call, calls

TEA = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "toolu_mem")
OSLO = call("get_weather", {"city": "Oslo"}, "toolu_w")
KNOWN = {"role", "content", "name", "refusal", "tool_calls", "tool_call_id"}


class Strict(Model):
    """An OpenAI server that refuses members it does not know, and calls without their results.

    faults: what it found.
    """

    def __init__(self, *script):
        super().__init__(*script)
        self.faults = []

    async def _behave(self, seen, wire):
        if seen.path.endswith("/chat/completions"):
            self.faults += list(self._faults(seen.json["messages"]))
        await super()._behave(seen, wire)

    def _faults(self, messages):
        waiting = []
        for message in messages:
            if unknown := set(message) - KNOWN:
                yield f"unknown members {unknown}"
            for made in message.get("tool_calls") or []:
                if unknown := set(made) - {"id", "type", "function"}:
                    yield f"unknown members of a call {unknown}"
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    yield f"a result without its call: {message['tool_call_id']}"
                else:
                    waiting.remove(message["tool_call_id"])
            elif waiting:
                yield f"calls without results: {waiting}"
            if message["role"] == "assistant":
                waiting = [c["id"] for c in message.get("tool_calls") or []]
        if waiting:
            yield f"calls without results: {waiting}"


@contextlib.asynccontextmanager
async def two_models(data, claude_script, gpt_script, **config):
    """A gateway with the model `claude` at a Messages server and `gpt` at an OpenAI one; neither
    may find a fault.
    """
    async with Messages(*claude_script) as claude, Strict(*gpt_script) as gpt:
        providers = {"a": {"kind": "anthropic", "base_url": claude.url}, "o": {"base_url": gpt.url}}
        models = {
            "claude": {"targets": [{"provider": "a", "model": "claude-haiku-4-5"}]},
            "gpt": {"targets": [{"provider": "o", "model": "gpt-4o"}]},
        }
        async with running(
            claude.url, data, {"providers": providers, "models": models, **config}
        ) as live:
            yield claude, gpt, live
        assert (claude.refusals, gpt.faults) == ([], [])


async def turn(live, model, history, stream, **body):
    """One turn; the answer joins the history as an SDK would send it back, unknown members and
    all.
    """
    answer = await live.chat(history, model=model, stream=stream, user="ada", **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-memory-status"] == "ok"
    if not stream:
        message = answer.json()["choices"][0]["message"]
    else:
        found = [c["choices"][0]["delta"] for c in events(answer.text)[:-1] if c["choices"]]
        message = {"role": "assistant", "content": said(events(answer.text)[:-1]) or None}
        made = {}
        for delta in found:
            for piece in delta.get("tool_calls") or []:
                kept = made.setdefault(
                    piece["index"],
                    {
                        "id": piece.get("id"),
                        "type": "function",
                        "function": {"name": "", "arguments": ""},
                    },
                )
                for member in ("name", "arguments"):
                    kept["function"][member] += piece["function"].get(member) or ""
            if delta.get("thinking_blocks"):
                message.setdefault("thinking_blocks", []).extend(delta["thinking_blocks"])
            if delta.get("reasoning_content"):
                message["reasoning_content"] = (
                    message.get("reasoning_content", "") + delta["reasoning_content"]
                )
        if made:
            message["tool_calls"] = list(made.values())
    history.append(message)
    return message


def thinking(*blocks):
    return [{"type": "thinking", "thinking": "Hm.", "signature": ""}, *blocks]


def used(made):
    return {
        "type": "tool_use",
        "id": made["id"],
        "name": made["function"]["name"],
        "input": json.loads(made["function"]["arguments"]),
    }


@both
@pytest.mark.parametrize("first", ["claude", "gpt"])
async def test_a_conversation_goes_on_with_another_model(data, first, stream):
    """Even amid a tool loop: one model calls a tool of ours and one of the client's, the other gets
    the results.
    """
    second = "gpt" if first == "claude" else "claude"
    scripts = {
        first: [
            thinking(used(TEA), used(OSLO)) if first == "claude" else calls(TEA, OSLO),
            "Sun now.",
        ],
        second: ["It rains.", "Bye."],
    }
    async with two_models(data, scripts["claude"], scripts["gpt"]) as (claude, gpt, live):
        history = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "I like tea. How is Oslo?"},
        ]
        made = (await turn(live, first, history, stream, tools=[WEATHER]))["tool_calls"]
        assert [c["function"]["name"] for c in made] == ["get_weather"]
        history.append({"role": "tool", "tool_call_id": made[0]["id"], "content": "rain"})
        assert (await turn(live, second, history, stream, tools=[WEATHER]))[
            "content"
        ] == "It rains."
        for model, question, said_then in (
            (first, "And now?", "Sun now."),
            (second, "Thanks.", "Bye."),
        ):
            history.append({"role": "user", "content": question})
            assert (await turn(live, model, history, stream, tools=[WEATHER]))[
                "content"
            ] == said_then
        for up in (claude, gpt):
            sent = [json.dumps(body) for body in up.bodies]
            assert "mnemogate_by" not in "".join(sent)
            # The hidden exchange is in its place for either.
            assert "toolu_mem" in sent[-1]
            assert "Likes tea" in sent[-1]


@both
async def test_what_one_model_was_told_the_other_knows_in_a_new_conversation(data, stream):
    async with two_models(data, [calls(TEA), "Noted."], ["You like tea."]) as (_, gpt, live):
        await turn(live, "claude", [{"role": "user", "content": "I like tea"}], stream)
        await turn(live, "gpt", [{"role": "user", "content": "What do I like?"}], stream)
        system = gpt.bodies[0]["messages"][0]
        assert system["role"] == "system"
        assert "Likes tea" in system["content"]


@both
async def test_a_fallback_to_another_kind_amid_hidden_rounds_is_valid_there(data, stream):
    down = (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    async with Messages(thinking(used(TEA)), down) as claude, Strict("Noted.") as gpt:
        providers = {"a": {"kind": "anthropic", "base_url": claude.url}, "o": {"base_url": gpt.url}}
        models = {
            "m": {
                "targets": [{"provider": "a", "model": "claude-haiku-4-5"}],
                "fallbacks": ["gpt"],
            },
            "gpt": {"targets": [{"provider": "o", "model": "gpt-4o"}]},
        }
        config = {"providers": providers, "models": models}
        async with running(claude.url, data, config) as live:
            message = await turn(live, "m", [{"role": "user", "content": "I like tea"}], stream)
        assert message["content"] == "Noted."
        assert (claude.refusals, gpt.faults) == ([], [])
        assert [m["role"] for m in gpt.bodies[0]["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]


@both
async def test_a_cheap_model_summarises_while_the_requests_model_answers(data, stream):
    async with Messages("fine") as claude, Strict("They spoke of words.") as gpt:
        providers = {"a": {"kind": "anthropic", "base_url": claude.url}, "o": {"base_url": gpt.url}}
        models = {
            "m": {
                "targets": [{"provider": "a", "model": "claude-haiku-4-5"}],
                "context_window": 4000,
            },
            "cheap": {"targets": [{"provider": "o", "model": "gpt-4o-mini"}]},
        }
        config = {
            "providers": providers,
            "models": models,
            "memory.summarizer": "cheap",
            "memory.tools": "never",
        }
        async with running(claude.url, data, config) as live:
            long = [
                {"role": r, "content": f"{i} " + "word " * 250}
                for i in range(8)
                for r in ("user", "assistant")
            ]
            await turn(live, "m", [*long, {"role": "user", "content": "on"}], stream, max_tokens=50)
        assert (len(gpt.bodies), len(claude.bodies)) == (1, 1)
        assert "They spoke of words." in claude.bodies[0]["system"][-1]["text"]
        assert (claude.refusals, gpt.faults) == ([], [])

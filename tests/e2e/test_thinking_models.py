"""Models that think: their thoughts are no text of a summary, a fact or an item, an answer that was
cut off is asked for once more with more room, and each is asked in its own dialect.
"""

from __future__ import annotations

import json

import pytest

from gateway.models.facts import ModelFacts, facts_file
from gateway.models.thinking import ThinkingModels
from gateway.wire.token_limits import TokenLimits, refused_member, rename_limit
from memory.stores.sql.engine import schema as t
from tests.conftest import running
from tests.e2e.test_background import rows, settled
from tests.e2e.test_extraction import CONFIG, Chat, asked, due, fact, human, talk
from tests.models import Model, text

THOUGHTS = 'The user says {a lot} [1]. Let me see: {"operations": [\n\n'
ADA = json.dumps({"operations": [fact("The user is called Ada", "I am Ada", type="identity")]})
WINDOW = {"models": {"m": {"targets": [{"provider": "openai"}], "context_window": 3000}}}


def limit_of(body):
    return body.get("max_tokens") or body.get("max_completion_tokens")


def facts_from(*answers):
    left = list(answers)

    def scripted(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You keep the long-term"):
            return left.pop(0)
        return "I see."

    return scripted


@pytest.mark.parametrize(
    "answer",
    [
        f"<think>{THOUGHTS}</think>\n{ADA}",
        f"{THOUGHTS}</think>\n{ADA}",
        f"[THINK]{THOUGHTS}[/THINK]{ADA}",
    ],
)
async def test_thoughts_are_no_facts(data, answer):
    async with Model(facts_from(answer)) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "I am Ada")
        assert await human(live) == "The user is called Ada"


async def test_an_answer_that_was_cut_off_is_asked_for_once_more_with_more_room(data):
    script = facts_from(text("<think>I wonder", "length"), ADA, ADA)
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        chat = await talk(live, "I am Ada")
        assert await human(live) == "The user is called Ada"
        background = [b for b in up.bodies if "You keep" in b["messages"][0]["content"]]
        first, grown = map(limit_of, background)
        assert grown >= first + 10_000
        await chat.say("I am Ada, as I said")
        background = [b for b in up.bodies if "You keep" in b["messages"][0]["content"]]
        # It is known by now.
        assert limit_of(background[2]) > first
        assert len(background) == 3


async def test_an_answer_that_is_cut_off_again_is_no_answer(data):
    script = facts_from(*[text(ADA, "length")] * 6)
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "I am Ada")
        for _ in range(3):
            await due(live, t.jobs.c.attempts > 0)
        assert len(asked(up)) == 6
        assert await human(live) == ""
        assert {n["unread"] for n in await rows(live, t.nodes)} == {2}


async def test_cut_thoughts_are_no_summary_and_whole_ones_no_part_of_it(data):
    """The text of a summary is what the model says behind its thoughts."""
    sent = []

    def scripted(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You compress"):
            sent.append(limit_of(seen.json))
            if len(sent) == 1:
                return text("<think>PLAN, cut off in the", "length")
            return "<think>PLAN</think>SUMMARY of it"
        return "<think>PLAN of mine</think>" + "a reply of some length, with words " * 20

    async with Model(scripted) as up, running(up.url, data, WINDOW) as live:
        history = []
        for i in range(16):
            history.append({"role": "user", "content": f"q{i} " + "tell me more of this " * 10})
            answer = await live.chat(history, user="ada", max_tokens=200)
            history.append(answer.json()["choices"][0]["message"])
            await settled(live)
        summaries = [r["content"] for r in await rows(live, t.summaries)]
        assert summaries
        assert all(s.startswith("SUMMARY of it") for s in summaries)
        assert sent[1] > sent[0]
        prompts = [b for b in up.bodies if b["messages"][0]["content"].startswith("You compress")]
        assert not [b for b in prompts if "PLAN" in json.dumps(b)]


async def test_thoughts_of_an_assistant_are_recalled_nowhere(data):
    config = {**CONFIG, "memory.extract": "off", "memory.recall": "always"}

    def scripted(seen, wire):
        return "<think>PLAN about the hazelnut tart recipe</think>A hazelnut tart needs butter."

    async with Model(scripted) as up, running(up.url, data, config) as live:
        await Chat(live).say("I want my hazelnut tart recipe", "thanks for the hazelnut tart")
        await Chat(live).say("Which hazelnut tart recipe did I want?")
        recalled = json.dumps(up.bodies[-1])
        assert "<recalled_memory" in recalled
        assert "PLAN" not in recalled
        contents = {m["content"] for m in await rows(live, t.messages)}
        assert not [c for c in contents if "PLAN" in c]


class Newer:
    """A server of GPT-5's kind: it refuses `max_tokens`."""

    def __init__(self, script, wanted="max_completion_tokens"):
        self.script, self.wanted = script, wanted
        self.refused = 0

    def __call__(self, seen, wire):
        other = {"max_tokens", "max_completion_tokens"} - {self.wanted}
        if wrong := other & seen.json.keys():
            self.refused += 1
            (name,) = wrong
            message = (
                f"Unsupported parameter: '{name}' is not supported with this model. "
                f"Use '{self.wanted}' instead."
            )
            error = {"message": message, "type": "invalid_request_error", "param": name}
            return 400, {"error": {**error, "code": "unsupported_parameter"}}
        return self.script(seen, wire)


@pytest.mark.parametrize("wanted", ["max_completion_tokens", "max_tokens"])
@pytest.mark.parametrize("model", ["m", "gpt-5-mini"])
async def test_background_calls_speak_the_targets_dialect(data, wanted, model):
    server = Newer(facts_from(ADA, ADA, ADA), wanted)
    config = {
        **CONFIG,
        "models": {model: {"targets": [{"provider": "openai"}], "supports_tools": False}},
    }
    async with Model(server) as up, running(up.url, data, config) as live:
        chat = Chat(live)
        await chat.say("hello", "I am Ada", "I am Ada, really", model=model)
        assert await human(live) == "The user is called Ada"
        # at most one refusal, then it is known
        expected = (model == "m") == (wanted == "max_completion_tokens")
        assert server.refused == int(expected)


REFUSALS = [
    (400, {"error": {"message": "Unsupported parameter: 'max_tokens'", "param": "max_tokens"}}),
    (400, {"error": {"message": "Bad value", "param": "max_tokens", "code": "x"}, "max_tokens": 1}),
    (422, {"detail": [{"loc": ["body", "max_tokens"], "msg": "extra fields not permitted"}]}),
    (400, {"message": "Unknown field: max_tokens"}),
    (400, "max_tokens is deprecated, use max_completion_tokens instead"),
]


@pytest.mark.parametrize(("status", "error"), REFUSALS)
def test_a_refusal_of_the_member_is_told_from_one_of_its_value(status, error):
    body = json.dumps(error).encode()
    sent = b'{"model":"m","max_tokens":5}'
    assert refused_member(status, sent, body) == "max_completion_tokens"
    assert refused_member(500, sent, body) == ""
    assert refused_member(status, b'{"model":"m"}', body) == ""
    assert refused_member(status, sent, b'{"error": {"message": "bad model", "param": "x"}}') == ""
    value = b"max_tokens is too large: 9000. This model supports at most 4096 completion tokens"
    assert refused_member(status, sent, value) == ""


def test_a_limit_is_renamed_in_place_and_a_model_is_known_by_its_name():
    assert rename_limit(b'{"a":1,"max_tokens":5}', "max_completion_tokens") == (
        b'{"a":1,"max_completion_tokens":5}'
    )
    assert rename_limit(b'{"a":1}', "max_tokens") == b'{"a":1}'
    limits = TokenLimits()
    newer = ("gpt-5", "gpt-5.2-pro", "openai/gpt-5-mini", "o1", "o3-mini", "o4-mini-2025")
    older = ("gpt-4o", "gpt-oss-20b", "llama3", "omni", "o", "m", "qwen3:8b")
    assert {limits.member_of(m) for m in newer} == {"max_completion_tokens"}
    assert {limits.member_of(m) for m in older} == {"max_tokens"}
    limits.note("m", "max_completion_tokens")
    assert limits.member_of("m") == "max_completion_tokens"


THINKING = [
    *("gpt-5", "gpt-5-mini", "o1", "o3", "o4-mini", "gpt-oss:20b", "deepseek-reasoner"),
    *("deepseek-r1:8b", "deepseek/deepseek-r1-0528", "qwq:32b", "qwen3:8b", "grok-4", "glm-4.6"),
    *("magistral-small-2509", "gemini-2.5-flash", "gemini-3-pro-preview", "kimi-k2-thinking"),
    *("phi-4-reasoning", "qwen/qwen3-30b-a3b-thinking", "DeepSeek-R1-Distill-Llama-8B"),
]
OTHERS = [
    *("gpt-4o", "gpt-4.1-mini", "llama3.1:8b", "mistral-small", "claude-3-5-haiku", "m", "demo"),
    *("gemini-2.0-flash", "gpt-3.5-turbo", "deepseek-chat", "qwen2.5:7b", "phi4", "gemma3"),
]


def test_models_that_think_are_known_by_their_facts_or_their_names():
    facts, models = ModelFacts.load(facts_file()).of, ThinkingModels()
    assert [m for m in THINKING if not models.thinks(m, facts(m))] == []
    assert [m for m in OTHERS if models.thinks(m, facts(m))] == []
    models.note("demo")
    assert models.thinks("demo", {})

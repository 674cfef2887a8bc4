"""The context window is asked of the server, or learnt from what it refuses and cuts."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.sockets import RawServer

WINDOW = 4096
SECRET = "The code word is heron."


def user(content):
    return {"role": "user", "content": content}


def tokens(messages, tools=()):
    """What the double counts: of English some four characters a token, and the template's."""
    texts = [m["content"] or "" for m in messages]
    return sum(4 + len(text) // 4 for text in texts) + len(json.dumps(tools)) // 4


class Ollama(RawServer):
    """Serves one model with a true window, as Ollama does.

    A prompt beyond the window loses its oldest messages without a word, and `prompt_tokens` is what
    was left. tells: whether /api/ps and /api/show say so. refuses: a longer prompt gets an error
    instead. The model answers from what it read.
    """

    def __init__(self, tells=True, refuses=None, window=WINDOW):
        super().__init__(self._reply_to)
        self.tells, self.refuses, self.window = tells, refuses, window
        self.loaded = False
        self.sent, self.cuts, self.refused = [], 0, 0

    async def _reply_to(self, seen, wire):
        if seen.path.endswith("/chat/completions"):
            await self._answer(seen.json, wire)
        elif seen.path == "/v1/models":
            listed = [{"id": "m:latest", "object": "model", "owned_by": "library"}]
            await wire.json({"object": "list", "data": listed})
        elif not self.tells or not seen.path.startswith("/api/"):
            await wire.json({"error": "not found"}, 404)
        elif seen.path == "/api/ps":
            there = [{"name": "m:latest", "context_length": self.window}] if self.loaded else []
            await wire.json({"models": there})
        else:
            assert seen.json == {"model": "m"}
            info = {"general.architecture": "llama", "llama.context_length": 131072}
            await wire.json({"model_info": info, "parameters": "stop  eot"})

    async def _answer(self, body, wire):
        self.loaded = True
        messages, tools = body["messages"], body.get("tools", [])
        self.sent.append(tokens(messages, tools))
        if self.refuses is not None and self.sent[-1] > self.window:
            self.refused += 1
            return await wire.json({"error": {"message": self.refuses}}, 400)
        read = list(messages)
        while tokens(read, tools) > self.window and len(read) > 2:
            del read[1 if read[0]["role"] == "system" else 0]
        self.cuts += len(read) < len(messages)
        content = self._words(read)
        count = tokens(read, tools)
        usage = {"prompt_tokens": count, "completion_tokens": 9, "total_tokens": count + 9}
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        return await wire.json({**reply, "choices": [choice], "usage": usage})

    def _words(self, read):
        text = json.dumps(read)
        if read[0]["content"].startswith("You keep the long-term memory"):
            return '{"operations": []}'
        if read[0]["content"].startswith("You compress"):
            return f"They talked. {SECRET}" if SECRET in text else "They talked."
        if "code word?" not in read[-1]["content"]:
            return "Certainly, and here is something more about it for you to read. " * 4
        return "heron" if SECRET in text else "You never told me."


async def talk(live, turns, **body):
    """A chat whose first turn tells the code word; its whole history is sent each time."""
    history, answers = [], []
    for i in range(turns):
        told = SECRET if i == 0 else f"Now tell me something about number {i}, " + "please do " * 12
        history.append(user(told))
        answers.append(await live.chat(history, user="ada", **body))
        assert answers[-1].status_code == 200, answers[-1].text
        history.append(answers[-1].json()["choices"][0]["message"])
    history.append(user("And what was the code word?"))
    answers.append(await live.chat(history, user="ada", **body))
    return answers


# Neither recall nor extraction tells the model what compaction forgot.
ASKING = {
    "routing": {"ask_windows": True},
    "memory.extract": "off",
    "memory.recall": "tools",
}


# What a user gets who sets nothing: this model never calls its memory.
DEFAULTS = {"routing": {"ask_windows": True}}


@pytest.mark.parametrize("config", [ASKING, DEFAULTS], ids=["quiet", "defaults"])
async def test_sixty_turns_over_a_server_that_cuts_silently_keep_their_first(data, config):
    async with Ollama() as up, running(up.url, data, config) as live:
        answers = await talk(live, 60)
    assert answers[-1].json()["choices"][0]["message"]["content"] == "heron"
    assert max(up.sent) <= WINDOW
    assert up.cuts == 0
    assert {a.headers["x-memory-status"] for a in answers} == {"ok"}
    questions = [r for r in up.requests if not r.path.endswith("/chat/completions")]
    assert {r.header("authorization") for r in questions} == {"Bearer sk-sentinel-4f1d"}
    assert len(questions) < 10


async def test_a_silent_cut_is_told_once_and_learnt_as_the_window(data, caplog):
    caplog.set_level("WARNING", "mnemogate")
    async with Ollama(tells=False) as up, running(up.url, data, ASKING) as live:
        answers = await talk(live, 60)
        degraded = [a for a in answers if a.headers["x-memory-status"] == "degraded"]
        assert len(degraded) == 1
        assert "cut the request" in degraded[0].headers["x-memory-reason"]
        token = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        explain = degraded[0].headers["x-memory-explain"]
        record = await live.memory("GET", f"/explain/{explain}", headers=token)
        assert any("cut the request" in remark for remark in record.json()["remarks"])
    assert up.cuts <= 3
    assert len([r for r in caplog.records if "cut a prompt" in r.message]) == 1
    assert answers[-1].json()["choices"][0]["message"]["content"] == "heron"


@pytest.mark.parametrize(
    "refusal",
    [
        "This model's maximum context length is 4096 tokens. However, your messages resulted in "
        "5000 tokens.",
        "The prompt exceeds the context window.",
    ],
)
async def test_after_a_refusal_for_length_the_next_plans_fit(data, refusal):
    async with Ollama(tells=False, refuses=refusal) as up, running(up.url, data, ASKING) as live:
        answers = await talk(live, 60)
    assert up.refused <= 3
    assert answers[-1].json()["choices"][0]["message"]["content"] == "heron"
    assert {a.headers["x-memory-status"] for a in answers} == {"ok"}

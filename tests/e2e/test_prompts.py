"""The operator's own texts: in place of the shipped ones, from the next request on."""

from __future__ import annotations

import pytest

from gateway.config.settings import ConfigError
from tests.conftest import running
from tests.models import Model

OWN = "Was mit {tag} beginnt, ist dein Gedaechtnis."


async def test_an_own_instruction_stands_before_the_blocks_and_begins_a_new_epoch(data):
    async with Model("Hi.", "Again.") as up:
        async with running(up.url, data) as live:
            first = await live.chat("Hello", user="ada")
        said = [
            {"role": "user", "content": "Hello"},
            first.json()["choices"][0]["message"],
            {"role": "user", "content": "More"},
        ]
        assert "Gedaechtnis" not in str(up.bodies[-1])
        async with running(up.url, data, {"memory.prompts": {"instruction": OWN}}) as live:
            again = await live.chat(said, user="ada")
            core = up.bodies[-1]["messages"][0]["content"]
            assert core.startswith("Was mit ")
            assert "{tag}" not in core
            assert "<memory_blocks" in core
            same = again.headers["x-memory-conversation"]
            assert same == first.headers["x-memory-conversation"]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({"instruction": "No place for it."}, "needs {tag}"),
        ({"summary": "In {words} words, {please}."}, "{please}, {words}"),
        ({"extraction": "{"}, "braces"),
        ({"reflection": "x"}, "reflection"),
    ],
)
async def test_a_text_without_its_placeholders_is_refused_at_the_start(data, texts, told):
    with pytest.raises(ConfigError, match=told.replace("{", r"\{")):
        async with running("http://127.0.0.1:9", data, {"memory.prompts": texts}):
            pass

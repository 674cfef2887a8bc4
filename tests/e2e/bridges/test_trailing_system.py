"""A program's own instructions behind its user's newest message change nothing for memory."""

from __future__ import annotations

import json

import pytest

from tests.chat_only_model import ChatOnlyModel
from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT
from tests.wire_models import use

REMIND = {"role": "system", "content": "Answer in English."}
FIRST = {"role": "system", "content": "You are kind."}


def user(text):
    return {"role": "user", "content": text}


class Anything(ChatOnlyModel):
    def check(self, body):
        return ()


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("lead", [[], [FIRST]], ids=["without", "with"])
@pytest.mark.parametrize("stays", [False, True])
async def test_what_changed_elsewhere_is_told_and_the_core_stays(data, role, lead, stays):
    remind = {**REMIND, "role": role}
    script = ["One.", [use(APPEND, FACT)], "Noted.", "Two.", "Three."]
    async with Anything(*script) as up, running(up.url, data) as live:
        history = [*lead, user("Hi")]
        for words in ("One.", "Two.", "Three."):
            http = await live.chat([*history, remind], user="ada")
            assert http.json()["choices"][0]["message"]["content"] == words
            history += [remind] if stays else []
            history += [{"role": "assistant", "content": words}, user(f"after {words}")]
            if words == "One.":
                await live.chat([user("I like tea")], user="ada")
        first, *_, second, third = (b["messages"] for b in up.bodies)
        # The core, in one place.
        assert second[0] == first[0]
        assert third[0] == first[0]
        for messages in (second, third):
            (told,) = [m for m in messages if "Likes tea" in json.dumps(m)]
            assert told["role"] == "user"
            assert "after One." in told["content"]
            assert [m for m in messages[1:] if m["role"] == role][-1] == remind

"""A secret that is said in a chat is indexed, recalled, extracted and shown nowhere.

Only the history of its own conversation, where that is kept here, still has it.
"""

from __future__ import annotations

import json

import pytest

from memory.stores.sql.engine import schema as t
from tests.conftest import running
from tests.e2e.test_background import rows, settled
from tests.e2e.test_extraction import CONFIG, Chat, asked, fact, kept, proposing
from tests.e2e.test_faults import REMEMBER, breaking
from tests.models import Model

SECRETS = {
    "API key": "sk-" + "a1B2" * 8,
    "password": "hunter2!x",
    "card number": "4111 1111 1111 1111",
    "URL password": "s3cr3tpw",
}
SAID = {
    "API key": "My key for the boat server is {}, keep it",
    "password": "My password for the boat server is {}",
    "card number": "Please pay for the boat with {} today",
    "URL password": "The boat server is at postgres://app:{}@db.example.org/x now",
}
ALWAYS = {**CONFIG, "memory.recall": "always"}


async def stored(live):
    """Everything that the database says of messages, passages, drops and explain records."""
    tables = (t.passages, t.blocks, t.block_versions, t.dropped, t.explains)
    found = [str(r) for table in tables for r in await rows(live, table)]
    said = [(m["content"], m["body"]) for m in await rows(live, t.messages)]
    return json.dumps(found), said


@pytest.mark.parametrize("kind", SECRETS)
async def test_a_secret_is_kept_recalled_extracted_and_shown_nowhere(data, kind):
    secret = SECRETS[kind]
    line = SAID[kind].format(secret)
    told = secret if kind in ("API key", "card number") else "[removed]"
    script = proposing(
        [fact(f"The boat server has {told}", "the boat"), fact("There is a boat", "the boat")]
    )
    async with Model(script) as up, running(up.url, data, ALWAYS) as live:
        await Chat(live).say("hello", line, "I like the boat")
        await Chat(live).say("What do you know of the boat server?")
        recalled = json.dumps(up.bodies[-1]["messages"])
        assert "boat" in recalled
        assert secret not in recalled
        assert secret not in json.dumps(asked(up))
        found, said = await stored(live)
        assert secret not in found
        assert secret not in json.dumps(said)
        assert any("[removed: " in content for content, _ in said)
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        for path in (
            "/users/ada/messages/search?q=boat",
            f"/users/ada/messages/search?q={secret.split()[0]}",
            "/users/ada/dropped",
        ):
            answer = await live.memory("GET", path, headers=local)
            assert answer.status_code == 200
            assert secret not in answer.text
        assert secret not in json.dumps(await kept(live))


async def test_a_history_that_is_kept_here_still_has_it_and_shows_it_nowhere(data):
    secret = SECRETS["API key"]
    config = {**CONFIG, "memory.extract": "off"}
    async with Model("ok") as up, running(up.url, data, config) as live:
        headers = {"x-memory-conversation": "boats"}
        for text in (f"my key is {secret}", "and now?"):
            said = [{"role": "user", "content": text}]
            answer = await live.chat(said, headers, user="ada")
            assert answer.status_code == 200
            await settled(live)
        assert secret in json.dumps(up.bodies[-1]["messages"])
        contents = [m["content"] for m in await rows(live, t.messages)]
        assert secret not in json.dumps(contents)
        local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        for path in ("/conversations/boats?user=ada", "/users/ada/conversations/boats/messages"):
            answer = await live.memory("GET", path, headers=local)
            assert answer.status_code == 200
            assert "[removed: API key]" in answer.text
            assert secret not in answer.text


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("named", [False, True])
async def test_a_secret_that_went_through_the_recovery_log_is_indexed_nowhere(
    data, monkeypatch, kind, named
):
    """The store was down as the answer ended: the turn is stored later, from a file."""
    secret = SECRETS[kind]
    line = SAID[kind].format(secret)
    headers = {"x-memory-conversation": "boats"} if named else {}
    config = {"memory.extract": "off", "memory.recall": "always"}
    async with Model(REMEMBER, line, "ok") as up:
        async with running(up.url, data, config) as live:
            await live.gateway.memory.wait_until_ready()
            await live.stop_worker()
            with monkeypatch.context() as patch:
                breaking(patch, writes=3)
                first = await live.chat("Where is the boat server?", headers, user="ada")
            assert secret in first.text
            assert (data / "spill.ndjson").exists()
            assert named or secret.encode() not in (data / "spill.ndjson").read_bytes()
        async with running(up.url, data, config) as live:
            await live.gateway.memory.wait_until_ready()
            assert not (data / "spill.ndjson").exists()
            await settled(live)
            contents = [m["content"] for m in await rows(live, t.messages)]
            assert secret not in json.dumps(contents)
            assert "[removed: " in json.dumps(contents)
            local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
            for words in ("boat server", secret.split()[0]):
                path = f"/users/ada/messages/search?q={words}"
                assert secret not in (await live.memory("GET", path, headers=local)).text
            await live.chat("What do you know of the boat server?", user="ada")
            assert secret not in json.dumps(up.bodies[-1]["messages"])
            if named:
                await live.chat("And now?", headers, user="ada")
                assert secret in json.dumps(up.bodies[-1]["messages"])


async def test_where_the_operator_wants_no_screen_nothing_is_left_out(data):
    config = {**CONFIG, "memory.screen": False, "memory.extract": "off"}
    async with Model("ok") as up, running(up.url, data, config) as live:
        await Chat(live).say(SAID["API key"].format(SECRETS["API key"]))
        assert SECRETS["API key"] in json.dumps(
            [m["content"] for m in await rows(live, t.messages)]
        )

"""Where a kept fact comes from: who said it, in which words; and what was edited away is gone."""

from __future__ import annotations

import pytest

from memory.stores.sql.engine import schema as t
from tests.conftest import running
from tests.e2e.test_background import rows, settled
from tests.e2e.test_extraction import CONFIG, Chat, asked, fact, human, kept, proposing
from tests.models import Model


async def say_as(chat, name, text):
    """One turn of a chat in which several speak."""
    message = {"role": "user", "content": text, **({"name": name} if name else {})}
    chat.history.append(message)
    answer = await chat.live.chat(chat.history, user=chat.user)
    assert answer.status_code == 200
    chat.history.append(answer.json()["choices"][0]["message"])
    await settled(chat.live)


async def managed(live, data, method, path, **options):
    """The management API, with the local token."""
    local = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
    return await live.memory(method, path, headers=local, **options)


async def test_a_kept_fact_tells_its_actor_its_message_and_its_quote(data):
    script = proposing(
        [
            fact("The user's cat is called Tom", "my cat is Tom"),
            fact("The user is called Ada", "I am Ada", type="identity"),
        ]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await Chat(live).say("hello", "I am Ada, and my cat is Tom")
        said = {m["content"]: m["public_id"] for m in await rows(live, t.messages)}
        source = said["I am Ada, and my cat is Tom"]
        listed = await managed(live, data, "GET", "/users/ada/passages")
        assert listed.status_code == 200, listed.text
        passage = listed.json()["data"][0]
        assert (passage["actor"], passage["source"], passage["quote"]) == (
            "extraction",
            source,
            "my cat is Tom",
        )
        versions = await managed(live, data, "GET", "/users/ada/blocks/human/versions")
        version = versions.json()["data"][0]
        assert (version["actor"], version["tool_call_id"], version["quote"]) == (
            "extraction",
            source,
            "I am Ada",
        )
        exported = (await managed(live, data, "GET", "/users/ada/export")).text
        assert '"quote":"my cat is Tom"' in exported
        r = await managed(live, data, "POST", "/users/eve/import", content=exported.encode())
        assert r.status_code == 200
        copied = (await managed(live, data, "GET", "/users/eve/passages")).json()["data"][0]
        assert copied["quote"] == "my cat is Tom"


async def test_where_several_speak_a_fact_names_whom_it_is_about(data):
    script = proposing(
        [fact("The user hates coriander", "I hate coriander", type="preference")],
        [fact("Bob loves coriander", "I love coriander", type="preference")],
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        chat = Chat(live, "family")
        await say_as(chat, "bob", "hello, we are two here and I am the father")
        await say_as(chat, "alice", "I hate coriander")
        await say_as(chat, "bob", "I love coriander")
        assert '<user name="alice"' in asked(up)[-2]
        assert '<user name="bob"' in asked(up)[-1]
        facts = {p["content"]: p["speaker"] for p in await rows(live, t.passages)}
        assert facts == {"alice: The user hates coriander": "alice", "Bob loves coriander": "bob"}
        assert await human(live) == ""
        hits = await managed(live, data, "GET", "/users/family/messages/search?q=coriander")
        assert {h["speaker"] for h in hits.json()["data"] if h["role"] == "user"} == {
            "alice",
            "bob",
        }


async def test_one_speaker_with_a_name_is_the_user(data):
    script = proposing([fact("The user is a vet", "I am a vet", type="identity")])
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        chat = Chat(live)
        await say_as(chat, "ada", "hello, I have some news for you")
        await say_as(chat, "ada", "I am a vet")
        assert await human(live) == "The user is a vet"
        assert await rows(live, t.passages) == []


async def test_recall_says_who_spoke(data):
    config = {"memory.recall": "always", "memory.extract": "off"}
    async with Model("So be it.") as up, running(up.url, data, config) as live:
        await say_as(Chat(live, "family"), "alice", "I am severely allergic to hazelnuts.")
        await say_as(Chat(live, "family"), "bob", "Suggest a cake with hazelnuts.")
        sent = str(up.bodies[-1]["messages"])
        assert ", user alice) I am severely allergic to hazelnuts." in sent


async def test_who_spoke_is_known_of_a_message_with_an_image(data):
    """Wherever its client tells the name; what its content says is no name."""
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'iVBO' * 8000}"}}
    messages = [
        {
            "role": "user",
            "name": "ali\u00e7e",
            "content": [{"type": "text", "text": "tulips"}, image],
        },
        {"role": "user", "content": [image, {"type": "text", "text": "roses"}], "name": 'b"ob'},
        {"role": "user", "content": [image, {"type": "text", "text": 'lilies","name":"eve"}'}]},
    ]
    async with (
        Model("So be it.") as up,
        running(up.url, data, {"memory.extract": "off"}) as live,
    ):
        await live.chat(messages, user="family")
        hits = await managed(live, data, "GET", "/users/family/messages/search?limit=10")
        speakers = {h["content"][:6]: h["speaker"] for h in hits.json()["data"]}
        assert speakers == {"tulips": "aliçe", "roses": 'b"ob', "lilies": None, "So be ": None}


# As chats name themselves: not at all, by a header of ours, by one of their program's.
CHATS = [{}, {"x-memory-conversation": "c1"}, {"x-openwebui-chat-id": "c1"}]
PENICILLIN = fact("The user is allergic to penicillin", "allergic to penicillin")
PISTACHIO = fact("The user is allergic to pistachio", "allergic to pistachio")


@pytest.mark.parametrize("headers", CHATS[:2])
@pytest.mark.parametrize("type_", ["fact", "identity"])
async def test_what_was_edited_away_is_forgotten_once_its_replacement_is_read(data, type_, headers):
    script = proposing(
        [{**PENICILLIN, "type": type_}],
        [{**PISTACHIO, "type": type_}],
        [],
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        chat = Chat(live)
        await chat.say("hello, I am new here and glad", headers=headers)
        before = list(chat.history)
        await chat.say("I am allergic to penicillin", headers=headers)
        chat.history = before
        words = ("I am allergic to pistachio", "I also have a small dog")
        await chat.say(*words, headers=headers)
        standing = [text for text, _, by in await kept(live) if by is None]
        standing += [line for line in (await human(live)).split("\n") if line]
        assert standing == ["The user is allergic to pistachio"]
        if type_ == "fact":
            assert [by for _, _, by in await kept(live)] == ["edited", None]
            ident = (await rows(live, t.passages))[0]["public_id"]
            assert (
                await managed(live, data, "POST", f"/users/ada/passages/{ident}/restore")
            ).status_code == 200
        hits = await managed(live, data, "GET", "/users/ada/messages/search?q=penicillin")
        replaced = {h["content"]: h["replaced"] for h in hits.json()["data"]}
        assert replaced.pop("I am allergic to penicillin")
        assert not replaced.get("I am allergic to pistachio")


@pytest.mark.parametrize("headers", CHATS[1:])
async def test_a_first_message_that_was_edited_is_replaced_in_a_chat_that_has_a_name(data, headers):
    config = {**CONFIG, "memory.recall": "always"}
    async with (
        Model(proposing([PENICILLIN], [PISTACHIO])) as up,
        running(up.url, data, config) as live,
    ):
        first, edited = Chat(live), Chat(live)
        await first.say("I am allergic to penicillin", "I live in Lyon", headers=headers)
        await edited.say("I am allergic to pistachio", "I live in Lyon too", headers=headers)
        assert [by for _, _, by in await kept(live)] == ["edited", None]
        await Chat(live).say("Which penicillin allergy do I have?")
        assert "allergic to pistachio" in str(up.bodies[-1]["messages"])
        assert "allergic to penicillin" not in str(up.bodies[-1]["messages"])
        (found,) = (await managed(live, data, "GET", "/users/ada/conversations")).json()["data"][1:]
        assert (found["id"], found["forked_from"]) == ("c1", None)


@pytest.mark.parametrize("openings", [("Good morning", "Good evening"), ("hello",) * 2])
async def test_a_new_talk_under_the_name_of_another_replaces_nothing(data, openings):
    """A bot that was started anew goes on under the name of its channel."""
    script = proposing([PENICILLIN], [PISTACHIO])
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        for opening, matter in zip(openings, ("penicillin", "pistachio"), strict=True):
            words = (opening, f"I am allergic to {matter}")
            await Chat(live).say(*words, headers={"x-memory-conversation": "channel"})
        assert [by for _, _, by in await kept(live)] == [None, None]


async def test_among_several_speakers_no_line_is_about_the_user(data):
    """Neither by a message without a name."""
    script = proposing([], [fact("The user is a vet", "I am a vet", type="identity")])
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        chat = Chat(live, "family")
        await say_as(chat, "bob", "hello, we are two here and I am the father")
        await say_as(chat, "alice", "so we are")
        await chat.say("I am a vet")
        assert await human(live) == ""
        (passage,) = await rows(live, t.passages)
        assert (passage["content"], passage["speaker"]) == ("The user is a vet", None)


async def test_what_was_edited_away_is_neither_read_nor_recalled(data):
    config = {**CONFIG, "memory.extraction.every_turns": 4, "memory.recall": "always"}
    async with Model(proposing([])) as up, running(up.url, data, config) as live:
        chat = Chat(live)
        await chat.say("hello, I am new here and glad")
        before = list(chat.history)
        await chat.say("I am allergic to hazelnuts")
        chat.history = before
        await chat.say("I am allergic to pistachios", "I also have a dog", "I have a cat too")
        (read,) = asked(up)
        assert "pistachios" in read
        assert "hazelnuts" not in read
        dropped = (await managed(live, data, "GET", "/users/ada/dropped?reason=replaced")).json()[
            "data"
        ]
        assert len(dropped) == 1
        await Chat(live).say("Suggest a cake with hazelnuts and pistachios")
        sent = str(up.bodies[-1]["messages"])
        assert "allergic to pistachios" in sent
        assert "allergic to hazelnuts" not in sent


async def test_a_fact_that_a_new_answer_repeats_stays(data):
    script = proposing([fact("The user has a dog", "I have a dog")], [], [])
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        chat = Chat(live)
        await chat.say("hello, I am new here and glad")
        before = list(chat.history)
        await chat.say("I have a dog")
        chat.history = before
        await chat.say("I have a dog", "And I like the sea")
        assert [by for _, _, by in await kept(live)] == [None]

"""No filter is silent: what was not kept is in the job's record, with its reason, and a secret's
text is nowhere.
"""

from __future__ import annotations

import json
from typing import get_args

import pytest

from memory.search.drop_reasons import REASONS, STAGES, Reason
from memory.stores.sql import schema as t
from tests.conftest import running
from tests.e2e.test_background import rows, settled
from tests.e2e.test_extraction import CONFIG, Chat, asked, fact, kept, proposing, talk
from tests.models import Model

KEY = "sk-" + "a1B2" * 8


async def drops(live):
    return [(d["stage"], d["reason"], d["text"]) for d in await rows(live, t.dropped)]


async def test_each_proposed_fact_that_is_not_kept_has_its_reason(data):
    script = proposing(
        [
            fact("The user lives in Lyon", "I live in Lyon"),
            fact("The user lives in Lyon", "i live in lyon."),
            fact("The user hates tea", "I hate tea"),
            fact("The user is a pilot", "I live in Lyon"),
            fact("The user asks", "where is Oslo?"),
            fact(f"The key is {KEY}", "I live in Lyon"),
            {"text": "no quote"},
            fact("", "I live in Lyon", op="supersede", id=9),
        ]
    )
    async with Model(script) as up, running(up.url, data, CONFIG) as live:
        await talk(live, "I live in Lyon. where is Oslo?")
        assert [c for c, _, _ in await kept(live)] == ["The user lives in Lyon"]
        facts = [x for x in await drops(live) if x[0] == "fact"]
        assert sorted(facts) == sorted(
            [
                ("fact", "malformed", "no quote"),
                ("fact", "duplicate", "The user lives in Lyon"),
                ("fact", "no_quote", "The user hates tea"),
                ("fact", "no_shared_word", "The user is a pilot"),
                ("fact", "question", "The user asks"),
                ("fact", "secret", ""),
                ("fact", "wrong_id", "I live in Lyon"),
            ]
        )
        (record,) = [r for r in await rows(live, t.job_records) if r["proposed"]]
        assert (record["read"], record["shown"], record["proposed"], record["kept"]) == (2, 1, 8, 1)
        assert KEY not in json.dumps([str(r) for r in await rows(live, t.dropped)])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("thanks a lot!", "small_talk"),
        ("What is a monad?", "question"),
        ("```\nx = 1\n```", "code"),
        ("> You said so\n> yesterday", "quoted"),
        ("I am Ada", "duplicate"),
        ("I like boats. " * 900, "too_long"),
        (f"{KEY}", "secret"),
    ],
)
async def test_each_message_that_no_model_is_shown_has_its_reason(data, line, reason):
    async with Model(proposing()) as up, running(up.url, data, CONFIG) as live:
        chat = Chat(live)
        await chat.say("I am Ada", line)
        await settled(live)
        said = {m["public_id"]: m["content"] for m in await rows(live, t.messages)}
        found = [(d["reason"], said[d["message"]]) for d in await rows(live, t.dropped)]
        assert reason in {r for r, _ in found}
        assert {m for r, m in found if r == reason} == {line}
        assert KEY not in json.dumps(asked(up))


def test_a_reason_that_is_not_listed_is_none():
    assert get_args(Reason) == REASONS
    assert set(REASONS) >= {"small_talk", "secret", "malformed", "wrong_id"}
    assert STAGES == ("message", "fact")

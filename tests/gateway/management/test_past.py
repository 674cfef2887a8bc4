"""The past over the management API: a chat brought along and continued, export and import,
erasure.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from sqlalchemy import select

from memory.stores.sql.engine import schema as t
from tests.gateway.management.managing import as_key, managed, rows
from tests.models import call, calls, text

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "I moved to Lisbon.", "created_at": "2021-02-03T04:05:06+01:00"},
    {"role": "assistant", "content": "How is it there?"},
    {"role": "user", "content": "Sunny!", "created_at": "2021-02-03T04:06:06Z"},
    {"role": "assistant", "content": "Enjoy it."},
]


def plain(messages):
    return [{k: v for k, v in m.items() if k != "created_at"} for m in messages]


async def test_a_chat_brought_along_is_continued_under_its_id(live):
    r = await live.memory("POST", "/users/ada/conversations", json={"messages": CHAT})
    brought = r.json()
    assert (r.status_code, brought["object"], brought["message_count"], brought["user"]) == (
        200,
        "conversation",
        4,
        "ada",
    )
    assert brought["id"].startswith("conv_")
    assert brought["created_at"] == "2021-02-03T03:05:06.000Z"
    r = await live.chat([*plain(CHAT), {"role": "user", "content": "Any tips?"}], user="ada")
    assert r.headers["x-memory-conversation"] == brought["id"]
    said = (await live.memory("GET", f"/users/ada/conversations/{brought['id']}/messages")).json()[
        "data"
    ]
    assert [m["content"] for m in said] == [
        "I moved to Lisbon.",
        "How is it there?",
        "Sunny!",
        "Enjoy it.",
        "Any tips?",
        "Hello.",
    ]
    assert said[0]["created_at"] == "2021-02-03T03:05:06.000Z"
    trimmed = await live.chat(
        [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "More?"}],
        user="ada",
    )
    assert trimmed.headers["x-memory-conversation"] == brought["id"]
    (hit,) = (
        await live.memory(
            "GET",
            "/users/ada/messages/search",
            params={"q": "lisbon", "role": "user", "until": "2021-02-03"},
        )
    ).json()["data"]
    assert (hit["conversation"], hit["role"]) == (brought["id"], "user")
    assert hit["score"] > 0


async def test_a_chat_that_ends_in_a_question_waits_for_its_answer(live):
    brought = (
        await live.memory("POST", "/users/ada/conversations", json={"messages": CHAT[:4]})
    ).json()
    r = await live.chat(plain(CHAT[:4]), user="ada")
    assert r.headers["x-memory-conversation"] == brought["id"]
    said = (await live.memory("GET", f"/conversations/{brought['id']}")).json()["messages"]["data"]
    assert [m["content"] for m in said] == [
        "I moved to Lisbon.",
        "How is it there?",
        "Sunny!",
        "Hello.",
    ]


async def test_a_named_chat_goes_on_as_server_kept_history(live):
    r = await live.memory(
        "POST", "/users/ada/conversations", json={"id": "holidays", "messages": CHAT}
    )
    assert r.json()["id"] == "holidays"
    await live.chat("And now?", {"x-memory-conversation": "holidays"}, user="ada")
    assert [m["content"] for m in live.model.bodies[-1]["messages"] if m["role"] != "system"] == [
        "I moved to Lisbon.",
        "How is it there?",
        "Sunny!",
        "Enjoy it.",
        "And now?",
    ]
    assert (
        await live.memory(
            "POST", "/users/ada/conversations", json={"id": "holidays", "messages": CHAT}
        )
    ).status_code == 409


async def test_a_name_that_two_users_chose_is_ambiguous(live):
    for user in ("ada", "bob"):
        await live.memory(
            "POST", f"/users/{user}/conversations", json={"id": "a/b", "messages": CHAT}
        )
    r = await live.memory("GET", "/conversations/a%2Fb")
    assert (r.status_code, r.json()["error"]["code"]) == (409, "ambiguous")
    assert (await live.memory("GET", "/conversations/a%2Fb?user=bob")).json()["user"] == "bob"
    assert (await live.memory("GET", "/conversations/a%2Fb", **as_key("sk-ada"))).json()[
        "user"
    ] == "ada"
    assert (await live.memory("DELETE", "/conversations/a%2Fb?user=bob")).json()["deleted"] is True
    assert (await live.memory("GET", "/conversations/a%2Fb")).json()["user"] == "ada"


async def test_a_deleted_conversation_leaves_nothing(data):
    script = (calls(call("archival_memory_insert", {"content": "SENTINEL"})), text("Noted."))
    async with managed(data, "Hi.", *script) as live:
        first = await live.chat("hello")
        opened = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "SENTINEL, please"},
        ]
        r = await live.chat(opened)
        assert r.headers["x-memory-conversation"] == first.headers["x-memory-conversation"]
        assert (await rows(live))["passages"] == 1
        found = (
            await live.memory("GET", f"/conversations/{r.headers['x-memory-conversation']}")
        ).json()
        assert (found["user"], found["message_count"]) == (None, 4)
        await live.memory("DELETE", f"/conversations/{r.headers['x-memory-conversation']}")
        await live.gateway.worker.drain()
        left = {k: n for k, n in (await rows(live)).items() if n}
        assert set(left) <= {"scopes", "jobs"}
        assert (
            await live.memory("GET", f"/explain/{r.headers['x-memory-explain']}")
        ).status_code == 404


async def lived(live):
    """A user with something of everything. The script must hold a tool call first."""
    await live.chat("My name is Ada", user="ada/x")
    await live.chat(
        [
            {"role": "user", "content": "My name is Ada"},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": "more"},
        ],
        user="ada/x",
    )
    await live.chat(
        [
            {"role": "user", "content": "My name is Ada"},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": "fork"},
        ],
        user="ada/x",
    )
    base = "/users/ada%2Fx"
    await live.memory(
        "PUT", f"{base}/blocks/pets", json={"value": "a cat", "description": "Animals", "limit": 99}
    )
    await live.memory("PUT", f"{base}/blocks/pets", json={"value": "a dog"})
    await live.memory("PUT", f"{base}/blocks/fixed", json={"value": "stays", "read_only": True})
    await live.memory("PUT", f"{base}/blocks/gone", json={"value": "restore me"})
    await live.memory("DELETE", f"{base}/blocks/gone")
    await live.memory(
        "POST",
        f"{base}/passages",
        json={
            "content": "Plays the violin",
            "tags": ["music"],
            "type": "preference",
            "importance": 0.7,
        },
    )
    await live.memory(
        "POST",
        f"{base}/passages?agent=coach",
        json={"content": "Runs on Mondays", "created_at": "2020-01-01T00:00:00Z"},
    )
    await live.memory("POST", f"{base}/conversations", json={"id": "old", "messages": CHAT})
    return base


def normal(body):
    """An export's lines with row keys renumbered."""
    keys = {}
    out = []
    for line in body.splitlines():
        record = json.loads(line)
        for name in ("id", "parent", "first", "node", "head"):
            if (
                record["object"] in ("node", "message", "conversation")
                and not (record["object"] == "conversation" and name == "id")
                and name in record
            ):
                record[name] = keys.setdefault(record[name], len(keys))
        out.append(record)
    return out


SCRIPT = (
    calls(call("core_memory_append", {"label": "human", "content": "Ada"})),
    text("Noted."),
    "Ok.",
)


async def test_export_erase_import_is_a_round_trip(data):
    async with managed(data, *SCRIPT) as live:
        base = await lived(live)
        r = await live.memory("GET", f"{base}/export")
        assert r.headers["content-type"].startswith("application/x-ndjson")
        exported = r.content
        receipt = (await live.memory("DELETE", base)).json()
        assert (receipt["id"], receipt["object"]) == ("ada/x", "user.erased")
        assert set(receipt["erased"]) == {
            "blocks",
            "versions",
            "tool_calls",
            "tool_results",
            "skills",
            "files",
            "file_passages",
            "passages",
            "messages",
            "conversations",
            "summaries",
            "vectors",
            "explain",
            "jobs",
            "responses",
        }
        assert receipt["erased"] | {"jobs": 0} == {
            "blocks": 4,
            "versions": 6,
            "passages": 2,
            "messages": 10,
            "conversations": 3,
            "summaries": 0,
            "vectors": 0,
            "explain": 3,
            "jobs": 0,
            "responses": 0,
            "tool_calls": 0,
            "tool_results": 0,
            "skills": 0,
            "files": 0,
            "file_passages": 0,
        }
        await live.gateway.worker.drain()
        left = {k: n for k, n in (await rows(live)).items() if n}
        assert set(left) <= {"generations", "jobs", "model_records"}
        imported = (await live.memory("POST", f"{base}/import", content=exported)).json()
        assert imported == {
            "object": "import",
            "skipped": [],
            "imported": {
                "blocks": 3,
                "versions": 6,
                "passages": 2,
                "conversations": 3,
                "messages": 10,
            },
        }
        assert normal((await live.memory("GET", f"{base}/export")).content) == normal(exported)
        assert (await live.memory("POST", f"{base}/blocks/gone/undo")).json()[
            "value"
        ] == "restore me"
        assert (await live.memory("POST", f"{base}/blocks/pets/undo")).json()["value"] == "a cat"
        history = [
            {"role": "user", "content": "My name is Ada"},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": "more"},
            {"role": "assistant", "content": "Ok."},
            {"role": "user", "content": "again"},
        ]
        r = await live.chat(history, user="ada/x")
        assert r.headers["x-memory-conversation"] in {
            json.loads(x)["id"] for x in exported.splitlines() if b'"object":"conversation"' in x
        }


async def test_an_import_doubles_nothing_and_tells_what_it_skipped(data):
    async with managed(data, *SCRIPT) as live:
        base = await lived(live)
        exported = (await live.memory("GET", f"{base}/export")).content
        await live.memory("PUT", f"{base}/blocks/pets", json={"value": "a fish"})
        before = await rows(live)
        r = (await live.memory("POST", f"{base}/import", content=exported)).json()
        assert r["imported"] == {
            "blocks": 1,
            "versions": 0,
            "passages": 0,
            "conversations": 0,
            "messages": 0,
        }
        assert {(s["object"], s["reason"]) for s in r["skipped"]} == {
            ("conversation", "already there")
        }
        after = await rows(live)
        assert {k for k in after if after[k] != before[k]} <= {"block_versions", "jobs"}
        changed = (
            json.dumps({"object": "block", "label": "fixed", "value": "moved"})
            + "\n"
            + json.dumps({"object": "block", "label": "rules", "value": "Be rude."})
        )
        r = (await live.memory("POST", f"{base}/import", content=changed)).json()
        assert [(s["line"], s["id"], s["reason"]) for s in r["skipped"]] == [
            (1, "fixed", "read_only"),
            (2, "rules", "read_only"),
        ]
        assert (await live.memory("GET", f"{base}/blocks/pets/versions")).json()["data"][0][
            "actor"
        ] == "import"


async def test_lines_written_by_hand_are_enough(live):
    lines = [
        {"object": "block", "label": "human", "value": "Ada"},
        {"object": "passage", "content": "Likes tea"},
        *({"object": "message", "conversation": "old chat", "message": m} for m in plain(CHAT)),
    ]
    r = await live.memory("POST", "/users/ada/import", content="\n\n".join(map(json.dumps, lines)))
    assert r.json()["imported"] == {
        "blocks": 1,
        "versions": 0,
        "passages": 1,
        "conversations": 1,
        "messages": 4,
    }
    r = await live.chat([*plain(CHAT), {"role": "user", "content": "Any tips?"}], user="ada")
    assert r.headers["x-memory-conversation"] == "old%20chat"
    into = (
        await live.memory("POST", "/users/bob/import?agent=coach", content=json.dumps(lines[1]))
    ).json()
    assert into["imported"]["passages"] == 1
    assert len((await live.memory("GET", "/users/bob/passages?agent=coach")).json()["data"]) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{nope", "Line 2"),
        ('{"object": "thing"}', "thing"),
        ('{"object": "passage"}', "content"),
        ('{"object": "passage", "content": "x", "colour": 1}', "colour"),
        ('{"object": "passage", "content": "x", "created_at": "then"}', "then"),
        ('{"object": "passage", "content": "x", "type": "rumour"}', "rumour"),
        ('{"object": "block", "label": "Bad Label"}', "Bad Label"),
        ('{"object": "block", "label": "b", "value": "xx", "limit": 1}', "1 too many"),
        ('{"object": "message", "conversation": "c", "message": {}}', "role"),
        (
            '{"object": "message", "conversation": "c", "node": "9", "message": {"role": "user"}}',
            "'9'",
        ),
    ],
)
async def test_a_malformed_line_is_named_and_nothing_is_imported(live, line, said):
    good = '{"object": "passage", "content": "fine"}\n'
    r = await live.memory("POST", "/users/ada/import", content=good + line)
    assert (r.status_code, r.json()["error"]["code"]) == (400, "bad_line")
    assert "Line 2" in r.json()["error"]["message"]
    assert said in r.json()["error"]["message"]
    assert (await live.memory("GET", "/users")).json()["data"] == []


async def test_an_import_takes_no_id_from_another_user(live):
    made = (await live.memory("POST", "/users/ada/passages", json={"content": "hers"})).json()[
        "data"
    ][0]
    line = json.dumps({"object": "passage", "id": made["id"], "content": "his"})
    await live.memory("POST", "/users/bob/import", content=line)
    (his,) = (await live.memory("GET", "/users/bob/passages")).json()["data"]
    assert his["id"] != made["id"]
    assert (await live.memory("GET", f"/users/ada/passages/{made['id']}")).json()[
        "content"
    ] == "hers"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("known", [False, True])
async def test_an_erase_during_a_running_turn_leaves_nothing_behind(data, stream, known):
    reached, go = asyncio.Event(), asyncio.Event()

    async def stalled(seen, wire):
        reached.set()
        await go.wait()
        live.model.script.insert(
            0, calls(call("core_memory_append", {"label": "human", "content": "SENTINEL"}))
        )
        await live.model._behave(seen, wire)

    async with managed(data, stalled, "Bye.") as live:
        if known:
            await live.memory("PUT", "/users/ada/blocks/human", json={"value": "SENTINEL"})
        turn = asyncio.create_task(live.chat("SENTINEL", user="ada", stream=stream))
        async with asyncio.timeout(10):
            await reached.wait()
        assert (await live.memory("DELETE", "/users/ada")).status_code == 200
        go.set()
        r = await turn
        assert (r.status_code, "Bye" in r.text) == (200, True)
        await live.gateway.worker.drain()
        left = {k: n for k, n in (await rows(live)).items() if n}
        assert set(left) <= {"generations", "jobs", "model_records"}
        indexed = await live.gateway.memory.db.read(
            lambda conn: [conn.exec_driver_sql(f"SELECT count(*) FROM {n}").scalar() for n in t.FTS]
        )
        assert indexed == [0, 0, 0]
        kinds = await live.gateway.memory.db.read(
            lambda conn: list(conn.execute(select(t.jobs.c.kind)).scalars())
        )
        assert set(kinds) <= {"expire"}
        await live.chat("hello again", user="ada")
        assert (await live.memory("GET", "/users")).json()["data"][0]["messages"] == 2


async def test_a_conversation_deleted_under_a_running_turn_stays_deleted(data):
    reached, go = asyncio.Event(), asyncio.Event()

    async def stalled(seen, wire):
        reached.set()
        await go.wait()
        await live.model._behave(seen, wire)

    async with managed(data, stalled, "Bye.") as live:
        turn = asyncio.create_task(live.chat("hi", {"x-memory-conversation": "c"}, user="ada"))
        async with asyncio.timeout(10):
            await reached.wait()
            # A request is written moments later, with its answer if that comes sooner.
            while (await live.memory("DELETE", "/conversations/c")).status_code != 200:
                await asyncio.sleep(0.01)
        go.set()
        assert (await turn).status_code == 200
        found = await rows(live)
        assert (found["messages"], found["nodes"], found["explains"], found["conversations"]) == (
            0,
            0,
            0,
            0,
        )

"""The management API over real sockets: blocks, versions, undo, passages, users, who may reach
what, what is refused.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest
from litestar import Litestar

from gateway.management.router import management
from memory.errors import StoreUnavailable
from tests.conftest import SENTINEL_KEY, running
from tests.gateway.management.managing import as_key, managed
from tests.models import Model, call, calls, text

ODD = ["a/b", "100%", "a%2Fb", "Ünïcode 日本", "x" * 1024, "with space", "q?#&;", "ada@example.com"]


async def put(live, path, value, **options):
    return await live.memory("PUT", path, json={"value": value}, **options)


async def test_a_user_without_memory_has_the_operators_blocks(live):
    r = await live.memory("GET", "/users/ada/blocks")
    assert r.status_code == 200
    body = r.json()
    assert body["object"] == "list"
    assert body["next_cursor"] is None
    assert [b["label"] for b in body["data"]] == ["human", "rules"]
    assert body["data"][1] == {
        "id": None,
        "object": "block",
        "label": "rules",
        "description": "",
        "value": "Be kind.",
        "limit": 4000,
        "read_only": True,
        "version": 0,
        "shared_with": [],
        "hidden_by": None,
        "updated_at": None,
    }


async def test_a_put_creates_or_replaces_and_its_etag_is_the_version(live):
    r = await put(live, "/users/ada/blocks/human", "Ada")
    assert (r.status_code, r.headers["etag"], r.json()["version"]) == (200, '"1"', 1)
    assert r.json()["limit"] == 40
    assert r.json()["id"].startswith("block_")
    assert r.json()["updated_at"].endswith("Z")
    r = await live.memory(
        "PUT",
        "/users/ada/blocks/pets",
        json={"value": "a cat", "description": "Animals", "limit": 10},
    )
    assert (r.json()["description"], r.json()["limit"]) == ("Animals", 10)
    r = await live.memory("GET", "/users/ada/blocks/pets")
    assert (r.headers["etag"], r.json()["value"]) == ('"1"', "a cat")
    r = await live.memory("PATCH", "/users/ada/blocks/pets", json={"description": "Beasts"})
    assert (r.json()["value"], r.json()["description"], r.json()["version"]) == (
        "a cat",
        "Beasts",
        2,
    )


@pytest.mark.parametrize(
    ("tag", "status"),
    [('"1"', 200), ("1", 200), ('W/"1"', 200), ("*", 200), ('"0"', 409), ("7", 409), ("new", 400)],
)
async def test_if_match_refuses_a_stale_write(live, tag, status):
    await put(live, "/users/ada/blocks/human", "one")
    r = await put(live, "/users/ada/blocks/human", "two", headers={"if-match": tag})
    assert r.status_code == status
    if status == 409:
        assert r.json()["error"]["code"] == "conflict"
        assert "version 1" in r.json()["error"]["message"]
    r = await live.memory("DELETE", "/users/ada/blocks/human", headers={"if-match": "9"})
    assert r.status_code == 409


async def test_if_match_of_any_version_needs_a_block(live):
    r = await put(live, "/users/ada/blocks/pets", "x", headers={"if-match": "*"})
    assert r.status_code == 409


async def test_limits_and_read_only_hold(live):
    r = await put(live, "/users/ada/blocks/human", "x" * 45)
    error = r.json()["error"]
    assert (r.status_code, error["code"]) == (400, "block_full")
    assert all(n in error["message"] for n in ("40", "45", "5 too many"))
    for method, body in (
        ("PUT", {"value": "no"}),
        ("PATCH", {"description": "no"}),
        ("PATCH", {"read_only": False}),
        ("DELETE", None),
    ):
        r = await live.memory(method, "/users/ada/blocks/rules", json=body)
        assert (r.status_code, r.json()["error"]["code"]) == (403, "block_read_only")
    r = await live.memory("PATCH", "/users/ada/blocks/human", json={"limit": 1, "value": "ab"})
    assert r.status_code == 400
    await live.memory("PUT", "/users/ada/blocks/fixed", json={"value": "v", "read_only": True})
    assert (await put(live, "/users/ada/blocks/fixed", "w")).status_code == 403
    assert (await live.memory("POST", "/users/ada/blocks/fixed/undo")).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "said"),
    [
        ("PUT", "/users/ada/blocks/Bad-Label", {"json": {"value": "x"}}, 400, "Bad-Label"),
        ("PUT", "/users/ada/blocks/human", {"json": {}}, 400, "value"),
        ("PUT", "/users/ada/blocks/human", {"json": {"value": "x", "colour": 1}}, 400, "colour"),
        ("PUT", "/users/ada/blocks/human", {"json": {"value": 3}}, 400, "value"),
        ("PUT", "/users/ada/blocks/human", {"json": {"value": "x", "limit": 0}}, 400, "limit"),
        ("PUT", "/users/ada/blocks/human", {"content": b"{nope"}, 400, "JSON"),
        ("PUT", "/users/ada/blocks/human", {"content": b"[]"}, 400, "object"),
        ("PATCH", "/users/ada/blocks/human", {"json": {"read_only": True}}, 400, "operator"),
        ("PATCH", "/users/ada/blocks/none", {"json": {"value": "x"}}, 404, "none"),
        ("GET", "/users/ada/blocks/none", {}, 404, "none"),
        ("DELETE", "/users/ada/blocks/none", {}, 404, "none"),
        ("GET", "/users/ada/blocks/none/versions", {}, 404, "none"),
        ("POST", "/users/ada/blocks/human/undo", {}, 404, "human"),
        ("GET", "/users/ada/blocks?limit=0", {}, 400, "'0'"),
        ("GET", "/users/ada/passages?limit=many", {}, 400, "'many'"),
        ("GET", "/users/ada/passages?limit=201", {}, 400, "'201'"),
        ("GET", "/users/ada/passages?cursor=zzz", {}, 400, "'zzz'"),
        ("GET", "/users/ada/passages/search?q=x&since=soon", {}, 400, "'soon'"),
        ("GET", "/users/ada/messages/search?q=x&role=king", {}, 400, "'king'"),
        ("POST", "/users/ada/passages", {"json": {"content": " "}}, 400, "content"),
        (
            "POST",
            "/users/ada/passages",
            {"json": {"content": "x", "type": "rumour"}},
            400,
            "rumour",
        ),
        (
            "POST",
            "/users/ada/passages",
            {"json": {"content": "x", "importance": 3}},
            400,
            "importance",
        ),
        (
            "POST",
            "/users/ada/passages",
            {"json": {"content": "x", "created_at": "then"}},
            400,
            "'then'",
        ),
        ("POST", "/users/ada/passages", {"json": {"content": "x", "tags": [1]}}, 400, "tags[0]"),
        ("GET", "/users/ada/passages/passage_0", {}, 404, "passage_0"),
        ("DELETE", "/users/ada/passages/passage_0", {}, 404, "passage_0"),
        ("GET", "/users/ada/conversations/none/messages", {}, 404, "none"),
        ("GET", "/conversations/none", {}, 404, "none"),
        ("DELETE", "/conversations/none", {}, 404, "none"),
        ("GET", "/explain/none", {}, 404, "none"),
        ("GET", "/nothing", {}, 404, "nothing"),
        ("POST", "/users", {}, 405, "POST"),
        ("GET", f"/users/{'x' * 1025}/blocks", {}, 400, "1025"),
        ("GET", "/users/%20/blocks", {}, 400, "user"),
        ("GET", "/users/%FF/blocks", {}, 400, "UTF-8"),
        ("GET", f"/users/ada/blocks?agent={'x' * 257}", {}, 400, "257"),
        ("POST", "/users/ada/conversations", {"json": {"messages": []}}, 400, "messages"),
        (
            "POST",
            "/users/ada/conversations",
            {"json": {"messages": [{"content": "x"}]}},
            400,
            "messages[0]",
        ),
        (
            "POST",
            "/users/ada/conversations",
            {"json": {"messages": [{"role": "user", "content": 1}]}},
            400,
            "messages[0].content",
        ),
        (
            "POST",
            "/users/ada/conversations",
            {"json": {"messages": [{"role": "user", "content": "x", "created_at": 5}]}},
            400,
            "created_at",
        ),
        (
            "POST",
            "/users/ada/conversations",
            {"json": {"messages": [{"role": "user", "content": "x", "tool_calls": 5}]}},
            400,
            "tool_calls",
        ),
        ("DELETE", "/users/ada?agent=x", {}, 400, "agent"),
    ],
)
async def test_what_is_wrong_is_told_in_openais_shape(live, method, path, options, status, said):
    r = await live.memory(method, path, **options)
    assert r.status_code == status, r.text
    assert set(r.json()["error"]) == {"message", "type", "param", "code"}
    assert said in r.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "message", "param"),
    [
        (
            "PUT",
            "/users/ada/blocks/human",
            {"value": 3},
            "`value` is 3: expected `str`, got `int`.",
            "value",
        ),
        (
            "PUT",
            "/users/ada/blocks/human",
            {"value": ["Ada"]},
            "`value` is a list: expected `str`, got `array`.",
            "value",
        ),
        (
            "PUT",
            "/users/ada/blocks/human",
            {"value": "x", "limit": 0},
            "`limit` is 0: expected `int` >= 1.",
            "limit",
        ),
        ("PUT", "/users/ada/blocks/human", {}, "`value` is missing.", "value"),
        (
            "PUT",
            "/users/ada/blocks/human",
            {"value": "x", "limt": 1},
            "`limt` is not a member of this body, did you mean limit?",
            "limt",
        ),
        (
            "PUT",
            "/users/ada/blocks/human",
            {"value": "x", "colour": 1},
            "`colour` is not a member of this body; there are: description, limit, read_only, "
            "value",
            "colour",
        ),
        (
            "PUT",
            "/users/ada/blocks/human",
            {"a` - at `$.b": 1},
            "`a` - at `$.b` is not a member of this body; there are: description, limit, "
            "read_only, value",
            "a` - at `$.b",
        ),
        (
            "POST",
            "/shared-blocks",
            {"label": "x", "members": [{"everyone": True}, {"usr": "ann"}]},
            "`members[1].usr` is not a member of this body",
            "members[1].usr",
        ),
        (
            "POST",
            "/tools/check",
            {"rounds": [[{}]]},
            "`rounds[0][0].name` is missing.",
            "rounds[0][0].name",
        ),
        (
            "PATCH",
            "/users/ada/blocks/human",
            {"read_only": "no"},
            "`read_only` is 'no': expected `bool | null`, got `str`.",
            "read_only",
        ),
        (
            "POST",
            "/users/ada/passages",
            {"content": "x", "tags": ["a", None]},
            "`tags[1]` is null: expected `str`, got `null`.",
            "tags[1]",
        ),
        (
            "POST",
            "/users/ada/conversations",
            {"messages": ["hi"]},
            "`messages[0]` is 'hi': expected `object`, got `str`.",
            "messages[0]",
        ),
        (
            "POST",
            "/users/ada/conversations",
            {"messages": [{"role": "user", "content": 1}]},
            "`messages[0].content` must be a string, a list of parts, or null, not 1.",
            "messages[0].content",
        ),
        (
            "GET",
            "/users/ada/passages?limit=" + "9" * 99,
            None,
            f"`limit` is '{'9' * 60}'… (99 characters): Expected `int` <= 200.",
            "limit",
        ),
    ],
)
async def test_the_value_is_told_with_what_is_allowed(live, method, path, body, message, param):
    error = (await live.memory(method, path, json=body)).json()["error"]
    assert (error["message"], error["param"]) == (message, param)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/users/ada/blocks/human/undo"),
        ("DELETE", "/users/ada/blocks/human"),
        ("POST", "/users/ada/reflections"),
        ("POST", "/tenant/passages/passage_1/restore"),
    ],
)
async def test_what_is_sent_to_a_route_without_a_body_is_named(live, method, path):
    refused = await live.memory(method, path, json={"version": 3})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "version")
    assert "takes no body" in error["message"]
    for content in (b"", b"{}", b" "):
        answer = await live.memory(method, path, content=content)
        assert answer.status_code in (200, 202, 404)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/users/ada/passages", {"content": "x", "tags": "my secret"}),
        ("/users/ada/passages", {"content": "x", "importance": "my secret" + "x" * 100_000}),
        ("/users/ada/passages", {"x" * 100_000: "my secret"}),
        (
            "/users/ada/conversations",
            {"messages": [{"role": "user", "created_at": ["my secret"] * 10_000}]},
        ),
    ],
)
async def test_what_is_refused_is_told_shortened_and_stays_out_of_the_log(live, caplog, path, body):
    with caplog.at_level("DEBUG"):
        answer = await live.memory("POST", path, json=body)
    assert answer.status_code == 400
    assert len(answer.text) < 500
    assert "my secret" not in caplog.text


async def test_undo_walks_back_and_restores_a_deletion(live):
    path = "/users/ada/blocks/human"
    for value in ("one", "two", "three"):
        await put(live, path, value)
    assert (await live.memory("DELETE", path)).json() == {
        "id": "human",
        "object": "block",
        "deleted": True,
    }
    assert (await live.memory("GET", path)).status_code == 404
    seen = [(await live.memory("POST", f"{path}/undo")).json()["value"] for _ in range(4)]
    assert seen == ["three", "two", "one", ""]
    assert (await live.memory("POST", f"{path}/undo")).status_code == 404
    await put(live, "/users/ada/blocks/pets", "a cat")
    assert (await live.memory("POST", "/users/ada/blocks/pets/undo")).json()["deleted"] is True


async def test_an_undo_takes_back_values_only_and_keeps_to_the_limit(live):
    path = "/users/ada/blocks/pets"
    await put(live, path, "a very long cat")
    await put(live, path, "cat")
    await live.memory("PATCH", path, json={"description": "Animals", "limit": 5})
    r = await live.memory("POST", f"{path}/undo")
    assert (r.status_code, r.json()["error"]["code"]) == (400, "block_full")
    await live.memory("PATCH", path, json={"limit": 50})
    r = await live.memory("POST", f"{path}/undo")
    assert (r.json()["value"], r.json()["description"]) == ("a very long cat", "Animals")


async def test_a_version_tells_who_changed_what(live):
    path = "/users/ada/blocks/human"
    await put(live, path, "one")
    await put(live, path, "two", headers={"x-mnemogate-actor": "cli"})
    await put(live, path, "three", headers={"x-mnemogate-actor": "model"})
    r = await live.memory("GET", f"{path}/versions?limit=2")
    newest, second = r.json()["data"]
    assert set(newest) == {
        "version",
        "before",
        "after",
        "actor",
        "request_id",
        "tool_call_id",
        "quote",
        "created_at",
    }
    assert (newest["version"], newest["before"], newest["after"], newest["actor"]) == (
        3,
        "two",
        "three",
        "api",
    )
    assert second["actor"] == "cli"
    r = await live.memory("GET", f"{path}/versions?limit=2&cursor={r.json()['next_cursor']}")
    assert [v["version"] for v in r.json()["data"]] == [1]
    assert r.json()["next_cursor"] is None
    assert (await live.memory("GET", "/users/ada/blocks/rules/versions")).json()["data"] == []


@pytest.mark.parametrize("user", ODD)
async def test_any_user_name_is_one_path_segment(live, user):
    path = f"/users/{quote(user, safe='')}"
    assert (await put(live, f"{path}/blocks/human", "here")).status_code == 200
    found = (await live.memory("GET", "/users")).json()["data"]
    assert [u["id"] for u in found] == [user]
    r = await live.chat("hello", {"x-memory-user": quote(user)})
    assert r.status_code == 200
    assert "here" in live.model.bodies[-1]["messages"][0]["content"]
    assert (await live.memory("DELETE", path)).json()["id"] == user


async def test_agents_have_memories_of_their_own(live):
    await put(live, "/users/ada/blocks/human?agent=coach", "runs")
    assert (await live.memory("GET", "/users/ada/blocks/human")).json()["value"] == ""
    assert (await live.memory("GET", "/users/ada/blocks/human?agent=coach")).json()[
        "value"
    ] == "runs"


async def test_a_passage_is_patched_and_the_change_undone(live):
    base = "/users/ada/passages"
    (made,) = (await live.memory("POST", base, json={"content": "Likes tea"})).json()["data"]
    path = f"{base}/{made['id']}"
    changed = await live.memory("PATCH", path, json={"content": "Likes coffee", "tags": ["food"]})
    assert (changed.status_code, changed.json()["id"]) == (200, made["id"])
    assert (await live.memory("GET", path)).json()["content"] == "Likes coffee"
    for wrong in ({"content": " "}, {"type": "mood"}, {"importance": 3}, {"kind": "fact"}):
        assert (await live.memory("PATCH", path, json=wrong)).status_code == 400, wrong
    secret = {"content": "sk-proj-0123456789abcdefghijABCDEFGHIJ0123456789abcdefgh"}
    assert (await live.memory("PATCH", path, json=secret)).status_code == 400
    missing = f"{base}/passage_{'0' * 32}"
    assert (await live.memory("PATCH", missing, json={"content": "x"})).status_code == 404
    undone = await live.memory("POST", f"{path}/undo")
    assert (undone.json()["content"], undone.json()["tags"]) == ("Likes tea", [])
    assert (await live.memory("POST", f"{path}/undo")).status_code == 404
    newest = await live.memory("POST", "/users/ada/undo")
    assert newest.json() == {
        "object": "undone",
        "kind": "added",
        "name": made["id"],
        "text": "Likes tea",
    }
    assert (await live.memory("POST", "/users/ada/undo")).status_code == 404


async def test_passages_are_kept_searched_and_forgotten(live):
    base = "/users/ada/passages"
    r = await live.memory(
        "POST",
        base,
        json={
            "content": "Ada plays the violin.",
            "tags": ["music", "home"],
            "type": "preference",
            "importance": 0.9,
            "created_at": "2020-05-01T10:00:00+02:00",
        },
    )
    assert r.json()["object"] == "list"
    (made,) = r.json()["data"]
    assert made == {
        "id": made["id"],
        "object": "passage",
        "content": "Ada plays the violin.",
        "tags": ["music", "home"],
        "type": "preference",
        "importance": 0.9,
        "actor": "api",
        "created_at": "2020-05-01T08:00:00.000Z",
        "source": None,
        "quote": None,
        "speaker": None,
        "forgotten_at": None,
        "forgotten_by": None,
        "superseded_by": None,
        "fades_at": None,
        "is_fading": False,
    }
    long = " ".join(f"Sentence number {i} is about trains." for i in range(60))
    assert len((await live.memory("POST", base, json={"content": long})).json()["data"]) > 1
    again = await live.memory("POST", base, json={"content": "Ada plays the violin."})
    assert again.json()["data"][0]["id"] == made["id"]
    (hit,) = (
        await live.memory("GET", f"{base}/search", params={"q": "violins", "tags": "music"})
    ).json()["data"]
    assert {"id", "content", "score", "created_at", "why"} <= set(hit)
    assert (hit["id"], hit["why"]["keyword"] > 0) == (made["id"], True)
    for params in (
        {"q": "violin", "tags": "sport"},
        {"q": "violin", "tags": ["music", "sport"]},
        {"q": "violin", "since": "2021-01-01"},
        {"q": "violin", "until": "2020-04-30"},
        {"q": "zither"},
    ):
        assert (await live.memory("GET", f"{base}/search", params=params)).json()["data"] == []
    assert (
        len(
            (
                await live.memory(
                    "GET",
                    f"{base}/search?q=violin&since=2020-05-01T10:00:00+02:00&until=2020-05-01",
                )
            ).json()["data"]
        )
        == 1
    )
    assert (await live.memory("GET", f"{base}/{made['id']}")).json() == made
    assert (await live.memory("DELETE", f"{base}/{made['id']}")).json()["deleted"] is True
    assert (await live.memory("GET", f"{base}/search?q=violin")).json()["data"] == []


async def walk(live, path, limit=2, **query):
    out, cursor = [], None
    while True:
        params = {**query, "limit": limit, **({"cursor": cursor} if cursor else {})}
        body = (await live.memory("GET", path, params=params)).json()
        assert len(body["data"]) <= limit
        out += body["data"]
        if (cursor := body["next_cursor"]) is None:
            return out


async def test_lists_are_walked_by_cursor(live):
    for i in range(5):
        await live.memory("POST", f"/users/u{i}/passages", json={"content": f"fact {i}"})
        await live.memory("POST", "/users/u0/passages", json={"content": f"more {i}"})
        await put(live, f"/users/u0/blocks/b{i}", "v")
        await live.memory(
            "POST",
            "/users/u0/conversations",
            json={"messages": [{"role": "user", "content": f"hi {j}"} for j in range(5)]},
        )
    assert [u["id"] for u in await walk(live, "/users")] == [f"u{i}" for i in range(5)]
    assert [p["content"] for p in await walk(live, "/users/u0/passages")] == [
        *(f"more {i}" for i in (4, 3, 2, 1, 0)),
        "fact 0",
    ]
    assert [b["label"] for b in await walk(live, "/users/u0/blocks")] == [
        *(f"b{i}" for i in range(5)),
        "human",
        "rules",
    ]
    found = await walk(live, "/users/u0/conversations")
    assert len({c["id"] for c in found}) == 5
    said = await walk(live, f"/users/u0/conversations/{found[0]['id']}/messages")
    assert [m["content"] for m in said] == [f"hi {j}" for j in range(5)]
    assert len({h["id"] for h in await walk(live, "/users/u0/messages/search")}) == 25
    assert len({h["id"] for h in await walk(live, "/users/u0/passages/search", q="more")}) == 5


async def test_users_are_listed_with_counts(live):
    await live.chat("hello", user="ada")
    await put(live, "/users/ada/blocks/human", "x")
    await live.memory("POST", "/users/ada/passages?agent=coach", json={"content": "fact"})
    (ada,) = (await live.memory("GET", "/users")).json()["data"]
    assert {
        k: ada[k]
        for k in ("id", "object", "tenant", "blocks", "passages", "messages", "conversations")
    } == {
        "id": "ada",
        "object": "user",
        "tenant": "acme",
        "blocks": 1,
        "passages": 1,
        "messages": 2,
        "conversations": 1,
    }
    assert ada["last_active_at"] >= ada["created_at"]


async def test_a_deleted_fact_is_never_sent_again(data):
    async with managed(data, "Hello.", "Hello again.") as live:
        await put(live, "/users/ada/blocks/human", "SECRET")
        history = [{"role": "user", "content": "hi"}]
        await live.chat(history, user="ada")
        assert "SECRET" in live.model.bodies[-1]["messages"][0]["content"]
        await put(live, "/users/ada/blocks/human", "")
        await live.chat(
            [
                *history,
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "and?"},
            ],
            user="ada",
        )
        assert "SECRET" not in str(live.model.bodies[-1])


async def test_what_another_tenant_holds_is_not_there(live):
    chat = await live.chat("hello", user="ada")
    conversation, explained = (
        chat.headers["x-memory-conversation"],
        chat.headers["x-memory-explain"],
    )
    passage = (await live.memory("POST", "/users/ada/passages", json={"content": "fact"})).json()[
        "data"
    ][0]["id"]
    other = as_key("sk-other")
    for method, path in (
        ("GET", f"/explain/{explained}"),
        ("GET", f"/conversations/{conversation}"),
        ("DELETE", f"/conversations/{conversation}"),
        ("GET", f"/users/ada/conversations/{conversation}/messages"),
        ("GET", f"/users/ada/passages/{passage}"),
        ("DELETE", f"/users/ada/passages/{passage}"),
    ):
        assert (await live.memory(method, path, **other)).status_code == 404, path
    assert (await live.memory("GET", "/users", **other)).json()["data"] == []
    for path in (
        f"/users/bob/passages/{passage}",
        f"/users/ada/passages/{passage}?agent=coach",
        f"/users/bob/conversations/{conversation}/messages",
    ):
        assert (await live.memory("GET", path)).status_code == 404, path
    r = await live.memory("GET", f"/explain/{explained}")
    assert (r.status_code, r.json()["id"], r.json()["user"]) == (200, explained, "ada")
    assert "memory_blocks" in r.json()["injected"]["core"]
    assert (await live.memory("GET", f"/conversations/{conversation}")).json()["messages"]["data"][
        0
    ]["content"] == "hello"


async def test_a_key_that_is_not_trusted_reaches_its_own_users_alone(live):
    await put(live, "/users/ada/blocks/human", "Ada")
    await put(live, "/users/bob/blocks/human", "Bob")
    ada = as_key("sk-ada")
    assert [u["id"] for u in (await live.memory("GET", "/users", **ada)).json()["data"]] == ["ada"]
    assert (await live.memory("GET", "/users/ada/blocks/human", **ada)).json()["value"] == "Ada"
    for method, path in (
        ("GET", "/users/bob/blocks"),
        ("DELETE", "/users/bob"),
        ("GET", "/users/bob/export"),
    ):
        r = await live.memory(method, path, **ada)
        assert (r.status_code, r.json()["error"]["code"]) == (403, "forbidden")
    bobs = (await live.chat("hello", user="bob")).headers
    nobodys = (await live.chat("hello", user="")).headers
    for headers in (bobs, nobodys):
        assert (
            await live.memory("GET", f"/conversations/{headers['x-memory-conversation']}", **ada)
        ).status_code == 404
        assert (
            await live.memory("GET", f"/explain/{headers['x-memory-explain']}", **ada)
        ).status_code == 404
        assert (
            await live.memory("GET", f"/conversations/{headers['x-memory-conversation']}")
        ).status_code == 200


async def test_an_admin_key_sees_every_tenant(live):
    await put(live, "/users/ada/blocks/human", "Ada")
    conversation = (await live.chat("hello", user="ada")).headers["x-memory-conversation"]
    root = as_key("sk-root")
    assert (await live.memory("GET", "/users", **root)).json()["data"] == []
    for tenant in ("acme", "*"):
        assert [
            (u["tenant"], u["id"])
            for u in (await live.memory("GET", f"/users?tenant={tenant}", **root)).json()["data"]
        ] == [("acme", "ada")]
    assert (await live.memory("GET", "/users/ada/blocks/human?tenant=acme", **root)).json()[
        "value"
    ] == "Ada"
    assert (await live.memory("GET", f"/conversations/{conversation}", **root)).status_code == 200
    assert (
        await live.memory("GET", f"/conversations/{conversation}?tenant=beta", **root)
    ).status_code == 404
    assert (await live.memory("GET", "/users/ada/blocks?tenant=*", **root)).status_code == 400
    assert (await live.memory("GET", "/users?tenant=beta")).status_code == 403
    assert (await live.memory("GET", "/users?tenant=acme")).status_code == 200


async def test_no_key_or_a_wrong_one_is_401(live):
    for key in ("nope", SENTINEL_KEY + "x"):
        r = await live.memory("GET", "/users", headers={"authorization": f"Bearer {key}"})
        assert (r.status_code, r.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_in_own_key_mode_a_key_no_upstream_accepted_manages_nothing(data):
    async with (
        Model((401, {"error": {"message": "no"}}), "Hello.") as model,
        running(model.url, data, {"server.single_user": False}) as live,
    ):
        for _ in range(2):
            assert (await live.memory("GET", "/users")).status_code == 403
            assert (await live.memory("DELETE", "/users/ada")).status_code == 403
            await live.chat("hello", user="ada")
        assert [u["id"] for u in (await live.memory("GET", "/users")).json()["data"]] == ["ada"]
        assert (await live.memory("GET", "/users", **as_key("sk-another"))).status_code == 403


async def test_single_user_mode_takes_the_local_token(data):
    async with Model("Hello.") as model, running(model.url, data) as live:
        assert (await live.memory("GET", "/users")).status_code == 401
        token = as_key((data / "token").read_text().strip())
        await live.chat("hello")
        assert [u["id"] for u in (await live.memory("GET", "/users", **token)).json()["data"]] == [
            "me"
        ]


async def test_a_store_that_is_down_is_503(live, monkeypatch):
    async def down(*_, **__):
        raise StoreUnavailable("gone")

    await live.stop_worker()
    for way in ("read", "write"):
        monkeypatch.setattr(live.gateway.memory.db, way, down)
    for method, path, body in (
        ("GET", "/users/ada/blocks", None),
        ("PUT", "/users/ada/blocks/human", {"value": "x"}),
        ("GET", "/users/ada/export", None),
    ):
        r = await live.memory(method, path, json=body)
        assert (r.status_code, r.json()["error"]["code"]) == (503, "unavailable")


async def test_an_index_that_fails_as_it_ends_leaves_no_database_open(data, monkeypatch):
    async with managed(data) as live:
        memory = live.gateway.memory
        async with asyncio.timeout(20):
            while not memory.ready:
                await asyncio.sleep(0.01)
        stop = memory.retrieval.indexing.stop

        async def failing():
            await stop()
            raise RuntimeError("a defect")

        monkeypatch.setattr(memory.retrieval.indexing, "stop", failing)
        assert memory.db._connections._open_connections
    assert not memory.db._connections._open_connections


async def test_the_schema_describes_the_routes(live):
    paths = (await live.http.get(f"{live.root}/schema/openapi.json")).json()["paths"]
    mine = {
        p.removeprefix("/memory/v1"): set(v) for p, v in paths.items() if p.startswith("/memory/v1")
    }
    assert mine == {
        "/users": {"get"},
        "/users/{user}": {"delete"},
        "/users/{user}/export": {"get"},
        "/users/{user}/import": {"post"},
        "/users/{user}/merge": {"post"},
        "/agents": {"get"},
        "/agents/{name}": {"delete", "get", "patch", "put"},
        "/agents/{name}/versions": {"get"},
        "/agents/{name}/undo": {"post"},
        "/users/{user}/agents": {"get"},
        "/tool-approvals": {"get"},
        "/tool-approvals/{ident}": {"post"},
        "/agents/{name}/inbox": {"get", "post"},
        "/agents/{name}/inbox/{ident}": {"delete"},
        "/users/{user}/blocks": {"get"},
        "/users/{user}/blocks/{label}": {"delete", "get", "patch", "put"},
        "/users/{user}/blocks/{label}/versions": {"get"},
        "/users/{user}/blocks/{label}/undo": {"post"},
        "/shared-blocks": {"get", "post"},
        "/shared-blocks/{ident}": {"delete", "get", "patch", "put"},
        "/shared-blocks/{ident}/append": {"post"},
        "/shared-blocks/{ident}/versions": {"get"},
        "/shared-blocks/{ident}/undo": {"post"},
        "/shared-blocks/{ident}/members": {"get"},
        "/shared-blocks/{ident}/members/{user}": {"delete", "put"},
        "/shared-blocks/{ident}/members/agents/{name}": {"delete", "put"},
        "/shared-blocks/{ident}/members/teams/{name}": {"delete", "put"},
        "/shared-blocks/{ident}/members/projects/{name}": {"delete", "put"},
        "/shared-blocks/{ident}/everyone": {"delete", "put"},
        "/users/{user}/passages": {"get", "post"},
        "/users/{user}/passages/search": {"get"},
        "/users/{user}/passages/{ident}": {"delete", "get", "patch"},
        "/users/{user}/passages/{ident}/undo": {"post"},
        "/users/{user}/undo": {"post"},
        "/users/{user}/passages/{ident}/forget": {"post"},
        "/users/{user}/passages/{ident}/restore": {"post"},
        "/teams": {"get"},
        "/teams/{team}": {"delete", "get", "put"},
        "/teams/{team}/members": {"get"},
        "/teams/{team}/members/{member}": {"delete", "put"},
        "/users/{user}/teams": {"get"},
        "/projects": {"get"},
        "/projects/{project}": {"delete", "get", "put"},
        "/teams/{team}/passages": {"get", "post"},
        "/teams/{team}/passages/search": {"get"},
        "/teams/{team}/passages/{ident}": {"delete", "get", "patch"},
        "/teams/{team}/passages/{ident}/undo": {"post"},
        "/teams/{team}/passages/{ident}/restore": {"post"},
        "/teams/{team}/passages/{ident}/forget": {"post"},
        "/projects/{project}/passages": {"get", "post"},
        "/projects/{project}/passages/search": {"get"},
        "/projects/{project}/passages/{ident}": {"delete", "get", "patch"},
        "/projects/{project}/passages/{ident}/undo": {"post"},
        "/projects/{project}/passages/{ident}/restore": {"post"},
        "/projects/{project}/passages/{ident}/forget": {"post"},
        "/tenant/passages": {"get", "post"},
        "/tenant/passages/search": {"get"},
        "/tenant/passages/{ident}": {"delete", "get", "patch"},
        "/tenant/passages/{ident}/undo": {"post"},
        "/tenant/passages/{ident}/restore": {"post"},
        "/tenant/passages/{ident}/forget": {"post"},
        "/users/{user}/dropped": {"get"},
        "/users/{user}/dropped/{ident}/keep": {"post"},
        "/users/{user}/jobs": {"get"},
        "/users/{user}/files/{file}": {"delete", "get", "put"},
        "/users/{user}/reflections": {"post", "get"},
        "/users/{user}/reflections/{reflection}": {"post"},
        "/users/{user}/skills": {"post", "get"},
        "/users/{user}/skills/import": {"post"},
        "/users/{user}/skills/{skill}": {"delete", "patch", "get"},
        "/users/{user}/skills/{skill}/export": {"get"},
        "/users/{user}/skills/{skill}/versions": {"get"},
        "/users/{user}/files": {"get"},
        "/users/{user}/files/search": {"get"},
        "/users/{user}/files/{file}/versions": {"get"},
        "/users/{user}/files/{file}/content": {"get"},
        "/users/{user}/files/{file}/text": {"get"},
        "/users/{user}/policy": {"get", "put"},
        "/tools/{name}": {"delete", "get", "put"},
        "/tools/{name}/versions": {"get"},
        "/tools/{name}/undo": {"post"},
        "/users/{user}/conversations": {"get", "post"},
        "/users/{user}/conversations/{ident}/messages": {"get"},
        "/users/{user}/messages/search": {"get"},
        "/conversations/{ident}": {"delete", "get"},
        "/explain/{ident}": {"get"},
        "/usage": {"get"},
        "/keys": {"get", "post"},
        "/keys/{ident}": {"delete"},
        "/jobs": {"get"},
        "/jobs/{ident}/retry": {"post"},
        "/stats": {"get"},
        "/tools/entries/{entry}/accept": {"post"},
        "/tools/entries/{entry}/refresh": {"post"},
        "/tools/check": {"post"},
        "/tools": {"get"},
        "/tools/{name}/run": {"post"},
        "/tool-calls": {"get"},
        "/turns": {"get"},
    }
    body = paths["/memory/v1/users/{user}/blocks/{label}"]["put"]["requestBody"]["content"][
        "application/json"
    ]["schema"]
    assert body["required"] == ["value"]
    assert body["additionalProperties"] is False


async def test_the_models_own_edits_stand_in_the_same_history(data):
    script = (
        calls(call("core_memory_append", {"label": "human", "content": "Name: Ada"})),
        text("Noted."),
    )
    async with managed(data, *script) as live:
        r = await live.chat("My name is Ada", user="ada")
        (version,) = (await live.memory("GET", "/users/ada/blocks/human/versions")).json()["data"]
        assert (version["actor"], version["tool_call_id"], version["after"]) == (
            "model",
            "call_core_memory_append",
            "Name: Ada",
        )
        assert version["request_id"] == r.headers["x-mnemogate-request-id"]
        explained = (await live.memory("GET", f"/explain/{r.headers['x-memory-explain']}")).json()
        assert explained["tools"][0]["name"] == "core_memory_append"


async def test_a_query_parameter_that_a_route_does_not_have_is_named(live):
    checked = 0
    for route in Litestar([management()], openapi_config=None).routes:
        path = route.path.removeprefix("/memory/v1")
        for part in ("{user:str}", "{label:str}", "{ident:str}", "{version:int}"):
            path = path.replace(part, "1")
        for method in sorted(route.methods - {"OPTIONS", "HEAD"}):
            for name in ("as_of", "valid_at", "Limit", "q[]", "limitt"):
                r = await live.memory(method, f"{path}?{quote(name)}=2026-01-01")
                assert r.status_code == 400, (method, path, name, r.text)
                assert r.json()["error"]["param"] == name, (method, path)
                assert f"`{name}`" in r.json()["error"]["message"]
                checked += 1
    assert checked > 100


async def test_a_parameter_that_a_route_has_is_taken(live):
    for path in ("/users?limit=2", "/users/ada/passages?forgotten=true&agent=a", "/usage?limit=1"):
        assert (await live.memory("GET", path)).status_code == 200, path


async def test_strangers_learn_nothing_of_a_routes_parameters(live):
    r = await live.memory("GET", "/users?as_of=1", headers={"authorization": "Bearer no"})
    assert r.status_code == 401

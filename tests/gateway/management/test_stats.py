"""The monitors: what the numbers say is what happened, and each key sees its own alone."""

from __future__ import annotations

from tests.gateway.management.managing import as_key, managed
from tests.models import call, calls

EDIT = call("core_memory_append", {"label": "human", "content": "Tea"})
KEEP = call("archival_memory_insert", {"content": "Grace arrives on Friday"})
FIND = call("archival_memory_search", {"query": "Grace"})
MISS = call("archival_memory_search", {"query": "zebra"})


async def stats(live, path="", **options):
    response = await live.memory("GET", f"/stats{path}", **options)
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_monitors_count_what_turns_did(data):
    script = (calls(EDIT, KEEP), "Noted.", calls(FIND), calls(MISS), "On Friday.")
    async with managed(data, *script) as live:
        for words in ("I like tea", "When does Grace come?"):
            assert (await live.chat(words, user="ada")).status_code == 200
        found = await stats(live)
        assert found["object"] == "stats"
        assert found["turns"] == 2
        assert found["core"]["edits"] == 1
        assert found["core"]["edits_per_turn"] == 0.5
        assert [sum(day.values()) for day in found["core"]["edited"].values()] == [1]
        assert found["archival"]["passages"] == 1
        assert list(found["archival"]["added"].values()) == [1]
        assert (found["retrieval"]["searches"], found["retrieval"]["hits"]) == (2, 1)
        assert found["retrieval"]["hit_rate"] == 0.5
        assert found["retrieval"]["milliseconds"]["max"] > 0
        assert found["context"]["injected_tokens"]["p50"] > 0
        assert [p["searches"] for p in found["recent"]] == [0, 2]
        (model,) = found["usage"]["by_model"]
        assert (model["model"], model["requests"]) == ("m", 2)
        assert model["input_tokens"] == 500
        assert [k["key"] for k in found["usage"]["by_key"]] == ["app"]
        assert len(found["usage"]["by_day"]) == 1


async def test_a_tenant_sees_its_own_alone(data):
    async with managed(data) as live:
        await live.chat("Hello", user="ada")
        other = await stats(live, **as_key("sk-other"))
        assert (other["turns"], other["usage"]["by_model"], other["process"]) == (0, [], None)
        everything = await stats(live, **as_key("sk-root"))
        assert everything["turns"] == 1
        assert everything["process"]["requests"] == {"ok": 1}
        assert [u["failures"] for u in everything["process"]["upstreams"].values()] == [0]


async def test_a_key_of_one_user_names_that_user(data):
    async with managed(data) as live:
        await live.chat("Hello", user="bob")
        await live.chat("Hello", user="ada")
        mine = as_key("sk-ada")
        assert (await live.memory("GET", "/stats", **mine)).status_code == 403
        assert (await live.memory("GET", "/stats?user=bob", **mine)).status_code == 403
        assert (await stats(live, "?user=ada", **mine))["turns"] == 1
        assert (await stats(live))["turns"] == 2


async def test_since_limits_what_is_looked_at(data):
    async with managed(data) as live:
        await live.chat("Hello", user="ada")
        assert (await stats(live, "?since=2999-01-01"))["turns"] == 0
        assert (await live.memory("GET", "/stats?since=soon")).status_code == 400


async def test_turns_are_listed_with_their_calls(data):
    async with managed(data, calls(EDIT, MISS), "Noted.") as live:
        await live.chat("I like tea", user="ada")
        await live.chat("Hello", user="bob")
        listed = (await live.memory("GET", "/turns")).json()["data"]
        assert [t["user"] for t in listed] == ["bob", "ada"]
        assert [(c["name"], c["outcome"]) for c in listed[1]["calls"]] == [
            ("core_memory_append", "ok"),
            ("archival_memory_search", "empty"),
        ]
        assert listed[1]["injected_tokens"] > 0
        mine = (await live.memory("GET", "/turns", **as_key("sk-ada"))).json()["data"]
        assert [t["user"] for t in mine] == ["ada"]
        assert (await live.memory("GET", "/turns?user=bob", **as_key("sk-ada"))).status_code == 403
        assert (await live.memory("GET", "/turns", **as_key("sk-other"))).json()["data"] == []
        assert len((await live.memory("GET", "/turns?user=bob&limit=5")).json()["data"]) == 1

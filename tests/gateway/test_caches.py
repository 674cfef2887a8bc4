"""What is kept between requests: each cache holds no more bytes than docs/guarantees.md says,
however long the process lives.
"""

from __future__ import annotations

import gc
import platform
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from gateway import state
from gateway.auth import credential_cache
from gateway.auth.authenticator import Principal
from gateway.http import known_requests, parse_cache
from gateway.models.tokenizers import FAMILIES
from gateway.routing import context_windows, cooldowns, router, selector
from gateway.routing.caller import Caller
from gateway.server import router_caches
from memory import SHIPPED_HARNESS, service
from memory.cache import Cache
from memory.context import tokens
from memory.conversation import messages
from memory.retrieval import indexer, retriever
from memory.session import conversation_cache, model_records, policies
from memory.stores.sql.engine.sqlite import sqlite
from memory.stores.sql.rows.policies import PolicyEdit
from tests.bench.mixed import Mix
from tests.conftest import running
from tests.models import Model, call, calls, text

MIB = 1 << 20
ROOT = Path(__file__).parent.parent.parent
GUARANTEES = ROOT / "docs" / "guarantees.md"
COUNTERS = 1 + len(FAMILIES)
REQUESTS, SMALL = 120, 1 << 15
# By its row in the docs: where the bound stands, how many such there are, and the cache in a
# gateway.
CACHES = {
    "Conversations": ((conversation_cache, "BYTES"), 1, lambda g: g.memory.lines),
    "Request prefixes": ((parse_cache, "BYTES"), 1, lambda g: g.prefixes.prefixes),
    "Known requests": (
        (known_requests, "BYTES"),
        1,
        lambda g: g.known_requests.decisions,
    ),
    "Message digests": ((messages, "SEEN_BYTES"), 1, lambda g: g.memory.digests.cached_digests),
    "Token counts": (
        (tokens, "COUNTS_BYTES"),
        COUNTERS,
        lambda g: g.memory.counter("estimate").counts,
    ),
    "Token factors": (
        (tokens, "FACTORS_BYTES"),
        COUNTERS,
        lambda g: g.memory.counter("estimate").factors,
    ),
    "Scopes": ((service, "SCOPES_BYTES"), 1, lambda g: g.memory.scopes),
    "Query vectors": ((retriever, "ASKED_BYTES"), 1, lambda g: g.memory.retrieval.asked),
    "Credentials": ((credential_cache, "HELD_BYTES"), 1, lambda g: g.credentials.credentials),
    "Accepted credentials": (
        (credential_cache, "ACCEPTED_BYTES"),
        1,
        lambda g: g.credentials.accepted_digests,
    ),
    "Routes": ((router, "ROUTES_BYTES"), 1, lambda g: g.router.routes),
    "Cooldowns": ((cooldowns, "BYTES"), 1, lambda g: g.choice.cooldowns.records),
    "Context windows": (
        (context_windows, "RECORDS_BYTES"),
        1,
        lambda g: g.windows.records,
    ),
    "Latencies": ((selector, "PACES_BYTES"), 1, lambda g: g.choice.paces),
    "Records of models": ((model_records, "BYTES"), 1, lambda g: g.memory.models.records),
    "Policies": ((policies, "KNOWN_BYTES"), 1, lambda g: g.memory.policies._cache),
    "Indexed scopes": (
        (indexer, "KNOWN_BYTES"),
        1,
        lambda g: g.memory.retrieval.indexing.indexed_up_to,
    ),
    "Refused additions": ((state, "LACKS_BYTES"), 1, lambda g: g.lacks),
}


def taken(root, shared=()):
    """The bytes of all objects that are reached from one, each once, as they are allocated; those
    of `shared` aside.
    """
    met, waiting, total = {id(x) for x in shared}, [root], 0
    while waiting:
        found = waiting.pop()
        if id(found) in met or isinstance(found, type | FunctionType | ModuleType):
            continue
        met.add(id(found))
        total += -(-sys.getsizeof(found) // 16) * 16
        # Names that are texts are no referents.
        waiting += [
            *gc.get_referents(found),
            *(found if isinstance(found, dict) else ()),
        ]
    return total


def answer(seen, wire):
    asked = seen.json["messages"][-1]
    if seen.json["model"] == "calls" and asked["role"] == "user":
        return calls(
            call("core_memory_append", {"label": "human", "content": asked["content"][:20]}, "c")
        )
    return text("so be it, " + asked["content"][:200])


async def requested(live, count):
    """Sends requests of every kind, each in its turn."""
    root = live.url.removesuffix("/v1")
    mix = Mix(users=count // 4, keys=count // 8)
    for number in range(count):
        wanted = mix.request(number)
        response = await live.http.request(
            wanted.method, root + wanted.path, content=wanted.body, headers=wanted.headers
        )
        assert response.status_code == 200, response.text
        if wanted.talk:
            mix.answered(wanted.talk, "so be it, " + wanted.talk.messages[-1]["content"][:200])


async def filled(gateway, count):
    """Fills up what many more requests, failing targets, an embedder or other settings would."""
    await gateway.memory.policies.put(("tenant", "a strict one"), PolicyEdit("off"))
    for number in range(count):
        name = f"a provider/a model of {number}"
        await gateway.choice.cooldowns.record_failure(name, None if number % 2 else 10)
        gateway.choice.record_latency(name, 0.5)
        target = replace(gateway.router.default(), model=name)
        gateway.windows.note_refusal(target, Caller(), 5000, (5000 + number, 4000 + number))
        gateway.memory.models.count(name, saved=bool(number % 2), searched=True)
        await gateway.memory.policies.find(("tenant", name))
        gateway.memory.retrieval.indexing.indexed_up_to.put(number << 20, number << 40)
        gateway.lacks.put(name, (1, 123.5 + number))
        gateway.credentials.keep(f"own-{number:032x}", b"Bearer %064x" % number)
        gateway.credentials.accept(b"Bearer %064x" % number)
        gateway.memory.counter("estimate").correct(name, 1000 + number, 1500)
        gateway.memory.counter("estimate").text(name)
        scope = gateway.memory.scope("tenant", name, "default")
        gateway.memory.digests.extend_chain(
            scope.key, scope.owner, {"role": "user", "content": f"{scope.tag} {number}"}
        )
        gateway.memory.retrieval.asked.put(
            (f"tenant {number}", f"words {number}"), [number + i / 96 for i in range(96)]
        )
        gateway.router.route(f"a model of {number}", Principal("tenant", "own"))


@pytest.fixture
def small(monkeypatch):
    for (module, name), _, _ in CACHES.values():
        monkeypatch.setattr(module, name, SMALL)
    monkeypatch.setattr(conversation_cache, "SENT_BYTES", SMALL // 2)
    monkeypatch.setattr(conversation_cache, "MAX_SENT_BYTES", SMALL // 8)


async def test_every_cache_stays_within_its_bound_and_takes_no_more_than_it_says(data, small):
    config = {"server.single_user": False, "routing.choice": "least_latency"}
    async with Model(answer) as up, running(up.url, data, config) as live:
        gateway = live.gateway
        await requested(live, REQUESTS)
        await filled(gateway, 3 * REQUESTS)
        of_all = [
            gateway.settings,
            *gateway.settings.providers.values(),
            *gateway.router._upstreams.values(),
            gateway.memory.policy,
            gateway.router.routes,
            SHIPPED_HARNESS,
        ]
        for name, (_, _, of) in CACHES.items():
            cache = of(gateway)
            content = [cache._entries] if name == "Conversations" else [cache._now, cache._before]
            assert SMALL // 4 < cache.byte_count <= SMALL, name
            assert SMALL // 8 < taken(content, of_all) <= cache.byte_count, name


def bounds():
    """What the docs say: MiB by name."""
    section = (
        GUARANTEES.read_text(encoding="utf-8")
        .partition("\n## Memory of the process\n")[2]
        .partition("\n## ")[0]
    )
    return {
        name.strip(): float(size)
        for name, size in re.findall(r"^\| ([^|]+?) \| ([\d.]+) \|", section, re.MULTILINE)
    }


def test_the_docs_give_every_bound_and_all_together_are_under_40_mib():
    ours = {
        name: many * getattr(module, bound) / MIB
        for name, ((module, bound), many, _) in CACHES.items()
    }
    pages = (
        sqlite.PAGES_HERE
        + sqlite.PAGES[sqlite.WRITING]
        + sqlite.READERS * sqlite.PAGES[sqlite.READING]
    ) / MIB
    assert bounds() == {
        **ours,
        "Pages of the database": pages,
        "Paths and queries": router_caches.BYTES / MIB,
        "Small ones": 2.0,
    }
    assert sum(bounds().values()) < 40


def test_no_cache_is_left_out_of_the_table():
    made = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for package in ("gateway", "memory")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"(?<!class )\bCache\(", path.read_text(encoding="utf-8"))
    }
    # Filled on Postgres, by bridges and by the dashboard alone: the docs name them below the table.
    elsewhere = {
        "memory/stores/sql/index/stems",
        "gateway/upstream/carried_answers",
        "gateway/auth/sessions",
        # Words of messages that wait for the search index.
        "memory/stores/sql/index/index_changes",
        # What background calls and bridges learn of models.
        "gateway/models/thinking",
        "gateway/wire/token_limits",
        # Where tenants make agents.
        "gateway/routing/agents",
        "memory/session/agent_profiles",
    }
    listed = {module.__name__.replace(".", "/") for (module, _), _, _ in CACHES.values()}
    listed -= {"memory/session/conversation_cache"}
    assert made - elsewhere == listed


@pytest.mark.parametrize(
    "query", ["&a" * 7000, "&".join(f"{n:x}" for n in range(4000)), "a=" + "b" * 15000]
)
async def test_what_strangers_ask_for_does_not_stay_in_the_framework(data, query):
    async with Model("hello") as up, running(up.url, data, {"server.single_user": False}) as live:
        root = live.url.removesuffix("/v1")
        for function in router_caches.tables():
            function.cache_clear()
        for number in range(12):
            path = f"/memory/v1/users/{'x' * 200}{number}/messages/search?n{number}={query}"
            assert (
                await live.http.get(root + path, headers={"authorization": ""})
            ).status_code == 401
        parsed, *others = router_caches.tables()
        assert len(others) + 1 == len(router_caches.TABLES)
        assert 0 < parsed.cache_info().currsize < 3
        one = parsed(f"n{number}={query}".encode())
        assert 2 * taken(one) < router_caches.QUERY * len(query)
        assert live.app.apps.caches.held_bytes <= router_caches.BYTES


THREADS = """
import threading
from pathlib import Path
from gateway.server.uvicorn_server import use_one_heap
use_one_heap()
wall = threading.Barrier(8)
def work():
    held = [bytearray(50_000) for _ in range(20)]  # what is larger has a mapping of its own
    wall.wait()
    wall.wait()
for _ in range(7):
    threading.Thread(target=work, daemon=True).start()
wall.wait()
heaps = 0
HEAP = 64 << 20
regions = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
bounds = [[int(x, 16) for x in region[0].split("-")] for region in regions]
for number, region in enumerate(regions[:-1]):
    begin, end = bounds[number]
    rest = regions[number + 1][1]
    # By chance other mappings begin there too: the rest of a heap is kept free behind it.
    is_whole = bounds[number + 1] == [end, begin + HEAP] and rest.startswith("---")
    heaps += begin % HEAP == 0 and region[1].startswith("rw") and is_whole
print(heaps)
wall.wait()
"""


def test_threads_have_no_heaps_of_their_own():
    """Those of glibc are 64 MiB of addresses each, and begin at a multiple of that."""
    command = [sys.executable, "-c"]
    here, without = (
        subprocess.run(
            [*command, code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for code in (THREADS, THREADS.replace("use_one_heap()\n", "\n"))
    )
    assert int(here) == 0
    assert (int(without) > 0) == (platform.libc_ver()[0] == "glibc")


def test_a_cache_keeps_what_is_asked_for_and_nothing_that_is_heavier_than_half_of_it():
    cache = Cache(1000, 10, lambda _, value: len(value))
    for number in range(500):
        cache.put("used", "u")
        cache.put(number, "x" * 10)
        assert cache.get("used") == "u"
        assert cache.get(number) == "x" * 10
        assert cache.byte_count <= 1000
    assert cache.get(0) is None
    cache.put(499, "y" * 500)
    assert cache.get(499) is None
    assert [cache.pop("used"), cache.pop("used")] == ["u", None]
    for name in list(cache._now) + list(cache._before):
        cache.pop(name)
    assert (cache.byte_count, len(cache)) == (0, 0)

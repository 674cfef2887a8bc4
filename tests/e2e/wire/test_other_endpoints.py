"""J.

Models, health, and the edges of the map: what is not there says so as JSON, and nothing redirects.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx
import pytest

from tests.conftest import running
from tests.e2e.wire.conftest import ANY
from tests.e2e.wire.rows import row
from tests.models import Model

pytestmark = pytest.mark.asyncio(loop_scope="session")
NAMES = [
    "gpt-4o",
    "org/model",
    "a/b/c:free",
    "ft:gpt-4o:acme::x1",
    "with space",
    "ü☃",
    "100%",
    "a%2Fb",
    "q?x=1",
    "dots..dots",
    "@cf/x/y",
    "a+b",
    "x#y",
]
ODD_CARDS = [
    {"id": "up-1", "object": "model", "created": None, "owned_by": None, "x_extra": {"a": 1}},
    {"id": "up-2"},
    {"id": "up-3", "created": 1.5, "object": "thing", "owned_by": 7},
    {"id": "up-4", "created": "2024"},
    {"id": 5},
    {"no": "id"},
    "text",
    None,
    {"id": "gpt-4o", "created": 9},
    {"id": "up-5", "created": True},
    {"id": ""},
]
REQUIRED = {"id": str, "object": str, "created": int, "owned_by": str}


def is_json_error(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    assert list(response.json()["error"]) == ["message", "type", "param", "code"]
    return response.json()["error"]


def is_card(card):
    assert {k: type(card[k]) for k in REQUIRED} == REQUIRED
    assert card["object"] == "model"


@row(147)
async def test_models_are_listed_in_shape_with_no_upstream_up(data):
    config = {"models": {**dict.fromkeys(NAMES, ANY), "*": ANY}}
    async with running("http://127.0.0.1:9/v1", data, config) as live:
        for root in (live.url, f"{live.root}/u/ada/v1"):
            response = await live.http.get(f"{root}/models")
            assert (response.status_code, list(response.json())) == (200, ["object", "data"])
            assert response.json()["object"] == "list"
            assert [c["id"] for c in response.json()["data"]] == NAMES
            for card in response.json()["data"]:
                is_card(card)


@row(111, 147)
async def test_a_model_is_found_whatever_its_name_holds(data):
    async with running(
        "http://127.0.0.1:9/v1", data, {"models": dict.fromkeys(NAMES, ANY)}
    ) as live:
        for root in (live.url, f"{live.root}/u/ada/v1"):
            for name in NAMES:
                for safe in ("", "/:@+"):
                    response = await live.http.get(
                        httpx.URL(f"{root}/models/{quote(name, safe=safe)}")
                    )
                    assert response.status_code == 200, (root, name, safe)
                    is_card(response.json())
                    assert response.json()["id"] == name
            assert (
                is_json_error(await live.http.get(f"{root}/models/nope"), 404)["code"]
                == "model_not_found"
            )


@row(147)
@pytest.mark.parametrize(
    "listed",
    [
        {"object": "list", "data": ODD_CARDS},
        {"data": None},
        [],
        None,
        {"error": {"message": "no"}},
        {"object": "list", "data": [[[]]]},
    ],
)
async def test_what_an_upstream_lists_is_made_whole(data, listed):
    async with (
        Model(lambda seen, wire: wire.json(listed)) as up,
        running(up.url, data, {"models": {"gpt-4o": ANY, "*": ANY}}) as live,
    ):
        response = await live.http.get(f"{live.url}/models")
        assert response.status_code == 200
        cards = response.json()["data"]
        for card in cards:
            is_card(card)
        assert [c["id"] for c in cards] == [
            "gpt-4o",
            *(
                [f"up-{i}" for i in range(1, 6)]
                if isinstance(listed, dict) and listed.get("data") is ODD_CARDS
                else []
            ),
        ]
        assert cards[0]["created"] > 1_000_000_000
        if len(cards) > 1:
            assert cards[1]["x_extra"] == {"a": 1}


@row(147)
@pytest.mark.parametrize(
    "answer", [(401, {"error": {"message": "no"}}), (500, {}), (302, {}, "location: /x")]
)
async def test_an_upstream_without_a_list_does_not_matter(data, answer):
    async with (
        Model(answer) as up,
        running(up.url, data, {"models": {"gpt-4o": ANY, "*": ANY}}) as live,
    ):
        assert [c["id"] for c in (await live.http.get(f"{live.url}/models")).json()["data"]] == [
            "gpt-4o"
        ]


@row(147)
async def test_a_silent_upstream_does_not_hold_the_list(data):
    async def silent(seen, wire):
        await asyncio.sleep(20)

    async with (
        Model(silent) as up,
        running(up.url, data, {"models": {"gpt-4o": ANY, "*": ANY}}) as live,
    ):
        response = await asyncio.wait_for(live.http.get(f"{live.url}/models"), 4)
        assert [c["id"] for c in response.json()["data"]] == ["gpt-4o"]


@row(147)
async def test_models_need_a_key_and_other_methods_of_a_model_are_the_upstreams(shared, data):
    own = {"server.single_user": False}
    async with running(shared.up.url, data / "own", own) as live, httpx.AsyncClient() as nobody:
        assert (await nobody.get(f"{live.url}/models")).status_code == 401
    shared.up.script = [
        lambda seen, wire: wire.json({"id": "ft:x", "object": "model", "deleted": True})
    ]
    response = await shared.live.http.delete(f"{shared.live.url}/models/ft:gpt-4o%2Fx")
    assert response.json() == {"id": "ft:x", "object": "model", "deleted": True}
    assert (shared.up.requests[-1].method, shared.up.requests[-1].path) == (
        "DELETE",
        "/v1/models/ft:gpt-4o%2Fx",
    )


@row(153)
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v2/chat/completions",
        "/v1",
        "/nope",
        "/v1x/models",
        "/chat",
        "/u/ada",
        "/u/ada/v2/models",
        "/api/tags",
        "/favicon.ico",
        "/nope/",
        "/memory",
        "/memory/v1/nope",
        "/%00",
        "/%0d%0aX-Evil:1",
        "/" + "a" * 8000,
        "/u//v1/models",
        "/schema/nope",
        "/%ff",
    ],
)
async def test_an_unknown_path_is_a_json_404(shared, path):
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        response = await shared.live.http.request(
            method, httpx.URL(shared.live.root + path), follow_redirects=False
        )
        assert response.status_code in ((400, 404) if "%ff" in path else (404, 405)), response.text
        is_json_error(response, response.status_code)
        assert "x-evil" not in response.headers
    assert not shared.up.requests


@row(153)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("DELETE", "/v1/chat/completions"),
        ("PUT", "/v1/chat/completions"),
        ("POST", "/v1/models"),
        ("DELETE", "/health"),
        ("POST", "/ready"),
        ("GET", "/u/ada/v1/chat/completions"),
        ("POST", "/memory/v1/users"),
        ("DELETE", "/v1/models"),
        ("POST", "/schema"),
        ("TRACE", "/v1/models"),
        ("TRACE", "/v1/embeddings"),
        ("TRACE", "/health"),
    ],
)
async def test_a_wrong_method_is_a_json_405(shared, method, path):
    response = await shared.live.http.request(method, shared.live.root + path)
    assert is_json_error(response, 405)["code"] == "method_not_allowed"
    assert method in response.json()["error"]["message"]
    there = response.headers["allow"].split(", ")
    assert method not in there
    assert ", ".join(there) in response.json()["error"]["message"]
    assert not shared.up.requests


@row(153)
@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/",
        "/v1/models/",
        "/v1/models/gpt-4o/",
        "/health/",
        "/v1/embeddings/",
        "/u/ada/v1/chat/completions/",
        "/v1//chat/completions",
        "/schema/",
    ],
)
async def test_nothing_redirects(shared, path):
    for method in ("GET", "POST"):
        response = await shared.live.http.request(
            method,
            shared.live.root + path,
            json={"model": "m", "messages": [{"role": "user", "content": "x"}]},
            follow_redirects=False,
        )
        assert response.status_code in (200, 404, 405)
        assert "location" not in response.headers
        assert response.headers["content-type"].startswith(
            ("application/json", "application/vnd.oai.openapi")
        )


@row(154)
async def test_liveness_needs_no_key_no_store_and_no_upstream(data):
    config = {
        "keys": [{"name": "k", "key": "secret", "tenant": "t"}],
        "providers": {"openai": {"base_url": "http://127.0.0.1:9/v1", "api_key": "x"}},
    }
    async with running("", data, config, key="") as live:
        assert (await live.http.get(f"{live.root}/health")).json() == {"status": "ok"}
        assert (await live.http.get(f"{live.root}/v1/models")).status_code == 401
        ready = await live.http.get(f"{live.root}/ready")
        assert ready.status_code == 200
        assert set(ready.json()) == {"status", "degraded"}


@row(154)
async def test_readiness_tells_that_memory_is_away(data):
    data.mkdir(parents=True)
    # No file can be there: the store cannot open.
    (data / "mnemogate.db").mkdir()
    async with Model("ok") as up, running(up.url, data, {"memory.read_deadline_ms": 50}) as live:
        assert (await live.http.get(f"{live.root}/ready")).json() == {
            "status": "degraded",
            "degraded": ["memory"],
        }
        assert (await live.http.get(f"{live.root}/health")).json() == {"status": "ok"}
        live.gateway.process.draining = True
        assert (await live.http.get(f"{live.root}/ready")).status_code == 503
        assert (await live.http.get(f"{live.root}/health")).status_code == 200

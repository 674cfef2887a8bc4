"""The rest of `/v1`: models without an upstream, everything else relayed as it came."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.models import Model

CARDS = {
    "object": "list",
    "data": [
        {"id": "a/b:c", "object": "model", "created": None, "owned_by": "x"},
        {"id": "m", "object": "model", "created": 5},
        {"nonsense": 1},
    ],
}
CONFIG = {
    "models": {
        "m": {"targets": [{"provider": "openai"}]},
        "*": {"targets": [{"provider": "openai"}]},
    }
}


async def test_models_are_the_configured_and_the_upstreams(data, sdk):
    async def listed(seen, wire):
        await wire.json(CARDS)

    async with Model(listed) as up, running(up.url, data, CONFIG) as live, sdk(live) as client:
        found = [m async for m in client.models.list()]
        assert [m.id for m in found] == ["m", "a/b:c"]
        assert all(isinstance(m.created, int) for m in found)
        assert (await client.models.retrieve("a/b:c")).id == "a/b:c"
        assert up.requests[0].header("authorization") == "Bearer sk-sentinel-4f1d"


async def test_models_work_with_no_upstream_up(data, sdk):
    async with running("http://127.0.0.1:9/v1", data, CONFIG) as live, sdk(live) as client:
        assert [m.id async for m in client.models.list()] == ["m"]


async def test_everything_else_is_relayed_as_it_came(data):
    async def echo(seen, wire):
        await wire.answer(
            201, seen.body, "x-thing: 1", "set-cookie: a=b", content_type="audio/mpeg"
        )

    async with Model(echo) as up, running(up.url, data) as live:
        body = (
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--b\r\n'
            b"\x00\xff--b--"
        )
        response = await live.http.post(
            f"{live.url}/audio/transcriptions?x=1%202",
            content=body,
            headers={"content-type": "multipart/form-data; boundary=b"},
        )
        assert (response.status_code, response.content, response.headers["x-thing"]) == (
            201,
            body,
            "1",
        )
        assert "set-cookie" not in response.headers
        assert up.requests[0].path == "/v1/audio/transcriptions?x=1%202"
        assert up.requests[0].header("content-type") == "multipart/form-data; boundary=b"
        await live.http.delete(f"{live.url}/files/file-1")
        assert (up.requests[1].method, up.requests[1].path, up.requests[1].body) == (
            "DELETE",
            "/v1/files/file-1",
            b"",
        )
        response = await live.http.get(f"{live.root}/v1/%2e%2e/admin")
        assert response.status_code == 404
        assert len(up.requests) == 2


async def test_a_relayed_alias_is_swapped_both_ways(data):
    config = {
        "models": {
            "embed": {"targets": [{"provider": "openai", "model": "text-embedding-3-small"}]}
        }
    }

    async def embed(seen, wire):
        await wire.json({"model": seen.json["model"], "data": [{"embedding": "AAAA"}]})

    async with Model(embed) as up, running(up.url, data, config) as live:
        response = await live.http.post(
            f"{live.url}/embeddings",
            json={"input": [[1, 2]], "model": "embed", "encoding_format": "base64"},
        )
        assert up.requests[0].json == {
            "input": [[1, 2]],
            "model": "text-embedding-3-small",
            "encoding_format": "base64",
        }
        assert json.loads(response.content)["model"] == "embed"


@pytest.mark.parametrize(
    "listed", [b'{"data":[{"id":"\xff"}]}', b"[" * 100_000], ids=["no UTF-8", "too deep"]
)
async def test_a_list_of_models_that_cannot_be_read_is_none(data, listed):
    async with (
        Model(lambda seen, wire: wire.answer(200, listed)) as up,
        running(up.url, data, CONFIG) as live,
    ):
        assert [m["id"] for m in (await live.http.get(f"{live.url}/models")).json()["data"]] == [
            "m"
        ]


async def test_a_name_that_is_no_name_is_told_by_its_length(data):
    async with Model("fine") as up, running(up.url, data, CONFIG) as live:
        for refused in (
            await live.chat("hi", model="x" * 1025),
            await live.http.post(f"{live.url}/embeddings", json={"model": "x" * 1025}),
        ):
            assert (
                refused.status_code,
                refused.json()["error"]["code"],
                len(refused.text) < 300,
            ) == (404, "model_not_found", True)
        assert (await live.chat("hi", model="x" * 1024)).status_code == 200

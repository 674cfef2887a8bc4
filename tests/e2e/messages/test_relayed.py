"""What lies below `/v1/messages` and is relayed."""

from __future__ import annotations

import pytest

from tests.conftest import running
from tests.e2e.messages.client import OWN
from tests.wire_models import MessagesModel

KEY = "mg-app-000000000000000000000000"


class Batches(MessagesModel):
    async def _behave(self, seen, wire):
        if "/batches" in seen.path:
            await wire.json({"id": "b_1", "asked": f"{seen.method} {seen.path}"})
        else:
            await super()._behave(seen, wire)


@pytest.mark.parametrize("prefix", ["", "/u/ada"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["", "/b_1", "/b_1/results", "/b_1/cancel", "?limit=2"])
async def test_batches_are_made_and_read(data, prefix, method, path):
    async with Batches("Hi") as up:
        config = {"providers": {"main": {"kind": "anthropic", "base_url": up.url}}, **OWN}
        async with running("", data, config) as live:
            url = f"{live.root}{prefix}/v1/messages/batches{path}"
            http = await live.http.request(method, url, json={} if method == "POST" else None)
            assert http.status_code == 200, http.text
            assert http.json()["asked"] == f"{method} /v1/messages/batches{path}"


STEPS = [("POST", ""), ("GET", "/b_1"), ("GET", "/b_1/results"), ("POST", "/b_1/cancel")]


@pytest.mark.parametrize("prefix", ["", "/u/ada"])
@pytest.mark.parametrize(
    ("paths", "reached"),
    [
        (["/v1/messages/batches*"], [200, 200, 200, 200]),
        (["/v1/messages/batches/*"], [403, 200, 200, 200]),
        (["/v1/messages/batches"], [200, 403, 403, 403]),
        (["/v1/messages/batches/b_1"], [403, 200, 403, 403]),
        (["/v1/batches*"], [403, 403, 403, 403]),
        ([], [403, 403, 403, 403]),
    ],
)
async def test_batches_are_for_managed_keys_whose_paths_list_them(data, prefix, paths, reached):
    async with Batches("Hi") as up:
        provider = {"kind": "anthropic", "base_url": up.url, "api_key": "sk-ant"}
        keys = [{"name": "app", "key": KEY, "tenant": "t", "paths": paths}]
        config = {"providers": {"main": provider}, "keys": keys}
        async with running("", data, config) as live:
            found = []
            for method, path in STEPS:
                url = f"{live.root}{prefix}/v1/messages/batches{path}"
                body = {"requests": []} if method == "POST" else None
                headers = {"authorization": f"Bearer {KEY}"}
                http = await live.http.request(method, url, json=body, headers=headers)
                found.append(http.status_code)
                if http.status_code == 200:
                    assert http.json()["asked"] == f"{method} /v1/messages/batches{path}"
                else:
                    assert http.json()["error"]["type"] == "permission_error"
            assert found == reached
            seen = [(r.method, r.path.removeprefix("/v1/messages/batches")) for r in up.requests]
            assert seen == [step for step, code in zip(STEPS, reached, strict=True) if code == 200]


@pytest.mark.parametrize(
    ("path", "key", "status", "kind"),
    [
        ("/messages/batches/b_1", "wrong", 401, "authentication_error"),
        ("/messages/batches/b_1", KEY, 403, "permission_error"),
        ("/messages/%2e%2e/files", KEY, 404, "not_found_error"),
    ],
)
async def test_errors_of_ours_have_the_apis_shape(data, path, key, status, kind):
    async with Batches("Hi") as up:
        provider = {"kind": "anthropic", "base_url": up.url, "api_key": "sk-ant"}
        keys = [{"name": "app", "key": KEY, "tenant": "t"}]
        config = {"providers": {"main": provider}, "keys": keys}
        async with running("", data, config) as live:
            raw = live.http.build_request(
                "GET", f"{live.url}/messages/x", headers={"authorization": f"Bearer {key}"}
            )
            raw.url = raw.url.copy_with(raw_path=f"/v1{path}".encode())
            http = await live.http.send(raw)
            assert http.status_code == status, http.text
            told = http.json()
            assert (told["type"], told["error"]["type"]) == ("error", kind)
            assert told["request_id"]

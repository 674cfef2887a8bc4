"""Probes are answered in every state of the gateway, by GET and HEAD alone."""

from __future__ import annotations

import pytest

from tests.conftest import running
from tests.models import Model, text


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_need_no_key_and_say_what_answers_of_ours_say(data, path):
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        await live.gateway.memory.wait_until_ready()
        for method, has_body in (("GET", True), ("HEAD", False)):
            answer = await live.http.request(
                method, live.root + path, headers={"authorization": ""}
            )
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-mnemogate-request-id"].startswith("req_")
            assert bool(answer.content) is has_body
        assert (await live.http.post(live.root + path)).status_code == 405


async def test_readiness_names_what_is_degraded_and_that_the_gateway_ends(data):
    async with Model(text("so be it")) as up, running(up.url, data) as live:
        await live.gateway.memory.wait_until_ready()
        live.gateway.memory._ready.clear()
        answer = await live.http.get(f"{live.root}/ready")
        assert answer.json() == {"status": "degraded", "degraded": ["memory"]}
        live.gateway.memory._ready.set()
        live.gateway.process.draining = True
        answer = await live.http.get(f"{live.root}/ready")
        assert answer.status_code == 503
        assert answer.json() == {"status": "draining", "degraded": []}

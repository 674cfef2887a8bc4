"""The relay under odd paths and an upstream that asks for long waits."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import running
from tests.models import Model


def answering(body):
    return lambda seen, wire: wire.json(body)


@pytest.mark.parametrize(
    "path",
    ["/u/v1/v1/embeddings", "/u/v1x/v1/embeddings", "/u/ada/%761/embeddings", "/v1/embeddings"],
)
async def test_the_user_in_the_path_never_shifts_it(data, path):
    async with Model(answering({"ok": 1})) as up, running(up.url, data) as live:
        assert (
            await live.http.post(live.root + path, json={"model": "m", "input": "x"})
        ).status_code == 200
        assert up.requests[-1].path == "/v1/embeddings"


@pytest.mark.parametrize("after", ["700", "Fri, 01 Jan 2100 00:00:00 GMT"])
@pytest.mark.parametrize("mode", ["off", "full"])
async def test_a_retry_after_beyond_the_deadline_fails_at_once(data, mode, after):
    async with (
        Model((429, {"error": {"message": "slow"}}, f"retry-after: {after}")) as up,
        running(up.url, data) as live,
    ):
        response = await asyncio.wait_for(live.chat("hi", {"x-memory": mode}), 5)
        assert (response.status_code, response.headers["retry-after"], len(up.requests)) == (
            429,
            after,
            1,
        )

"""Responses that run in the background, when whoever streamed them is gone: client or worker."""

from __future__ import annotations

import asyncio
import signal

import httpx
import pytest

from tests import stores
from tests.conftest import SENTINEL_KEY, running
from tests.e2e.postgres_chat import ADA, storage
from tests.e2e.responses.asking import ask, texts
from tests.gateway.cli.command import started
from tests.wire_models import ResponsesModel, say, sse

KEY = {"authorization": f"Bearer {SENTINEL_KEY}"}
MEMORY = pytest.mark.parametrize("memory", ["full", "off"])


class Background(ResponsesModel):
    """A provider that begins a stream in the background and writes no more of it."""

    def __init__(self):
        super().__init__(self._begin)
        self.name = ""

    async def _begin(self, seen, wire):
        reply = self.reply([say("Yes.")], seen.json)
        reply["status"], self.name = "in_progress", reply["id"]
        await wire.start_stream()
        for _, event in zip(range(2), self.events(reply), strict=False):
            await self.write_event(wire, event)
        await asyncio.Event().wait()

    def end(self, status):
        self.replies[self.name]["status"] = status


async def begin(http, url, memory):
    """Stream a response until it names itself; return who reads it."""
    sent = {"model": "m", "input": "Hi", "user": "ada", "background": True, "stream": True}
    headers = {**KEY, "x-memory": memory}
    request = http.build_request("POST", f"{url}/responses", json=sent, headers=headers)
    found = await http.send(request, stream=True)
    assert found.status_code == 200
    async for line in found.aiter_lines():
        if "response.in_progress" in line:
            return found
    raise AssertionError("no event came")


@MEMORY
async def test_a_client_that_left_a_stream_in_the_background_may_ask_for_its_response(data, memory):
    async with Background() as up, running(up.url, data) as live:
        await (await begin(live.http, live.url, memory)).aclose()
        path = f"{live.url}/responses/{up.name}"
        assert (await live.http.get(path, headers=ADA)).json()["status"] == "in_progress"
        assert (await live.http.get(path, headers={"x-memory-user": "bob"})).status_code == 404
        up.end("completed")
        found = await live.http.get(path, headers=ADA, params={"stream": "true"})
        assert texts(sse(found.text)[-1]["response"]) == ["Yes."]


@MEMORY
@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_another_worker_tells_how_a_response_ended_whose_worker_was_killed(
    postgres_url, tmp_path, memory, status
):
    async with (
        Background() as up,
        running(up.url, tmp_path / "other", storage(postgres_url)) as other,
        httpx.AsyncClient(timeout=30) as http,
    ):
        with started(
            tmp_path / "killed",
            *("serve", "--port", "0", "--upstream", up.url),
            MNEMOGATE_STORAGE__DATABASE=postgres_url,
            MNEMOGATE_STORAGE__SECRET=stores.SECRET.hex(),
            MNEMOGATE_SERVER__SINGLE_USER="false",
        ) as worker:
            url = await asyncio.to_thread(lambda: worker.url)
            for _ in range(300):
                if (await http.get(f"{url}/ready")).json()["status"] == "ok":
                    break
                await asyncio.sleep(0.05)
            await begin(http, f"{url}/v1", memory)
            worker.popen.send_signal(signal.SIGKILL)
        path = f"{other.url}/responses/{up.name}"
        assert (await other.http.get(path, headers=ADA)).json()["status"] == "in_progress"
        up.end(status)
        assert (await other.http.get(path, headers=ADA)).json()["status"] == status


async def test_a_response_that_one_worker_relayed_is_known_at_another_at_once(
    postgres_url, tmp_path
):
    async with (
        ResponsesModel("Yes.") as up,
        running(up.url, tmp_path / "one", storage(postgres_url)) as one,
        running(up.url, tmp_path / "other", storage(postgres_url)) as other,
    ):
        await other.gateway.memory.wait_until_ready()
        off = {"x-memory": "off"}
        for i in range(20):
            found, _ = await ask(one, f"Say {i}", headers=off)
            await ask(other, "Again", headers=off, previous_response_id=found["id"])

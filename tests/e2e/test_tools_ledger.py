"""A run that changes something starts at most once, whatever is retried, cut or killed."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import pytest

from tests.e2e.operator_tools import ToolServer, gateway, granting
from tests.e2e.wire.child import child
from tests.models import Model, call, calls
from tests.sockets import within

ASK = {"model": "m", "messages": [{"role": "user", "content": "Pay it"}], "user": "ada"}
ONCE = {"idempotency-key": "key-1"}
NOT_KNOWN = (
    "Error: pay was started before the connection broke; whether it took effect is not known. "
    "Check before you repeat it."
)


def config_of(up, server, **entries):
    """A configuration file that grants these tools of the server to everybody."""
    lines = ['[toolbox]\ngrant = ["*"]', f'[providers.up]\nbase_url = "{up.url}"']
    lines.append('[storage]\nvectors = "none"\n[routing]\nask_windows = false')
    for name, method in entries.items():
        body = 'body = "none"\n' if method == "POST" else ""
        lines.append(
            f'[tools.{name}]\nkind = "http"\nmethod = "{method}"\n{body}'
            f'url = "{server.root}/{name}/{{city}}"\nrequired = ["city"]\n'
            'parameters = { city = { type = "string" } }'
        )
    return "\n".join(lines)


async def kill_in_a_run(folder, config, server, runs=1):
    """Ask, and kill the gateway while a run is under way."""
    async with child(folder, config) as (gateway_process, client):
        asking = asyncio.create_task(client.post("/v1/chat/completions", json=ASK, headers=ONCE))
        assert await within(20, lambda: server.running == runs)
        gateway_process.process.kill()
        await gateway_process.process.wait()
        with contextlib.suppress(httpx.HTTPError):
            await asking


async def retry(folder, config):
    async with child(folder, config) as (_, client):
        got = await client.post("/v1/chat/completions", json=ASK, headers=ONCE)
        assert got.status_code == 200, got.text
        assert got.headers["x-memory-status"] == "ok"
        return got.json()["choices"][0]["message"]["content"]


def told_of(body):
    return [m["content"] for m in body["messages"] if m["role"] == "tool"]


async def test_t_g7_a_write_is_not_run_again_after_a_kill_and_a_read_is(tmp_path):
    asked = calls(call("pay", {"city": "x"}, "c1"), call("look", {"city": "y"}, "c2"))
    async with ToolServer(pay="paid", look="seen") as server, Model(asked, "Done.") as up:
        server.delays = {"pay": 5, "look": 5}
        config = config_of(up, server, pay="POST", look="GET")
        await kill_in_a_run(tmp_path, config, server, 2)
        server.delays.clear()
        up.script = ["Done."]
        assert await retry(tmp_path, config) == "Done."
        assert len(server.runs("pay")) == 1
        assert len(server.runs("look")) == 2
        pay, look = told_of(up.bodies[-1])
        assert pay == NOT_KNOWN
        assert look.endswith("\nseen")


async def test_t_g7_a_finished_round_is_not_run_again_after_a_kill(tmp_path):
    first = calls(call("pay", {"city": "x"}, "c1"))
    second = calls(call("look", {"city": "y"}, "c2"))
    async with ToolServer(pay="paid", look="seen") as server, Model(first, second, "Done.") as up:
        server.delays = {"look": 5}
        config = config_of(up, server, pay="POST", look="GET")
        await kill_in_a_run(tmp_path, config, server)
        server.delays.clear()
        up.script = [second, "Done."]
        assert await retry(tmp_path, config) == "Done."
        assert len(server.runs("pay")) == 1
        pay, look = told_of(up.bodies[-1])
        assert pay.endswith("\npaid")
        assert look.endswith("\nseen")


@pytest.mark.parametrize("idempotent", [False, True])
async def test_t_g7_a_client_that_leaves_and_retries_does_not_pay_twice(data, idempotent):
    asked = calls(call("pay", {"city": "x"}, "c1"))
    async with ToolServer(pay="paid") as server, Model(asked, "Done.") as up:
        server.delays["pay"] = 5
        tools = {"pay": server.writing("pay", idempotent=idempotent)}
        async with gateway(up, data, granting(tools)) as live:
            with pytest.raises(httpx.ReadTimeout):
                url = f"{live.url}/chat/completions"
                await live.http.post(url, json=ASK, headers=ONCE, timeout=1.5)
            assert await within(3, lambda: not server.running)
            server.delays.clear()
            got = await live.http.post(f"{live.url}/chat/completions", json=ASK, headers=ONCE)
            assert got.json()["choices"][0]["message"]["content"] == "Done."
            assert len(server.runs("pay")) == 1 + idempotent
            (pay,) = told_of(up.bodies[-1])
            assert pay == NOT_KNOWN or idempotent


async def test_t_g7_memory_edits_are_committed_before_a_slow_run_ends_and_once(data):
    remember = call("archival_memory_insert", {"content": "Ada likes tea."}, "c2")
    asked = calls(call("pay", {"city": "x"}, "c1"), remember)
    async with ToolServer(pay="paid") as server, Model(asked, "Done.") as up:
        server.delays["pay"] = 5
        async with gateway(up, data, granting({"pay": server.writing("pay")})) as live:
            url = f"{live.url}/chat/completions"
            with pytest.raises(httpx.ReadTimeout):
                await live.http.post(url, json=ASK, headers=ONCE, timeout=1.5)
            listed = await live.memory("GET", "/users/ada/passages")
            assert [p["content"] for p in listed.json()["data"]] == ["Ada likes tea."]
            server.delays.clear()
            got = await live.http.post(url, json=ASK, headers=ONCE)
            assert got.headers["x-memory-status"] == "ok"
            pay, stored = told_of(up.bodies[-1])
            assert pay == NOT_KNOWN
            assert stored.startswith("Stored in archival memory")

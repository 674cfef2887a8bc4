"""A run that changes something starts at most once, whatever is retried, cut or killed."""

from __future__ import annotations

import asyncio

import pytest

from memory.errors import StoreUnavailable
from tests.e2e.killed_writes import KilledWrites
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
    lines.append('[agents.manager]\nmodel = "m"\nhome = "agent"\nmay_ask = ["worker"]')
    lines.append('[agents.worker]\nmodel = "m"\nhome = "agent"')
    return "\n".join(lines)


# What the model calls, round by round, by the word that the user says.
ROUNDS = {
    "send": [[call("send", {"city": "x"}, "c1"), call("look", {"city": "y"}, "c2")]],
    "pay": [[call("pay", {"city": "x"}, "c1")], [call("look", {"city": "z"}, "c2")]],
    "ask": [[call("agent_ask", {"to": "worker", "text": "Do it"}, "c1")]],
}
# The model, by the word.
CALLED = {"ask": "agent:manager"}


def is_asked(seen):
    """Whether an agent is asked by another one."""
    return str(seen.json["messages"][-1]["content"]).startswith("Message from the agent")


async def answer(seen, wire):
    if is_asked(seen):
        await asyncio.sleep(9)
        return "Done."
    rounds = ROUNDS[next(m["content"] for m in seen.json["messages"] if m["role"] == "user")]
    finished = sum(m["role"] == "assistant" for m in seen.json["messages"])
    return calls(*rounds[finished]) if finished < len(rounds) else "Done."


def results_of(body):
    return [m["content"] for m in body["messages"] if m["role"] == "tool"]


async def ask(client, word):
    """Ask as a user of this name, with a key of its own."""
    model = CALLED.get(word, "m")
    request = {"model": model, "messages": [{"role": "user", "content": word}], "user": word}
    headers = {"idempotency-key": f"key-{word}"}
    return await client.post("/v1/chat/completions", json=request, headers=headers)


async def test_t_g7_after_a_kill_no_write_or_ask_runs_again_a_read_does_a_finished_round_stands(
    tmp_path,
):
    async with ToolServer(send="sent", pay="paid", look="seen") as server, Model(answer) as up:
        server.delays = {"send": 9, "look": 9}
        config = config_of(up, server, send="POST", pay="POST", look="GET")
        async with child(tmp_path, config) as (gateway_process, client):
            asking = [asyncio.create_task(ask(client, word)) for word in ROUNDS]
            assert await within(20, lambda: server.running == 3 and any(map(is_asked, up.requests)))
            gateway_process.process.kill()
            await asyncio.gather(*asking, return_exceptions=True)
        server.delays.clear()
        results = {}
        async with child(tmp_path, config) as (_, client):
            for word in ROUNDS:
                retried = await ask(client, word)
                assert retried.status_code == 200, retried.text
                assert retried.headers["x-memory-status"] == "ok"
                assert retried.json()["choices"][0]["message"]["content"] == "Done."
                results[word] = results_of(up.bodies[-1])
        assert [len(server.runs(name)) for name in ("send", "pay", "look")] == [1, 1, 4]
        send, look = results["send"]
        assert (send, look[-5:]) == (NOT_KNOWN.replace("pay", "send"), "\nseen")
        assert results["ask"] == [NOT_KNOWN.replace("pay", "agent_ask")]
        assert sum(map(is_asked, up.requests)) == 1
        pay, look = results["pay"]
        assert (pay[-5:], look[-5:]) == ("\npaid", "\nseen")


async def leave_in_a_run(live, server, done=""):
    """Ask, and close the connection while a run is under way. done: a tool that is over by then."""
    url = f"{live.url}/chat/completions"
    asking = asyncio.create_task(live.http.post(url, json=ASK, headers=ONCE))
    assert await within(20, lambda: server.running)
    async with asyncio.timeout(20):
        while (
            done
            and not (
                await live.memory("GET", "/tool-calls", params={"tool": done, "status": "ok"})
            ).json()["data"]
        ):
            await asyncio.sleep(0.02)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert await within(3, lambda: not server.running)


@pytest.mark.parametrize("idempotent", [False, True])
async def test_t_g7_a_client_that_leaves_and_retries_does_not_pay_twice(data, idempotent):
    asked = calls(call("pay", {"city": "x"}, "c1"), call("note", {"city": "x"}, "c2"))
    async with ToolServer(pay="paid") as server, Model(asked, "Done.") as up:
        server.delays["pay"] = 5
        tools = {"pay": server.writing("pay", idempotent=idempotent)}
        tools["note"] = server.writing("note")
        async with gateway(up, data, granting(tools)) as live:
            await leave_in_a_run(live, server, "note")
            server.delays.clear()
            got = await live.http.post(f"{live.url}/chat/completions", json=ASK, headers=ONCE)
            assert got.json()["choices"][0]["message"]["content"] == "Done."
            assert len(server.runs("pay")) == 1 + idempotent
            assert len(server.runs("note")) == 1
            pay, note = results_of(up.bodies[-1])
            assert pay == NOT_KNOWN or idempotent
            assert note.endswith("\ndone")
            path = f"/explain/{got.headers['x-memory-explain']}"
            told = (await live.memory("GET", path)).json()["tools"]
            assert [(t["entry"], t["kind"], t["status"]) for t in told] == [
                ("pay", "http", "ok" if idempotent else "unknown"),
                ("note", "http", "replayed"),
            ]


async def test_t_g7_memory_edits_are_committed_before_a_slow_run_ends_and_once(data):
    remember = call("archival_memory_insert", {"content": "Ada likes tea."}, "c2")
    asked = calls(call("pay", {"city": "x"}, "c1"), remember)
    async with ToolServer(pay="paid") as server, Model(asked, "Done.") as up:
        server.delays["pay"] = 5
        async with gateway(up, data, granting({"pay": server.writing("pay")})) as live:
            url = f"{live.url}/chat/completions"
            await leave_in_a_run(live, server)
            listed = await live.memory("GET", "/users/ada/passages")
            assert [p["content"] for p in listed.json()["data"]] == ["Ada likes tea."]
            server.delays.clear()
            got = await live.http.post(url, json=ASK, headers=ONCE)
            assert got.headers["x-memory-status"] == "ok"
            pay, stored = results_of(up.bodies[-1])
            assert pay == NOT_KNOWN
            assert stored.startswith("Stored in archival memory")


async def test_no_kill_makes_a_write_run_twice_and_unknown_is_what_was_started(tmp_path):
    """Three random moments; `python -m tests.bench.killed_writes` plays fifty."""
    tally = await KilledWrites(tmp_path, seed=3).play(3)
    assert tally.faults == []
    assert tally.points == 3


async def test_a_store_that_takes_no_row_refuses_writes_and_lets_reads_run(data, monkeypatch):
    async def fail(*_, **__):
        raise StoreUnavailable("down")

    def break_store(seen, wire):
        monkeypatch.setattr(live.gateway.memory.db, "write", fail)
        return calls(call("look", {"city": "x"}, "c1"), call("pay", {"city": "x"}, "c2"))

    async with ToolServer() as server, Model("Hi.") as up:
        tools = {"look": server.entry("look"), "pay": server.writing("pay")}
        async with gateway(up, data, granting(tools)) as live:
            await live.chat("Hello", user="ada")
            up.script[:] = [break_store, "Done."]
            got = await live.chat("Go", user="ada")
            assert (got.status_code, got.headers["x-memory-status"]) == (200, "degraded")
            look, pay = results_of(up.bodies[-1])
            assert look.endswith("\ndone")
            assert pay.startswith("Error: pay was not run, because the memory cannot record it")
            assert [len(server.runs(name)) for name in ("look", "pay")] == [1, 0]
            monkeypatch.undo()

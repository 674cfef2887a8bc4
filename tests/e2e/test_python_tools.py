"""Python tools and `run_code` from outside: in turns of a client, and by the management API."""

from __future__ import annotations

import ctypes
import json
import os
import re
from pathlib import Path

import httpx
import pytest

from tests.bench import sandbox_calls as bench
from tests.e2e.operator_tools import ADMIN, KEY, SECRET, gateway, granting
from tests.e2e.wire.child import child
from tests.gateway.tools.escapes import PROBES, fill
from tests.gateway.tools.test_python_source import REFUSED
from tests.gateway.tools.test_sandbox_escapes import children, make_sandbox
from tests.gateway.tools.web_servers import CountingListener, reply
from tests.models import Model, call, calls

pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")
CANARY = "s3cr3t-0f-th3-0perat0r"
VALUE = "t0p-s3cr3t-value"
# Calls of one reply.
AT_ONCE = 10
# Of prctl.
CHILD_SUBREAPER = 36
ATTEMPTS = 3


def results_of(body) -> list[str]:
    """The results of a request's last calls."""
    return [m["content"] for m in body["messages"] if m["role"] == "tool"]


async def skip_without(sandbox):
    """Skip where a sandbox cannot run."""
    await (await make_sandbox(sandbox)).close()


def files_below(folder):
    """The content of every file, by its path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def resident_kib(pid, member):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{member}:\s+(\d+)", status)[1])


@pytest.fixture
def adopting():
    """Whatever a process leaves behind becomes a child of this one, so that it is seen."""
    prctl = ctypes.CDLL(None).prctl
    prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    prctl(CHILD_SUBREAPER, 0, 0, 0, 0)


PROBING = """
[toolbox]
calls_per_turn = 100
[[keys]]
name = "app"
key = "KEY"
tenant = "t"
tools = ["*"]
admin = true
[providers.up]
base_url = "URL"
[routing]
ask_windows = false
[sandbox]
workers = 4
[tools.run_code]
kind = "run_code"
sandbox = "SANDBOX"
seconds = 1
timeout = 60
"""


@pytest.mark.parametrize("sandbox", ["monty", "bubblewrap"])
async def test_t_s1_no_probe_of_run_code_leaves_the_sandbox(tmp_path, sandbox, adopting):
    await skip_without(sandbox)
    canary = tmp_path / "canary"
    canary.write_text(f"secret = '{CANARY}'\n")
    names = sorted(PROBES)[:: len(PROBES) // 40][:40]
    before, codes = children(), []

    def answer(seen, wire):
        """Call ten probes, and end once there are results."""
        newest = seen.json["messages"][-1]
        if newest["role"] == "tool":
            return "Done."
        first = int(newest["content"])
        probes = codes[first : first + AT_ONCE]
        return calls(*(call("run_code", {"code": c}, f"c{i}") for i, c in enumerate(probes)))

    folder = tmp_path / "gateway"
    async with CountingListener() as listener, Model(answer) as up:
        config = PROBING.replace("URL", up.url).replace("SANDBOX", sandbox).replace("KEY", SECRET)
        async with child(folder, config, SECRET_CANARY=CANARY) as (process, client):
            pid = process.process.pid
            codes += [fill(PROBES[n], str(canary), listener.port, pid) for n in names]
            client.headers.update(KEY)
            resident = resident_kib(pid, "VmRSS")
            for first in range(0, len(codes), AT_ONCE):
                body = {"model": "m", "messages": [{"role": "user", "content": str(first)}]}
                response = await client.post("/v1/chat/completions", json=body, timeout=100)
                assert (response.status_code, CANARY in response.text) == (200, False)
            assert resident_kib(pid, "VmHWM") - resident < 50 << 10
            runs = (await client.get("/memory/v1/tool-calls?limit=200")).json()["data"]
            assert len(runs) == 40
            assert max(run["ms"] for run in runs) < (1 + 3) * 1000
            assert CANARY not in json.dumps([runs, up.bodies])
        assert listener.connections == 0
        results = [text for body in up.bodies for text in results_of(body)]
        assert len(results) == 40
    assert children() - before == set()
    assert canary.read_text() == f"secret = '{CANARY}'\n"
    assert not [path for path, data in files_below(folder).items() if CANARY.encode() in data]
    assert process.said.count("Traceback") == 0


@pytest.mark.parametrize("sandbox", ["monty", "bubblewrap"])
async def test_t_s2_a_hundred_calls_at_a_time_are_answered_and_so_is_health(tmp_path, sandbox):
    await skip_without(sandbox)
    async with Model(bench.answer) as up:
        config = bench.CONFIG.format(up=up.url, sandbox=sandbox)
        async with child(tmp_path, config) as (process, _):
            async with httpx.AsyncClient(base_url=process.url, timeout=200) as client:
                code = bench.CODES["a short program"]
                # Others may use the processors of this machine meanwhile.
                for _ in range(ATTEMPTS):
                    looks = await bench.play(client, process.url, code, waves=2)
                    assert looks.answered == 200
                    if looks.p99 < bench.MAX_P99_MS:
                        break
                assert looks.p99 < bench.MAX_P99_MS


SOURCE = """
def triple(days: int, tags: list[str] = []) -> str:
    '''Triple a number.'''
    return f"{days * 3} {tags}"
"""
COERCED = [
    ({"days": "3"}, "9 []"),
    ({"days": 3.0}, "9 []"),
    ({"days": 3, "tags": '["a"]'}, "9 ['a']"),
    ({"days": 3, "tags": [1, 2.5]}, "9 ['1', '2.5']"),
    ({"days": 3, "tags": None}, "9 []"),
    ({"days": "soon"}, 'Error: days must be an integer, got "soon".'),
    ({"days": "3.5"}, 'Error: days must be an integer, got "3.5".'),
    ({"days": 1, "tags": 5}, "Error: tags must be a list, got 5."),
    ({}, "Error: days is missing. The arguments are: days (integer), tags (list)."),
]


async def test_t_s3_a_tool_made_by_api_is_called_in_a_turn(data):
    script = []
    for at, (arguments, _) in enumerate(COERCED):
        script += [calls(call("triple", arguments, f"c{at}")), "Done."]
    async with Model(*script) as up, gateway(up, data, granting({})) as live:
        made = await live.memory(
            "PUT", "/tools/triple", json={"kind": "python", "source": SOURCE}, headers=ADMIN
        )
        assert made.status_code == 200, made.text
        assert made.json()["description"] == "Triple a number."
        assert made.json()["warnings"] == []
        for at, (_, expected) in enumerate(COERCED):
            assert (await live.chat(f"{at}?")).status_code == 200
            [result] = results_of(up.bodies[-1])[-1:]
            assert result == expected


async def test_t_s3_versions_undo_and_who_may(data):
    other = {"name": "other", "key": f"{SECRET}-other", "tenant": "u", "tools": ["*"]}
    config = granting(
        {
            "triple_of_config": {
                "kind": "python",
                "source": SOURCE.replace("triple", "triple_of_config"),
            }
        }
    )
    config["keys"].append({**other, "trusted": True})
    async with Model("Hi.") as up, gateway(up, data, config) as live:

        async def put(name, source, headers=ADMIN, **members):
            body = {"kind": "python", "source": source, **members}
            return await live.memory("PUT", f"/tools/{name}", json=body, headers=headers)

        for source, line, words in REFUSED:
            refused = await put("f", source)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (400, "invalid_source"), words
            assert error.get("line", 0) == line or "@property" in words
            assert error["param"] == "source"
        assert (await put("g", SOURCE)).json()["error"]["code"] == "invalid_source"
        for members in (
            {"timeout": 601},
            {"timeout": 0},
            {"hosts": ["a/b"]},
            {"secrets": {"A": "b"}},
        ):
            refused = await put("triple", SOURCE, **members)
            error = refused.json()["error"]
            (param,) = members
            assert (refused.status_code, error["code"]) == (400, "invalid_tool"), members
            assert error["param"] == param
            assert error["message"].startswith(f"`{param}`")
        slow = "def slow() -> int:\n    while True: pass\n"
        await put("slow", slow, timeout=1)
        run = await live.memory("POST", "/tools/slow/run", json={"arguments": {}}, headers=ADMIN)
        assert run.json()["result"] == "Error: slow did not answer within 1 s."
        await put("slow", slow, timeout=600)
        assert live.gateway.toolbox.catalog("t").tools["slow"].timeout == 600
        assert (await put("triple", SOURCE)).headers["etag"] == '"1"'
        second = SOURCE.replace("3", "4")
        assert (await put("triple", second)).headers["etag"] == '"2"'
        stale = await put("triple", SOURCE, {**ADMIN, "if-match": '"1"'})
        assert stale.status_code == 409
        page = (await live.memory("GET", "/tools/triple/versions", headers=ADMIN)).json()
        assert [row["version"] for row in page["data"]] == [2, 1]
        assert page["data"][0]["before"]["source"] == SOURCE
        undone = await live.memory("POST", "/tools/triple/undo", headers=ADMIN)
        assert (undone.json()["source"], undone.json()["version"]) == (SOURCE, 3)
        gone = await live.memory("DELETE", "/tools/triple", headers=ADMIN)
        assert gone.json()["deleted"]
        assert (await live.memory("DELETE", "/tools/triple", headers=ADMIN)).status_code == 404
        back = await live.memory("POST", "/tools/triple/undo", headers=ADMIN)
        assert back.json()["source"] == SOURCE
        taken = await put("triple_of_config", SOURCE.replace("triple", "triple_of_config"))
        assert (taken.status_code, taken.json()["error"]["code"]) == (409, "tool_exists")
        for headers in (None, {"authorization": f"Bearer {SECRET}-other"}):
            refused = await put("triple", SOURCE, headers)
            assert refused.status_code == 403
            assert refused.json()["error"]["code"] == "tools_not_allowed"
        # Another tenant's tool is not there.
        theirs = {"authorization": f"Bearer {SECRET}-other"}
        listed = await live.memory("GET", "/tools", headers=theirs)
        if listed.status_code == 200:
            assert "triple" not in [tool["name"] for tool in listed.json()["data"]]


async def test_a_secret_by_api_is_refused_with_the_place_where_it_is_set(data):
    members = {"hosts": ["api.example.com"], "secrets": {"KEY": VALUE}}
    body = {"kind": "python", "source": SOURCE, **members}
    async with Model("Hi.") as up, gateway(up, data, granting({})) as live:
        refused = await live.memory("PUT", "/tools/triple", json=body, headers=ADMIN)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, "invalid_tool")
        assert error["param"] == "secrets"
        assert "[tools.triple]" in error["message"]
        assert VALUE not in refused.text
        listed = await live.memory("GET", "/tools", headers=ADMIN)
        assert listed.json()["data"] == []
    for folder, _, names in os.walk(data):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert VALUE.encode() not in file.read()


FETCH = """
async def ask(path: str):
    answer = await fetch("BASE" + path + "?key=" + secret("KEY"),
                         headers={"Authorization": "Bearer " + secret("KEY")})
    print(secret("KEY"))
    return [answer["text"], answer["json"], secret("KEY")]
"""


async def test_t_s4_a_secret_reaches_only_its_host(data, caplog):
    def answer(head: str) -> bytes:
        return reply(json.dumps({"you": VALUE, "head": head}), kind="application/json")

    async with CountingListener(answer) as server:
        base = f"http://127.0.0.1:{server.port}"
        entry = {
            "kind": "python",
            "source": FETCH.replace("BASE", base),
            "hosts": [base],
            "secrets": {"KEY": VALUE},
        }
        script = [calls(call("ask", {"path": "/a"})), "Done."]
        async with Model(*script) as up, gateway(up, data, granting({"ask": entry})) as live:
            response = await live.chat("Ask.", user="ada")
            assert response.status_code == 200
            assert f"Authorization: Bearer {VALUE}" in server.heads[0]
            assert VALUE not in json.dumps(up.bodies)
            assert "[secret]" in results_of(up.bodies[-1])[0]
            record = response.headers["x-memory-explain"]
            explained = await live.memory("GET", f"/explain/{record}", headers=ADMIN)
            assert explained.json()["tools"][0]["name"] == "ask"
            assert VALUE not in explained.text
            listed = await live.memory("GET", "/tools", headers=ADMIN)
            assert VALUE not in listed.text
            assert VALUE not in caplog.text
            for folder, _, names in os.walk(data):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as file:
                        assert VALUE.encode() not in file.read()


async def test_a_letta_client_makes_a_python_tool(data):
    async with Model("Hi.") as up, gateway(up, data, granting({})) as live:

        async def ask(method, path, status, **body):
            url = f"{live.root}/letta/v1/{path}"
            answer = await live.http.request(method, url, json=body or None, headers=ADMIN)
            assert answer.status_code == status, answer.text
            return answer.json()

        made = await ask("POST", "tools/", 200, source_code=SOURCE)
        assert (made["name"], made["tool_type"]) == ("triple", "custom")
        assert made["source_code"] == SOURCE
        assert made["json_schema"]["parameters"]["required"] == ["days"]
        await ask("POST", "tools/", 409, source_code=SOURCE)
        await ask("PUT", "tools/", 200, source_code=SOURCE.replace("3", "4"))
        refused = await ask("POST", "tools/", 422, source_code="def f():\n    yield 1\n")
        assert "line 2" in json.dumps(refused)
        await ask("POST", "tools/", 409, source_code="def send_message(): pass")
        read = await ask("GET", f"tools/{made['id']}", 200)
        assert "* 4" in read["source_code"]
        assert "triple" in [tool["name"] for tool in await ask("GET", "tools/", 200)]
        await ask("DELETE", f"tools/{made['id']}", 200)
        await ask("GET", f"tools/{made['id']}", 404)

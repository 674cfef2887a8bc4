"""A Python tool: coerced arguments in, text or JSON out; secrets reach their host alone."""

from __future__ import annotations

import json

import pytest

from gateway.config.python_tools import PythonToolSettings, SandboxSettings
from gateway.tools.kind import ToolCaller
from gateway.tools.python_source import SourceRefused, read_source
from gateway.tools.python_tools import PythonTool, probe_source
from gateway.tools.sandbox_fetch import SandboxFetch
from gateway.tools.sandboxes import Sandboxes
from tests.gateway.tools.web_servers import CountingListener, reply

pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")
CALLER = ToolCaller("default", "ann", "default", "req_1")
SECRET = "t0p s3cr3t/value"


@pytest.fixture(params=["monty", "bubblewrap"])
async def sandbox(request):
    made = Sandboxes(SandboxSettings(seconds=2))
    if request.param == "bubblewrap" and (problem := await made.probe_bubblewrap()):
        pytest.skip(problem)
    yield request.param, made
    await made.close()


async def call(sandbox, source: str, arguments: dict, **members):
    name, sandboxes = sandbox
    settings = PythonToolSettings(source=source, sandbox=name, **members)
    kind = PythonTool(read_source(source, name).name, settings, sandboxes)
    [tool] = kind.list_tools("default")
    coerced = kind.check_arguments(tool, arguments)
    if isinstance(coerced, str):
        return coerced
    return (await kind.run(tool, coerced, CALLER)).text


DATES = """
from datetime import date, datetime
def f(day: date, at: datetime | None = None, days: list[date] = [], many: dict[str, date] = {},
      nested: list[list[date]] = [], either: date | int = 1, n: int = None) -> list:
    return [day.year, at and at.hour, [d.month for d in days], [d.day for d in many.values()],
            [[d.day for d in x] for x in nested], either if isinstance(either, int) else
            either.year, n]
"""


async def test_arguments_arrive_as_their_types(sandbox):
    arguments = {
        "day": "2026-11-26",
        "at": "2026-11-26T10:00:00Z",
        "days": ["2026-02-03"],
        "many": {"a": "2026-02-04"},
        "nested": [["2026-02-05"], []],
        "either": "2027-01-01",
        "n": None,
    }
    text = await call(sandbox, DATES, arguments)
    assert json.loads(text) == [2026, 10, [2], [4], [[5], []], 2027, None]
    text = await call(sandbox, DATES, {"day": "2026-11-26", "either": "7", "n": "3"})
    assert json.loads(text) == [2026, None, [], [], [], 7, 3]


async def test_a_wrong_argument_is_named(sandbox):
    source = "def f(days: int, unit: str = 'c'):\n    return days"
    known = "The arguments are: days (integer), unit (text)"
    assert await call(sandbox, source, {"days": "soon"}) == 'days must be an integer, got "soon"'
    assert await call(sandbox, source, {}) == f"days is missing. {known}"
    assert await call(sandbox, source, {"days": 1, "x": 2}) == f'there is no argument "x". {known}'


async def test_results_and_errors_name_the_function(sandbox):
    assert await call(sandbox, "def f():\n    print('p')\n    return {1}", {}) == "[1]\nPrinted:\np"
    assert (await call(sandbox, "def f():\n    return f", {})).startswith(
        "Error: f returned a function, return text or JSON."
    )
    text = await call(sandbox, "def f(a: int):\n    b = a\n    return 1 / b", {"a": 0})
    assert text == "Error: ZeroDivisionError: division by zero (line 3)."


FETCH = """
async def f(url: str, method: str = "GET", body: dict[str, str] | None = None):
    out = await fetch(url + "?key=" + secret("KEY"), method=method,
                      headers={"Authorization": "Bearer " + secret("KEY")}, json=body)
    print(secret("KEY"), out["headers"])
    return [out["status"], out["text"], out["json"], secret("KEY")]
"""


async def test_a_secret_reaches_its_host_and_nobody_else(sandbox):
    def answer(head: str) -> bytes:
        return reply(
            json.dumps({"seen": SECRET, "head": head}), kind="application/json", X_Seen=SECRET
        )

    async with CountingListener(answer) as server, CountingListener(answer) as stranger:
        members = {
            "hosts": (f"http://127.0.0.1:{server.port}",),
            "secrets": {"KEY": SECRET},
        }
        url = f"http://127.0.0.1:{server.port}/a"
        arguments = {"url": url, "method": "POST", "body": {"a": "b"}}
        text = await call(sandbox, FETCH, arguments, **members)
        assert text.startswith("[200,")
        head = server.heads[0]
        assert f"Authorization: Bearer {SECRET}" in head
        assert "POST /a?key=t0p%20s3cr3t%2Fvalue HTTP/1.1" in head
        assert server.bodies == [b'{"a":"b"}']
        for spelling in (SECRET, "t0p%20s3cr3t%2Fvalue", "t0p+s3cr3t%2Fvalue"):
            assert spelling not in text
        refused = [
            f"http://127.0.0.1:{stranger.port}/",
            f"http://localhost:{server.port}/",
            "https://example.com/",
            "http://example.com/",
            "file:///etc/passwd",
        ]
        for other in refused:
            text = await call(sandbox, FETCH, {"url": other}, **members)
            assert text.startswith("Error: ")
            assert SECRET not in text
    assert (server.connections, stranger.connections) == (1, 0)


async def test_without_hosts_there_is_no_fetch(sandbox):
    text = await call(sandbox, "async def f():\n    return await fetch('https://e.com')", {})
    assert "NameError" in text


async def test_the_top_of_a_source_is_probed(sandbox):
    name, sandboxes = sandbox
    source = "def f(a: int) -> int:\n    return 'x'\n"
    warnings = await probe_source(sandboxes, read_source(source, name), name)
    assert bool(warnings) == (name == "monty")
    for top in ("while True: pass\n", "_x = 1 / 0\n"):
        with pytest.raises(SourceRefused):
            await probe_source(sandboxes, read_source(top + source, name), name)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"source": "x", "source_file": "y"},
        {"source": "x", "secrets": {"A": "long enough"}},
        {"source": "x", "hosts": ["https://e.com"]},
        {"source": "x", "hosts": ["e.com"], "secrets": {"A": ""}},
    ],
)
def test_settings_that_mean_nothing_are_refused(members):
    with pytest.raises(ValueError):
        PythonToolSettings.model_validate(members)


async def test_a_file_and_a_name(tmp_path):
    sandboxes = Sandboxes(SandboxSettings())
    path = tmp_path / "f.py"
    path.write_text("def f():\n    '''Say it.'''\n    return 'x'\n")
    kind = PythonTool("f", PythonToolSettings(source_file=str(path)), sandboxes)
    assert kind.list_tools("default")[0].description == "Say it."
    with pytest.raises(SourceRefused, match="named f"):
        PythonTool("g", PythonToolSettings(source_file=str(path)), sandboxes)
    with pytest.raises(SourceRefused, match="cannot be read"):
        PythonTool("f", PythonToolSettings(source_file="/nowhere"), sandboxes)


async def test_who_may_not_fetch_a_host_is_not_told_which_ones_are_set_up():
    room = SandboxFetch(("api.of-the-operator.example",), {})
    for url in (
        "https://elsewhere.example/",
        "http://elsewhere.example/",
        "ftp://elsewhere.example",
    ):
        with pytest.raises(ValueError, match=r".") as told:
            await room.fetch(url)
        assert "of-the-operator" not in str(told.value)
        assert "none.invalid" not in str(told.value)

"""Laws of a sandbox, over both of them: a run gives text, bounded, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools import sandbox_runtime
from gateway.tools.sandbox import (
    PrintedText,
    SandboxLimits,
    SandboxOutcome,
    SandboxProgram,
    fail,
    read_result,
)
from tests.gateway.tools.test_sandbox_escapes import children, make_sandbox

pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")
LIMITS = SandboxLimits(seconds=2, memory_mib=32)


@pytest.fixture(params=["monty", "bubblewrap"])
async def sandbox(request):
    made = await make_sandbox(request.param)
    yield made
    await made.close()


async def run(sandbox, source: str, expression: str = "", **members) -> SandboxOutcome:
    limits = members.pop("limits", LIMITS)
    return await sandbox.run(SandboxProgram(source, expression, **members), limits)


RESULTS = [
    ("'as it is'", "as it is"),
    ("[1, 'a', None, True]", '[1, "a", null, true]'),
    ("(1, 2)", "[1, 2]"),
    ("{3}", "[3]"),
    ("{'a': 1.5, 2: 'b'}", '{"a": 1.5, "2": "b"}'),
    ("[float('nan'), float('inf'), -float('inf')]", '["NaN", "Infinity", "-Infinity"]'),
    ("import datetime\n[datetime.date(2026, 11, 26)]", '["2026-11-26"]'),
    ("'ä'", "ä"),
    ("None", "null"),
    ("x = 1", "null"),
    ("x = [\n  1,\n  2\n]\nsum(\n  x\n)  # end", "3"),
    ("inputs['a'] + 1", "2"),
]


async def test_the_last_value_is_the_result(sandbox):
    for source, expected in RESULTS:
        outcome = await run(sandbox, source, inputs={"inputs": {"a": 1}})
        assert (source, outcome.text) == (source, expected)


async def test_half_of_a_surrogate_pair_is_replaced(sandbox):
    outcome = await run(sandbox, "print(chr(0xd800))\n'ä' + chr(0xd800)")
    # The interpreter in Rust has no such text.
    assert outcome.text.encode() == "ä\ufffd".encode() or "chr() arg" in outcome.text
    outcome.show().encode()


async def test_what_is_no_text_is_named(sandbox):
    for source, kind in (("lambda: 1", "a function"), ("b'a'", "a bytes"), ("[print]", "a ")):
        outcome = await run(sandbox, source)
        assert outcome.is_error
        assert f"returned {kind}" in outcome.text
        assert outcome.text.endswith("return text or JSON.")


async def test_an_exception_says_type_message_and_line(sandbox):
    source = "def f(a):\n    x = a\n    raise ValueError('bad')\n"
    outcome = await run(sandbox, source, "f(1)", name="f")
    assert outcome.text == "Error: ValueError: bad (line 3)."
    assert "line 2" in (await run(sandbox, "x = 1\n1 / 0")).text
    assert "SyntaxError" in (await run(sandbox, "x = = 1")).text


async def test_printed_lines_stand_behind_the_result_and_are_bounded(sandbox):
    outcome = await run(sandbox, "print('hello')\n3")
    assert outcome.show() == "3\nPrinted:\nhello"
    assert (await run(sandbox, "print('hello')")).show() == "Printed:\nhello"
    limits = SandboxLimits(seconds=2, print_characters=100)
    outcome = await run(sandbox, "for _ in range(99): print('a' * 9)\n1", limits=limits)
    assert outcome.output.endswith("\n[890 more characters were printed]")
    assert outcome.text == "1"


async def test_nothing_of_a_run_is_there_in_the_next_one(sandbox):
    await run(sandbox, "import json\njson.secret = 1\nleft = 1")
    outcome = await run(sandbox, "import json\nhasattr(json, 'secret')")
    assert outcome.text == "false"
    assert "NameError" in (await run(sandbox, "left")).text


async def test_functions_of_the_gateway_are_awaited_and_counted(sandbox):
    calls = []

    async def fetch(url, method="GET"):
        await asyncio.sleep(0.05)
        calls.append((url, method))
        if url == "bad":
            raise ValueError("no such host")
        return {"status": 200, "json": [1]}

    source = (
        "async def f(urls):\n"
        "    out = [await fetch(u, method='POST') for u in urls]\n"
        "    return [secret('KEY'), out]\n"
    )
    members = {"functions": {"fetch": fetch}, "secrets": {"KEY": "placeholder"}, "name": "f"}
    outcome = await run(sandbox, source, "await f(['a'])", **members)
    assert json.loads(outcome.text) == ["placeholder", [{"status": 200, "json": [1]}]]
    assert calls == [("a", "POST")]
    assert "no such host" in (await run(sandbox, source, "await f(['bad'])", **members)).text
    assert "KeyError" in (await run(sandbox, "secret('X')", **members)).text
    limits = SandboxLimits(seconds=2, calls=3)
    outcome = await run(sandbox, source, "await f(['a'] * 9)", limits=limits, **members)
    assert "3 times" in outcome.text
    assert len(calls) == 5


async def test_the_time_of_a_call_of_the_gateway_is_not_the_programs(sandbox):
    async def fetch(url):
        await asyncio.sleep(0.8)
        return url

    outcome = await run(
        sandbox,
        "async def f():\n    return [await fetch('a') for _ in range(3)]\n",
        "await f()",
        functions={"fetch": fetch},
        limits=SandboxLimits(seconds=1),
    )
    assert outcome.text == '["a", "a", "a"]'


async def test_a_run_that_is_cancelled_leaves_no_process(sandbox):
    assert (await run(sandbox, "1")).text == "1"
    before = children()
    task = asyncio.create_task(run(sandbox, "while True: pass"))
    await asyncio.sleep(0.5)
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < 2
    # A worker in place of the killed one.
    assert len(children() - before) <= 1
    assert (await run(sandbox, "2")).text == "2"


async def test_many_runs_at_a_time_are_all_answered(sandbox):
    outcomes = await asyncio.gather(*(run(sandbox, f"{n} * 2") for n in range(24)))
    assert [outcome.text for outcome in outcomes] == [str(n * 2) for n in range(24)]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
def test_any_json_value_is_text_that_reads_back(value):
    form, text = sandbox_runtime._mnemogate_render(value)
    if isinstance(value, str):
        assert (form, text) == ("text", value)
    else:
        assert form == "json"
        json.loads(text)


def test_other_values_are_named_by_their_type():
    assert sandbox_runtime._mnemogate_render([object()]) == ["other", "object"]
    assert sandbox_runtime._mnemogate_render(date(2026, 1, 2)) == ["json", '"2026-01-02"']
    circle: list = []
    circle.append(circle)
    with pytest.raises(ValueError, match="50 levels"):
        sandbox_runtime._mnemogate_render(circle)


@pytest.mark.parametrize("rendered", [None, "x", [], ["text"], ["text", 1], [["text"], "a"]])
def test_a_forged_result_is_none(rendered):
    assert read_result(rendered, "f", "").text == "Error: f gave no result."


def test_texts_are_bounded():
    assert len(fail("x" * 10_000).text) < 320
    printed = PrintedText(3)
    printed.add("stdout", "ab")
    printed.add("stdout", "cd")
    assert printed.text == "abc\n[1 more characters were printed]"


EXITS = """
import asyncio, sys
from gateway.tools.sandboxes import Sandboxes
from gateway.config.python_tools import SandboxSettings
from gateway.tools.sandbox import SandboxLimits, SandboxProgram
async def main():
    sandboxes = Sandboxes(SandboxSettings())
    assert "pydantic_monty" not in sys.modules
    if {is_used}:
        outcome = await sandboxes.monty.run(SandboxProgram("1"), SandboxLimits())
        assert outcome.text == "1"
    await sandboxes.close()
asyncio.run(main())
"""


def test_an_interpreter_that_used_the_sandbox_exits_cleanly():
    """One that exits right after the workers ended was aborted at times."""
    # What decides is a pause at the end, so they are played side by side.
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", EXITS.format(is_used=is_used)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for is_used in (False, True, True, True, True)
    ]
    for process in processes:
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out, errors) == (0, b"", b"")

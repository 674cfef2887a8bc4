"""`run_code` runs what a model writes, with its inputs, in the sandbox of its entry."""

from __future__ import annotations

import pytest

from gateway.config.python_tools import RunCodeSettings, SandboxSettings
from gateway.tools import sandboxes as sandboxes_module
from gateway.tools.kind import ToolCaller
from gateway.tools.run_code import RunCodeTool
from gateway.tools.sandboxes import Sandboxes

CALLER = ToolCaller("default", "ann", "default", "req_1")


@pytest.fixture
async def sandboxes():
    made = Sandboxes(SandboxSettings(seconds=1))
    yield made
    await made.close()


async def call(kind: RunCodeTool, **arguments):
    [tool] = kind.list_tools("default")
    coerced = kind.check_arguments(tool, arguments)
    assert isinstance(coerced, dict)
    return await kind.run(tool, coerced, CALLER)


async def test_a_run_has_its_inputs_and_begins_empty(sandboxes):
    pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")
    kind = RunCodeTool("run_code", RunCodeSettings(), sandboxes)
    output = await call(kind, code="print('x')\ninputs['a'] * 2", inputs='{"a": [1]}')
    assert (output.text, output.status) == ("[1, 1]\nPrinted:\nx", "ok")
    assert (await call(kind, code="inputs")).text == "{}"
    failed = await call(kind, code="1 / 0")
    assert failed.status == "error"
    assert failed.text.startswith("Error: ZeroDivisionError")
    assert (
        "did not end within 0.2 s"
        in (
            await call(
                RunCodeTool("run_code", RunCodeSettings(seconds=0.2), sandboxes),
                code="while True: pass",
            )
        ).text
    )
    await kind.close()


async def test_a_missing_sandbox_offers_nothing_and_says_why(sandboxes, monkeypatch):
    monkeypatch.setattr(sandboxes_module, "is_installed", lambda: False)
    kind = RunCodeTool("run_code", RunCodeSettings(), sandboxes)
    assert kind.list_tools("default") == ()
    assert "mnemogate[tools]" in kind.problem


async def test_bubblewrap_never_runs_bare(sandboxes, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "not installed" in await sandboxes.probe_bubblewrap()
    kind = RunCodeTool("code", RunCodeSettings(sandbox="bubblewrap"), sandboxes)
    assert kind.list_tools("default") == ()
    assert kind.problem.startswith("unavailable: bubblewrap")
    from gateway.tools.sandbox import SandboxLimits, SandboxProgram

    outcome = await sandboxes.bubblewrap.run(SandboxProgram("1"), SandboxLimits())
    assert outcome.is_error
    assert "not available" in outcome.text


@pytest.mark.parametrize(
    "members", [{"seconds": 31}, {"memory_mib": 1}, {"sandbox": "docker"}, {"source": "x"}]
)
def test_settings_that_mean_nothing_are_refused(members):
    with pytest.raises(ValueError):
        RunCodeSettings.model_validate(members)

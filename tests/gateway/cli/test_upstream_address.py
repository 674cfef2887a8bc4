"""The `/v1` that an upstream's address lacks; see also `test_operations` and `test_try_model`."""

from __future__ import annotations

import pytest

from gateway.cli import upstream_address
from gateway.cli.options import Serving
from gateway.config.loader import load
from gateway.errors import UpstreamUnreachable
from gateway.upstream import probe

BASE = "http://127.0.0.1:9"


def serving_of(upstream):
    return Serving(None, None, None, upstream, 1, "text", "info")


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """What the server answers from now on, in order: its address, or an error."""
    monkeypatch.setenv("MNEMOGATE_DATA", str(tmp_path))
    monkeypatch.setattr(upstream_address, "RETRY_SECONDS", 0.0)
    script = []

    async def complete(name, settings):
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(probe, "complete_address", complete)
    return script


async def completed(upstream, env=None, **how):
    settings = load(None, env or {}, {"upstream": upstream})
    found = await upstream_address.complete_settings(
        serving_of(upstream), settings, env or {}, **how
    )
    return next(iter(found.providers.values())).base_url


async def test_a_server_that_starts_later_is_waited_for(answers):
    answers += [UpstreamUnreachable("not there"), UpstreamUnreachable("not yet"), f"{BASE}/v1"]
    assert await completed(BASE, waits=True) == f"{BASE}/v1"
    assert not answers


async def test_a_reload_waits_for_no_server(answers):
    answers.append(UpstreamUnreachable("not there"))
    assert await completed(BASE, waits=False) == BASE


@pytest.mark.parametrize("upstream", [f"{BASE}/v1", f"{BASE}/api/v3"])
async def test_an_address_with_a_version_is_taken_at_its_word(answers, upstream):
    assert await completed(upstream, waits=True) == upstream


async def test_a_configured_provider_is_left_as_it_is(answers):
    settings = load(None, {}, {"providers": {"near": {"base_url": BASE}}})
    options = serving_of(None)
    assert await upstream_address.complete_settings(options, settings, {}, waits=True) is settings

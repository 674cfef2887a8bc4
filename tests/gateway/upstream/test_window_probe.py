"""What servers say of a model's context window, each in its own way."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from gateway.config.settings import ProviderSettings
from gateway.errors import UpstreamUnreachable
from gateway.upstream import window_probe
from gateway.upstream.http1 import Http1Client
from gateway.upstream.window_probe import (
    ANSWER_BYTES,
    LOADED_SECONDS,
    QUESTIONS,
    SETTLED_SECONDS,
    FoundWindow,
    WindowProbe,
    is_asked,
)
from tests.sockets import RawServer

SETTLED = (SETTLED_SECONDS, False)
VLLM = {"data": [{"id": "other", "max_model_len": 999}, {"id": "m", "max_model_len": 32768}]}
OLLAMA = {"data": [{"id": "m:latest", "owned_by": "library"}]}
SHOWN = {"model_info": {"a": 1, "qwen3.context_length": 40960}, "parameters": "stop x"}
MODELFILE = {**SHOWN, "parameters": "stop       x\nnum_ctx                        8192\ntop_k 1"}
PS, SHOW, PROPS, STUDIO = "/api/ps", "/api/show", "/props", "/api/v0/models"
LOADED = {"models": [{"name": "m:latest", "context_length": 16384}]}
UNLOADED = {"models": [{"name": "n:latest", "context_length": 16384}]}
SAYS = {
    "vLLM": ({"/v1/models": VLLM}, (32768, *SETTLED)),
    "OpenRouter": (
        {"/v1/models": {"data": [{"id": "m", "context_length": 131072}]}},
        (131072, *SETTLED),
    ),
    "Ollama, loaded": ({"/v1/models": OLLAMA, PS: LOADED}, (16384, LOADED_SECONDS, False)),
    "Ollama, default": ({PS: UNLOADED, SHOW: SHOWN}, (4096, LOADED_SECONDS, True)),
    "Ollama, num_ctx": ({PS: UNLOADED, SHOW: MODELFILE}, (8192, LOADED_SECONDS, True)),
    "Ollama, a small model": (
        {PS: UNLOADED, SHOW: {"model_info": {"b.context_length": 2048}}},
        (2048, LOADED_SECONDS, True),
    ),
    "llama.cpp": (
        {PROPS: {"default_generation_settings": {"n_ctx": 8192}}},
        (8192, LOADED_SECONDS, False),
    ),
    "LM Studio, loaded": (
        {
            STUDIO: {
                "data": [{"id": "m", "max_context_length": 32768, "loaded_context_length": 4096}]
            }
        },
        (4096, LOADED_SECONDS, False),
    ),
    "LM Studio": (
        {STUDIO: {"data": [{"id": "m", "max_context_length": 32768}]}},
        (32768, LOADED_SECONDS, True),
    ),
    "nobody": ({}, (None, *SETTLED)),
    "another model": (
        {"/v1/models": {"data": [{"id": "n", "max_model_len": 9000}]}},
        (None, *SETTLED),
    ),
}
HOSTILE = [
    b"[]",
    b"[" * 100_000,
    b"{",
    b'{"data": {"m": 1}}',
    b'{"data": ["m", {"id": "m", "max_model_len": true}]}',
    b'{"data": [{"id": "m", "max_model_len": "32768"}]}',
    b'{"data": [{"id": "m", "max_model_len": 1}]}',
    b'{"data": [{"id": "m", "max_model_len": -4096}]}',
    b'{"data": [{"id": "m", "max_model_len": 1e300}]}',
    b'{"data": [{"id": "m", "max_model_len": 99999999999999999999}]}',
    b'{"models": [{"name": "m"}], "model_info": 7, "parameters": {"num_ctx": 5}, "data": 0}',
    b'{"default_generation_settings": [], "x": "' + b"a" * (2 * ANSWER_BYTES) + b'"}',
]


async def asked(url, behave, model="m", key=b"Bearer k"):
    """Ask a double at `url` of its address; returns the answer and the requests."""
    wire = Http1Client(2)
    try:
        async with RawServer(behave) as up:
            provider = ProviderSettings(base_url=up.url.removesuffix("/v1") + url)
            return await WindowProbe(provider, wire).ask(model, key), up.requests
    finally:
        await wire.aclose()


def says(answers):
    async def behave(seen, wire):
        if seen.path in answers:
            await wire.json(answers[seen.path])
        else:
            await wire.json({"error": "Unexpected endpoint"}, 404)

    return behave


@pytest.mark.parametrize("kind", SAYS)
async def test_each_kind_of_server_tells_its_window(kind):
    answers, expected = SAYS[kind]
    found, requests = await asked("/v1", says(answers))
    assert found == FoundWindow(*expected)
    assert {r.header("authorization") for r in requests} == {"Bearer k"}


async def test_a_server_behind_a_path_is_asked_below_it_and_without_a_key_without_one():
    answers = {f"/llm{PS}": LOADED}
    found, requests = await asked("/llm/v1/", says(answers), key=None)
    assert found.tokens == 16384
    assert {r.header("authorization") for r in requests} == {None}
    assert {r.path.split("/")[1] for r in requests} == {"llm"}


@pytest.mark.parametrize("data", HOSTILE)
async def test_an_answer_that_tells_no_window_is_passed_over(data):
    async def behave(seen, wire):
        await wire.answer(200, data)

    found, _ = await asked("/v1", behave)
    assert found.tokens in (None, 4096)


async def test_a_server_that_does_not_answer_raises():
    async def behave(seen, wire):
        wire.reset()

    with pytest.raises(UpstreamUnreachable):
        await asked("/v1", behave)


async def test_invented_models_cost_the_server_few_questions_each_account_its_own(monkeypatch):
    at_once, most = 0, 0

    async def behave(seen, wire):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        await wire.json({PS: UNLOADED, SHOW: SHOWN}.get(seen.path, {}), 200)

    wire = Http1Client(50)
    try:
        async with RawServer(behave) as up:
            probe = WindowProbe(ProviderSettings(base_url=up.url), wire)
            found = await asyncio.gather(*(probe.ask(f"m{i}", b"Bearer a") for i in range(40)))
            assert {one.tokens for one in found} == {4096}
            lists = [r.path for r in up.requests if r.path != SHOW]
            assert len(lists) <= 2 * QUESTIONS
            assert most <= QUESTIONS
            for key, asked_anew in ((b"Bearer a", 0), (b"Bearer b", 2)):
                before = len(up.requests)
                await probe.ask("m", key)
                assert len(up.requests) - before == 1 + asked_anew
            before = len(up.requests)
            await probe.ask("m", b"Bearer a", anew=True)
            assert len(up.requests) - before == 3
            monkeypatch.setattr(window_probe, "time", _Later(window_probe.SHARED_SECONDS))
            await probe.ask("m", b"Bearer a")
            assert len(up.requests) - before == 6
    finally:
        await wire.aclose()


class _Later:
    """The clock some seconds later."""

    def __init__(self, seconds):
        self.monotonic = lambda now=time.monotonic: now() + seconds


def test_shared_answers_are_bounded(monkeypatch):
    monkeypatch.setattr(window_probe, "SHARED_BYTES", 3000)
    held = window_probe._SharedAnswers()
    for number in range(100):
        held.put((f"/{number}", b"a"), b"x" * 400)
        held.put((f"/{number}", b"a"), b"y" * 400)
    kept = [n for n in range(100) if held.get((f"/{n}", b"a")) is not None]
    assert kept == [97, 98, 99]
    held.put(("/large", b"a"), b"x" * 4000)
    assert held.get(("/large", b"a")) is None
    held.put(("/1", b"a"), b"x")
    assert held.get(("/1", b"a")) == b"x"


async def test_a_silent_server_is_given_up(monkeypatch):
    monkeypatch.setattr("gateway.upstream.window_probe.ASK_SECONDS", 0.05)

    async def behave(seen, wire):
        await asyncio.sleep(60)

    with pytest.raises(Exception) as gave_up:
        await asked("/v1", behave)
    assert type(gave_up.value).__name__ in ("TimeoutError", "UpstreamTimeout")


async def test_a_models_parameters_are_looked_into_at_no_cost():
    shown = {"parameters": "num_ctx" + " " * 3_000_000}
    found, _ = await asked("/v1", says({PS: UNLOADED, SHOW: shown}))
    assert found.tokens == 4096
    assert len(json.dumps(shown)) < ANSWER_BYTES


@pytest.mark.parametrize(
    ("kind", "url", "known", "expected"),
    [
        ("openai", "http://127.0.0.1:11434/v1", True, True),
        ("openai", "https://llm.example.com/v1", False, True),
        ("openai", "https://api.openai.com/v1", False, False),
        ("openai", "https://openrouter.ai/api/v1", True, False),
        ("openai", "https://openrouter.ai/api/v1", False, True),
        ("anthropic", "http://127.0.0.1:9/v1", False, False),
        ("azure", "https://x.openai.azure.com", False, False),
    ],
)
def test_hosted_providers_are_not_asked_needlessly(kind, url, known, expected):
    facts = {"context_window": 9000} if known else {}
    assert is_asked(ProviderSettings(kind=kind, base_url=url), facts) is expected

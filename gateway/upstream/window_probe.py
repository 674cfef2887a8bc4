"""Asks a model server how many tokens of context a model has there.

Each kind of server tells it elsewhere: vLLM, SGLang and hosted providers in their list of models,
Ollama, llama.cpp and LM Studio at paths of their own, beside the `/v1` of the base URL. A question
that a server does not know is passed over. What it answers is foreign: bounded in size and time,
and believed only if it is a number that a window can have.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gateway.config.settings import ProviderSettings
from gateway.http.json_thread import run_by_weight
from gateway.http.paths import UpstreamPath, upstream_path
from gateway.upstream.base import Transport, Upstream, UpstreamRequest
from gateway.upstream.deadlines import Timeouts
from gateway.upstream.openai import OpenAIUpstream
from gateway.wire.chat import decode
from gateway.wire.json_weight import is_readable

# The longest list of models; the rest of an answer is not read.
ANSWER_BYTES = 4 << 20
# Tokens that a window can have.
SMALLEST, GREATEST = 256, 1 << 27
# Tokens: what Ollama loads a model with, unless it is told otherwise.
OLLAMA_DEFAULT = 4096
# For all questions together.
ASK_SECONDS = 5.0
# For which an answer holds, as does that a server gives none.
SETTLED_SECONDS = 3600.0
# For which one holds of a server that loads models as they are asked for.
LOADED_SECONDS = 60.0
# At a time to one provider: clients may invent as many models as they like.
QUESTIONS = 4
# For which a list, which is about all models, is not asked for again.
SHARED_SECONDS = 60.0
# Of one of them, beside its text.
ENTRY_BYTES = 500
# Of the lists of one provider.
SHARED_BYTES = 2 << 20
# Beside the list's own name for it (vLLM, SGLang), those of OpenRouter and Together, Groq, Mistral.
LISTED = ("max_model_len", "context_length", "context_window", "max_context_length")
NUM_CTX = re.compile(r"^num_ctx[ \t]+(\d{1,9})", re.MULTILINE)
# Characters of a model's parameters that are looked into.
PARAMETERS = 10_000
# Hosted providers, by the end of their host's name: what they serve stands in models.toml, and
# none has Ollama's paths. Those of the second kind tell the window in their list of models.
SILENT_HOSTS = (
    "api.openai.com",
    "api.anthropic.com",
    "openai.azure.com",
    "googleapis.com",
    "api.deepseek.com",
    "api.x.ai",
)
LISTING_HOSTS = ("openrouter.ai", "api.together.xyz", "api.groq.com", "api.mistral.ai")


class FoundWindow(NamedTuple):
    """What a server says of a model's window.

    tokens: None if it does not tell. seconds: how long that holds. loading: the model was not
    loaded, so that a call of it may change the answer.
    """

    tokens: int | None
    seconds: float = SETTLED_SECONDS
    loading: bool = False


Json = Mapping[str, Any]
# Of a path beside the `/v1`, with a body.
Ask = Callable[[UpstreamPath, Json | None], Awaitable[Json]]


def is_asked(provider: ProviderSettings, facts: Mapping[str, Any]) -> bool:
    """Tell whether a provider is worth asking for a model's window.

    facts: what models.toml knows of the model.
    """
    if provider.kind != "openai":
        return False
    host = urlsplit(provider.base_url).hostname or ""
    if host.endswith(SILENT_HOSTS):
        return False
    return not (host.endswith(LISTING_HOSTS) and "context_window" in facts)


class WindowProbe:
    """Asks one provider. server: at its base URL. root: where that has no `/v1`."""

    def __init__(self, provider: ProviderSettings, transport: Transport) -> None:
        timeouts = Timeouts(ASK_SECONDS, ASK_SECONDS, ASK_SECONDS, ASK_SECONDS)
        self._server: Upstream = OpenAIUpstream(provider.base_url, transport, timeouts)
        self._root: Upstream = OpenAIUpstream(
            _without_version(provider.base_url), transport, timeouts
        )
        self._limit = asyncio.Semaphore(QUESTIONS)
        self._shared = _SharedAnswers()
        self._only_list = (urlsplit(provider.base_url).hostname or "").endswith(LISTING_HOSTS)

    async def list_models(self, authorization: bytes | None) -> list[str]:
        """Return the names that the server's list of models has. Raises as `ask`."""
        headers = [(b"authorization", authorization)] if authorization else []
        async with asyncio.timeout(ASK_SECONDS), self._limit:
            model_list = await _read_json(
                await _answer(self._server, upstream_path("models"), headers, None)
            )
        entries = model_list.get("data")
        models = entries if isinstance(entries, list) else ()
        return [m["id"] for m in models if isinstance(m, dict) and isinstance(m.get("id"), str)]

    async def ask(
        self, model: str, authorization: bytes | None, *, anew: bool = False
    ) -> FoundWindow:
        """Return what the server says of a model.

        authorization: the header with which the model itself is called. anew: do not use a recent
        answer. Raises GatewayError if the server cannot be reached, TimeoutError.
        """
        headers = [(b"authorization", authorization)] if authorization else []
        account = hashlib.sha256(authorization or b"").digest()

        async def about(upstream: Upstream, path: UpstreamPath, body: Json | None) -> Json:
            if body is not None:
                return await _read_json(await _answer(upstream, path, headers, body))
            data = None
            if not anew:
                data = self._shared.get((path, account))
            if data is None:
                data = await _answer(upstream, path, headers, None)
                self._shared.put((path, account), data)
            return await _read_json(data)

        async def beside(path: UpstreamPath, body: Json | None) -> Json:
            return await about(self._root, path, body)

        async with asyncio.timeout(ASK_SECONDS), self._limit:
            model_list = await about(self._server, upstream_path("models"), None)
            if window_size := _window_in_list(model_list, model):
                return FoundWindow(window_size)
            if not self._only_list:
                for question in (_ask_ollama, _ask_llama_cpp, _ask_lm_studio):
                    if (window := await question(beside, model)) is not None:
                        return window
        return FoundWindow(None)


class _SharedAnswers:
    """What a provider answered lately, by path and account; the oldest goes first."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, bytes], tuple[float, bytes]] = {}
        self._bytes = 0

    def get(self, name: tuple[str, bytes]) -> bytes | None:
        until, data = self._entries.get(name, (0.0, b""))
        if time.monotonic() < until:
            return data
        return None

    def put(self, name: tuple[str, bytes], data: bytes) -> None:
        self._drop(name)
        self._entries[name] = time.monotonic() + SHARED_SECONDS, data
        self._bytes += len(data) + ENTRY_BYTES
        while self._bytes > SHARED_BYTES:
            self._drop(next(iter(self._entries)))

    def _drop(self, name: tuple[str, bytes]) -> None:
        if (old_entry := self._entries.pop(name, None)) is not None:
            self._bytes -= len(old_entry[1]) + ENTRY_BYTES


async def _answer(
    upstream: Upstream,
    path: UpstreamPath,
    headers: Sequence[tuple[bytes, bytes]],
    body: Json | None,
) -> bytes:
    """Return a server's answer; nothing for a refusal."""
    content = None
    if body is not None:
        content = msgspec.json.encode(body)
    typed = [] if content is None else [(b"content-type", b"application/json")]
    until = asyncio.get_running_loop().time() + ASK_SECONDS
    method = "GET" if content is None else "POST"
    question = UpstreamRequest(path, content, [*headers, *typed], method, until=until)
    incoming = await upstream.send(question)
    try:
        if incoming.status == 200:
            return await incoming.read(ANSWER_BYTES)
        return b""
    finally:
        await incoming.close()


async def _read_json(data: bytes) -> Json:
    """Return an answer's JSON object, {} for what is none."""
    if data:
        return await run_by_weight(data, _object, data)
    return {}


def _object(data: bytes) -> Json:
    if not is_readable(data):
        return {}
    try:
        value = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if isinstance(value, dict):
        return value
    return {}


def _window_in_list(answer: Json, model: str) -> int | None:
    """Return the window that a list of models tells of one."""
    return next(
        (
            window_size
            for m in _entries(answer, "data", model)
            if (window_size := _first(m, LISTED))
        ),
        None,
    )


async def _ask_ollama(ask: Ask, model: str) -> FoundWindow | None:
    """Ask Ollama: of a loaded model it knows the window, of another what it would be."""
    running_models = await ask(upstream_path("api", "ps"), None)
    if not isinstance(running_models.get("models"), list):
        return None
    for entry in _entries(running_models, "models", model):
        if window_size := _first(entry, ("context_length",)):
            return FoundWindow(window_size, LOADED_SECONDS)
    model_page = await ask(upstream_path("api", "show"), {"model": model})
    model_info = model_page.get("model_info")
    info = model_info if isinstance(model_info, dict) else {}
    greatest = _first(info, [n for n in info if n.endswith(".context_length")])
    parameters = str(model_page.get("parameters") or "")[:PARAMETERS]
    window_option = NUM_CTX.search(parameters)
    requested_tokens = None
    if window_option:
        requested_tokens = _tokens(int(window_option[1]))
    tokens = min(requested_tokens or OLLAMA_DEFAULT, greatest or GREATEST)
    return FoundWindow(tokens, LOADED_SECONDS, loading=True)


async def _ask_llama_cpp(ask: Ask, model: str) -> FoundWindow | None:
    """Ask llama.cpp's server, which has one model loaded."""
    settings = (await ask(upstream_path("props"), None)).get("default_generation_settings")
    window_size = None
    if isinstance(settings, dict):
        window_size = _first(settings, ("n_ctx",))
    if window_size:
        return FoundWindow(window_size, LOADED_SECONDS)
    return None


async def _ask_lm_studio(ask: Ask, model: str) -> FoundWindow | None:
    """Ask LM Studio: of a loaded model the window it was loaded with, else its greatest."""
    for entry in _entries(await ask(upstream_path("api", "v0", "models"), None), "data", model):
        if loaded_tokens := _first(entry, ("loaded_context_length",)):
            return FoundWindow(loaded_tokens, LOADED_SECONDS)
        if greatest := _first(entry, ("max_context_length",)):
            return FoundWindow(greatest, LOADED_SECONDS, loading=True)
    return None


def _entries(answer: Json, member: str, model: str) -> Sequence[Json]:
    """Return the entries of a list that are about a model, whatever it is called there."""
    entries = answer.get(member)
    names = {model, f"{model}:latest"}
    return [
        m
        for m in (entries if isinstance(entries, list) else ())
        if isinstance(m, dict) and any(str(m.get(n)) in names for n in ("id", "name", "model"))
    ]


def _first(entry: Json, names: Sequence[str]) -> int | None:
    return next((tokens for n in names if (tokens := _tokens(entry.get(n)))), None)


def _tokens(value: object) -> int | None:
    """Return a value that can be a window, None for any other."""
    if type(value) is int and SMALLEST <= value <= GREATEST:
        return value
    return None


def _without_version(base_url: str) -> str:
    """Return the URL beside whose `/v1` a server has its own paths."""
    address, question_mark, query = base_url.partition("?")
    return address.rstrip("/").removesuffix("/v1") + question_mark + query


def build_probes(
    providers: Mapping[str, ProviderSettings], transports: Mapping[str, Transport]
) -> dict[str, WindowProbe]:
    """Return what asks each provider that is no hosted one of its own kind."""
    return {
        name: WindowProbe(p, transports[name])
        for name, p in providers.items()
        if p.kind == "openai"
    }

"""The stand-in's response formats: completion, events, embeddings, list of models. Pure.

They follow OpenAI's API reference (chat completions, chunks, embeddings): the role in the first
delta, the finish reason in its own chunk, the usage chunk only on request, `[DONE]` last.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.demo_model.engine import MODEL
from gateway.errors import BadRequest

Json = dict[str, Any]
# Of the model: 2026-01-01.
CREATED = 1767225600
DIMENSIONS = 256
CHUNK_CHARACTERS = 12
DONE = b"data: [DONE]\n\n"


def models() -> Json:
    """Return the answer of GET /v1/models."""
    return {"object": "list", "data": [model()]}


def model() -> Json:
    return {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "mnemogate"}


def completion(body: Json, message: Json, ident: str, created_at: int) -> Json:
    """Return a chat completion with `n` copies of this message. created_at: Unix time."""
    full_message = {"content": None, "refusal": None, **message}
    choice = {"message": full_message, "logprobs": None, "finish_reason": _finish(message)}
    return {
        **_head(ident, created_at, "chat.completion"),
        "choices": [{"index": i, **choice} for i in range(body.get("n") or 1)],
        "usage": usage(body, message),
    }


def events(body: Json, message: Json, ident: str, created_at: int) -> Iterator[bytes]:
    """Yield the same completion as server-sent events, `[DONE]` included."""
    wants_usage = (body.get("stream_options") or {}).get("include_usage") is True
    head = _head(ident, created_at, "chat.completion.chunk")
    extra: Json = {"usage": None} if wants_usage else {}
    for i in range(body.get("n") or 1):
        for delta in _deltas(message):
            yield _event({**head, "choices": [_choice(i, delta, None)], **extra})
        yield _event({**head, "choices": [_choice(i, {}, _finish(message))], **extra})
    if wants_usage:
        yield _event({**head, "choices": [], "usage": usage(body, message)})
    yield DONE


def _head(ident: str, created_at: int, kind: str) -> Json:
    return {
        "id": ident,
        "object": kind,
        "created": created_at,
        "model": MODEL,
        "system_fingerprint": MODEL,
    }


def _event(chunk: Json) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _choice(index: int, delta: Json, finish: str | None) -> Json:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


def _finish(message: Json) -> str:
    if message.get("tool_calls"):
        return "tool_calls"
    return "stop"


def _deltas(message: Json) -> Iterator[Json]:
    """Yield text word by word; a call as its name first, then its arguments in pieces."""
    calls = message.get("tool_calls") or []
    yield {"role": "assistant", "content": None if calls else "", "refusal": None}
    for word in re.findall(r"\s*\S+\s*?|\s+$", message.get("content") or ""):
        yield {"content": word}
    for call_index, call in enumerate(calls):
        function = call["function"]
        yield {
            "tool_calls": [
                {
                    "index": call_index,
                    **call,
                    "function": {"name": function["name"], "arguments": ""},
                }
            ]
        }
        text = function["arguments"]
        for at in range(0, len(text), CHUNK_CHARACTERS):
            yield {
                "tool_calls": [
                    {
                        "index": call_index,
                        "function": {"arguments": text[at : at + CHUNK_CHARACTERS]},
                    }
                ]
            }


def usage(body: Json, message: Json) -> Json:
    """Return the usage, estimated at four bytes per token."""
    prompt_tokens = _tokens(
        {k: body.get(k) for k in ("messages", "tools", "response_format") if body.get(k)}
    )
    completion_tokens = _tokens(message.get("tool_calls") or message["content"]) * (
        body.get("n") or 1
    )
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _tokens(value: Any) -> int:
    return max(1, len(json.dumps(value)) // 4)


def embeddings(body: Json) -> Json:
    """Return the answer of POST /v1/embeddings. Raises BadRequest."""
    texts = _inputs(body.get("input"))
    size = body.get("dimensions", DIMENSIONS)
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 4096:
        raise BadRequest(
            f"`dimensions` is {size!r}: give a whole number from 1 to 4096.", param="dimensions"
        )
    form = body.get("encoding_format", "float")
    if form not in ("float", "base64"):
        raise BadRequest(
            f"`encoding_format` is {form!r}: use float or base64.", param="encoding_format"
        )
    vectors = [vector(text, size) for text in texts]
    values: list[Any] = [_base64(v) for v in vectors] if form == "base64" else vectors
    tokens = sum(_tokens(text) for text in texts)
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(values)],
        "model": MODEL,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _inputs(embedding_input: Any) -> list[str]:
    """Return the texts to embed; token ids count as words."""
    if isinstance(embedding_input, list) and not _is_tokens(embedding_input):
        inputs = embedding_input
    else:
        inputs = [embedding_input]
    texts = [
        " ".join(map(str, text_or_tokens)) if _is_tokens(text_or_tokens) else text_or_tokens
        for text_or_tokens in inputs
    ]
    if not texts or not all(isinstance(t, str) and t for t in texts):
        raise BadRequest(
            "`input` must be a non-empty string, a list of them, or token ids.", param="input"
        )
    return texts


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(v) is int for v in value)


def vector(text: str, size: int = DIMENSIONS) -> list[float]:
    """Return a unit vector of `size` numbers, similar for similar texts.

    Made of hashed words and their letter trigrams.
    """
    out = [0.0] * size
    for feature, weight in _features(text):
        digest = hashlib.blake2b(feature.encode(errors="replace"), digest_size=8).digest()
        sign = 1.0 if digest[0] & 1 else -1.0
        out[int.from_bytes(digest[1:]) % size] += sign * weight
    norm = math.sqrt(sum(x * x for x in out)) or 1.0
    return [x / norm for x in out]


def _features(text: str) -> Iterator[tuple[str, float]]:
    for word in re.findall(r"\w+", text.lower()) or [text]:
        yield word, 1.0
        padded = f" {word} "
        yield from ((padded[i : i + 3], 0.3) for i in range(len(padded) - 2))


def _base64(values: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()

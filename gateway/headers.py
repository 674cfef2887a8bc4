"""Which headers cross the gateway, in either direction. Everything else stays on its side. Pure."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

Pairs = list[tuple[bytes, bytes]]

# To the upstream: what means something there. Never: credentials, cookies, hop-by-hop, anything of ours.
FORWARDED = frozenset({
    b"openai-organization", b"openai-project", b"openai-beta", b"anthropic-version", b"anthropic-beta", b"idempotency-key", b"x-client-request-id",
    b"traceparent", b"tracestate", b"baggage", b"accept", b"http-referer", b"x-title"})
OURS = (b"x-memory", b"x-memgate")
# Back to the client: dropped, since they belong to the other connection or to the browser of someone else.
DROPPED = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"content-length",
    b"set-cookie", b"set-cookie2", b"server", b"date", b"alt-svc", b"strict-transport-security", b"vary", b"x-accel-buffering", b"cache-control"})


def upstream_headers(client: Mapping[bytes, bytes], authorization: bytes | None, content_type: bytes = b"application/json") -> Pairs:
    """What the upstream gets: the allow list, and the credential that is right there."""
    out = [(k, v) for k, v in client.items() if k in FORWARDED]
    out.append((b"content-type", content_type))
    out.append((b"accept-encoding", b"identity"))
    if authorization is not None:
        out.append((b"authorization", authorization))
    return out


def client_headers(upstream: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """What the client gets of an upstream's answer: rate limits, request id, content type and the like."""
    listed: set[bytes] = set()
    kept: Pairs = []
    for name, value in upstream:
        lower = name.lower()
        if lower == b"connection":
            listed |= {v.strip().lower() for v in value.split(b",")}
        if lower not in DROPPED and not lower.startswith((*OURS, b"access-control-")):
            kept.append((lower, value))
    return [(k, v) for k, v in kept if k not in listed]


def header_value(text: str) -> bytes:
    """A text of the client's as a header value: what could end the line, or is no ASCII, is percent-encoded."""
    return quote(text, safe="!#$&'()*+,/:;=?@[]{}|~ ").encode()

"""Which headers cross the gateway, in either direction. Everything else stays on its side. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from urllib.parse import quote

Pairs = list[tuple[bytes, bytes]]

# To the upstream: what means something there. Never: credentials, cookies, hop-by-hop, anything of
# ours.
FORWARDED = frozenset(
    {
        b"openai-beta",
        b"anthropic-version",
        b"anthropic-beta",
        b"idempotency-key",
        b"x-client-request-id",
        b"traceparent",
        b"tracestate",
        b"baggage",
        b"accept",
        b"range",
        b"http-referer",
        b"x-title",
    }
)
# Who pays: for a client to say with a key of its own.
BILLED = frozenset({b"openai-organization", b"openai-project"})
OURS = (b"x-memory", b"x-mnemogate")
HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"host",
        b"expect",
        b"http2-settings",
    }
)
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key", b"cookie", b"cookie2"})
# Back to the client: dropped, since they belong to the other connection or to the browser of
# someone else.
DROPPED = HOP | {
    b"set-cookie",
    b"set-cookie2",
    b"server",
    b"date",
    b"alt-svc",
    b"strict-transport-security",
    b"clear-site-data",
    b"x-accel-buffering",
}

# What headers begin with that belong to one connection, or are ours.
DROPPED_PREFIXES = (*OURS, b"access-control-", b"proxy-")
# Of a header.
NAME, VALUE = itemgetter(0), itemgetter(1)
NO_TOKENS: frozenset[bytes] = frozenset()
TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# In names, joined by NUL.
UNSENDABLE = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z\0-]|\0\0")
# In values, joined by line feeds.
CONTROL = re.compile(rb"[\0-\x08\x0b-\x1f\x7f]")


def merge_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return a request's headers by lower-case name; those sent several times are one list (RFC
    9110, 5.3).
    """
    pairs = list(pairs)
    out = dict(pairs)
    # As nearly always.
    if len(out) == len(pairs):
        return out
    values_by_name: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        values_by_name.setdefault(name, []).append(value)
    return {name: b", ".join(values) for name, values in values_by_name.items()}


def may_forward(name: bytes) -> bool:
    """Tell whether an operator may let this header through."""
    return name not in HOP and name not in CREDENTIALS and not name.startswith((*OURS, b"proxy-"))


def client_side(
    client: Mapping[bytes, bytes], extra_names: Iterable[str] = (), *, own: bool = True
) -> Pairs:
    """Return what of a client's headers goes upstream: the allow list and `extra_names`, save what
    its Connection header lists.

    own: the account there is the client's own.
    """
    connection = client.get(b"connection", b"keep-alive")
    connection_names = NO_TOKENS if connection == b"keep-alive" else _connection_tokens(connection)
    let_in = FORWARDED | BILLED if own else FORWARDED
    if extra_names:
        let_in = let_in.union(name.lower().encode("latin-1") for name in extra_names)
    names = (client.keys() & let_in) - connection_names
    if len(names) < 2:
        return [(name, client[name]) for name in names]
    return [header for header in client.items() if header[0] in names]


def with_owners_idempotency_key(client: Pairs, secret: bytes, owner: str) -> Pairs:
    """Return the headers with the Idempotency-Key, if any, bound to its owner.

    Nobody else who shares the provider's account can send the same one. owner: tenant and user.
    """

    def bind(key: bytes) -> bytes:
        owner_bytes = owner.encode("utf-8", "surrogatepass")
        digest = hmac.digest(secret, b"idempotency\x00" + owner_bytes + b"\x00" + key, "sha256")
        return digest.hex()[:40].encode()

    return [(k, bind(v) if k == b"idempotency-key" else v) for k, v in client]


def with_body_idempotency_key(client: Pairs, body: bytes | Sequence[bytes | memoryview]) -> Pairs:
    """Return the client's headers with an Idempotency-Key, if it has one, for this very body."""
    if not any(k == b"idempotency-key" for k, _ in client):
        return client
    digest = hashlib.sha256()
    for part in (body,) if isinstance(body, bytes) else body:
        digest.update(part)
    digest_suffix = b"-" + digest.hexdigest()[:16].encode()
    return [(k, v + digest_suffix if k == b"idempotency-key" else v) for k, v in client]


def upstream_headers(
    client: Pairs, authorization: bytes | None, content_type: bytes | None = b"application/json"
) -> Pairs:
    """Return the headers of an upstream request.

    client: see `client_side`. authorization: the credential for this upstream.
    """
    out = [*client, (b"accept-encoding", b"identity"), (b"user-agent", b"mnemogate")]
    if content_type is not None:
        out.append((b"content-type", content_type))
    if authorization is not None:
        out.append((b"authorization", authorization))
    return out


def client_headers(upstream: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Return what the client gets of an upstream's answer: rate limits, request id, content type
    and the like.

    A header that no server may send (a blank in its name, a control character in its value) is
    dropped: ours would refuse to.
    """
    connection_names: set[bytes] = set()
    client_pairs: Pairs = []
    upstream = list(upstream)
    if UNSENDABLE.search(b"\0".join(map(NAME, upstream))) or CONTROL.search(
        b"\n".join(map(VALUE, upstream))
    ):
        upstream = [
            (k, v)
            for k, v in upstream
            if TOKEN.fullmatch(k) and not (CONTROL.search(v) or b"\n" in v)
        ]
    for name, value in upstream:
        lower_name = name.lower()
        if lower_name == b"connection":
            connection_names |= _connection_tokens(value)
        if lower_name not in DROPPED and not lower_name.startswith(DROPPED_PREFIXES):
            client_pairs.append((lower_name, value))
    if connection_names:
        return [(k, v) for k, v in client_pairs if k not in connection_names]
    return client_pairs


def _connection_tokens(connection: bytes) -> set[bytes]:
    # Which crosses no gateway anyway.
    if not connection or connection == b"keep-alive":
        return set()
    return {v.strip().lower() for v in connection.split(b",")}


@lru_cache(64)
def header_value(text: str) -> bytes:
    """A text of the client's as a header value: what could end the line, or is no ASCII, is
    percent-encoded.
    """
    return quote(text, safe="!#$&'+*(),/:;=?@[]{}|~ ").encode()


@lru_cache(1024)
def encode_user_header(name: str | None) -> bytes:
    """A user as `x-memory-user` tells it: percent-encoded UTF-8.

    `none` is nobody, so one of that name begins `%6E`.
    """
    if name is None:
        return b"none"
    if name == "none":
        return b"%6Eone"
    return quote(name, safe="").encode()


def bridge_headers(
    carriage: tuple[str, Sequence[str]] | None, dropped_members: Sequence[str] = ()
) -> Pairs:
    """Return what tells of a request that went in another format: in which, and what it lost.

    dropped_members: members that were left out before.
    """
    if carriage is None and not dropped_members:
        return []
    form, lost_members = carriage or ("", ())
    lost_members = [*dropped_members, *lost_members]
    if lost_members:
        headers = [(b"x-mnemogate-dropped", ", ".join(lost_members).encode("ascii", "replace"))]
    else:
        headers = []
    if form:
        return [(b"x-mnemogate-bridge", form.encode()), *headers]
    return headers

"""The Model Context Protocol on HTTP: what a body asks, in both eras. Pure.

Handshake revisions begin with `initialize`; the later one sends an envelope with every request,
and repeats in headers what proxies route by. Nothing is kept between requests in either.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.mcp.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    RequestId,
    RpcError,
)
from gateway.wire.chat import Json, decode
from gateway.wire.json_weight import is_readable

MODERN = "2026-07-28"
HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
SUPPORTED = (MODERN, *HANDSHAKES)
MAX_BYTES = 1 << 20
MAX_VALUES = 100_000
MAX_DEPTH = 64
META = "io.modelcontextprotocol/"
VERSION_KEY = f"{META}protocolVersion"
CAPABILITIES_KEY = f"{META}clientCapabilities"
CLIENT_KEY = f"{META}clientInfo"
SERVER_KEY = f"{META}serverInfo"
VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# Members whose results say that nobody may keep them.
CACHED = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
BASE64 = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
Pairs = Sequence[tuple[bytes, bytes]]


class RpcRequest(NamedTuple):
    """One message. method: "" of a response that a client posts. revision: of the protocol."""

    id: RequestId
    method: str
    params: Json
    revision: str
    is_silent: bool = False

    @property
    def is_modern(self) -> bool:
        return self.revision == MODERN

    @property
    def client(self) -> Json:
        """What the client says of itself."""
        if self.is_modern:
            info = self.params["_meta"].get(CLIENT_KEY)
        else:
            info = self.params.get("clientInfo")
        if isinstance(info, dict):
            return info
        return {}


def read_request(body: bytes, headers: Pairs) -> RpcRequest:
    """Return what a body asks. Raises RpcError.

    headers: all of them, by lower-case names; those that come twice count twice.
    """
    message = _decode(body)
    request = _check_message(message)
    revision = _revision(headers)
    request = request._replace(revision=revision)
    if request.is_silent:
        return request
    if revision == MODERN:
        _check_envelope(request, headers)
    elif revision not in HANDSHAKES:
        raise unsupported(revision, request.id)
    return request


def read_line(line: bytes) -> RpcRequest:
    """Return what a line asks that came without headers. Raises RpcError."""
    request = _check_message(_decode(line))
    meta = request.params.get("_meta")
    revision = None
    if isinstance(meta, dict):
        revision = meta.get(VERSION_KEY)
    return request._replace(revision=revision if isinstance(revision, str) else HANDSHAKES[0])


def unsupported(revision: str, request: RequestId) -> RpcError:
    """Return the error for a revision that is not spoken here."""
    supported = ", ".join(SUPPORTED)
    return RpcError(
        400,
        UNSUPPORTED_VERSION,
        f"Unsupported protocol version {revision[:40]!r}. Use one of: {supported}.",
        {"supported": list(SUPPORTED), "requested": revision[:40]},
        request,
    )


def _decode(body: bytes) -> Any:
    if not is_readable(body, MAX_VALUES) or _is_deep(body):
        raise RpcError(
            400,
            INVALID_REQUEST,
            f"The body has more than {MAX_VALUES} JSON values, or is nested more than {MAX_DEPTH} "
            "levels deep. Send less at once.",
        )
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as e:
        raise RpcError(400, PARSE_ERROR, f"The body is not valid JSON: {str(e)[:200]}") from e


def _is_deep(body: bytes) -> bool:
    """Tell whether a text has more brackets inside each other than are read."""
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    # Without escapes, every other part between quotes is outside of strings.
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(unescaped.split(b'"')[::2])
    depth = 0
    for bracket in outside.translate(None, NO_BRACKETS):
        depth += 1 if bracket in b"{[" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _check_message(message: Any) -> RpcRequest:
    """Return a message that has the shape of JSON-RPC 2.0. Raises RpcError."""
    if not isinstance(message, dict):
        raise _malformed("The body must be one JSON-RPC message, not a batch or a bare value.")
    if message.get("jsonrpc") != "2.0":
        raise _malformed('`jsonrpc` must be "2.0".')
    ident = message.get("id")
    is_silent = "id" not in message
    if not is_silent and (isinstance(ident, bool) or not isinstance(ident, str | int)):
        raise _malformed("`id` must be a string or a whole number.")
    if "method" not in message and ("result" in message or "error" in message):
        return RpcRequest(ident, "", {}, "", True)
    method = message.get("method")
    params = message.get("params", {})
    if not isinstance(method, str) or not method:
        raise _malformed("`method` must be a string.", ident)
    if not isinstance(params, dict):
        raise _malformed("`params` must be an object.", ident)
    return RpcRequest(ident, method, params, "", is_silent)


def _malformed(message: str, request: RequestId = None) -> RpcError:
    return RpcError(400, INVALID_REQUEST, message, request=request)


def _revision(headers: Pairs) -> str:
    versions = [value for name, value in headers if name == VERSION]
    if not versions:
        return HANDSHAKES[0]
    return b", ".join(versions).decode("latin-1").strip()


def _check_envelope(request: RpcRequest, headers: Pairs) -> None:
    """Check the envelope of a request, and its headers against it. Raises RpcError."""
    meta = request.params.get("_meta")
    meta_members = meta if isinstance(meta, dict) else {}
    missing_keys = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta_members]
    if missing_keys:
        raise RpcError(
            400,
            INVALID_PARAMS,
            f"`params._meta` lacks {', '.join(missing_keys)}.",
            request=request.id,
        )
    name = NAMED.get(request.method)
    expected_headers: dict[bytes, Any] = {
        VERSION: meta_members[VERSION_KEY],
        METHOD: request.method,
    }
    if name is not None and request.params.get(name) is not None:
        expected_headers[NAME] = request.params[name]
    for header, value in expected_headers.items():
        header_texts = [text for key, text in headers if key == header]
        if len(header_texts) != 1 or header_value(header_texts[0]) != value:
            raise RpcError(
                400,
                HEADER_MISMATCH,
                f"The header {header.decode()} must come once, and say what the body says.",
                request=request.id,
            )


def header_value(header: bytes) -> str | None:
    """Return the text of a routing header, of its base64 form too; None for a malformed one."""
    text = header.decode("latin-1").strip()
    base64_match = BASE64.fullmatch(text)
    if base64_match is None:
        return text
    try:
        data = base64.b64decode(base64_match[1], validate=True)
        is_canonical = base64.b64encode(data).decode() == base64_match[1]
        if is_canonical:
            return data.decode()
        return None
    except (binascii.Error, ValueError):
        return None


def unknown_method(request: RpcRequest) -> RpcError:
    """Return the error for a method that there is not."""
    status = 404 if request.is_modern else 200
    message = f"There is no method {request.method[:80]!r} here."
    return RpcError(status, METHOD_NOT_FOUND, message, request=request.id)


def bad_params(request: RpcRequest, message: str, number: int = INVALID_PARAMS) -> RpcError:
    """Return the error for params that name nothing. number: of the handshake revisions."""
    if request.is_modern:
        return RpcError(400, INVALID_PARAMS, message, request=request.id)
    return RpcError(200, number, message, request=request.id)


def write_result(request: RpcRequest, result: Json, server: Json) -> bytes:
    """Return the body of an answer. server: what we say of ourselves."""
    if request.is_modern:
        caching: Json = {"ttlMs": 0, "cacheScope": "private"} if request.method in CACHED else {}
        meta = {"_meta": {SERVER_KEY: server}}
        result = {**result, "resultType": "complete", **caching, **meta}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result})


def text_of(params: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a text; None for any other."""
    value = params.get(name)
    if isinstance(value, str):
        return value
    return None

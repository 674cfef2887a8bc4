"""Takes a provider's key out of everything that its server sends: headers and bodies.

This is the one place: what a server quotes of the key leaves it as `[key]`, whatever the status,
the format or the chunks that it came in. JSON may spell a character as an escape, so those
spellings are looked for too. An answer that told its length keeps it. The client's own key in
own-key mode is not the provider's, and passes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from operator import itemgetter

from gateway.upstream.base import Headers, Upstream, UpstreamRequest, UpstreamResponse

# Bytes of the shortest key that is redacted: dummy keys of servers that accept any key ("x",
# "none", "EMPTY") are words that may occur in texts.
SHORTEST_SECRET = 8
MASK = b"[key]"
# Of a header.
VALUE = itemgetter(1)
PROBE_BYTES = 8
BACKSLASH = b"\\"
ESCAPE = b"\\u00"
SLASH = b"\\/"
# How a body whose length is told keeps it: blanks behind its JSON, or a longer mask.
TRAILED = "trailed"
PADDED = "padded"
# Before an escape: JSON inside of JSON doubles them.
MOST_BACKSLASHES = 4


class Secret:
    """A key, and how it may be spelt. Pure."""

    def __init__(self, secret: bytes) -> None:
        # Long texts cost more to look for; where its end is not, the key is not.
        self._end = secret[-PROBE_BYTES:]
        patterns = [rb"(?:%s)" % b"|".join(_spellings_of(byte)) for byte in secret]
        self._pattern = re.compile(b"".join(patterns))
        self._tokens = [re.compile(pattern) for pattern in patterns]
        self.longest_spelling = len(secret) * (MOST_BACKSLASHES + 5)
        # Where it may begin, by its first characters: most that begin otherwise are passed here.
        first_pattern, second_pattern, third = [*patterns, b"", b"", b""][:3]
        begins = rb"(?=%b(?:\Z|\\|%b(?:\Z|\\|%b))|\\)." % (first_pattern, second_pattern, third)
        self._begins = re.compile(begins, re.DOTALL)

    def redact(self, data: bytes, *, padded: bool = False) -> bytes:
        """Return bytes without the key. Bytes that do not hold it are returned as they are.

        padded: they keep their length.
        """
        if self._end in data or (BACKSLASH in data and (ESCAPE in data or SLASH in data)):
            return self._pattern.sub(_padded_mask if padded else MASK, data)
        return data

    def redact_headers(self, headers: Headers) -> Headers:
        """Return headers without the key."""
        # No value has a line feed in it, so that all are looked at at once.
        values = b"\n".join(map(VALUE, headers))
        if self.redact(values) == values:
            return headers
        return [(k, self.redact(v)) for k, v in headers]

    def begun_at_end(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of the key."""
        begin = max(data.rfind(b"\n"), len(data) - self.longest_spelling - 1) + 1
        for begins in self._begins.finditer(data, begin):
            if self._reads_to_end(data, begins.start()):
                return len(data) - begins.start()
        return 0

    def _reads_to_end(self, data: bytes, at: int) -> bool:
        for token in self._tokens:
            if at == len(data):
                return True
            if (token_match := token.match(data, at)) is None:
                return _is_cut(data[at:])
            at = token_match.end()
        return False


class RedactedUpstream:
    """A server whose answers never hold the key that it is called with."""

    def __init__(self, server: Upstream, secrets: Sequence[bytes]) -> None:
        self._server = server
        self._secrets = [Secret(secret) for secret in secrets]

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request, see the port."""
        incoming = await self._server.send(request)
        length = _length_kept_by(incoming)
        for secret in self._secrets:
            incoming.headers = secret.redact_headers(incoming.headers)
            incoming.body = RedactedBody(incoming.body, secret, length)
        return incoming


class RedactedBody:
    """The pieces of a body without the key, also where it is split over several.

    Only what may be the key's beginning is held back, until the next piece. length: how the body
    keeps its length, "" if it need not.
    """

    __slots__ = ("_body", "_held_bytes", "_length", "_lost_bytes", "_secret")

    def __init__(self, body: AsyncIterator[bytes], secret: Secret, length: str = "") -> None:
        self._body = body
        self._secret = secret
        self._held_bytes = b""
        self._length = length
        self._lost_bytes = 0

    def __aiter__(self) -> RedactedBody:
        return self

    async def __anext__(self) -> bytes:
        while True:
            try:
                data = await self._body.__anext__()
            except StopAsyncIteration:
                if not (tail := self._end()):
                    raise
                return tail
            if self._held_bytes:
                data = self._held_bytes + data
                self._held_bytes = b""
            size = len(data)
            data = self._secret.redact(data, padded=self._length == PADDED)
            self._lost_bytes += size - len(data)
            if data.endswith(b"\n"):
                # As an event does: no key has a line feed in it.
                return data
            if held_size := self._secret.begun_at_end(data):
                self._held_bytes = data[-held_size:]
                data = data[:-held_size]
            if data or not held_size:
                return data

    def _end(self) -> bytes:
        """Return what is left, with blanks for what was taken out of JSON whose length is told."""
        tail = self._held_bytes + b" " * (self._lost_bytes if self._length == TRAILED else 0)
        self._held_bytes = b""
        self._lost_bytes = 0
        return tail

    async def aclose(self) -> None:
        """Close the underlying body."""
        closer = getattr(self._body, "aclose", None)
        if closer is not None:
            await closer()


def secrets_of(*keys: str) -> list[bytes]:
    """Return the keys that are long enough to be told from words."""
    encoded_keys = dict.fromkeys(key.encode() for key in keys)
    return [key for key in encoded_keys if len(key) >= SHORTEST_SECRET]


def _length_kept_by(incoming: UpstreamResponse) -> str:
    """Return how a body keeps its length; refusals are read whole, and need not."""
    if not 200 <= incoming.status < 300:
        return ""
    content_type = b""
    has_length = False
    for name, value in incoming.headers:
        lower_name = name.lower()
        if lower_name == b"content-length":
            has_length = True
        elif lower_name == b"content-type" and not content_type:
            content_type = value
    if not has_length:
        return ""
    if b"json" in content_type.lower():
        return TRAILED
    return PADDED


def _padded_mask(match: re.Match[bytes]) -> bytes:
    return MASK.ljust(len(match[0]), b"*")


def _spellings_of(byte: int) -> list[bytes]:
    """Return patterns of a character as it is, and as JSON may escape it."""
    plain_pattern = re.escape(bytes([byte]))
    escaped_pattern = rb"\\{1,%d}u00(?i:%02x)" % (MOST_BACKSLASHES, byte)
    return [
        plain_pattern,
        escaped_pattern,
        *([rb"\\{1,%d}/" % MOST_BACKSLASHES] if byte == ord("/") else []),
    ]


def _is_cut(tail: bytes) -> bool:
    """Tell whether the bytes may be the beginning of an escape."""
    bare = tail.lstrip(b"\\")
    slashes = len(tail) - len(bare)
    return 0 < slashes <= MOST_BACKSLASHES and b"u00".startswith(bare[:3]) and len(bare) < 5

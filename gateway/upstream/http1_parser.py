"""A parser of one HTTP/1.1 response: bytes in, status, headers and body out. No I/O.

The grammar is llhttp's, by way of httptools, as in uvicorn. Rules:

- The result does not depend on how the bytes were split; after a fault, what came before can still
  be taken.
- A body without its end (shorter than its length, or without its last chunk) is a fault, never a
  silent end.
- Headers are returned as they were sent, in order; interim responses (1xx) and trailers are
  skipped.
"""

from __future__ import annotations

import re

import httptools

from gateway.wire.headers import Pairs

# Largest piece handed over.
CHUNK_BYTES = 1 << 16
# Most bytes of headers; twice as many may stand around the pieces of a body.
HEAD = 1 << 16
# Most bytes of trailers.
TRAILER_BYTES = 1 << 13
# Around a chunk, without extensions.
FRAME_BYTES = 24
_length = re.compile(rb"\r\ncontent-length[ \t]*:([^\r\n]*)", re.IGNORECASE)


class MalformedResponse(Exception):
    """A response that is not HTTP/1.1."""


class ResponseParser:
    """The response to one request.

    bodyless: to a HEAD request. silent: no byte has arrived. status: 0 until the headers are
    complete. is_complete: the response is complete. reusable: the connection can be used for
    another request. fault: why no more data will come.
    """

    __slots__ = (
        "_body",
        "_bodyless",
        "_failure",
        "_head",
        "_parser",
        "_quiet",
        "_size",
        "_trailers",
        "fault",
        "headers",
        "is_complete",
        "reusable",
        "silent",
        "status",
    )

    def __init__(self, bodyless: bool = False) -> None:
        self.status = 0
        self.fault = ""
        self.headers: Pairs = []
        self.silent = True
        self.is_complete = self.reusable = False
        self._bodyless = bodyless
        self._size = self._quiet = self._trailers = 0
        self._body = bytearray()
        self._parser: httptools.HttpResponseParser | None = self._begin()
        # What came of the head, and why llhttp refused it, while that may be mended.
        self._head = bytearray()
        self._failure = ""

    def _begin(self) -> httptools.HttpResponseParser:
        parser = httptools.HttpResponseParser(self)
        # Seen from real servers, and accepted by other clients: bare LF, odd bytes in header
        # values, blanks after a chunk's size.
        parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        return parser

    def feed(self, data: bytes) -> None:
        """Parse the next bytes, split anywhere.

        Raises MalformedResponse; what came before can still be taken.
        """
        assert self._parser is not None  # noqa: S101 - never fed after the end
        self.silent = False
        self._quiet += len(data)
        if self.status:
            self._head.clear()
        else:
            self._head += data
        if self._failure:
            self._mend()
        else:
            self._parse(data)
        if not self.is_complete and (self._size > HEAD or self._quiet > 2 * HEAD):
            raise MalformedResponse(f"more than {HEAD >> 10} KB of headers")
        if self._trailers > TRAILER_BYTES and not self.is_complete:
            raise MalformedResponse(f"more than {TRAILER_BYTES >> 10} KB of trailers")

    def _parse(self, data: bytes) -> None:
        """Let llhttp parse bytes. Raises MalformedResponse."""
        assert self._parser is not None  # noqa: S101 - never fed after the end
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as e:
            self.reusable = False
            if self.is_complete:
                return
            if not self._head or "Content-Length" not in str(e):
                raise MalformedResponse(type(e).__name__) from e
            self._failure = type(e).__name__
            self._mend()

    def _mend(self) -> None:
        """Parse a head anew that told one length several times, as proxies do.

        Equal lengths are one, unequal ones a fault (RFC 9110, section 8.6). Waits for the whole
        head. Raises MalformedResponse.
        """
        head, blank, body = bytes(self._head).partition(b"\r\n\r\n")
        if not blank and len(head) <= HEAD:
            return
        merged_head = merge_lengths(head)
        if merged_head == head:
            raise MalformedResponse(self._failure)
        self._head.clear()
        self.headers = []
        self._size = 0
        self._failure = ""
        self._parser = self._begin()
        self._parse(merged_head + blank + body)

    def end(self, fault: str) -> None:
        """Note that no more data will come.

        That is the end of a body with neither a length nor chunks, otherwise a fault.
        """
        # Breaks a reference cycle.
        self._parser = None
        if (
            self.status
            and not self.is_complete
            and not fault
            and not any(_frames(k.lower(), v.lower()) for k, v in self.headers)
        ):
            self.is_complete = True
        if not self.is_complete:
            self.fault = self.fault or fault or "closed too early"

    def take(self) -> bytes:
        """Return the next piece of the body; b"" if none has arrived."""
        body = self._body
        if not body:
            return b""
        if len(body) <= CHUNK_BYTES:
            data = bytes(body)
            body.clear()
        else:
            with memoryview(body) as view:
                data = bytes(view[:CHUNK_BYTES])
            del body[:CHUNK_BYTES]
        return data

    @property
    def unread(self) -> int:
        """Bytes of the body that were not taken yet."""
        return len(self._body)

    # --- callbacks of httptools

    def on_message_begin(self) -> None:
        if self.is_complete:
            # An unsolicited response.
            self.reusable = False
        else:
            # Drop those of an interim response.
            self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        # Otherwise a trailer.
        if not self.status:
            self._size += len(name) + len(value) + 4
            self.headers.append((name, value))
        else:
            self._trailers += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        assert self._parser is not None  # noqa: S101 - it is the one that calls
        status = self._parser.get_status_code()
        if (status >= 200 or status == 101) and self._size <= HEAD and not self.is_complete:
            self.status = status
            if self._bodyless or status == 101:
                self._end()

    def on_body(self, data: bytes) -> None:
        if self.is_complete:
            self.reusable = False
            return
        # What remains are extensions of chunks, and trailers.
        around = self._quiet - len(data) - FRAME_BYTES
        self._quiet = around if around > 0 else 0
        self._body += data

    def on_message_complete(self) -> None:
        if self.status and not self.is_complete and self._trailers <= TRAILER_BYTES:
            self._end()

    def _end(self) -> None:
        assert self._parser is not None  # noqa: S101 - it is the one that calls
        self.is_complete = True
        self.reusable = self.status != 101 and self._parser.should_keep_alive()


def merge_lengths(head: bytes) -> bytes:
    """Return a response's head that tells its length once; unchanged if the lengths differ."""
    values: list[bytes] = [v.strip() for line in _length.findall(head) for v in line.split(b",")]
    if len(values) < 2 or len(set(values)) > 1 or not values[0].isdigit():
        return head
    return _length.sub(b"", head) + b"\r\ncontent-length: " + values[0]


def _frames(name: bytes, value: bytes) -> bool:
    """Tell whether this header determines where the body ends."""
    return name == b"content-length" or (
        name == b"transfer-encoding" and value.rstrip().endswith(b"chunked")
    )

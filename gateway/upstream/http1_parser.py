"""One HTTP/1.1 answer, fed by hand: bytes in, a status, headers and a body out. No I/O.

The grammar is llhttp's, by way of httptools, as in uvicorn. Rules:
- However the bytes were split, the same comes out; where they break off, what came before can still
  be taken.
- A body without its end (short of its length, without its last chunk) is a fault, never a silent
  end.
- Headers come as they were sent, in their order; interim answers (1xx) and trailers are passed
  over.
"""

from __future__ import annotations

import httptools

from gateway.wire.headers import Pairs

CHUNK_BYTES = 1 << 16  # bytes handed over at a time at most
HEAD = 1 << 16  # bytes of headers; twice as many may come between two bytes of a body


class MalformedResponse(Exception):
    """An answer that is no HTTP/1.1."""


class ResponseParser:
    """The answer to one request, fed with the bytes that come. bodyless: to a HEAD.

    silent: until its first byte. status: 0 until the headers are complete. whole: its last byte
    came. reusable: the connection is good for another request. fault: why no more will come.
    """

    __slots__ = (
        "_body",
        "_bodyless",
        "_parser",
        "_quiet",
        "_size",
        "fault",
        "headers",
        "reusable",
        "silent",
        "status",
        "whole",
    )

    def __init__(self, bodyless: bool = False) -> None:
        self.status, self.fault = 0, ""
        self.headers: Pairs = []
        self.silent = True
        self.whole = self.reusable = False
        self._bodyless = bodyless
        self._size = self._quiet = 0
        self._body = bytearray()
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        # What servers are seen to send, and other clients accept: bare LF, odd bytes in header
        # values, blanks after a chunk's size.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )

    def feed(self, data: bytes) -> None:
        """Take what came, split anywhere.

        Raises Malformed; what came before that can still be taken.
        """
        assert self._parser is not None  # noqa: S101 - an answer that ended is fed no more
        self.silent = False
        self._quiet += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as e:
            self.reusable = False
            if not self.whole:
                raise MalformedResponse(type(e).__name__) from e
        if not self.whole and (self._size > HEAD or self._quiet > 2 * HEAD):
            raise MalformedResponse(f"more than {HEAD >> 10} KB of headers")

    def end(self, fault: str) -> None:
        """No more will come: the end of a body that has neither a length nor chunks, else a
        fault.
        """
        self._parser = None  # they hold each other
        if (
            self.status
            and not self.whole
            and not fault
            and not any(_frames(k.lower(), v.lower()) for k, v in self.headers)
        ):
            self.whole = True
        if not self.whole:
            self.fault = self.fault or fault or "closed too early"

    def take(self) -> bytes:
        """Return what has come of the body, a piece at most; b"" where nothing waits."""
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
        """Bytes of the body that wait."""
        return len(self._body)

    # --- what the parser tells

    def on_message_begin(self) -> None:
        if self.whole:
            self.reusable = False  # an answer that nobody asked for
        else:
            self.headers = []  # not those of an interim answer

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else it is a trailer
            self._size += len(name) + len(value) + 4
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None  # noqa: S101 - it is the one that calls
        status = self._parser.get_status_code()
        if (status >= 200 or status == 101) and self._size <= HEAD and not self.whole:
            self.status = status
            if self._bodyless or status == 101:
                self._end()

    def on_body(self, data: bytes) -> None:
        if self.whole:
            self.reusable = False
            return
        self._quiet = 0
        self._body += data

    def on_message_complete(self) -> None:
        if self.status and not self.whole:
            self._end()

    def _end(self) -> None:
        assert self._parser is not None  # noqa: S101 - it is the one that calls
        self.whole = True
        self.reusable = self.status != 101 and self._parser.should_keep_alive()


def _frames(name: bytes, value: bytes) -> bool:
    """Tell whether this header says where a body ends."""
    return name == b"content-length" or (
        name == b"transfer-encoding" and value.rstrip().endswith(b"chunked")
    )

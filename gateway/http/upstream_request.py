"""One request to a model server, as its API's format makes it and an upstream takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gateway.http.paths import UpstreamPath, with_query
from gateway.wire.long_content import LongContent

Headers = list[tuple[bytes, bytes]]
# A body, or its parts: joining those of a long history costs as much as sending it.
Content = bytes | Sequence[bytes | memoryview]


def join_body(content: Content) -> bytes:
    """Return a body in one piece."""
    if isinstance(content, LongContent):
        return content.join()
    if isinstance(content, bytes):
        return content
    return b"".join(content)


def size_of(content: Content | None) -> int:
    """Return the size of a body in bytes; 0 for none."""
    if isinstance(content, LongContent):
        return content.size
    if isinstance(content, bytes):
        return len(content)
    return sum(map(len, content or ()))


def ignore() -> None:
    """Do nothing."""


class UpstreamRequest(msgspec.Struct):
    """One upstream request.

    path: below the provider's base URL; names in it are quoted. model: the name its target knows
    the model by; "" if the body names none. frozen: the first system message ends with core text
    that stays the same for a while, so a provider whose prompt cache needs marks may set one there.
    stream: events were asked for, so silence is limited; otherwise only the total time is. written:
    called when the request is being sent. composed: it may hold other things than the one before
    it did at the same place, since memory changes. masked: who reads the answer for the client
    takes out what is marked as ours. tenant: whose request it is. own: a call of the gateway's own,
    a small chat completion, whose limit of tokens is named as its server wants it.
    """

    path: UpstreamPath
    content: Content | None
    headers: Sequence[tuple[bytes, bytes]] = ()
    method: str = "POST"
    model: str = ""
    frozen: bool = False
    # The caller's own deadline, by the loop's time.
    until: float = float("inf")
    stream: bool = False
    on_written: Callable[[], None] = ignore
    composed: bool = False
    masked: bool = False
    tenant: str = ""
    own: bool = False

    def add_query(self, query: str) -> None:
        """Send a query too, "" for none."""
        self.path = with_query(self.path, query)

    @property
    def body(self) -> bytes | None:
        """The content in one piece."""
        if self.content is None:
            return None
        return join_body(self.content)

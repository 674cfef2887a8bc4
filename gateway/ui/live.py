"""Live parts of pages: server-sent events, read from what is recorded anyway.

A feed polls once a second. So it adds nothing to a turn, sees what other processes write, and ends
with its session. The number of feeds is limited.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator

from litestar.di import NamedDependency

from gateway.errors import GatewayError, Unavailable
from gateway.ui.visitor import Visitor
from memory import MemoryFault

EVENT_STREAM = "text/event-stream"
EVERY_SECONDS = 1.0
# Then the browser connects again.
LIFE_SECONDS = 900.0
# After which a comment keeps the line open.
QUIET_SECONDS = 15.0
MAX_FEEDS = 64
# Of one session; a browser opens about six.
MAX_SESSION_FEEDS = 8


class _OpenFeed:
    """One open feed. session: whose it is."""

    def __init__(self, session: str) -> None:
        self.session = session


class FeedLimit:
    """The open feeds of this process."""

    def __init__(self) -> None:
        # A stream that nobody begins to read never ends: its place goes with it.
        self._feeds: weakref.WeakSet[_OpenFeed] = weakref.WeakSet()

    def open(self, session: str, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return a feed's stream, with comments while it is silent.

        session: its name. Raises Unavailable if the session, or the process, has too many.
        """
        session_feeds = sum(feed.session == session for feed in self._feeds)
        if session_feeds >= MAX_SESSION_FEEDS or len(self._feeds) >= MAX_FEEDS:
            raise Unavailable(
                f"{session_feeds} pages of yours and {len(self._feeds)} in all are live; at most "
                f"{MAX_SESSION_FEEDS} and {MAX_FEEDS} may be. Close some, or reload this one by "
                "hand.",
                headers=[(b"retry-after", b"10")],
            )
        self._feeds.add(feed := _OpenFeed(session))
        return self._run(feed, events)

    async def _run(self, feed: _OpenFeed, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        quiet = time.monotonic()
        try:
            yield b"retry: 2000\n: live\n\n"
            async for part in events:
                if part:
                    quiet = time.monotonic()
                    yield part
                elif time.monotonic() - quiet > QUIET_SECONDS:
                    quiet = time.monotonic()
                    yield b": quiet\n\n"
        except (MemoryFault, GatewayError):
            # The browser connects again.
            return
        finally:
            self._feeds.discard(feed)


Feeds = NamedDependency[FeedLimit]


async def watch(visitor: Visitor) -> AsyncIterator[None]:
    """Wait a second at a time, while the session lasts and the gateway runs."""
    gateway = visitor.gateway
    until = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(EVERY_SECONDS)
        if gateway.process.draining or not await visitor.is_signed_in():
            return
        yield


def event(name: str, data: str, ident: str = "") -> bytes:
    """Return an event. data: of any number of lines. ident: the id from which a browser resumes."""
    lines = "".join(f"data: {line}\n" for line in data.replace("\r", "").split("\n"))
    return f"event: {name}\n{f'id: {ident}' if ident else ':'}\n{lines}\n".encode()

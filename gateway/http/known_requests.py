"""What was decided of requests by their headers and by what is no message of them.

Programs send the same of both in each turn of each chat, so that nothing of it has to be read
again. A reader keeps its decisions here, and asks each time for what may change meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memory import Cache

# Of the other members of a request; longer ones are read each time.
MEMBERS_BYTES = 1 << 12
# Size of the cache: some 300 users, each with their program's headers.
BYTES, EACH = 1 << 19, 1700
# Headers that differ from request to request, and decide nothing of how one is read.
VARYING = frozenset(
    {
        b"content-length",
        b"traceparent",
        b"tracestate",
        b"baggage",
        b"x-request-id",
        b"x-client-request-id",
    }
)


class KnownRequests:
    """The decisions of a reader, by the hash of a request's headers and members.

    The hash is the interpreter's, of 64 bits, with a secret of the process.
    """

    def __init__(self) -> None:
        self.decisions: Cache[int, Any] = Cache(BYTES, EACH)

    def name(self, pairs: Iterable[tuple[bytes, bytes]], members: bytes) -> int:
        """Return what names requests like this one; 0 if its members are too long to be kept.

        members: the bytes of the body without its messages.
        """
        if not 0 < len(members) <= MEMBERS_BYTES:
            return 0
        return hash((members, *[pair for pair in pairs if pair[0] not in VARYING]))

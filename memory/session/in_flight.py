"""What the turns under way in this process hold: their requests, nodes and continuations.

A duplicate of a request waits for the first attempt at it; of the turns that continue one answer in
different ways, the first keeps the conversation; the search index waits for open nodes.
"""

from __future__ import annotations

import asyncio


class InFlight:
    """The turns under way.

    nodes: their open nodes. continued: the nodes that they continue, each with the history that the
    first of them has. requests: what names them among their retries.
    """

    def __init__(self) -> None:
        self.nodes: set[int] = set()
        self.continued: dict[int, bytes] = {}
        self.requests: dict[bytes, asyncio.Event] = {}

    async def wait_for(self, request: bytes) -> None:
        """Wait until no attempt at a request is under way."""
        while (flight := self.requests.get(request)) is not None:
            await flight.wait()

    def claim(self, request: bytes | None) -> TurnClaim:
        """Return what a turn holds; None: it is never repeated."""
        first = request is not None and request not in self.requests
        if request is not None and first:
            self.requests[request] = asyncio.Event()
        return TurnClaim(self, request, first)


class TurnClaim:
    """What one turn holds of what is in flight.

    first: no other attempt at its request was under way when it began.
    """

    def __init__(self, in_flight: InFlight, request: bytes | None, first: bool) -> None:
        self.request = request
        self.first = first
        self._in_flight = in_flight
        self._node: int | None = None
        self._continued: int | None = None
        self._holds_request = first

    def is_open(self, node: int) -> bool:
        """Tell whether a turn under way has this node."""
        return node in self._in_flight.nodes

    def hold_node(self, node: int) -> None:
        """Tell others that this node is open, until it is released."""
        self._node = node
        self._in_flight.nodes.add(node)

    def is_first_to_continue(self, node: int, history: bytes) -> bool:
        """Tell whether no other turn under way continues this node by another history."""
        if self._in_flight.continued.setdefault(node, history) != history:
            return False
        self._continued = node
        return True

    def release(self) -> None:
        """Let a duplicate of the request go on. Safe to call again."""
        if self._node is not None:
            self._in_flight.nodes.discard(self._node)
        if self._continued is not None:
            self._in_flight.continued.pop(self._continued, None)
            self._continued = None
        if self._holds_request and self.request is not None:
            self._holds_request = False
            self._in_flight.requests.pop(self.request).set()

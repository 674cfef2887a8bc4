"""What the running turns of this process hold: requests, nodes and continuations.

A duplicate of a request waits for its first attempt; of several turns that continue one answer
differently, the first keeps the conversation; the search index waits for open nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from memory.conversation.openings import Opening


class InFlight:
    """The running turns.

    nodes: their open nodes. continued: the nodes that they continue, each with the history of the
    first to do so. requests: keys of their requests. released_nodes: nodes that other workers of
    the store have to be told of: nobody here goes on with them. openings: of requests that continue
    nothing, by the key of their scope, each with its node.
    """

    def __init__(self) -> None:
        self.nodes: set[int] = set()
        self.continued: dict[int, bytes] = {}
        self.requests: dict[bytes, asyncio.Event] = {}
        self.released_nodes: set[int] = set()
        self.openings: dict[bytes, dict[int, Opening]] = {}

    async def wait_for(self, request: bytes) -> None:
        """Wait until no attempt at a request is running."""
        while (flight := self.requests.get(request)) is not None:
            await flight.wait()

    def claim(self, request: bytes | None) -> TurnClaim:
        """Return the claim of a turn; None for a request that is never repeated."""
        is_first = request is not None and request not in self.requests
        if request is not None and is_first:
            self.requests[request] = asyncio.Event()
        return TurnClaim(self, request, is_first)


class TurnClaim:
    """What one turn holds.

    is_first: no other attempt at its request was running when it began. is_stored: the store knows
    that this worker holds its node.
    """

    def __init__(self, in_flight: InFlight, request: bytes | None, first: bool) -> None:
        self.request = request
        self.is_first = first
        self._in_flight = in_flight
        self._node: int | None = None
        self._continued: int | None = None
        # Of an opening.
        self._scope: bytes | None = None
        self._holds_request = first
        self.is_stored = False

    def is_open(self, node: int) -> bool:
        """Tell whether a running turn has this node."""
        return node in self._in_flight.nodes

    def hold_node(self, node: int) -> None:
        """Mark this node as open until the claim is released."""
        self._node = node
        self._in_flight.nodes.add(node)

    def openings(self, scope: bytes) -> Iterable[Opening]:
        """Return the openings of a scope that are in flight, newest first."""
        return reversed(self._in_flight.openings.get(scope, {}).values())

    def hold_opening(self, scope: bytes, opening: Opening) -> None:
        """Let the turns of a scope know this opening until the claim is released."""
        if self._node is not None:
            self._scope = scope
            self._in_flight.openings.setdefault(scope, {})[self._node] = opening

    def is_first_to_continue(self, node: int, history: bytes) -> bool:
        """Tell whether no other running turn continues this node with another history."""
        if self._in_flight.continued.setdefault(node, history) != history:
            return False
        self._continued = node
        return True

    def release(self) -> None:
        """Let a waiting duplicate of the request continue. Safe to call again."""
        if self._node is not None:
            self._in_flight.nodes.discard(self._node)
            if self.is_stored:
                self.is_stored = False
                self._in_flight.released_nodes.add(self._node)
            if self._scope is not None:
                self._let_go_of_opening(self._node, self._scope)
        if self._continued is not None:
            self._in_flight.continued.pop(self._continued, None)
            self._continued = None
        if self._holds_request and self.request is not None:
            self._holds_request = False
            self._in_flight.requests.pop(self.request).set()

    def _let_go_of_opening(self, node: int, scope: bytes) -> None:
        openings = self._in_flight.openings.get(scope, {})
        openings.pop(node, None)
        if not openings:
            self._in_flight.openings.pop(scope, None)
        self._scope = None

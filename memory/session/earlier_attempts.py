"""Earlier attempts at a request that other workers run, or ran until they were gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain, repeat

from memory.session.context import adopts
from memory.session.in_flight import TurnClaim
from memory.session.request import TurnRequest
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.turns import node_holders
from memory.stores.sql.turns.turn_reader import RETRY_SECONDS, Snapshot

# Seconds before a node is looked at again; then always LONGEST_SECONDS.
PAUSES = (0.1, 0.2, 0.4)
LONGEST_SECONDS = 0.5
Read = Callable[[], Awaitable[Snapshot]]


async def settle(
    db: Database, ask: TurnRequest, claim: TurnClaim, snapshot: Snapshot, read_snapshot: Read
) -> Snapshot:
    """Return a snapshot in which it is decided whether this turn goes on with an earlier attempt.

    A repetition waits for an attempt that another worker runs. One that nobody runs is taken over,
    unless another worker is faster. read_snapshot: reads the snapshot again. Raises
    StoreUnavailable.
    """
    if (me := db.holder) is None:
        return snapshot
    pauses = chain(PAUSES, repeat(LONGEST_SECONDS))
    until = time.monotonic() + RETRY_SECONDS
    while (attempt_node := snapshot.attempt_node) is not None:
        if attempt_node.holder == me:
            # This process knows what it runs.
            snapshot.held = False
        if not snapshot.held:
            if not adopts(ask, snapshot, claim):
                break
            place = (snapshot.scope_id or 0, attempt_node.id)
            take = partial(
                node_holders.take_over, place=place, seen_holder=attempt_node.holder, me=me
            )
            if await db.write(take, lock=NOTHING):
                claim.is_stored = True
                break
            snapshot.held = True
        if not ask.certain or time.monotonic() > until:
            break
        await asyncio.sleep(next(pauses))
        snapshot = await read_snapshot()
    return snapshot

"""The writes of one turn, within the time that it may wait for its store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection

from memory.conversation.messages import Json, text_of
from memory.errors import MemoryFault, StoreUnavailable
from memory.session.recovery_log import RecoveryLog
from memory.session.store_deadline import StoreDeadline
from memory.stores.sql.database import Database
from memory.stores.sql.turn_writer import TurnRecord

T = TypeVar("T")
log = logging.getLogger("mnemogate")

# characters of answers and blocks, bytes of a request, that may be inspected on the event loop
LIGHT = 1 << 18
ITEM_WEIGHT = 1000  # cost of an answer, or a call in one, in characters


def weight_of(answers: Sequence[Json]) -> int:
    """Return the cost of inspecting answers, in characters of text."""
    return sum(
        len(text_of(a)) + ITEM_WEIGHT * (1 + len(a.get("tool_calls") or ())) for a in answers
    )


@dataclass(slots=True)
class TurnStore:
    """The writes of one turn.

    patience: the time it may wait for them in total. heavy: they take long to prepare and to write.
    """

    db: Database
    spill_file: RecoveryLog
    patience: StoreDeadline
    heavy: bool = False

    async def look(self, work: Callable[..., T], *args: object) -> T:
        """Run work that inspects everything written, in a thread if that takes long."""
        return await asyncio.to_thread(work, *args) if self.heavy else work(*args)

    async def write(self, work: Callable[[Connection], T], most: float | None = None) -> T:
        """Write a few rows.

        most: seconds of the patience to use; None for a write beside the upstream's work, whose
        waiting is counted elsewhere. Raises Erased, and StoreUnavailable for any failure of the
        store, so that no answer of an upstream is lost.
        """
        try:
            if most is None:
                return await self.db.write(work, small=not self.heavy)
            with self.patience.of(most) as seconds:
                async with asyncio.timeout(seconds):
                    return await self.db.write(work, small=not self.heavy)
        except MemoryFault:
            raise
        except TimeoutError as e:
            raise StoreUnavailable("the store did not take a write in time") from e
        except Exception as e:
            log.exception("unexpected failure of the store")
            raise StoreUnavailable(f"the store failed: {type(e).__name__}") from e

    async def spill(self, record: TurnRecord) -> bool:
        """Write a record that the store did not take to the recovery log.

        Returns False if that fails too: the record is lost, but the answer is still sent.
        """
        try:
            await self.spill_file.keep(record)
        except Exception:
            log.exception("an answer is not recorded: both the store and the recovery log failed")
            return False
        return True

"""Tickets: who signed in to the dashboard, without their key.

A ticket is a random text, which only its holder has. What it stands for is kept in the database, so
that it ends for every worker at once, and stays ended after a restart. While the database does not
answer, a process goes on with the tickets that it saw there a short time ago.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from sys import getsizeof

from gateway.errors import StoreDown, Unavailable
from gateway.storage.tickets import TicketTable, TooManyTickets
from memory import Cache, StoreUnavailable

SESSION_SECONDS = 12 * 3600.0
LINK_SECONDS = 60.0
# That a ticket holds after it was last seen in the database.
OUTAGE_SECONDS = 300.0
# Of a purpose; then no more are issued.
MAX_TICKETS = 10_000
MAX_TICKET_CHARACTERS = 100
SEEN_BYTES = 1 << 20
SEEN_EACH = 300


@dataclass(frozen=True, slots=True)
class Ticket:
    """nonce: what the holder has. name: whom it stands for. expires_at: Unix time. purpose: its
    only use.
    """

    nonce: str
    name: str
    expires_at: float
    purpose: str

    @property
    def key(self) -> tuple[str, str]:
        """What the database knows it by."""
        return self.purpose, blake2b(self.nonce.encode(), digest_size=16).hexdigest()


class TicketOffice:
    """Issues and checks tickets. secret: the server's. table: keeps them. clock: Unix time."""

    def __init__(
        self, secret: bytes, table: TicketTable, clock: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret
        self._table = table
        self._clock = clock
        # By key: the ticket, and when it was last seen in the database.
        self._seen_tickets: Cache[tuple[str, str], tuple[Ticket, float]] = Cache(
            SEEN_BYTES, SEEN_EACH, lambda _, ticket_and_time: getsizeof(ticket_and_time[0].name)
        )
        # Ended while the database did not answer, until they are removed there.
        self._ended_tickets: dict[tuple[str, str], float] = {}

    async def issue(self, purpose: str, name: str, seconds: float) -> str:
        """Return a new ticket as text. Raises Unavailable, StoreDown.

        purpose: it is good for nothing else.
        """
        now = self._clock()
        ticket = Ticket(secrets.token_urlsafe(32), name, now + seconds, purpose)
        try:
            times = (now, ticket.expires_at)
            await self._table.store(ticket.key, name, times, MAX_TICKETS)
        except TooManyTickets as e:
            raise Unavailable(
                f"{MAX_TICKETS:,} sign-ins last at the moment, and no more are kept. Sign out "
                "elsewhere, or try again later.",
                headers=[(b"retry-after", b"60")],
            ) from e
        except StoreUnavailable as e:
            raise StoreDown(str(e)) from e
        return ticket.nonce

    async def check(self, purpose: str, text: str) -> Ticket | None:
        """Return the ticket; None if there is none, or it has ended. Raises StoreDown."""
        if not text or len(text) > MAX_TICKET_CHARACTERS or not text.isascii():
            return None
        key = Ticket(text, "", 0, purpose).key
        if key in self._ended_tickets:
            return None
        now = self._clock()
        try:
            row = await self._table.find(key)
        except StoreUnavailable as e:
            ticket, seen_at = self._seen_tickets.get(key) or (None, 0.0)
            if ticket is None or now - seen_at > OUTAGE_SECONDS:
                raise StoreDown(str(e)) from e
            if ticket.expires_at > now:
                return ticket
            return None
        if row is None or row[1] <= now:
            self._seen_tickets.pop(key)
            return None
        ticket = Ticket(text, *row, purpose)
        self._seen_tickets.put(key, (ticket, now))
        return ticket

    async def is_valid(self, ticket: Ticket) -> bool:
        """Tell whether a ticket still holds. Raises StoreDown."""
        return await self.check(ticket.purpose, ticket.nonce) is not None

    async def revoke(self, ticket: Ticket) -> bool:
        """Refuse a ticket from now on; tell whether it held until now, for one of all who ask.

        While the database does not answer, this process alone refuses it, and tries again with the
        next one that is given up.
        """
        self._seen_tickets.pop(ticket.key)
        try:
            was_valid = await self._table.remove(ticket.key)
            for key in [*self._ended_tickets]:
                await self._table.remove(key)
                self._ended_tickets.pop(key, None)
        except StoreUnavailable:
            now = self._clock()
            self._ended_tickets = {
                key: ends for key, ends in self._ended_tickets.items() if ends > now
            }
            self._ended_tickets[ticket.key] = ticket.expires_at
            return False
        return was_valid

    def csrf_token(self, ticket: Ticket) -> str:
        """Return what a form of this session must send back."""
        return hmac.digest(self._secret, f"csrf\x00{ticket.nonce}".encode(), "sha256").hex()

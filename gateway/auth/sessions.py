"""Signed tickets: who signed in to the dashboard, without their key. No I/O.

A ticket contains the caller's name, as `Authenticator.session_name` returns it, and expires. A
ticket of a session that was ended is refused by this process until it restarts. Ended tickets are
remembered until they expire; if there are too many of them, no new ticket is issued.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable
from dataclasses import dataclass

from gateway.errors import Unavailable

SESSION_SECONDS = 12 * 3600.0
LINK_SECONDS = 60.0
MAX_REVOKED = 10_000  # of a purpose; then no more are issued
MAX_REVOKED_IN_ALL = 2 * MAX_REVOKED  # so that who has a ticket may still give it up
MAX_TICKET_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Ticket:
    """nonce: random. name: whom it stands for. expires_at: Unix time. purpose: its only use."""

    nonce: str
    name: str
    expires_at: float
    purpose: str


class TicketOffice:
    """Issues and checks tickets. secret: the server's. clock: Unix time."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._secret, self._clock = secret, clock
        # by purpose: nonce to when the ticket ends
        self._revoked: dict[str, dict[str, float]] = {}

    def issue(self, purpose: str, name: str, seconds: float) -> str:
        """Return a new ticket as text. Raises Unavailable.

        purpose: it is good for nothing else.
        """
        self._list_revoked(purpose, MAX_REVOKED)
        content = json.dumps([secrets.token_urlsafe(16), name, self._clock() + seconds])
        body = urlsafe_b64encode(content.encode()).decode()
        return f"{body}.{self._mark(purpose, body)}"

    def check(self, purpose: str, text: str) -> Ticket | None:
        """Return the ticket; None if it is not ours, has ended or was given up."""
        body, _, mark = text.partition(".")
        if len(text) > MAX_TICKET_CHARACTERS or not text.isascii():
            return None
        if not hmac.compare_digest(mark, self._mark(purpose, body)):
            return None
        try:
            nonce, name, expires_at = json.loads(urlsafe_b64decode(body))
        except (ValueError, TypeError, Error):
            return None
        ticket = Ticket(nonce, name, expires_at, purpose)
        return ticket if self.is_valid(ticket) else None

    def is_valid(self, ticket: Ticket) -> bool:
        """Tell whether a ticket of ours still holds."""
        revoked = self._revoked.get(ticket.purpose, {})
        return ticket.expires_at > self._clock() and ticket.nonce not in revoked

    def revoke(self, ticket: Ticket) -> None:
        """Refuse a ticket from now on. Raises Unavailable."""
        revoked = self._list_revoked(ticket.purpose, MAX_REVOKED_IN_ALL)
        revoked[ticket.nonce] = ticket.expires_at

    def _list_revoked(self, purpose: str, limit: int) -> dict[str, float]:
        """Return the tickets of a purpose that were given up and have not ended yet.

        Raises Unavailable if they are as many as the limit.
        """
        revoked, now = self._revoked.setdefault(purpose, {}), self._clock()
        for nonce in [n for n, ends in revoked.items() if ends <= now]:
            del revoked[nonce]
        if len(revoked) >= limit:
            raise Unavailable(
                f"{len(revoked):,} sign-ins were ended lately, and at most {limit:,} are kept. "
                "Try again later, or restart the gateway.",
                headers=[(b"retry-after", b"60")],
            )
        return revoked

    def csrf_token(self, ticket: Ticket) -> str:
        """Return what a form of this session must send back."""
        return self._mark("csrf", ticket.nonce)

    def _mark(self, purpose: str, body: str) -> str:
        return hmac.digest(self._secret, f"ticket\x00{purpose}\x00{body}".encode(), "sha256").hex()

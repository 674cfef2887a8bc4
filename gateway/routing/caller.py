"""On whose behalf an upstream is called: the headers, the credential, the account."""

from __future__ import annotations

import msgspec

from gateway.auth.authenticator import LOCAL
from gateway.routing.failures import LOGGED
from gateway.routing.router import Target
from gateway.wire.headers import Pairs

# Bytes of the shortest key that is looked for: what is set for a server that takes any key ("x",
# "none", "EMPTY") is a word that texts may hold.
SHORTEST_SECRET = 8


class Caller(msgspec.Struct, frozen=True):
    """Whom the calls of one client request are made for.

    headers: the client's that may go upstream. authorization: its own, in own-key mode. managed:
    provider keys are ours, so an upstream's 401 is about us. account: whose quota it is, where it
    is not ours.
    """

    headers: Pairs = []
    authorization: bytes | None = None
    managed: bool = True
    account: str = ""

    @property
    def among_many(self) -> bool:
        """Whether the account is one of many that anybody may bring."""
        return self.account not in ("", LOCAL)

    def credential(self, target: Target) -> bytes | None:
        """Return what goes to a target as Authorization.

        That is the key of ours, and the client's own only where there are no keys of ours at all.
        """
        key = target.settings.api_key
        if key is not None and key.get_secret_value():
            return b"Bearer " + key.get_secret_value().encode()
        return None if self.managed else self.authorization

    def loggable(self, data: bytes) -> str:
        """Return the beginning of an upstream's text on one line, for the log.

        The key that the client itself brought is not in it.
        """
        key = (self.authorization or b"").rpartition(b" ")[2]
        data = data.replace(key, b"[key]") if key else data
        return " ".join(data[: 4 * LOGGED].decode("utf-8", "replace").split())[:LOGGED]


def redact_key(data: bytes, target: Target | None) -> bytes:
    """Take the key that a target was called with out of its text."""
    key = target.settings.api_key if target else None
    secret = key.get_secret_value().encode() if key is not None else b""
    return data.replace(secret, b"[key]") if len(secret) >= SHORTEST_SECRET else data

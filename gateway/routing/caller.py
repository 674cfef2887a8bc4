"""On whose behalf an upstream is called: headers, credential, account."""

from __future__ import annotations

import msgspec

from gateway.auth.authenticator import LOCAL
from gateway.routing.failures import LOGGED
from gateway.routing.router import Target
from gateway.wire.headers import Pairs


class Caller(msgspec.Struct, frozen=True):
    """Whom the upstream calls of one client request are made for.

    headers: the client's that may go upstream. authorization: the client's own, in own-key mode.
    managed: the gateway owns the provider keys, so an upstream's 401 concerns the gateway. account:
    whose quota is used, if it is not the gateway's. tenant: whose memory it is. shares: several
    tenants share the places of a provider.
    """

    headers: Pairs = []
    authorization: bytes | None = None
    managed: bool = True
    account: str = ""
    tenant: str = ""
    shares: bool = False

    @property
    def among_many(self) -> bool:
        """Whether anybody may bring such an account (own-key mode for several users)."""
        return self.account not in ("", LOCAL)

    def credential(self, target: Target) -> bytes | None:
        """Return the Authorization header for a target.

        The provider's configured key, or the client's own if the gateway has no keys at all.
        """
        key = target.settings.api_key
        if key is not None and key.get_secret_value():
            return b"Bearer " + key.get_secret_value().encode()
        if self.managed:
            return None
        return self.authorization

    def loggable(self, data: bytes) -> str:
        """Return the beginning of an upstream's text on one line, for the log.

        The client's own key is redacted.
        """
        key = (self.authorization or b"").rpartition(b" ")[2]
        if key:
            data = data.replace(key, b"[key]")
        return " ".join(data[: 4 * LOGGED].decode("utf-8", "replace").split())[:LOGGED]

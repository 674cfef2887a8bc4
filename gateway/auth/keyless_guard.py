"""Keep strangers out where no key does: this machine's own programs and pages are answered.

Wherever a request needs no key of this gateway, whoever reaches the port is its owner. So the peer,
the host that it names, the page that it comes from and every sign of a proxy are looked at. A proxy
that shows none of these is known by its user: it cannot connect as another one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Protocol

from gateway.auth.peer_user import GONE
from gateway.config.settings import Settings
from gateway.errors import Forbidden
from gateway.http.asgi import CONNECTION

# Headers that proxies, tunnels and meshes add, but no client itself. A request with one of them, or
# over HTTP/1.0, which bare reverse proxies speak, may come from anybody.
FROM_ELSEWHERE = frozenset(
    {
        b"forwarded",
        b"via",
        b"client-ip",
        b"remote-addr",
        b"true-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-real-ip",
        b"x-remote-ip",
        b"x-remote-addr",
        b"x-scheme",
        b"x-url-scheme",
        b"x-host",
        b"cdn-loop",
        b"cf-connecting-ip",
        b"cf-connecting-ipv6",
        b"cf-ipcountry",
        b"cf-ray",
        b"cf-visitor",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"x-appengine-user-ip",
        b"x-azure-clientip",
        b"x-azure-socketip",
        b"x-envoy-external-address",
        b"x-nf-client-connection-ip",
        b"x-vercel-ip-country",
    }
)
FROM_ELSEWHERE_BEGINS = re.compile(
    rb"^(?:x-forwarded|x-original-|cf-access-|tailscale-|x-goog-iap-|x-vercel-forwarded"
    rb"|ngrok-auth-)",
    re.MULTILINE,
)
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
# The first two tell nothing of a memory, and whoever watches a service may be another user. The
# third asks for a key itself.
WATCHED_PATHS = ("/health", "/ready", "/metrics")
# A page of another port is of the same site.
OTHER_PAGES = (b"cross-site", b"same-site")
Headers = Mapping[bytes, bytes]


class LocalConnection(Protocol):
    """A client's connection that tells who opened it; see `gateway.server.http_protocol`."""

    def find_peer_user(self) -> int | None: ...


class KeylessGuard:
    """Refuses what may come from another machine, site or user."""

    def __init__(self, settings: Settings) -> None:
        if settings.single_user:
            self._mode = "runs in single-user mode"
        else:
            self._mode = "serves without keys"
        self._hosts = LOCAL_HOSTS | {host.lower() for host in settings.server.hosts}
        self._checks_user = settings.is_keyless and not settings.server.answers_any_peer

    def check(self, scope: Any, headers: Headers, *, is_listed: bool) -> None:
        """Check a request. is_listed: its origin is in `server.cors_origins`. Raises Forbidden."""
        if not is_local_peer(scope):
            raise Forbidden(
                f"Mnemogate {self._mode} and serves this machine only. Configure managed keys to "
                "serve others."
            )
        host = headers.get(b"host", b"").decode("latin-1")
        if _name_of(host) not in self._hosts:
            raise Forbidden(
                f"Mnemogate {self._mode} and answers to 127.0.0.1 and localhost, not to "
                f"{host[:80]!r}. If that is this machine, list it in server.hosts."
            )
        if not is_listed:
            self._check_page(headers, host)
        if sign := sign_of_a_proxy(scope, headers):
            raise Forbidden(
                f"Mnemogate {self._mode} and refuses {sign}: behind a proxy or tunnel all "
                "visitors would count as one person. Configure managed keys."
            )
        if self._checks_user and scope["path"] not in WATCHED_PATHS:
            self._check_user(scope)

    def _check_page(self, headers: Headers, host: str) -> None:
        origin = headers.get(b"origin", b"").decode("latin-1").rstrip("/")
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            raise Forbidden(f"The origin {origin[:80]!r} is not listed in server.cors_origins.")
        if headers.get(b"sec-fetch-site", b"").strip().lower() in OTHER_PAGES:
            raise Forbidden(
                f"Mnemogate {self._mode} and refuses requests from pages of other sites and "
                "ports. If the page is yours, list its origin in server.cors_origins."
            )

    def _check_user(self, scope: Any) -> None:
        if sign := sign_of_another_user(scope):
            raise Forbidden(
                f"Mnemogate {self._mode} and answers programs of its own user only, but {sign}: "
                "behind a proxy all visitors would count as one person. Run both as one user, or "
                "configure managed keys. If all users of this machine may read this memory, set "
                'server.peers = "any".'
            )


def is_local_peer(scope: Any) -> bool:
    """Tell whether a request came over loopback."""
    peer = (scope.get("client") or ("127.0.0.1", 0))[0]
    return peer in LOCAL_HOSTS or peer.startswith(("127.", "::ffff:127."))


def is_local_host(headers: Headers) -> bool:
    """Tell whether a request names this machine as its host."""
    return _name_of(headers.get(b"host", b"").decode("latin-1")) in LOCAL_HOSTS


def _name_of(host: str) -> str:
    """Return the name in a Host header, without the port."""
    if not host.endswith("]") and ":" in host:
        name = host.rsplit(":", 1)[0]
    else:
        name = host
    return name.lower()


def sign_of_a_proxy(scope: Any, headers: Headers) -> str:
    """Name what shows that a request came through a proxy; empty where nothing does."""
    if not FROM_ELSEWHERE.isdisjoint(headers) or FROM_ELSEWHERE_BEGINS.search(b"\n".join(headers)):
        name = next(n for n in headers if n in FROM_ELSEWHERE or FROM_ELSEWHERE_BEGINS.match(n))
        return f"the header {name.decode('latin-1')[:80]!r}"
    if scope.get("http_version") == "1.0" and scope["path"] != "/health":
        return "HTTP/1.0, which bare reverse proxies speak"
    return ""


def sign_of_another_user(scope: Any) -> str:
    """Say whose the connection is, if not our own user's; empty where this is unknown."""
    connection: LocalConnection | None = scope.get(CONNECTION)
    if connection is None or not hasattr(os, "geteuid"):
        return ""
    user = connection.find_peer_user()
    own_user = os.geteuid()
    if user is None or user == own_user:
        return ""
    if user == GONE:
        return "whoever opened this connection has closed it"
    return f"this connection is of user {user}, not of {own_user}"

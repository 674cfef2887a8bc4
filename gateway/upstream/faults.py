"""What a connection's failure is called: the client is told its kind, and the cause keeps reason and address for the log."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from gateway.errors import UpstreamTimeout, UpstreamUnreachable

UNTRUSTED = (
    "No secure connection to the upstream: its certificate is not trusted here. "
    "The gateway's log has the reason; an authority of your own goes into the provider's ca_file."
)
INSECURE = "No secure connection to the upstream: the TLS handshake failed. The gateway's log has the reason."


def causes(error: BaseException) -> Iterator[BaseException]:
    """Give an exception and what it came from, the newest first."""
    found: BaseException | None = error
    for _ in range(8):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__


def unreachable(error: BaseException) -> UpstreamUnreachable:
    """Name the failure of a connection without its address."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return UpstreamUnreachable(UNTRUSTED)
        if isinstance(cause, ssl.SSLError):
            return UpstreamUnreachable(INSECURE)
    return garbage(type(error).__name__)


def garbage(what: str) -> UpstreamUnreachable:
    """Name an answer that never came, or was none."""
    return UpstreamUnreachable(f"The upstream could not be reached or answered garbage ({what}). Try again.")


def too_slow() -> UpstreamTimeout:
    """Name a connection that did not open in time."""
    return UpstreamTimeout("The upstream could not be reached in time. Try again.", code="connect_timeout")

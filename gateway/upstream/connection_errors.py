"""Turn connection failures into errors.

The client is told the kind of failure; the cause keeps reason and address for the log.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator

from gateway.errors import UpstreamTimeout, UpstreamUnreachable

UNTRUSTED = (
    "No secure connection to the upstream: its certificate is not trusted here. "
    "The gateway's log has the reason; for a private certificate authority set the provider's "
    "ca_file."
)
INSECURE = (
    "No secure connection to the upstream: the TLS handshake failed. The gateway's log has the "
    "reason."
)

REFUSED = " refused the connection"
UNKNOWN = "'s host name could not be resolved"
NO_HTTP = " sent something that is not HTTP"
CLOSED = " closed the connection before it answered"
DISCONNECTED = re.compile(r"Server disconnected|<ConnectionTerminated")
NEXT = "Check that it runs, and its base_url; `mnemogate doctor` tests it."


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, the newest first."""
    link: BaseException | None = error
    for _ in range(8):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def unreachable(error: BaseException) -> UpstreamUnreachable:
    """Return the error for a failed connection, without its address."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return UpstreamUnreachable(UNTRUSTED)
        if isinstance(cause, ssl.SSLError):
            return UpstreamUnreachable(INSECURE)
    return unreachable_message(
        next(filter(None, map(_kind, causes(error))), " could not be reached")
    )


def no_answer_error(silent: bool) -> UpstreamUnreachable:
    """Return the error for a connection that ended before a response.

    silent: not a byte arrived.
    """
    return unreachable_message(CLOSED if silent else NO_HTTP)


def unreachable_message(event_text: str) -> UpstreamUnreachable:
    """Return an error that says what the upstream did and the next step."""
    return UpstreamUnreachable(f"The upstream{event_text}. {NEXT}")


def _kind(cause: BaseException) -> str:
    """Describe a cause in plain words; "" if it says nothing.

    httpx keeps some causes only in the text of its exceptions.
    """
    text = str(cause)
    if isinstance(cause, ConnectionRefusedError) or "Connection refused" in text:
        return REFUSED
    if isinstance(cause, socket.gaierror | UnicodeError):
        return UNKNOWN
    if isinstance(cause, ConnectionResetError | BrokenPipeError) or DISCONNECTED.match(text):
        return CLOSED
    kind = type(cause).__name__
    if kind in ("ReadError", "WriteError"):
        return CLOSED
    if kind == "RemoteProtocolError":
        return NO_HTTP
    return ""


def too_slow() -> UpstreamTimeout:
    """Return the error for a connection that did not open in time."""
    return UpstreamTimeout(
        "The upstream could not be reached in time. Try again.", code="connect_timeout"
    )


def absent(error: BaseException) -> bool:
    """Tell whether nothing listens: connection refused, or an unknown host name."""
    return any(_kind(cause) in (REFUSED, UNKNOWN) for cause in causes(error))

"""What the address of an upstream tells by itself, before anybody is asked. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from gateway.errors import redact_url

WHOLE = re.compile(r"https?://[^/?#]", re.IGNORECASE)
SCHEME = re.compile(r"\A(?:\w+://|https?:/*|/+)", re.IGNORECASE)  # or what was meant for one
VERSIONED = re.compile(r"/v\d[^/]*(/|\Z)")  # of an API: /v1, /v4, /v1beta
NEARBY = (".local", ".localhost", ".internal", ".lan", ".home.arpa")


def nearby(host: str) -> bool:
    """Tell whether a server is one's own by its name or number: of this machine or of a private
    network.
    """
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(NEARBY)


def complete_url(url: Any) -> Any:
    """Return the address, which has its scheme.

    What is no text is judged elsewhere. Raises ValueError that gives the corrected one.
    """
    if not isinstance(url, str):
        return url
    if WHOLE.match(url):
        urlsplit(url)  # raises for brackets that hold no number
        return url
    url = getattr(url, "raw", url)  # as it was written: what a variable held may be a key
    rest = SCHEME.sub("", url)
    try:
        host = urlsplit(f"//{rest}").hostname or ""
    except ValueError:
        host = ""
    better = f"{'http' if nearby(host) else 'https'}://{rest or 'host'}"
    raise ValueError(
        f"this is an address with its scheme, http or https: give {redact_url(better)}"
    )


def has_version(url: str) -> bool:
    """Tell whether its path names a version of an API, as that of most OpenAI-compatible servers
    does.
    """
    return VERSIONED.search(urlsplit(url).path) is not None


def kind_by_address(url: Any) -> str:
    """Return the kind of provider that is known to be at an address, else the usual one."""
    try:
        host = urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        host = None
    return "anthropic" if host == "api.anthropic.com" else "openai"

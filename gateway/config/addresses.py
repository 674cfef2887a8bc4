"""Checks of an upstream's address that need no network. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from gateway.errors import redact_url

WHOLE = re.compile(r"https?://[^/?#]", re.IGNORECASE)
# Or a misspelt one.
SCHEME = re.compile(r"\A(?:\w+://|https?:/*|/+)", re.IGNORECASE)
# /v1, /v4, /v1beta.
VERSIONED = re.compile(r"/v\d[^/]*(/|\Z)")
NEARBY = (".local", ".localhost", ".internal", ".lan", ".home.arpa")


def nearby(host: str) -> bool:
    """Tell whether a host belongs to this machine or a private network."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(NEARBY)


def complete_url(url: Any) -> Any:
    """Return the URL if it has a scheme, http or https.

    A value that is not a string is left to the type check. Raises ValueError, which gives the
    corrected URL.
    """
    if not isinstance(url, str):
        return url
    if WHOLE.match(url):
        # Raises for malformed brackets.
        urlsplit(url)
        return url
    # As written: the value of a variable may be a key.
    url = getattr(url, "raw", url)
    address = SCHEME.sub("", url)
    try:
        host = urlsplit(f"//{address}").hostname or ""
    except ValueError:
        host = ""
    suggestion = f"{'http' if nearby(host) else 'https'}://{address or 'host'}"
    raise ValueError(f"the URL needs a scheme, http or https: write {redact_url(suggestion)}")


def has_version(url: str) -> bool:
    """Tell whether the path of a URL names an API version, such as `/v1`.

    The base URL of most OpenAI-compatible servers does.
    """
    return VERSIONED.search(urlsplit(url).path) is not None


def kind_by_address(url: Any) -> str:
    """Return the kind of provider that is known to be at an address, else the usual one."""
    try:
        host = None
        if isinstance(url, str):
            host = urlsplit(url).hostname
    except ValueError:
        host = None
    if host == "api.anthropic.com":
        return "anthropic"
    return "openai"

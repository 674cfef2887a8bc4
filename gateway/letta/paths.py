"""Which requests are those of a Letta client. Pure."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "/letta"
BASE = f"{PREFIX}/v1/"
USER_AGENTS = (b"Letta/", b"AsyncLetta/")
# First segments below `/v1` that only such a client means.
FAMILIES = frozenset(
    {
        "agents",
        "archives",
        "blocks",
        "conversations",
        "folders",
        "groups",
        "health",
        "identities",
        "mcp-servers",
        "passages",
        "runs",
        "steps",
        "tags",
        "templates",
        "tools",
    }
)
# Whole paths that others have as well.
SHARED = frozenset({"models", "models/embedding", "messages", "messages/search"})


def letta_path(path: str, headers: Mapping[bytes, bytes]) -> str | None:
    """Return the path of a Letta client's request below `/letta/v1/`; None for another request."""
    if path.startswith(BASE):
        return path
    if not path.startswith("/v1/"):
        return None
    if not headers.get(b"user-agent", b"").startswith(USER_AGENTS):
        return None
    below = path[len("/v1/") :].strip("/")
    if below in SHARED or below.partition("/")[0] in FAMILIES:
        return PREFIX + path
    return None

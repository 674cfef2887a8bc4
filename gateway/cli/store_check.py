"""Checks of `mnemogate doctor` on Redis, Chroma, and the names in the database."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from gateway.cli.finding import Finding
from gateway.cli.tenants import owner_like_users

if TYPE_CHECKING:
    from gateway.config.settings import Settings

WAIT_SECONDS = 3.0
CHROMA_PORT = 8000


def check_stores(settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each store that the settings name, and for odd names of users."""
    yield from _check_owner_names(settings)
    if settings.storage.redis:
        yield asyncio.run(_check_redis(settings.storage.redis))
    if settings.memory.embedder != "none" and settings.storage.vectors != "none":
        yield _check_chroma(settings.storage.vectors.removeprefix("chroma:"))


async def _check_redis(url: str) -> Finding:
    from gateway.config.settings import ConfigError
    from gateway.redis_client import RedisClient

    try:
        client = RedisClient(url, WAIT_SECONDS)
    except ConfigError as e:
        return Finding("redis", "failed", str(e))
    try:
        if await client.answers():
            return Finding("redis", "ok", f"{client.location} answers")
    finally:
        await client.close()
    return Finding(
        "redis",
        "note",
        f"{client.location} does not answer, or takes no writes: each process counts limits and "
        "cooldowns for itself; start it, or correct storage.redis",
    )


def _check_chroma(where: str) -> Finding:
    """Check the index of vectors. where: `embedded`, or the URL of a server."""
    if find_spec("chromadb") is None:
        return Finding(
            "vectors",
            "note",
            "chromadb is missing: large memories are searched by words; run pip install "
            "'.[chroma]' in the folder of Mnemogate's source",
        )
    if where == "embedded":
        return Finding("vectors", "ok", "Chroma, embedded")
    url = urlsplit(where)
    try:
        address = url.hostname or "", url.port or CHROMA_PORT
        socket.create_connection(address, WAIT_SECONDS).close()
    except OSError as e:
        step = "start it (`chroma run`), or correct storage.vectors"
        message = f"{where} does not answer: {e}: large memories are searched by words; {step}"
        return Finding("vectors", "note", message)
    return Finding("vectors", "ok", f"Chroma at {where} answers")


def _check_owner_names(settings: Settings) -> Iterator[Finding]:
    """Yield a finding for users whose names look like those of agents, teams or projects."""
    names = owner_like_users(settings)
    if names:
        yield Finding(
            "users",
            "note",
            f"{', '.join(names)}: these users are named like another kind of owner; the management "
            f"API reaches them with user: before the name, as /users/user%3A{quote(names[0], '')}",
        )

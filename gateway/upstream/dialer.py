"""Connect to a host with several addresses (Happy Eyeballs, RFC 8305).

The next address is tried when one fails or after a quarter second. uvloop, which serves in
production, only tries one after the other, so a dead IPv6 route would use up the connect timeout.
"""

from __future__ import annotations

import asyncio
import socket
from itertools import chain, zip_longest

# Seconds.
DELAY = 0.25
Address = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


async def dial(host: str, port: int) -> socket.socket:
    """Return a connected socket with TCP_NODELAY.

    Raises OSError, and UnicodeError for an invalid host name.
    """
    loop = asyncio.get_running_loop()
    addresses = await _addresses(host, port)
    tries: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError("no address")
    try:
        while addresses or tries:
            if addresses:
                tries.add(loop.create_task(_connect(addresses.pop(0))))
            ended_tasks, _ = await asyncio.wait(
                tries, timeout=DELAY if addresses else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended_tasks:
                tries.discard(task)
                if (error := task.exception()) is None:
                    tries |= ended_tasks - {task}
                    return task.result()
                failure = error
        raise failure
    finally:
        for task in tries:
            task.add_done_callback(_close_unneeded)
            task.cancel()


async def _addresses(host: str, port: int) -> list[Address]:
    """Return the host's addresses, alternating between IPv6 and IPv4."""
    try:
        # Needs no thread.
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
    first_family = [a for a in addresses if a[0] == addresses[0][0]]
    second_family = [a for a in addresses if a[0] != addresses[0][0]]
    return [
        a for a in chain.from_iterable(zip_longest(first_family, second_family)) if a is not None
    ]


async def _connect(address: Address) -> socket.socket:
    family, kind, proto, _, where = address
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_unneeded(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()

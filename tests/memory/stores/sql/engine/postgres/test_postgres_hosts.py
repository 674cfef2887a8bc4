"""A database of several hosts: whichever can be used is found, whatever the others do."""

from __future__ import annotations

import asyncio
import socket

import pytest

from memory.stores.sql.engine.postgres.postgres_hosts import connect
from tests.postgres_server import PASSWORD


async def _hang_up(reader, writer):
    writer.close()


async def test_a_host_that_hangs_up_or_says_nothing_is_passed_over(postgres_url):
    database, port = postgres_url.rsplit("/", 1)[1], postgres_url.rsplit("/", 1)[0].rsplit(":")[-1]
    hanging = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
    # Connections wait to be accepted.
    silent = socket.create_server(("127.0.0.1", 0))
    ports = [hanging.sockets[0].getsockname()[1], silent.getsockname()[1]]
    told = {"user": "mnemogate", "password": PASSWORD, "database": database, "ssl": "disable"}
    told |= {"target_session_attrs": "read-write"}
    raw = await connect(host=["127.0.0.1"] * 3, port=[*ports, int(port)], **told)
    assert await raw.fetchval("SELECT 1") == 1
    await raw.close()
    with pytest.raises(OSError, match=r"127\.0\.0\.1: "):
        await connect(host=["127.0.0.1"] * 2, port=ports, **told)
    told["target_session_attrs"] = "standby"
    with pytest.raises(OSError, match="not standby"):
        await connect(host=["127.0.0.1"], port=[int(port)], **told)
    hanging.close()
    silent.close()

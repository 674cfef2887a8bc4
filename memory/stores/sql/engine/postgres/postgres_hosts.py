"""Connects to a Postgres of one or several hosts.

The driver stops at the first host that is neither up nor down, such as one that is starting, or
whose proxy hangs up. Here each host gets a second, and then the next one is tried.
"""

from __future__ import annotations

from typing import Any

import asyncpg

# For each of several hosts: less than a lease waits, whichever is the primary.
HOST_SECONDS = 1.0


async def connect(**arguments: Any) -> asyncpg.Connection:
    """Connect to the first host that can be used.

    arguments: of the driver, as `driver_arguments` gives them. Raises what the driver raises for
    one host, and OSError if none of several can be used.
    """
    hosts = arguments.pop("host", None)
    if not isinstance(hosts, list):
        return await asyncpg.connect(host=hosts, **arguments)
    ports = arguments.pop("port", None)
    arguments["timeout"] = HOST_SECONDS
    failures = []
    for index, host in enumerate(hosts):
        port = ports[index] if isinstance(ports, list) else ports
        try:
            return await asyncpg.connect(host=host, port=port, **arguments)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as e:
            failures.append(f"{host}: {type(e).__name__}")
        except asyncpg.TargetServerAttributeNotMatched:
            failures.append(f"{host}: not {arguments['target_session_attrs']}")
    raise ConnectionError(f"no host of the database can be used: {', '.join(failures)}")

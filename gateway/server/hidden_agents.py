"""Tells the log which configured agents a tenant's own hide."""

from __future__ import annotations

import logging

from gateway.state import GatewayState
from memory import StoreUnavailable, management

log = logging.getLogger("mnemogate")


async def tell_of_hidden_agents(gateway: GatewayState) -> None:
    """Warn of each tenant that has an agent of a configured name, which is used in its place."""
    names = list(gateway.settings.agents)
    if not names:
        return
    try:
        tenants = await management.agents.list_tenants(gateway.memory, names)
    except StoreUnavailable:
        return
    for tenant, name in tenants:
        log.warning(
            "the tenant %r has an agent %r of its own: [agents.%s] is not used for it",
            tenant,
            name,
            name,
        )

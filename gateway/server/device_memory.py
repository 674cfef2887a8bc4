"""One laptop, one memory: what Claude Code kept under a device's name becomes the person's."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gateway.auth.authenticator import LOCAL
from memory import MemoryFault, OwnerRename

if TYPE_CHECKING:
    from gateway.state import GatewayState

log = logging.getLogger("mnemogate")
PERSON = "me"


async def add_device_memories(gateway: GatewayState) -> None:
    """Add the memories of devices to the one person's, where there is one; tell each once.

    One that cannot be added now stays, and is tried at the next start.
    """
    settings = gateway.settings
    if not (settings.is_keyless and settings.single_user):
        return
    from memory.management.device_users import find_device_users
    from memory.management.merged_copies import remove_copies

    await asyncio.to_thread(remove_copies, settings.data)
    try:
        names = await find_device_users(gateway.memory, LOCAL)
    except MemoryFault as e:
        log.warning("could not look for the memories of devices: %s", e)
        return
    for name in names:
        await _add(gateway, name)


async def _add(gateway: GatewayState, name: str) -> None:
    from memory.management.device_users import merge_device_user
    from memory.management.merging import Merge

    owners = OwnerRename(gateway.secret, (LOCAL, name), (LOCAL, PERSON))
    merge = Merge(owners, gateway.memory.policy.blocks, "merge")
    try:
        folder = await merge_device_user(gateway.memory, merge, gateway.settings.data)
    except (MemoryFault, OSError) as e:
        log.warning("the memory of %s could not be added to %r: %s", name, PERSON, e)
        return
    log.warning(
        "the memory of %s, as Claude Code names this machine, is part of %r now. Copies of both "
        "from before are in %s for 30 days; docs/moving.md says how to go back.",
        name,
        PERSON,
        folder,
    )

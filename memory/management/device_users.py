"""The memory of a program that named this machine, not its person, becomes the person's.

Claude Code names a device by 64 hex digits. Where one person has one laptop, what lies under such a
name is added to that person's memory. A copy of both is written first, so that it can be undone.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from memory.errors import NotFound
from memory.management.merged_copies import make_folder, write_copy
from memory.management.merging import Merge, merge_live_users
from memory.management.renaming import rename_live_user
from memory.service import Memory
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.scopes import UserName, VisibleScopes
from memory.stores.sql.transfer import exporter

# Of `metadata.user_id`, in each form that Claude Code has sent, its session left out. A UUID alone
# may be any program's user, and stays.
DEVICE = re.compile(r"[0-9a-f]{64}|user_[0-9a-f]{64}(?:_account_[0-9a-f-]*)?")
# Users that are read at a time.
LISTED = 500


async def find_device_users(memory: Memory, tenant: str) -> list[str]:
    """Return the users of a tenant that are named as a device. Raises StoreUnavailable."""
    names: list[str] = []
    last_name: UserName | None = None
    reach = VisibleScopes(tenant)
    while True:
        page = await memory.db.read(
            partial(scopes.users, reach=reach, after=last_name, limit=LISTED)
        )
        names += [user["id"] for user in page if DEVICE.fullmatch(user["id"])]
        if len(page) < LISTED:
            return names
        last_name = (page[-1]["tenant"], page[-1]["id"])


async def merge_device_user(memory: Memory, merge: Merge, data: Path) -> Path:
    """Add a device's memory to its person's; return the folder of the copies made before.

    data: the data folder. Raises what `merge_live_users` and `rename_live_user` raise, OSError.
    """
    owners = merge.owners
    folder = make_folder(data, owners.source[1])
    for name, owner in (("device", owners.source), ("person", owners.target)):
        await write_copy(folder / f"{name}.ndjson", exporter.export(memory.db, *owner))
    try:
        await merge_live_users(memory, merge)
    except NotFound:
        await rename_live_user(memory, owners)
    return folder

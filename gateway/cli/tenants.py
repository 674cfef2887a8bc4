"""Whose memory a database holds, before it is opened: which tenants', and which secret's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config.settings import Settings

OWN = "own-"
MODES = {"local": "single-user mode's", "open": "open mode's"}
MAX_TENANTS_SHOWN = 3
# What the management API takes for another kind of owner, at the beginning of a name.
OWNER_KINDS = ("agent:", "team:", "project:", "user:")
MAX_NAMED = 20


def reachable(settings: Settings) -> set[str] | None:
    """Return the tenants that requests have here; None if each key is its own tenant."""
    from gateway.storage.key_probe import tenants_of_keys

    if settings.mode == "managed":
        return {key.tenant for key in settings.keys} | tenants_of_keys(settings.database)
    if settings.single_user:
        return {"local"}
    if settings.mode == "open":
        return {"open"}
    return None


def holders(settings: Settings, user: str) -> list[str]:
    """Return the tenants that have a user of this name."""
    from memory.stores.sql.rows.scope_probe import tenants_of

    return tenants_of(settings.database, user)


def why_not_shared(settings: Settings, secret: bytes) -> str:
    """Return why a worker with this secret cannot serve the database; empty if it can."""
    from memory.stores.sql.rows import scope_probe

    return scope_probe.why_not_shared(settings.database, secret)


def unseen(settings: Settings) -> list[str]:
    """Return a line for each tenant whose memory no request reaches in this configuration."""
    from memory.stores.sql.rows.scope_probe import tenants_with_memory

    reachable_tenants = reachable(settings)
    user_counts = tenants_with_memory(settings.database)
    hidden_tenants = {
        tenant: users
        for tenant, users in user_counts.items()
        if (
            not tenant.startswith(OWN)
            if reachable_tenants is None
            else tenant not in reachable_tenants
        )
    }
    to = "TENANT"
    if reachable_tenants and len(reachable_tenants) == 1:
        to = next(iter(reachable_tenants))
    out = [
        _describe(tenant, *users, to)
        for tenant, users in list(hidden_tenants.items())[:MAX_TENANTS_SHOWN]
    ]
    if len(hidden_tenants) > MAX_TENANTS_SHOWN:
        out.append(f"so does that of {len(hidden_tenants) - MAX_TENANTS_SHOWN} more tenants")
    return out


def _describe(tenant: str, count: int, user: str, to: str) -> str:
    mode_text = (
        f", {MODES[tenant]}"
        if tenant in MODES
        else ", an own key's"
        if tenant.startswith(OWN)
        else ""
    )
    if count > 1:
        owner_text = f"the memory of {count} users"
    else:
        owner_text = f"the memory of {user!r}"
    if user.isidentifier():
        source, target = (user, user)
    else:
        source, target = ("FROM", "TO")
    return (
        f"{owner_text} lies here under the tenant {tenant!r}{mode_text}, and no request reaches it "
        f"in this mode: `mnemogate users move {source} {target} "
        f"--from-tenant {tenant} --to-tenant {to}` moves a user's"
    )


def owner_like_users(settings: Settings) -> list[str]:
    """Return names of users that look like those of agents, teams or projects; some of them."""
    from memory.stores.sql.rows.scope_probe import users_beginning

    return users_beginning(settings.database, OWNER_KINDS, MAX_NAMED)

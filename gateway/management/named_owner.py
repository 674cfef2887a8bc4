"""Whose memory a name means in the management API: a user's, or an agent's own."""

from __future__ import annotations

from gateway.auth.authenticator import Principal
from gateway.errors import Forbidden
from memory import AGENT_PREFIX, home_of

# Before the name of a user that looks like another kind of owner.
USER_PREFIX = "user:"
KINDS = (AGENT_PREFIX, "team:", "project:", USER_PREFIX)


def find_owner(principal: Principal, name: str) -> tuple[str, str]:
    """Return the owner of a memory by their name, and the agent if it is an agent's own.

    `agent:NAME` is that of an agent, and `user:agent:NAME` the user of such a name. Raises
    Forbidden.
    """
    owner, home = _read_owner(name)
    # An agent's own memory holds what others told it.
    is_operator = principal.trusted or principal.admin
    if not (is_operator if home else principal.may_name(owner)):
        raise Forbidden(
            f"This key may not reach the user {name[:64]!r}. Use one of its own users, or a "
            "trusted key.",
            param="user",
        )
    return owner, home


def _read_owner(name: str) -> tuple[str, str]:
    if name.startswith(AGENT_PREFIX):
        agent = name[len(AGENT_PREFIX) :]
        return home_of(agent), agent
    if name.startswith(USER_PREFIX) and name[len(USER_PREFIX) :].startswith(KINDS):
        return name[len(USER_PREFIX) :], ""
    return name, ""

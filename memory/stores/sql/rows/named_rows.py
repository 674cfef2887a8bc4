"""Rows that bear a user's name beside their scopes: policy, approvals, inbox."""

from __future__ import annotations

from sqlalchemy import Connection

from memory.stores.sql.rows import agent_inbox, approvals, policies
from memory.stores.sql.rows.scopes import UserName


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give them to another name. The policy is not among them: a merge keeps the target's."""
    approvals.rename(conn, source, target)
    agent_inbox.rename(conn, source, target)


def remove(conn: Connection, user_name: UserName) -> None:
    """Remove those of a user who is erased."""
    policies.remove(conn, user_name)
    approvals.remove(conn, user_name)
    agent_inbox.remove(conn, user_name)

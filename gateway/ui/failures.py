"""Requests that failed, for the pages that show what happens: from the records of usage."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from gateway.errors import GatewayError
from gateway.storage import usage as table
from gateway.storage.usage import UsageFilter
from gateway.ui.visitor import Visitor

MOST_REQUESTS = 30
REFUSED = (401, 403)
MISSING = (404, 405)
TOO_MANY = 429
DOCTOR = "`mnemogate doctor` tries each upstream and says what is wrong."


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request that ended with an error. target: the provider and the model's name there."""

    request_id: str
    tenant: str
    user: str | None
    key: str
    model: str
    target: str
    status: int
    code: str
    ended_at: float

    @property
    def what(self) -> str:
        """What happened, in words."""
        code = f" ({self.code})" if self.code else ""
        where = f" at {self.target}" if self.target else ""
        return f"{self.status}{code}{where}"

    @property
    def advice(self) -> str:
        """What to do about it."""
        if self.status in REFUSED or self.code == "upstream_auth_error":
            return (
                "The key was refused. Check the key that the client sends, or the provider's "
                f"api_key. {DOCTOR}"
            )
        if self.status in MISSING:
            return (
                "The upstream knows no such path or model. Check that its base_url ends in /v1, "
                f"and the model's name. {DOCTOR}"
            )
        if self.status == TOO_MANY:
            return "A limit or a budget is reached: of the key, or of the account upstream."
        if self.status >= 500:
            return f"The upstream did not answer, or failed. Is it running? {DOCTOR}"
        return "The answer's own text says what is wrong with the request."


async def list_failed(
    visitor: Visitor, since: float, user: str | None = None
) -> list[FailedRequest]:
    """Return the requests that failed since a Unix time and the visitor may see, newest first.

    Empty while the store is down.
    """
    caller = visitor.caller
    usage_filter = UsageFilter(caller.reach.tenant, user, since=since, failed=True)
    with contextlib.suppress(GatewayError):
        await caller.gateway.usage.flush()
        rows = await caller.read(
            table.read_records(caller.memory.db, usage_filter, None, MOST_REQUESTS)
        )
        return [to_failure(row) for row in rows if may_see(visitor, row)]
    return []


def may_see(visitor: Visitor, row: dict[str, Any]) -> bool:
    """Tell whether the visitor's key may see a request, by its usage record."""
    principal = visitor.caller.principal
    if row["user"] is None:
        return principal.only is None or row["key"] == principal.key
    return principal.may_name(row["user"])


def to_failure(row: dict[str, Any]) -> FailedRequest:
    """Return what a usage record tells of a failed request."""
    return FailedRequest(
        row["request_id"],
        row["tenant"],
        row["user"] or None,
        row["key"],
        row["model"] or "",
        row["target"] or "",
        row["status"],
        row["code"] or "",
        row["created_at"],
    )

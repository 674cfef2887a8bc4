"""A request of the management API that a page makes: its body is what a form says.

So a page does what a route does, by the route's own function: the same rights, limits and errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.errors import BadRequest
from gateway.management.context import ManagementRequest, UserContext
from gateway.ui.visitor import ACTOR, Subject, Visitor


class FormRequest(ManagementRequest):
    """A request on behalf of a visitor.

    members: of its body. expect: the version that the page showed, None for any.
    """

    def __init__(
        self, visitor: Visitor, members: Mapping[str, Any] | None = None, expect: int | None = None
    ) -> None:
        caller = visitor.caller
        super().__init__(caller.request, caller.principal, caller.asked_tenant)
        self.tenant = caller.tenant
        self._members = members or {}
        self._expect = expect

    @property
    def headers(self) -> Mapping[str, str]:
        if self._expect is None:
            return {}
        return {"if-match": f'"{self._expect}"'}

    @property
    def actor(self) -> str:
        return ACTOR

    async def body(self) -> bytes:
        return msgspec.json.encode(self._members)


def in_form(subject: Subject, members: Mapping[str, Any]) -> UserContext:
    """Return the context of a request about the user of a page, with the body of its form."""
    return UserContext(FormRequest(subject.visitor, members), subject.context.scope, ACTOR)


def path_segment(name: str) -> str:
    """Return a name as it stands in the path of a route."""
    return quote(name, safe="", errors="replace")


def version_of(visitor: Visitor) -> int:
    """Return the version that the form shows. Raises BadRequest."""
    text = visitor.field("version")
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise BadRequest("`version` must be a number. Reload the page and try again.")
    return int(text)

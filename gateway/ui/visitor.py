"""The visitor of the dashboard: session, form, and what they may see.

A change needs a session cookie that other sites cannot send, the session's token in the form, and a
request from a page of this gateway.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Annotated, Any
from urllib.parse import parse_qsl

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter
from litestar.response import Redirect, Template

from gateway.auth.sessions import Ticket, TicketOffice
from gateway.config.file_tools import find_file_limits
from gateway.errors import BadRequest, Forbidden, GatewayError, Unauthenticated
from gateway.http.request_body import read_body
from gateway.management.context import (
    EVERY,
    MIB,
    ManagementRequest,
    UserContext,
    open_request,
    open_user,
    with_agents_blocks,
)
from gateway.state import GatewayState
from gateway.ui.uploads import SentForm, is_upload, read_upload

COOKIE = "mnemogate_session"
SESSION = "session"
ACTOR = "dashboard"
FORM_BYTES = 4 << 20
# Option of a route whose form brings a file: `AS_TEXT` or `AS_BYTES`.
TAKES_FILES = "takes_files"
AS_TEXT = "text"
AS_BYTES = "bytes"
# Longer forms are parsed in a thread.
SHORT_FORM_BYTES = 16 << 10
# An agent of 200 blocks has five for each.
MAX_FIELDS = 1200
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
AnyRequest = Request[Any, Any, Any]


class SignInNeeded(GatewayError):
    """There is no session, or it has ended: the visitor is sent to the sign-in page."""

    status = 401
    type = "authentication_error"
    code = "sign_in_needed"


class Visitor:
    """A request of a signed-in visitor. form: the fields of a POST. session: its name."""

    def __init__(self, caller: ManagementRequest, ticket: Ticket, office: TicketOffice) -> None:
        self.caller = caller
        self.gateway = caller.gateway
        self._ticket = ticket
        self._office = office
        self.session = ticket.nonce
        self.csrf = office.csrf_token(ticket)
        self.form = SentForm({})

    async def is_signed_in(self) -> bool:
        """Tell whether the session still lasts; a key may have been revoked meanwhile."""
        try:
            self.gateway.keys.resume(self._ticket.name)
            return await self._office.is_valid(self._ticket)
        except GatewayError:
            return False

    @property
    def is_fragment(self) -> bool:
        """Whether a script requests a part of a page."""
        headers = self.caller.request.headers
        return headers.get("hx-request") == "true" and headers.get("hx-boosted") != "true"

    def page(self, template: str, /, **context: Any) -> Template:
        """Return a page, or a part of one, that knows its visitor."""
        return Template(template, context={**context, "visitor": self})

    def field(self, name: str) -> str:
        """Return a field of the form, line ends as they are stored. Raises BadRequest."""
        if name not in self.form:
            raise BadRequest(f"The form has no field {name!r}. Reload the page and try again.")
        return self.form[name].replace("\r\n", "\n")

    def open_user(self, user: str, agent: str = "") -> UserContext:
        """Return the context of requests on a user's memory. Raises BadRequest, Forbidden."""
        return open_user(self.caller, user, agent or "default", ACTOR)


class Subject:
    """The user whom a page is about. where: parameters of its links."""

    def __init__(self, visitor: Visitor, context: UserContext) -> None:
        self.visitor = visitor
        self.context = context
        self.user = context.user
        self.agent = context.scope.agent
        tenant = visitor.caller.asked_tenant
        self.where = {
            "user": context.user,
            "agent": self.agent if self.agent != "default" else "",
            "tenant": tenant or "",
        }

    def page(self, template: str, /, **context: Any) -> Template:
        """Return a page, or a part of one, about the user."""
        return self.visitor.page(template, **context, subject=self)


AtVisit = NamedDependency[Visitor]
AboutUser = NamedDependency[Subject]
Offices = NamedDependency[TicketOffice]
UserName = Annotated[str, QueryParameter(name="user", description="the user's name")]


def go_to(url: str) -> Redirect:
    """Return a redirect to a page, after a change."""
    return Redirect(url, status_code=303)


async def read_form(request: AnyRequest, limit: int = FORM_BYTES) -> SentForm:
    """Return the fields of a form of limited size. Raises TooLarge, BadRequest."""
    body = await read_body(request.receive, dict(request.scope["headers"]), limit)
    kind = request.headers.get("content-type", "")
    takes = request.route_handler.opt.get(TAKES_FILES)
    if is_upload(kind) and takes:
        keeps_bytes = takes == AS_BYTES
        return await asyncio.to_thread(read_upload, body, kind, MAX_FIELDS, keeps_bytes=keeps_bytes)
    if len(body) <= SHORT_FORM_BYTES:
        return _parse_form(body)
    return await asyncio.to_thread(_parse_form, body)


def _parse_form(body: bytes) -> SentForm:
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError as e:
        raise BadRequest("The form cannot be read: send application/x-www-form-urlencoded.") from e
    return SentForm(dict(pairs))


def check_origin(request: AnyRequest) -> None:
    """Raise Forbidden for a change that comes from a page of another site."""
    headers = request.headers
    origin = headers.get("origin")
    host = headers.get("host", "")
    site = headers.get("sec-fetch-site", "same-origin")
    is_foreign = origin is not None and origin.partition("://")[2] != host
    if is_foreign or site not in ("same-origin", "none"):
        raise Forbidden(
            f"The dashboard at {host[:200]!r} takes changes from its own pages only; this one is "
            f"from {(origin or site)[:200]!r}. Open the dashboard at its own address and try "
            "again. A proxy in front of it must pass on the header Host."
        )


async def open_session(request: AnyRequest, office: TicketOffice) -> Ticket:
    """Return the ticket of a request's session. Raises SignInNeeded, StoreDown."""
    ticket = await office.check(SESSION, request.cookies.get(COOKIE, ""))
    if ticket is None:
        raise SignInNeeded("Sign in first.")
    # An error's page lets them sign out too.
    request.state.csrf = office.csrf_token(ticket)
    return ticket


async def read_change(request: AnyRequest, csrf: str, limit: int = FORM_BYTES) -> SentForm:
    """Return the form of a change. Raises Forbidden, TooLarge, BadRequest.

    csrf: the session's token, which the form has to have. limit: in bytes.
    """
    check_origin(request)
    form = await read_form(request, limit)
    if not hmac.compare_digest(form.get("csrf", "").encode(), csrf.encode()):
        raise Forbidden("The form is not from this session. Reload the page and try again.")
    return form


async def visitor(
    request: AnyRequest, office: Offices, tenant: FromQuery[str | None] = None
) -> Visitor:
    """Return the visitor. Raises SignInNeeded, Forbidden, BadRequest, Unavailable."""
    gateway: GatewayState = request.app.state.gateway
    ticket = await open_session(request, office)
    try:
        principal = gateway.keys.resume(ticket.name)
    except Unauthenticated as e:
        raise SignInNeeded(e.message) from e
    new_visitor = Visitor(await open_request(request, principal, tenant or None), ticket, office)
    if request.method != "GET":
        new_visitor.form = await read_change(
            request, new_visitor.csrf, _form_bytes(new_visitor.caller)
        )
    return new_visitor


def _form_bytes(caller: ManagementRequest) -> int:
    """Return how many bytes a form may have; a file may be as large as by the API."""
    takes = caller.request.route_handler.opt.get(TAKES_FILES)
    settings = caller.gateway.settings
    if takes == AS_BYTES:
        limits = find_file_limits(settings)
        return FORM_BYTES + (int(limits.max_mib * MIB) if limits is not None else 0)
    if takes != AS_TEXT:
        return FORM_BYTES
    mib = settings.server.max_body_mib
    return int((mib if caller.runs_it else min(mib, settings.memory.import_mib)) * MIB)


async def subject(visitor: AtVisit, user: UserName, agent: FromQuery[str] = "") -> Subject:
    """Return the user whom a page is about. Raises BadRequest, Forbidden."""
    if visitor.caller.principal.admin and visitor.caller.asked_tenant == EVERY:
        raise BadRequest("A user belongs to one tenant: name it.", param="tenant")
    return Subject(visitor, await with_agents_blocks(visitor.open_user(user, agent)))

"""Sign in with a key or the local token, by a form or by a link that works once; sign out."""

from __future__ import annotations

from typing import Any

from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.auth.sessions import LINK_SECONDS, SESSION_SECONDS, TicketOffice
from gateway.errors import BadRequest, Unauthenticated
from gateway.http.access_log import current_line
from gateway.state import GatewayState
from gateway.ui.texts import link
from gateway.ui.visitor import (
    COOKIE,
    SESSION,
    SHORT_FORM_BYTES,
    AnyRequest,
    Offices,
    check_origin,
    go_to,
    open_session,
    read_change,
    read_form,
)

ONE_TIME_LINK = "link"
MAX_KEY_CHARACTERS = 4096
USED_LINK = "This link has been used or is older than a minute. Run `mnemogate ui` again."


def _page(request: AnyRequest, after: str, fault: str = "") -> Template:
    gateway: GatewayState = request.app.state.gateway
    settings = gateway.settings
    is_local = settings.is_keyless
    status = 401 if fault else 200
    context = {"after": after, "fault": fault, "local": is_local, "folder": str(settings.data)}
    return Template("sign-in.html", context=context, status_code=status)


@get("/sign-in")
async def sign_in_form(request: AnyRequest, after: FromQuery[str] = "") -> Template:
    return _page(request, _own_path(after))


@post("/sign-in")
async def sign_in(request: AnyRequest, office: Offices) -> Response[Any]:
    check_origin(request)
    form = await read_form(request, SHORT_FORM_BYTES)
    key = form.get("key", "").strip()
    after = _own_path(form.get("after", ""))
    gateway: GatewayState = request.app.state.gateway
    try:
        if not key.isascii() or len(key) > MAX_KEY_CHARACTERS:
            raise Unauthenticated("This is not a key.")
        name = gateway.keys.session_name({b"authorization": b"Bearer " + key.encode()})
    except Unauthenticated as e:
        current_line().note_error(e)
        return _page(request, after, e.message)
    return await _begin(request, office, name, after)


@get("/enter")
async def enter_form(request: AnyRequest, office: Offices, code: FromQuery[str]) -> Template:
    """Show the button of a sign-in link; a GET must not change anything."""
    if await office.check(ONE_TIME_LINK, code) is None:
        return _page(request, "", USED_LINK)
    return Template("enter.html", context={"code": code})


@post("/enter")
async def enter(request: AnyRequest, office: Offices) -> Response[Any]:
    """Sign in by a link that works once, for a minute."""
    check_origin(request)
    form = await read_form(request, SHORT_FORM_BYTES)
    ticket = await office.check(ONE_TIME_LINK, form.get("code", ""))
    if ticket is None or not await office.revoke(ticket):
        return _page(request, "", USED_LINK)
    return await _begin(request, office, ticket.name, link(""))


@post("/links", status_code=200)
async def make_link(request: AnyRequest, office: Offices) -> dict[str, str]:
    """Return the path of a page whose button signs in the first person who presses it.

    The caller sends a key or the local token as for the management API.
    """
    check_origin(request)
    gateway: GatewayState = request.app.state.gateway
    name = gateway.keys.session_name(dict(request.scope["headers"]))
    code = await office.issue(ONE_TIME_LINK, name, LINK_SECONDS)
    return {"path": link("/enter", code=code)}


@post("/sign-out")
async def sign_out(request: AnyRequest, office: Offices) -> Redirect:
    """End the session, also if its key or the memory no longer works."""
    ticket = await open_session(request, office)
    await read_change(request, office.csrf_token(ticket), SHORT_FORM_BYTES)
    await office.revoke(ticket)
    out = go_to(link("/sign-in"))
    out.delete_cookie(COOKIE, path="/ui")
    return out


async def _begin(request: AnyRequest, office: TicketOffice, name: str, after: str) -> Redirect:
    cookie = Cookie(
        COOKIE,
        path="/ui",
        value=await office.issue(SESSION, name, SESSION_SECONDS),
        max_age=int(SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=_is_encrypted(request),
    )
    return Redirect(after or link(""), status_code=303, cookies=[cookie])


def _is_encrypted(request: AnyRequest) -> bool:
    """Tell whether the browser uses https, perhaps to a proxy in front of this gateway."""
    origin = request.headers.get("origin", "")
    return request.scope["scheme"] == "https" or origin.startswith("https://")


def _own_path(after: str) -> str:
    """Return where to go after the sign-in, if it is a page of the dashboard."""
    if not after:
        return ""
    if not (after.startswith(("/ui/", "/ui?")) or after == "/ui") or "\\" in after:
        raise BadRequest("`after` must be a page of the dashboard.", param="after")
    return after


ROUTES = (sign_in_form, sign_in, enter_form, enter, make_link, sign_out)

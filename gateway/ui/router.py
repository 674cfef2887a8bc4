"""Assembles the dashboard, `/ui`: pages, styles, scripts, errors."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Response, Router, get
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from litestar.plugins.htmx import HTMXRequest
from litestar.plugins.jinja import JinjaTemplateEngine
from litestar.response import Redirect, Template
from litestar.template.config import TemplateConfig

from gateway.auth.sessions import TicketOffice
from gateway.errors import GatewayError, ResourceNotFound, StoreDown
from gateway.http.access_log import current_line
from gateway.http.asgi import UNEXPECTED
from gateway.management.context import running_imports
from gateway.state import request_id
from gateway.storage.tickets import TicketTable
from gateway.ui import (
    agent_files,
    agent_trial,
    agents,
    approval_pages,
    blocks,
    conversations,
    dropped,
    file_pages,
    guidance,
    inbox_pages,
    layer_pages,
    moves,
    operations,
    passages,
    people,
    reflection_pages,
    requests,
    share_pages,
    shared_members,
    shared_pages,
    sign_in,
    skill_pages,
    texts,
    tool_pages,
    tool_servers,
    tool_sources,
)
from gateway.ui.agent_trial import RunTurn
from gateway.ui.live import FeedLimit
from gateway.ui.moves import MoveOffice
from gateway.ui.navigation import list_pages
from gateway.ui.shown_times import render_time
from gateway.ui.timeline import lay_out_runs
from gateway.ui.visitor import HEADERS, AnyRequest, SignInNeeded, subject, visitor
from memory import Memory

log = logging.getLogger("mnemogate")
FOLDER = Path(__file__).parent
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
FILES = {
    path.name: (path.read_bytes(), TYPES[path.suffix])
    for path in sorted((FOLDER / "static").iterdir())
}
# The modules of the pages.
PAGES: tuple[Any, ...] = (
    sign_in,
    agents,
    agent_files,
    agent_trial,
    tool_pages,
    tool_servers,
    tool_sources,
    approval_pages,
    shared_pages,
    shared_members,
    share_pages,
    layer_pages,
    inbox_pages,
    file_pages,
    skill_pages,
    reflection_pages,
    people,
    moves,
    blocks,
    passages,
    dropped,
    conversations,
    requests,
    operations,
    guidance,
)
VERSION = hashlib.sha256(b"".join(data for data, _ in FILES.values())).hexdigest()[:12]


@get("/static/{name:str}", include_in_schema=False)
async def static_file(name: FromPath[str]) -> Response[bytes]:
    if name not in FILES:
        raise ResourceNotFound(f"There is no file {name[:80]!r}.")
    data, kind = FILES[name]
    headers = {**HEADERS, "content-type": kind, "cache-control": "public, max-age=86400"}
    return Response(data, headers=headers)


def template_config() -> TemplateConfig[JinjaTemplateEngine]:
    """Return how pages are made: escaped everywhere, a missing value is an error."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        link=texts.link,
        read_call=texts.read_call,
        pages_of=list_pages,
        lay_out_runs=lay_out_runs,
        version=VERSION,
        visitor=None,
        subject=None,
    )
    environment.filters.update(
        shown=texts.render_text,
        ago=texts.ago,
        moment=texts.moment,
        local=render_time,
        number=texts.number,
        counted=texts.render_count,
        percent=texts.percent,
        content=texts.text_of_content,
        title=texts.title,
    )
    return TemplateConfig(instance=JinjaTemplateEngine.from_environment(environment))


def _error_page(request: AnyRequest, error: GatewayError) -> Response[Any]:
    """Return an error as a page, or send a visitor without a session to the sign-in."""
    current_line().note_error(error)
    headers = {**HEADERS, "x-mnemogate-request-id": request_id(request.scope)}
    if isinstance(error, SignInNeeded) and request.method == "GET":
        if request.headers.get("hx-request") == "true":
            sign_in_url = texts.link("/sign-in")
            return Response(b"", status_code=401, headers={**headers, "hx-redirect": sign_in_url})
        path = request.scope["path"]
        query = request.scope["query_string"].decode("latin-1")
        after = f"{path}?{query}" if query else path
        return Redirect(texts.link("/sign-in", after=after), status_code=303, headers=headers)
    is_outage = isinstance(error, StoreDown)
    context = {"error": error, "csrf": request.state.get("csrf"), "outage": is_outage}
    return Template("error.html", context=context, status_code=error.status, headers=headers)


def _unexpected_page(request: AnyRequest, error: Exception) -> Response[Any]:
    log.error("unexpected failure (%s)", request_id(request.scope), exc_info=error)
    return _error_page(request, GatewayError(UNEXPECTED, code="internal_error"))


def _http_error_page(request: AnyRequest, error: HTTPException) -> Response[Any]:
    if error.status_code == 404:
        path = request.scope["path"][:200]
        return _error_page(request, ResourceNotFound(f"There is no page at {path!r}."))
    gateway_error = GatewayError(str(error.detail))
    gateway_error.status = error.status_code
    return _error_page(request, gateway_error)


def _office(secret: bytes, memory: Memory) -> TicketOffice:
    return TicketOffice(secret, TicketTable(memory.db, memory.wait_until_ready))


# Of the application too, which answers what no route does.
EXCEPTION_HANDLERS: dict[int | type[Exception], Any] = {
    GatewayError: _error_page,
    HTTPException: _http_error_page,
    Exception: _unexpected_page,
}


def dashboard(secret: bytes, memory: Memory, run_turn: RunTurn) -> Router:
    """Return the router of the dashboard.

    secret: the server's, for the tokens of forms. memory: where sessions are kept. run_turn: lets
    an agent answer a message.
    """
    office = _office(secret, memory)
    limit = FeedLimit()
    movers = MoveOffice()
    return Router(
        "/ui",
        route_handlers=[*(handler for page in PAGES for handler in page.ROUTES), static_file],
        dependencies={
            "office": Provide(lambda: office, sync_to_thread=False),
            "feeds": Provide(lambda: limit, sync_to_thread=False),
            "moves": Provide(lambda: movers, sync_to_thread=False),
            "importing": Provide(running_imports, sync_to_thread=False),
            "run_turn": Provide(lambda: run_turn, sync_to_thread=False),
            "visitor": Provide(visitor),
            "subject": Provide(subject),
        },
        response_headers=HEADERS,
        request_class=HTMXRequest,
        exception_handlers=EXCEPTION_HANDLERS,
        include_in_schema=False,
    )

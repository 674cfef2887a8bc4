"""Shared blocks: the list, one block edited in place and live, versions, settings, members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Stream, Template

from gateway.errors import BadRequest, GatewayError
from gateway.management import shared_blocks as api
from gateway.management.shared_schemas import SharedBlock
from gateway.ui.form_request import FormRequest, path_segment, version_of
from gateway.ui.live import EVENT_STREAM, Feeds, event, watch
from gateway.ui.shared_members import list_block_members
from gateway.ui.texts import diff_lines, link
from gateway.ui.tool_pages import tenant_link
from gateway.ui.visitor import AtVisit, Visitor, go_to

PAGE = 50
VERSIONS = 20
# That are shown in the form; others have a page of their own.
FORM_ERRORS = (400, 403, 409)


def _where(visitor: Visitor, ident: str) -> dict[str, str]:
    return {"id": ident, "tenant": tenant_link(visitor)}


@get("/shared")
async def shared_page(
    visitor: AtVisit, label: FromQuery[str] = "", cursor: FromQuery[str | None] = None
) -> Template:
    shared_filter = await api.sharing(visitor.caller, None, label.strip())
    blocks_list = await api.shared_blocks.fn(visitor.caller, shared_filter, cursor or None, PAGE)
    return visitor.page(
        "shared.html",
        blocks=blocks_list.data,
        rest=blocks_list.next_cursor,
        label=label,
        is_operator=api.is_operator(visitor.caller),
        tenant=tenant_link(visitor),
    )


@post("/shared", status_code=200)
async def make_shared(visitor: AtVisit) -> Redirect:
    """Make a shared block without members; its page adds them."""
    body = {
        "label": visitor.field("label").strip(),
        "description": visitor.field("description"),
        "value": visitor.field("value"),
        "default_write": "default_write" in visitor.form,
    }
    created_block = await api.make_block.fn(FormRequest(visitor, body))
    return go_to(link("/shared/block", **_where(visitor, created_block.content.id)))


async def _find_block(visitor: Visitor, ident: str) -> SharedBlock:
    response = await api.shared_block.fn(visitor.caller, path_segment(ident))
    block: SharedBlock = response.content
    return block


async def _card(visitor: Visitor, ident: str, **context: Any) -> dict[str, Any]:
    """Return what shows a block: its lines, each with its writer where the visitor may know."""
    block = await _find_block(visitor, ident)
    writers: list[str | None] = []
    if api.is_operator(visitor.caller):
        block_name = api.name_block(visitor.caller, path_segment(ident))
        writers = list((await api.find_block(visitor.caller, block_name)).writers)
    if block.value:
        lines = block.value.split("\n")
    else:
        lines = []
    writers += [None] * (len(lines) - len(writers))
    return {
        "block": block,
        "lines": list(zip(lines, writers, strict=False)),
        "is_operator": api.is_operator(visitor.caller),
        "where": _where(visitor, block.id),
        **context,
    }


@get("/shared/block")
async def block_page(
    visitor: AtVisit, id: FromQuery[str], cursor: FromQuery[str | None] = None
) -> Template:
    if visitor.is_fragment:
        return visitor.page("parts/shared-block.html", **await _card(visitor, id))
    card = await _card(visitor, id)
    members = None
    if card["is_operator"]:
        members = await list_block_members(visitor, id, cursor or None)
    return visitor.page("shared-block.html", members=members, **card)


@get("/shared/edit")
async def edit_form(visitor: AtVisit, id: FromQuery[str]) -> Template:
    block = await _find_block(visitor, id)
    return _form(visitor, block, block.value)


def _form(visitor: Visitor, block: SharedBlock, value: str, fault: str = "") -> Template:
    template = "shared-edit.html"
    if visitor.is_fragment:
        template = "parts/shared-form.html"
    where = _where(visitor, block.id)
    return visitor.page(template, block=block, value=value, fault=fault, where=where)


@post("/shared/block", status_code=200)
async def save_value(visitor: AtVisit, id: FromQuery[str]) -> Template | Redirect:
    """Replace the value, if it is still the one that the form began with."""
    value = visitor.field("value")
    version = version_of(visitor)
    request = FormRequest(visitor, {"value": value}, version)
    try:
        await api.put_block.fn(request, path_segment(id))
    except GatewayError as e:
        if e.status not in FORM_ERRORS:
            raise
        return _form(visitor, await _find_block(visitor, id), value, e.message)
    return await _after_edit(visitor, id)


async def _after_edit(visitor: Visitor, ident: str) -> Template | Redirect:
    if visitor.is_fragment:
        return visitor.page("parts/shared-block.html", **await _card(visitor, ident))
    return go_to(link("/shared/block", **_where(visitor, ident)))


@post("/shared/append", status_code=200)
async def append_line(visitor: AtVisit, id: FromQuery[str]) -> Template | Redirect:
    body = {"content": visitor.field("content")}
    await api.append.fn(FormRequest(visitor, body), path_segment(id))
    return await _after_edit(visitor, id)


@post("/shared/settings", status_code=200)
async def save_settings(visitor: AtVisit, id: FromQuery[str]) -> Redirect:
    """Change what a block is described with, its limit, and who may write by default."""
    limit = visitor.field("limit").strip()
    if not (limit.isascii() and limit.isdigit()) or len(limit) > 9:
        raise BadRequest(f"`limit` is {limit[:40]!r}: give a number of characters.", param="limit")
    body = {
        "description": visitor.field("description"),
        "limit": int(limit),
        "read_only": "read_only" in visitor.form,
        "default_write": "default_write" in visitor.form,
    }
    await api.patch_block.fn(FormRequest(visitor, body), path_segment(id))
    return go_to(link("/shared/block", **_where(visitor, id)))


@get("/shared/versions")
async def versions_page(
    visitor: AtVisit, id: FromQuery[str], cursor: FromQuery[str | None] = None
) -> Template:
    versions_list = await api.versions.fn(
        visitor.caller, path_segment(id), cursor or None, VERSIONS
    )
    versions = await asyncio.to_thread(
        lambda: [(v, list(diff_lines(v.before, v.after))) for v in versions_list.data]
    )
    return visitor.page(
        "shared-versions.html",
        block=await _find_block(visitor, id),
        versions=versions,
        rest=versions_list.next_cursor,
        where=_where(visitor, id),
    )


@post("/shared/undo", status_code=200)
async def undo_shared(visitor: AtVisit, id: FromQuery[str]) -> Template | Redirect:
    await api.undo.fn(FormRequest(visitor), path_segment(id))
    return await _after_edit(visitor, id)


@post("/shared/delete", status_code=200)
async def delete_shared(visitor: AtVisit, id: FromQuery[str]) -> Redirect:
    await api.delete_block.fn(FormRequest(visitor), path_segment(id))
    return go_to(link("/shared", tenant=tenant_link(visitor)))


@get("/shared/events")
async def shared_events(
    visitor: AtVisit, feeds: Feeds, id: FromQuery[str], version: FromQuery[int]
) -> Stream:
    """Send an event when the block changes, whichever agent or person changed it.

    version: the one that the page shows.
    """
    block_name = api.name_block(visitor.caller, path_segment(id))
    await api.find_block(visitor.caller, block_name)

    async def changes() -> AsyncIterator[bytes]:
        shown_version = version
        async for _ in watch(visitor):
            # A member who left sees nothing more: the feed ends with an error.
            block = (await api.find_block(visitor.caller, block_name)).block
            yield event("changed", "") if block.version != shown_version else b""
            shown_version = block.version

    return Stream(feeds.open(visitor.session, changes()), media_type=EVENT_STREAM)


ROUTES = (
    shared_page,
    make_shared,
    block_page,
    edit_form,
    save_value,
    append_line,
    save_settings,
    versions_page,
    undo_shared,
    delete_shared,
    shared_events,
)

"""A user's core memory: blocks with their limits, edited in place, their versions, undo; live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Stream, Template

from gateway.errors import GatewayError
from gateway.management import blocks as api
from gateway.management.schemas import BlockPut
from gateway.ui.form_request import version_of
from gateway.ui.live import EVENT_STREAM, Feeds, event, watch
from gateway.ui.people import summarise_user
from gateway.ui.texts import diff_lines, link
from gateway.ui.visitor import AboutUser, Subject, go_to
from memory import management

MAX_BLOCKS = 200
VERSIONS = 20


@get("/user")
async def user_page(subject: AboutUser) -> Template:
    # Before the blocks, so that no edit is missed.
    edit_mark = await _edit_mark(subject)
    blocks_list = await api.blocks.fn(subject.context, None, MAX_BLOCKS)
    about = await summarise_user(subject)
    return subject.page("user.html", blocks=blocks_list.data, mark=edit_mark, **about)


async def _edit_mark(subject: Subject) -> str:
    """Return what changes with every edit of the user's blocks."""
    context = subject.context
    edit_mark = await context.read(management.activity.edit_mark(context.memory, context.scope))
    if edit_mark is None:
        return "none"
    return f"{edit_mark[0]}.{edit_mark[1]}"


async def _block(subject: Subject, label: str) -> Any:
    return (await api.block.fn(subject.context, label)).content


@get("/user/block")
async def block_card(subject: AboutUser, label: FromQuery[str]) -> Template:
    """Return one block: as a part of the user's page, or as a page with its versions."""
    block = await _block(subject, label)
    if subject.visitor.is_fragment:
        return subject.page("parts/block.html", block=block)
    return subject.page("block.html", **await _with_versions(subject, block, None))


@get("/user/block/edit")
async def edit_form(subject: AboutUser, label: FromQuery[str]) -> Template:
    block = await _block(subject, label)
    name = "block-edit.html"
    if subject.visitor.is_fragment:
        name = "parts/block-form.html"
    return subject.page(name, block=block, value=block.value, fault="")


@post("/user/block", status_code=200)
async def save_block(subject: AboutUser) -> Template | Redirect:
    visitor = subject.visitor
    label = visitor.field("label")
    value = visitor.field("value")
    version = version_of(visitor)
    before = await _block(subject, label)
    new_block = BlockPut(value, before.description, before.limit)
    try:
        await api.replace_block(subject.context, label, new_block, version)
    except GatewayError as e:
        if e.status not in (400, 403, 409):
            raise
        name = "block-edit.html"
        if visitor.is_fragment:
            name = "parts/block-form.html"
        return subject.page(name, block=await _block(subject, label), value=value, fault=e.message)
    return await _after_edit(subject, label)


@post("/user/block/undo", status_code=200)
async def undo_block(subject: AboutUser) -> Template | Redirect:
    label = subject.visitor.field("label")
    await api.undo.fn(subject.context, label)
    return await _after_edit(subject, label)


@post("/user/blocks", status_code=200)
async def make_block(subject: AboutUser) -> Redirect:
    visitor = subject.visitor
    new_block = BlockPut(visitor.field("value"), visitor.field("description"))
    await api.replace_block(subject.context, visitor.field("label").strip(), new_block, 0)
    return go_to(link("/user", **subject.where))


@post("/user/block/delete", status_code=200)
async def delete_block(subject: AboutUser) -> Redirect:
    await api.delete_block.fn(subject.context, subject.visitor.field("label"))
    return go_to(link("/user", **subject.where))


async def _after_edit(subject: Subject, label: str) -> Template | Redirect:
    if subject.visitor.is_fragment:
        return subject.page("parts/block.html", block=await _block(subject, label))
    return go_to(link("/user", **subject.where))


async def _with_versions(subject: Subject, block: Any, cursor: str | None) -> dict[str, Any]:
    versions_list = await api.versions.fn(subject.context, block.label, cursor, VERSIONS)
    versions = await asyncio.to_thread(
        lambda: [(v, list(diff_lines(v.before, v.after))) for v in versions_list.data]
    )
    return {"block": block, "versions": versions, "rest": versions_list.next_cursor}


@get("/user/block/versions")
async def versions_page(
    subject: AboutUser, label: FromQuery[str], cursor: FromQuery[str | None] = None
) -> Template:
    block = await _block(subject, label)
    return subject.page("block.html", **await _with_versions(subject, block, cursor or None))


@get("/user/events")
async def block_events(subject: AboutUser, feeds: Feeds, mark: FromQuery[str] = "") -> Stream:
    """Send an event when any block of the user changes, whoever changed it.

    mark: what the page already shows.
    """

    async def changes() -> AsyncIterator[bytes]:
        known_mark = mark
        async for _ in watch(subject.visitor):
            now = await _edit_mark(subject)
            if now != known_mark:
                known_mark = now
                yield event("changed", "")
            else:
                yield b""

    return Stream(feeds.open(subject.visitor.session, changes()), media_type=EVENT_STREAM)


ROUTES = (
    user_page,
    block_card,
    edit_form,
    save_block,
    undo_block,
    make_block,
    delete_block,
    versions_page,
    block_events,
)

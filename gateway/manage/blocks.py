"""Core memory over HTTP: blocks, their versions, undo. An ETag is a version; a stale If-Match is a 409."""

from __future__ import annotations

import re

from litestar import Response, delete, get, patch, post, put
from litestar.params import FromPath
from sqlalchemy import Connection

from gateway.errors import BadRequest, NotFound
from gateway.manage import shapes
from gateway.manage.door import AtDesk, Cursor, Desk, PageLimit, told, window
from gateway.manage.shapes import BlockPatch, BlockPut, Gone, Page, Version, place_of, taking
from memory import edits, outside
from memory.blocks import Block
from memory.edits import Change, Edit
from memory.errors import Conflict
from memory.search import iso
from memory.stores.sql import blocks as block_rows

TAG = re.compile(r'(?:W/)?"(\d+)"|(\d+)')


def _tagged(block: Block) -> Response[shapes.Block]:
    return Response(shapes.block(block), headers={"etag": f'"{block.version}"'})


def _expected(desk: Desk) -> int | None:
    """The version the client saw, if it says so. Raises BadRequest."""
    value = (desk.caller.request.headers.get("if-match") or "*").strip()
    if value == "*":
        return None
    if (found := TAG.fullmatch(value)) is None:
        raise BadRequest(
            f"If-Match is {value[:60]!r}: send the block's version, quoted or bare, as the ETag has it.",
            param="if-match",
        )
    return int(found[1] or found[2])


async def _edit(desk: Desk, label: str, how: Edit) -> Block | None:
    hand, expect = desk.hand(), _expected(desk)
    there = desk.caller.request.headers.get("if-match", "").strip() == "*"

    def needed(block: Block | None) -> Block | None:
        if there and block is None:
            raise Conflict(f"there is no block {label!r}, and If-Match asks for one")
        return how(block)

    return await desk.write(lambda conn: outside.edit(conn, hand, label, needed, expect))


@get("/users/{user:str}/blocks", summary="A user's blocks, in order of their labels")
async def blocks(desk: AtDesk, cursor: Cursor = None, limit: PageLimit = 50) -> Page[shapes.Block]:
    hand, after = desk.hand(), place_of(cursor, str)
    found = await desk.read(lambda conn: block_rows.all_of(conn, hand.shelf(conn)))
    rows = [found[label] for label in sorted(found) if after is None or label > after]
    mine, rest = window(rows[: limit + 1], limit, lambda b: b.label, lambda b: len(b.value))
    return Page([shapes.block(b) for b in mine], rest)


@get("/users/{user:str}/blocks/{label:str}", summary="One block")
async def block(desk: AtDesk, label: FromPath[str]) -> Response[shapes.Block]:
    hand = desk.hand()
    found = (await desk.read(lambda conn: block_rows.all_of(conn, hand.shelf(conn)))).get(label)
    if found is None:
        raise NotFound(f"There is no memory block {label[:80]!r}.")
    return _tagged(found)


@put(
    "/users/{user:str}/blocks/{label:str}",
    summary="Create or replace a block",
    operation_class=taking(BlockPut),
)
async def put_block(desk: AtDesk, label: FromPath[str]) -> Response[shapes.Block]:
    new = await desk.asked(BlockPut)
    change = Change(new.value, new.description, new.limit, new.read_only)
    with told():
        how = edits.put(label, change, desk.hand().defaults)
    now = await _edit(desk, label, how)
    assert now is not None  # noqa: S101 - a put never deletes
    return _tagged(now)


@patch(
    "/users/{user:str}/blocks/{label:str}",
    summary="Change a block",
    operation_class=taking(BlockPatch),
)
async def patch_block(desk: AtDesk, label: FromPath[str]) -> Response[shapes.Block]:
    new = await desk.asked(BlockPatch)
    change = Change(new.value, new.description, new.limit, new.read_only)
    now = await _edit(desk, label, edits.patched(label, change, desk.hand().defaults))
    assert now is not None  # noqa: S101 - a patch never deletes
    return _tagged(now)


@delete(
    "/users/{user:str}/blocks/{label:str}",
    status_code=200,
    summary="Delete a block; undo restores it",
)
async def delete_block(desk: AtDesk, label: FromPath[str]) -> Gone:
    await _edit(desk, label, edits.removed(label))
    return Gone(label, "block")


@get("/users/{user:str}/blocks/{label:str}/versions", summary="A block's history, newest first")
async def versions(
    desk: AtDesk, label: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Version]:
    hand, before = desk.hand(), place_of(cursor, int)

    def work(conn: Connection) -> list[Version]:
        found = block_rows.versions(conn, hand.shelf(conn), label, before, limit + 1)
        return [Version(**{**v, "created_at": iso(v["created_at"])}) for v in found]

    mine, rest = window(
        await desk.read(work),
        limit,
        lambda v: v.version,
        lambda v: len(v.before or "") + len(v.after or ""),
    )
    return Page(mine, rest)


@post(
    "/users/{user:str}/blocks/{label:str}/undo",
    status_code=200,
    summary="Take the newest edit back; repeated, walk further back",
)
async def undo(desk: AtDesk, label: FromPath[str]) -> Response[shapes.Block | Gone]:
    hand = desk.hand()
    now = await desk.write(lambda conn: outside.undo(conn, hand, label))
    if now is None:
        return Response(Gone(label, "block"))
    return Response(shapes.block(now), headers={"etag": f'"{now.version}"'})


ROUTES = (blocks, block, put_block, patch_block, delete_block, versions, undo)

"""Core memory over HTTP: blocks, their versions, undo.

The ETag is the version; an outdated If-Match is a 409.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from litestar import Response, delete, get, patch, post, put
from litestar.params import FromPath

from gateway.errors import BadRequest, ResourceNotFound
from gateway.management import schemas
from gateway.management.context import (
    AtDesk,
    Cursor,
    PageLimit,
    UserContext,
    translate_errors,
    window,
)
from gateway.management.schemas import (
    BlockPatch,
    BlockPut,
    Gone,
    Page,
    Version,
    describe_body,
    place_of,
)
from memory import BlockEdit, Conflict, CoreBlock, Edit, iso, management

TAG = re.compile(r'(?:W/)?"(\d+)"|(\d+)')


def _with_etag(block: CoreBlock) -> Response[schemas.Block]:
    return Response(schemas.block(block), headers={"etag": f'"{block.version}"'})


def expected_version(headers: Mapping[str, str], what: str = "block") -> int | None:
    """Return the version in If-Match; None without one. Raises BadRequest."""
    value = (headers.get("if-match") or "*").strip()
    if value == "*":
        return None
    if (found := TAG.fullmatch(value)) is None:
        raise BadRequest(
            f"If-Match is {value[:60]!r}: send the {what}'s version, quoted or bare, as in the "
            "ETag.",
            param="if-match",
        )
    return int(found[1] or found[2])


async def _edit(
    desk: UserContext, label: str, how: Edit, expect: int | None = None
) -> CoreBlock | None:
    """Edit a block. expect: the version that was seen, where the header does not say it."""
    hand, expect = (
        desk.hand(),
        expected_version(desk.caller.request.headers) if expect is None else expect,
    )
    must_exist = desk.caller.request.headers.get("if-match", "").strip() == "*"

    def needed(block: CoreBlock | None) -> CoreBlock | None:
        if must_exist and block is None:
            raise Conflict(f"there is no block {label!r}, but If-Match requires one")
        return how(block)

    return await desk.write(management.blocks.edit_block(desk.memory, hand, label, needed, expect))


@get("/users/{user:str}/blocks", summary="A user's blocks, ordered by label")
async def blocks(desk: AtDesk, cursor: Cursor = None, limit: PageLimit = 50) -> Page[schemas.Block]:
    after = place_of(cursor, str)
    found = await desk.read(management.blocks.list_blocks(desk.memory, desk.hand()))
    rows = [found[label] for label in sorted(found) if after is None or label > after]
    mine, rest = window(rows[: limit + 1], limit, lambda b: b.label, lambda b: len(b.value))
    return Page([schemas.block(b) for b in mine], rest)


@get("/users/{user:str}/blocks/{label:str}", summary="One block")
async def block(desk: AtDesk, label: FromPath[str]) -> Response[schemas.Block]:
    found = (await desk.read(management.blocks.list_blocks(desk.memory, desk.hand()))).get(label)
    if found is None:
        raise ResourceNotFound(f"There is no memory block {label[:80]!r}.")
    return _with_etag(found)


@put(
    "/users/{user:str}/blocks/{label:str}",
    summary="Create or replace a block",
    operation_class=describe_body(BlockPut),
)
async def put_block(desk: AtDesk, label: FromPath[str]) -> Response[schemas.Block]:
    return _with_etag(await replace_block(desk, label, await desk.asked(BlockPut)))


async def replace_block(
    desk: UserContext, label: str, new: BlockPut, expect: int | None = None
) -> CoreBlock:
    """Create or replace a block. expect: the version that was seen, None for any.

    Raises BadRequest, Forbidden, RequestConflict, Unavailable.
    """
    change = BlockEdit(new.value, new.description, new.limit, new.read_only)
    with translate_errors():
        desk.memory.policy.screen.check("value", new.value)
        how = management.blocks.put_block(label, change, desk.hand().defaults)
    now = await _edit(desk, label, how, expect)
    assert now is not None  # noqa: S101 - a put never deletes
    return now


@patch(
    "/users/{user:str}/blocks/{label:str}",
    summary="Change a block",
    operation_class=describe_body(BlockPatch),
)
async def patch_block(desk: AtDesk, label: FromPath[str]) -> Response[schemas.Block]:
    new = await desk.asked(BlockPatch)
    change = BlockEdit(new.value, new.description, new.limit, new.read_only)
    with translate_errors():
        desk.memory.policy.screen.check("value", new.value)
    now = await _edit(
        desk, label, management.blocks.patch_block(label, change, desk.hand().defaults)
    )
    assert now is not None  # noqa: S101 - a patch never deletes
    return _with_etag(now)


@delete(
    "/users/{user:str}/blocks/{label:str}",
    status_code=200,
    summary="Delete a block; undo restores it",
)
async def delete_block(desk: AtDesk, label: FromPath[str]) -> Gone:
    await _edit(desk, label, management.blocks.remove_block(label))
    return Gone(label, "block")


@get("/users/{user:str}/blocks/{label:str}/versions", summary="A block's history, newest first")
async def versions(
    desk: AtDesk, label: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Version]:
    before = place_of(cursor, int)
    found = await desk.read(
        management.blocks.list_versions(desk.memory, desk.hand(), label, before, limit + 1)
    )
    mine, rest = window(
        [Version(**{**v, "created_at": iso(v["created_at"])}) for v in found],
        limit,
        lambda v: v.version,
        lambda v: len(v.before or "") + len(v.after or ""),
    )
    return Page(mine, rest)


@post(
    "/users/{user:str}/blocks/{label:str}/undo",
    status_code=200,
    summary="Undo the newest edit; repeat to undo earlier ones",
)
async def undo(desk: AtDesk, label: FromPath[str]) -> Response[schemas.Block | Gone]:
    now = await desk.write(management.blocks.undo_edit(desk.memory, desk.hand(), label))
    if now is None:
        return Response(Gone(label, "block"))
    return Response(schemas.block(now), headers={"etag": f'"{now.version}"'})


ROUTES = (blocks, block, put_block, patch_block, delete_block, versions, undo)

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
    AtUser,
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
    context: UserContext, label: str, how: Edit, expect: int | None = None
) -> CoreBlock | None:
    """Edit a block. expect: the version that was seen, where the header does not say it."""
    hand = context.hand()
    if expect is None:
        expect = expected_version(context.caller.request.headers)
    must_exist = context.caller.request.headers.get("if-match", "").strip() == "*"

    def needed(block: CoreBlock | None) -> CoreBlock | None:
        if must_exist and block is None:
            raise Conflict(f"there is no block {label!r}, but If-Match requires one")
        return how(block)

    return await context.write(
        management.blocks.edit_block(context.memory, hand, label, needed, expect)
    )


@get("/users/{user:str}/blocks", summary="A user's blocks, ordered by label")
async def blocks(
    context: AtUser, cursor: Cursor = None, limit: PageLimit = 50
) -> Page[schemas.Block]:
    after = place_of(cursor, str)
    blocks_by_label = await context.read(
        management.blocks.list_blocks(context.memory, context.hand())
    )
    rows = [
        blocks_by_label[label]
        for label in sorted(blocks_by_label)
        if after is None or label > after
    ]
    page_blocks, next_cursor = window(
        rows[: limit + 1], limit, lambda b: b.label, lambda b: len(b.value)
    )
    return Page([schemas.block(b) for b in page_blocks], next_cursor)


@get("/users/{user:str}/blocks/{label:str}", summary="One block")
async def block(context: AtUser, label: FromPath[str]) -> Response[schemas.Block]:
    found_block = (
        await context.read(management.blocks.list_blocks(context.memory, context.hand()))
    ).get(label)
    if found_block is None:
        raise ResourceNotFound(f"There is no memory block {label[:80]!r}.")
    return _with_etag(found_block)


@put(
    "/users/{user:str}/blocks/{label:str}",
    summary="Create or replace a block",
    operation_class=describe_body(BlockPut),
)
async def put_block(context: AtUser, label: FromPath[str]) -> Response[schemas.Block]:
    return _with_etag(await replace_block(context, label, await context.asked(BlockPut)))


async def replace_block(
    context: UserContext, label: str, block_put: BlockPut, expect: int | None = None
) -> CoreBlock:
    """Create or replace a block. expect: the version that was seen, None for any.

    Raises BadRequest, Forbidden, RequestConflict, Unavailable.
    """
    change = BlockEdit(block_put.value, block_put.description, block_put.limit, block_put.read_only)
    with translate_errors():
        context.memory.policy.screen.check("value", block_put.value)
        how = management.blocks.put_block(label, change, context.hand().defaults)
    now = await _edit(context, label, how, expect)
    assert now is not None  # noqa: S101 - a put never deletes
    return now


@patch(
    "/users/{user:str}/blocks/{label:str}",
    summary="Change a block",
    operation_class=describe_body(BlockPatch),
)
async def patch_block(context: AtUser, label: FromPath[str]) -> Response[schemas.Block]:
    block_patch = await context.asked(BlockPatch)
    change = BlockEdit(
        block_patch.value, block_patch.description, block_patch.limit, block_patch.read_only
    )
    with translate_errors():
        context.memory.policy.screen.check("value", block_patch.value)
    now = await _edit(
        context, label, management.blocks.patch_block(label, change, context.hand().defaults)
    )
    assert now is not None  # noqa: S101 - a patch never deletes
    return _with_etag(now)


@delete(
    "/users/{user:str}/blocks/{label:str}",
    status_code=200,
    summary="Delete a block; undo restores it",
)
async def delete_block(context: AtUser, label: FromPath[str]) -> Gone:
    await _edit(context, label, management.blocks.remove_block(label))
    return Gone(label, "block")


@get("/users/{user:str}/blocks/{label:str}/versions", summary="A block's history, newest first")
async def versions(
    context: AtUser, label: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Version]:
    before = place_of(cursor, int)
    rows = await context.read(
        management.blocks.list_versions(context.memory, context.hand(), label, before, limit + 1)
    )
    page_versions, next_cursor = window(
        [Version(**{**v, "created_at": iso(v["created_at"])}) for v in rows],
        limit,
        lambda v: v.version,
        lambda v: len(v.before or "") + len(v.after or ""),
    )
    return Page(page_versions, next_cursor)


@post(
    "/users/{user:str}/blocks/{label:str}/undo",
    status_code=200,
    summary="Undo the newest edit; repeat to undo earlier ones",
)
async def undo(context: AtUser, label: FromPath[str]) -> Response[schemas.Block | Gone]:
    now = await context.write(management.blocks.undo_edit(context.memory, context.hand(), label))
    if now is None:
        return Response(Gone(label, "block"))
    return Response(schemas.block(now), headers={"etag": f'"{now.version}"'})


ROUTES = (blocks, block, put_block, patch_block, delete_block, versions, undo)

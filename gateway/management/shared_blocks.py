"""Shared blocks over HTTP: made, edited, versions, undo; who sees them is in `shared_members`.

The ETag is the version; an outdated If-Match is a 409. Trusted and admin keys do all of it. Another
key sees the blocks that its users see, and edits the value where one of them may write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from litestar import Response, delete, get, patch, post, put
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery

from gateway.errors import BadRequest, Forbidden, ResourceNotFound
from gateway.http.paths import segment
from gateway.management.blocks import expected_version
from gateway.management.context import (
    EVERY,
    AtDoor,
    Cursor,
    ManagementRequest,
    PageLimit,
    check_name,
    translate_errors,
    window,
)
from gateway.management.layer_access import not_found
from gateway.management.schemas import Gone, Page, describe_body, place_of
from gateway.management.shared_schemas import (
    AppendPost,
    MemberPost,
    SharedBlock,
    SharedPatch,
    SharedPost,
    SharedPut,
    SharedVersion,
    block_object,
    parse_member,
)
from gateway.state import request_id
from memory import BlockEdit, CoreBlock, EditSource, Memory, iso, management
from memory.management.shared_blocks import (
    BlockFilter,
    BlockName,
    MemberName,
    NewShared,
    OutsideEdit,
    SharedEdit,
    StoredShared,
)

KIND = "shared_block"
FIND: dict[str, Callable[[Memory, BlockName], Awaitable[Any]]] = {
    "team": management.layers.find_team,
    "project": management.layers.find_project,
}


def is_operator(caller: ManagementRequest) -> bool:
    """Tell whether a key may do everything with the shared blocks of its tenant."""
    return caller.principal.trusted or caller.principal.admin


def check_operator(caller: ManagementRequest) -> None:
    """Raise Forbidden for a key that is neither trusted nor an admin's."""
    if not is_operator(caller):
        raise Forbidden(
            "Only trusted and admin keys do this with shared blocks. Others edit the value of "
            "those in which their users may write.",
            code="trusted_key_needed",
        )


def tenant_of(caller: ManagementRequest) -> str:
    """Return the tenant of a request. Raises BadRequest for all of them."""
    if caller.tenant == EVERY:
        raise BadRequest(
            "`tenant` is '*', but a shared block belongs to one tenant: name it.", param="tenant"
        )
    return caller.tenant


def name_block(caller: ManagementRequest, ident: str) -> BlockName:
    return tenant_of(caller), segment(ident)


def check_member(member: MemberName) -> MemberName:
    """Return a member that can be one, as far as its name tells. Raises BadRequest."""
    if member.kind != "everyone":
        check_name(member.name, member.kind)
    if member.agent:
        check_name(member.agent, "agent")
    return member


async def find_member(caller: ManagementRequest, member: MemberName) -> MemberName:
    """Return a member that is there. Raises BadRequest, ResourceNotFound for a team or project."""
    check_member(member)
    find = FIND.get(member.kind)
    if find is not None:
        try:
            await caller.read(find(caller.memory, (tenant_of(caller), member.name)))
        except ResourceNotFound as e:
            raise not_found(member.kind, member.name) from e
    return member


async def _read_access(caller: ManagementRequest, block_name: BlockName) -> dict[str, bool]:
    """Return which users of a key see a block, and whether each may write; nobody of an operator.

    Raises ResourceNotFound where none of them sees it.
    """
    only = caller.principal.only
    if is_operator(caller) or only is None:
        return {}
    access = await caller.read(
        management.shared_blocks.list_access(caller.memory, block_name, only)
    )
    if not access:
        raise ResourceNotFound(f"There is no shared block {block_name[1][:80]!r}.")
    return access


async def find_block(caller: ManagementRequest, block_name: BlockName) -> StoredShared:
    """Return a block that the caller sees. Raises ResourceNotFound."""
    await _read_access(caller, block_name)
    return await caller.read(management.shared_blocks.find_block(caller.memory, block_name))


async def _show(caller: ManagementRequest, block: StoredShared) -> Response[SharedBlock]:
    (shown_block,) = await show_blocks(caller, [block])
    return Response(shown_block, headers={"etag": f'"{shown_block.version}"'})


async def show_blocks(
    caller: ManagementRequest, stored_blocks: list[StoredShared]
) -> list[SharedBlock]:
    """Return blocks with their members; a key that is not trusted is shown its users alone."""
    members_by_block = await caller.read(
        management.shared_blocks.read_members(caller.memory, tenant_of(caller), stored_blocks)
    )
    only = None if is_operator(caller) else caller.principal.only or []
    shown_blocks = []
    for block in stored_blocks:
        members = [
            block_member
            for block_member in members_by_block[block.id]
            if only is None
            or block_member.member.kind != "user"
            or block_member.member.name in only
        ]
        shown_blocks.append(block_object(block, members))
    return shown_blocks


def _source(caller: ManagementRequest, user: str | None = None) -> EditSource:
    """Return who makes an edit, and of which version."""
    expect = expected_version(caller.headers)
    ident = request_id(caller.request.scope)
    return EditSource(caller.actor, ident, expect=expect, user=user)


async def _find_writer(caller: ManagementRequest, block_name: BlockName) -> str | None:
    """Return the user in whose name a key edits a block; None of an operator. Raises Forbidden."""
    access = await _read_access(caller, block_name)
    if is_operator(caller):
        return None
    writers = sorted(user for user, may_write in access.items() if may_write)
    if not writers:
        raise Forbidden(
            f"No user of this key may write in the shared block {block_name[1][:80]!r}. Ask for a "
            "membership with `write`, or use a trusted key.",
            code="block_read_only",
        )
    return writers[0]


async def _edit(
    caller: ManagementRequest, block_name: BlockName, how: SharedEdit, by: OutsideEdit
) -> StoredShared | None:
    writer = await _find_writer(caller, block_name)
    return await caller.write(
        management.shared_blocks.edit_block(
            caller.memory, block_name, how, _source(caller, writer), by
        )
    )


async def _change(
    caller: ManagementRequest, ident: str, block_edit: SharedPut | SharedPatch
) -> Response[SharedBlock]:
    """Change members of a block."""
    block_name = name_block(caller, ident)
    settings = (
        block_edit.description,
        block_edit.limit,
        block_edit.read_only,
        block_edit.default_write,
    )
    await _read_access(caller, block_name)
    if any(value is not None for value in settings):
        check_operator(caller)
    with translate_errors():
        caller.memory.policy.screen.check("value", block_edit.value)
    change = BlockEdit(
        block_edit.value, block_edit.description, block_edit.limit, block_edit.read_only
    )
    how = management.shared_blocks.change_value(change)
    now = await _edit(caller, block_name, how, OutsideEdit(block_edit.default_write))
    assert now is not None  # noqa: S101 - these edits never delete
    return await _show(caller, now)


Circle = NamedDependency[MemberName | None]
Wanted = NamedDependency[BlockFilter]


async def circle(
    caller: AtDoor, team: FromQuery[str | None] = None, project: FromQuery[str | None] = None
) -> MemberName | None:
    """Return the team or the project that a list is of. Raises ResourceNotFound."""
    for kind, name in (("team", team), ("project", project)):
        if name is not None:
            return await find_member(caller, MemberName(kind, name))
    return None


async def sharing(
    caller: AtDoor,
    circle: Circle,
    label: FromQuery[str] = "",
    user: FromQuery[str | None] = None,
    agent: FromQuery[str | None] = None,
) -> BlockFilter:
    """Return which shared blocks a request lists. Raises Forbidden.

    user, agent: those that this user sees, with that agent.
    """
    if user is None:
        return BlockFilter(label, caller.principal.only, agent, circle)
    user = user.strip()
    if not caller.principal.may_name(user):
        raise Forbidden(
            f"This key may not reach the user {user[:64]!r}. Use one of its own users, or a "
            "trusted key.",
            param="user",
        )
    return BlockFilter(label, [user], agent, circle)


@get(
    "/shared-blocks",
    summary="Shared blocks by label, all or those that a user or agent sees",
    dependencies={"circle": Provide(circle), "sharing": Provide(sharing)},
)
async def shared_blocks(
    caller: AtDoor, sharing: Wanted, cursor: Cursor = None, limit: PageLimit = 50
) -> Page[SharedBlock]:
    after = place_of(cursor, tuple[str, str])
    stored_blocks = await caller.read(
        management.shared_blocks.list_blocks(
            caller.memory, tenant_of(caller), sharing, after, limit + 1
        )
    )
    page, next_cursor = window(
        stored_blocks, limit, lambda b: (b.block.label, b.id), lambda b: len(b.block.value)
    )
    return Page(await show_blocks(caller, page), next_cursor)


@post(
    "/shared-blocks",
    status_code=201,
    summary="Make a shared block",
    operation_class=describe_body(SharedPost),
)
async def make_block(caller: AtDoor) -> Response[SharedBlock]:
    check_operator(caller)
    block_post = await caller.parse_body(SharedPost)
    block = CoreBlock(block_post.label, "", block_post.description, block_post.limit)
    with translate_errors():
        caller.memory.policy.screen.check("value", block_post.value)
        change = BlockEdit(block_post.value, read_only=block_post.read_only)
        block = management.shared_blocks.new_block(block, change)
    members = [(await _parse_member(caller, member), member.write) for member in block_post.members]
    stored_block = await caller.write(
        management.shared_blocks.create_block(
            caller.memory,
            tenant_of(caller),
            NewShared(block, block_post.default_write, members),
            _source(caller),
        )
    )
    block_response = await _show(caller, stored_block)
    return Response(block_response.content, status_code=201, headers=block_response.headers)


async def _parse_member(caller: ManagementRequest, member_post: MemberPost) -> MemberName:
    member = parse_member(member_post)
    if member is None:
        raise BadRequest(
            "Each of `members` names one member: a user (with an agent, if wanted), an agent, a "
            "team, a project, or everyone.",
            param="members",
        )
    return await find_member(caller, member)


@get("/shared-blocks/{ident:str}", summary="One shared block")
async def shared_block(caller: AtDoor, ident: FromPath[str]) -> Response[SharedBlock]:
    return await _show(caller, await find_block(caller, name_block(caller, ident)))


@put(
    "/shared-blocks/{ident:str}",
    summary="Replace the value of a shared block",
    operation_class=describe_body(SharedPut),
)
async def put_block(caller: AtDoor, ident: FromPath[str]) -> Response[SharedBlock]:
    return await _change(caller, ident, await caller.parse_body(SharedPut))


@patch(
    "/shared-blocks/{ident:str}",
    summary="Change a shared block",
    operation_class=describe_body(SharedPatch),
)
async def patch_block(caller: AtDoor, ident: FromPath[str]) -> Response[SharedBlock]:
    return await _change(caller, ident, await caller.parse_body(SharedPatch))


@post(
    "/shared-blocks/{ident:str}/append",
    status_code=200,
    summary="Add a line to a shared block; never a 409",
    operation_class=describe_body(AppendPost),
)
async def append(caller: AtDoor, ident: FromPath[str]) -> Response[SharedBlock]:
    block_name = name_block(caller, ident)
    append_post = await caller.parse_body(AppendPost)
    with translate_errors():
        caller.memory.policy.screen.check("content", append_post.content)
    how = management.shared_blocks.append_content(append_post.content)
    source = replace(_source(caller, await _find_writer(caller, block_name)), expect=None)
    now = await caller.write(
        management.shared_blocks.edit_block(caller.memory, block_name, how, source, OutsideEdit())
    )
    assert now is not None  # noqa: S101 - an append never deletes
    return await _show(caller, now)


@delete(
    "/shared-blocks/{ident:str}",
    status_code=200,
    summary="Delete a shared block; undo restores it",
)
async def delete_block(caller: AtDoor, ident: FromPath[str]) -> Gone:
    block_name = name_block(caller, ident)
    await _read_access(caller, block_name)
    check_operator(caller)
    await _edit(caller, block_name, management.shared_blocks.delete_block, OutsideEdit())
    return Gone(block_name[1], KIND)


@get("/shared-blocks/{ident:str}/versions", summary="A shared block's history, newest first")
async def versions(
    caller: AtDoor, ident: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[SharedVersion]:
    block_name = name_block(caller, ident)
    before = place_of(cursor, int)
    await _read_access(caller, block_name)
    check_operator(caller)
    rows = await caller.read(
        management.shared_blocks.list_versions(caller.memory, block_name, before, limit + 1)
    )
    page, next_cursor = window(
        [SharedVersion(**{**row, "created_at": iso(row["created_at"])}) for row in rows],
        limit,
        lambda v: v.version,
        lambda v: len(v.before or "") + len(v.after or ""),
    )
    return Page(page, next_cursor)


@post(
    "/shared-blocks/{ident:str}/undo",
    status_code=200,
    summary="Undo the newest edit of a shared block; repeat to undo earlier ones",
)
async def undo(caller: AtDoor, ident: FromPath[str]) -> Response[SharedBlock | Gone]:
    block_name = name_block(caller, ident)
    writer = await _find_writer(caller, block_name)
    by = OutsideEdit(only=None if writer is None else caller.principal.only)
    now = await caller.write(
        management.shared_blocks.undo_edit(caller.memory, block_name, _source(caller, writer), by)
    )
    if now is None:
        return Response(Gone(block_name[1], KIND))
    block_response = await _show(caller, now)
    return Response(block_response.content, headers=block_response.headers)


ROUTES = (
    shared_blocks,
    make_block,
    shared_block,
    put_block,
    patch_block,
    append,
    delete_block,
    versions,
    undo,
)

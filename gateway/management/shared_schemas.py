"""The objects of shared blocks in the management API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from memory import iso
from memory.export_format import Content, Description, Label, Limit, Name
from memory.management.shared_blocks import MemberName, StoredMember, StoredShared

# Of a new block.
MOST_MEMBERS = 10_000


class SharedMember(msgspec.Struct, omit_defaults=True):
    """One membership: of a user (with one agent, if it is named), an agent, or everyone."""

    write: bool
    joined_at: str
    user: str = ""
    agent: str = ""
    team: str = ""
    project: str = ""
    everyone: bool = False


class UpdatedBy(msgspec.Struct):
    """Who made the newest version. user, agent: of the request, null for none."""

    actor: str
    user: str | None
    agent: str | None


class SharedBlock(msgspec.Struct):
    """limit in characters. members: the first of them; their own route lists all."""

    id: str
    label: str
    description: str
    value: str
    limit: int
    read_only: bool
    default_write: bool
    version: int
    members: list[SharedMember]
    updated_at: str
    updated_by: UpdatedBy
    object: str = "shared_block"


class SharedVersion(msgspec.Struct):
    """before, after: null where there was none, or where it was erased."""

    version: int
    before: str | None
    after: str | None
    actor: str
    user: str | None
    agent: str | None
    request_id: str | None
    tool_call_id: str | None
    created_at: str


class _Sent(msgspec.Struct, forbid_unknown_fields=True):
    pass


class MemberPost(_Sent):
    """One of user (with an agent, if wanted), agent, team, project, everyone."""

    user: Name | None = None
    agent: Name | None = None
    team: Name | None = None
    project: Name | None = None
    everyone: bool = False
    write: bool | None = None


class SharedPost(_Sent):
    """limit in characters. default_write: what members get that do not say whether they write."""

    label: Label
    description: Description = ""
    value: str = ""
    limit: Limit = 4000
    read_only: bool = False
    default_write: bool = False
    members: Annotated[list[MemberPost], msgspec.Meta(max_length=MOST_MEMBERS)] = []


class SharedPut(_Sent):
    """What is left out stays as it is."""

    value: str
    description: Description | None = None
    limit: Limit | None = None
    read_only: bool | None = None
    default_write: bool | None = None


class SharedPatch(_Sent):
    value: str | None = None
    description: Description | None = None
    limit: Limit | None = None
    read_only: bool | None = None
    default_write: bool | None = None


class AppendPost(_Sent):
    """content: one line more, or several."""

    content: Content


class MemberPut(_Sent):
    write: bool | None = None


def member_object(member: StoredMember) -> SharedMember:
    """Return a membership as the API shows it."""
    (kind, name, agent) = member.member
    write = member.write
    joined_at = iso(member.joined_at)
    return SharedMember(
        write,
        joined_at,
        user=name if kind == "user" else "",
        agent=name if kind == "agent" else agent,
        team=name if kind == "team" else "",
        project=name if kind == "project" else "",
        everyone=kind == "everyone",
    )


def block_object(block: StoredShared, members: list[StoredMember]) -> SharedBlock:
    """Return a shared block as the API shows it."""
    core_block = block.block
    return SharedBlock(
        core_block.id,
        core_block.label,
        core_block.description,
        core_block.value,
        core_block.limit,
        core_block.read_only,
        block.default_write,
        core_block.version,
        [member_object(member) for member in members],
        iso(core_block.updated_at),
        UpdatedBy(block.actor, block.user, block.agent),
    )


def parse_member(member_post: MemberPost) -> MemberName | None:
    """Return the member that a body names; None if it names none, or several."""
    kinds = [kind for kind in ("user", "agent", "team", "project") if getattr(member_post, kind)]
    if member_post.everyone:
        if not kinds:
            return MemberName("everyone")
        return None
    if kinds in (["user"], ["user", "agent"]):
        return MemberName("user", (member_post.user or "").strip(), member_post.agent or "")
    if len(kinds) != 1:
        return None
    return MemberName(kinds[0], getattr(member_post, kinds[0]))

"""Recall memory over HTTP: conversations, their messages, a chat brought along, explain records."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery
from sqlalchemy import Connection

from gateway.errors import BadRequest, NotFound, quoted
from gateway.errors import Conflict as Ambiguous
from gateway.front import segment
from gateway.manage import shapes
from gateway.manage.door import AtDesk, AtDoor, Caller, Cursor, PageLimit, told, window
from gateway.manage.searching import Sought
from gateway.manage.shapes import (
    Conversation,
    ConversationPost,
    Gone,
    Json,
    Message,
    MessageHit,
    Page,
    WholeConversation,
    place_of,
    taking,
    time_of,
)
from memory import erasing
from memory.messages import text_of
from memory.portable import SAID
from memory.search import iso
from memory.stores.sql import conversations as rows
from memory.stores.sql import messages as message_rows
from memory.stores.sql import owners
from memory.stores.sql.importing import bring
from memory.stores.sql.pieces import Glance
from memory.stores.sql.transcripts import Said


def _shown(found: rows.Found) -> Conversation:
    return Conversation(
        found.name,
        found.user,
        found.agent,
        found.forked_from,
        found.messages,
        iso(found.created_at),
        iso(found.updated_at),
    )


def _message(row: dict[str, Any], conversation: str) -> Message:
    body = message_rows.said(row["body"], row["role"], row["content"])
    return Message(
        row["public_id"],
        row["role"],
        body.get("content"),
        conversation,
        iso(row["created_at"]),
        row["aborted"],
        body.get("name"),
        body.get("tool_calls"),
        body.get("tool_call_id"),
    )


def _messages(found: list[dict[str, Any]], limit: int, conversation: str) -> Page[Message]:
    mine, rest = window(
        found, limit, lambda m: m["id"], lambda m: len(m["body"]) + len(m["content"])
    )
    return Page([_message(m, conversation) for m in mine], rest)


@get("/users/{user:str}/conversations", summary="A user's conversations, newest first")
async def conversations(
    desk: AtDesk, cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Conversation]:
    before = place_of(cursor, int)

    def work(conn: Connection) -> list[rows.Found]:
        scope_id = owners.find(conn, desk.scope)
        return [] if scope_id is None else rows.page(conn, scope_id, before, limit + 1)

    mine, rest = window(await desk.read(work), limit, lambda c: c.key)
    return Page([_shown(c) for c in mine], rest)


@post(
    "/users/{user:str}/conversations",
    status_code=200,
    summary="Bring an existing chat along",
    operation_class=taking(ConversationPost),
)
async def bring_conversation(desk: AtDesk) -> Conversation:
    caller, hand = desk.caller, desk.hand()
    new = shapes.brought(await caller.much(), caller.rows)
    said = await _said(new.messages)
    with told():
        found = await bring(caller.gateway.memory.db, hand, said, new.id)
    caller.gateway.worker.wake()
    return _shown(found)


async def _said(messages: list[msgspec.Raw]) -> list[Said]:
    """Reads them one by one; others go on meanwhile. Raises BadRequest naming the message."""
    now, glance, out = time.time(), Glance(), []
    for i, raw in enumerate(messages):
        out.append(_one_said(shapes.message_of(raw, f"messages[{i}]"), f"messages[{i}]", now))
        await glance.rest()
    return out


def _one_said(message: Json, where: str, now: float) -> Said:
    """Raises BadRequest."""
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(message.get("role"), str):
        raise BadRequest(f"`{where}` needs a `role`.", param=where)
    if not (
        content is None
        or isinstance(content, str)
        or (isinstance(content, list) and all(isinstance(p, dict) for p in content))
    ):
        raise BadRequest(
            f"`{where}.content` must be a string, a list of parts, or null, not {quoted(content)}.",
            param=f"{where}.content",
        )
    if calls is not None and not (
        isinstance(calls, list) and all(isinstance(c, dict) for c in calls)
    ):
        raise BadRequest(
            f"`{where}.tool_calls` must be a list of objects, not {quoted(calls)}.",
            param=f"{where}.tool_calls",
        )
    if (size := len(text_of(message))) > SAID:
        raise BadRequest(
            f"`{where}` has {size} characters; at most {SAID} are allowed.", param=where
        )
    told_at = message.pop("created_at", None)
    if told_at is not None and not isinstance(told_at, str):
        raise BadRequest(
            f"`{where}.created_at` is {quoted(told_at)}: give an ISO 8601 time.",
            param=f"{where}.created_at",
        )
    at = time_of(told_at, f"{where}.created_at")
    return Said(message, now if at is None else at)


@get(
    "/users/{user:str}/conversations/{ident:str}/messages",
    summary="A conversation's messages, oldest first",
)
async def messages(
    desk: AtDesk, ident: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Message]:
    name, after = segment(ident), place_of(cursor, int) or 0

    def work(conn: Connection) -> list[dict[str, Any]] | None:
        scope_id = owners.find(conn, desk.scope)
        found = None if scope_id is None else rows.named(conn, scope_id, name)
        return None if found is None else message_rows.page(conn, found.key, after, limit + 1)

    listed = await desk.read(work)
    if listed is None:
        raise NotFound(f"This user has no conversation {name[:80]!r}.")
    return _messages(listed, limit, name)


@get(
    "/users/{user:str}/messages/search",
    summary="Search everything said with a user; without words, the newest",
)
async def search_messages(
    desk: AtDesk, search: Sought, role: FromQuery[str | None] = None
) -> Page[MessageHit]:
    query = search.by(role)
    scope_id = await desk.scope_id()
    if scope_id is None:
        return Page([])
    with told():
        found, rest = search.page(
            await desk.caller.gateway.memory.retrieval.messages(scope_id, query)
        )
    return Page(
        [
            MessageHit(
                h["public_id"],
                h["content"],
                h["score"],
                iso(h["created_at"]),
                h["why"],
                h["role"],
                h["conversation"],
            )
            for h in found
        ],
        rest,
    )


@dataclass(slots=True)
class Owner:
    """Whose conversation is meant, where several have one of its name."""

    user: str | None
    agent: str | None


async def whose(user: FromQuery[str | None] = None, agent: FromQuery[str | None] = None) -> Owner:
    return Owner(user, agent)


Whose = NamedDependency[Owner]


def _one(conn: Connection, caller: Caller, name: str, which: Owner) -> rows.Found:
    """Raises NotFound, Ambiguous."""
    found = rows.reached(conn, caller.reach, name, which.user, which.agent)
    if not found:
        raise NotFound(f"There is no conversation {name[:80]!r} that this key may see.")
    if len(found) > 1:
        raise Ambiguous(
            f"Several conversations are named {name[:80]!r}. Say whose with ?user= (and ?agent=, ?tenant=).",
            param="user",
            code="ambiguous",
        )
    return found[0]


@get("/conversations/{ident:str}", summary="Any conversation this key may see, with its messages")
async def conversation(
    caller: AtDoor, ident: FromPath[str], whose: Whose, cursor: Cursor = None, limit: PageLimit = 50
) -> WholeConversation:
    name, after = segment(ident), place_of(cursor, int) or 0

    def work(conn: Connection) -> tuple[rows.Found, list[dict[str, Any]]]:
        found = _one(conn, caller, name, whose)
        return found, message_rows.page(conn, found.key, after, limit + 1)

    found, listed = await caller.read(work)
    return WholeConversation(
        **msgspec.structs.asdict(_shown(found)), messages=_messages(listed, limit, name)
    )


@delete(
    "/conversations/{ident:str}",
    status_code=200,
    summary="Delete a conversation and what hangs on it",
)
async def delete_conversation(caller: AtDoor, ident: FromPath[str], whose: Whose) -> Gone:
    name = segment(ident)

    with told():
        found = await erasing.delete_conversation(
            caller.gateway.memory.db, lambda conn: _one(conn, caller, name, whose)
        )
    caller.gateway.worker.wake()
    await asyncio.to_thread(caller.gateway.memory.spill.forget_conversation, found.key)
    return Gone(name, "conversation")


@get("/explain/{ident:str}", summary="What the memory did to one request")
async def explain(caller: AtDoor, ident: FromPath[str]) -> Json:
    found = await caller.read(lambda conn: rows.explained(conn, caller.reach, ident))
    if found is None:
        raise NotFound(
            f"There is no explain record {ident[:80]!r} that this key may see. They are kept for memory.explain_days days."
        )
    return {**found, "created_at": iso(found["created_at"])}


ROUTES = (
    conversations,
    bring_conversation,
    messages,
    search_messages,
    conversation,
    delete_conversation,
    explain,
)

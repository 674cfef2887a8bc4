"""The inbox of an agent over HTTP: what waits for its next turn, and what was delivered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery

from gateway.auth.user_resolver import find_owner
from gateway.errors import BadRequest, Forbidden
from gateway.http.paths import segment
from gateway.management.agents import find_agent
from gateway.management.context import (
    AtDoor,
    Cursor,
    ManagementRequest,
    PageLimit,
    check_name,
    translate_errors,
    window,
)
from gateway.management.schemas import Gone, Page, describe_body, place_of
from gateway.routing.agents import Agent
from memory import home_of, iso, management
from memory.management.inbox import InboxAddress, InboxMessage, NewInboxMessage

KIND = "inbox_message"
TEXT_CHARACTERS = 32_000
SENDER_CHARACTERS = 256


class AgentMessage(msgspec.Struct, kw_only=True):
    """A message to an agent. delivered_at: null while it waits."""

    id: str
    sender: str = msgspec.field(name="from")
    text: str
    created_at: str
    delivered_at: str | None
    object: str = KIND


class AgentMessagePost(msgspec.Struct, forbid_unknown_fields=True):
    """from: what the agent is told of the sender; the key's name where it is left out."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_CHARACTERS)]
    sender: Annotated[str, msgspec.Meta(max_length=SENDER_CHARACTERS)] = msgspec.field(
        name="from", default=""
    )


def address_of(caller: ManagementRequest, agent: Agent, user: str | None) -> InboxAddress:
    """Return an agent's inbox. user: for home `user`. Raises BadRequest, Forbidden."""
    if agent.settings.home == "agent":
        if not (caller.principal.trusted or caller.principal.admin):
            raise Forbidden(
                "Only trusted and admin keys reach the inbox of an agent that has a memory of its "
                "own.",
                code="trusted_key_needed",
            )
        return InboxAddress(caller.tenant, home_of(agent.name), agent.name)
    if user is None:
        raise BadRequest(
            f"Each user has a memory of their own with the agent {agent.name!r}: name one with "
            "?user=.",
            param="user",
        )
    name = check_name(user.strip(), "user")
    owner, _ = find_owner(caller.principal, name)
    return InboxAddress(caller.tenant, owner, agent.name)


async def address(
    caller: AtDoor, name: FromPath[str], user: FromQuery[str | None] = None
) -> InboxAddress:
    """Return the inbox that a request is about. Raises ResourceNotFound, Forbidden."""
    return address_of(caller, await find_agent(caller, segment(name)), user)


ToInbox = NamedDependency[InboxAddress]
GIVEN = {"address": Provide(address)}


def message_object(row: InboxMessage) -> AgentMessage:
    delivered = None
    if row.delivered_at is not None:
        delivered = iso(row.delivered_at)
    return AgentMessage(
        id=row.id,
        sender=row.sender,
        text=row.text,
        created_at=iso(row.created_at),
        delivered_at=delivered,
    )


@get(
    "/agents/{name:str}/inbox",
    summary="Messages to an agent, newest first",
    dependencies=GIVEN,
)
async def messages(
    caller: AtDoor, address: ToInbox, cursor: Cursor = None, limit: PageLimit = 50
) -> Page[AgentMessage]:
    after = place_of(cursor, tuple[float, str])
    rows = await caller.read(
        management.inbox.list_messages(caller.memory, address, after, limit + 1)
    )
    page, next_cursor = window(rows, limit, lambda r: (r.created_at, r.id), lambda r: len(r.text))
    return Page([message_object(row) for row in page], next_cursor)


@post(
    "/agents/{name:str}/inbox",
    status_code=201,
    summary="Leave a message for an agent's next turn",
    operation_class=describe_body(AgentMessagePost),
    dependencies=GIVEN,
)
async def post_message(caller: AtDoor, address: ToInbox) -> AgentMessage:
    message_post = await caller.parse_body(AgentMessagePost)
    with translate_errors():
        caller.memory.policy.screen.check("text", message_post.text)
    sender = message_post.sender.strip() or caller.principal.key
    new_message = NewInboxMessage(address, sender, message_post.text)
    return message_object(
        await caller.write(management.inbox.put_message(caller.memory, new_message))
    )


@delete(
    "/agents/{name:str}/inbox/{ident:str}",
    status_code=200,
    summary="Take back a message to an agent",
    dependencies=GIVEN,
)
async def take_back(caller: AtDoor, address: ToInbox, ident: FromPath[str]) -> Gone:
    ident = segment(ident)
    await caller.write(management.inbox.take_back(caller.memory, address, ident))
    return Gone(ident, KIND)


ROUTES = (messages, post_message, take_back)

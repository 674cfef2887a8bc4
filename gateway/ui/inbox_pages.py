"""The inbox of an agent: what waits for its next turn, what was delivered, and a new message."""

from __future__ import annotations

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.management import inbox as api
from gateway.management.agents import find_agent
from gateway.routing.agents import Agent
from gateway.ui.agents import agent_page, where
from gateway.ui.form_request import FormRequest, path_segment
from gateway.ui.texts import link
from gateway.ui.visitor import AtVisit, Visitor, go_to
from memory.management.inbox import InboxAddress

PAGE = 50


def _address(visitor: Visitor, agent: Agent, user: str) -> InboxAddress | None:
    """Return the inbox; None while no user is named whose inbox it is. Raises Forbidden."""
    if agent.settings.home != "agent" and not user.strip():
        return None
    return api.address_of(visitor.caller, agent, user)


@get("/agent/inbox")
async def inbox_page(
    visitor: AtVisit,
    name: FromQuery[str],
    user: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Template:
    agent = await find_agent(visitor.caller, name)
    address = _address(visitor, agent, user)
    inbox_list = None
    if address is not None:
        inbox_list = await api.messages.fn(visitor.caller, address, cursor or None, PAGE)
    return agent_page(
        visitor,
        "agent-inbox.html",
        agent,
        user=user.strip(),
        messages=inbox_list.data if inbox_list else [],
        rest=inbox_list.next_cursor if inbox_list else None,
        is_open=address is not None,
    )


def _inbox_link(visitor: Visitor, name: str, user: str) -> str:
    return link("/agent/inbox", user=user, **where(visitor, name))


@post("/agent/inbox", status_code=200)
async def leave_message(
    visitor: AtVisit, name: FromQuery[str], user: FromQuery[str] = ""
) -> Redirect:
    """Leave a message for the agent's next turn."""
    agent = await find_agent(visitor.caller, name)
    address = api.address_of(visitor.caller, agent, user or None)
    body = {"text": visitor.field("text"), "from": visitor.field("from")}
    await api.post_message.fn(FormRequest(visitor, body), address)
    return go_to(_inbox_link(visitor, name, user))


@post("/agent/inbox/take-back", status_code=200)
async def take_back_message(
    visitor: AtVisit, name: FromQuery[str], user: FromQuery[str] = ""
) -> Redirect:
    agent = await find_agent(visitor.caller, name)
    address = api.address_of(visitor.caller, agent, user or None)
    await api.take_back.fn(FormRequest(visitor), address, path_segment(visitor.field("id")))
    return go_to(_inbox_link(visitor, name, user))


ROUTES = (inbox_page, leave_message, take_back_message)

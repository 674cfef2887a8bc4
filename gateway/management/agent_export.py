"""An agent as an `.af` file, with what it remembers.

What a user has with an agent of home `user` is that user's, and is in no agent's file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.errors import TooLarge
from gateway.http.json_thread import run_heavy
from gateway.management import agents, blocks, conversations, passages
from gateway.management.context import (
    ManagementRequest,
    UserContext,
    open_user,
    with_agents_blocks,
)
from gateway.management.schemas import Json, Page
from gateway.routing.agents import Agent
from gateway.wire.chat import encode
from memory import AGENT_PREFIX

if TYPE_CHECKING:
    from memory.formats.agent_file import Remembered

PAGE = 200
# Of a file that is made here; `mnemogate agents export` has no such limit.
MAX_ITEMS = 100_000
SPOKEN = ("user", "assistant")


async def write_agent(caller: ManagementRequest, agent: Agent) -> bytes:
    """Return an agent as a file. Raises Forbidden, TooLarge, StoreDown."""
    from memory.formats import agent_file

    memory = await _read_memory(caller, agent)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return await run_heavy(lambda: encode(agent_file.write(agents.shown_agent(agent), memory, at)))


async def _read_memory(caller: ManagementRequest, agent: Agent) -> Remembered:
    """Return what an agent remembers; its profile's blocks alone where its users do."""
    from memory.formats.agent_file import Remembered

    if agent.settings.home != "agent":
        return Remembered(agents.shown_agent(agent)["blocks"], [], [])
    agent_context = await open_own_memory(caller, agent.name)
    labels = [item async for item in _items(lambda c: blocks.blocks.fn(agent_context, c, PAGE))]
    passage_items = [
        item async for item in _items(lambda c: passages.passages.fn(agent_context, c, PAGE, False))
    ]
    return Remembered(
        labels,
        passage_items[::-1],
        await _read_messages(agent_context, MAX_ITEMS - len(passage_items)),
    )


async def open_own_memory(caller: ManagementRequest, name: str) -> UserContext:
    """Return the context of the one memory of an agent. Raises Forbidden, StoreDown."""
    return await with_agents_blocks(open_user(caller, AGENT_PREFIX + name, name))


async def _read_messages(agent_context: UserContext, room: int) -> list[Json]:
    """Return what was said to an agent, oldest first. Raises TooLarge."""
    talks = [
        talk
        async for talk in _items(lambda c: conversations.conversations.fn(agent_context, c, PAGE))
    ]
    messages: list[Json] = []
    for talk in sorted(talks, key=lambda talk: str(talk["created_at"])):
        read_page = partial(_read_talk, agent_context, talk["id"])
        async for message in _items(read_page):
            if message["role"] in SPOKEN:
                messages.append(message)
            if len(messages) > room:
                raise TooLarge(
                    f"This agent remembers more than {MAX_ITEMS} messages and passages. Use "
                    "`mnemogate agents export`."
                )
    return messages


async def _read_talk(agent_context: UserContext, name: str, cursor: str | None) -> Page[Any]:
    page: Page[Any] = await conversations.messages.fn(agent_context, name, cursor, PAGE)
    return page


async def _items(read_page: Callable[[str | None], Awaitable[Page[Any]]]) -> AsyncIterator[Json]:
    """Yield the entries of a list of the API, page by page."""
    cursor = None
    while True:
        page = await read_page(cursor)
        for entry in page.data:
            yield msgspec.to_builtins(entry)
        if (cursor := page.next_cursor) is None:
            return

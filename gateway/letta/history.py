"""The one conversation of an agent: its items listed, begun and reset."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from gateway.errors import ResourceNotFound
from gateway.letta.call import LettaCall
from gateway.letta.errors import Unprocessable
from gateway.letta.ids import place_of
from gateway.letta.items import RETURNS, TurnOfItems, thoughts_in
from gateway.letta.sent import read_messages
from gateway.routing.agents import Agent
from gateway.wire.chat import Json
from memory import (
    ConversationName,
    EditSource,
    ImportedMessage,
    ManagementActor,
    Scope,
    VisibleScopes,
    home_of,
    iso,
    management,
    text_of,
)
from memory.management.exchanges import Exchange

# As many as memory handles in a request.
MAX_FIRST_MESSAGES = 5_000
# Its name among the conversations of the agent's memory.
CONVERSATION = "letta"
# Turns whose items an agent's state names.
IDS_TOLD = 50
# At once.
TURNS_READ = 50
KINDS = {"user": "user_message", "system": "system_message", "developer": "system_message"}


def scope_of(call: LettaCall, agent: Agent) -> Scope:
    """Return the one memory of an agent, or its part of the project that the request names."""
    return call.memory.scope(call.tenant, home_of(agent.name), agent.name, call.project)


async def newest_ids(call: LettaCall, agent: Agent) -> list[str]:
    """Return the ids of the newest items, oldest first."""
    turns = await _turns(call, agent, None, IDS_TOLD, newest=True)
    return [item["id"] for turn in reversed(turns) for item in items_of(call, turn)]


async def _turns(
    call: LettaCall, agent: Agent, place: int | None, limit: int, *, newest: bool
) -> list[Exchange]:
    conversation = scope_of(call, agent), CONVERSATION
    return await call.read(
        management.exchanges.list_exchanges(call.memory, conversation, place, limit, newest=newest)
    )


async def list_items(
    call: LettaCall, agent: Agent, kinds: frozenset[str] | None, limit: int, *, newest: bool
) -> list[Json]:
    """Return the items behind `after`, or next to `before`, in the order that is asked for."""
    after = call.word("after")
    before = call.word("before")
    if not before:
        return await _items_from(call, agent, _Walk(after, kinds, limit, newest))
    items = await _items_from(call, agent, _Walk(before, kinds, limit, not newest))
    return items[::-1]


class _Walk:
    """A way through the items. begin: the id behind which it begins, "" for the first."""

    def __init__(self, begin: str, kinds: frozenset[str] | None, limit: int, newest: bool) -> None:
        if begin:
            self.place = place_of(begin)
        else:
            self.place = None
        self.is_lost = bool(begin) and self.place is None
        self.kinds = kinds
        self.limit = limit
        self.is_newest_first = newest

    def takes(self, item: Json) -> bool:
        """Tell whether an item is behind the beginning, and of a kind that is asked for."""
        if self.kinds is not None and item["message_type"] not in self.kinds:
            return False
        place = place_of(item["id"])
        if self.place is None or place is None:
            return True
        if self.is_newest_first:
            return place < self.place
        return place > self.place

    def first(self) -> int | None:
        """Return the row key behind which turns are read, so that the place's own is one."""
        if self.place is None:
            return None
        if self.is_newest_first:
            return self.place.turn + 1
        return self.place.turn - 1


async def _items_from(call: LettaCall, agent: Agent, walk: _Walk) -> list[Json]:
    if walk.is_lost:
        return []
    out: list[Json] = []
    at = walk.first()
    while len(out) < walk.limit:
        turns = await _turns(call, agent, at, TURNS_READ, newest=walk.is_newest_first)
        for turn in turns:
            items = items_of(call, turn)
            out += filter(walk.takes, reversed(items) if walk.is_newest_first else items)
        if len(turns) < TURNS_READ:
            break
        at = turns[-1].key
    return out[: walk.limit]


def items_of(call: LettaCall, turn: Exchange) -> list[Json]:
    """Return the items of a stored turn, in their order."""
    screen = call.memory.policy.screen
    turn_items = TurnOfItems(turn.key, None, iso(turn.at) or "")
    out: list[Json] = []
    answer: Json | None = None
    for number, row in enumerate(turn.messages):
        message = management.conversations.read_message(row, screen)
        if message.get("role") == "assistant":
            answer = message
        elif kind := KINDS.get(str(message.get("role"))):
            out.append(turn_items.item(number, kind, content=text_of(message)))
    hidden, round_messages = _rounds_of(turn_items, turn)
    out += hidden
    if answer is not None:
        number = max(len(turn.rounds), _last_round(turn)) + 1
        thoughts = [thoughts_in(message) for message in round_messages]
        last_message = {
            "content": _without(text_of(answer), map(text_of, round_messages)),
            "reasoning": _without(thoughts_in(answer), thoughts),
            "tool_calls": answer.get("tool_calls"),
        }
        out += turn_items.of_message(number, last_message)
    return out


def _rounds_of(turn_items: TurnOfItems, turn: Exchange) -> tuple[list[Json], list[Json]]:
    """Return the items of the rounds with memory calls, and the model's messages in them."""
    out: list[Json] = []
    round_messages: list[Json] = []
    for number, entry in enumerate(turn.rounds, 1):
        choice = (entry["reply"].get("choices") or [{}])[0]
        message = choice.get("message") or {}
        out += turn_items.of_message(number, message)
        out += turn_items.of_results(number, message.get("tool_calls") or [], entry["results"])
        round_messages.append(message)
    places: Counter[int] = Counter()
    for index, call in enumerate(turn.calls):
        number = _round_of(call)
        place = places[number]
        places[number] = places[number] + 1
        call_item = {"id": f"call_{turn.key:016x}{index}", "function": call}
        out += [
            turn_items.call(number, place, call_item),
            turn_items.result(number, place, call_item, str(call.get("result") or "")),
        ]
    return out, round_messages


def _round_of(call: Json) -> int:
    number = call.get("round")
    if isinstance(number, int) and 0 < number < RETURNS:
        return number
    return 1


def _last_round(turn: Exchange) -> int:
    return max(map(_round_of, turn.calls), default=0)


def _without(text: str, earlier_texts: Iterable[str]) -> str:
    """Return what an answer says in its last round: the client saw all of it in one text."""
    for before in filter(None, earlier_texts):
        if text.startswith(before):
            text = text[len(before) :].lstrip("\n")
    return text


def begin_history(call: LettaCall, messages: Any) -> Callable[[Agent], Awaitable[None]]:
    """Return what lets an agent's conversation begin with messages. Raises Unprocessable."""
    if isinstance(messages, list) and len(messages) > MAX_FIRST_MESSAGES:
        raise Unprocessable(
            f"`initial_message_sequence` has {len(messages)} messages; at most "
            f"{MAX_FIRST_MESSAGES} are allowed.",
            param="initial_message_sequence",
        )
    if messages:
        first_messages = read_messages(messages, "initial_message_sequence", call.drop)
    else:
        first_messages = []
    now = time.time()

    async def begin(agent: Agent) -> None:
        if not first_messages:
            return
        actor = ManagementActor(scope_of(call, agent), {}, EditSource("api", call.id))
        rows = [
            ImportedMessage(call.memory.policy.screen.mask_message(m), now) for m in first_messages
        ]
        await call.write(
            management.conversations.import_conversation(call.memory, actor, rows, CONVERSATION)
        )

    return begin


async def reset_history(call: LettaCall, agent: Agent) -> None:
    """Delete an agent's conversation; its blocks and passages stay."""
    home = home_of(agent.name)
    reach = VisibleScopes(call.tenant, [home])
    conversation = ConversationName(CONVERSATION, home, agent.name)
    try:
        await call.write(
            management.conversations.delete_conversation(call.memory, reach, conversation)
        )
    except ResourceNotFound:
        # Nothing was said yet.
        return

"""Passages: the archival memory of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.errors import ResourceNotFound
from gateway.letta.agents import find_agent
from gateway.letta.blocks import actor_of
from gateway.letta.call import LettaCall, missing
from gateway.letta.errors import Unprocessable, wrong_type
from gateway.letta.history import scope_of
from gateway.letta.ids import digits_of, letta_id
from gateway.letta.paging import MAX_LIMIT, USUAL, order_of
from gateway.letta.route import LettaRoute
from gateway.management.context import translate_errors
from gateway.routing.agents import Agent
from gateway.wire.chat import Json
from memory import (
    ManagementActor,
    NewPassage,
    PassageFilter,
    SearchQuery,
    iso,
    management,
    parse_time,
)
from memory.export_format import CONTENT

CREATED = frozenset({"text", "tags", "created_at"})
# Tags of a search; hits.
MAX_TAGS, TOP = 16, 100
# Of a passage, as the management API has them.
MAX_PASSAGE_TAGS = 64
TAG_CHARACTERS = 256
Hit = dict[str, Any]


def shown_passage(row: Hit) -> Json:
    """Return a passage as the client knows it."""
    return {
        "id": letta_id("passage", row["id"]),
        "text": row["content"],
        "tags": row["tags"],
        "metadata": {},
        "embedding": None,
        "embedding_config": None,
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["created_at"]),
        "is_deleted": False,
    }


def _actor_of(call: LettaCall, agent: Agent) -> ManagementActor:
    """Return who edits the passages of an agent, in the project that the request names."""
    return replace(actor_of(call, agent), scope=scope_of(call, agent))


def own_id(ident: str) -> str:
    """Return our id of a passage. Raises ResourceNotFound."""
    if (digits := digits_of("passage", ident)) is None:
        raise missing("passage", ident)
    return f"passage_{digits}"


async def make_passage(call: LettaCall, ident: str) -> list[Json]:
    """Add a text; return the passages that it was split into."""
    agent = await find_agent(call, ident)
    request_body = {name: value for name, value in (await call.body()).items() if value is not None}
    call.drop(name for name in request_body if name not in CREATED)
    text = request_body.get("text")
    tags = request_body.get("tags", [])
    if not isinstance(text, str):
        raise wrong_type("text", text, str)
    if not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise wrong_type("tags", tags, list)
    at = _time("created_at", request_body.get("created_at"))
    return [shown_passage(row) for row in await add_passage(call, agent, text, tags, at)]


async def add_passage(
    call: LettaCall, agent: Agent, text: str, tags: Sequence[str], at: float | None
) -> list[Hit]:
    """Store a text in an agent's memory. Raises BadRequest for one that cannot be stored."""
    if len(text) > CONTENT:
        raise Unprocessable(
            f"`text` has {len(text)} characters; at most {CONTENT} are allowed.", param="text"
        )
    if len(tags) > MAX_PASSAGE_TAGS or any(len(tag) > TAG_CHARACTERS for tag in tags):
        raise Unprocessable(
            f"`tags` has more than {MAX_PASSAGE_TAGS} tags, or one of more than {TAG_CHARACTERS} "
            "characters.",
            param="tags",
        )
    with translate_errors():
        management.passages.check_passage(text, "fact", 0.5)
        call.memory.policy.screen.check("text", text)
    new_passage = NewPassage(text, tags, actor="api", created_at=at)
    return await call.write(
        management.passages.add_passage(call.memory, _actor_of(call, agent), new_passage)
    )


def _time(name: str, value: Any, *, end: bool = False) -> float | None:
    """Return a Unix time. Raises Unprocessable."""
    if value is None or value == "":
        return None
    try:
        return parse_time(value, end=end)
    except (ValueError, TypeError, OverflowError, AttributeError) as e:
        raise Unprocessable(
            f"`{name}` is {str(value)[:40]!r}: give an ISO 8601 date or time.", param=name
        ) from e


async def passages(call: LettaCall, ident: str) -> list[Json]:
    """List an agent's passages, oldest first."""
    agent = await find_agent(call, ident)
    is_newest_first = order_of(call, "asc") == "desc"
    limit = call.number("limit", USUAL, MAX_LIMIT)
    after = call.word("after")
    before = call.word("before")
    seek = call.word("search")
    if seek:
        return [shown_passage(hit) for hit in await _search(call, agent, SearchQuery(seek))]
    try:
        place = await _place_of(call, agent, before or after)
    except ResourceNotFound:
        return []
    # Towards older ones.
    backwards = is_newest_first != bool(before)
    if backwards:
        work = management.passages.list_passages(call.memory, scope_of(call, agent), place, limit)
    else:
        scope = scope_of(call, agent)
        work = management.passages.list_oldest(call.memory, scope, place or 0, limit)
    rows = await call.read(work)
    return [shown_passage(row) for row in (rows[::-1] if before else rows)]


async def _place_of(call: LettaCall, agent: Agent, ident: str) -> int | None:
    """Return the row key of a passage, None for none. Raises ResourceNotFound."""
    if not ident:
        return None
    scope = scope_of(call, agent)
    row = await call.read(management.passages.get_passage(call.memory, scope, own_id(ident)))
    return int(row["key"])


async def search_passages(call: LettaCall, ident: str) -> Json:
    """Search an agent's passages by words, and by meaning where that is configured."""
    agent = await find_agent(call, ident)
    query = SearchQuery(
        call.word("query"),
        since=_time("start_datetime", call.word("start_datetime")),
        until=_time("end_datetime", call.word("end_datetime"), end=True),
        limit=call.number("top_k", 10, TOP),
    )
    tags = call.words("tags")
    if len(tags) > MAX_TAGS:
        raise Unprocessable(f"`tags` has {len(tags)} tags; at most {MAX_TAGS}.", param="tags")
    if call.word("tag_match_mode", "any") == "all" or len(tags) < 2:
        hits = await _search(call, agent, query, tags)
    else:
        all_hits = [hit for tag in tags for hit in await _search(call, agent, query, [tag])]
        hits_by_id = {hit["id"]: hit for hit in all_hits}
        hits = sorted(hits_by_id.values(), key=lambda hit: -(hit.get("score") or 0))[: query.limit]
    results = [
        {
            "id": letta_id("passage", hit["id"]),
            "content": hit["content"],
            "timestamp": iso(hit["created_at"]) or "",
            "tags": hit["tags"],
        }
        for hit in hits
    ]
    return {"count": len(results), "results": results}


async def _search(
    call: LettaCall, agent: Agent, query: SearchQuery, tags: Sequence[str] = ()
) -> list[Hit]:
    passage_filter = PassageFilter(query, tags)
    scope = scope_of(call, agent)
    return await call.read(management.passages.search_passages(call.memory, scope, passage_filter))


async def delete_passage(call: LettaCall, ident: str, passage: str) -> Json:
    """Delete a passage of an agent."""
    agent = await find_agent(call, ident)
    actor = _actor_of(call, agent)
    await call.write(management.passages.delete_passage(call.memory, actor, own_id(passage)))
    return {"id": passage, "object": "passage", "deleted": True}


ROUTES = (
    LettaRoute("POST", "agents/*/archival-memory", make_passage, "Add a passage"),
    LettaRoute("GET", "agents/*/archival-memory", passages, "The passages of an agent"),
    LettaRoute("GET", "agents/*/archival-memory/search", search_passages, "Search passages"),
    LettaRoute("DELETE", "agents/*/archival-memory/*", delete_passage, "Delete a passage"),
)

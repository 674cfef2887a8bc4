"""Lets a tool of the operator answer for a vendor's own search, at a server that has none.

The model is offered the tool as a function. The client sees what the vendor would show: the search
with its hits, and citations where the answer names them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.apis.base import Composed, ReplyMask
from gateway.apis.chat.chat_format import ChatMask
from gateway.apis.chat.searched_answer import CitedTexts, replace_search_options
from gateway.apis.search.search_results import (
    SearchCitations,
    ShownHit,
    ShownSearch,
    message_blocks,
    read_search,
    response_items,
    searched_again,
    write_hit,
)
from gateway.apis.search.searching_mask import SearchingMask
from gateway.apis.search.vendor_search import (
    CHAT,
    MESSAGES,
    VendorSearch,
    replace_vendor_search,
)
from gateway.apis.translation.member_seal import MemberSeal, SealedMembers
from gateway.chat.intake.request import TurnInput
from gateway.state import GatewayState
from gateway.tools.registry import RegisteredTool
from gateway.wire.chat import Json, object_or_empty
from gateway.wire.own_marks import SEALED
from memory import Session, ToolCall
from memory.session.toolbox import Result, text_of_result


def stand_in_of(
    gateway: GatewayState, request: TurnInput, session: Session
) -> SearchStandIn | None:
    """Return what answers for the vendor's search of a request; None where it may not be used."""
    tool = gateway.toolbox.find_stand_in(request.principal.tenant)
    search = request.search
    if search is None or tool is None:
        return None
    if tool.name not in session.prompt.owned or tool.name in request.facts.tool_names:
        return None
    tool_names = {definition["function"]["name"] for definition in session.prompt.tools}
    # The request or its target takes no tools of ours.
    if not tool_names:
        return None
    seal = _SearchSeal(gateway.secret, request)
    return SearchStandIn(search, tool, seal, is_offered=tool.name in tool_names)


class _SearchSeal:
    """Seals hits for the memory that a request is about."""

    def __init__(self, secret: bytes, request: TurnInput) -> None:
        scope = f"\0search:{request.owner or ''}\0{request.agent}"
        self._seal = MemberSeal(secret, request.principal.tenant, scope)

    def close(self, query: str, hit: ShownHit) -> str:
        """Return a hit as the client is shown it."""
        members = {"query": query, "text": write_hit(hit)}
        return self._seal.close(SealedMembers(members)).removeprefix(SEALED)

    def open(self, hit: Any) -> Mapping[str, Any] | None:
        """Return what a hit that came back holds; None for another scope's, or another vendor's."""
        token = None
        if isinstance(hit, dict):
            token = hit.get("encrypted_content")
        sealed_members = None
        if isinstance(token, str):
            sealed_members = self._seal.open(f"{SEALED}{token}")
        if sealed_members is None:
            return None
        return sealed_members.members


class SearchStandIn:
    """Answers for the vendor's search of one request. is_offered: its function is, with ours."""

    def __init__(
        self, search: VendorSearch, tool: RegisteredTool, seal: _SearchSeal, *, is_offered: bool
    ) -> None:
        self._search = search
        self._seal = seal
        self._is_offered = is_offered
        self._function: Json = tool.definition["function"]
        self._unshown_searches: list[ShownSearch] = []
        self._citations = SearchCitations(seal.close)

    def compose(
        self, body: Composed, withheld: Collection[str], *, offers: bool, is_first: bool
    ) -> Composed:
        """Return a composed request with the function in place of the vendor's search.

        offers: tools of ours are offered. is_first: no round went before.
        """
        is_shown = offers and self._function["name"] not in withheld
        function = self._function if is_shown else None
        if self._search.form == CHAT:
            return replace_search_options(body, None if self._is_offered else function)
        sent_body = replace_vendor_search(body, self._search, function, is_first=is_first)
        if self._search.form == MESSAGES:
            name = self._function["name"]
            sent_body["messages"] = searched_again(sent_body["messages"], name, self._seal.open)
        return sent_body

    def take_in(self, calls: Sequence[ToolCall], results: Sequence[Result]) -> None:
        """Take in what calls of a round came to; those of the function are shown."""
        for call, result in zip(calls, results, strict=True):
            if call.name == self._function["name"]:
                query = object_or_empty(call.arguments.encode("utf-8", "replace")).get("query")
                search = read_search(str(query or ""), text_of_result(result))
                self._unshown_searches.append(search)
                self._citations.add(search)

    def show(self, mask: ReplyMask) -> bytes:
        """Return the events of searches that were not shown yet.

        Chat completions show none, only what the text behind them cites.
        """
        if isinstance(mask, ChatMask) and self._citations:
            mask.cite(partial(CitedTexts, self._citations))
        if not isinstance(mask, SearchingMask):
            return b""
        mask.citations = self._citations
        searches = self._unshown_searches
        self._unshown_searches = []
        return b"".join(mask.show_search(self._parts_of(search)) for search in searches)

    def _parts_of(self, search: ShownSearch) -> list[Json]:
        if self._search.form == MESSAGES:
            return message_blocks(search, self._seal.close)
        return response_items(search, shows_sources=self._search.shows_sources)

"""A request with a vendor's search, for a server that has none: what memory and tools see of it."""

from __future__ import annotations

from msgspec import structs

from gateway.apis.search.vendor_search import CHAT, find_vendor_search, without_vendor_search
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.tool_grants import list_granted
from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.tools.grants import any_matches
from gateway.upstream.bridged import BridgedUpstream


def prepare_search(gateway: GatewayState, request: TurnInput, target: Target) -> TurnInput:
    """Return a request as memory and tools see it: a vendor's search that the target lacks is ours.

    The same where there is none, or where the target has it.
    """
    entry = gateway.toolbox.stand_in
    if entry is None or request.whole_facts is None or request.mode not in ("full", "read"):
        return request
    search = find_vendor_search(request.api.name, request.body)
    if search is None or not lacks_search(target, search.form):
        return request
    if not any_matches(list_granted(gateway, request), entry.name):
        return request
    # An option is none of the tools that memory sees.
    if search.form == CHAT:
        return structs.replace(request, search=search)
    facts = request.api.facts(without_vendor_search(request.body, search))
    # What memory sees of the conversation is what it saw: the tools alone are others.
    facts_without = structs.replace(
        request.whole_facts, tool_names=facts.tool_names, takes_tools=facts.takes_tools
    )
    return structs.replace(request, whole_facts=facts_without, search=search)


def lacks_search(target: Target, form: str) -> bool:
    """Tell whether a target's server has no search of its own for requests of a format."""
    settings = target.settings
    if not settings.server_tools:
        return True
    if form == CHAT:
        return not settings.speaks_chat
    server = target.upstream
    return isinstance(server, BridgedUpstream) and server.bridges(form)

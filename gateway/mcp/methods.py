"""What each method of the protocol answers."""

from __future__ import annotations

from typing import NamedTuple

from gateway.mcp import prompts, resources, tools
from gateway.mcp.caller import DoorCaller
from gateway.mcp.protocol import RpcRequest, unknown_method
from gateway.wire.chat import Json
from memory import Memory

# Methods that look into a memory, each a request of the key's limits.
COUNTED = frozenset({"tools/call", "resources/read"})


class MethodAnswer(NamedTuple):
    """The result of a method. explain: the id of the record of a call."""

    result: Json
    explain: str = ""


LISTS = frozenset({"tools/list", "prompts/list", "resources/templates/list"})
KNOWN = LISTS | COUNTED | {"prompts/get", "resources/list"}


async def answer(memory: Memory, caller: DoorCaller, request: RpcRequest) -> MethodAnswer:
    """Answer a method about a memory. Raises GatewayError."""
    method = request.method
    if method == "tools/call":
        result = await tools.call_tool(memory, caller, request)
        return MethodAnswer(tools.result_of(result), result.explain)
    if method == "resources/read":
        return MethodAnswer(await resources.read_resource(memory, caller, request))
    if method == "resources/list":
        return MethodAnswer(await resources.list_resources(memory, caller))
    if method == "prompts/get":
        return MethodAnswer(prompts.get_prompt(request))
    if method == "tools/list":
        return MethodAnswer(await tools.list_tools(memory, caller))
    if method not in LISTS:
        raise unknown_method(request)
    lists = {
        "prompts/list": prompts.list_prompts(),
        "resources/templates/list": resources.TEMPLATES,
    }
    return MethodAnswer(lists[method])

"""MCP clients of agent frameworks, against the door: every tool is listed, one is called.

Arguments: the URL of the door, its key, and a command for the door over stdio.
"""

import asyncio
import json
import sys

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from pydantic_ai.mcp import MCPToolset, StdioTransport

URL, KEY, *COMMAND = sys.argv[1:]
HEADERS = {"Authorization": f"Bearer {KEY}"}
STDIO = {"command": COMMAND[0], "args": COMMAND[1:]}


async def openai_agents(server):
    async with server:
        names = sorted(tool.name for tool in await server.list_tools())
        content = {"label": "human", "content": "Likes openai-agents"}
        await server.call_tool("core_memory_append", content)
        shown = await server.call_tool("memory_show", {})
        return {"names": names, "text": shown.content[0].text}


async def pydantic_ai(toolset):
    async with toolset:
        names = sorted(tool.name for tool in await toolset.list_tools())
        content = {"label": "human", "content": "Likes pydantic-ai"}
        await toolset.direct_call_tool("core_memory_append", content)
        shown = await toolset.direct_call_tool("memory_show", {})
        return {"names": names, "text": json.dumps(shown)}


async def main():
    over_http = MCPServerStreamableHttp(params={"url": URL, "headers": HEADERS})
    over_stdio = StdioTransport(COMMAND[0], COMMAND[1:])
    facts = {
        "agents over http": await openai_agents(over_http),
        "agents over stdio": await openai_agents(MCPServerStdio(params=STDIO)),
        "pydantic-ai over http": await pydantic_ai(MCPToolset(URL, headers=HEADERS)),
        "pydantic-ai over stdio": await pydantic_ai(MCPToolset(over_stdio)),
    }
    print(json.dumps(facts))


asyncio.run(main())

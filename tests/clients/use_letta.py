"""Every call of the Letta client that Mnemogate answers, sync and async, with strict validation.

    use_letta.py URL KEY [AGENT]

KEY followed by `1` is an admin key of the same tenant, which makes tools. Tells what it saw, one
JSON object a line. With an agent it only asks that one, as a second process.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import sys
from typing import Any

import letta_client
from letta_client import APIStatusError, AsyncLetta, Letta

URL, KEY = sys.argv[1:3]
MAKER = f"{KEY}1"
BLOCKS = [
    {"label": "human", "value": "Name: Ada."},
    {"label": "persona", "value": "I am Sam, a helper."},
]
HELLO = [{"role": "user", "content": "I like tea"}]


def told(scene: str, **facts: Any) -> None:
    print(json.dumps({"scene": scene, **facts}), flush=True)


def kinds(messages: Any) -> list[str]:
    return [message.message_type for message in messages]


class Caller:
    """Calls a client of either kind in one way."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, name: str, /, *args: Any, **members: Any) -> Any:
        found: Any = self.client
        for part in name.split("."):
            found = getattr(found, part)
        out = found(*args, **members)
        return await out if inspect.isawaitable(out) else out

    async def listed(self, name: str, /, *args: Any, **members: Any) -> list[Any]:
        page = await self(name, *args, **members)
        if hasattr(page, "__aiter__"):
            return [item async for item in page]
        return list(page)

    def has(self, name: str) -> bool:
        found: Any = self.client
        return all((found := getattr(found, part, None)) is not None for part in name.split("."))


async def play(call: Caller, mode: str, maker: Caller) -> None:
    health = await call("health")
    assert health.status == "ok"
    agent = await call(
        "agents.create",
        model="openai/gpt-4.1",
        memory_blocks=BLOCKS,
        tools=["web_search", "run_code"],
        tags=[mode],
    )
    assert (await call("agents.retrieve", agent.id)).id == agent.id
    assert (await call("agents.update", agent.id, name="Sam")).name == "Sam"
    assert [a.id for a in await call.listed("agents.list", tags=[mode], limit=1)] == [agent.id]
    told(f"{mode}_agent", model=agent.model, tools=[t.name for t in agent.tools][-2:])
    await messages(call, mode, agent.id)
    await blocks(call, agent.id)
    await passages(call, agent.id)
    await tools(call, agent.id)
    await made_tools(maker, mode)
    assert [m.handle for m in await call("models.list")]
    await call("models.embeddings.list")
    await files(call, agent.id)
    await faults(call, mode, agent.id)
    state = await call("agents.messages.reset", agent.id, add_default_initial_messages=False)
    assert (state.message_ids if hasattr(state, "message_ids") else []) == []
    assert await call.listed("agents.messages.list", agent.id) == []
    await call("agents.delete", agent.id)


async def messages(call: Caller, mode: str, agent: str) -> None:
    got = await call("agents.messages.create", agent_id=agent, messages=HELLO)
    told(
        f"{mode}_message",
        kinds=kinds(got.messages),
        text=[m.content for m in got.messages if m.message_type == "assistant_message"],
        usage=[got.usage.prompt_tokens, got.usage.total_tokens, got.usage.step_count],
        stop=got.stop_reason.stop_reason,
    )
    for scene, name, more in (
        ("streaming", "agents.messages.create", {"streaming": True}),
        ("stream", "agents.messages.stream", {}),
        ("tokens", "agents.messages.stream", {"stream_tokens": True}),
    ):
        words = [{"role": "user", "content": f"I like tea, {scene}"}]
        stream = await call(name, agent_id=agent, messages=words, **more)
        found = [event async for event in stream] if hasattr(stream, "__aiter__") else list(stream)
        texts = [e.content for e in found if e.message_type == "assistant_message"]
        told(f"{mode}_{scene}", kinds=list(dict.fromkeys(kinds(found))), text="".join(texts))
    listed = await call.listed("agents.messages.list", agent, limit=3, order="asc")
    told(f"{mode}_listed", kinds=kinds(listed))
    assert len({m.id for m in listed}) == len(listed)


async def blocks(call: Caller, agent: str) -> None:
    found = await call.listed("agents.blocks.list", agent)
    assert [b.label for b in found] == ["human", "persona"]
    one = await call("agents.blocks.retrieve", "human", agent_id=agent)
    assert "Likes tea." in one.value
    changed = await call("agents.blocks.update", "human", agent_id=agent, value="Name: Bob.")
    assert (changed.value, changed.id) == ("Name: Bob.", one.id)
    await call("agents.blocks.attach", one.id, agent_id=agent)
    await shared_blocks(call, agent)


async def shared_blocks(call: Caller, agent: str) -> None:
    board = await call("blocks.create", label="board", value="Plan: none.")
    assert (await call("blocks.retrieve", board.id)).value == "Plan: none."
    other = await call("agents.create", model="m", block_ids=[board.id])
    shown = await call("agents.blocks.attach", board.id, agent_id=agent)
    labels = ["board", "human", "persona"]
    assert [b.label for b in await call.listed("agents.blocks.list", agent)] == labels
    await call("agents.blocks.update", "board", agent_id=other.id, value="Plan: tea.")
    got = await call("agents.blocks.retrieve", "board", agent_id=agent)
    assert (got.id, got.value) == (board.id, "Plan: tea.")
    assert [b.id for b in await call.listed("blocks.list", label="board")] == [board.id]
    assert [b.label for b in await call.listed("blocks.list", limit=1)][:1] == ["human"]
    assert {a.id for a in await call.listed("blocks.agents.list", board.id)} == {agent, other.id}
    shown = await call("agents.blocks.detach", board.id, agent_id=agent)
    assert [b.label for b in await call.listed("agents.blocks.list", agent)] == labels[1:]
    assert shown.id == agent
    assert (await call("blocks.update", board.id, value="Done.")).value == "Done."
    await call("agents.delete", other.id)
    await call("blocks.delete", board.id)
    assert await call.listed("blocks.list", label="board") == []


async def passages(call: Caller, agent: str) -> None:
    if not call.has("agents.passages"):
        return
    (made,) = await call("agents.passages.create", agent, text="Ada owns a boat.", tags=["b"])
    assert [p.id for p in await call("agents.passages.list", agent)] == [made.id]
    found = await call("agents.passages.search", agent, query="boat")
    assert (found.count, found.results[0].id) == (1, made.id)
    await call("agents.passages.delete", made.id, agent_id=agent)


async def tools(call: Caller, agent: str) -> None:
    (tool,) = await call.listed("tools.list", name="send_message")
    assert (await call("tools.retrieve", tool.id)).name == "send_message"
    await call("agents.tools.attach", tool.id, agent_id=agent)
    names = [t.name for t in await call.listed("agents.tools.list", agent)]
    assert "send_message" in names
    await call("agents.tools.detach", tool.id, agent_id=agent)


SOURCE = '''
def triple(days: int) -> str:
    """Triple a number of days."""
    return f"{days * 3} days"
'''


async def made_tools(call: Caller, mode: str) -> None:
    """A tool of the script's own: made, attached, called, changed, deleted."""
    tool = await call("tools.create", source_code=SOURCE, tags=["x"])
    assert (tool.name, tool.tool_type, tool.source_code) == ("triple", "custom", SOURCE)
    assert (await call("tools.retrieve", tool.id)).source_code == SOURCE
    assert [t.id for t in await call.listed("tools.list", name="triple")] == [tool.id]
    agent = await call("agents.create", model="m", tool_ids=[tool.id], include_base_tools=False)
    assert [t.name for t in agent.tools] == ["triple"]
    await call("agents.tools.detach", tool.id, agent_id=agent.id)
    assert await call.listed("agents.tools.list", agent.id) == []
    await call("agents.tools.attach", tool.id, agent_id=agent.id)
    question = [{"role": "user", "content": "Triple 4"}]
    got = await call("agents.messages.create", agent_id=agent.id, messages=question)
    returns = [m for m in got.messages if m.message_type == "tool_return_message"]
    told(
        f"{mode}_made_tool",
        kinds=kinds(got.messages),
        calls=[m.tool_call.name for m in got.messages if m.message_type == "tool_call_message"],
        returns=[m.tool_return for m in returns],
    )
    question = [{"role": "user", "content": "Triple 4 again"}]
    stream = await call("agents.messages.stream", agent_id=agent.id, messages=question)
    items = [event async for event in stream] if hasattr(stream, "__aiter__") else list(stream)
    told(f"{mode}_made_tool_stream", kinds=kinds(items))
    four = SOURCE.replace("* 3", "* 4")
    assert (await call("tools.update", tool.id, source_code=four)).source_code == four
    assert (await call("tools.upsert", source_code=SOURCE)).id == tool.id
    await call("tools.delete", tool.id)
    await call("agents.delete", agent.id)


async def files(call: Caller, agent: str) -> None:
    text = await call("agents.export_file", agent)
    text = text if isinstance(text, str) else json.dumps(text)
    file = ("sam.af", io.BytesIO(text.encode()))
    made = await call("agents.import_file", file=file, append_copy_suffix=True)
    (copy,) = made.agent_ids
    assert (await call("agents.retrieve", copy)).name == "Sam_copy"
    await call("agents.delete", copy)


async def faults(call: Caller, mode: str, agent: str) -> None:
    unknown = "agent-00000000-0000-0000-0000-000000000000"
    asks = {
        "missing": ("agents.retrieve", (unknown,), {}),
        "refused": ("agents.create", (), {"model": "m", "identity_ids": ["x"]}),
        "later": ("groups.list", (), {}),
        "own_tool": ("tools.create", (), {"source_code": "def f(): pass"}),
    }
    seen = {}
    for scene, (name, args, members) in asks.items():
        try:
            await call.listed(name, *args, **members)
        except APIStatusError as e:
            seen[scene] = [
                type(e).__name__,
                e.status_code,
                e.response.request.headers.get("x-stainless-retry-count"),
            ]
        except AttributeError:
            # This version of the client has no such call.
            seen[scene] = None
    told(f"{mode}_faults", **seen)


async def use() -> None:
    client: Any
    maker: Any
    for url in (URL, f"{URL}/letta"):
        client, maker = (
            Letta(base_url=url, api_key=key, _strict_response_validation=True)
            for key in (KEY, MAKER)
        )
        await play(Caller(client), "sync", Caller(maker))
        client.close()
        maker.close()
        client, maker = (
            AsyncLetta(base_url=url, api_key=key, _strict_response_validation=True)
            for key in (KEY, MAKER)
        )
        await play(Caller(client), "async", Caller(maker))
        await client.close()
        await maker.close()
    client = Letta(base_url=URL, api_key=KEY, _strict_response_validation=True)
    agent = client.agents.create(
        name="kept",
        memory_blocks=BLOCKS,
        model="openai/gpt-4o-mini",
        embedding="openai/text-embedding-3-small",
    )
    client.agents.messages.create(agent.id, messages=HELLO)
    told("kept", agent=agent.id, version=letta_client.__version__)


def ask_again(agent: str) -> None:
    client = Letta(base_url=URL, api_key=KEY, _strict_response_validation=True)
    question = [{"role": "user", "content": "What do I like?"}]
    got = client.agents.messages.create(agent, messages=question)
    told("again", text=got.messages[-1].content)


if len(sys.argv) > 3:
    ask_again(sys.argv[3])
else:
    asyncio.run(use())

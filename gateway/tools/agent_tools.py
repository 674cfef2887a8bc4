"""`agent_message` and `agent_ask`: what an agent may send to others, as tools of its turn."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.config.delegation import DelegationSettings
from gateway.config.tool_entry import ToolSettings
from gateway.routing.agents import Agent, AgentDirectory, may_call, own_id
from gateway.routing.inner_call import AskBudget, AskChain, InnerAnswer, InnerCall
from gateway.tools.coercion import coerce_arguments
from gateway.tools.grants import any_matches
from gateway.tools.kind import OperatorTool, ToolCaller, ToolOutput
from gateway.tools.kinds import AGENTS
from gateway.wire.chat import object_or_empty
from memory import Memory, MemoryFault, ToolError, home_of, management
from memory.management.inbox import InboxAddress, NewInboxMessage

AGENT_MESSAGE = "agent_message"
AGENT_ASK = "agent_ask"
# Letta's names of the two, for agents whose profile grants them by these.
LETTA_NAMES = {
    "send_message_to_agent_async": AGENT_MESSAGE,
    "send_message_to_agent_and_wait_for_reply": AGENT_ASK,
}
# Names that a definition lists.
LISTED = 20
DESCRIPTIONS = {
    AGENT_MESSAGE: "Leave a message for another agent, which reads it in its next turn. You get no "
    "answer.",
    AGENT_ASK: "Ask another agent and wait for its answer. It does not see this conversation: tell "
    "it all that it needs.",
}
RunTurn = Callable[[InnerCall], Awaitable[InnerAnswer]]


class AskingTurn(msgspec.Struct, frozen=True):
    """The turn whose agent writes to others.

    owner: whose memory it has. request_id: its own. chain: of the asks that led to it. run: lets
    an agent answer.
    """

    principal: Any
    agent: Agent
    user: str | None
    owner: str
    project: str
    request_id: str
    chain: AskChain | None
    run: RunTurn


class ReachableAgents(msgspec.Struct, frozen=True):
    """Whom an agent may reach.

    names: of agents, by the tool. by_id: names by ids. letta_names: of the tools, where the profile
    grants them by these names.
    """

    names: Mapping[str, Sequence[str]]
    by_id: Mapping[str, str]
    letta_names: Sequence[str] = ()


class AgentTools:
    """The two tools of one turn, by our names and Letta's; see `ToolKind`."""

    problem = ""
    is_fixed = False

    def __init__(
        self,
        turn: AskingTurn,
        memory: Memory,
        agents: AgentDirectory,
        bounds: DelegationSettings,
        reachable: ReachableAgents,
    ) -> None:
        self._turn = turn
        self._memory = memory
        self._agents = agents
        self._bounds = bounds
        self._reachable = reachable
        chain = turn.chain
        self._names = (*(chain.names if chain is not None else ()), turn.agent.name)
        if chain is not None:
            self._budget = chain.budget
        else:
            self._budget = AskBudget(bounds.max_asks)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._conversation = self._explain = ""

    def begin_round(self, conversation: str, explain: str) -> None:
        """Take note of the turn's conversation, and of its explain record."""
        self._conversation = conversation
        self._explain = explain

    def list_tools(self, tenant: str) -> Sequence[OperatorTool]:
        tools = [_tool_of(name, names) for name, names in self._reachable.names.items() if names]
        letta_tools = [
            _letta_tool(letta_name, names)
            for letta_name in self._reachable.letta_names
            if (names := self._reachable.names[LETTA_NAMES[letta_name]])
        ]
        return tools + letta_tools

    def check_arguments(
        self, tool: OperatorTool, arguments: dict[str, Any]
    ) -> dict[str, Any] | str:
        coerced = coerce_arguments(_loose_parameters(tool.name), arguments)
        if isinstance(coerced, str):
            return coerced
        names = self._reachable.names[LETTA_NAMES.get(tool.name, tool.name)]
        if tool.name in LETTA_NAMES:
            to = str(coerced["other_agent_id"])
            text = coerced["message"]
            to = self._reachable.by_id.get(own_id(to), to)
        else:
            to = str(coerced["to"])
            text = coerced["text"]
        if to in names or to in self._names:
            return {"to": to, "text": text}
        return f"this agent may not reach {to[:64]!r} so; it may reach: {', '.join(names[:LISTED])}"

    async def run(
        self, tool: OperatorTool, arguments: Mapping[str, Any], caller: ToolCaller
    ) -> ToolOutput:
        """Leave a message, or ask and wait."""
        try:
            agent = await self._agents.find(caller.tenant, arguments["to"])
            if agent is None:
                return _failed(f"there is no agent {arguments['to'][:64]!r} any more")
            if LETTA_NAMES.get(tool.name, tool.name) == AGENT_MESSAGE:
                return await self._leave(agent, arguments["text"])
            return await self._ask(agent, arguments["text"])
        except ToolError as e:
            return ToolOutput(f"Error: {e}", "error")
        except MemoryFault:
            return _failed("the memory cannot be reached right now")

    async def close(self) -> None:
        """Nothing is held open."""

    async def _leave(self, agent: Agent, text: str) -> ToolOutput:
        turn = self._turn
        self._memory.policy.screen.check("text", text)
        to = InboxAddress(turn.principal.tenant, self._owner_of(agent), agent.name)
        message = NewInboxMessage(to, turn.agent.name, text, turn.user)
        await management.inbox.put_message(self._memory, message)
        return ToolOutput(f"The message waits for {agent.name}, which reads it in its next turn.")

    async def _ask(self, agent: Agent, text: str) -> ToolOutput:
        if refusal := self._refuse(agent):
            return _failed(refusal)
        self._budget.asks_left -= 1
        turn = self._turn
        names = self._names
        asked_by = {
            "agent": turn.agent.name,
            "explain": self._explain,
            "request_id": turn.request_id,
            "depth": len(names),
        }
        parent = turn.request_id if turn.chain is None else turn.chain.parent
        is_own = agent.settings.home == "agent"
        call = InnerCall(
            turn.principal,
            agent,
            (turn.user or turn.owner) if is_own else turn.owner,
            self._conversation_with(agent),
            f'Message from the agent "{turn.agent.name}":\n\n{text}',
            AskChain(names, self._budget, parent, asked_by),
            turn.project,
        )
        # Turns of one conversation follow each other.
        async with self._locks[agent.name]:
            start_time = asyncio.get_running_loop().time()
            answer = await turn.run(call)
        seconds = asyncio.get_running_loop().time() - start_time
        return self._read_answer(agent, answer, round(seconds * 1000, 2))

    def _refuse(self, agent: Agent) -> str:
        """Return why an agent is not asked, "" for nothing."""
        names = self._names
        bounds = self._bounds
        if agent.name in names:
            return f"{agent.name} is already waiting ({' > '.join([*names, agent.name])})"
        if len(names) > bounds.max_depth:
            return f"agents may ask each other {bounds.max_depth} deep, and this would be deeper"
        if self._budget.asks_left <= 0:
            return f"the agents of one request may ask {bounds.max_asks} times, and did"
        if not may_call(self._turn.principal, agent.name, agent.settings.home):
            return f"this key may not call the agent {agent.name}"
        return ""

    def _read_answer(self, agent: Agent, answer: InnerAnswer, milliseconds: float) -> ToolOutput:
        body = object_or_empty(answer.body)
        headers = answer.headers
        if answer.status != 200:
            error = body.get("error")
            code = error.get("code") or error.get("type") if isinstance(error, dict) else ""
            return _failed(f"{agent.name} could not answer (HTTP {answer.status} {code})")
        choices = body.get("choices")
        message = None
        if choices:
            message = choices[0].get("message")
        text = str((message or {}).get("content") or "")
        limit = self._bounds.answer_characters
        if len(text) > limit:
            text = f"{text[:limit]}\n[{len(text) - limit} characters left out]"
        facts = {
            "name": agent.name,
            "explain": _word(headers, b"x-memory-explain"),
            "request_id": _word(headers, b"x-mnemogate-request-id"),
            "depth": len(self._names),
            "rounds": int(_word(headers, b"x-memory-rounds") or 0),
            "tokens": (body.get("usage") or {}).get("total_tokens", 0),
            "cost_usd": answer.cost_usd,
            "ms": milliseconds,
        }
        return ToolOutput(text, facts={"agent": facts})

    def _owner_of(self, agent: Agent) -> str:
        if agent.settings.home == "agent":
            return home_of(agent.name)
        return self._turn.owner

    def _conversation_with(self, agent: Agent) -> str:
        """Return the conversation of this one with an agent: one for each pair."""
        pair = f"{self._conversation}\x00{agent.id}".encode()
        return f"ask-{hashlib.sha256(pair).hexdigest()[:32]}"


def entry_settings(bounds: DelegationSettings) -> ToolSettings:
    """Return the settings of the entry whose tools these are."""
    # Which may be shorter or longer than those of an entry.
    seconds = bounds.ask_seconds
    return ToolSettings.model_construct(
        kind=AGENTS, timeout=seconds, concurrent=bounds.parallel, pinned=True
    )


def reachable_names(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that a profile's patterns allow."""
    return [name for name in names if any_matches(patterns, name)]


def _tool_of(name: str, names: Sequence[str]) -> OperatorTool:
    parameters = _parameters(names if len(names) <= LISTED else ())
    return OperatorTool(name, AGENTS, DESCRIPTIONS[name], parameters, "write", pinned=True)


def _parameters(names: Sequence[str]) -> dict[str, Any]:
    to = {"type": "string", **({"enum": list(names)} if names else {})}
    properties = {"to": to, "text": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["to", "text"]}


def _letta_tool(name: str, names: Sequence[str]) -> OperatorTool:
    """Return a tool by Letta's name; ids are not listed, but are understood."""
    reachable = ", ".join(names[:LISTED])
    parameters = _letta_parameters(f"Name or id of the agent. You may reach: {reachable}")
    about = DESCRIPTIONS[LETTA_NAMES[name]]
    return OperatorTool(name, AGENTS, about, parameters, "write", pinned=True)


def _letta_parameters(about: str) -> dict[str, Any]:
    properties = {
        "message": {"type": "string"},
        "other_agent_id": {"type": "string", "description": about},
    }
    return {"type": "object", "properties": properties, "required": ["message", "other_agent_id"]}


def _loose_parameters(name: str) -> dict[str, Any]:
    """Return the schema that arguments must fit: the agent's name is looked at afterwards."""
    if name in LETTA_NAMES:
        return _letta_parameters("")
    return _parameters(())


def _failed(why: str) -> ToolOutput:
    return ToolOutput(f"Error: {why}. Answer without it, and say so if it matters.", "error")


def _word(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")

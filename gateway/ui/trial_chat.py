"""A trial chat with an agent: what was said in it, and the blocks of the memory it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.errors import ResourceNotFound
from gateway.management import blocks as blocks_api
from gateway.management.context import UserContext, with_agents_blocks
from gateway.management.schemas import Block, Page
from gateway.routing.agents import Agent
from gateway.ui.texts import diff_lines, text_of_content
from gateway.ui.visitor import ACTOR, Visitor
from memory import ConversationName, Scope, VisibleScopes, management, shown_owner

MAX_BLOCKS = 200
MAX_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class TrialMessage:
    """A message of the trial chat. role: `user`, `assistant`, or `error`."""

    role: str
    text: str
    note: str = ""
    explain: str = ""


@dataclass(frozen=True, slots=True)
class TrialBlock:
    """A block after a turn. lines: marked with what the turn changed; empty if it is unchanged."""

    block: Block
    lines: Sequence[tuple[str, str]] = ()


@dataclass(slots=True)
class Trial:
    """A trial chat: who talks to which agent, and in which conversation."""

    visitor: Visitor
    agent: Agent
    user: str
    conversation: str

    @property
    def owner(self) -> str:
        """Whose memory it is about."""
        return self.agent.owner(self.user) or self.user

    @property
    def may_look(self) -> bool:
        """Whether the visitor may see that memory."""
        principal = self.visitor.caller.principal
        # The agent's own, which holds what others told it.
        if self.owner != self.user:
            return principal.trusted or principal.admin
        return principal.may_name(self.user)

    @property
    def memory_link(self) -> dict[str, str]:
        """The parameters of links to that memory's pages."""
        tenant = self.visitor.caller.asked_tenant or ""
        if self.owner != self.user:
            return {"user": shown_owner(self.owner) or "", "agent": "", "tenant": tenant}
        return {"user": self.user, "agent": self.agent.name, "tenant": tenant}

    async def read_blocks(self) -> list[Block]:
        """Return the blocks as the agent has them now. Raises StoreDown."""
        if not self.may_look:
            return []
        caller = self.visitor.caller
        scope = Scope(caller.tenant, self.owner, self.agent.name, caller.gateway.secret)
        context = await with_agents_blocks(UserContext(caller, scope, ACTOR))
        page: Page[Block] = await blocks_api.blocks.fn(context, None, MAX_BLOCKS)
        return page.data

    async def read_messages(self) -> list[TrialMessage]:
        """Return what was said so far. Raises StoreDown."""
        caller = self.visitor.caller
        conversation_name = ConversationName(self.conversation, self.owner, self.agent.name)
        reach = VisibleScopes(caller.tenant, None if self.may_look else [])
        try:
            _, rows = await caller.read(
                management.conversations.read_conversation(
                    caller.memory, reach, conversation_name, 0, MAX_MESSAGES
                )
            )
        except ResourceNotFound:
            return []
        screen = caller.memory.policy.screen
        bodies = [(r["role"], management.conversations.read_message(r, screen)) for r in rows]
        return [
            TrialMessage(role, text)
            for role, body in bodies
            if role in ("user", "assistant") and (text := text_of_content(body.get("content")))
        ]


def mark_changes(before: Sequence[Block], after: Sequence[Block]) -> list[TrialBlock]:
    """Return the blocks after a turn, each with what the turn changed in it."""
    values = {block.label: block.value for block in before}
    return [
        TrialBlock(block, list(diff_lines(values.get(block.label), block.value)))
        if values.get(block.label, "") != block.value
        else TrialBlock(block)
        for block in after
    ]
